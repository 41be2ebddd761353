//! Reports what the terminal sends to the command's group, for the other foreground processes.
//!
//! The command has a process group of its own, and a terminal has only one foreground group. While
//! the command has the terminal, Ctrl-C therefore does not reach `zklock run`, the script that
//! waits for it, or the rest of a pipeline. A helper in the command's group gets the signal too,
//! and reports it; the command itself decides how to react. Signals that a process sends to that
//! group are not reported, but for those that another `zklock` in it has heard of.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crossbeam_channel::Receiver;
use rustix::process::Pid;

use crate::helper::wire::{Message, listen_to};
use crate::helper::{self, LISTEN};

/// The helper process in the command's group, which listens until this end of the socket is closed.
#[derive(Debug)]
pub(crate) struct TerminalListener {
    pub(crate) process: Pid,
    socket: UnixStream,
    /// The signals that the terminal has sent.
    pub(crate) heard: Receiver<Message>,
}

impl TerminalListener {
    /// Starts the helper. It inherits the mask of blocked signals, so it misses none.
    pub(crate) fn start(group: Pid) -> io::Result<Self> {
        let (socket, its_end) = UnixStream::pair()?;
        let mut listen = helper::command(LISTEN);
        listen.process_group(group.as_raw_pid());
        listen.stdin(OwnedFd::from(its_end));
        listen.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self {
            process: helper::spawn(&mut listen)?,
            heard: listen_to(socket.try_clone()?, "zklock-terminal")?,
            socket,
        })
    }

    /// Ends the helper; returns the signals not yet taken from `heard`.
    pub(crate) fn end(self) -> Vec<Message> {
        let _ = self.socket.shutdown(Shutdown::Write);
        helper::reap(self.process, &self.heard)
    }
}
