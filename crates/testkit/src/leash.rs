//! Child processes that do not outlive the test process.
//!
//! `PR_SET_PDEATHSIG` would follow the *thread* that started the child, and a static is never
//! dropped. So a shell runs beside each child. It waits for the end of its standard input, which
//! comes however this process ends, and then kills the child.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Waits for the end of its input, kills process `$1` and removes folder `$2`.
///
/// The shell runs in a process group of its own, out of reach of Ctrl-C on the terminal.
const WATCHDOG: &str = r#"read -r _; kill -KILL "$1"; [ -z "$2" ] || rm -rf "$2""#;

/// A child process on a leash.
#[derive(Debug)]
pub struct Leashed {
    child: Child,
    watchdog: Child,
}

impl Leashed {
    /// Starts `command`; if this process ends first, the child is killed and then
    /// `folder` is removed.
    pub fn spawn(command: &mut Command, folder: Option<&Path>) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog", &child.id().to_string()])
            .arg(folder.unwrap_or_else(|| Path::new("")))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, watchdog })
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns the number of the child's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns how the child ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("waiting for a child")
    }

    /// Sends a signal, named without the `SIG`.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Stops the child with SIGSTOP and waits until it has stopped: each thread stops by itself,
    /// and until then it may still answer somebody.
    pub fn pause(&self) {
        self.signal("STOP");
        super::eventually("the process has stopped", || self.is_stopped());
    }

    /// Checks every thread; where there is no `/proc`, trusts the signal.
    fn is_stopped(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.child.id())) else {
            return true;
        };
        threads.flatten().all(|thread| {
            // A thread that ended meanwhile has no status.
            fs::read_to_string(thread.path().join("status"))
                .map_or(true, |status| status.contains("State:\tT"))
        })
    }

    /// Kills the child with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        // The watchdog goes first, so that it never sees the number of a dead process.
        for process in [&mut self.watchdog, &mut self.child] {
            // The only failure is that the child has ended before.
            drop(process.kill());
            drop(process.wait());
        }
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a process, through the shell's builtin: std has no call for it.
fn signal(process: u32, name: &str) {
    let status = Command::new("sh")
        .args(["-c", r#"kill -"$1" "$2""#, "kill", name])
        .arg(process.to_string())
        .status()
        .expect("running sh");
    assert!(status.success(), "cannot send SIG{name} to {process}");
}
