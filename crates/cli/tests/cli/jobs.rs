//! `zklock once` and `zklock last`.

use std::time::Duration;

use serde_json::{Value, json};
use zklock::{Client, JobOptions, LockOptions, Once};

use crate::program::{Log, Zklock, await_queue, on_every_server};
use crate::support::raw::{EPHEMERAL, Raw, children};
use crate::support::{eventually, fresh_path};

on_every_server! {
    a_slot_is_run_once_by_whoever_comes_first
    a_command_that_fails_is_run_again
    attempts_come_to_an_end
    a_job_at_most_every_so_often_is_run_once
    a_run_by_a_clock_that_was_ahead_is_told
    whoever_waits_runs_it_if_the_first_one_dies
    whoever_does_not_wait_is_told_who_runs_it
    a_signal_ends_the_wait_and_runs_nothing
    who_is_evicted_from_the_queue_runs_nothing
    last_tells_what_was_run_for_people_and_for_monitoring
    the_last_runs_are_told
    what_a_job_has_done_is_forgotten
    a_night_that_was_left_out_is_run_by_itself
    a_slot_that_is_done_is_run_again_when_told_to
    a_record_that_was_replaced_is_named_and_mended
    whoever_waits_for_a_run_whose_record_is_replaced_learns_how_to_mend_it
    a_run_whose_end_may_not_be_recorded_says_so
    a_run_whose_lock_may_not_be_deleted_is_done
    a_job_takes_over_the_path_of_whatever_has_ended
    a_job_waits_until_nobody_uses_its_path_for_another_lock
    a_job_waits_for_a_hold_on_the_path_of_a_lock
    a_path_in_use_that_cannot_be_a_jobs_is_told_at_once
    a_semaphore_that_nobody_uses_makes_way
    what_is_not_a_jobs_is_not_mended
    the_command_knows_its_slot_and_a_lock_inside_has_none
    a_permit_is_refused_on_a_jobs_path_and_says_so
}

fn once(path: &str, slot: &str) -> String {
    format!("once --slot {slot} {path}")
}

fn a_slot_is_run_once_by_whoever_comes_first(hosts: &str) {
    let (path, log) = (fresh_path("once"), Log::new());
    let four = |_| Zklock::start(hosts, &once(&path, "2026-11-22"), &log.write("ran"));
    let all: Vec<_> = (0..4).map(four).collect();
    let ended: Vec<_> = all.into_iter().map(Zklock::end).collect();
    assert!(ended.iter().all(|ended| ended.code == Some(0)), "{ended:?}");
    assert_eq!(log.words(), ["ran"]);
    let told = |ended: &&crate::program::Ended| ended.err.contains("is done: slot 2026-11-22");
    assert_eq!(ended.iter().filter(told).count(), 3, "{ended:?}");
    let before = format!("once -E 9 --slot 2026-11-21 {path}");
    let before = Zklock::run(hosts, &before, ":");
    assert_eq!(before.code, Some(9));
    assert!(
        before.err.contains(", and 2026-11-21, which is below it"),
        "{before:?}"
    );
}

fn a_command_that_fails_is_run_again(hosts: &str) {
    let (path, log) = (fresh_path("fails"), Log::new());
    let again = once(&path, "a");
    assert_eq!(Zklock::run(hosts, &again, "exit 7").code, Some(7));
    let killed = Zklock::run(hosts, &again, "kill -KILL $$");
    assert_eq!(killed.signal, Some(9));
    let ended = Zklock::run(hosts, &again, &log.write("ran"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("ended by signal 9"), "{ended:?}");
    assert_eq!(log.words(), ["ran"]);
}

fn attempts_come_to_an_end(hosts: &str) {
    let path = fresh_path("attempts");
    let twice = format!("once --attempts 2 --slot a {path}");
    for _ in 0..2 {
        assert_eq!(Zklock::run(hosts, &twice, "exit 7").code, Some(7));
    }
    let ended = Zklock::run(hosts, &twice, "exit 0");
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("no attempts are left"), "{ended:?}");
    // Another slot that has failed since has nothing to do with it.
    assert_eq!(
        Zklock::run(hosts, &once(&path, "b"), "exit 7").code,
        Some(7)
    );
    let ended = Zklock::run(hosts, &twice, "exit 0");
    assert_eq!(ended.code, Some(1));
    let told = "the last one: slot a, attempt 2; the next slot has its own, and --attempts 3 gives";
    assert!(ended.err.contains(told), "{ended:?}");
    let again = Zklock::run(hosts, &once(&path, "a"), "exit 0");
    assert_eq!(again.code, Some(0));
    assert!(
        again.err.contains("not done: slot a, attempt 2"),
        "{again:?}"
    );
}

fn who_is_evicted_from_the_queue_runs_nothing(hosts: &str) {
    let (path, log) = (fresh_path("evicted"), Log::new());
    let first = Zklock::start(hosts, &once(&path, "a"), &log.beat("first"));
    log.await_word("first");
    let waits = Zklock::start(hosts, &once(&path, "a"), &log.write("second"));
    await_queue(hosts, &path, 2);
    let client = Client::connect(hosts).unwrap();
    client.contenders(&path).unwrap()[1].evict().unwrap();
    let evicted = waits.end();
    assert_eq!(evicted.code, Some(1), "{evicted:?}");
    assert!(evicted.err.contains("deleted the node"), "{evicted:?}");
    first.signal("TERM");
    first.end();
    assert!(!log.words().contains(&"second".to_owned()));
}

fn a_job_at_most_every_so_often_is_run_once(hosts: &str) {
    let (path, log) = (fresh_path("every"), Log::new());
    let every = |time: &str| format!("once --at-most-every {time} {path}");
    for _ in 0..3 {
        let ended = Zklock::run(hosts, &every("20h"), &log.write("ran"));
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    assert_eq!(log.words(), ["ran"]);
    eventually("it is due again", || {
        Zklock::run(hosts, &every("0.5"), &log.write("ran"));
        log.words().len() == 2
    });
}

/// Once, neither `once -q` nor `last --older-than` said a word until that time came.
fn a_run_by_a_clock_that_was_ahead_is_told(hosts: &str) {
    let path = fresh_path("ahead");
    let every = format!("once -q --at-most-every 20h {path}");
    Zklock::run(hosts, &every, ":");
    assert_eq!(Zklock::run(hosts, &every, "echo ran").err, "");
    let mut raw = Raw::connect(hosts);
    let record = String::from_utf8(raw.data(&path).unwrap()).unwrap();
    let mut record: Value = serde_json::from_str(&record).unwrap();
    for at in ["started_ms", "ended_ms"] {
        record["done"][at] = json!(4_102_444_800_000_i64);
    }
    raw.set_data(&path, record.to_string().as_bytes()).unwrap();
    let skipped = Zklock::run(hosts, &every, "echo ran");
    assert_eq!((skipped.code, &*skipped.out), (Some(0), ""), "{skipped:?}");
    let told = [" from now by this machine's clock", "zklock forget "];
    assert!(
        told.iter().all(|said| skipped.err.contains(said)),
        "{skipped:?}"
    );
    let last = Zklock::run(hosts, &format!("last --older-than 26h {path}"), "");
    assert_eq!(last.code, Some(2), "{last:?}");
    assert!(
        last.out.contains(" from now by this clock, took 0s"),
        "{last:?}"
    );
    assert!(last.err.contains("further off than 1d 2h"), "{last:?}");
}

fn whoever_waits_runs_it_if_the_first_one_dies(hosts: &str) {
    let (path, log) = (fresh_path("dies"), Log::new());
    let args = format!("--session-timeout 6 {}", once(&path, "a"));
    let mut first = Zklock::start(hosts, &args, &log.beat("first"));
    log.await_word("first");
    let next = Zklock::start(hosts, &args, &log.write("attempt $ZKLOCK_ATTEMPT"));
    await_queue(hosts, &path, 2);
    first.kill();
    let ended = next.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(log.words().last().unwrap(), "attempt 2");
}

fn whoever_does_not_wait_is_told_who_runs_it(hosts: &str) {
    let (path, log) = (fresh_path("now"), Log::new());
    let first = Zklock::start(hosts, &once(&path, "a"), &log.beat("first"));
    log.await_word("first");
    for now in ["-n", "-w 2"] {
        let ended = Zklock::run(hosts, &format!("once {now} --slot a {path}"), ":");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains("is run by"), "{ended:?}");
    }
    first.signal("TERM");
    assert_eq!(first.end().signal, Some(15));
}

fn a_signal_ends_the_wait_and_runs_nothing(hosts: &str) {
    let (path, log) = (fresh_path("signal"), Log::new());
    let first = Zklock::start(hosts, &once(&path, "a"), &log.beat("first"));
    log.await_word("first");
    let waits = Zklock::start(hosts, &once(&path, "a"), &log.write("second"));
    await_queue(hosts, &path, 2);
    waits.signal("TERM");
    assert_eq!(waits.end().signal, Some(15));
    first.signal("TERM");
    first.end();
    assert!(!log.words().contains(&"second".to_owned()));
}

fn last_tells_what_was_run_for_people_and_for_monitoring(hosts: &str) {
    let path = fresh_path("last");
    let last = |args: &str| Zklock::run(hosts, &format!("last {args} {path}"), "");
    let never = last("");
    assert_eq!(never.code, Some(1));
    assert!(never.out.contains("was never done"), "{never:?}");
    Zklock::run(hosts, &once(&path, "a"), "exit 7");
    let failed = last("");
    assert_eq!(failed.code, Some(1));
    assert!(failed.out.contains("ended with status 7"), "{failed:?}");
    Zklock::run(hosts, &once(&path, "a"), "exit 0");
    let done = last("--older-than 26h");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.starts_with("done:    slot a, "), "{done:?}");
    assert!(done.out.contains("attempt 2"), "{done:?}");
    let json: Value = serde_json::from_str(&last("--json").out).unwrap();
    assert_eq!(json["done"]["slot"], "a");
    assert_eq!(json["done"]["outcome"], "done");
    assert_eq!(json["failed"]["message"], "ended with status 7");
    assert_eq!(json["running"], Value::Null);
    let log = Log::new();
    let runs = Zklock::start(hosts, &once(&path, "b"), &log.beat("begun"));
    log.await_word("begun");
    let during = last("");
    let line = during.out.lines().last().unwrap();
    assert!(line.starts_with("running: slot b, began "), "{during:?}");
    let json: Value = serde_json::from_str(&last("--json").out).unwrap();
    assert_eq!(json["running"]["slot"], "b");
    runs.signal("TERM");
    runs.end();
    eventually("it is old", || last("--older-than 0.2").code == Some(2));
}

fn the_last_runs_are_told(hosts: &str) {
    let path = fresh_path("runs");
    let last = |args: &str| Zklock::run(hosts, &format!("last {args} {path}"), "");
    let never = last("-n 3");
    assert_eq!(never.code, Some(1));
    assert!(never.out.contains("was never run"), "{never:?}");
    for (slot, script) in [("a", ":"), ("b", "exit 7"), ("b", ":"), ("c", ":")] {
        let keep = format!("once --keep 20 --slot {slot} {path}");
        Zklock::run(hosts, &keep, script);
    }
    let told = last("-n 3");
    assert_eq!(told.code, Some(0), "{told:?}");
    let lines: Vec<_> = told.out.lines().collect();
    let begins = ["done:    slot c,", "done:    slot b,", "failed:  slot b,"];
    assert_eq!(lines.len(), 3, "{told:?}");
    for (line, beginning) in lines.iter().zip(begins) {
        assert!(line.starts_with(beginning), "{told:?}");
    }
    assert!(lines[2].contains("ended with status 7"), "{told:?}");
    let json: Value = serde_json::from_str(&last("-n 20 --json").out).unwrap();
    let runs = json["runs"].as_array().unwrap();
    let slots: Vec<_> = runs.iter().map(|run| &run["slot"]).collect();
    assert_eq!(slots, ["c", "b", "b", "a"]);
    assert_eq!(runs[2]["outcome"], "failed");
    assert_eq!(json["done"]["slot"], "c");
    let plain: Value = serde_json::from_str(&last("--json").out).unwrap();
    assert_eq!(plain["runs"], Value::Null);
    for bad in ["-n 0", "-n x"] {
        assert_eq!(last(bad).code, Some(64));
    }
}

fn what_a_job_has_done_is_forgotten(hosts: &str) {
    let path = fresh_path("forgotten");
    let forget = || Zklock::run(hosts, &format!("forget {path}"), "");
    assert_eq!(forget().code, Some(1));
    assert_eq!(
        Zklock::run(hosts, &once(&path, "2999-01-01"), ":").code,
        Some(0)
    );
    let late = Zklock::run(hosts, &once(&path, "2026-11-23"), "echo ran");
    assert!(late.out.is_empty(), "{late:?}");
    assert!(
        late.err.contains(&format!("zklock forget {path}")),
        "{late:?}"
    );
    let told = forget();
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.err.contains("2999-01-01"), "{told:?}");
    let program = env!("CARGO_BIN_EXE_zklock");
    let script = format!("echo ran; {program} forget {path}; echo $?");
    let now = Zklock::run(hosts, &once(&path, "2026-11-23"), &script);
    assert_eq!(now.out, "ran\n70\n", "{now:?}");
    Raw::connect(hosts).create_all(&format!("{path}/below"));
    for (how, what) in [("", "forgotten"), ("--repair ", "mended")] {
        if what == "mended" {
            assert_eq!(Raw::connect(hosts).set_data(&path, b"2"), Ok(()));
        }
        let kept = Zklock::run(hosts, &format!("forget {how}{path}"), "");
        assert_eq!(kept.code, Some(70), "{kept:?}");
        let why = format!("{path} is not {what}, because there are nodes below it: see zklock");
        assert!(kept.err.contains(&why), "{kept:?}");
    }
}

fn a_night_that_was_left_out_is_run_by_itself(hosts: &str) {
    let path = fresh_path("left-out");
    let run = |options: &str, slot: &str| {
        let args = format!("once -E 9 {options} --slot {slot} {path}");
        let ended = Zklock::run(hosts, &args, "echo ran");
        (ended.code, ended.out, ended.err)
    };
    let ran = |ended: &(Option<i32>, String, String)| (ended.0, &*ended.1) == (Some(0), "ran\n");
    assert!(ran(&run("", "22")));
    let skipped = run("", "20");
    assert_eq!(skipped.0, Some(9), "{skipped:?}");
    assert!(skipped.2.contains("--any-order runs it"), "{skipped:?}");
    assert!(ran(&run("--any-order", "20")));
    let again = run("--any-order", "20");
    assert_eq!((again.0, &*again.1), (Some(9), ""), "{again:?}");
    let told = "is done: slot 20, attempt 1, begun 2";
    assert!(again.2.contains(told), "{again:?}");
    assert!(!again.2.contains("below it"), "{again:?}");
    let refused = format!("once --any-order --at-most-every 5 {path}");
    assert_eq!(Zklock::run(hosts, &refused, ":").code, Some(64));
    let client = Client::connect(hosts).unwrap();
    let job = client.job(&path).unwrap();
    let alone = || JobOptions::new().any_order(true);
    for slot in 1..=70 {
        let ran = job.once_with(&format!("{slot:0>250}"), alone(), |_| Ok::<_, ()>(()));
        assert!(matches!(ran, Ok(Once::Done(()))), "{ran:?}");
    }
    let unknown = run("--any-order", &format!("{:0>250}", 1));
    assert_eq!((unknown.0, &*unknown.1), (Some(1), ""), "{unknown:?}");
    assert!(unknown.2.contains("not known any more"), "{unknown:?}");
}

fn a_slot_that_is_done_is_run_again_when_told_to(hosts: &str) {
    let path = fresh_path("again");
    let run = |options: &str, slot: &str| {
        let args = format!("once {options} --slot {slot} {path}");
        Zklock::run(hosts, &args, "echo ran").out == "ran\n"
    };
    let forget = |slot: &str| Zklock::run(hosts, &format!("forget --slot {slot} {path}"), "");
    assert_eq!(forget("20").code, Some(1));
    assert!(run("", "20") && run("", "22"));
    assert!(!run("", "20") && run("--again", "20"));
    assert!(!run("", "20"));
    let told = forget("20");
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.err.contains("slot 20"), "{told:?}");
    let last = |json: &str| Zklock::run(hosts, &format!("last {json} {path}"), "").out;
    let open =
        || -> Value { serde_json::from_str::<Value>(&last("--json")).unwrap()["again"].take() };
    assert!(
        last("").contains("\nagain:   slot 20 is to be run\n"),
        "{}",
        last("")
    );
    assert_eq!(open(), json!(["20"]));
    assert!(!run("", "21") && run("", "20") && !run("", "20"));
    assert!(!last("").contains("again:"), "{}", last(""));
    assert_eq!(open(), json!([]));
    let program = env!("CARGO_BIN_EXE_zklock");
    let script = format!("{program} forget --slot 22 {path}; echo $?");
    let busy = Zklock::run(hosts, &once(&path, "23"), &script);
    assert_eq!(busy.out, "70\n", "{busy:?}");
    assert!(busy.err.contains("somebody runs it"), "{busy:?}");
    for bad in ["--slot=", "--repair --slot 20"] {
        let refused = Zklock::run(hosts, &format!("forget {bad} {path}"), "");
        assert_eq!(refused.code, Some(64), "{refused:?}");
    }
}

fn a_record_that_was_replaced_is_named_and_mended(hosts: &str) {
    let path = fresh_path("replaced");
    let repair = || Zklock::run(hosts, &format!("forget --repair {path}"), "");
    let doctor = format!("doctor --session-timeout 5 {path}");
    assert_eq!(Zklock::run(hosts, &once(&path, "a"), ":").code, Some(0));
    assert_eq!(Zklock::run(hosts, &doctor, "").code, Some(0));
    assert_eq!(repair().code, Some(1));
    let mend = format!("zklock forget --repair {path}");
    let edited = r#"{"job":1,"done":{"slot":"a"}}"#;
    for (data, code) in [("2", 1), ("{\"job\":1,", 2), (edited, 2)] {
        let mut raw = Raw::connect(hosts);
        raw.set_data(&path, data.as_bytes()).expect("a node");
        let told = Zklock::run(hosts, &doctor, "");
        assert_eq!(told.code, Some(code), "{told:?}");
        assert!(told.out.contains(&mend), "{told:?}");
        let refused = [
            Zklock::run(hosts, &once(&path, "b"), ":"),
            Zklock::run(hosts, &format!("last {path}"), ""),
            Zklock::run(hosts, &format!("forget {path}"), ""),
        ];
        for refused in refused {
            assert_eq!(refused.code, Some(78), "{refused:?}");
            assert!(
                refused.err.contains("zklock forget --repair"),
                "{refused:?}"
            );
        }
        let mended = repair();
        assert_eq!(mended.code, Some(0), "{mended:?}");
        assert!(
            mended.err.contains(&format!("there stood: {data:?}")),
            "{mended:?}"
        );
        let ended = Zklock::run(hosts, &once(&path, "a"), "echo ran");
        assert_eq!(ended.out, "ran\n", "{ended:?}");
    }
}

fn a_job_takes_over_the_path_of_whatever_has_ended(hosts: &str) {
    let locks = [
        "run",
        "run -s",
        "run --permits 2",
        "standby --restart never",
    ];
    for dialect in ["curator", "kazoo", "recipe", "leader-latch"] {
        for lock in locks {
            let takes_over = || a_job_follows(hosts, dialect, lock);
            assert!(takes_over() || takes_over(), "{dialect} {lock}");
        }
    }
}

/// Returns `false` if the server has removed the empty directories of a semaphore before the job came, as it does once
/// a minute: what is left then may be anybody's.
fn a_job_follows(hosts: &str, dialect: &str, lock: &str) -> bool {
    let path = fresh_path("ended");
    let args = format!("--dialect {dialect} {lock} {path}");
    let ran = Zklock::run(hosts, &args, ":");
    assert_eq!(ran.code, Some(0), "{args}: {ran:?}");
    let args = format!("--dialect {dialect} {}", once(&path, "a"));
    if dialect == "kazoo" && lock.contains("permits") {
        // Only a number is left.
        assert_eq!(Zklock::run(hosts, &args, ":").code, Some(78));
        let mended = Zklock::run(hosts, &format!("forget --repair {path}"), "");
        assert_eq!(mended.code, Some(0), "{mended:?}");
    }
    let ran = Zklock::run(hosts, &args, ":");
    if ran.code == Some(78) && children(hosts, &path).is_empty() {
        return false;
    }
    assert_eq!(ran.code, Some(0), "{args} after {lock}: {ran:?}");
    let last = Zklock::run(hosts, &format!("last {path}"), "");
    assert_eq!(last.code, Some(0), "{last:?}");
    true
}

/// Once, one of them said that another one uses the path for a lock without permits.
fn whoever_waits_for_a_run_whose_record_is_replaced_learns_how_to_mend_it(hosts: &str) {
    let path = fresh_path("replaced");
    let job = Client::connect(hosts).unwrap().job(&path).unwrap();
    let mut waits = Vec::new();
    let ran = job.once("a", |_run| {
        for length in [2, 3] {
            waits.push(Zklock::start(hosts, &once(&path, "b"), ":"));
            await_queue(hosts, &path, length);
        }
        Raw::connect(hosts).set_data(&path, b"")
    });
    assert!(ran.is_err(), "{ran:?}");
    for ended in waits.into_iter().map(Zklock::end) {
        assert_eq!(ended.code, Some(78), "{ended:?}");
        assert!(ended.err.contains("zklock forget --repair"), "{ended:?}");
    }
}

/// Once, it said nothing of the command, as if that had not been run; or that the lock had been lost.
fn a_run_whose_end_may_not_be_recorded_says_so(hosts: &str) {
    for forbid in [Raw::allow_reads_only, Raw::forbid_writes] {
        let (path, log) = (fresh_path("rights"), Log::new());
        let script = format!("{}; read line", log.write("ran"));
        let mut run = Zklock::start(hosts, &once(&path, "a"), &script);
        log.await_word("ran");
        forbid(&mut Raw::connect(hosts), &path).unwrap();
        run.feed("\n");
        let ended = run.end();
        assert_eq!(ended.code, Some(77), "{ended:?}");
        let begins =
            "zklock: the command has ended, and is not known as done: the access control list of ";
        assert!(ended.err.starts_with(begins), "{ended:?}");
    }
}

/// Once, it ended with 77, and every later one ran the slot again.
fn a_run_whose_lock_may_not_be_deleted_is_done(hosts: &str) {
    let (path, log) = (fresh_path("kept"), Log::new());
    Raw::connect(hosts).create_all(&path);
    Raw::connect(hosts).forbid_deletes(&path).unwrap();
    let once = || Zklock::run(hosts, &once(&path, "a"), &log.write("ran"));
    let ended = once();
    let told = format!(
        "zklock: what this client leaves in {path} stays until its session ends, and keeps the others waiting until then: the access control list of {path} does not give it the right DELETE\n"
    );
    assert_eq!((ended.code, &ended.err), (Some(0), &told));
    let again = once();
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.err.contains(" is done: slot a"), "{again:?}");
    assert_eq!(log.words(), ["ran"]);
}

/// Once, it ended with 78, even with `-w`, and named nobody.
fn a_job_waits_until_nobody_uses_its_path_for_another_lock(hosts: &str) {
    let kinds = [
        ("", "a lock"),
        ("-s", "a lock"),
        ("--permits 2", "a semaphore"),
    ];
    for (kind, what) in kinds {
        let (path, log) = (fresh_path("in-use"), Log::new());
        let args = format!("run --note first {kind} {path}");
        let holder = Zklock::start(hosts, &args, &log.beat("held"));
        log.await_word("held");
        for limit in ["-n", "-w 1"] {
            let args = format!("once {limit} --slot a {path}");
            let ended = Zklock::run(hosts, &args, &log.write("ran"));
            assert_eq!(ended.code, Some(1), "{ended:?}");
            let begins = format!("zklock: {path} is {what} with");
            assert!(ended.err.starts_with(&begins), "{ended:?}");
            let ends = "(first), and free for this job when nobody uses it so: give each kind of lock a path of its own\n";
            assert!(ended.err.ends_with(ends), "{ended:?}");
            assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
        }
        let (waits, said) = Zklock::start_logged(hosts, &once(&path, "a"), &log.write("ran"));
        eventually("it waits", || said.contains("free for this job"));
        assert!(!log.contains("ran"));
        holder.signal("TERM");
        holder.end();
        assert_eq!(waits.end().code, Some(0), "{:?}", said.words());
        assert!(log.contains("ran"));
        let last = Zklock::run(hosts, &format!("last {path}"), "");
        assert_eq!(last.code, Some(0), "{last:?}");
    }
}

fn a_job_waits_for_a_hold_on_the_path_of_a_lock(hosts: &str) {
    let (path, log) = (fresh_path("on-hold"), Log::new());
    assert_eq!(
        Zklock::run(hosts, &format!("run {path}"), ":").code,
        Some(0)
    );
    let hold = |time: &str| format!("hold --for {time} --reason incident {path}");
    assert_eq!(Zklock::run(hosts, &hold("1h"), "").code, Some(0));
    for limit in ["-n", "-w 1"] {
        let args = format!("once {limit} --slot a {path}");
        let ended = Zklock::run(hosts, &args, &log.write("ran"));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.err.contains("is on hold by"), "{ended:?}");
        assert!(ended.err.contains("incident"), "{ended:?}");
        assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    }
    let released = Zklock::run(hosts, &format!("release {path}"), "");
    assert_eq!(released.code, Some(0), "{released:?}");
    // Nobody but the job is there to remove this one.
    assert_eq!(Zklock::run(hosts, &hold("2s"), "").code, Some(0));
    let ended = Zklock::run(hosts, &once(&path, "a"), &log.write("ran"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(log.words(), ["ran"]);
}

fn a_path_in_use_that_cannot_be_a_jobs_is_told_at_once(hosts: &str) {
    let path = fresh_path("tracked");
    let client = Client::connect(hosts).expect("a client");
    let options = LockOptions::new().track_abandonment();
    let mutex = client.mutex(&path).expect("a mutex");
    let held = mutex.lock_with(options).expect("an answer");
    let asked = [
        once(&path, "a"),
        format!("last {path}"),
        format!("forget {path}"),
    ];
    for (args, script) in asked.iter().zip([":", "", ""]) {
        let ended = Zklock::run(hosts, args, script);
        assert_eq!(ended.code, Some(78), "{ended:?}");
        let ends = ", and not a job's: give the job a path of its own\n";
        assert!(ended.err.ends_with(ends), "{ended:?}");
        let holder = format!("pid {}", std::process::id());
        assert!(ended.err.contains(&holder), "{ended:?}");
    }
    drop(held);

    let path = fresh_path("kazoo");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&path);
    let node = format!("{path}/6f9c1c9e5a0b4b579a3e0123456789ab__lock__0000000001");
    raw.create(&node, b"", EPHEMERAL).expect("a node");
    let ended = Zklock::run(hosts, &once(&path, "a"), ":");
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert!(ended.err.contains("--dialect kazoo"), "{ended:?}");
}

/// The path was meant for a job.
fn a_semaphore_that_nobody_uses_makes_way(hosts: &str) {
    let path = fresh_path("idle");
    let permits = format!("run --permits 2 {path}");
    assert_eq!(Zklock::run(hosts, &permits, ":").code, Some(0));
    let mended = Zklock::run(hosts, &format!("forget --repair {path}"), "");
    assert_eq!(mended.code, Some(0), "{mended:?}");
    let ended = Zklock::run(hosts, &once(&path, "a"), ":");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

fn what_is_not_a_jobs_is_not_mended(hosts: &str) {
    let (path, log) = (fresh_path("not-a-job"), Log::new());
    let repair = format!("forget --repair {path}");
    let mut holder = Zklock::start(hosts, &format!("run --permits 2 {path}"), &log.beat("held"));
    log.await_word("held");
    let refused = Zklock::run(hosts, &repair, "");
    assert_eq!(refused.code, Some(70), "{refused:?}");
    assert!(
        refused.err.contains(&format!("zklock list {path}")),
        "{refused:?}"
    );
    holder.kill();
    let path = fresh_path("not-a-job");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&path);
    raw.set_data(&path, b"somebody's").expect("a node");
    let refused = Zklock::run(hosts, &format!("forget --repair {path}"), "");
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert_eq!(raw.data(&path).expect("a node"), b"somebody's");
}

fn the_command_knows_its_slot_and_a_lock_inside_has_none(hosts: &str) {
    let path = fresh_path("slot");
    let script = "echo $ZKLOCK_PATH $ZKLOCK_SLOT $ZKLOCK_ATTEMPT $ZKLOCK_TOKEN";
    let ended = Zklock::run(hosts, &once(&path, "a"), script);
    let words: Vec<_> = ended.out.split_whitespace().collect();
    let [lock, slot, attempt, token] = words[..] else {
        panic!("{ended:?}");
    };
    assert_eq!((lock, slot, attempt), (&*path, "a", "1"));
    let client = Client::connect(hosts).unwrap();
    let record = client.job(&path).unwrap().last().unwrap().unwrap();
    assert_eq!(record.token().to_string(), token);
    assert!(record.started().elapsed().unwrap_or_default() < Duration::from_secs(600));
    let zklock = env!("CARGO_BIN_EXE_zklock");
    let inner = fresh_path("inner");
    let script = format!("{zklock} run {inner} -- sh -c 'echo ${{ZKLOCK_SLOT-none}}'");
    assert_eq!(Zklock::run(hosts, &once(&path, "b"), &script).out, "none\n");
}

fn a_permit_is_refused_on_a_jobs_path_and_says_so(hosts: &str) {
    let (path, log) = (fresh_path("job"), Log::new());
    let refused = || {
        let ended = Zklock::run(hosts, &format!("run --permits 2 {path}"), ":");
        let said = format!(
            "zklock: {path} is a job's, whose record a semaphore would replace: give the permits a path of their own, or give the job up with zklock forget {path}\n"
        );
        assert_eq!((ended.code, ended.err), (Some(78), said));
    };
    // The command does not wait for a run after which it would be refused anyway.
    let script = format!("{}; read _", log.write("in"));
    let mut running = Zklock::start(hosts, &once(&path, "1"), &script);
    log.await_word("in");
    refused();
    running.feed("go on\n");
    assert_eq!(running.end().code, Some(0));
    refused();
    let again = Zklock::run(hosts, &once(&path, "1"), "exit 9");
    assert_eq!(again.code, Some(0), "{again:?}");
    let forgotten = Zklock::run(hosts, &format!("forget {path}"), "");
    assert_eq!(forgotten.code, Some(0), "{forgotten:?}");
    let permit = Zklock::run(hosts, &format!("run --permits 2 {path}"), "exit 3");
    assert_eq!(permit.code, Some(3), "{permit:?}");
}
