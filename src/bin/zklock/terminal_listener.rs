//! Hears what the terminal sends to the command's group, for the other foreground processes.
//!
//! The command has a process group of its own, and a terminal has only one foreground group.
//! So while the command has the terminal, Ctrl-C does not reach `zklock run`, the script that
//! waits for it, or the rest of a pipeline. A helper in the command's group gets the signal
//! too, and reports it; the command itself decides how to react. Signals that a process sends
//! to that group are not reported.

use std::io::{self, Read};
use std::iter;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use nix::sys::signal::Signal;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};

use crate::helper::{self, LISTEN};

/// How long to wait for the end of the helper, which may have been stopped.
const END_LIMIT: Duration = Duration::from_millis(500);

/// The helper process in the command's group.
#[derive(Debug)]
pub(crate) struct TerminalListener {
    pub(crate) process: Pid,
    /// The helper listens while this is open.
    input: Option<ChildStdin>,
    /// The signals that the terminal has sent.
    pub(crate) heard: Receiver<Signal>,
}

impl TerminalListener {
    /// Starts the helper. It inherits the mask of blocked signals, so it misses none.
    pub(crate) fn start(group: Pid) -> io::Result<Self> {
        let mut command = helper::command(LISTEN);
        command
            .process_group(group.as_raw_pid())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let started = helper::spawn(&mut command)?;
        let mut output = started
            .output
            .ok_or_else(|| io::Error::other("a process without an output"))?;
        let (to, heard) = unbounded();
        thread::Builder::new()
            .name("zklock-terminal".into())
            .spawn(move || {
                let mut number = [0];
                while output.read_exact(&mut number).is_ok() {
                    if let Ok(signal) = Signal::try_from(i32::from(number[0])) {
                        let _ = to.send(signal);
                    }
                }
            })?;
        Ok(Self {
            process: started.id,
            input: started.input,
            heard,
        })
    }

    /// Returns whether the helper has been stopped since the last look. The terminal does not
    /// stop it.
    pub(crate) fn is_stopped(&self) -> bool {
        let look = WaitIdOptions::NOHANG | WaitIdOptions::STOPPED;
        waitid(WaitId::Pid(self.process), look).is_ok_and(|status| status.is_some())
    }

    /// Ends the helper; returns the signals not yet taken from `heard`.
    pub(crate) fn end(&mut self) -> Vec<Signal> {
        self.input = None;
        let until = Instant::now() + END_LIMIT;
        let rest = iter::from_fn(|| self.heard.recv_deadline(until).ok()).collect();
        // Its output is closed, or it does not end in time.
        if Instant::now() < until {
            let _ = retry_on_intr(|| waitpid(Some(self.process), WaitOptions::empty()));
        }
        rest
    }
}
