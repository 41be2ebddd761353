//! The helper in the command's group, which reports what a terminal sends to that group.

use std::io::{self, Read, Write};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

/// The code of a signal that the kernel sends, as it does for a terminal.
const SI_KERNEL: i32 = 0x80;

/// Writes the number of each signal from the terminal, until the end of the input.
pub(super) fn listen() -> io::Result<()> {
    // The parent has blocked these signals, and this process inherits the mask.
    let signals = SignalFd::with_flags(
        &SigSet::from_iter([Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT]),
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
        // Signals that came before the end of the input are still reported.
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
