//! Signals to `zklock run`: which processes get them, and what is cleaned up before it ends.

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::processes::can_unshare;
use crate::program::{Log, Zklock, await_queue, on_every_server, rounds};
use crate::support::proxy::Proxy;
use crate::support::raw::children;
use crate::support::{eventually, fresh_path, run};

on_every_server! {
    signals_are_passed_on_to_the_whole_group
    a_signal_reaches_what_is_orphaned_by_it
    a_signal_while_connecting_leaves_nothing_behind
    a_signal_while_waiting_leaves_the_queue
    two_signals_at_once_leave_the_queue
    whoever_is_ended_by_a_signal_dies_of_it
    a_caller_that_ignores_the_end_of_children_changes_nothing
    a_signal_that_the_caller_ignores_ends_no_wait
    a_command_does_not_ignore_the_end_of_a_pipe_whatever_its_caller_does
    a_command_that_was_stopped_through_zklock_continues_with_it
    a_command_stops_and_continues_whose_caller_has_no_number
    who_stops_one_of_two_in_a_script_stops_neither_the_other_nor_the_script
}

fn signals_are_passed_on_to_the_whole_group(hosts: &str) {
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let (path, log) = (fresh_path("signals"), Log::new());
        // The part in the background is not zklock's child. A shell would make it ignore the
        // interrupt, so it is not a shell's child either.
        let script = format!("{} & {}; wait", log.beat("beat"), log.write("ready"));
        let script = format!("trap 'exit {code}' {signal}; {script}");
        let zklock = Zklock::start(hosts, &format!("run {path}"), &script);
        log.await_word("ready");
        log.await_word("beat");
        zklock.signal(signal);
        if signal == "INT" {
            // The head is gone; the other process, which ignores the signal, keeps the lock.
            assert_eq!(
                Zklock::run(hosts, &format!("run -n {path}"), ":").code,
                Some(1)
            );
            zklock.signal("TERM");
        }
        assert_eq!(zklock.end().code, Some(code));
        assert!(log.is_still());
    }
    let log = Log::new();
    let script = format!(
        "trap 'exit 3' USR1; {}; while :; do sleep 0.02; done",
        log.write("on")
    );
    let zklock = Zklock::start(hosts, &format!("run {}", fresh_path("signals")), &script);
    log.await_word("on");
    zklock.signal("USR1");
    assert_eq!(zklock.end().code, Some(3));
}

fn a_signal_reaches_what_is_orphaned_by_it(hosts: &str) {
    for _ in 0..rounds(25) {
        let (path, log) = (fresh_path("orphans"), Log::new());
        let job = format!("setsid sh -c '{}' & ", log.beat("beat")).repeat(4);
        let zklock = Zklock::start(
            hosts,
            &format!("run {path}"),
            &format!("{job} exec sleep 60"),
        );
        eventually("all beat", || {
            log.writers("beat") == 4 + 1 && !log.words().is_empty()
        });
        zklock.signal("TERM");
        assert_eq!(zklock.end().code, Some(143));
    }
}

fn a_signal_while_connecting_leaves_nothing_behind(hosts: &str) {
    let (path, proxy) = (fresh_path("early"), Proxy::start(hosts));
    for round in 0..rounds(60) {
        let before = proxy.connections();
        let zklock = Zklock::start(&proxy.hosts(), &format!("run {path}"), ":");
        while proxy.connections() == before {
            thread::yield_now();
        }
        thread::sleep(Duration::from_micros(100) * (round % 20));
        zklock.signal("TERM");
        zklock.end();
        assert_eq!(children(hosts, &path), [""; 0]);
    }
}

fn a_signal_while_waiting_leaves_the_queue(hosts: &str) {
    let (path, log) = (fresh_path("waiting"), Log::new());
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    let waiting = Zklock::start(hosts, &format!("run {path}"), &log.write("second"));
    eventually("somebody waits", || children(hosts, &path).len() == 2);
    waiting.signal("TERM");
    assert_eq!(waiting.end().code, Some(143));
    await_queue(hosts, &path, 1);
    holder.kill();
    assert!(!log.words().contains(&"second".to_owned()));
}

fn two_signals_at_once_leave_the_queue(hosts: &str) {
    let (path, log) = (fresh_path("twice"), Log::new());
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    for round in 0..rounds(8) {
        let mut waiting = Zklock::start(hosts, &format!("run {path}"), ":");
        eventually("somebody waits", || children(hosts, &path).len() == 2);
        let id = waiting.id();
        let kill = format!("kill -INT {id}; kill -TERM {id}; kill -INT {id}");
        run(Command::new("sh").args(["-c", &format!("{kill}; exit 0")]));
        let ended = waiting.end();
        assert!(matches!(ended.signal, Some(2 | 15)), "{round}: {ended:?}");
        assert_eq!(children(hosts, &path).len(), 1, "{round}");
    }
    holder.kill();
}

fn whoever_is_ended_by_a_signal_dies_of_it(hosts: &str) {
    let (path, log) = (fresh_path("dies"), Log::new());
    let run = format!("run {path}");
    for (name, signal) in [
        ("INT", 2),
        ("TERM", 15),
        ("HUP", 1),
        ("KILL", 9),
        ("ABRT", 6),
        ("SEGV", 11),
        ("BUS", 7),
    ] {
        let ended = Zklock::run(hosts, &run, &format!("kill -{name} $$"));
        assert_eq!(ended.signal, Some(signal), "{name}");
    }
    let mut holder = Zklock::start(hosts, &run, &log.beat("held"));
    log.await_word("held");
    for (name, signal) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let waiting = Zklock::start(hosts, &run, ":");
        eventually("somebody waits", || children(hosts, &path).len() == 2);
        waiting.signal(name);
        assert_eq!(waiting.end().signal, Some(signal), "{name}");
        assert_eq!(children(hosts, &path).len(), 1);
    }
    holder.kill();
    // A command that catches the signal and ends in another way has not died of it.
    let (path, log) = (fresh_path("dies"), Log::new());
    let script = format!("trap 'exit 3' TERM; {}", log.beat("beat"));
    let zklock = Zklock::start(hosts, &format!("run {path}"), &script);
    log.await_word("beat");
    zklock.signal("TERM");
    let ended = zklock.end();
    assert_eq!((ended.code, ended.signal), (Some(3), None));
}

fn a_caller_that_ignores_the_end_of_children_changes_nothing(hosts: &str) {
    let with = |script: &str| {
        let mut command = Command::new("env");
        command
            .arg("--ignore-signal=CHLD")
            .args([env!("CARGO_BIN_EXE_zklock"), "run", &fresh_path("ignored")])
            .args(["--", "sh", "-c", script])
            .env("ZKLOCK_HOSTS", hosts);
        Zklock::spawn(&mut command).end()
    };
    let ended = with("exit 5");
    assert_eq!(ended.code, Some(5), "{}", ended.err);
    assert_eq!(with("kill -TERM $$").signal, Some(15));
}

/// nohup(1) lets a signal be ignored.
fn a_signal_that_the_caller_ignores_ends_no_wait(hosts: &str) {
    let (path, log) = (fresh_path("ignored"), Log::new());
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    let mut waiting = Command::new("env");
    waiting.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_zklock"), "run"]);
    waiting.args([&path, "--", "sh", "-c", "exit 3"]);
    let waiting = Zklock::spawn(waiting.env("ZKLOCK_HOSTS", hosts));
    await_queue(hosts, &path, 2);
    waiting.signal("HUP");
    thread::sleep(Duration::from_millis(300));
    holder.kill();
    assert_eq!(waiting.end().code, Some(3));
}

/// The numbers of its caller are outside of its namespace, as when a container is entered.
fn a_command_stops_and_continues_whose_caller_has_no_number(hosts: &str) {
    if !can_unshare() {
        return println!("only root can make a namespace everywhere");
    }
    let (path, log) = (fresh_path("outside"), Log::new());
    let script = format!(
        "setsid {} run {path} -- sh -c 'trap \"{}\" CONT; {}' & zklock=$!
        while ! grep -qs beat {log}; do sleep 0.02; done
        kill -TSTP $zklock; sleep 0.3; kill -CONT $zklock
        while ! grep -q on {log}; do sleep 0.02; done
        kill -TERM $zklock; wait $zklock",
        env!("CARGO_BIN_EXE_zklock"),
        log.write("on"),
        log.beat("beat"),
        log = log.file().display(),
    );
    let mut container = Command::new("unshare");
    container.args(["-pf", "--kill-child", "--mount-proc", "sh", "-c", &script]);
    let ended = Zklock::spawn(container.env("ZKLOCK_HOSTS", hosts)).end();
    assert_eq!(ended.code, Some(128 + 15), "{ended:?}");
}

fn who_stops_one_of_two_in_a_script_stops_neither_the_other_nor_the_script(hosts: &str) {
    let logs = [Log::new(), Log::new()];
    let run = |log: &Log| {
        let zklock = env!("CARGO_BIN_EXE_zklock");
        let path = fresh_path("script");
        // A shell that is stopped inside vfork(2), which bash does without, does not stop.
        format!("{zklock} run {path} -- bash -c '{}' &", log.beat("beat"))
    };
    let goes_on = |log: &Log| {
        let log = log.file().display().to_string();
        format!(
            "n=$(wc -l < {log}); while [ $(wc -l < {log}) -lt $((n + 3)) ]; do sleep 0.02; done"
        )
    };
    let script = format!(
        "{} a=$!; {} b=$!; {}; {}
        kill -TSTP $a; while ! grep -q '^State:.T' /proc/$a/status; do sleep 0.02; done
        {}; kill -CONT $a; {}; kill -TERM $a $b; wait",
        run(&logs[0]),
        run(&logs[1]),
        goes_on(&logs[0]),
        goes_on(&logs[1]),
        goes_on(&logs[1]),
        goes_on(&logs[0]),
    );
    let mut session = Command::new("setsid");
    session.args(["-w", "python3", "-c", STOPPABLE, "bash", "-c"]);
    session.args(["set -m; sh -c \"$0\"; exit $?", &script]);
    let ended = Zklock::spawn(session.env("ZKLOCK_HOSTS", hosts)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// A program that becomes the rest of its arguments, and lets SIGTSTP stop them whatever the caller
/// has set: some programs that run tests ignore or block it.
const STOPPABLE: &str = "\
import os, signal, sys
signal.signal(signal.SIGTSTP, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP, signal.SIGCONT])
os.execvp(sys.argv[1], sys.argv[1:])
";

fn a_command_does_not_ignore_the_end_of_a_pipe_whatever_its_caller_does(hosts: &str) {
    for caller in ["--ignore-signal=PIPE", "--default-signal=PIPE"] {
        let mut command = Command::new("env");
        let path = fresh_path("pipe");
        command.args([caller, env!("CARGO_BIN_EXE_zklock"), "run", &path, "--"]);
        command.args(["grep", "SigIgn", "/proc/self/status"]);
        let ended = Zklock::spawn(command.env("ZKLOCK_HOSTS", hosts)).end();
        let mask = ended.out.split_whitespace().last().expect("a mask");
        let mask = u64::from_str_radix(mask, 16).expect("a number");
        assert_eq!(mask & 1 << 12, 0, "{caller}: {ended:?}");
    }
}

/// The command is without a terminal, and in a session of its own.
fn a_command_that_was_stopped_through_zklock_continues_with_it(hosts: &str) {
    // The head of the second command does not stop, as one that waits in vfork(2).
    let second = "trap '' TSTP; env --default-signal=TSTP sh -c \"$0\"; :";
    for head in ["exec sh -c \"$0\"", second] {
        continues_with_zklock(hosts, head);
    }
}

fn continues_with_zklock(hosts: &str, head: &str) {
    let (path, log) = (fresh_path("stopped"), Log::new());
    let zklock = env!("CARGO_BIN_EXE_zklock");
    let mut command = Command::new("setsid");
    command.args(["-w", "python3", "-c", STOPPABLE, zklock, "run", &path]);
    command.args(["--", "sh", "-c", head]);
    let trap = format!("trap '{}' CONT", log.write("on"));
    command.arg(format!("{trap}; {}; {}", log.write("in"), log.beat("beat")));
    let session = Zklock::spawn(command.env("ZKLOCK_HOSTS", hosts));
    log.await_word("in");
    let list = Zklock::run(hosts, &format!("list --json {path}"), "");
    let json: serde_json::Value = serde_json::from_str(&list.out).expect("JSON");
    let id = json["contenders"][0]["owner"]["pid"].to_string();
    let kill = |signal: &str| run(Command::new("kill").args([signal, &id]));
    kill("-TSTP");
    // Otherwise SIGCONT may cancel it.
    thread::sleep(Duration::from_millis(300));
    kill("-CONT");
    log.await_word("on");
    kill("-TERM");
    session.end();
    await_queue(hosts, &path, 0);
}
