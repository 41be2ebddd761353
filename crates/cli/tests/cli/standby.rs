//! `zklock standby`.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Log, Zklock, await_queue, embedded, on_every_server};
use crate::succession::HELD_BACK;
use crate::support::raw::{Raw, children};
use crate::support::{eventually, fresh_path};

on_every_server! {
    one_is_active_and_the_next_takes_over
    a_daemon_that_ends_is_not_restarted_unless_that_is_wanted
    a_revoked_daemon_stands_in_line_again
    a_daemon_that_has_reloaded_stands_in_line_again
    a_daemon_whose_lock_is_lost_is_stopped_and_stands_in_line_again
    a_signal_ends_whoever_waits_and_whoever_leads
    a_signal_right_after_the_wait_starts_no_command
    a_signal_for_the_command_during_the_wait_ends_nothing
    a_signal_right_after_the_daemon_has_ended_ends_the_standby
    a_lock_that_is_lost_before_the_daemon_begins_costs_the_place_alone
}

fn standby(path: &str) -> String {
    format!("--session-timeout 6 standby {path}")
}

fn one_is_active_and_the_next_takes_over(hosts: &str) {
    let (path, log) = (fresh_path("standby"), Log::new());
    let first = Zklock::start(hosts, &standby(&path), &log.beat("first"));
    log.await_word("first");
    let second = Zklock::start(hosts, &standby(&path), &log.beat("second"));
    await_queue(hosts, &path, 2);
    assert!(!log.words().contains(&"second".to_owned()));
    first.signal("TERM");
    assert_eq!(first.end().signal, Some(15));
    log.await_word("second");
    second.signal("TERM");
    second.end();
    let words = log.words();
    let last_of_first = words.iter().rposition(|word| word == "first");
    let first_of_second = words.iter().position(|word| word == "second");
    assert!(last_of_first < first_of_second, "{words:?}");
}

fn a_daemon_that_ends_is_not_restarted_unless_that_is_wanted(hosts: &str) {
    let (path, log) = (fresh_path("ends"), Log::new());
    let ended = Zklock::run(
        hosts,
        &standby(&path),
        &format!("{}; exit 7", log.write("once")),
    );
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert_eq!(log.words(), ["once"]);
    // The third run ends successfully.
    let script = format!("{}; exit $((ZKLOCK_TERM < 3))", log.write("again"));
    let again = format!("{} --restart on-failure", standby(&path));
    let ended = Zklock::run(hosts, &again, &script);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let said = "zklock: the command ended with status 1: standing in line again\n";
    assert_eq!(ended.err, said.repeat(2));
    assert_eq!(log.words(), ["once", "again", "again", "again"]);
}

fn a_revoked_daemon_stands_in_line_again(hosts: &str) {
    let (path, log) = (fresh_path("revoked"), Log::new());
    let start = |word: &str| Zklock::start_logged(hosts, &standby(&path), &log.beat(word));
    let stands_by = |said: &Log| {
        eventually("it stands by", || {
            said.contains(&format!("standing by for {path}, behind "))
        });
    };
    let (first, first_said) = start("first");
    log.await_word("first");
    let (second, second_said) = start("second");
    stands_by(&second_said);
    assert_eq!(
        Zklock::run(hosts, &format!("revoke {path}"), "").code,
        Some(0)
    );
    log.await_word("second");
    stands_by(&first_said);
    for daemon in [second, first] {
        daemon.signal("TERM");
        daemon.end();
    }
}

fn a_daemon_that_has_reloaded_stands_in_line_again(hosts: &str) {
    let (path, log) = (fresh_path("reloaded"), Log::new());
    let reload = log.write("reloaded");
    let script = format!(
        "trap '{reload}' HUP; {}; {}",
        log.write("begun"),
        log.beat("beat")
    );
    let mut daemon = Zklock::start(hosts, &format!("standby --restart always {path}"), &script);
    log.await_word("beat");
    daemon.signal("HUP");
    log.await_word("reloaded");
    let revoked = Zklock::run(hosts, &format!("revoke {path}"), "");
    assert_eq!(revoked.code, Some(0));
    let begun = || log.words().iter().filter(|word| *word == "begun").count();
    eventually("it begins again", || begun() == 2 || daemon.has_ended());
    daemon.signal("TERM");
    assert_eq!(daemon.end().code, Some(143));
    assert_eq!(begun(), 2);
}

fn a_daemon_whose_lock_is_lost_is_stopped_and_stands_in_line_again(hosts: &str) {
    let (path, log) = (fresh_path("lost"), Log::new());
    let daemon = Zklock::start(hosts, &standby(&path), &log.beat("term $ZKLOCK_TERM"));
    log.await_word("term 1");
    let node = children(hosts, &path).remove(0);
    Raw::connect(hosts)
        .delete(&format!("{path}/{node}"))
        .unwrap();
    log.await_word("term 2");
    daemon.signal("TERM");
    let ended = daemon.end();
    assert!(ended.err.contains("killed the command"), "{ended:?}");
    let words = log.words();
    assert!(words.is_sorted(), "{words:?}");
}

fn a_signal_ends_whoever_waits_and_whoever_leads(hosts: &str) {
    let (path, log) = (fresh_path("signals"), Log::new());
    let leads = Zklock::start(hosts, &standby(&path), &log.beat("leads"));
    log.await_word("leads");
    for signal in [("INT", 2), ("TERM", 15)] {
        let waits = Zklock::start(hosts, &standby(&path), &log.write("waits"));
        await_queue(hosts, &path, 2);
        waits.signal(signal.0);
        assert_eq!(waits.end().signal, Some(signal.1));
    }
    leads.signal("INT");
    leads.end();
    assert!(!log.words().contains(&"waits".to_owned()));
    await_queue(hosts, &path, 0);
}

/// A command after a wait is held back for a quarter of a second, unless the lock was released in
/// order.
fn a_signal_right_after_the_wait_starts_no_command(hosts: &str) {
    for task in ["run", "standby", "once --slot a"] {
        // On a busy machine the signal may come too late to show anything.
        let told = (0..100).any(|_| a_signal_in_time_starts_no_command(hosts, task));
        assert!(told, "{task}: no signal came in time");
    }
}

/// Returns whether the signal came before the command could start.
fn a_signal_in_time_starts_no_command(hosts: &str, task: &str) -> bool {
    let (path, log) = (fresh_path("between"), Log::new());
    let mut first = Zklock::start(hosts, &format!("{task} {path}"), &log.beat("first"));
    log.await_word("first");
    let deaf = format!("trap '' TERM; {}; sleep 1", log.write("second"));
    let (second, said) = Zklock::start_logged(hosts, &format!("-v {task} {path}"), &deaf);
    await_queue(hosts, &path, 2);
    // No note says that the lock was released in order.
    first.kill();
    let mut begun = Instant::now();
    eventually("it is held back", || {
        let now = Instant::now();
        let is_held_back = said.contains(HELD_BACK);
        begun = if is_held_back { begun } else { now };
        is_held_back
    });
    second.signal("TERM");
    // A busy machine may take equally long to pass the signal on.
    let in_time = begun.elapsed() < Duration::from_millis(125);
    let ended = second.end();
    await_queue(hosts, &path, 0);
    if in_time {
        assert_eq!(ended.signal, Some(15), "{task}: {ended:?}");
        assert!(!log.words().contains(&"second".to_owned()), "{task}");
    }
    in_time
}

fn a_signal_for_the_command_during_the_wait_ends_nothing(hosts: &str) {
    for task in ["run", "standby", "once --slot a"] {
        let (path, log) = (fresh_path("early"), Log::new());
        let first = Zklock::start(hosts, &format!("{task} {path}"), &log.beat("first"));
        log.await_word("first");
        let second = Zklock::start(hosts, &format!("{task} {path}"), &log.write("second"));
        await_queue(hosts, &path, 2);
        second.signal("USR1");
        first.signal("TERM");
        assert_eq!(second.end().code, Some(0), "{task}");
        log.await_word("second");
    }
}

/// strace holds up the main thread for half a second after it has sent the command's input to the
/// process that starts the command, which is before the command begins.
#[test]
#[ignore = "needs strace: tests/all.sh"]
fn a_signal_before_the_command_begins_starts_no_command() {
    let hosts = embedded();
    for task in ["run", "standby", "once --slot a"] {
        let (path, log) = (fresh_path("before"), Log::new());
        let first = Zklock::start(hosts, &format!("{task} {path}"), &log.beat("first"));
        log.await_word("first");
        let mut held_up = Command::new("strace");
        held_up.args("-D -o /dev/null -e inject=sendmsg:delay_exit=500ms".split(' '));
        held_up
            .arg(env!("CARGO_BIN_EXE_zklock"))
            .args(task.split(' '));
        let deaf = format!("trap '' TERM; {}; sleep 1", log.write("second"));
        held_up
            .args([&path, "--", "sh", "-c", &deaf])
            .env("ZKLOCK_HOSTS", hosts);
        let second = Zklock::spawn(&mut held_up);
        await_queue(hosts, &path, 2);
        first.signal("TERM");
        await_queue(hosts, &path, 1);
        second.signal("TERM");
        assert_eq!(second.end().signal, Some(15), "{task}");
        assert!(!log.words().contains(&"second".to_owned()), "{task}");
    }
}

/// Another standby leads by then, so nothing else would end this one.
fn a_signal_right_after_the_daemon_has_ended_ends_the_standby(hosts: &str) {
    for delay in [1, 3, 5, 7, 9] {
        let (path, log) = (fresh_path("after"), Log::new());
        let again = format!("{} --restart always", standby(&path));
        let script = format!("{}; read line; {}", log.write("begun"), log.write("ended"));
        let mut first = Zklock::start(hosts, &again, &script);
        log.await_word("begun");
        let second = Zklock::start(hosts, &standby(&path), "sleep 60");
        await_queue(hosts, &path, 2);
        first.feed("");
        while log.words().len() < 2 {}
        thread::sleep(Duration::from_millis(delay));
        first.signal("TERM");
        let ended = first.end();
        // A daemon that is about to end by itself may be there to get the signal.
        let by_itself = ended.code == Some(0);
        assert!(by_itself || ended.signal == Some(15), "{ended:?}");
        second.signal("TERM");
        second.end();
    }
}

fn a_lock_that_is_lost_before_the_daemon_begins_costs_the_place_alone(hosts: &str) {
    let (path, log) = (fresh_path("early"), Log::new());
    let mut first = Zklock::start(hosts, &standby(&path), &log.beat("first"));
    log.await_word("first");
    let second = Zklock::start(hosts, &standby(&path), &log.beat("second"));
    await_queue(hosts, &path, 2);
    first.kill();
    await_queue(hosts, &path, 1);
    // The standby has learned that it leads, and its daemon is held back for a moment.
    thread::sleep(Duration::from_millis(60));
    let node = children(hosts, &path).remove(0);
    let deleted = Raw::connect(hosts).delete(&format!("{path}/{node}"));
    assert_eq!(deleted, Ok(()));
    log.await_word("second");
    second.signal("TERM");
    assert_eq!(second.end().signal, Some(15));
}
