//! `zklock run` with several locks.

use std::time::{Duration, Instant};

use crate::program::{Log, Zklock, await_queue, embedded, on_every_server};
use crate::support::raw::{Raw, children};
use crate::support::{eventually, fresh_path};

on_every_server! {
    several_locks_are_acquired_together_or_not_at_all
    the_one_of_several_that_is_taken_or_on_hold_is_named
    the_command_knows_all_its_locks
    what_is_read_is_shared_and_the_rest_is_not
    whoever_names_them_in_another_order_is_not_waited_for_in_a_circle
    the_loss_of_one_of_several_stops_the_command
    several_locks_wait_for_a_semaphore_on_one_of_their_paths
    a_command_that_waited_for_one_of_several_after_an_eviction_is_held_back
}

/// Returns two paths that nobody else uses, in alphabetical order.
fn two(name: &str) -> [String; 2] {
    let path = fresh_path(name);
    [format!("{path}-a"), format!("{path}-b")]
}

fn several_locks_are_acquired_together_or_not_at_all(hosts: &str) {
    let ([a, b], log) = (two("together"), Log::new());
    let mut one = Zklock::start(hosts, &format!("run {b}"), &log.beat("one"));
    log.await_word("one");
    for (args, code) in [("-n", 1), ("-n -E 9", 9), ("-w 1 -E 0", 0)] {
        let ended = Zklock::run(hosts, &format!("run {args} {a} {b}"), &log.write("both"));
        assert_eq!(ended.code, Some(code), "{args}: {}", ended.err);
        assert_eq!(ended.err, "");
        assert_eq!(children(hosts, &a), [""; 0], "{args}");
    }
    let both = Zklock::start(hosts, &format!("run {b} {a}"), &log.beat("both"));
    await_queue(hosts, &a, 1);
    await_queue(hosts, &b, 2);
    assert!(!log.words().contains(&"both".to_owned()));
    one.kill();
    log.await_word("both");
    for path in [&a, &b] {
        let taken = Zklock::run(hosts, &format!("run -n {path}"), "true");
        assert_eq!(taken.code, Some(1), "{}", taken.err);
    }
    both.signal("TERM");
    assert_eq!(both.end().signal, Some(15));
    for path in [&a, &b] {
        await_queue(hosts, path, 0);
    }
}

fn the_one_of_several_that_is_taken_or_on_hold_is_named(hosts: &str) {
    let ([a, b], log) = (two("named"), Log::new());
    let limits = ["-n", "-w 1"];
    let mut holder = Zklock::start(hosts, &format!("run {b}"), &log.beat("held"));
    log.await_word("held");
    for limit in limits {
        let taken = Zklock::run(hosts, &format!("-v run {limit} {a} {b}"), "true");
        assert_eq!(taken.code, Some(1), "{taken:?}");
        let said = format!("somebody else has the lock {b}\n");
        assert!(taken.err.contains(&said), "{limit}: {taken:?}");
    }
    holder.kill();
    let held = Zklock::run(hosts, &format!("hold {b} --for 1h --reason freeze"), "");
    assert_eq!(held.code, Some(0), "{held:?}");
    for limit in limits {
        let taken = Zklock::run(hosts, &format!("run {limit} {a} {b}"), "true");
        assert_eq!(taken.code, Some(1), "{taken:?}");
        let last = taken.err.lines().next_back().unwrap_or_default();
        let said = format!("zklock: {b} is on hold by ");
        assert!(last.starts_with(&said), "{limit}: {taken:?}");
        if limit != "-n" {
            let waits = format!("waiting for {b}, which is on hold by ");
            assert_eq!(taken.err.matches(&waits).count(), 1, "{taken:?}");
        }
    }
}

fn the_command_knows_all_its_locks(hosts: &str) {
    let [a, b] = two("variables");
    let program = env!("CARGO_BIN_EXE_zklock");
    let script = format!(
        "echo \"$ZKLOCK_PATH\"; echo \"$ZKLOCK_NODE\"; echo \"$ZKLOCK_TOKEN\"; {program} check {b} $ZKLOCK_TOKEN; {program} run -w 1 {b} -- true"
    );
    let ended = Zklock::run(hosts, &format!("run {b} --read {a}"), &script);
    let lines: Vec<_> = ended.out.lines().collect();
    let [first, second, of_a, of_b, token] = lines[..] else {
        panic!("{ended:?}");
    };
    assert_eq!([first, second], [&a, &b]);
    assert!(of_a.starts_with(&format!("{a}/")) && of_a.contains("READ"));
    assert!(of_b.starts_with(&format!("{b}/")) && of_b.contains("lock"));
    assert!(token.parse::<i64>().is_ok_and(|token| 0 < token));
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let around = format!("waiting for {b}, which the zklock around this one has");
    assert!(ended.err.contains(&around), "{}", ended.err);
}

fn what_is_read_is_shared_and_the_rest_is_not(hosts: &str) {
    let ([a, b], log) = (two("read"), Log::new());
    let holds = format!("run {a} --read {b}");
    let mut holder = Zklock::start(hosts, &holds, &log.beat("holds"));
    log.await_word("holds");
    for (args, code) in [
        (format!("-n -s {b}"), 0),
        (format!("-n {b}"), 1),
        (format!("-n -s {a}"), 1),
        (format!("-n {a}-other --read {b}"), 0),
        (format!("-n -s {a}-other {b}"), 0),
        (format!("-n {a}-other {b}"), 1),
    ] {
        let ended = Zklock::run(hosts, &format!("run {args}"), "true");
        assert_eq!(ended.code, Some(code), "{args}: {}", ended.err);
    }
    holder.kill();
}

fn whoever_names_them_in_another_order_is_not_waited_for_in_a_circle(hosts: &str) {
    let ([a, b], log) = (two("order"), Log::new());
    let script = format!("{}; sleep 0.02; {}", log.write("in"), log.write("out"));
    let named = [format!("{a} {b}"), format!("{b} {a}"), a.clone(), b.clone()];
    let start = |named: &String| Zklock::start(hosts, &format!("run {named}"), &script);
    // Commands with one of the locks run beside those with the other, and beside none with both.
    let all: Vec<_> = named.iter().cycle().take(16).map(start).collect();
    for zklock in all {
        let ended = zklock.end();
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
    assert_eq!(log.words().len(), 32);
    for path in [&a, &b] {
        await_queue(hosts, path, 0);
    }
}

fn the_loss_of_one_of_several_stops_the_command(hosts: &str) {
    let ([a, b], log) = (two("lost"), Log::new());
    let (holder, said) = Zklock::start_logged(hosts, &format!("run {a} {b}"), &log.beat("held"));
    log.await_word("held");
    let node = children(hosts, &b).remove(0);
    Raw::connect(hosts).delete(&format!("{b}/{node}")).unwrap();
    assert_eq!(holder.end().code, Some(75));
    assert!(
        said.contains(&format!("the lock {a}, {b} is lost")),
        "{said:?}"
    );
    for path in [&a, &b] {
        await_queue(hosts, path, 0);
    }
}

fn several_locks_wait_for_a_semaphore_on_one_of_their_paths(hosts: &str) {
    let ([a, b], log) = (two("other-kind"), Log::new());
    let permit = format!("run --permits 2 {b}");
    let holder = Zklock::start(hosts, &permit, &log.beat("held"));
    log.await_word("held");
    let (waiter, said) = Zklock::start_logged(hosts, &format!("run {a} {b}"), &log.write("ran"));
    eventually("it waits", || {
        said.contains(&format!("{b} is a semaphore with --permits"))
    });
    assert_eq!(children(hosts, &a), [""; 0]);
    holder.signal("TERM");
    holder.end();
    assert_eq!(waiter.end().code, Some(0));
    log.await_word("ran");
}

/// A command with several locks leaves no note, and relies on none.
fn a_command_that_waited_for_one_of_several_after_an_eviction_is_held_back(hosts: &str) {
    let ([a, b], log) = (two("evicted"), Log::new());
    let mut holder = Zklock::start(hosts, &format!("run {b}"), &log.beat("held"));
    log.await_word("held");
    let waits = format!("-v run {a} {b}");
    let (waiter, said) = Zklock::start_logged(hosts, &waits, &log.write("ran"));
    // The command has seen who is ahead.
    eventually("it waits", || said.contains("waiting for "));
    let node = children(hosts, &b)
        .into_iter()
        .min_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    let node = format!("{b}/{}", node.expect("the holder's"));
    let began = Instant::now();
    Raw::connect(hosts).delete(&node).unwrap();
    log.await_word("ran");
    assert!(Duration::from_millis(250) <= began.elapsed());
    assert_eq!(waiter.end().code, Some(0));
    holder.kill();
}

#[test]
fn what_cannot_be_had_together_is_refused() {
    for (args, message) in [
        (
            "run --permits 2 /a /b",
            "--permits is for one path: a permit is not acquired together with other locks",
        ),
        ("run /a /b /a", "/a is named twice: once will do"),
        ("run /a --read /a", "/a is named twice: once will do"),
    ] {
        let ended = Zklock::run(embedded(), args, "true");
        assert_eq!(ended.code, Some(64), "{args}");
        assert_eq!(ended.err, format!("zklock: {message}\n"), "{args}");
    }
}
