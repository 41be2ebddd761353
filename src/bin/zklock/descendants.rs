//! All processes that a command has started, on systems that list them.
//!
//! A process can leave its group, as under timeout(1), setsid(1) and a shell with job
//! control. It cannot leave its ancestors: an orphan becomes the child of the nearest
//! subreaper, which is `zklock run`. So the descendants of this process are what the command
//! has started, whatever their groups and sessions are. Linux lists the parents in `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::helper::{NODE, NODES};

/// How many times to look for processes that start while others are being stopped.
const ROUNDS: usize = 16;

/// The kernel's PF_KTHREAD.
const OF_KERNEL: i32 = 0x0020_0000;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ProcessStat {
    pub(crate) id: Pid,
    parent: Option<Pid>,
    pub(crate) group: Option<Pid>,
    lives: bool,
    /// A kernel thread, which nobody has started under a lock.
    is_kernels: bool,
    /// When it was started, in the kernel's ticks.
    started: u64,
}

/// Returns the living descendants of this process without the `helpers` and their
/// descendants; `None` where the system does not provide them.
///
/// A process that is started and orphaned during the look can be missed: look again.
pub(crate) fn living(helpers: &[Pid]) -> Option<Vec<ProcessStat>> {
    let me = getpid();
    // The `/proc` of another namespace has other numbers.
    let link = fs::read_link("/proc/self").ok()?;
    if link != Path::new(&me.as_raw_pid().to_string()) {
        return None;
    }
    Some(below(me, helpers, &all()?))
}

/// Kills the living descendants. All of them are stopped first, so that they start no others.
///
/// This does not wait for their end: look again.
pub(crate) fn kill(helpers: &[Pid]) {
    kill_each(|| living(helpers).unwrap_or_default());
}

/// Kills all processes of this user that were started under the lock with this node, until
/// none is left. A process that overwrites its environment is not found.
pub(crate) fn kill_under(node: &str) {
    for _ in 0..ROUNDS {
        if !kill_each(|| under(node)) {
            return;
        }
    }
}

/// Whether no process of this group lives, and none that was started under the lock with this
/// node; `false` where the system does not tell.
pub(crate) fn are_gone(group: Pid, node: &str) -> bool {
    let Some(me) = stat_of("self") else {
        return false;
    };
    let is_gone = || {
        let Some(all) = all() else { return false };
        let mut others = all.iter().filter(|one| one.lives && one.id != me.id);
        !others.any(|one| {
            let may_be = || may_be_a_sibling(one, &me, &all);
            one.group == Some(group) || is_under(one, node).unwrap_or_else(may_be)
        })
    };
    // A process that is started during the first look is found in the second. Where other
    // users' processes are hidden, the first process is hidden too.
    let gone = stat_of("1").is_some() && is_gone() && is_gone();
    // All processes that `zklock` left get another parent at the same moment, which may come late.
    gone && stat_of("self").is_some_and(|now| now.parent == me.parent)
}

/// Whether a process may descend from this one's first parent, `zklock`, which is gone.
///
/// All processes that `zklock` left have the parent that this process has now. A process that
/// does not descend from one of these, or from one as new as this one, is not a descendant.
fn may_be_a_sibling(process: &ProcessStat, me: &ProcessStat, all: &[ProcessStat]) -> bool {
    let mut next = process;
    // There are no more generations than processes, if numbers are reused.
    for _ in all {
        if next.is_kernels || next.started < me.started {
            return false;
        }
        if next.parent == me.parent {
            return true;
        }
        match all.iter().find(|one| Some(one.id) == next.parent) {
            Some(parent) => next = parent,
            None => return true,
        }
    }
    true
}

fn under(node: &str) -> Vec<ProcessStat> {
    let me = getpid();
    let mut found = all().unwrap_or_default();
    found.retain(|process| {
        process.lives && process.id != me && is_under(process, node) == Some(true)
    });
    found
}

/// Whether a process was started under the lock with this node; `None` if the system hides
/// that.
fn is_under(process: &ProcessStat, node: &str) -> Option<bool> {
    let (nearest, all_around) = (format!("{NODE}="), format!("{NODES}="));
    let names_it = |variable: &[u8]| {
        let nodes = variable
            .strip_prefix(nearest.as_bytes())
            .or_else(|| variable.strip_prefix(all_around.as_bytes()));
        nodes.is_some_and(|nodes| {
            let mut nodes = nodes.split(|byte| *byte == b'\n');
            nodes.any(|one| one == node.as_bytes())
        })
    };
    let environment = environment(process.id)?;
    Some(environment.split(|byte| *byte == 0).any(names_it))
}

/// Returns the environment that a process was started with; `None` if the system hides it.
fn environment(process: Pid) -> Option<Vec<u8>> {
    let folder = format!("/proc/{}", process.as_raw_pid());
    let read = |folder: &Path| match fs::read(folder.join("environ")) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        // The other errors are those of a process that has ended.
        read => Some(read.unwrap_or_default()),
    };
    let environment = read(Path::new(&folder))?;
    if !environment.is_empty() {
        return Some(environment);
    }
    // The first thread may have ended before the others.
    let threads = fs::read_dir(format!("{folder}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let environment = read(&thread.path())?;
        if !environment.is_empty() {
            return Some(environment);
        }
    }
    Some(Vec::new())
}

/// Returns whether there were any processes.
fn kill_each(look: impl Fn() -> Vec<ProcessStat>) -> bool {
    let mut stopped = HashSet::new();
    for _ in 0..ROUNDS {
        let before = stopped.len();
        for process in look() {
            if stopped.insert(process.id) {
                // This fails for processes that have just ended, and for those of other users.
                let _ = kill_process(process.id, Signal::STOP);
            }
        }
        if stopped.len() == before {
            break;
        }
    }
    for process in &stopped {
        let _ = kill_process(*process, Signal::KILL);
    }
    !stopped.is_empty()
}

fn below(root: Pid, helpers: &[Pid], all: &[ProcessStat]) -> Vec<ProcessStat> {
    let mut children: HashMap<Pid, Vec<&ProcessStat>> = HashMap::new();
    for process in all {
        if let Some(parent) = process.parent {
            children.entry(parent).or_default().push(process);
        }
    }
    let (mut found, mut parents) = (Vec::new(), vec![root]);
    while let Some(parent) = parents.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            if helpers.contains(&process.id) {
                continue;
            }
            parents.push(process.id);
            if process.lives {
                found.push(*process);
            }
        }
    }
    found
}

fn all() -> Option<Vec<ProcessStat>> {
    let entries = fs::read_dir("/proc").ok()?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let numbers = names.filter(|name| name.as_encoded_bytes()[0].is_ascii_digit());
    Some(numbers.filter_map(|name| stat_of(&name)).collect())
}

fn stat_of(name: impl AsRef<Path>) -> Option<ProcessStat> {
    let file = Path::new("/proc").join(name).join("stat");
    parse(&fs::read_to_string(file).ok()?)
}

/// Reads proc(5)'s `stat`.
fn parse(stat: &str) -> Option<ProcessStat> {
    // The name may contain spaces and parentheses.
    let (id, rest) = stat.split_once(' ')?;
    let rest: Vec<_> = rest.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| rest.get(at)?.parse::<i32>().ok();
    // A process that is being reaped has the group -1.
    let process = |at| number(at).filter(|id| *id > 0).and_then(Pid::from_raw);
    let lives = match *rest.first()? {
        // If only its first thread has ended, the process lives on.
        "Z" => number(17)? > 1,
        state => !matches!(state, "X" | "x"),
    };
    Some(ProcessStat {
        id: id
            .parse()
            .ok()
            .filter(|id| *id > 0)
            .and_then(Pid::from_raw)?,
        parent: process(1),
        group: process(2),
        lives,
        is_kernels: number(6).is_some_and(|flags| flags & OF_KERNEL != 0),
        started: rest
            .get(19)
            .and_then(|ticks| ticks.parse().ok())
            .unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(id: i32, name: &str, state: char, parent: i32, threads: i32) -> Option<ProcessStat> {
        parse(&format!(
            "{id} ({name}) {state} {parent} 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 99\n"
        ))
    }

    #[test]
    fn descendants_are_found_through_all_generations_and_zombies_are_not_alive() {
        let process = |id, state, parent, threads| {
            stat(id, "a) R 1 (b", state, parent, threads).expect("a process")
        };
        let all = [
            process(9, 'S', 8, 1),
            process(8, 'T', 7, 1),
            process(7, 'Z', 5, 1),
            process(6, 'S', 1, 1),
            process(5, 'S', 2, 1),
            process(10, 'Z', 5, 3),
            process(11, 'S', 2, 1),
            process(12, 'S', 11, 1),
        ];
        let pid = |id| Pid::from_raw(id).expect("a number");
        let found = below(pid(2), &[pid(11)], &all);
        let mut found: Vec<_> = found
            .iter()
            .map(|process| process.id.as_raw_pid())
            .collect();
        found.sort_unstable();
        assert_eq!(found, [5, 8, 9, 10]);
    }

    #[test]
    fn what_is_no_process_is_passed_over() {
        for text in [
            "",
            "1",
            "1 (a",
            "1 (a)",
            "x (a) S 1 1",
            "-1 (a) S 1 1",
            "1 (a) Z 1 1",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        let leaving = parse("4 (a) X 1 -1 -1 0 -1 4194560").expect("a process");
        assert_eq!((leaving.group, leaving.lives), (None, false));
    }
}
