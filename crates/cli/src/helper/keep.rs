//! The process between `zklock run` and its command. The keeper's descendants are the command's processes only.
//!
//! The keeper sends them the signals that `zklock run` asks for, and kills them when `zklock run` is gone. When the
//! kernel reports that none is left, the keeper reports that, and only then is the lock released. It ends when
//! another process answers for the session, and ends the session if none does.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::select::{FdSet, pselect};
use nix::sys::signal::{SigSet, Signal as Number};
use nix::sys::time::TimeSpec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

use crate::descendants::{Descendants, Process, State};
use crate::failure::advised;
use crate::helper;
use crate::helper::session::Session;
use crate::helper::trust::Trust;
use crate::helper::wire::{Kind, receive, receive_files, send, send_files};
use crate::signals;
use crate::state_files;

/// How often to look for processes to kill, and for processes to stop.
const POLL: Duration = Duration::from_millis(20);
const STOP_POLL: Duration = Duration::from_millis(5);

/// How long the group has to stop by itself: an editor restores the terminal first. The same limit
/// again applies to a call that no signal interrupts.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// How long everything may take to stop, on a machine that is busy.
const LAST_STOP: Duration = Duration::from_millis(2_500);

/// How long processes may be left before that is reported.
const QUIET: Duration = Duration::from_secs(2);

/// The command's processes may be so many that this one gets no time to stop them. So it comes first, if it may.
const FIRST: i32 = -20;

/// How many of the remaining processes are named.
const NAMED: usize = 8;

/// See the module's documentation.
struct Keeper {
    /// The socket to `zklock run`, which is also the input.
    zklock: UnixStream,
    descendants: Descendants,
    /// The command, which leads its group.
    head: Pid,
    /// Whether the command is not reaped yet: as long as that is so, its number is its group's.
    head_lives: bool,
    /// The command's input, and the socket at which it waits for the input, until it begins.
    gate: Option<(UnixStream, OwnedFd)>,
    /// The processes that `Suspend` has stopped.
    suspended: Vec<Process>,
    /// Whether these were all processes.
    is_suspended: bool,
    /// When the stop of all processes began. Once that was reported, this is set while some have not stopped.
    suspending: Option<Instant>,
    killing: bool,
    /// How many signals were sent to all processes.
    obeyed: i32,
    /// When the remaining processes should have begun to end.
    left: Option<Instant>,
    told: bool,
    /// Whether `zklock run` is gone.
    orphaned: bool,
    trust: Trust,
    /// The session to end if `zklock run` is gone, unless another process answers for it.
    session: Option<Session>,
}

pub(super) fn keep() -> io::Result<()> {
    let zklock = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A process that has stopped this one must not keep it from its task when `zklock run` is killed.
    helper::at_the_parents_end(Signal::CONT);
    // Opened before the command begins, so that no limit of open files can prevent it later.
    let descendants = Descendants::new();
    signals::handle(Number::SIGCHLD)?;
    let mut files = receive_files(&zklock)?.into_iter();
    let input = files.next().ok_or(ErrorKind::UnexpectedEof)?;
    let before = files.next().map(UnixStream::from);
    let brief = receive(&zklock)?;
    let words = brief.text.split(|byte| *byte == 0);
    let mut words = words.map(|word| OsString::from_vec(word.to_vec()));
    let key = words.next().unwrap_or_default();
    let folder = env::current_dir().unwrap_or_else(|_| "/".into());
    let command = words.by_ref().take(brief.number as usize);
    let started = helper::exec(env::args_os().skip(2).chain(command));
    let (head, gate) = match started.and_then(|started| become_quiet().map(|()| started)) {
        Ok(started) => started,
        Err(error) => return send(&zklock, Kind::Started, 0, advised(&error).as_bytes()),
    };
    before.inspect(|before| drop(send(before, Kind::Spare, 0, b"")));
    let session = Session::new(key, words.collect(), folder);
    helper::set_priority(FIRST);
    let keeper = Keeper::new((zklock, descendants), head, (gate, input), session);
    keeper.say(Kind::Started, head.as_raw_pid(), "");
    keeper.run()
}

/// Releases the outputs and the folder, for which the command's readers and its file system would
/// wait, and leaves all signals to the command.
fn become_quiet() -> io::Result<()> {
    SigSet::all().thread_set_mask()?;
    let null = File::options().write(true).open("/dev/null");
    let null = null.map_err(|error| io::Error::other(format!("/dev/null: {error}")))?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(env::set_current_dir("/"));
    Ok(())
}

impl Keeper {
    fn new(
        (zklock, descendants): (UnixStream, Descendants),
        head: Pid,
        gate: (UnixStream, OwnedFd),
        session: Session,
    ) -> Self {
        Self {
            zklock,
            descendants,
            head,
            head_lives: true,
            gate: Some(gate),
            suspended: Vec::new(),
            is_suspended: false,
            suspending: None,
            killing: false,
            obeyed: 0,
            left: None,
            told: false,
            orphaned: false,
            trust: Trust::new(),
            session: Some(session),
        }
    }

    fn run(mut self) -> io::Result<()> {
        while !self.reap() {
            self.suspend();
            self.look_at_trust();
            if self.killing {
                self.kill();
            }
            self.tell_what_is_left();
            // A process that has ended gets no later signal, so reap first.
            if self.wait()? && !self.reap() {
                self.hear();
            }
        }
        self.say(Kind::Gone, self.obeyed, "");
        // A process that is being killed accepts messages but reads none. One that reads answers.
        while self.session.is_some() && !self.orphaned {
            self.hear();
        }
        if let Some(session) = self.session {
            state_files::remove_what_is_left();
            session.end(&mut self.descendants);
        }
        Ok(())
    }

    /// Reaps the processes that have ended; returns whether none is left.
    fn reap(&mut self) -> bool {
        let (changed, has_others) = self.descendants.reap();
        if self.is_suspended && !changed.is_empty() {
            // A process that ends has not stopped, and may have started another.
            self.suspending.get_or_insert_with(Instant::now);
        }
        for (process, status) in changed {
            if process == self.head && self.head_lives {
                if !status.stopped() {
                    self.head_lives = false;
                    self.left.get_or_insert_with(Instant::now);
                }
                if !status.stopped() || self.has_room() {
                    self.say(Kind::Changed, status.as_raw(), "");
                }
            }
        }
        // On systems where orphans are not adopted, the group must be gone too.
        let is_gone =
            || cfg!(target_os = "linux") || test_kill_process_group(self.head) == Err(Errno::SRCH);
        // A dead process may be left for a debugger to reap.
        let are_dead = || self.killing && self.descendants.are_dead_but(None);
        (!has_others || are_dead()) && is_gone()
    }

    /// Returns whether the socket is almost empty. Reports that the command has stopped must not
    /// fill it while `zklock run` is stopped: a keeper that waits for room in it kills nothing.
    fn has_room(&self) -> bool {
        let mut socket = [PollFd::new(&self.zklock, PollFlags::OUT)];
        poll(&mut socket, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Sends a report. If `zklock run` is gone, the next read from the socket shows that.
    fn say(&self, kind: Kind, number: i32, text: &str) {
        drop(send(&self.zklock, kind, number, text.as_bytes()));
    }

    /// Waits for a child, a message, or the next time to look; returns whether there is a message.
    fn wait(&self) -> io::Result<bool> {
        let (input, mut read, mut mask) = (io::stdin(), FdSet::new(), SigSet::all());
        if !self.orphaned {
            read.insert(input.as_fd());
        }
        mask.remove(Number::SIGCHLD);
        let timeout = self.timeout().map(TimeSpec::from_duration);
        match pselect(None, &mut read, None, None, timeout.as_ref(), &mask) {
            Err(nix::Error::EINTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }

    fn hear(&mut self) {
        let Ok(message) = receive(&self.zklock) else {
            self.orphaned = true;
            return self.start_killing();
        };
        match (message.kind, Signal::from_named_raw(message.number)) {
            (Kind::Begin, _) => {
                let gate = self.gate.take();
                drop(gate.map(|(head, input)| send_files(&head, &[input.as_fd()])));
            }
            (Kind::SignalAll, Some(signal)) => {
                self.obeyed += 1;
                self.signal(signal, true);
                self.signal(Signal::CONT, true);
            }
            (Kind::SignalGroup, Some(signal)) => self.signal(signal, false),
            // Not before the command begins: SIGUSR1 would end the process that becomes it.
            (Kind::SignalHead, Some(signal)) if self.head_lives && self.gate.is_none() => {
                // The command is not reaped yet, so the number is still its own.
                let _ = kill_process(self.head, signal);
            }
            (Kind::Kill, _) => self.start_killing(),
            // A repeated request is answered once: after the answer, `zklock run` stops, and then continues all.
            (Kind::Suspend, _) if !self.is_suspended => {
                self.suspending.get_or_insert_with(Instant::now);
            }
            (Kind::Continue, _) => self.go_on(),
            (Kind::Trust, _) => self.trust.lasts(&message.text()),
            (Kind::Spare, _) => self.session = None,
            _ => {}
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if self.killing || !cfg!(target_os = "linux") {
            return Some(POLL);
        }
        let left = self.left.filter(|_| !self.told);
        let quiet = left.map(|left| QUIET.saturating_sub(left.elapsed()));
        // `zklock run` itself acts first, unless it is stopped.
        let trust = self.trust.left().map(|left| left.max(POLL));
        // A process that stays in its call for long is checked less and less often.
        let stop = self
            .suspending
            .map(|since| STOP_POLL.max(since.elapsed() / 16));
        quiet.into_iter().chain(trust).chain(stop).min()
    }

    /// Sends a signal to the group and, if it is `for_all`, to the processes that have left the group.
    fn signal(&self, signal: Signal, for_all: bool) {
        // At once, so that no process that starts meanwhile misses it. When the head is reaped, the
        // number may be another group's.
        if self.head_lives {
            let _ = kill_process_group(self.head, signal);
        }
        let group = self.head.as_raw_pid();
        for process in self.descendants.living().unwrap_or_default() {
            let is_inside = process.group == group;
            if is_inside && !self.head_lives || !is_inside && for_all {
                // Processes of other users are reported when they are left.
                drop(process.signal(signal));
            }
        }
    }

    /// Kills everything if the lock can no longer be trusted and `zklock run`, which would do that, is stopped. After
    /// Ctrl-Z, all processes are stopped too, but anybody may continue them without `zklock run`.
    fn look_at_trust(&mut self) {
        if !self.killing && self.trust.is_over() {
            self.start_killing();
        }
    }

    fn start_killing(&mut self) {
        self.say(Kind::Killing, 0, "");
        self.suspending = None;
        self.killing = true;
        self.left.get_or_insert_with(Instant::now);
    }

    fn kill(&mut self) {
        if self.head_lives {
            let _ = kill_process_group(self.head, Signal::KILL);
        }
        self.descendants.kill();
    }

    /// Stops everything, once the group has stopped by itself.
    fn suspend(&mut self) {
        let Some(lasts) = self.suspending.map(|since| since.elapsed()) else {
            return;
        };
        let head = self.head.as_raw_pid();
        let runs = |one: &Process| one.group == head && one.state > State::Traced;
        let run = |all: Vec<Process>| all.iter().any(runs);
        if !self.is_suspended && lasts < STOP_LIMIT && self.descendants.living().is_ok_and(run) {
            return;
        }
        let mut stopped = self.descendants.stop(State::Traced, &mut self.suspended);
        if stopped.is_ok() {
            self.suspending = None;
        } else if lasts > 2 * STOP_LIMIT {
            // The process may be in fork(2) and stop after it. Its child got no signal, and is found later.
            let at_most = State::Uninterruptible;
            stopped = self.descendants.stop(at_most, &mut self.suspended);
        }
        if !self.is_suspended && (stopped.is_ok() || lasts >= LAST_STOP) {
            self.is_suspended = stopped.is_ok();
            self.suspending = self.suspending.filter(|_| self.is_suspended);
            let failure = stopped.err().map(|error| error.to_string());
            self.say(Kind::Suspended, 0, &failure.unwrap_or_default());
        }
    }

    fn go_on(&mut self) {
        self.suspending = None;
        self.is_suspended = false;
        for process in self.suspended.drain(..) {
            drop(process.signal(Signal::CONT));
        }
        self.signal(Signal::CONT, false);
    }

    fn tell_what_is_left(&mut self) {
        if self.told || self.left.is_none_or(|left| left.elapsed() < QUIET) {
            return;
        }
        self.told = true;
        let text = match self.descendants.living() {
            Err(error) => format!("processes that cannot be listed: {error}"),
            Ok(rest) if rest.is_empty() => "a process that has ended, and is not reaped".to_owned(),
            Ok(rest) => {
                let named = rest.iter().take(NAMED).map(|one| one.what.as_str());
                format!("process {}", named.collect::<Vec<_>>().join(", "))
            }
        };
        self.say(Kind::Left, 0, &text);
    }
}
