//! `--max-time` ends a command that runs for too long.

use crate::program::{Log, Zklock, await_queue, on_every_server};
use crate::support::fresh_path;

on_every_server! {
    a_command_that_runs_for_too_long_is_stopped_and_its_lock_is_free
    a_command_that_does_not_heed_it_is_killed
    a_run_of_a_job_that_is_stopped_is_not_done
    a_daemon_stands_in_line_again_after_its_time
    a_time_that_cannot_be_is_refused
}

fn a_command_that_runs_for_too_long_is_stopped_and_its_lock_is_free(hosts: &str) {
    let (path, log) = (fresh_path("limit"), Log::new());
    for on_lost in ["kill", "warn"] {
        let args = format!("run --max-time 0.3 --on-lost {on_lost} {path}");
        let script = format!(
            "trap '{}; exit 0' TERM; {}",
            log.write("told"),
            log.beat("ran")
        );
        let ended = Zklock::run(hosts, &args, &script);
        assert_eq!(ended.code, Some(75), "{ended:?}");
        assert!(ended.err.contains("longer than 300ms"), "{ended:?}");
        assert!(log.contains("ran"));
    }
    assert_eq!(log.words().iter().filter(|word| *word == "told").count(), 2);
    await_queue(hosts, &path, 0);
    let in_time = format!("run --max-time 99999d {path}");
    assert_eq!(Zklock::run(hosts, &in_time, "exit 7").code, Some(7));
}

fn a_command_that_does_not_heed_it_is_killed(hosts: &str) {
    let (path, log) = (fresh_path("deaf"), Log::new());
    let args = format!("run --max-time 0.3 --grace 0.3 {path}");
    let script = format!(
        "trap '' TERM; (setsid sh -c '{}') & {}",
        log.beat("away"),
        log.beat("deaf")
    );
    let ended = Zklock::run(hosts, &args, &script);
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(log.is_still());
    await_queue(hosts, &path, 0);
}

fn a_run_of_a_job_that_is_stopped_is_not_done(hosts: &str) {
    let (path, log) = (fresh_path("nightly"), Log::new());
    let args = format!("once --slot 1 --max-time 0.3 {path}");
    let script = format!(
        "trap 'exit 0' TERM; echo 1 > $ZKLOCK_STATE_OUT; {}",
        log.beat("ran")
    );
    let ended = Zklock::run(hosts, &args, &script);
    assert_eq!(ended.code, Some(75), "{ended:?}");
    let last = Zklock::run(hosts, &format!("last {path}"), "");
    assert_eq!(last.code, Some(1), "{last:?}");
    assert!(last.out.contains("it ran longer than 300ms"), "{last:?}");
    let next = Zklock::run(hosts, &args, "cat $ZKLOCK_STATE_IN; echo $ZKLOCK_ATTEMPT");
    assert_eq!((next.code, &*next.out), (Some(0), "2\n"), "{next:?}");
}

fn a_daemon_stands_in_line_again_after_its_time(hosts: &str) {
    let (path, log) = (fresh_path("daemon"), Log::new());
    let args = format!("standby --max-time 0.3 {path}");
    let zklock = Zklock::start(hosts, &args, &log.beat("term $ZKLOCK_TERM"));
    log.await_word("term 2");
    zklock.signal("TERM");
    assert_eq!(zklock.end().signal, Some(15));
}

fn a_time_that_cannot_be_is_refused(hosts: &str) {
    for time in ["0", "-1", "1e30", "inf", "x"] {
        for task in ["run", "once --slot 1", "standby"] {
            let args = format!("{task} --max-time={time} /limit");
            let ended = Zklock::run(hosts, &args, "exit 7");
            assert_eq!(ended.code, Some(64), "{ended:?}");
        }
    }
}
