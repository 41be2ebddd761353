//! The commands of `zklock`: their effects, output and status.

use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zklock::Client;

use crate::program::{
    Lines, Log, Zklock, assert_keeps_the_lock_until_a_signal, await_queue, command, masked,
    on_every_server,
};
use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, Raw, children};
use crate::support::{eventually, fresh_path, timed};

on_every_server! {
    a_token_is_checked
    the_exit_status_is_that_of_the_command
    the_input_and_the_outputs_belong_to_the_command
    the_command_knows_its_lock
    a_taken_lock_gives_the_conflict_status
    of_two_that_start_at_once_and_do_not_wait_one_runs
    fifty_that_wait_run_one_after_the_other
    a_lock_without_permits_waits_for_a_semaphore_on_its_path
    an_idle_semaphore_that_no_lock_waits_for_is_not_called_taken
    locks_of_every_kind_at_once_wait_for_each_other
    a_semaphore_leaves_the_record_of_a_job_as_it_is
    a_picture_says_since_when_nobody_answers
    a_table_says_since_when_nobody_answers
    what_the_command_leaves_in_the_background_keeps_the_lock
    shared_locks_share_and_exclude_the_others
    no_more_than_the_permits_run_at_a_time
    commands_that_run_at_a_time_have_permits_of_different_numbers
    a_list_shows_who_holds_and_who_waits_and_creates_nothing
    all_locks_below_a_path_are_listed
    a_chain_and_a_circle_of_commands_are_told
    what_runs_under_a_lock_is_found_through_another_chroot
    what_may_not_be_read_is_not_called_free
    a_watching_list_hears_of_every_change
    a_watching_list_hears_of_what_it_is_asked_for
    a_watching_list_ends_when_it_may_not_list_any_more
    a_watching_list_ends_with_its_reader_and_tells_of_a_full_disk
    a_revoked_command_is_told_to_stop
    whoever_does_not_let_go_is_evicted
    a_node_of_no_session_is_evicted_and_not_asked
    a_holder_in_the_queue_of_a_latch_is_evicted_and_not_asked
    a_refusal_names_the_option_for_a_dialect
    a_lock_is_kept_for_as_long_as_asked
    credentials_come_from_the_environment_and_stay_secret
}

fn the_exit_status_is_that_of_the_command(hosts: &str) {
    let run = format!("run {}", fresh_path("codes"));
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        assert_eq!(Zklock::run(hosts, &run, script).code, Some(code));
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139), ("40", 168)] {
        let ended = Zklock::run(hosts, &run, &format!("kill -{signal} $$"));
        assert_eq!(ended.code, Some(code), "{signal}");
    }
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let ended = Zklock::run(hosts, &format!("{run} -- {program}"), "");
        assert_eq!(ended.code, Some(code));
        assert!(ended.err.starts_with("zklock: cannot run"), "{}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    let mut line = command(hosts);
    line.args(["run", &fresh_path("line"), "--", "echo hi"]);
    let ended = Zklock::spawn(&mut line).end();
    assert_eq!(ended.code, Some(127));
    assert!(ended.err.contains("put sh -c before"), "{}", ended.err);
}

fn the_input_and_the_outputs_belong_to_the_command(hosts: &str) {
    let run = format!("run {}", fresh_path("streams"));
    let mut zklock = Zklock::start(hosts, &run, "cat; echo said >&2");
    zklock.feed("given\n");
    let ended = zklock.end();
    assert_eq!(
        (ended.out.as_str(), ended.err.as_str()),
        ("given\n", "said\n")
    );
}

fn the_command_knows_its_lock(hosts: &str) {
    let path = fresh_path("variables");
    let script = "echo $ZKLOCK_PATH $ZKLOCK_NODE $ZKLOCK_TOKEN";
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let ended = Zklock::run(hosts, &format!("run {path}"), script);
        let words: Vec<_> = ended.out.split_whitespace().collect();
        let [lock, node, token] = words[..] else {
            panic!("{ended:?}");
        };
        assert_eq!(lock, path);
        assert!(node.starts_with(&format!("{path}/")), "{node}");
        tokens.push(token.parse::<i64>().expect("a number"));
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    let permit = format!("run --permits 1 {}", fresh_path("variables"));
    let ended = Zklock::run(hosts, &permit, "echo ${ZKLOCK_TOKEN-none}");
    assert_eq!(ended.out, "none\n");
    // The variable of the outer lock does not apply to the inner one.
    let zklock = env!("CARGO_BIN_EXE_zklock");
    let nested = format!("{zklock} {permit} -- sh -c 'echo ${{ZKLOCK_TOKEN-none}}'");
    let ended = Zklock::run(hosts, &format!("run {path}"), &nested);
    assert_eq!(ended.out, "none\n");
}

fn commands_that_run_at_a_time_have_permits_of_different_numbers(hosts: &str) {
    let (path, log) = (fresh_path("which"), Log::new());
    let args = format!("run --permits 3 {path}");
    let file = log.file();
    let taken = format!("{}.$ZKLOCK_PERMIT", file.display());
    // Only one of them can make the folder.
    let script = format!(
        "mkdir {taken} && echo $ZKLOCK_PERMIT >> {} && sleep 0.05 && rmdir {taken}",
        file.display()
    );
    run_at_once(12, hosts, &args, &script);
    let words = log.words();
    assert_eq!(words.len(), 12);
    assert!(
        words.iter().all(|word| ["0", "1", "2"].contains(&&**word)),
        "{words:?}"
    );
    // A killed holder takes its number along.
    let holder = |word| Zklock::start(hosts, &args, &log.beat(word));
    let mut first = holder("first-$ZKLOCK_PERMIT");
    log.await_word("first-0");
    let mut second = holder("second-$ZKLOCK_PERMIT");
    log.await_word("second-1");
    first.kill();
    await_queue(hosts, &format!("{path}/leases"), 1);
    let third = Zklock::run(hosts, &args, "echo $ZKLOCK_PERMIT");
    assert_eq!(third.out, "0\n", "{}", third.err);
    // The variable of an outer permit does not apply to another lock.
    let nested = format!(
        "{} run {path}-x -- sh -c 'echo ${{ZKLOCK_PERMIT-none}}'",
        env!("CARGO_BIN_EXE_zklock")
    );
    assert_eq!(Zklock::run(hosts, &args, &nested).out, "none\n");
    second.kill();
}

fn a_taken_lock_gives_the_conflict_status(hosts: &str) {
    let (path, log) = (fresh_path("taken"), Log::new());
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    let second = log.write("second");
    for (args, code) in [("-n", 1), ("-n -E 9", 9), ("-w 3", 1), ("-w 3 -E 0", 0)] {
        let ended = Zklock::run(hosts, &format!("run {args} {path}"), &second);
        assert_eq!(ended.code, Some(code), "{args}");
        assert_eq!((ended.out, ended.err), (String::new(), String::new()));
    }
    assert!(!log.words().contains(&"second".to_owned()));
    await_queue(hosts, &path, 1);
    holder.kill();
}

fn of_two_that_start_at_once_and_do_not_wait_one_runs(hosts: &str) {
    for _ in 0..5 {
        let (path, log) = (fresh_path("cron"), Log::new());
        let args = format!("run -n {path}");
        let script = format!("{}; cat", log.write("ran"));
        let mut both = [(); 2].map(|()| Zklock::start(hosts, &args, &script));
        eventually("one gives up", || both.iter_mut().any(Zklock::has_ended));
        both.iter_mut().for_each(|zklock| zklock.feed(""));
        let mut codes = both.map(|zklock| zklock.end().code);
        codes.sort();
        assert_eq!(codes, [Some(0), Some(1)]);
        assert_eq!(log.words(), ["ran"]);
    }
}

/// Starts this many at once; all of them must succeed.
#[track_caller]
fn run_at_once(number: usize, hosts: &str, args: &str, script: &str) {
    let start = |_| Zklock::start(hosts, args, script);
    let all: Vec<_> = (0..number).map(start).collect();
    for zklock in all {
        let ended = zklock.end();
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
}

fn fifty_that_wait_run_one_after_the_other(hosts: &str) {
    let (path, log) = (fresh_path("fifty"), Log::new());
    let script = format!("{}; sleep 0.01; {}", log.write("in"), log.write("out"));
    let args = format!("run {path}");
    run_at_once(50, hosts, &args, &script);
    let words = log.words();
    assert_eq!(words.len(), 100);
    for visit in words.chunks(2) {
        assert_eq!(visit, ["in", "out"]);
    }
    await_queue(hosts, &path, 0);
}

fn a_lock_without_permits_waits_for_a_semaphore_on_its_path(hosts: &str) {
    let (path, log) = (fresh_path("other-kind"), Log::new());
    let mut holder = Zklock::start(hosts, &format!("run --permits 2 {path}"), &log.beat("held"));
    log.await_word("held");
    for args in ["-n", "-w 1", "-s -n"] {
        let ended = Zklock::run(hosts, &format!("run {args} {path}"), &log.write("ran"));
        assert_eq!(ended.code, Some(1), "{args}: {}", ended.err);
        assert!(ended.err.contains("a path of its own"), "{}", ended.err);
    }
    assert!(!log.words().contains(&"ran".to_owned()));
    holder.kill();
    let ended = Zklock::run(hosts, &format!("run {path}"), &log.write("ran"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
}

/// Curator's semaphore stays in use, as far as anybody can tell, until the server removes its directory.
fn an_idle_semaphore_that_no_lock_waits_for_is_not_called_taken(hosts: &str) {
    let path = fresh_path("idle");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&format!("{path}/leases"));
    for args in ["-n", "-s -n", "-w 0", "-w 1", ""] {
        let ended = Zklock::run(hosts, &format!("run {args} {path}"), ":");
        assert_eq!(ended.code, Some(78), "{args}: {ended:?}");
        assert!(ended.err.contains("InterProcessSemaphoreV2"), "{ended:?}");
    }
    assert_eq!(raw.children(&path), Some(vec!["leases".to_owned()]));
}

fn locks_of_every_kind_at_once_wait_for_each_other(hosts: &str) {
    for round in 0..10 {
        let (path, kinds) = (fresh_path("mixture"), ["run", "run -s", "run --permits 2"]);
        // Every other round is one of mutexes and readers.
        let kinds = &kinds[..2 + round % 2];
        let start = |kind: &&str| Zklock::start(hosts, &format!("{kind} {path}"), "sleep 0.05");
        let all: Vec<_> = kinds.iter().cycle().take(8).map(start).collect();
        for zklock in all {
            let ended = zklock.end();
            assert_eq!(ended.code, Some(0), "round {round}: {}", ended.err);
        }
    }
}

fn a_semaphore_leaves_the_record_of_a_job_as_it_is(hosts: &str) {
    let path = fresh_path("night");
    let once = format!("once --slot 2026-11-25 {path}");
    assert_eq!(Zklock::run(hosts, &once, "true").code, Some(0));
    for dialect in ["curator", "kazoo"] {
        let args = format!("--dialect {dialect} run --permits 2 {path}");
        let refused = Zklock::run(hosts, &args, "true");
        assert_eq!(refused.code, Some(78), "{}", refused.err);
    }
    assert_eq!(
        Zklock::run(hosts, &format!("last {path}"), "").code,
        Some(0)
    );
    let again = Zklock::run(hosts, &once, "false");
    assert_eq!(again.code, Some(0), "{}", again.err);
}

fn a_picture_says_since_when_nobody_answers(hosts: &str) {
    fn now() -> Option<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(now.as_millis()).ok()
    }
    for every in ["", "-r"] {
        let (path, proxy) = (fresh_path("away"), Proxy::start(hosts));
        let begun = now();
        let mut list = command(&proxy.hosts());
        list.args(["list", "--session-timeout", "6", "--watch", "--json", &path]);
        let list = Lines::of(list.args((!every.is_empty()).then_some(every)));
        let since = || {
            let json: serde_json::Value = serde_json::from_str(&list.hear()).expect("JSON");
            assert!(
                json.get("contenders")
                    .or_else(|| json.get("locks"))
                    .is_some(),
                "{json}"
            );
            json["unanswered_since_ms"].as_u64()
        };
        assert_eq!(since(), None);
        for refuses in [true, false] {
            match refuses {
                true => proxy.refuse(),
                false => proxy.blackhole(),
            }
            let cut = now();
            let said = since();
            // The client notices a refusal at once. A loss that it notices later has begun before.
            let latest = if refuses { now() } else { cut };
            assert!(
                begun <= said && said <= latest,
                "{begun:?} {said:?} {latest:?}"
            );
            proxy.heal();
            proxy.accept();
            eventually("it is back", || since().is_none());
        }
    }
}

fn a_table_says_since_when_nobody_answers(hosts: &str) {
    let (path, proxy) = (fresh_path("away"), Proxy::start(hosts));
    let mut list = command(&proxy.hosts());
    let list = Lines::of(list.args(["list", "--watch", &path]));
    assert!(list.hear().starts_with("nobody holds"));
    proxy.refuse();
    while !list.hear().starts_with("no server has answered for") {}
}

fn what_the_command_leaves_in_the_background_keeps_the_lock(hosts: &str) {
    let (path, log) = (fresh_path("background"), Log::new());
    let script = format!("({}) >/dev/null 2>&1 & exit 5", log.beat("beat"));
    assert_keeps_the_lock_until_a_signal(hosts, &path, &log, &script);
    assert!(log.is_still());
}

fn shared_locks_share_and_exclude_the_others(hosts: &str) {
    let (path, log) = (fresh_path("shared"), Log::new());
    let mut one = Zklock::start(hosts, &format!("run -s {path}"), &log.beat("one"));
    log.await_word("one");
    assert_eq!(
        Zklock::run(hosts, &format!("run -s -n {path}"), ":").code,
        Some(0)
    );
    assert_eq!(
        Zklock::run(hosts, &format!("run -n {path}"), ":").code,
        Some(1)
    );
    let waiting = Zklock::start(hosts, &format!("run {path}"), &log.beat("alone"));
    eventually("somebody waits", || children(hosts, &path).len() == 2);
    one.signal("TERM");
    log.await_word("alone");
    one.kill();
    assert_eq!(
        Zklock::run(hosts, &format!("run -s -n {path}"), ":").code,
        Some(1)
    );
    let late = Zklock::start(hosts, &format!("run -s {path}"), &log.write("late"));
    waiting.signal("TERM");
    assert_eq!(waiting.end().code, Some(143));
    assert_eq!(late.end().code, Some(0));
    let (path, log) = (fresh_path("shared"), Log::new());
    let first = Zklock::start(hosts, &format!("run {path}"), &log.beat("mutex"));
    log.await_word("mutex");
    let after = Zklock::start(hosts, &format!("run -s {path}"), &log.write("after"));
    assert_eq!(
        Zklock::run(hosts, &format!("run -s -w 3 {path}"), ":").code,
        Some(1)
    );
    first.signal("TERM");
    assert_eq!(after.end().code, Some(0));
    assert_eq!(log.words().last().map(String::as_str), Some("after"));
}

fn no_more_than_the_permits_run_at_a_time(hosts: &str) {
    let (path, log) = (fresh_path("permits"), Log::new());
    let args = format!("run --permits 2 {path}");
    let script = format!("{}; sleep 0.1; {}", log.write("in"), log.write("out"));
    let start = || Zklock::start(hosts, &args, &script);
    let all: Vec<_> = (0..8).map(|_| start()).collect();
    for zklock in all {
        assert_eq!(zklock.end().code, Some(0));
    }
    let mut inside = 0;
    for word in log.words() {
        inside += if word == "in" { 1 } else { -1 };
        assert!((0..=2).contains(&inside), "{inside}");
    }
    let two = ["one", "two"].map(|word| {
        let zklock = Zklock::start(hosts, &args, &log.beat(word));
        log.await_word(word);
        zklock
    });
    let third = Zklock::run(hosts, &format!("run -n --permits 2 {path}"), ":");
    assert_eq!(third.code, Some(1));
    // Another number waits until nobody has one of the two any more.
    let refused = Zklock::run(hosts, &format!("run -n --permits 3 {path}"), ":");
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("2 permits"), "{}", refused.err);
    let late = Zklock::run(hosts, &format!("run -w 1 --permits 3 {path}"), ":");
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.err.contains("2 permits"), "{late:?}");
    let (other, said) = Zklock::start_logged(hosts, &format!("run --permits 3 {path}"), ":");
    eventually("it waits", || said.contains("waiting: "));
    for zklock in two {
        zklock.signal("TERM");
        assert_eq!(zklock.end().code, Some(143));
    }
    assert_eq!(other.end().code, Some(0), "{:?}", said.words());
}

fn a_list_shows_who_holds_and_who_waits_and_creates_nothing(hosts: &str) {
    let (path, log) = (fresh_path("list"), Log::new());
    let list = |args: &str| Zklock::run(hosts, &format!("list {args} {path}"), "");
    assert!(list("").out.starts_with("nobody holds"));
    assert!(Raw::connect(hosts).stat(&path).is_none());
    let mut holder = Zklock::start(
        hosts,
        &format!("run --note nightly {path}"),
        &log.beat("held"),
    );
    log.await_word("held");
    let mut waiting = Zklock::start(hosts, &format!("run {path}"), ":");
    eventually("somebody waits", || children(hosts, &path).len() == 2);
    let table = list("").out;
    let rows: Vec<_> = table.lines().collect();
    let [head, first, second] = rows[..] else {
        panic!("{table}");
    };
    assert!(head.starts_with("PLACE"), "{table}");
    assert!(
        first.contains("holds") && first.contains("nightly"),
        "{table}"
    );
    assert!(second.contains("waits") && second.contains("sh"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&list("--json").out).expect("JSON");
    let contenders = &json["contenders"];
    assert_eq!(json["path"], path);
    assert_eq!(contenders[0]["holds"], true);
    assert_eq!(contenders[0]["owner"]["pid"], holder.id());
    assert_eq!(contenders[0]["owner"]["note"], "nightly");
    assert_eq!(contenders[1]["place"], 2);
    assert_eq!(contenders[1]["role"], "exclusive");
    assert_eq!(contenders[1]["owner"]["program"], "zklock");
    holder.kill();
    waiting.kill();
}

fn all_locks_below_a_path_are_listed(hosts: &str) {
    let (root, log) = (fresh_path("every"), Log::new());
    let list = |args: &str| Zklock::run(hosts, &format!("list -r {args} {root}"), "");
    assert_eq!(
        list("").out,
        format!("nobody holds a lock below {root}, or waits for one\n")
    );
    let begin = |args: &str, path: &str| {
        let run = format!("run --note {path} {args} {root}/{path}");
        Zklock::start(hosts, &run, &log.beat(path))
    };
    let mut all = [begin("", "one"), begin("--permits 3", "two")];
    log.await_word("one");
    log.await_word("two");
    let mut waiting = Zklock::start(hosts, &format!("run {root}/one"), ":");
    let path = format!("{root}/one");
    eventually("somebody waits", || children(hosts, &path).len() == 2);
    let table = list("").out;
    assert_eq!(
        masked(&table, &[(&root, "ROOT")]),
        [
            "LOCK KIND HOLDER SINCE WAITERS LONGEST NUMBERS",
            "ROOT/one mutex HOST pid PID (one) TIME 1 TIME 0%",
            "ROOT/two 3 permits HOST pid PID (two) TIME 0 - 0%",
        ]
    );
    assert_eq!(list("--waiting").out.lines().count(), 2);
    assert_eq!(list("--held").out.lines().count(), 3);
    assert!(
        list("--older-than 1h")
            .out
            .starts_with("nobody holds such a lock")
    );
    assert!(
        list("--host nobody")
            .out
            .starts_with("nobody holds such a lock")
    );
    let json: serde_json::Value = serde_json::from_str(&list("--json").out).expect("JSON");
    let locks = json["locks"].as_array().expect("locks");
    assert_eq!(locks.len(), 2);
    assert_eq!(locks[0]["path"], path);
    assert_eq!(locks[0]["contenders"][0]["owner"]["pid"], all[0].id());
    assert_eq!(locks[1]["permits"], 3);
    all.iter_mut().for_each(Zklock::kill);
    waiting.kill();
}

fn a_chain_and_a_circle_of_commands_are_told(hosts: &str) {
    let (root, log) = (fresh_path("why"), Log::new());
    let why = |path: &str| Zklock::run(hosts, &format!("why --root {root} {root}/{path}"), "");
    assert_eq!(why("one").code, Some(1));
    let program = env!("CARGO_BIN_EXE_zklock");
    let nested = |outer: &str, inner: &str| {
        let begun = log.write(outer);
        let other = format!(
            "until grep -q {inner} {}; do sleep 0.02; done",
            log.file().display()
        );
        let script = format!("{begun}; {other}; {program} run {root}/{inner} -- true");
        Zklock::start(hosts, &format!("run {root}/{outer}"), &script)
    };
    let mut first = nested("one", "two");
    log.await_word("one");
    let told = why("one").out;
    let ends = format!("and waits for no lock below {root}\n");
    assert!(told.ends_with(&ends), "{told}");
    let mut second = nested("two", "one");
    let mut told = why("one");
    eventually("a circle is seen", || {
        told = why("one");
        told.code == Some(2)
    });
    assert_eq!(
        masked(&told.out, &[(&root, "ROOT")]),
        [
            "ROOT/one is held by HOST pid PID (sh), which came TIME ago and waits for ROOT/two",
            "ROOT/two is held by HOST pid PID (sh), which came TIME ago and waits for ROOT/one",
            "deadlock: ROOT/one waits for ROOT/two waits for ROOT/one: have one of them let go, with zklock revoke",
        ]
    );
    let doctor = Zklock::run(hosts, &format!("doctor --session-timeout 5 {root}/one"), "");
    assert_eq!(doctor.code, Some(2), "{doctor:?}");
    assert!(doctor.out.contains("a deadlock: "), "{doctor:?}");
    let told = why("one --json").out;
    let json: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let (one, two) = (format!("{root}/one"), format!("{root}/two"));
    assert_eq!(json["path"], one);
    assert_eq!(json["blockers"][0]["path"], one);
    assert_eq!(json["blockers"][0]["waits_for"], two);
    assert_eq!(json["blockers"][1]["holder"]["owner"]["pid"], second.id());
    assert_eq!(json["deadlock"], serde_json::json!([one, two]), "{told}");
    first.kill();
    second.kill();
}

/// The command sees other paths than the program that holds the outer lock, and waits twice.
fn what_runs_under_a_lock_is_found_through_another_chroot(hosts: &str) {
    let (root, log) = (fresh_path("nested"), Log::new());
    let program = env!("CARGO_BIN_EXE_zklock");
    Raw::connect(hosts).create_all(&root);
    let mut holders = ["b", "c"].map(|name| {
        let holder = Zklock::start(hosts, &format!("run {root}/{name}"), &log.beat(name));
        log.await_word(name);
        holder
    });
    let inner = |name: &str| format!("ZKLOCK_HOSTS={hosts} {program} run {root}/{name} -- true");
    let script = format!("{} & {} & wait", inner("b"), inner("c"));
    let mut outer = Zklock::start(&format!("{hosts}{root}"), "run /a", &script);
    for name in ["b", "c"] {
        eventually("it waits", || {
            children(hosts, &format!("{root}/{name}")).len() == 2
        });
    }
    let told = Zklock::run(hosts, &format!("why --root {root} {root}/a"), "");
    assert_eq!(told.code, Some(0), "{told:?}");
    for name in ["b", "c"] {
        let waits = format!("and waits for {root}/{name}\n");
        assert!(told.out.contains(&waits), "{told:?}");
    }
    outer.kill();
    holders.iter_mut().for_each(Zklock::kill);
}

fn what_may_not_be_read_is_not_called_free(hosts: &str) {
    let (root, log) = (fresh_path("locked"), Log::new());
    Raw::connect(hosts).create_all(&root);
    let mut holder = command(hosts);
    let run = format!("--acl creator run {root}/private -- sh -c");
    holder.args(run.split(' ')).arg(log.beat("held"));
    let mut holder = Zklock::spawn(holder.env("ZKLOCK_AUTH", "digest:ann:secret"));
    log.await_word("held");
    for args in [
        format!("why {root}/private"),
        format!("why --json {root}/private"),
    ] {
        let told = Zklock::run(hosts, &args, "");
        assert_eq!(told.code, Some(77), "{told:?}");
    }
    let mut other = Zklock::start(hosts, &format!("run {root}/open"), &log.beat("too"));
    log.await_word("too");
    let told = Zklock::run(hosts, &format!("why --root {root} {root}/open"), "");
    assert_eq!(told.code, Some(0), "{told:?}");
    let unread = format!("zklock: cannot read {root}/private, nor anything below: ");
    assert!(told.err.starts_with(&unread), "{told:?}");
    let nobody = Zklock::run(hosts, &format!("list -r --host nobody {root}"), "");
    assert!(
        nobody.out.ends_with(", where it may be read\n"),
        "{nobody:?}"
    );
    let told = Zklock::run(hosts, &format!("why --root {root} {root}/free"), "");
    assert_eq!(
        (told.code, told.err.as_str()),
        (Some(1), ""),
        "nobody who could wait unseen: {told:?}"
    );
    for json in ["", "--json "] {
        let told = Zklock::run(hosts, &format!("list -r {json}{root}"), "");
        assert_eq!(told.code, Some(77), "{told:?}");
        assert!(told.out.contains(&format!("{root}/open")), "{told:?}");
        assert!(told.err.starts_with(&unread), "{told:?}");
    }
    // The lock need not be below the root.
    let told = Zklock::run(hosts, &format!("why --root {root}/nothing {root}/open"), "");
    assert!(
        told.out
            .ends_with(&format!("waits for no lock below {root}/nothing\n")),
        "{told:?}"
    );
    holder.kill();
    other.kill();
}

fn a_watching_list_hears_of_every_change(hosts: &str) {
    let path = fresh_path("watch");
    let mut command = command(hosts);
    let list = Lines::of(command.args(["list", "--watch", "--json", &path]));
    let count = || {
        let json: serde_json::Value = serde_json::from_str(&list.hear()).expect("JSON");
        json["contenders"].as_array().map(Vec::len)
    };
    assert_eq!(count(), Some(0));
    let kazoos = "--dialect kazoo run --permits 3";
    for args in ["run", "run -s", kazoos, "run --permits 3"] {
        let mut holder = Zklock::start(hosts, &format!("{args} {path}"), "cat");
        // A permit's holder is in the line for a moment, so the list may show it twice.
        eventually("one", || count() == Some(1));
        holder.feed("");
        assert_eq!(holder.end().code, Some(0));
        eventually("none", || count() == Some(0));
    }
}

/// A lock is shown when it becomes old enough, and others that come and go are not shown.
fn a_watching_list_hears_of_what_it_is_asked_for(hosts: &str) {
    let (root, log) = (fresh_path("old"), Log::new());
    let mut command = command(hosts);
    let list = [
        "list",
        "-r",
        "--watch",
        "--json",
        "--older-than",
        "3",
        &root,
    ];
    let list = Lines::of(command.args(list));
    let locks = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        value["locks"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(locks(&list.hear()), 0);
    let mut holder = Zklock::start(hosts, &format!("run {root}/a"), &log.beat("held"));
    log.await_word("held");
    assert_eq!(locks(&list.hear()), 1);
    holder.kill();
}

/// A server does not tell a client of changes that it may not see.
fn a_watching_list_ends_when_it_may_not_list_any_more(hosts: &str) {
    let path = fresh_path("no-longer");
    let client = Client::connect(hosts).unwrap();
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    let list = Lines::of(command(hosts).args(["list", "--watch", "--json", &path]));
    assert!(list.hear().contains(guard.node()));
    // By then it has set its watch.
    thread::sleep(Duration::from_millis(300));
    Raw::connect(hosts).forbid_reads(&path).unwrap();
    guard.unlock().unwrap();
    list.end();
}

fn a_watching_list_ends_with_its_reader_and_tells_of_a_full_disk(hosts: &str) {
    let path = fresh_path("unread");
    for list in ["list --watch", "list -r --watch"] {
        let in_a_shell = |to: &str| {
            let mut shell = Command::new("sh");
            let line = format!("{} {list} {path} {to}", env!("CARGO_BIN_EXE_zklock"));
            Zklock::spawn(shell.args(["-c", &line]).env("ZKLOCK_HOSTS", hosts)).end()
        };
        let ended = in_a_shell("| head -n 1");
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
        assert!(ended.out.starts_with("nobody holds"), "{ended:?}");
        let ended = in_a_shell("> /dev/full");
        assert_eq!(ended.code, Some(70), "{ended:?}");
        assert!(ended.err.contains("cannot write to stdout"), "{ended:?}");
    }
}

fn a_revoked_command_is_told_to_stop(hosts: &str) {
    let (path, log) = (fresh_path("revoke"), Log::new());
    let none = Zklock::run(hosts, &format!("revoke {path}"), "");
    assert_eq!(none.code, Some(1));
    assert!(none.err.starts_with("zklock: nobody holds"), "{}", none.err);
    let script = format!("trap 'exit 4' TERM; {}", log.beat("held"));
    let holder = Zklock::start(hosts, &format!("run {path}"), &script);
    log.await_word("held");
    let asked = Zklock::run(hosts, &format!("revoke --evict-after 30 {path}"), "");
    assert_eq!(asked.code, Some(0));
    assert!(
        asked.out.contains("asked") && asked.out.contains("let go"),
        "{}",
        asked.out
    );
    assert_eq!(holder.end().code, Some(4));
}

fn whoever_does_not_let_go_is_evicted(hosts: &str) {
    let (path, log) = (fresh_path("evict"), Log::new());
    let script = format!("trap '' TERM; {}", log.beat("held"));
    let holder = Zklock::start(hosts, &format!("run {path}"), &script);
    log.await_word("held");
    let node = children(hosts, &path).pop().expect("a node");
    let other = Zklock::run(hosts, &format!("revoke --node {node}x {path}"), "");
    assert_eq!(other.code, Some(1));
    let asked = Zklock::run(
        hosts,
        &format!("revoke --node {node} --evict-after 0.5 {path}"),
        "",
    );
    assert_eq!(asked.code, Some(0));
    assert!(asked.out.contains("evicted"), "{}", asked.out);
    assert_eq!(holder.end().code, Some(75));
    assert!(log.is_still());
}

fn a_node_of_no_session_is_evicted_and_not_asked(hosts: &str) {
    let path = fresh_path("ghost");
    let ghost = format!("{path}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-0000000000");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&ghost);
    raw.set_data(&ghost, b"somebody's").expect("a node");
    let asked = Zklock::run(hosts, &format!("revoke {path}"), "");
    assert_eq!(asked.code, Some(78), "{asked:?}");
    assert!(asked.err.contains("is not a contender's node"), "{asked:?}");
    assert_eq!(raw.data(&ghost).expect("a node"), b"somebody's");
    let evict = format!("revoke --evict-after 0 --node {ghost} {path}");
    let evicted = Zklock::run(hosts, &evict, "");
    assert_eq!(evicted.code, Some(0), "{evicted:?}");
    assert!(
        evicted.out.starts_with("evicted") && evicted.out.contains(&ghost),
        "{evicted:?}"
    );
    assert!(children(hosts, &path).is_empty());
}

fn a_holder_in_the_queue_of_a_latch_is_evicted_and_not_asked(hosts: &str) {
    let (path, log) = (fresh_path("latch"), Log::new());
    let run = format!("--dialect leader-latch run {path}");
    let holder = Zklock::start(hosts, &run, &log.beat("held"));
    log.await_word("held");
    let refusal = "LeaderLatch to release: one behind it would never lead";
    let asked = Zklock::run(hosts, &format!("revoke {path}"), "");
    assert_eq!(asked.code, Some(70), "{asked:?}");
    assert!(asked.err.contains(refusal), "{asked:?}");
    let evicted = Zklock::run(hosts, &format!("revoke --evict-after 0.1 {path}"), "");
    assert_eq!(evicted.code, Some(0), "{evicted:?}");
    assert!(evicted.err.contains(refusal), "{evicted:?}");
    assert!(evicted.out.starts_with("evicted"), "{evicted:?}");
    assert_eq!(holder.end().code, Some(75));
}

fn a_refusal_names_the_option_for_a_dialect(hosts: &str) {
    const ID: &str = "6f9c1c9e5a0b4b579a3e0123456789ab";
    let table = [
        ("__lock__", "kazoo", "run"),
        ("__rlock__", "kazoo", "run -s -n"),
        ("__rlock__", "kazoo", "run -s -w 60"),
        ("-write-", "recipe", "run -s -w 60"),
    ];
    for (token, dialect, args) in table {
        let path = fresh_path("dialects");
        let mut raw = Raw::connect(hosts);
        raw.create_all(&path);
        let node = format!("{path}/{ID}{token}0000000000");
        raw.create(&node, b"", EPHEMERAL).expect("a node");
        let (refused, took) = timed(|| Zklock::run(hosts, &format!("{args} {path}"), "true"));
        assert_eq!(refused.code, Some(78), "{args}: {refused:?}");
        let advice = format!("use --dialect {dialect} or another path");
        assert!(refused.err.contains(&advice), "{refused:?}");
        assert!(took < Duration::from_secs(30), "{args}: {took:?}");
    }
}

fn a_lock_is_kept_for_as_long_as_asked(hosts: &str) {
    let path = fresh_path("at-least");
    let args = format!("run --hold-at-least 1.5 {path}");
    let (ended, took) = timed(|| Zklock::run(hosts, &args, "exit 6"));
    assert_eq!(ended.code, Some(6));
    assert!(Duration::from_millis(1500) <= took, "{took:?}");
    let holder = Zklock::start(hosts, &format!("run --hold-at-least 600 {path}"), ":");
    eventually("it is held", || children(hosts, &path).len() == 1);
    assert_eq!(
        Zklock::run(hosts, &format!("run -n {path}"), ":").code,
        Some(1)
    );
    eventually("it lets go", || {
        // Until the command has ended, a signal goes to the command.
        holder.signal("TERM");
        children(hosts, &path).is_empty()
    });
}

fn credentials_come_from_the_environment_and_stay_secret(hosts: &str) {
    let path = fresh_path("secret");
    let with = |auth: &str, args: &str| {
        let mut command = command(hosts);
        let args = format!("{args} {path} -- true");
        command.args(args.split(' ')).env("ZKLOCK_AUTH", auth);
        Zklock::spawn(&mut command).end()
    };
    let ours = with("digest:ann:s3cret", "-vvv run --acl creator");
    assert_eq!(ours.code, Some(0), "{}", ours.err);
    assert!(
        !ours.err.is_empty() && !ours.err.contains("s3cret"),
        "{}",
        ours.err
    );
    assert_eq!(with("digest:bob:x", "run").code, Some(77));
    assert_eq!(with("nonsense", "run").code, Some(64));
    let nobody = with("", "run --acl creator");
    assert_eq!(nobody.code, Some(64));
    assert!(nobody.err.contains("ZKLOCK_AUTH"), "{}", nobody.err);
}

fn a_token_is_checked(hosts: &str) {
    let (path, log) = (fresh_path("token"), Log::new());
    let script = format!("{}; read line", log.write("$ZKLOCK_TOKEN"));
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &script);
    eventually("it runs", || !log.words().is_empty());
    let token = log.words().remove(0);
    let check = |token: &str| Zklock::run(hosts, &format!("check {path} {token}"), "");
    assert_eq!(check(&token).code, Some(0));
    assert_eq!(check("7").code, Some(1));
    holder.feed("\n");
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(check(&token).code, Some(1));
    let wrong = check("first");
    assert_eq!(wrong.code, Some(64));
    assert!(wrong.err.contains("ZKLOCK_TOKEN"), "{wrong:?}");
}
