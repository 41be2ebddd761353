//! Hears what the terminal sends to the command's group, for the other foreground processes.
//!
//! The command has a process group of its own, and a terminal has only one foreground group.
//! So while the command has the terminal, Ctrl-C does not reach `zklock run`, the script that
//! waits for it, or the rest of a pipeline. A helper in the command's group gets the signal
//! too, and reports it; the command itself decides how to react. Signals that a process sends
//! to that group are not reported.

use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::thread;

use crossbeam_channel::{Receiver, unbounded};
use nix::sys::signal::Signal;
use rustix::process::Pid;

use crate::helper::{self, LISTEN};

/// The helper process in the command's group, which listens while its input is open.
#[derive(Debug)]
pub(crate) struct TerminalListener {
    process: Child,
    /// The signals that the terminal has sent.
    pub(crate) heard: Receiver<Signal>,
}

impl TerminalListener {
    /// Starts the helper. It inherits the mask of blocked signals, so it misses none.
    pub(crate) fn start(group: Pid) -> io::Result<Self> {
        let mut process = helper::command(LISTEN)
            .process_group(group.as_raw_pid())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut output = process.stdout.take().ok_or(ErrorKind::BrokenPipe)?;
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
        Ok(Self { process, heard })
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Ends the helper; returns the signals not yet taken from `heard`.
    pub(crate) fn end(mut self) -> Vec<Signal> {
        drop(self.process.stdin.take());
        helper::reap(self.id(), &self.heard)
    }
}
