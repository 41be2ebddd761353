//! The helper in the command's group, which reports what a terminal sends to that group.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use crate::helper::wire::{Kind, send};

/// The code of a signal that the kernel sends, as it does for a terminal, and of one that a process sends.
const SI_KERNEL: i32 = 0x80;
const SI_USER: i32 = 0;

/// Reports each signal from the terminal, until the end of the input, which brings nothing else.
pub(super) fn listen() -> io::Result<()> {
    // The parent has blocked these signals, and this process inherits the mask.
    let signals = SignalFd::with_flags(
        &SigSet::from_iter([
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGTSTP,
        ]),
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?;
    // Another `zklock` in the group stops it with this signal.
    SigSet::from_iter([Signal::SIGTTIN]).thread_block()?;
    let zklock = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    loop {
        let both = [signals.as_fd(), zklock.as_fd()];
        let mut both = both.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
        retry_on_intr(|| poll(&mut both, None))?;
        // Signals that came before the end of the input are still reported.
        while let Some(signal) = signals.read_signal()? {
            if signal.ssi_code == SI_KERNEL || is_passed_on(&signal) {
                send(&zklock, Kind::Heard, signal.ssi_signo as i32, b"")?;
            }
        }
        if !both[1].revents().is_empty() {
            return Ok(());
        }
    }
}

/// Returns whether a `zklock` in the group has sent this signal: what a terminal has sent to that one's command, which
/// is passed on to the other foreground processes. Others mean their own group, as timeout(1) does.
fn is_passed_on(signal: &siginfo) -> bool {
    signal.ssi_code == SI_USER
        && signal.ssi_signo != Signal::SIGTSTP as u32
        && is_zklock(signal.ssi_pid)
}

/// Returns whether this process runs `zklock`: a program of that name, or this one, whatever the name of its file is.
fn is_zklock(process: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    let file = |path: &str| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino()))
    };
    let is_this = || {
        let this = file("/proc/self/exe");
        this.is_some() && this == file(&format!("/proc/{process}/exe"))
    };
    name.is_ok_and(|name| name == "zklock\n") || is_this()
}
