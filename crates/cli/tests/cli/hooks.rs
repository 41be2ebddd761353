//! The hooks and events of `zklock standby`, when it becomes active and when it no longer is.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use serde_json::Value;

use crate::processes::{debug, is_root, keeper_of, keepers_of, thread_of};
use crate::program::{Log, Zklock, await_queue, command, embedded, on_every_server, rounds};
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children};
use crate::support::zookeeper::Folder;
use crate::support::{eventually, fresh_path, run};

on_every_server! {
    hooks_and_commands_run_in_order_on_one_machine_at_a_time
    the_passive_hook_runs_and_the_lock_is_free_when_zklock_is_killed_between_two_commands
    a_hook_that_fails_gives_the_lock_up
    a_passive_hook_that_hangs_is_killed_and_told
    what_the_last_hook_of_a_killed_zklock_leaves_ends_before_the_lock_is_free
    a_keeper_comes_first_and_neither_its_command_nor_its_hook_does
    a_signal_to_a_keeper_keeps_it_from_no_hook
    a_passive_hook_ends_in_time_if_zklock_is_stopped
    a_keeper_that_is_stopped_goes_on_while_a_passive_hook_runs
    a_long_grace_kills_no_daemon_and_outlasts_no_session
    an_active_hook_that_hangs_ends_with_the_lock
    the_passive_hook_runs_however_the_term_ends
    the_events_are_those_of_the_term_in_order
}

/// The options that leave a hook enough time on a busy machine.
const LONG: (&str, &str) = ("--grace", "1.5");

/// Returns a standby with these options, whose command is a script.
fn standby(hosts: &str, path: &str, options: &[(&str, &str)], script: &str) -> Command {
    let mut command = command(hosts);
    command.args(["--session-timeout", "10", "standby"]);
    for (option, value) in options {
        command.args([option, value]);
    }
    command.args([path, "--", "sh", "-c", script]);
    command
}

fn hooks_and_commands_run_in_order_on_one_machine_at_a_time(hosts: &str) {
    let (path, log) = (fresh_path("hooks"), Log::new());
    let start = |name: &str| {
        let word = |word: &str| log.write(&format!("{name}-{word}-$ZKLOCK_TERM"));
        let up = format!("{}; sleep 0.1", word("up"));
        let down = format!("sleep 0.1; {}", word("down"));
        let script = format!("{}; read -r _", word("runs"));
        let options = [("--on-active", &*up), ("--on-passive", &*down), LONG];
        Zklock::spawn(&mut standby(hosts, &path, &options, &script))
    };
    let mut first = start("a");
    log.await_word("a-runs-1");
    let second = start("b");
    await_queue(hosts, &path, 2);
    first.feed("\n");
    assert_eq!(first.end().code, Some(0));
    log.await_word("b-runs-1");
    second.signal("TERM");
    assert_eq!(second.end().signal, Some(15));
    let expected = [
        "a-up-1", "a-runs-1", "a-down-1", "b-up-1", "b-runs-1", "b-down-1",
    ];
    assert_eq!(log.words(), expected);
    let mut third = start("c");
    log.await_word("c-runs-1");
    third.kill();
    await_queue(hosts, &path, 0);
    log.await_word("c-down-1");
}

fn the_passive_hook_runs_and_the_lock_is_free_when_zklock_is_killed_between_two_commands(
    hosts: &str,
) {
    for _ in 0..rounds(5) {
        let (path, log) = (fresh_path("between"), Log::new());
        let down = format!("sleep 0.3; {}", log.write("down"));
        let script = format!("{}; read -r _", log.write("runs"));
        let options = [("--on-passive", &*down), LONG];
        let mut zklock = Zklock::spawn(&mut standby(hosts, &path, &options, &script));
        log.await_word("runs");
        let (id, before) = (zklock.id(), keeper_of(zklock.id()));
        zklock.feed("\n");
        // The hook gets a keeper of its own, which knows the session a moment after it has begun.
        let since = Instant::now();
        while keepers_of(id).iter().all(|keeper| *keeper == before) {
            assert!(since.elapsed() < Duration::from_secs(20), "no hook begins");
        }
        zklock.kill();
        log.await_word("down");
        await_queue(hosts, &path, 0);
    }
}

fn a_hook_that_fails_gives_the_lock_up(hosts: &str) {
    let (path, log) = (fresh_path("fails"), Log::new());
    let (up, down) = ("exit 7", log.write("down"));
    let options = [("--on-active", up), ("--on-passive", &*down)];
    let ended = Zklock::spawn(&mut standby(hosts, &path, &options, &log.write("runs"))).end();
    assert_eq!(ended.code, Some(7), "{ended:?}");
    let said = "zklock: --on-active ended with status 7: giving the lock up\n";
    assert_eq!(ended.err, said);
    assert_eq!(log.words(), ["down"]);
    // The command alone has a limit.
    let options = [("--on-active", "sleep 2; exit 7"), ("--max-time", "1")];
    let ended = Zklock::spawn(&mut standby(hosts, &path, &options, "true")).end();
    assert_eq!((ended.code, ended.err), (Some(7), said.to_owned()));
    let options = [("--on-passive", "exit 3")];
    let ended = Zklock::spawn(&mut standby(hosts, &path, &options, "exit 4")).end();
    assert_eq!(ended.code, Some(4));
    assert_eq!(ended.err, "zklock: --on-passive ended with status 3\n");
}

fn a_passive_hook_that_hangs_is_killed_and_told(hosts: &str) {
    let (path, log) = (fresh_path("hangs"), Log::new());
    // The processes that it leaves in the background are killed, too.
    let down = format!("trap '' TERM; ({}) & sleep 60", log.beat("down"));
    let options = [("--on-passive", &*down), ("--grace", "0.5")];
    let began = Instant::now();
    let ended = Zklock::spawn(&mut standby(hosts, &path, &options, "true")).end();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said = "zklock: --on-passive did not end within 0.5 s: killed it";
    assert!(ended.err.starts_with(said), "{}", ended.err);
    assert!(log.is_still());
}

fn what_the_last_hook_of_a_killed_zklock_leaves_ends_before_the_lock_is_free(hosts: &str) {
    for end in [":", "sleep 60"] {
        let (path, log) = (fresh_path("left"), Log::new());
        let down = format!(
            "setsid sh -c '{}' & {}; {end}",
            log.beat("down"),
            log.write("hook")
        );
        let options = [("--on-passive", &*down), ("--grace", "0.5")];
        let script = format!("{}; exec sleep 100", log.write("runs"));
        let mut zklock = Zklock::spawn(&mut standby(hosts, &path, &options, &script));
        log.await_word("runs");
        zklock.kill();
        log.await_word("hook");
        await_queue(hosts, &path, 0);
        assert_eq!(log.writers("down"), 0, "{end}");
    }
}

fn a_keeper_comes_first_and_neither_its_command_nor_its_hook_does(hosts: &str) {
    let (path, log) = (fresh_path("nice"), Log::new());
    let nice = format!("nice >> {}", log.file().display());
    let options = [("--on-passive", &*nice), LONG];
    let script = format!("{nice}; exec sleep 100");
    let mut zklock = Zklock::spawn(&mut standby(hosts, &path, &options, &script));
    eventually("it runs", || !log.words().is_empty());
    let mut ps = Command::new("ps");
    let of_keeper = run(ps.args(["-o", "ni=", "-p", &keeper_of(zklock.id())]));
    zklock.kill();
    await_queue(hosts, &path, 0);
    let usual = run(&mut Command::new("nice"));
    assert_eq!(log.words(), [usual.trim(); 2]);
    // The tests themselves may have a low priority.
    let first = run(Command::new("nice").args(["-n", "-40", "nice"]));
    assert_eq!(of_keeper.trim(), first.trim(), "as far as this user may");
}

/// A service manager sends a signal to every process of a service.
fn a_signal_to_a_keeper_keeps_it_from_no_hook(hosts: &str) {
    let (path, log) = (fresh_path("told"), Log::new());
    let down = log.write("down");
    let options = [("--on-passive", &*down), LONG];
    let script = format!("{}; exec sleep 100", log.write("runs"));
    let mut zklock = Zklock::spawn(&mut standby(hosts, &path, &options, &script));
    log.await_word("runs");
    let keeper = keeper_of(zklock.id());
    for signal in ["HUP", "INT", "TERM", "ALRM", "TSTP"] {
        run(Command::new("kill").args(["-s", signal, &keeper]));
    }
    zklock.kill();
    log.await_word("down");
    await_queue(hosts, &path, 0);
}

fn an_active_hook_that_hangs_ends_with_the_lock(hosts: &str) {
    let (path, log) = (fresh_path("hangs-up"), Log::new());
    let up = format!("trap '' TERM; {}", log.beat("up"));
    let down = log.write("down");
    let options = [("--on-active", &*up), ("--on-passive", &*down)];
    let mut stuck = standby(hosts, &path, &options, &log.write("runs"));
    let stuck = Zklock::spawn(&mut stuck);
    log.await_word("up");
    let node = children(hosts, &path).remove(0);
    Raw::connect(hosts)
        .delete(&format!("{path}/{node}"))
        .unwrap();
    log.await_word("down");
    // The standby may be back in the queue, which a killed process leaves with its session.
    stuck.signal("TERM");
    await_queue(hosts, &path, 0);
    assert!(!log.words().contains(&"runs".to_owned()));
}

/// The next command checks whether the hook of the command before has run.
fn the_passive_hook_runs_however_the_term_ends(hosts: &str) {
    for end in ["revoked", "killed", "cut off"] {
        let (path, log, folder) = (fresh_path("down"), Log::new(), Folder::new());
        let vip = folder.path("vip");
        let (up, down) = (format!("touch {}", vip.display()), "rm vip; sleep 0.1");
        let proxy = Proxy::start(hosts);
        let options = [("--on-active", &*up), ("--on-passive", down), LONG];
        let mut first = standby(&proxy.hosts(), &path, &options, &log.beat("first"));
        let mut first = Zklock::spawn(first.current_dir(folder.path("")));
        log.await_word("first");
        let both = format!("test -e {} && {}", vip.display(), log.write("both"));
        let next = format!("{both}; {}; sleep 60", log.write("second"));
        let mut second = Zklock::spawn(&mut standby(hosts, &path, &[], &next));
        await_queue(hosts, &path, 2);
        match end {
            "revoked" => drop(Zklock::run(hosts, &format!("revoke {path}"), "")),
            "killed" => first.kill(),
            _ => proxy.blackhole(),
        }
        log.await_word("second");
        assert!(!log.words().contains(&"both".to_owned()), "{end}");
        first.kill();
        second.kill();
    }
}

fn a_passive_hook_ends_in_time_if_zklock_is_stopped(hosts: &str) {
    let (path, log) = (fresh_path("down"), Log::new());
    let down = log.beat("down");
    let options = [("--on-passive", &*down), LONG];
    let first = Zklock::spawn(&mut standby(hosts, &path, &options, &log.beat("up")));
    log.await_word("up");
    first.signal("TERM");
    log.await_word("down");
    first.signal("STOP");
    eventually("the hook ends", || log.is_still());
    first.signal("CONT");
    assert_eq!(first.end().signal, Some(15));
}

fn a_keeper_that_is_stopped_goes_on_while_a_passive_hook_runs(hosts: &str) {
    let (path, log) = (fresh_path("down"), Log::new());
    let down = format!("{}; sleep 0.3", log.write("down"));
    let options = [("--on-passive", &*down), LONG];
    let mut first = Zklock::spawn(&mut standby(hosts, &path, &options, &log.beat("up")));
    log.await_word("up");
    first.signal("TERM");
    log.await_word("down");
    run(Command::new("kill").args(["-STOP", &keeper_of(first.id())]));
    let ended = first.end();
    assert_eq!(ended.signal, Some(15));
    assert!(!ended.err.contains("did not end"), "{ended:?}");
}

fn a_long_grace_kills_no_daemon_and_outlasts_no_session(hosts: &str) {
    let (path, log) = (fresh_path("long-grace"), Log::new());
    let down = log.beat("down");
    let mut first = command(hosts);
    first.args([
        "--session-timeout",
        "4",
        "standby",
        "--grace",
        "60",
        "--on-passive",
    ]);
    first.args([&down, &path, "--", "sh", "-c", &log.beat("up")]);
    let mut first = Zklock::spawn(&mut first);
    // The lock is proven several times meanwhile.
    let beats = || log.words().iter().filter(|word| *word == "up").count();
    eventually("it runs", || beats() > 100 || log.contains("down"));
    assert!(!log.contains("down"));
    let second = Log::new();
    let next = format!("{}; read -r _", second.write("second"));
    let mut next = Zklock::spawn(&mut standby(hosts, &path, &[], &next));
    await_queue(hosts, &path, 2);
    first.kill();
    second.await_word("second");
    assert_eq!(log.writers("down"), 0);
    next.kill();
}

/// Returns the names of the events, without those of a wait.
fn names(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["event"].as_str().unwrap());
    names.collect()
}

fn events_in(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.map(|line| line.expect("JSON")).collect()
}

fn the_events_are_those_of_the_term_in_order(hosts: &str) {
    let (path, log, folder) = (fresh_path("events"), Log::new(), Folder::new());
    let file = folder.path("events");
    let down = log.write("down");
    let options = [
        ("--events", file.to_str().unwrap()),
        ("--on-passive", &*down),
    ];
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    let standby = Zklock::spawn(&mut standby(hosts, &path, &options, &log.beat("beat")));
    eventually("it waits", || names(&events_in(&file)) == ["waiting"]);
    holder.kill();
    log.await_word("beat");
    let node = children(hosts, &path).remove(0);
    Raw::connect(hosts)
        .delete(&format!("{path}/{node}"))
        .unwrap();
    let terms = |events: &[Value]| {
        names(events)
            .iter()
            .filter(|name| **name == "ready")
            .count()
    };
    eventually("a second term", || terms(&events_in(&file)) == 2);
    standby.signal("TERM");
    standby.end();
    let events = events_in(&file);
    let mut told = names(&events);
    // The loss of the lock may be seen before or after the stop of the command.
    let lost = told
        .iter()
        .position(|name| *name == "lost")
        .expect("it was lost");
    assert_eq!(told.remove(lost), "lost");
    assert!((3..5).contains(&lost), "{told:?}");
    let expected = [
        "waiting", "active", "ready", "stopping", "passive", "active", "ready", "stopping",
        "passive",
    ];
    assert_eq!(told, expected);
    let numbers = events.iter().map(|event| event["seq"].as_u64().unwrap());
    assert!(numbers.eq(1..=10));
    assert!(events.iter().all(|event| event["path"] == *path));
    assert_eq!(events[1]["node"], format!("{path}/{node}"));
    assert_eq!(events[1]["term"], 1);
    assert!(events[1]["token"].as_i64() < events[6]["token"].as_i64());
    assert!(events.is_sorted_by_key(|event| event["at_ms"].as_u64()));
}

/// A disk that hangs is one whose thread does.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_hangs_holds_no_signal_back() {
    // How long an event is waited for.
    const FLUSH: Duration = Duration::from_millis(250);
    if !is_root() {
        return println!("only root can debug everywhere");
    }
    let mut took = Vec::new();
    while took.iter().all(|time| FLUSH <= *time) {
        assert!(took.len() < 10, "{took:?}");
        took.push(killed_after());
    }
}

/// Returns how long after the end of its lock a daemon runs, if no event can be written.
#[cfg(target_os = "linux")]
fn killed_after() -> Duration {
    let (path, folder, log) = (fresh_path("hangs"), Folder::new(), Log::new());
    let file = folder.path("events");
    let options = [("--events", file.to_str().unwrap())];
    let script = format!("{}; echo $$ > pid; exec sleep 100", log.write("runs"));
    let mut daemon = standby(embedded(), &path, &options, &script);
    let mut daemon = Zklock::spawn(daemon.current_dir(folder.path("")));
    let pid = || fs::read_to_string(folder.path("pid")).unwrap_or_default();
    eventually("it runs", || pid().ends_with('\n'));
    let held = debug(&thread_of(daemon.id(), "zklock-events"), "stop");
    let node = format!("{path}/{}", children(embedded(), &path).remove(0));
    let runs = PathBuf::from("/proc").join(pid().trim());
    let since = Instant::now();
    Raw::connect(embedded()).delete(&node).unwrap();
    eventually("it is killed", || !runs.exists());
    let took = since.elapsed();
    // The system keeps what has ended for its debugger.
    drop(held);
    daemon.kill();
    took
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

#[test]
fn a_pipe_holds_nothing_back_whoever_reads_it() {
    let (folder, log) = (Folder::new(), Log::new());
    let pipe = folder.path("pipe");
    make_pipe(&pipe);
    let options = [("--events", pipe.to_str().unwrap())];
    let path = fresh_path("pipe");
    // Nobody reads.
    let ended = Zklock::spawn(&mut standby(embedded(), &path, &options, "true")).end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    // Somebody opens the pipe without reading, and is gone later.
    let deaf = File::from(open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
    let waits = format!("{}; read -r _", log.write("runs"));
    let mut daemon = Zklock::spawn(&mut standby(embedded(), &path, &options, &waits));
    log.await_word("runs");
    drop(deaf);
    // Another reader comes.
    let reader = File::from(open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
    rustix::fs::fcntl_setfl(&reader, OFlags::RDONLY).unwrap();
    daemon.feed("\n");
    let lines = BufReader::new(reader).lines().map_while(Result::ok);
    let events: Vec<Value> = lines
        .take(4)
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    assert_eq!(names(&events), ["active", "ready", "stopping", "passive"]);
    assert_eq!(daemon.end().code, Some(0));
    // A reader leaves, and nobody comes.
    let reader = File::from(open(&pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
    let mut daemon = Zklock::spawn(&mut standby(embedded(), &path, &options, &waits));
    eventually("it runs again", || log.words().len() == 2);
    drop(reader);
    daemon.feed("\n");
    let ended = daemon.end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_costs_events_alone_and_is_told_once() {
    let ended = standby(
        embedded(),
        &fresh_path("full"),
        &[("--events", "/dev/full")],
        "exit 5",
    );
    let ended = { ended }.output().unwrap();
    assert_eq!(ended.status.code(), Some(5));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("cannot write events to /dev/full: No space left"),
        "{said}"
    );
}

#[test]
fn events_that_can_never_be_written_are_told_at_the_start() {
    let folder = Folder::new();
    for (file, said) in [
        (folder.path(""), "Is a directory"),
        (folder.path("no/such"), "No such file"),
    ] {
        let options = [("--events", file.to_str().unwrap())];
        let ended = Zklock::spawn(&mut standby(
            embedded(),
            &fresh_path("bad"),
            &options,
            "true",
        ));
        let ended = ended.end();
        assert_eq!(ended.code, Some(70), "{}", ended.err);
        assert!(ended.err.contains(said), "{}", ended.err);
    }
}
