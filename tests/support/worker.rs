//! Test processes: the test binary runs itself again, as one ignored test of itself.
//!
//! A worker is a test marked `#[ignore = "a worker process"]` that begins with
//! `let Some(input) = worker::input() else { return };`, for the ignored tests are also
//! run as such. It reports with [`say`], one line at a time.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};

use super::leash::Leashed;

const INPUT: &str = "ZKLOCK_TEST_WORKER";

/// What tells a worker's words from those of the test harness around it.
const MARK: &str = "@@ ";

/// How long a worker may be silent before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process that runs one function of this test binary; killed when dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    process: Leashed,
    said: Receiver<String>,
}

impl Worker {
    /// Runs the ignored test `name` in a process of its own, which gets `input`.
    pub(crate) fn spawn(name: &str, input: &str) -> Self {
        let binary = env::current_exe().expect("finding the test binary");
        Self::launch(Command::new(binary), name, input)
    }

    /// As [`spawn`](Self::spawn), where `command` runs the test binary.
    pub(crate) fn launch(mut command: Command, name: &str, input: &str) -> Self {
        command
            .args(["--exact", name, "--ignored", "--nocapture"])
            .args(["--test-threads", "1"])
            .env(INPUT, input)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = Leashed::spawn(&mut command, None).expect("starting a worker");
        let output = process.child().stdout.take().expect("a worker's output");
        let (to, said) = unbounded();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((_, text)) = line.split_once(MARK) {
                    drop(to.send(text.to_owned()));
                }
            }
        });
        Self { process, said }
    }

    /// Returns the next line that the worker says.
    #[track_caller]
    pub(crate) fn hear(&self) -> String {
        match self.said.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("the worker says nothing: {error}"),
        }
    }

    /// Waits until the worker says `line`.
    #[track_caller]
    pub(crate) fn expect(&self, line: &str) {
        assert_eq!(self.hear(), line);
    }

    /// Returns all lines from now on; the channel ends with the worker.
    pub(crate) fn lines(&self) -> &Receiver<String> {
        &self.said
    }

    /// Returns the number of the worker's process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the worker with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the worker with SIGSTOP.
    pub(crate) fn pause(&self) {
        self.process.pause();
    }

    /// Lets a paused worker go on.
    pub(crate) fn resume(&self) {
        self.process.signal("CONT");
    }

    /// Returns whether the worker ended, and then whether it did well.
    pub(crate) fn ended(&mut self) -> Option<bool> {
        self.process.ended().map(|status| status.success())
    }
}

/// Returns what the worker was given, or nothing if this process is not a worker.
pub(crate) fn input() -> Option<String> {
    env::var(INPUT).ok()
}

/// Splits what a worker was given into this many words.
pub(crate) fn words<const N: usize>(input: &str) -> [String; N] {
    let words: Vec<_> = input.split(' ').map(str::to_owned).collect();
    words.try_into().expect("as many words as the worker wants")
}

/// Says a line to the process that started this worker.
pub(crate) fn say(line: &str) {
    // One write, not through `println!`: the harness may have begun a line before.
    let text = format!("\n{MARK}{line}\n");
    let mut output = std::io::stdout().lock();
    let said = output.write_all(text.as_bytes());
    said.and_then(|()| output.flush())
        .expect("the test that started this worker listens");
}

/// Stays until it is killed.
pub(crate) fn stay() -> ! {
    loop {
        // Whoever woke this thread before, and too late, makes it return at once.
        thread::park();
    }
}
