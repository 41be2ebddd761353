//! The living descendants of this process, on systems that list them, and signals to them.
//!
//! A process can leave its group and its session. It cannot leave its ancestors: an orphan
//! becomes the child of the nearest subreaper. Whether any descendant is left, the kernel
//! tells: a subreaper without children has none. What is read here, from Linux's `/proc`,
//! only finds those to send a signal to.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid};

/// How many times to look for processes that start while others are being stopped.
const ROUNDS: usize = 16;

#[derive(Debug, PartialEq)]
pub(crate) struct Process {
    id: i32,
    parent: i32,
    group: i32,
    state: u8,
    threads: u32,
    /// When it was started, in the kernel's ticks.
    started: u64,
    name: Vec<u8>,
}

impl Process {
    pub(crate) fn is_in(&self, group: Pid) -> bool {
        self.group == group.as_raw_pid()
    }

    /// Returns its name and number.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({})", self.id, String::from_utf8_lossy(&self.name))
    }

    /// Sends a signal, unless the process has ended.
    ///
    /// The open folder is a pidfd: it stands for this process, whoever gets the number next.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let sent = File::open(format!("/proc/{}", self.id)).and_then(|folder| {
            match read(self.id)?.started == self.started {
                true => send(&folder, signal),
                false => Ok(()),
            }
        });
        sent.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
    }

    fn lives(&self) -> bool {
        match self.state {
            // If only its first thread has ended, the process lives on.
            b'Z' => self.threads > 1,
            state => !matches!(state, b'X' | b'x'),
        }
    }
}

/// Returns the living descendants of this process, without the processes in `except` and
/// theirs.
///
/// A process that is started and orphaned during the look can be missed: look again.
pub(crate) fn living(except: &[Pid]) -> io::Result<Vec<Process>> {
    let me = getpid().as_raw_pid();
    // The `/proc` of another namespace has other numbers.
    if fs::read_link("/proc/self")? != Path::new(&me.to_string()) {
        return Err(io::Error::other("/proc is another namespace's"));
    }
    Ok(below(me, except, all()?))
}

/// Returns the children of this process.
pub(crate) fn children() -> Vec<Pid> {
    let me = getpid().as_raw_pid();
    let all = living(&[]).unwrap_or_default();
    let children = all.iter().filter(|process| process.parent == me);
    children
        .filter_map(|child| Pid::from_raw(child.id))
        .collect()
}

/// Stops the living descendants of this process for which this is true, until there are no new
/// ones. Returns those that it stopped, and the last failure.
pub(crate) fn stop(
    except: &[Pid],
    which: impl Fn(&Process) -> bool,
) -> (Vec<Process>, io::Result<()>) {
    let (mut stopped, mut told, mut known) = (Vec::new(), Ok(()), HashSet::new());
    for _ in 0..ROUNDS {
        let look = living(except).unwrap_or_else(|error| {
            told = Err(error);
            Vec::new()
        });
        let before = known.len();
        for process in look {
            if !which(&process) || !known.insert((process.id, process.started)) {
                continue;
            }
            match process.signal(Signal::STOP) {
                Ok(()) => stopped.push(process),
                Err(error) => {
                    told = Err(io::Error::new(
                        error.kind(),
                        format!("process {}: {error}", process.describe()),
                    ));
                }
            }
        }
        if known.len() == before {
            break;
        }
    }
    (stopped, told)
}

/// Whether a process still runs, rather than being stopped.
pub(crate) fn runs(process: &Process) -> bool {
    !matches!(process.state, b'T' | b't')
}

/// Kills the living descendants. All of them are stopped first, so that they start no others.
///
/// This does not wait for their end: look again.
pub(crate) fn kill(except: &[Pid]) -> io::Result<()> {
    let (stopped, told) = stop(except, |_| true);
    for process in &stopped {
        process.signal(Signal::KILL)?;
    }
    told
}

#[cfg(target_os = "linux")]
fn send(folder: &File, signal: Signal) -> io::Result<()> {
    Ok(rustix::process::pidfd_send_signal(folder, signal)?)
}

#[cfg(not(target_os = "linux"))]
fn send(_: &File, _: Signal) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

fn below(root: i32, except: &[Pid], mut rest: Vec<Process>) -> Vec<Process> {
    rest.retain(|one| !except.iter().any(|pid| pid.as_raw_pid() == one.id));
    let (mut found, mut parents) = (Vec::new(), HashSet::from([root]));
    loop {
        let (children, others): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|one| parents.contains(&one.parent));
        if children.is_empty() {
            found.retain(Process::lives);
            return found;
        }
        parents = children.iter().map(|one| one.id).collect();
        found.extend(children);
        rest = others;
    }
}

fn all() -> io::Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match read(id) {
            Ok(process) => all.push(process),
            // Another user's, where the system hides those.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

fn is_gone(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(Errno::NOENT.raw_os_error()) || number == Some(Errno::SRCH.raw_os_error())
}

fn read(id: i32) -> io::Result<Process> {
    let stat = fs::read(format!("/proc/{id}/stat"))?;
    parse(&stat).ok_or_else(|| io::Error::other(format!("/proc/{id}/stat is not understood")))
}

/// Reads proc(5)'s `stat`. The kernel cuts a name after 15 bytes, inside a character if need
/// be, and the name may contain spaces and parentheses.
fn parse(stat: &[u8]) -> Option<Process> {
    let (begin, end) = (
        stat.iter().position(|byte| *byte == b'(')?,
        stat.iter().rposition(|byte| *byte == b')')?,
    );
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let rest: Vec<_> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| rest.get(at)?.parse::<i32>().ok();
    Some(Process {
        id: std::str::from_utf8(stat.get(..begin)?)
            .ok()?
            .trim()
            .parse()
            .ok()?,
        state: *rest.first()?.as_bytes().first()?,
        parent: number(1)?,
        group: number(2)?,
        threads: rest.get(17)?.parse().ok()?,
        started: rest.get(19)?.parse().ok()?,
        name: stat.get(begin + 1..end)?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(id: i32, name: &[u8], state: char, parent: i32, threads: i32) -> Option<Process> {
        let rest =
            format!(") {state} {parent} 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 99\n");
        parse(&[format!("{id} (").as_bytes(), name, rest.as_bytes()].concat())
    }

    #[test]
    fn descendants_are_found_through_all_generations_and_zombies_are_not_alive() {
        let process = |id, state, parent, threads| {
            // A name that the kernel has cut inside a character.
            stat(id, b"a) R 1 (\xc3", state, parent, threads).expect("a process")
        };
        let all = vec![
            process(9, 'S', 8, 1),
            process(8, 'T', 7, 1),
            process(7, 'Z', 5, 1),
            process(6, 'S', 1, 1),
            process(5, 'S', 2, 1),
            process(10, 'Z', 5, 3),
            process(11, 'S', 2, 1),
            process(12, 'S', 11, 1),
        ];
        let found = below(2, &[Pid::from_raw(11).expect("a number")], all);
        let mut found: Vec<_> = found.iter().map(|process| process.id).collect();
        found.sort_unstable();
        assert_eq!(found, [5, 8, 9, 10]);
    }

    #[test]
    fn what_is_no_process_is_not_understood() {
        for text in [
            "",
            "1",
            "1 (a",
            "1 (a)",
            "x (a) S 1 1",
            "1 (a) Z 1 1",
            ") 1 (",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
