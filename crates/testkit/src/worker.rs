//! Test processes: the test binary runs itself again, as one test of itself.
//!
//! A worker is the body of such a process. It is no test, although the harness takes it for one. It
//! is marked `#[ignore = "a worker process"]`, its name begins with `worker_that_`, by which
//! `tests/all.sh` leaves it out, and it begins with
//! `let Some(input) = worker::input() else { return };`. It reports with [`say`], one line at a
//! time.
//!
//! A test that changes what all threads of a process share, such as the logger, does so
//! [`alone`].

use std::any::type_name;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};

use super::leash::Leashed;
use super::run;

const INPUT: &str = "ZKLOCK_TEST_WORKER";

/// The mark that tells a worker's lines from those of the test harness around it.
const MARK: &str = "@@ ";

/// How long a worker may be silent before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A process that runs one function of this test binary; killed when dropped.
#[derive(Debug)]
pub struct Worker {
    process: Leashed,
    said: Receiver<String>,
}

impl Worker {
    /// Runs a worker in a process of its own, which gets `input`.
    pub fn spawn<W: Fn()>(worker: W, input: &str) -> Self {
        Self::launch(itself(), worker, input)
    }

    /// As [`spawn`](Self::spawn), where `command` runs the test binary.
    pub fn launch<W: Fn()>(command: Command, _: W, input: &str) -> Self {
        Self::start::<W>(command, input)
    }

    /// As [`launch`](Self::launch), for a worker that is named by its type.
    pub fn start<W: Fn()>(mut command: Command, input: &str) -> Self {
        choose::<W>(&mut command);
        command
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
    pub fn hear(&self) -> String {
        match self.said.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("the worker says nothing: {error}"),
        }
    }

    /// Waits until the worker says `line`.
    #[track_caller]
    pub fn expect(&self, line: &str) {
        assert_eq!(self.hear(), line);
    }

    /// Returns all lines from now on; the channel ends with the worker.
    pub fn lines(&self) -> &Receiver<String> {
        &self.said
    }

    /// Returns the number of the worker's process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the worker with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the worker with SIGSTOP.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Continues a stopped worker.
    pub fn resume(&self) {
        self.process.signal("CONT");
    }

    /// Returns whether the worker ended, and then whether it did well.
    pub fn ended(&mut self) -> Option<bool> {
        self.process.ended().map(|status| status.success())
    }
}

/// Runs a test, which calls this and does nothing else, in a process of its own.
pub fn alone<T: Fn()>(test: T) {
    if input().is_some() {
        return test();
    }
    let mut command = itself();
    choose::<T>(&mut command);
    let said = run(command.env(INPUT, ""));
    assert!(said.contains("1 passed"), "the test was not found: {said}");
}

/// Returns the command that runs this binary again.
pub fn itself() -> Command {
    Command::new(env::current_exe().expect("finding the test binary"))
}

/// Returns the name of the test that is this function, or that contains this closure.
pub(crate) fn test_name<F>() -> &'static str {
    let name = type_name::<F>();
    // The harness leaves the name of the crate out.
    let (_, name) = name.split_once("::").expect("a path");
    name.trim_end_matches("::{{closure}}")
}

/// Lets the test binary run this test.
fn choose<F>(command: &mut Command) {
    let name = test_name::<F>();
    command
        .args(["--exact", name, "--include-ignored", "--nocapture"])
        .args(["--test-threads", "1"]);
}

/// Returns the worker's input, or nothing if this process is not a worker.
pub fn input() -> Option<String> {
    env::var(INPUT).ok()
}

/// Splits the worker's input into this many words.
pub fn words<const N: usize>(input: &str) -> [String; N] {
    let words: Vec<_> = input.split(' ').map(str::to_owned).collect();
    words.try_into().expect("as many words as the worker wants")
}

/// Says a line to the process that started this worker.
pub fn say(line: &str) {
    // One write, not through `println!`: the harness may have begun a line before.
    let text = format!("\n{MARK}{line}\n");
    let mut output = std::io::stdout().lock();
    let said = output.write_all(text.as_bytes());
    said.and_then(|()| output.flush())
        .expect("the test that started this worker listens");
}

/// Waits until this process is killed.
pub fn stay() -> ! {
    loop {
        // A wake-up that came too late for an earlier wait makes `park` return at once.
        thread::park();
    }
}
