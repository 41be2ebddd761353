//! The descendants of this process, as Linux lists them, and signals to them.
//!
//! A process can leave its group and its session. It cannot leave its ancestors: an orphan
//! becomes the child of the nearest subreaper. Whether any descendant is left, the kernel
//! tells: a subreaper without children has none. What is read here, the lists of children in
//! `/proc`, only finds those to send a signal to. What cannot be read counts as running.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, test_kill_process, wait,
};
#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

/// How long to chase processes that change meanwhile.
const CHASE: Duration = Duration::from_millis(20);

/// How long a process may take to notice a signal before it is looked at again.
const NOTICE: Duration = Duration::from_millis(1);

/// The kernel's flag of a process that has begun to end.
const ENDING: u32 = 4;

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum State {
    Dead,
    /// It still has its open files, and adopts nothing any more.
    Ending,
    Stopped,
    /// In the hands of a debugger, which may let it run on: stopped only if it is sent a signal, too.
    Traced,
    /// In a call that no signal interrupts, such as vfork(2) or a write to a disk.
    Uninterruptible,
    Running,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    id: Pid,
    group: i32,
    /// The greatest state of its threads.
    state: State,
    /// When it was started, in the kernel's ticks.
    started: u64,
    name: String,
    children: Vec<Pid>,
}

impl Process {
    fn unreadable(id: Pid) -> Self {
        Self {
            id,
            group: 0,
            state: State::Running,
            started: 0,
            name: "cannot be read".to_owned(),
            children: Vec::new(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        (self.id, self.started) == (other.id, other.started)
    }

    pub(crate) fn is_in(&self, group: Pid) -> bool {
        self.group == group.as_raw_pid()
    }

    /// Whether it is not stopped.
    pub(crate) fn runs(&self) -> bool {
        self.state > State::Traced
    }

    /// Returns its name and number.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({})", self.id, self.name)
    }

    /// Sends a signal, unless the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match send(self, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("process {}: {error}", self.describe()),
            )),
        }
    }
}

#[cfg(target_os = "linux")]
fn send(process: &Process, signal: Signal) -> rustix::io::Result<()> {
    let opened = pidfd_open(process.id, PidfdFlags::empty())?;
    // The number may have been another process's when it was opened.
    match read(process.id).is_some_and(|now| process.is(&now)) {
        true => pidfd_send_signal(opened, signal),
        false => Err(Errno::SRCH),
    }
}

#[cfg(not(target_os = "linux"))]
fn send(_: &Process, _: Signal) -> rustix::io::Result<()> {
    Err(Errno::NOTSUP)
}

/// The descendants of this process.
#[derive(Debug)]
pub(crate) struct Descendants {
    /// The list of the children. It stays open, so that a limit of open files hides none.
    list: io::Result<File>,
    /// Children that do not count, nor do theirs.
    strangers: Vec<Pid>,
}

impl Descendants {
    /// Returns those of this process, to be called in its first thread, which adopts orphans.
    ///
    /// The children that it has already are not among them: it was another program before, such as
    /// a shell, or the first process of a container.
    pub(crate) fn new() -> Self {
        let mut all = Self {
            list: open_list(),
            strangers: Vec::new(),
        };
        all.strangers = all.children().unwrap_or_default();
        all
    }

    /// Takes this child for none of them.
    pub(crate) fn except(&mut self, child: Pid) {
        self.strangers.push(child);
    }

    /// Takes the other children for none of them, while this one lives: it adopts its orphans itself.
    pub(crate) fn only_of(&mut self, child: Pid) {
        let mut others = self.children().unwrap_or_default();
        others.retain(|other| *other != child);
        // Asked afterwards: from when it begins to end, orphans become this process's. waitid(2) does not tell
        // of that, nor of its end if a debugger hides it.
        let adopts = || read_threads(child).is_some_and(|one| one.state > State::Ending);
        if !others.is_empty() && adopts() {
            self.strangers.extend(others);
        }
    }

    /// Reaps the children that have ended; returns them, those that have stopped, and whether there
    /// are others.
    pub(crate) fn reap(&mut self) -> (Vec<(Pid, WaitStatus)>, bool) {
        let mut changed = Vec::new();
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((child, status))) => {
                    if !status.stopped() {
                        // The number may be given to another process.
                        self.strangers.retain(|other| *other != child);
                    }
                    changed.push((child, status));
                }
                Err(Errno::INTR) => {}
                rest => return (changed, rest.is_ok()),
            }
        }
    }

    /// Returns the children, of which some may be dead.
    fn children(&self) -> io::Result<Vec<Pid>> {
        let list = self.list.as_ref();
        let mut list = list.map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let mut text = Vec::new();
        list.rewind()?;
        list.read_to_end(&mut text)?;
        let all = numbers(&text).into_iter();
        Ok(all
            .filter(|child| !self.strangers.contains(child))
            .collect())
    }

    /// Returns the living descendants. Those that are started during the look can be missed.
    pub(crate) fn living(&self) -> io::Result<Vec<Process>> {
        let until = Instant::now() + CHASE;
        loop {
            let (mut all, is_still) = self.look()?;
            if is_still || Instant::now() > until {
                all.retain(|one| one.state > State::Dead);
                return Ok(all);
            }
        }
    }

    /// Whether all are dead but this one.
    pub(crate) fn are_dead_but(&self, child: Option<Pid>) -> bool {
        let is_dead = |one: &Process| one.state == State::Dead || Some(one.id) == child;
        let look = self.look();
        look.is_ok_and(|(all, is_still)| is_still && all.iter().all(is_dead))
    }

    /// Returns the descendants, and whether a second look has found the same.
    ///
    /// Who is orphaned meanwhile goes to an ancestor, so ancestors are looked at again last.
    fn look(&self) -> io::Result<(Vec<Process>, bool)> {
        let children = self.children()?;
        let all = below(&children, |_| ());
        let is_same = |one: &Process| read(one.id).as_ref() == Some(one);
        let are_same = all.iter().rev().all(is_same);
        Ok((all, are_same && self.children()? == children))
    }

    /// Stops the descendants, and fails if, a moment later, one of them still is in a greater
    /// state than this. Adds those that it has stopped.
    pub(crate) fn stop(&self, at_most: State, stopped: &mut Vec<Process>) -> io::Result<()> {
        let until = Instant::now() + CHASE;
        loop {
            let (all, is_still) = self.look()?;
            let before = stopped.len();
            for process in all.iter().filter(|one| one.state > State::Stopped) {
                if !stopped.iter().any(|other| other.is(process)) {
                    process.signal(Signal::STOP)?;
                    stopped.push(process.clone());
                }
            }
            let rests = is_still && stopped.len() == before;
            let why = match all.iter().find(|one| one.state > at_most) {
                None if rests => return Ok(()),
                None => "its processes replace each other".to_owned(),
                Some(process) => format!("process {} does not stop", process.describe()),
            };
            if Instant::now() > until {
                return Err(io::Error::other(why));
            }
            if stopped.len() == before {
                thread::sleep(NOTICE);
            }
        }
    }

    /// Kills the descendants that are found, without waiting for their end: repeat it, as others may
    /// have started meanwhile.
    pub(crate) fn kill(&self) {
        let children = self.children().unwrap_or_default();
        // This needs no other file, and is allowed for most of what cannot be read.
        for child in &children {
            // Not reaped yet, so the number is still its own.
            let _ = kill_process(*child, Signal::KILL);
        }
        // Each as it is found: what is dead starts no other.
        below(&children, |one| drop(one.signal(Signal::KILL)));
    }
}

fn open_list() -> io::Result<File> {
    let me = getpid().to_string();
    // The `/proc` of another namespace has other numbers.
    if fs::read_link("/proc/self")? != Path::new(&me) {
        return Err(io::Error::other("/proc is another namespace's"));
    }
    File::open(format!("/proc/self/task/{me}/children"))
}

/// Returns these processes and their descendants, each after its parent, and shows each before it reads on.
fn below(children: &[Pid], show: impl Fn(&Process)) -> Vec<Process> {
    let mut ids: VecDeque<_> = children.iter().copied().collect();
    let mut all = Vec::new();
    while let Some(id) = ids.pop_front() {
        let found = read(id);
        found.iter().for_each(&show);
        ids.extend(found.iter().flat_map(|one| &one.children));
        all.extend(found);
    }
    all
}

/// Returns nothing if it is gone. One that `/proc` hides is not.
fn read(id: Pid) -> Option<Process> {
    match read_threads(id) {
        None if test_kill_process(id) == Err(Errno::SRCH) => None,
        read => Some(read.unwrap_or_else(|| Process::unreadable(id))),
    }
}

fn read_threads(id: Pid) -> Option<Process> {
    let (mut process, mut state, mut children) = (None, State::Dead, Vec::new());
    let threads: Vec<_> = fs::read_dir(format!("/proc/{id}/task")).ok()?.collect();
    for thread in threads {
        let folder = thread.ok()?.path();
        // In this order: what is stopped has no more children afterwards.
        let read = fs::read(folder.join("stat"));
        let read = read.and_then(|stat| Ok((stat, fs::read(folder.join("children"))?)));
        match read.map_err(|error| Errno::from_io_error(&error)) {
            // Its children are another thread's now, which may have been read already.
            Err(Some(Errno::NOENT | Errno::SRCH)) => state = State::Running,
            read => {
                let (stat, list) = read.ok()?;
                let thread = parse(&stat)?;
                state = state.max(thread.state);
                children.extend(numbers(&list));
                process = process.or_else(|| Some(thread).filter(|one| one.id == id));
            }
        }
    }
    Some(Process {
        state,
        children,
        ..process?
    })
}

fn numbers(list: &[u8]) -> Vec<Pid> {
    let list = String::from_utf8_lossy(list);
    list.split_ascii_whitespace().filter_map(number).collect()
}

fn number(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// Reads proc(5)'s `stat`. The kernel cuts a name after 15 bytes, inside a character if need
/// be, and the name may contain spaces and parentheses.
fn parse(stat: &[u8]) -> Option<Process> {
    let stat = String::from_utf8_lossy(stat);
    let (begin, rest) = stat.rsplit_once(')')?;
    let (id, name) = begin.split_once('(')?;
    let rest: Vec<_> = rest.split_ascii_whitespace().collect();
    Some(Process {
        id: number(id.trim())?,
        state: match *rest.first()?.as_bytes().first()? {
            b'Z' | b'X' | b'x' => State::Dead,
            _ if rest.get(6)?.parse::<u32>().ok()? & ENDING != 0 => State::Ending,
            b'T' => State::Stopped,
            b't' => State::Traced,
            b'D' => State::Uninterruptible,
            _ => State::Running,
        },
        group: rest.get(2)?.parse().ok()?,
        started: rest.get(19)?.parse().ok()?,
        name: name.to_owned(),
        children: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_cut_or_has_spaces_and_parentheses_is_read() {
        for (letter, flags, state) in [
            ('Z', 4_194_564, State::Dead),
            ('D', 4_194_564, State::Ending),
            ('T', 4_194_560, State::Stopped),
            ('t', 4_194_560, State::Traced),
            ('D', 4_194_560, State::Uninterruptible),
            ('S', 4_194_560, State::Running),
        ] {
            let rest = format!(") {letter} 1 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 1 0 99 4096\n");
            let process = parse(&[b"12 (a) R 1 (\xc3", rest.as_bytes()].concat());
            let process = process.expect("a process");
            let numbers = (process.id.as_raw_pid(), process.group, process.started);
            assert_eq!(numbers, (12, 7, 99));
            assert_eq!(
                (process.name, process.state),
                ("a) R 1 (\u{fffd}".to_owned(), state)
            );
        }
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
