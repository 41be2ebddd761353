//! The descendants of this process, as Linux lists them, and signals to them.
//!
//! A process can leave its group and its session, but not its ancestors: an orphan becomes the
//! child of the nearest subreaper. The kernel tells whether any descendant is left: a subreaper
//! without children has none. The lists of children in `/proc`, which are read here, only find the
//! processes to send a signal to. A process that cannot be read counts as running.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::iter;
use std::time::{Duration, Instant};

use procfs_core::FromRead;
use procfs_core::process::{Stat, StatFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, test_kill_process, wait,
};

/// How long to chase processes that change meanwhile.
const CHASE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum State {
    Dead,
    /// The process still has its open files, but adopts no orphans any more.
    Ending,
    Stopped,
    /// Held by a debugger, which may let it run on: the process is stopped only if it gets a signal too.
    Traced,
    /// In a call that no signal interrupts, such as vfork(2) or a write to a disk.
    Uninterruptible,
    Running,
    /// The process and its children cannot be read.
    Hidden,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Process {
    id: Pid,
    pub(crate) group: i32,
    /// The greatest state of its threads.
    pub(crate) state: State,
    /// When it was started, in the kernel's ticks.
    started: u64,
    /// The process's number and its name.
    pub(crate) what: String,
    children: Vec<Pid>,
}

impl Process {
    /// Sends a signal, unless the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let failed = |error| io::Error::other(format!("process {}: {error}", self.what));
        match send(self, signal) {
            Err(Errno::SRCH) => Ok(()),
            sent => sent.map_err(failed),
        }
    }
}

#[cfg(target_os = "linux")]
fn send(process: &Process, signal: Signal) -> rustix::io::Result<()> {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
    let opened = pidfd_open(process.id, PidfdFlags::empty())?;
    // The number may have been another process's when the descriptor was opened.
    match read(process.id).is_some_and(|now| now.started == process.started) {
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
    /// Children that do not count, and whose descendants do not either.
    strangers: Vec<Pid>,
    /// Children that were killed, and are not reaped yet.
    killed: HashSet<Pid>,
}

impl Descendants {
    /// Returns the descendants of this process, which adopts orphans from now on; to be called in
    /// its first thread. The children that it has already do not count: it was a shell before, or
    /// is the first process of a container.
    pub(crate) fn new() -> Self {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
        let mut all = Self {
            list: open_list(),
            strangers: Vec::new(),
            killed: HashSet::new(),
        };
        all.strangers = all.children().unwrap_or_default();
        all
    }

    /// Excludes the other children while `child` lives, because it adopts its orphans itself.
    pub(crate) fn only_of(&mut self, child: Pid) {
        let mut others = self.children().unwrap_or_default();
        others.retain(|other| *other != child);
        // `child` is checked afterwards: once it begins to end, its orphans become this process's.
        // waitid(2) does not report that, nor the end of `child` if a debugger hides it.
        let adopts = || read_threads(child).is_some_and(|one| one.state > State::Ending);
        if !others.is_empty() && adopts() {
            self.strangers.extend(others);
        }
    }

    /// Reaps the children that have ended. Returns them, the children that have stopped, and
    /// whether there are others.
    pub(crate) fn reap(&mut self) -> (Vec<(Pid, WaitStatus)>, bool) {
        let mut changed = Vec::new();
        loop {
            let found = retry_on_intr(|| wait(WaitOptions::NOHANG | WaitOptions::UNTRACED));
            let Ok(Some((child, status))) = found else {
                return (changed, found.is_ok());
            };
            if !status.stopped() {
                // The number may be given to another process.
                self.strangers.retain(|other| *other != child);
                self.killed.remove(&child);
            }
            changed.push((child, status));
        }
    }

    /// Returns the children, some of which may be dead.
    fn children(&self) -> io::Result<Vec<Pid>> {
        let list = self.list.as_ref();
        let mut list = list.map_err(|error| io::Error::other(error.to_string()))?;
        let mut text = String::new();
        list.rewind()?;
        list.read_to_string(&mut text)?;
        let is_ours = |child: &Pid| !self.strangers.contains(child);
        Ok(numbers(&text).filter(is_ours).collect())
    }

    /// Returns the living descendants. Processes that are started during the look can be missed.
    pub(crate) fn living(&self) -> io::Result<Vec<Process>> {
        let until = Instant::now() + CHASE;
        let (mut all, mut is_still) = self.look()?;
        while !is_still && Instant::now() < until {
            (all, is_still) = self.look()?;
        }
        all.retain(|one| one.state > State::Dead);
        Ok(all)
    }

    /// Returns whether all descendants but this one are dead.
    pub(crate) fn are_dead_but(&self, child: Option<Pid>) -> bool {
        let is_it = |one: &Process| one.state < State::Hidden && Some(one.id) == child;
        let is_dead = |one: &Process| one.state == State::Dead || is_it(one);
        // One living process is enough to know: while many are being killed, a full look takes too long.
        let seem_dead = |children: Vec<Pid>| below(&children).all(|one| is_dead(&one));
        self.children().is_ok_and(seem_dead)
            && self
                .look()
                .is_ok_and(|(all, is_still)| is_still && all.iter().all(is_dead))
    }

    /// Returns the descendants, and whether a second look has found the same.
    ///
    /// A process that is orphaned meanwhile goes to an ancestor, so the second look reads ancestors
    /// last.
    fn look(&self) -> io::Result<(Vec<Process>, bool)> {
        let children = self.children()?;
        let all: Vec<_> = below(&children).collect();
        let are_same = all
            .iter()
            .rev()
            .all(|one| read(one.id).as_ref() == Some(one));
        Ok((all, are_same && self.children()? == children))
    }

    /// Stops the descendants that are found, and adds them to `stopped`. Fails if those were not
    /// all: repeat this until no descendant is in a greater state than `at_most`.
    pub(crate) fn stop(&self, at_most: State, stopped: &mut Vec<Process>) -> io::Result<()> {
        let (all, is_still) = self.look()?;
        let before = stopped.len();
        for process in all.iter().filter(|one| one.state > State::Stopped) {
            let is_it = |one: &Process| (one.id, one.started) == (process.id, process.started);
            if !stopped.iter().any(is_it) {
                process.signal(Signal::STOP)?;
                stopped.push(process.clone());
            }
        }
        let why = match all.iter().find(|one| one.state > at_most) {
            Some(process) => format!("process {} does not stop", process.what),
            None if is_still && stopped.len() == before => return Ok(()),
            None => "its processes replace each other".to_owned(),
        };
        Err(io::Error::other(why))
    }

    /// Kills the descendants that are found, without waiting for their end; returns whether it found
    /// no new child. Repeat this, because others may have started meanwhile.
    ///
    /// Whoever forks and ends leaves its child to this process. To outrun that, the children, which
    /// need no file, come first, and what is below them when no child is new.
    pub(crate) fn kill(&mut self) -> bool {
        let children = self.children().unwrap_or_default();
        let before = self.killed.len();
        for child in &children {
            // The child is not reaped yet, so the number is its own.
            if !self.killed.contains(child) && kill_process(*child, Signal::KILL).is_ok() {
                self.killed.insert(*child);
            }
        }
        let is_calm = self.killed.len() == before;
        if is_calm {
            // Each process is killed as it is found, because a dead process starts no others.
            below(&children).for_each(|one| drop(one.signal(Signal::KILL)));
        }
        is_calm
    }
}

/// Returns whether the thread of this `stat` is stopped, or in a call that no signal interrupts.
pub(crate) fn is_held_up(stat: &File) -> bool {
    let held_up = State::Stopped..=State::Uninterruptible;
    Stat::from_read(stat).is_ok_and(|stat| held_up.contains(&state(&stat)))
}

fn open_list() -> io::Result<File> {
    let me = getpid().to_string();
    // The `/proc` of another namespace has other numbers.
    if fs::read_link("/proc/self")?.as_os_str() != me.as_str() {
        return Err(io::Error::other("/proc is another namespace's"));
    }
    File::open(format!("/proc/self/task/{me}/children"))
}

/// Reads these processes and their descendants, each after its parent.
fn below(children: &[Pid]) -> impl Iterator<Item = Process> {
    let mut ids = children.to_vec();
    iter::from_fn(move || {
        let found = iter::from_fn(|| ids.pop()).find_map(read)?;
        ids.extend(&found.children);
        Some(found)
    })
}

/// Reads a process; returns `None` if it is gone. A process that `/proc` hides is not gone.
fn read(id: Pid) -> Option<Process> {
    let hidden = || Process {
        id,
        group: 0,
        state: State::Hidden,
        started: 0,
        what: format!("{id} (cannot be read)"),
        children: Vec::new(),
    };
    let is_there = || test_kill_process(id) != Err(Errno::SRCH);
    read_threads(id).or_else(|| is_there().then(hidden))
}

fn read_threads(id: Pid) -> Option<Process> {
    let (mut first, mut greatest, mut children) = (None, State::Dead, Vec::new());
    let threads = fs::read_dir(format!("/proc/{id}/task")).ok()?;
    for thread in threads.collect::<Vec<_>>() {
        let folder = thread.ok()?.path();
        // The order matters: a stopped thread starts no more children after its state was read.
        let read = fs::read(folder.join("stat"));
        let read = read.and_then(|stat| Ok((stat, fs::read_to_string(folder.join("children"))?)));
        match read.map_err(|error| Errno::from_io_error(&error)) {
            // The thread's children are another thread's now, which may have been read already.
            Err(Some(Errno::NOENT | Errno::SRCH)) => greatest = State::Running,
            read => {
                let (stat, list) = read.ok()?;
                let thread = Stat::from_read(&stat[..]).ok()?;
                greatest = greatest.max(state(&thread));
                children.extend(numbers(&list));
                first = first.or_else(|| Some(thread).filter(|one| one.pid == id.as_raw_pid()));
            }
        }
    }
    first.map(|first| Process {
        id,
        group: first.pgrp,
        state: greatest,
        started: first.starttime,
        what: format!("{id} ({})", first.comm),
        children,
    })
}

fn numbers(list: &str) -> impl Iterator<Item = Pid> {
    list.split_ascii_whitespace()
        .filter_map(|text| Pid::from_raw(text.parse().ok()?))
}

fn state(stat: &Stat) -> State {
    match stat.state {
        'Z' | 'X' | 'x' => State::Dead,
        _ if stat.flags & StatFlags::PF_EXITING.bits() != 0 => State::Ending,
        'T' => State::Stopped,
        't' => State::Traced,
        'D' => State::Uninterruptible,
        _ => State::Running,
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::*;

    const ALONE: &str = "ZKLOCK_TEST_ALONE";

    /// Runs the test in a process of its own, which may adopt and reap.
    fn alone(name: &str, test: fn()) {
        if env::var_os(ALONE).is_some() {
            return test();
        }
        let mut again = Command::new(env::current_exe().expect("a program"));
        let name = format!("descendants::tests::{name}");
        again.args(["--exact", &name, "--test-threads=1"]);
        let output = again.env(ALONE, "1").output().expect("an end");
        assert!(output.status.success(), "{output:?}");
    }

    fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + Duration::from_secs(60);
        iter::from_fn(|| (Instant::now() < until).then(&mut found))
            .flatten()
            .next()
            .expect("it in a minute")
    }

    fn kill_a_child_and_then_its_orphan() {
        let mut all = Descendants::new();
        // An orphan becomes a child of the first thread, which is not this one.
        let script = ["-c", "sh -c 'sleep 60 & wait' &"];
        let shell = Command::new("sh").args(script).status();
        assert!(shell.expect("a shell").success());
        let (child, below) = wait_for(|| {
            let child = all.children().ok()?.into_iter().next()?;
            Some((child, *read(child)?.children.first()?))
        });
        assert!(!all.kill(), "a child was new");
        let is_alive = |one: Process| one.state > State::Dead;
        assert!(read(below).is_some_and(is_alive), "children come first");
        wait_for(|| (all.reap().0.first()?.0 == child).then_some(()));
        assert_eq!(all.children().expect("a list"), [below]);
        assert!(!all.kill(), "an orphan was new");
        assert!(all.kill(), "nothing was new");
        wait_for(|| (!all.reap().1).then_some(()));
    }

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "needs a subreaper")]
    fn children_are_killed_before_what_is_below_them() {
        alone(
            "children_are_killed_before_what_is_below_them",
            kill_a_child_and_then_its_orphan,
        );
    }
}
