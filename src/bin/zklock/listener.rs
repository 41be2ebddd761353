//! What the terminal tells the command's group, for the others in the foreground.
//!
//! The command has a process group of its own, and a terminal has one group in its
//! foreground. So while the command has the terminal, Ctrl-C reaches neither us nor the
//! script that waits for us, nor the rest of a pipeline. A process of ours in the command's
//! group hears it, too, and says so; what the command makes of the signal is its own
//! business. Signals that somebody sends to that group are not the terminal's.

#[cfg(target_os = "linux")]
mod process {
    use std::io::{self, Read, Write};
    use std::process::ExitCode;

    use nix::sys::signalfd::{SfdFlags, SignalFd};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::retry_on_intr;

    use crate::signals;

    /// Of a signal that the kernel sends, as it does for a terminal.
    const SI_KERNEL: i32 = 0x80;

    /// Writes the number of each signal of the terminal, until the end of the input.
    pub(crate) fn main() -> ExitCode {
        match listen() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        }
    }

    fn listen() -> io::Result<()> {
        // They were blocked by who started us.
        let signals = SignalFd::with_flags(
            &signals::of_terminal(),
            SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
        )?;
        let (mut input, mut output) = (io::stdin(), io::stdout());
        loop {
            let ended = {
                let mut both = [
                    PollFd::new(&signals, PollFlags::IN),
                    PollFd::new(&input, PollFlags::IN),
                ];
                retry_on_intr(|| poll(&mut both, None))?;
                !both[1].revents().is_empty()
            };
            // Those that came before the end are told.
            while let Some(signal) = signals.read_signal()? {
                if signal.ssi_code == SI_KERNEL {
                    output.write_all(&[u8::try_from(signal.ssi_signo).unwrap_or(0)])?;
                    output.flush()?;
                }
            }
            if ended && input.read(&mut [0])? == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod process {
    use std::process::ExitCode;

    /// Without siginfo, nobody can tell whose a signal is.
    pub(crate) fn main() -> ExitCode {
        ExitCode::FAILURE
    }
}

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use nix::sys::signal::Signal;
use rustix::process::Pid;

use crate::child::{ourselves, spawn};
use crate::inner::LISTEN;

pub(crate) use self::process::main;

/// How long the end waits for a process that may have been stopped.
const FAREWELL: Duration = Duration::from_millis(500);

/// A process that listens in a group.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) process: Pid,
    /// While this is open, it listens.
    input: Option<ChildStdin>,
    /// What the terminal has sent.
    pub(crate) heard: Receiver<Signal>,
}

impl Listener {
    /// Starts it. Signals wait for it from now on, because it has them blocked as we have.
    pub(crate) fn start(group: Pid) -> io::Result<Self> {
        let mut command = ourselves(LISTEN);
        command
            .process_group(group.as_raw_pid())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let started = spawn(&mut command)?;
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

    /// Returns what is left to be heard, when the command has ended.
    pub(crate) fn end(&mut self) -> Vec<Signal> {
        self.input = None;
        let until = Instant::now() + FAREWELL;
        std::iter::from_fn(|| self.heard.recv_deadline(until).ok()).collect()
    }
}
