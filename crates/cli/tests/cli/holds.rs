//! Locks that outlive their process: `hold` and `release`.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::program::{Ended, Log, Zklock, await_queue, command, embedded, on_every_server};
use crate::support::faketime;
use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL_SEQUENTIAL, Raw, assert_nothing_left, op};
use crate::support::{eventually, fresh_path, run as printed};

on_every_server! {
    a_hold_outlives_its_process_until_it_is_released
    whoever_holds_is_named_without_the_environment
    a_hold_waits_for_its_turn_and_nobody_comes_between
    who_stops_waiting_for_a_hold_leaves_nothing
    a_hold_ends_at_its_time
    a_hold_is_of_no_use_to_revoke_and_release_of_none_to_a_holder
    where_others_share_a_hold_is_a_writers
    who_asks_to_write_is_a_writer_on_an_idle_path_and_never_a_mutex
    a_hold_is_put_where_it_may_be_or_nothing_is_left
    holds_are_in_no_deadlock
    a_pause_waits_for_nobody_and_lets_nobody_begin
    a_paused_job_keeps_its_record
    a_path_that_nobody_uses_any_more_is_paused_for_a_job_too
    a_path_that_was_only_paused_or_held_is_as_it_was
    what_somebody_keeps_at_a_path_outlasts_its_pause
    a_semaphore_is_not_paused_or_held
    a_command_for_a_permit_waits_for_a_hold_and_names_it
    a_pause_that_a_command_for_a_permit_meets_ends_at_its_time
    where_others_share_a_pause_is_a_writers
    who_may_not_create_holds_and_pauses_nothing
    a_pause_ends_where_its_directory_may_not_be_deleted
}

/// Runs the program as the user ann.
fn run(hosts: &str, args: &str) -> Ended {
    start(hosts, args).end()
}

fn start(hosts: &str, args: &str) -> Zklock {
    let mut command = command(hosts);
    command.env_remove("SUDO_USER").env("USER", "ann");
    Zklock::spawn(command.args(args.split(' ')))
}

fn listed(hosts: &str, path: &str) -> Vec<Value> {
    let ended = run(hosts, &format!("list --json {path}"));
    let list: Value = serde_json::from_str(&ended.out).expect("JSON");
    list["contenders"].as_array().expect("a list").clone()
}

/// The environment is missing in a container, and under `env -i`.
fn whoever_holds_is_named_without_the_environment(hosts: &str) {
    let path = fresh_path("hold");
    let mut command = command(hosts);
    for name in ["SUDO_USER", "USER", "LOGNAME"] {
        command.env_remove(name);
    }
    let held = format!("hold {path} --for 2h --reason freeze");
    let held = Zklock::spawn(command.args(held.split(' '))).end();
    let name = printed(Command::new("id").arg("-un"));
    let says = format!("{path} is on hold by {} on ", name.trim());
    assert!(held.out.starts_with(&says), "{held:?}");
}

fn a_hold_outlives_its_process_until_it_is_released(hosts: &str) {
    let (path, log) = (fresh_path("hold"), Log::new());
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let held = run(hosts, &format!("hold {path} --for 2h --reason freeze"));
    assert_eq!(held.code, Some(0), "{held:?}");
    assert!(
        held.out
            .starts_with(&format!("{path} is on hold by ann on ")),
        "{held:?}"
    );
    assert!(held.out.ends_with("Z: freeze\n"), "{held:?}");

    let [one] = &listed(hosts, &path)[..] else {
        panic!("one holds");
    };
    assert_eq!(one["holds"], true);
    assert_eq!(one["session"], "0x0");
    assert_eq!(one["hold"]["reason"], "freeze");
    assert_eq!(one["hold"]["by"], "ann");
    let until = Duration::from_millis(one["hold"]["until_ms"].as_u64().expect("a time"));
    let end = before + Duration::from_secs(2 * 3_600);
    assert!(until.abs_diff(end) < Duration::from_secs(60), "{until:?}");

    for args in ["-n", "-w 2"] {
        let second = Zklock::run(hosts, &format!("run {args} {path}"), &log.write("second"));
        assert_eq!(second.code, Some(1));
        let said = format!("zklock: {path} is on hold by ann on ");
        assert!(second.err.contains(&said), "{second:?}");
        assert!(second.err.ends_with("Z: freeze\n"), "{second:?}");
    }
    for (args, word) in [
        ("why", "on hold by ann"),
        ("list", "freeze"),
        ("doctor", "on hold by ann"),
    ] {
        let told = run(hosts, &format!("{args} {path}"));
        assert!(told.out.contains(word), "{args}: {told:?}");
        assert!(!told.out.contains("trouble"), "{args}: {told:?}");
    }
    let all = run(hosts, &format!("list -r {path}"));
    assert!(all.out.contains("on hold by ann"), "{all:?}");
    assert!(!all.out.contains("job"), "it is a lock on hold: {all:?}");
    let (third, said) = Zklock::start_logged(hosts, &format!("run {path}"), &log.write("third"));
    eventually("it says what it waits for", || {
        said.contains(&format!("waiting for {path}, which is on hold by ann"))
    });

    let released = run(hosts, &format!("release {path}"));
    assert_eq!(released.code, Some(0), "{released:?}");
    assert!(released.out.contains("was on hold by ann"), "{released:?}");
    assert_eq!(third.end().code, Some(0));
    assert_eq!(log.words(), ["third"]);
    let again = run(hosts, &format!("release {path}"));
    assert_eq!(
        (again.code, again.err),
        (Some(1), format!("zklock: {path} is not on hold\n"))
    );
    assert_nothing_left(hosts, &path);
}

fn a_hold_waits_for_its_turn_and_nobody_comes_between(hosts: &str) {
    let (path, log) = (fresh_path("hold"), Log::new());
    let mut first = Zklock::start(hosts, &format!("run {path}"), &log.beat("first"));
    log.await_word("first");
    let hold = format!("hold {path} --for 1h --reason freeze");
    let taken = run(hosts, &format!("{hold} -n -E 9"));
    assert_eq!((taken.code, taken.err), (Some(9), String::new()));
    let second = start(hosts, &hold);
    await_queue(hosts, &path, 2);
    let third = Zklock::start(hosts, &format!("run {path}"), &log.write("third"));
    await_queue(hosts, &path, 3);
    first.signal("TERM");
    assert_eq!(second.end().code, Some(0));
    await_queue(hosts, &path, 2);
    let queue = listed(hosts, &path);
    assert_eq!(queue[0]["hold"]["reason"], "freeze");
    assert!(queue[1]["hold"].is_null());
    assert!(!log.words().contains(&"third".to_owned()));
    assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));
    assert_eq!(third.end().code, Some(0));
    first.kill();
}

fn who_stops_waiting_for_a_hold_leaves_nothing(hosts: &str) {
    let (path, log) = (fresh_path("hold"), Log::new());
    let mut first = Zklock::start(hosts, &format!("run {path}"), &log.beat("first"));
    log.await_word("first");
    let hold = format!("--session-timeout 2 hold {path} --for 1h --reason freeze");
    for signal in ["INT", "TERM", "KILL"] {
        let second = start(hosts, &hold);
        await_queue(hosts, &path, 2);
        second.signal(signal);
        let second = second.end();
        assert!(second.signal.is_some(), "{signal}: {second:?}");
        await_queue(hosts, &path, 1);
    }
    let late = run(hosts, &format!("{hold} -w 2"));
    assert_eq!((late.code, late.err), (Some(1), String::new()));
    await_queue(hosts, &path, 1);
    first.kill();
}

fn a_hold_ends_at_its_time(hosts: &str) {
    let (path, log) = (fresh_path("hold"), Log::new());
    let held = run(hosts, &format!("hold {path} --for 1s --reason freeze"));
    assert_eq!(held.code, Some(0));
    let both =
        ["one", "other"].map(|word| Zklock::start(hosts, &format!("run {path}"), &log.write(word)));
    for one in both {
        assert_eq!(one.end().code, Some(0));
    }
    assert_eq!(log.words().len(), 2);
    // If nobody waits, the hold stays, and the list says so.
    assert_eq!(
        run(hosts, &format!("hold {path} --for 0.1 --reason freeze")).code,
        Some(0)
    );
    eventually("it is over", || {
        let told = run(hosts, &format!("doctor {path}"));
        told.out.contains("which is over")
    });
    for command in ["list", "why"] {
        let told = run(hosts, &format!("{command} {path}"));
        assert!(told.out.contains("which is over"), "{told:?}");
    }
    assert_eq!(listed(hosts, &path).len(), 1);
    let next = Zklock::run(hosts, &format!("run -n {path}"), &log.write("next"));
    assert_eq!(next.code, Some(0), "{next:?}");
    assert_nothing_left(hosts, &path);
}

fn a_hold_is_of_no_use_to_revoke_and_release_of_none_to_a_holder(hosts: &str) {
    let (path, log) = (fresh_path("hold"), Log::new());
    assert_eq!(
        run(hosts, &format!("hold {path} --for 1h --reason freeze")).code,
        Some(0)
    );
    for args in ["", "--evict-after 0"] {
        let revoked = run(hosts, &format!("revoke {args} {path}").replace("  ", " "));
        assert_eq!(revoked.code, Some(1));
        assert!(
            revoked.err.contains("zklock release ends it"),
            "{revoked:?}"
        );
    }
    assert_eq!(listed(hosts, &path).len(), 1);
    assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));

    let mut holder = Zklock::start(hosts, &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    let refused = run(hosts, &format!("release {path}"));
    assert_eq!(refused.code, Some(1));
    let said = format!("zklock: {path} is not on hold, and held by ");
    assert!(refused.err.starts_with(&said), "{refused:?}");
    await_queue(hosts, &path, 1);
    holder.kill();
}

fn a_command_for_a_permit_waits_for_a_hold_and_names_it(hosts: &str) {
    for hold in ["hold", "hold --write"] {
        waits_for_a_permit_behind(hosts, hold);
    }
}

fn waits_for_a_permit_behind(hosts: &str, hold: &str) {
    let (path, log) = (fresh_path("hold"), Log::new());
    let held = run(hosts, &format!("{hold} {path} --for 5s --reason freeze"));
    assert_eq!(held.code, Some(0), "{held:?}");
    let args = format!("--permits 2 {path}");
    let taken = Zklock::run(hosts, &format!("run -n {args}"), ":");
    assert_eq!(taken.code, Some(1), "{taken:?}");
    let on_hold = format!("{path} is on hold by ann on ");
    assert!(taken.err.contains(&on_hold), "{taken:?}");
    let waiting = ["one", "two", "three"]
        .map(|word| Zklock::start(hosts, &format!("run {args}"), &log.write(word)));
    for one in waiting {
        let ended = one.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let waited = format!("waiting for {path}, which is on hold by ann on ");
        assert!(ended.err.contains(&waited), "{ended:?}");
        assert!(ended.err.contains(": freeze\n"), "{ended:?}");
    }
    assert_eq!(log.words().len(), 3);
    // A hold that nobody has waited for is removed by a client that only tries.
    let path = fresh_path("hold");
    let held = run(hosts, &format!("{hold} {path} --for 0.1 --reason freeze"));
    assert_eq!(held.code, Some(0), "{held:?}");
    let args = format!("run -n --permits 2 {path}");
    eventually("it is over", || {
        Zklock::run(hosts, &args, ":").code == Some(0)
    });
}

/// A command that waits for a lock of another kind is in no queue when the pause comes.
fn a_pause_that_a_command_for_a_permit_meets_ends_at_its_time(hosts: &str) {
    let (path, log) = (fresh_path("pause"), Log::new());
    let script = format!("{}; read _", log.write("held"));
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &script);
    log.await_word("held");
    let args = format!("run --permits 2 {path}");
    let (waiter, said) = Zklock::start_logged(hosts, &args, &log.write("permit"));
    eventually("it waits", || said.contains("a lock without --permits"));
    let paused = run(hosts, &format!("pause {path} --for 1s --reason incident"));
    assert_eq!(paused.code, Some(0), "{paused:?}");
    holder.feed("go on\n");
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(waiter.end().code, Some(0));
    assert_eq!(log.words(), ["held", "permit"]);
}

/// Readers and writers of Curator's wait for a writer.
fn where_others_share_a_hold_is_a_writers(hosts: &str) {
    let path = fresh_path("hold");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&path);
    let name = format!("{path}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__READ__");
    let reader = raw
        .create(&name, b"127.0.0.1", EPHEMERAL_SEQUENTIAL)
        .expect("a node");
    let hold = start(hosts, &format!("hold {path} --for 1h --reason freeze"));
    eventually("it waits as a writer", || {
        let all = raw.children(&path).unwrap_or_default();
        all.iter().any(|name| name.contains("__WRIT__"))
    });
    raw.delete(&reader).expect("a reader");
    assert_eq!(hold.end().code, Some(0));
    let [one] = &listed(hosts, &path)[..] else {
        panic!("one holds");
    };
    assert_eq!(one["role"], "write");
    let shared = Zklock::run(hosts, &format!("run -s -n {path}"), ":");
    assert_eq!(shared.code, Some(1));
    assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));
}

fn who_asks_to_write_is_a_writer_on_an_idle_path_and_never_a_mutex(hosts: &str) {
    let path = fresh_path("hold");
    let shown = Zklock::run(
        hosts,
        &format!("run --write {path}"),
        "echo ${ZKLOCK_NODE##*/}",
    );
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.out.contains("-__WRIT__"), "{shown:?}");
    let held = run(
        hosts,
        &format!("hold --write {path} --for 1h --reason freeze"),
    );
    assert_eq!(held.code, Some(0), "{held:?}");
    assert_eq!(listed(hosts, &path)[0]["role"], "write");
    // Ours share one queue.
    let mutex = Zklock::run(hosts, &format!("run -n {path}"), ":");
    assert_eq!(mutex.code, Some(1), "{mutex:?}");
    assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));

    let mut raw = Raw::connect(hosts);
    let name = format!("{path}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-");
    raw.create(&name, b"127.0.0.1", EPHEMERAL_SEQUENTIAL)
        .expect("a node");
    let limited = ["-n", "-w 1"].map(|limit| format!("run --write {limit} {path}"));
    for args in limited {
        let refused = Zklock::run(hosts, &args, "echo ran");
        assert_eq!(refused.code, Some(78), "{args}: {refused:?}");
        assert_eq!(refused.out, "", "{args}");
    }
    let several = Zklock::run(hosts, &format!("run --write {path} {path}-b"), ":");
    assert_eq!(several.code, Some(64), "{several:?}");
}

fn a_hold_is_put_where_it_may_be_or_nothing_is_left(hosts: &str) {
    let (path, log) = (fresh_path("hold"), Log::new());
    let mut permits = Zklock::start(hosts, &format!("run --permits 2 {path}"), &log.beat("held"));
    log.await_word("held");
    let hold = format!("hold {path} --for 1h --reason freeze");
    let refused = run(hosts, &format!("{hold} -w 2"));
    assert_eq!(refused.code, Some(78), "{refused:?}");
    permits.signal("TERM");
    eventually("it has ended", || permits.has_ended());
    let held = run(hosts, &hold);
    assert_eq!(held.code, Some(0), "{held:?}");
    let permit = Zklock::run(hosts, &format!("run -n --permits 2 {path}"), ":");
    assert_eq!(permit.code, Some(1), "{permit:?}");
    assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));
}

/// Holds belong to no session, and so no two belong to the same one.
fn holds_are_in_no_deadlock(hosts: &str) {
    let root = fresh_path("hold");
    let paths = ["a", "b"].map(|name| format!("{root}/{name}"));
    for path in &paths {
        for command in ["hold --for 1h", "pause"] {
            let held = run(hosts, &format!("{command} {path} --reason freeze"));
            assert_eq!(held.code, Some(0), "{held:?}");
        }
    }
    for path in &paths {
        let told = run(hosts, &format!("why --root {root} {path}"));
        assert_eq!(told.code, Some(0), "{told:?}");
        assert_eq!(told.out.lines().count(), 1, "{told:?}");
        let told = run(hosts, &format!("doctor {path}"));
        assert!(!told.out.contains("trouble"), "{told:?}");
        let first = run(hosts, &format!("release {path}"));
        assert!(
            first.err.contains(&format!("{path} has another: on hold")),
            "{first:?}"
        );
        assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));
    }
}

fn a_pause_waits_for_nobody_and_lets_nobody_begin(hosts: &str) {
    let (path, log) = (fresh_path("pause"), Log::new());
    let mut first = Zklock::start(hosts, &format!("run {path}"), &log.beat("first"));
    log.await_word("first");
    let second = Zklock::start(hosts, &format!("run {path}"), &log.write("second"));
    await_queue(hosts, &path, 2);
    let paused = run(hosts, &format!("pause {path} --reason incident"));
    assert_eq!(paused.code, Some(0), "{paused:?}");
    assert!(
        paused.out.ends_with(" until it is released: incident\n"),
        "{paused:?}"
    );
    assert!(
        paused.err.contains(&format!("has {path}, and goes on")),
        "{paused:?}"
    );
    assert!(paused.err.contains("before it in turn: 1"), "{paused:?}");
    for args in ["-n", "-s -n", "-w 2"] {
        let third = Zklock::run(hosts, &format!("run {args} {path}"), &log.write("third"));
        assert_eq!(third.code, Some(1));
        assert!(third.err.contains(": incident\n"), "{third:?}");
    }
    let fourth = Zklock::start(hosts, &format!("run -s {path}"), &log.write("fourth"));
    await_queue(hosts, &path, 4);
    first.signal("TERM");
    eventually("the first has ended", || first.has_ended());
    assert_eq!(second.end().code, Some(0));
    await_queue(hosts, &path, 2);
    assert_eq!(listed(hosts, &path)[0]["hold"]["reason"], "incident");
    assert!(!log.words().contains(&"fourth".to_owned()));
    assert_eq!(run(hosts, &format!("resume {path}")).code, Some(0));
    assert_eq!(fourth.end().code, Some(0));
    let words = log.words();
    assert_eq!(words[words.len() - 2..], ["second", "fourth"]);
}

fn a_paused_job_keeps_its_record(hosts: &str) {
    let (path, log) = (fresh_path("pause"), Log::new());
    let once = |args: &str, word: &str| {
        Zklock::run(hosts, &format!("once {args} {path}"), &log.write(word))
    };
    assert_eq!(once("--slot 1", "one").code, Some(0));
    let paused = run(
        hosts,
        &format!("pause {path} --until 2999-01-01T00:00:00+01:00 --reason disk"),
    );
    assert_eq!(paused.code, Some(0), "{paused:?}");
    assert!(
        paused.out.contains("until 2998-12-31T23:00:00Z: disk"),
        "{paused:?}"
    );
    for args in ["--slot 2 -n", "--slot 2 -w 2", "--at-most-every 0 -n"] {
        let skipped = once(args, "two");
        assert_eq!(skipped.code, Some(1), "{args}: {skipped:?}");
        assert!(
            skipped.err.contains(&format!("{path} is on hold by ann")),
            "{args}: {skipped:?}"
        );
    }
    let last = run(hosts, &format!("last {path}"));
    assert_eq!(last.code, Some(0));
    let lines: Vec<_> = last.out.lines().collect();
    assert!(lines[0].starts_with("done:    slot 1, "), "{last:?}");
    assert!(
        lines[1].starts_with("paused:  on hold by ann on "),
        "{last:?}"
    );
    let json: Value =
        serde_json::from_str(&run(hosts, &format!("last --json {path}")).out).unwrap();
    assert_eq!(json["hold"]["reason"], "disk");
    let kept = run(hosts, &format!("forget {path}"));
    assert_eq!(kept.code, Some(70));
    assert!(kept.err.contains("or has it on hold"), "{kept:?}");
    let next = Zklock::start(hosts, &format!("once --slot 2 {path}"), &log.write("three"));
    await_queue(hosts, &path, 2);
    assert_eq!(run(hosts, &format!("resume {path}")).code, Some(0));
    assert_eq!(next.end().code, Some(0));
    assert_eq!(once("--slot 1 -E 9", "four").code, Some(9));
    assert_eq!(log.words(), ["one", "three"]);
}

/// Such a path is treated as if nobody had used it.
fn a_path_that_nobody_uses_any_more_is_paused_for_a_job_too(hosts: &str) {
    let path = fresh_path("pause");
    let once = |slot| Zklock::run(hosts, &format!("once -n --slot {slot} {path}"), ":");
    let last = || run(hosts, &format!("last {path}"));
    assert_eq!(
        Zklock::run(hosts, &format!("run {path}"), ":").code,
        Some(0)
    );
    let paused = run(hosts, &format!("pause {path} --reason incident"));
    assert_eq!(paused.code, Some(0), "{paused:?}");
    let skipped = once("1");
    assert_eq!(skipped.code, Some(1), "{skipped:?}");
    assert!(
        last().out.contains("paused:  on hold by ann"),
        "{:?}",
        last()
    );
    assert_eq!(last().code, Some(1));
    assert_eq!(run(hosts, &format!("resume {path}")).code, Some(0));
    assert_eq!(once("1").code, Some(0));
    assert_eq!(last().code, Some(0));
}

/// A job, a lock and a semaphore may use the path meanwhile or later.
fn a_path_that_was_only_paused_or_held_is_as_it_was(hosts: &str) {
    let uses = [
        ("once -n --slot 1", "--slot 2"),
        ("run -n", "-n"),
        ("run -n --permits 2", "-n"),
    ];
    for (keep, free) in [("pause", "resume"), ("hold", "release")] {
        for (use_it, more) in uses {
            let (path, log) = (fresh_path(keep), Log::new());
            let kept = run(hosts, &format!("{keep} {path} --for 2h --reason incident"));
            assert_eq!(kept.code, Some(0), "{kept:?}");
            let refused = Zklock::run(hosts, &format!("{use_it} {path}"), &log.write("one"));
            assert_eq!(refused.code, Some(1), "{keep}, {use_it}: {refused:?}");
            assert_eq!(run(hosts, &format!("{free} {path}")).code, Some(0));
            assert!(Raw::connect(hosts).stat(&path).is_none(), "{keep}");
            let command = use_it.split(' ').next().unwrap_or_default();
            let done = Zklock::run(
                hosts,
                &format!("{command} {more} {path}"),
                &log.write("two"),
            );
            assert_eq!(done.code, Some(0), "{keep}, {use_it}: {done:?}");
            assert_eq!(log.words(), ["two"]);
        }
    }
}

/// The path is no job's, and kazoo's locks rely on a node that they have seen.
fn what_somebody_keeps_at_a_path_outlasts_its_pause(hosts: &str) {
    let mut raw = Raw::connect(hosts);
    for kept in ["", "10.0.0.5", "41"] {
        let path = fresh_path("kept");
        raw.create_all(&path);
        if !kept.is_empty() {
            raw.set_data(&path, kept.as_bytes()).unwrap();
        }
        let made = raw.stat(&path).expect("a node").czxid;
        assert_eq!(
            run(hosts, &format!("pause {path} --reason incident")).code,
            Some(0)
        );
        assert_eq!(run(hosts, &format!("resume {path}")).code, Some(0));
        assert_eq!(raw.data(&path).as_deref(), Some(kept.as_bytes()));
        assert_eq!(raw.stat(&path).expect("a node").czxid, made);
    }
}

fn a_semaphore_is_not_paused_or_held(hosts: &str) {
    let (path, log) = (fresh_path("pause"), Log::new());
    let mut permits = Zklock::start(hosts, &format!("run --permits 2 {path}"), &log.beat("held"));
    log.await_word("held");
    for kind in ["pause", "hold"] {
        let refused = run(hosts, &format!("{kind} {path} --for 1h --reason incident"));
        assert_eq!(refused.code, Some(78), "{refused:?}");
        let said =
            format!("zklock: {path} is a semaphore's, whose permits do not wait for a {kind}\n");
        assert_eq!(refused.err, said);
    }
    let second = Zklock::run(hosts, &format!("run -n --permits 2 {path}"), ":");
    assert_eq!(second.code, Some(0));
    permits.kill();
}

/// Readers and writers of Curator's wait for a writer.
fn where_others_share_a_pause_is_a_writers(hosts: &str) {
    let path = fresh_path("pause");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&path);
    let name = format!("{path}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-__READ__");
    raw.create(&name, b"127.0.0.1", EPHEMERAL_SEQUENTIAL)
        .expect("a node");
    assert_eq!(
        run(hosts, &format!("pause {path} --reason incident")).code,
        Some(0)
    );
    assert_eq!(listed(hosts, &path)[1]["role"], "write");
    assert_eq!(listed(hosts, &path).len(), 2);
    assert_eq!(run(hosts, &format!("resume {path}")).code, Some(0));
}

fn who_may_not_create_holds_and_pauses_nothing(hosts: &str) {
    let path = fresh_path("pause");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&path);
    raw.forbid_creates(&path).expect("permission");
    for command in ["hold --for 1h", "pause"] {
        let refused = run(hosts, &format!("{command} {path} --reason freeze"));
        assert_eq!(refused.code, Some(77), "{refused:?}");
        assert!(refused.err.contains(&path), "{refused:?}");
    }
    assert_eq!(raw.children(&path), Some(vec![]));
}

fn a_pause_ends_where_its_directory_may_not_be_deleted(hosts: &str) {
    let above = fresh_path("pause");
    let path = format!("{above}/job");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&above);
    raw.forbid_deletes(&above).expect("permission");
    let paused = run(hosts, &format!("pause {path} --reason freeze"));
    assert_eq!(paused.code, Some(0), "{paused:?}");
    let resumed = run(hosts, &format!("resume {path}"));
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    assert!(resumed.out.ends_with(": released\n"), "{resumed:?}");
    assert_eq!(raw.children(&path), Some(vec![]));
    let none = run(hosts, &format!("resume {path}"));
    assert_eq!(none.code, Some(1), "{none:?}");
}

#[test]
fn a_machine_whose_clock_is_ahead_ends_no_hold() {
    let Some(faketime) = faketime::library("libfaketimeMT.so.1") else {
        return println!("no libfaketime");
    };
    let (hosts, path) = (embedded(), fresh_path("hold"));
    assert_eq!(
        run(hosts, &format!("hold {path} --for 1h --reason freeze")).code,
        Some(0)
    );
    for args in ["-n", "-w 2"] {
        let mut command = command(hosts);
        command
            .env("LD_PRELOAD", &faketime)
            .env("FAKETIME", "+1d")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        let line = format!("run {args} {path} -- echo ran");
        let ended = Zklock::spawn(command.args(line.split(' '))).end();
        assert_eq!((ended.code, ended.out), (Some(1), String::new()), "{args}");
    }
    assert_eq!(listed(hosts, &path).len(), 1);
    assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));
}

#[test]
fn a_pause_whose_answer_is_lost_is_found() {
    let (hosts, path) = (embedded(), fresh_path("pause"));
    Raw::connect(hosts).create_all(&path);
    let network = Proxy::start(hosts);
    network.drop_next_reply_to(op::CREATE);
    let paused = run(&network.hosts(), &format!("pause {path} --reason freeze"));
    assert_eq!(paused.code, Some(0), "{paused:?}");
    assert!(network.fired());
    assert_eq!(listed(hosts, &path).len(), 1);
    assert_eq!(run(hosts, &format!("resume {path}")).code, Some(0));
}

#[test]
fn a_process_that_dies_before_its_hold_is_made_leaves_nothing() {
    let (hosts, path) = (embedded(), fresh_path("hold"));
    let network = Proxy::start(hosts);
    network.swallow(op::MULTI);
    let hold = format!("--session-timeout 2 hold {path} --for 1h --reason freeze");
    let mut held = start(&network.hosts(), &hold);
    eventually("it asks for the hold", || 0 < network.requests(op::MULTI));
    held.kill();
    await_queue(hosts, &path, 0);
    let log = Log::new();
    let next = Zklock::run(hosts, &format!("run -n {path}"), &log.write("next"));
    assert_eq!(next.code, Some(0));
}

#[test]
fn what_makes_no_hold_is_refused_and_leaves_nothing() {
    let (hosts, path) = (embedded(), fresh_path("hold"));
    let long = "x".repeat(100_000);
    let table = [
        vec!["--for", "0", "--reason", "x"],
        vec!["--for", "soon", "--reason", "x"],
        vec!["--for", "40000d", "--reason", "x"],
        vec!["--until", "2020-01-01T00:00:00Z", "--reason", "x"],
        vec!["--until", "tomorrow", "--reason", "x"],
        vec![
            "--for",
            "1h",
            "--until",
            "2999-01-01T00:00:00Z",
            "--reason",
            "x",
        ],
        vec!["--reason", "x"],
        vec!["--for", "1h"],
        vec!["--for", "1h", "--reason", ""],
        vec!["--for", "1h", "--reason", "a\nb"],
        vec!["--for", "1h", "--reason", "a\u{1b}[2Jb"],
        vec!["--for", "1h", "--reason", "a\u{202e}b"],
        vec!["--for", "1h", "--reason", &long],
        vec!["--for", "1h", "--reason", "x", "-n", "-w", "3"],
    ];
    for args in table {
        let mut command = command(hosts);
        let ended = Zklock::spawn(command.args(["hold", &path]).args(&args)).end();
        assert_eq!(ended.code, Some(64), "{args:?}");
        assert_eq!(ended.err.lines().count(), 1, "{args:?}");
        assert!(ended.err.len() < 2_000, "{args:?}");
    }
    assert!(Raw::connect(hosts).stat(&path).is_none());
}

#[test]
fn a_hold_whose_answer_is_lost_is_found() {
    let (hosts, path) = (embedded(), fresh_path("hold"));
    let network = Proxy::start(hosts);
    // The transaction that makes the hold is carried out, and its answer is lost with the
    // connection.
    network.drop_next_reply_to(op::MULTI);
    let held = run(
        &network.hosts(),
        &format!("hold {path} --for 1h --reason freeze"),
    );
    assert_eq!(held.code, Some(0), "{held:?}");
    assert!(network.fired());
    assert_eq!(listed(hosts, &path).len(), 1);
    assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));
    assert_nothing_left(hosts, &path);
}

#[test]
fn a_hold_that_cannot_be_listed_is_one() {
    let (hosts, path) = (embedded(), fresh_path("hold"));
    let network = Proxy::start(hosts);
    // The contenders are read after the hold was made.
    network.swallow(op::GET_DATA);
    let held = run(
        &network.hosts(),
        &format!("hold {path} --for 1h --reason freeze"),
    );
    assert_eq!(held.code, Some(0), "{held:?}");
    let told = format!("zklock: {path} is on hold, and cannot be listed: ");
    assert!(held.err.starts_with(&told), "{held:?}");
    assert_eq!(run(hosts, &format!("release {path}")).code, Some(0));
    assert_nothing_left(hosts, &path);
}
