//! The program as a user uses it, and what its commands leave in a file.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, unbounded};
use zklock::embedded::Server;

use crate::support::leash::Leashed;
use crate::support::raw::children;
use crate::support::zookeeper::{Folder, ZooKeeper};
use crate::support::{eventually, run, within};

/// A time longer than anything takes unless it hangs.
const SOON: Duration = Duration::from_secs(40);

/// Runs each of the tests against the embedded server and a real one.
macro_rules! on_every_server {
    ($($name:ident)*) => {
        mod embedded {
            $(#[test] fn $name() { super::$name(crate::program::embedded()); })*
        }
        mod zookeeper {
            $(
                #[test]
                #[ignore = "needs a ZooKeeper server"]
                fn $name() { super::$name(&crate::program::zookeeper()); }
            )*
        }
    };
}

pub(crate) use on_every_server;

/// Returns the address of the embedded server that the tests of one binary share.
pub(crate) fn embedded() -> &'static str {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let tick = Duration::from_millis(500);
    let builder = || Server::builder().tick(tick).max_connections(10_000);
    let start = || builder().start().expect("a server");
    SERVER.get_or_init(start).hosts()
}

pub(crate) fn zookeeper() -> String {
    ZooKeeper::shared().hosts()
}

/// A running `zklock`.
#[derive(Debug)]
pub(crate) struct Zklock(Leashed);

/// The end of a `zklock`.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The status as in a shell: 128 + N if signal N ended it.
    pub(crate) code: Option<i32>,
    /// The signal that ended it.
    pub(crate) signal: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Zklock {
    /// Starts the program with arguments that are separated by spaces, and after the dashes a
    /// shell with this script.
    pub(crate) fn start(hosts: &str, args: &str, script: &str) -> Self {
        let mut command = command(hosts);
        command.args(args.split(' ').filter(|arg| !arg.is_empty()));
        if !script.is_empty() {
            command.args(["--", "sh", "-c", script]);
        }
        Self::spawn(&mut command)
    }

    /// As above, and logs its messages.
    pub(crate) fn start_logged(hosts: &str, args: &str, script: &str) -> (Self, Log) {
        let said = Log::new();
        let errors = File::options().append(true).open(said.file());
        let mut command = command(hosts);
        command.args(args.split(' '));
        command.args(["--", "sh", "-c", script]);
        let zklock = Self::spawn_to(&mut command, errors.expect("opening"));
        (zklock, said)
    }

    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::spawn_to(command, Stdio::piped())
    }

    /// As `spawn`, with another output for errors.
    pub(crate) fn spawn_to(command: &mut Command, errors: impl Into<Stdio>) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        Self(Leashed::spawn(command, None).expect("starting zklock"))
    }

    /// Starts the program and waits for its end.
    #[track_caller]
    pub(crate) fn run(hosts: &str, args: &str, script: &str) -> Ended {
        Self::start(hosts, args, script).end()
    }

    /// Writes to its input and closes it.
    pub(crate) fn feed(&mut self, text: &str) {
        let mut input = self.0.child().stdin.take().expect("an input");
        input.write_all(text.as_bytes()).expect("writing");
    }

    pub(crate) fn id(&mut self) -> u32 {
        self.0.child().id()
    }

    /// Sends it a signal, named without the `SIG`.
    pub(crate) fn signal(&self, name: &str) {
        self.0.signal(name);
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.ended().is_some()
    }

    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let child = self.0.child();
        // A full pipe would keep the program from its end. A test may have given these outputs to
        // another reader.
        let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
        let ended = within(SOON, || self.has_ended());
        assert!(ended, "zklock does not end");
        // Processes that it should have killed may have them open, too.
        let text = |read: Receiver<String>| read.recv_timeout(SOON).expect("an output that ends");
        let [out, err] = [text(out), text(err)];
        let status = self.0.ended().expect("an end");
        let signal = status.signal();
        Ended {
            code: status.code().or_else(|| signal.map(|signal| 128 + signal)),
            signal,
            out,
            err,
        }
    }
}

/// Reads all of an output in the background.
fn read(output: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (to, whole) = bounded(1);
    thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut output) = output {
            output.read_to_string(&mut text).expect("reading");
        }
        drop(to.send(text));
    });
    whole
}

/// The output of a running program, line by line; the program is killed on drop.
#[derive(Debug)]
pub(crate) struct Lines {
    _process: Leashed,
    said: Receiver<String>,
}

impl Lines {
    pub(crate) fn of(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Leashed::spawn(command, None).expect("starting zklock");
        let output = process.child().stdout.take().expect("an output");
        let (to, said) = unbounded();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                drop(to.send(line));
            }
        });
        Self {
            _process: process,
            said,
        }
    }

    #[track_caller]
    pub(crate) fn hear(&self) -> String {
        self.said.recv_timeout(SOON).expect("another line")
    }

    /// Waits for the end of the output, before which there is no other line.
    #[track_caller]
    pub(crate) fn end(&self) {
        let said = self.said.recv_timeout(SOON);
        assert_eq!(said, Err(RecvTimeoutError::Disconnected));
    }
}

/// Returns how often a race is run: `usual` times, or as the variable ZKLOCK_TEST_ROUNDS says.
pub(crate) fn rounds(usual: u32) -> u32 {
    let said = env::var("ZKLOCK_TEST_ROUNDS").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(usual)
}

/// Returns the program, with only the servers in its environment.
pub(crate) fn command(hosts: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zklock"));
    command.env("ZKLOCK_HOSTS", hosts).env_remove("ZKLOCK_AUTH");
    command
}

/// Waits until this many contenders are in the queue. A contender may leave the queue a moment
/// after its process has ended, but before its session would end, which takes 10 s.
#[track_caller]
pub(crate) fn await_queue(hosts: &str, path: &str, length: usize) {
    let left = within(Duration::from_secs(8), || {
        children(hosts, path).len() == length
    });
    assert!(left, "{:?}", children(hosts, path));
}

/// Runs a script that ends with status 5 while a part of it goes on beating. Checks that this part
/// keeps the lock, and gets the signals that `zklock` gets.
#[track_caller]
pub(crate) fn assert_keeps_the_lock_until_a_signal(
    hosts: &str,
    path: &str,
    log: &Log,
    script: &str,
) {
    let zklock = Zklock::start(hosts, &format!("run {path}"), script);
    log.await_word("beat");
    let other = Zklock::run(hosts, &format!("run -n {path}"), ":");
    assert_eq!(other.code, Some(1));
    zklock.signal("TERM");
    assert_eq!(zklock.end().code, Some(5));
}

/// Returns the lines of a screen, without the parts that differ from run to run.
pub(crate) fn masked(screen: &str, names: &[(&str, &str)]) -> Vec<String> {
    let line = |line: &str| {
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        for place in 0..words.len() {
            let word = &words[place];
            let number = word.strip_suffix("ms").or_else(|| word.strip_suffix('s'));
            let is_time = number.is_some_and(|number| number.parse::<u32>().is_ok());
            if is_time {
                words[place] = "TIME".to_owned();
            } else if word == "ms" && place > 0 {
                words[place - 1] = "NUMBER".to_owned();
            } else if word == "pid" && place > 0 && place + 1 < words.len() {
                words[place - 1] = "HOST".to_owned();
                words[place + 1] = "PID".to_owned();
            } else if word == "version" && place + 1 < words.len() {
                words[place + 1] = "VERSION".to_owned();
            }
            for (name, mask) in names {
                words[place] = words[place].replace(name, mask);
            }
        }
        words.join(" ")
    };
    screen.lines().map(line).collect()
}

/// Returns a copy of the program that every user may run, wherever this repository is, and the
/// folder with which the copy is deleted.
pub(crate) fn program_for_every_user() -> (Folder, String) {
    let folder = Folder::new();
    let program = folder.path("zklock");
    fs::copy(env!("CARGO_BIN_EXE_zklock"), &program).expect("copying");
    run(Command::new("chmod")
        .arg("-R")
        .arg("a+rX")
        .arg(folder.path("")));
    (folder, program.display().to_string())
}

/// A file to which commands append; its order is the order of events.
#[derive(Debug)]
pub(crate) struct Log(Folder);

impl Log {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        fs::write(folder.path("log"), "").expect("making a file");
        Self(folder)
    }

    /// Returns the script that writes this word, for use in another script.
    pub(crate) fn write(&self, word: &str) -> String {
        format!("echo {word} >> {}", self.0.path("log").display())
    }

    /// Returns the script that writes this word repeatedly, as long as this log exists.
    pub(crate) fn beat(&self, word: &str) -> String {
        self.beat_while(":", word)
    }

    /// As above, and only as long as this condition of the shell's holds.
    pub(crate) fn beat_while(&self, condition: &str, word: &str) -> String {
        let write = self.write(word);
        format!("while {condition}; do {write} || exit; sleep 0.02; done")
    }

    /// Writes a word from this process.
    pub(crate) fn say(&self, word: &str) {
        let file = File::options().append(true).open(self.file());
        writeln!(file.expect("opening"), "{word}").expect("writing");
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.path("log")
    }

    pub(crate) fn words(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path("log")).expect("reading");
        text.lines().map(str::to_owned).collect()
    }

    /// Returns whether a line contains this.
    pub(crate) fn contains(&self, what: &str) -> bool {
        self.words().iter().any(|line| line.contains(what))
    }

    #[track_caller]
    pub(crate) fn await_word(&self, word: &str) {
        eventually(word, || self.words().iter().any(|other| other == word));
    }

    /// Returns how many processes have the script that writes this word in their arguments.
    pub(crate) fn writers(&self, word: &str) -> usize {
        let script = self.write(word);
        let processes = fs::read_dir("/proc")
            .expect("a list of processes")
            .flatten();
        let arguments = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
        arguments
            .filter(|arguments| String::from_utf8_lossy(arguments).contains(&script))
            .count()
    }

    /// Waits until nothing writes this word any more, and no process is left that would.
    #[track_caller]
    pub(crate) fn await_end(&self, word: &str) {
        // A look at all processes costs too much to be repeated as long as words come.
        let is_over = || self.is_still() && self.writers(word) == 0;
        eventually("nothing is left", is_over);
    }

    /// Returns whether nothing writes to the log any more.
    pub(crate) fn is_still(&self) -> bool {
        let before = self.words().len();
        thread::sleep(Duration::from_millis(300));
        before == self.words().len()
    }
}
