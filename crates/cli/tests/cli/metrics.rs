//! The file with numbers for node_exporter.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::program::{Ended, Log, Zklock, await_queue, command, embedded, on_every_server};
use crate::support::raw::{Raw, children};
use crate::support::zookeeper::Folder;
use crate::support::{Ends, eventually, fresh_path};

on_every_server! {
    the_file_tells_of_the_last_run_and_counts_all
    a_job_that_is_done_keeps_its_last_success
    what_others_have_written_meanwhile_stays
    a_standby_tells_whether_it_is_active_and_counts_its_terms_and_losses
    after_a_kill_the_file_says_that_nothing_runs
    who_is_killed_leaves_the_file_to_who_still_waits
}

/// A label's value, and the numbers of the names behind `zklock_command_`.
type Numbers = (String, BTreeMap<String, f64>);

/// Reads a page as strictly as Prometheus describes the format, and more so.
#[track_caller]
fn parse(text: &str) -> Numbers {
    let (mut locks, mut numbers) = (Vec::new(), BTreeMap::new());
    assert!(text.ends_with('\n'), "{text}");
    let lines: Vec<_> = text.lines().collect();
    for about in lines.chunks(3) {
        let [help, kind, sample] = about else {
            panic!("not HELP, TYPE and a sample: {about:?}");
        };
        let (name, rest) = sample.split_once('{').expect("labels");
        let what = help.strip_prefix(&format!("# HELP {name} "));
        assert!(what.is_some_and(|what| !what.contains('\\')), "{help}");
        let counts = name.ends_with("_total");
        let wanted = if counts { "counter" } else { "gauge" };
        assert_eq!(*kind, format!("# TYPE {name} {wanted}"));
        let (label, number) = rest.rsplit_once("\"} ").expect("one label");
        locks.push(unescape(label.strip_prefix("lock=\"").expect("the lock")));
        let name = name.strip_prefix("zklock_command_").expect("our prefix");
        assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'));
        let number = number.parse().expect("a number");
        assert_eq!(numbers.insert(name.to_owned(), number), None, "twice");
    }
    locks.dedup();
    assert_eq!(locks.len(), 1, "{locks:?}");
    (locks.remove(0), numbers)
}

#[track_caller]
fn unescape(label: &str) -> String {
    let mut value = String::new();
    let mut chars = label.chars();
    while let Some(c) = chars.next() {
        assert!(c != '"' && c != '\n', "{label}");
        value.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(c @ ('\\' | '"')) => c,
                other => panic!("{other:?} is escaped in {label}"),
            },
            c => c,
        });
    }
    value
}

fn read(file: &Path) -> Numbers {
    parse(&fs::read_to_string(file).expect("reading the numbers"))
}

/// Returns the numbers that are neither points in time nor lengths of time, in the order of their
/// names.
fn plain(file: &Path) -> Vec<(String, f64)> {
    let numbers = read(file).1.into_iter();
    numbers
        .filter(|(name, _)| !name.ends_with("seconds"))
        .collect()
}

fn are(expected: &[(&str, f64)]) -> Vec<(String, f64)> {
    let own = |(name, number): &(&str, f64)| ((*name).to_owned(), *number);
    expected.iter().map(own).collect()
}

fn with(place: &Path, hosts: &str, args: &[&str], script: &str) -> Command {
    let mut command = command(hosts);
    command.args(args).args(["--", "sh", "-c", script]);
    command.env("ZKLOCK_METRICS", place);
    command
}

#[track_caller]
fn end(mut command: Command) -> Ended {
    Zklock::spawn(&mut command).end()
}

fn the_file_tells_of_the_last_run_and_counts_all(hosts: &str) {
    let folder = Folder::new();
    let path = format!("{}/a\"b\\c é", fresh_path("numbers"));
    let file = folder.path("nightly.prom");
    let run = |script: &str| end(with(&file, hosts, &["run", "-n", &path], script)).code;
    let before = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert_eq!(run("sleep 0.3"), Some(0));
    let (lock, first) = read(&file);
    assert_eq!(lock, path);
    let first = |name: &str| first[&format!("last_{name}")];
    let start = first("start_timestamp_seconds");
    assert!(before - 1.0 < start && start < before + 60.0, "{start}");
    assert!(start + 0.3 <= first("exit_timestamp_seconds") + 0.002);
    assert!(start < first("success_timestamp_seconds"));
    assert!((0.299..60.0).contains(&first("hold_seconds")));
    assert!((0.0..60.0).contains(&first("wait_seconds")));
    for (script, status) in [("exit 3", 3.0), ("kill $$", 143.0)] {
        run(script);
        assert_eq!(read(&file).1["last_exit_status"], status);
    }
    let ended = [
        "active",
        "last_exit_status",
        "losses_total",
        "starts_total",
        "waiting",
    ];
    let ended = |numbers: [f64; 5]| {
        are(&std::array::from_fn::<_, 5, _>(|at| {
            (ended[at], numbers[at])
        }))
    };
    assert_eq!(plain(&file), ended([0.0, 143.0, 0.0, 3.0, 0.0]));
    let (_, last) = read(&file);
    assert_eq!(
        last["last_success_timestamp_seconds"],
        first("success_timestamp_seconds")
    );
    assert!(start < last["last_start_timestamp_seconds"]);
    // A run that reaches no server starts no command.
    let started = last["last_start_timestamp_seconds"];
    let mut unreachable = command("127.0.0.1:1");
    unreachable.args(["--connect-timeout", "0.1", "run", "--metrics"]);
    unreachable.arg(&file).args([&*path, "--", "true"]);
    assert_eq!(end(unreachable).code, Some(69));
    assert_eq!(plain(&file), ended([0.0, 69.0, 0.0, 3.0, 0.0]));
    assert_eq!(read(&file).1["last_start_timestamp_seconds"], started);
    let names = fs::read_dir(folder.path(".")).unwrap().count();
    assert_eq!(names, 1, "nothing is left beside it");
}

fn a_job_that_is_done_keeps_its_last_success(hosts: &str) {
    let (folder, path) = (Folder::new(), fresh_path("job-numbers"));
    let place = folder.path(".");
    let once = |slot: &str, script: &str| {
        let args = ["once", "--slot", slot, "-E", "9", &path];
        end(with(&place, hosts, &args, script)).code
    };
    let file = folder.path(format!("zklock{}.prom", path.replace('/', ".")));
    assert_eq!(once("1", "exit 4"), Some(4));
    assert!(!read(&file).1.contains_key("last_success_timestamp_seconds"));
    assert_eq!(once("1", "true"), Some(0));
    let success = read(&file).1["last_success_timestamp_seconds"];
    assert_eq!(once("1", "true"), Some(9));
    let (lock, numbers) = read(&file);
    assert_eq!(lock, path);
    assert_eq!(numbers["last_success_timestamp_seconds"], success);
    assert_eq!(
        (numbers["starts_total"], numbers["last_exit_status"]),
        (2.0, 9.0)
    );
}

fn a_standby_tells_whether_it_is_active_and_counts_its_terms_and_losses(hosts: &str) {
    let (folder, path) = (Folder::new(), fresh_path("terms"));
    let [first, second] = ["one.prom", "two.prom"].map(|name| folder.path(name));
    let start = |file: &Path| {
        let args = ["standby", "--restart", "always", &path];
        Zklock::spawn(&mut with(file, hosts, &args, "read -r _"))
    };
    let is = |file: &Path, waiting: f64, active: f64| {
        let text = fs::read_to_string(file).unwrap_or_default();
        !text.is_empty() && {
            let (_, numbers) = parse(&text);
            (numbers["waiting"], numbers["active"]) == (waiting, active)
        }
    };
    let one = start(&first);
    eventually("it is active", || is(&first, 0.0, 1.0));
    let two = start(&second);
    eventually("it is in line", || is(&second, 1.0, 0.0));
    await_queue(hosts, &path, 2);
    let node = children(hosts, &path)
        .into_iter()
        .min_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    let node = format!("{path}/{}", node.unwrap());
    Raw::connect(hosts).delete(&node).unwrap();
    eventually("the other is active", || is(&second, 0.0, 1.0));
    eventually("the first is in line", || is(&first, 1.0, 0.0));
    assert_eq!(
        plain(&first),
        are(&[
            ("active", 0.0),
            ("losses_total", 1.0),
            ("starts_total", 1.0),
            ("waiting", 1.0),
        ])
    );
    two.signal("TERM");
    assert_eq!(two.end().signal, Some(15));
    eventually("the first is active again", || is(&first, 0.0, 1.0));
    assert_eq!(read(&first).1["starts_total"], 2.0);
    assert_eq!(read(&second).1["last_exit_status"], 143.0);
    one.signal("TERM");
    one.end();
    assert!(is(&first, 0.0, 0.0));
}

fn after_a_kill_the_file_says_that_nothing_runs(hosts: &str) {
    let (folder, path, log) = (Folder::new(), fresh_path("killed"), Log::new());
    let script = format!("{}; sleep 60", log.write("runs"));
    let mut zklock = Zklock::spawn(&mut with(
        &folder.path("."),
        hosts,
        &["run", &path],
        &script,
    ));
    log.await_word("runs");
    let file = folder.path(format!("zklock{}.prom", path.replace('/', ".")));
    eventually("it is active", || {
        file.exists() && read(&file).1["active"] == 1.0
    });
    zklock.kill();
    await_queue(hosts, &path, 0);
    assert_eq!(read(&file).1["active"], 0.0);
    assert_eq!(read(&file).1["starts_total"], 1.0);
}

fn who_is_killed_leaves_the_file_to_who_still_waits(hosts: &str) {
    let (folder, path, log) = (Folder::new(), fresh_path("restarted"), Log::new());
    let file = folder.path("both.prom");
    let script = format!("{}; sleep 60", log.write("runs"));
    let mut killed = Zklock::spawn(&mut with(&file, hosts, &["standby", &path], &script));
    log.await_word("runs");
    // The next one is on another machine.
    let other = format!("{}; read -r _", log.write("other"));
    let other = Zklock::start(hosts, &format!("standby {path}"), &other);
    await_queue(hosts, &path, 2);
    let again = Zklock::spawn(&mut with(&file, hosts, &["standby", &path], ":"));
    await_queue(hosts, &path, 3);
    let waits = || fs::read_to_string(&file).is_ok_and(|text| parse(&text).1["waiting"] == 1.0);
    eventually("it is in line", waits);
    killed.kill();
    log.await_word("other");
    assert!(waits());
    for standby in [again, other] {
        standby.signal("TERM");
        standby.end();
    }
}

/// A waiter would write over the success of the run ahead.
fn what_others_have_written_meanwhile_stays(hosts: &str) {
    let (folder, path) = (Folder::new(), fresh_path("meanwhile"));
    let (file, go) = (folder.path("both.prom"), folder.path("go"));
    let script = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
    let run = |script: &str| Zklock::spawn(&mut with(&file, hosts, &["run", &path], script));
    let first = run(&script);
    let is = |name: &str| file.exists() && read(&file).1[name] == 1.0;
    eventually("it runs", || is("active"));
    let second = run("exit 3");
    eventually("the other waits", || is("waiting"));
    fs::write(&go, "").unwrap();
    assert_eq!((first.end().code, second.end().code), (Some(0), Some(3)));
    let numbers = read(&file).1;
    assert!(numbers.contains_key("last_success_timestamp_seconds"));
    assert_eq!(numbers["starts_total"], 2.0);
}

#[test]
fn what_cannot_be_written_is_told_once_and_ends_no_command() {
    let folder = Folder::new();
    fs::create_dir(folder.path("folder.prom")).unwrap();
    fs::write(folder.path("file"), "").unwrap();
    for place in ["folder.prom", "file", "missing", "missing/a.prom"] {
        let path = fresh_path("unwritten");
        let place = folder.path(place);
        let args = ["run", "--hold-at-least", "0.1", &path];
        let ended = end(with(&place, embedded(), &args, "exit 5"));
        assert_eq!(ended.code, Some(5), "{ended:?}");
        let said = format!("zklock: cannot write metrics to {}", place.display());
        assert!(ended.err.starts_with(&said), "{}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    let left: Vec<_> = fs::read_dir(folder.path(".")).unwrap().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    // By default, the system ends a process that writes too much.
    let (path, place) = (fresh_path("limited"), folder.path("limited.prom"));
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 0; exec \"$@\"", "sh"]);
    limited.args([env!("CARGO_BIN_EXE_zklock"), "--hosts", embedded(), "run"]);
    limited.arg("--metrics").arg(&place);
    limited.args([&path, "--", "sh", "-c", "exit 5"]);
    let ended = end(limited);
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let said = format!("zklock: cannot write metrics to {}", place.display());
    assert!(ended.err.starts_with(&said), "{}", ended.err);
    let ended = end(with(
        Path::new(""),
        embedded(),
        &["run", &fresh_path("none")],
        "true",
    ));
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
}

#[test]
fn who_reads_the_file_at_any_time_finds_all_of_it() {
    let (folder, path) = (Folder::new(), fresh_path("whole"));
    let file = folder.path("whole.prom");
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        let _ends = Ends(&done);
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Ok(text) = fs::read_to_string(&file) {
                    let (_, numbers) = parse(&text);
                    assert!(numbers.contains_key("losses_total"), "{text}");
                }
                thread::sleep(Duration::from_micros(50));
            }
        });
        for _ in 0..10 {
            assert_eq!(
                end(with(&file, embedded(), &["run", &path], "true")).code,
                Some(0)
            );
        }
    });
    assert_eq!(read(&file).1["starts_total"], 10.0);
}

/// The readers of the file run as other users.
#[test]
fn others_may_read_the_file_whatever_the_mask_is() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path) = (Folder::new(), fresh_path("mask"));
    let file = folder.path("mask.prom");
    let mut masked = Command::new("sh");
    masked.args(["-c", "umask 077; exec \"$0\" \"$@\""]);
    masked.arg(env!("CARGO_BIN_EXE_zklock"));
    masked
        .args(["--hosts", embedded(), "run", "--metrics"])
        .arg(&file);
    masked.args([&*path, "--", "true"]);
    assert_eq!(end(masked).code, Some(0));
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o644
    );
}

/// The thread that writes must not take the signals.
#[test]
fn signals_reach_the_command_of_a_zklock_that_writes_numbers() {
    let (folder, path, log) = (Folder::new(), fresh_path("signals"), Log::new());
    let script = format!(
        "trap 'exit 6' TERM; {}; while :; do sleep 0.05; done",
        log.write("runs")
    );
    let mut command = with(&folder.path("."), embedded(), &["run", &path], &script);
    let zklock = Zklock::spawn(&mut command);
    log.await_word("runs");
    zklock.signal("TERM");
    assert_eq!(zklock.end().code, Some(6));
}
