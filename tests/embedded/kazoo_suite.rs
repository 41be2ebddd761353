//! kazoo's own tests, against this server and a real one: the tests that pass there pass here.

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use zklock::embedded::Server;

use super::support::kazoo;
use super::support::zookeeper::ZooKeeper;

/// The modules that talk to a server, and need only one.
#[rustfmt::skip]
const MODULES: [&str; 12] = [
    "barrier", "cache", "client", "connection", "counter", "election", "lease", "lock",
    "partitioner", "party", "queue", "watchers",
];

/// Tests that need more than one server, or TLS.
const NOT_OF_ONE_SERVER: &str =
    "not TestSSLClient and not TestReadOnlyMode and not test_update_host_list";

/// The tests that differ for a good reason, with that reason, as the docs of `embedded` say.
const DIFFERENT: [(&str, &str); 0] = [];

/// How often a test that does not pass is run alone: some rely on a server that is slower
/// than their next step.
const TRIES: usize = 3;

/// The time limit in seconds; a part of it is enough for all tests on a slow machine.
const LIMIT: &str = "600";

/// A server that the tests can stop, with all its data, and start again.
trait Stoppable: Sync {
    fn hosts(&self) -> String;
    fn stop(&self);
    fn run(&self);
}

impl Stoppable for Server {
    fn hosts(&self) -> String {
        self.hosts().to_owned()
    }

    fn stop(&self) {
        self.refuse();
        self.disconnect_all();
    }

    fn run(&self) {
        self.resume();
    }
}

impl Stoppable for ZooKeeper {
    fn hosts(&self) -> String {
        self.hosts()
    }

    fn stop(&self) {
        self.kill();
    }

    fn run(&self) {
        self.restart();
    }
}

#[test]
#[ignore = "needs a ZooKeeper server and kazoo"]
fn those_of_kazoos_own_tests_that_pass_on_a_real_zookeeper_pass() {
    let python = kazoo::python_with_suite(&folder());
    // The settings are those of kazoo's own harness.
    let real = ZooKeeper::builder()
        .tick(std::time::Duration::from_secs(2))
        .fsync(false)
        .line("reconfigEnabled=true")
        .start();
    let embedded = Server::start().unwrap();
    let all = MODULES.map(|module| format!("kazoo.tests.test_{module}"));
    let [theirs, ours] = thread::scope(|scope| {
        let real = scope.spawn(|| run_suite(&python, &all, &real));
        let embedded = scope.spawn(|| run_suite(&python, &all, &embedded));
        [real, embedded].map(|suite| suite.join().expect("a suite"))
    });
    let passed = theirs.values().filter(|outcome| *outcome == "passed");
    let passed = passed.count();
    println!("{passed} of {} pass on the real server", theirs.len());
    assert!(passed > 150, "{theirs:#?}");
    let named = |name: &String| DIFFERENT.iter().any(|(test, _)| name.ends_with(test));
    // A test that does not pass on a real server, which is slow to start again, shows nothing.
    let different: Vec<_> = theirs
        .iter()
        .filter(|(name, outcome)| *outcome == "passed" && ours.get(*name) != Some(outcome))
        .filter(|(name, _)| !named(name))
        .filter(|(name, _)| !(0..TRIES).any(|_| passes_alone(&python, name, &embedded)))
        .map(|(name, outcome)| format!("{name}: {outcome} there, {:?} here", ours.get(name)))
        .collect();
    assert!(different.is_empty(), "{different:#?}");
}

/// Runs one test again, by the name that the plugin has printed.
fn passes_alone(python: &Path, name: &str, server: &impl Stoppable) -> bool {
    let test = format!("kazoo.tests.{}", name.replacen(".py", "", 1));
    let outcomes = run_suite(python, &[test], server);
    outcomes.values().all(|outcome| outcome == "passed")
}

/// Returns the outcome of each test.
fn run_suite(python: &Path, tests: &[String], server: &impl Stoppable) -> BTreeMap<String, String> {
    let control = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = control.local_addr().expect("an address").to_string();
    thread::scope(|scope| {
        scope.spawn(|| obey(&control, server));
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/embedded");
        // A test that hangs after its time is beyond pytest's own limit.
        let output = Command::new("timeout")
            .args(["--kill-after=10", LIMIT])
            .arg(python)
            .env("PYTHONPATH", plugin)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("ZOOKEEPER_VERSION", "3.8.0")
            .env("ZKLOCK_SUITE_SERVER", server.hosts())
            .env("ZKLOCK_SUITE_CONTROL", &address)
            .args([
                "-m",
                "pytest",
                "-p",
                "kazoo_suite",
                "-p",
                "no:cacheprovider",
            ])
            .args(["-q", "--timeout", "60", "-k", NOT_OF_ONE_SERVER, "--pyargs"])
            .args(tests)
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .output();
        // Makes the other thread end.
        let mut bye = std::net::TcpStream::connect(&address).expect("a connection");
        bye.write_all(b"end\n").expect("a connection");
        let said = String::from_utf8_lossy(&output.expect("pytest").stdout).into_owned();
        let outcomes: BTreeMap<_, _> = said.lines().filter_map(outcome).collect();
        assert!(!outcomes.is_empty(), "{said}");
        if env::var_os("ZKLOCK_SUITE_SAYS").is_some() {
            println!("{said}");
        }
        outcomes
    })
}

/// Does what the tests request until they have ended.
fn obey(control: &TcpListener, server: &impl Stoppable) {
    for connection in control.incoming() {
        let mut connection = BufReader::new(connection.expect("a connection"));
        let mut word = String::new();
        connection.read_line(&mut word).expect("a word");
        match word.trim() {
            "stop" => server.stop(),
            "run" => server.run(),
            _ => return,
        }
        connection
            .get_mut()
            .write_all(b"done\n")
            .expect("a connection");
    }
}

/// Parses a line from the plugin: `@ passed test_lock.py::TestLock::test_it`.
fn outcome(line: &str) -> Option<(String, String)> {
    let (outcome, name) = line.strip_prefix("@ ")?.split_once(' ')?;
    Some((name.to_owned(), outcome.to_owned()))
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suites");
    std::fs::create_dir_all(&folder).expect("making a folder");
    folder
}
