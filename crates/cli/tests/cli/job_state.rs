//! The state that the command of `zklock once` leaves for the next run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use zklock::Client;

use crate::program::{Ended, Log, Zklock, await_queue, command, on_every_server, rounds};
use crate::support::zookeeper::Folder;
use crate::support::{eventually, fresh_path};

on_every_server! {
    a_command_reads_what_the_last_one_that_was_done_has_left
    what_cannot_be_kept_is_told_and_the_run_is_not_done
    the_files_are_private_and_gone_at_the_end
    the_files_are_found_from_every_folder
    an_empty_name_of_a_folder_names_none
    a_lock_inside_has_no_files
    without_room_for_the_files_nothing_is_lost
    a_cursor_moves_with_its_mark_whenever_the_program_is_killed
}

/// Counts the runs: the state is empty at first.
const COUNT: &str = "echo $(($(cat $ZKLOCK_STATE_IN) + 1)) > $ZKLOCK_STATE_OUT";

fn once(hosts: &str, path: &str, slot: &str, script: &str) -> Ended {
    Zklock::run(hosts, &format!("once --slot {slot} {path}"), script)
}

fn state(hosts: &str, path: &str) -> Option<String> {
    let client = Client::connect(hosts).unwrap();
    let state = client.job(path).unwrap().state().unwrap();
    state.map(|state| String::from_utf8(state).unwrap())
}

fn a_command_reads_what_the_last_one_that_was_done_has_left(hosts: &str) {
    let path = fresh_path("cursor");
    // A careful script does it like this.
    let careful = format!("set -euC; test ! -s $ZKLOCK_STATE_IN; {COUNT}");
    assert_eq!(once(hosts, &path, "1", &careful).code, Some(0));
    assert_eq!(state(hosts, &path).as_deref(), Some("1\n"));
    let failed = once(hosts, &path, "2", &format!("{COUNT}; exit 7"));
    assert_eq!(failed.code, Some(7), "{failed:?}");
    assert_eq!(once(hosts, &path, "2", COUNT).code, Some(0));
    // A command that writes nothing leaves the state that it got.
    let silent = once(hosts, &path, "3", "cat $ZKLOCK_STATE_IN");
    assert_eq!((silent.code, &*silent.out), (Some(0), "2\n"), "{silent:?}");
    assert_eq!(
        once(hosts, &path, "4", ": > $ZKLOCK_STATE_OUT").code,
        Some(0)
    );
    assert_eq!(state(hosts, &path).as_deref(), Some(""));
    let skipped = once(hosts, &path, "4", COUNT);
    assert!(skipped.err.contains("is done"), "{skipped:?}");
    assert_eq!(state(hosts, &path).as_deref(), Some(""));
}

fn what_cannot_be_kept_is_told_and_the_run_is_not_done(hosts: &str) {
    let path = fresh_path("too-big");
    assert_eq!(once(hosts, &path, "1", COUNT).code, Some(0));
    let table = [
        (
            "head -c 8193 /dev/zero > $ZKLOCK_STATE_OUT",
            "it has 8193 bytes, and a record has room for 8192: keep them elsewhere",
        ),
        (
            "head -c 9000000 /dev/zero > $ZKLOCK_STATE_OUT",
            "it has 9000000 bytes, and a record has room for 8192: keep them elsewhere",
        ),
        ("mkdir $ZKLOCK_STATE_OUT", "it is no file"),
        ("mkfifo $ZKLOCK_STATE_OUT", "it is no file"),
        ("ln -s /etc/passwd $ZKLOCK_STATE_OUT", "it is no file"),
    ];
    for (script, why) in table {
        let ended = once(hosts, &path, "2", script);
        assert_eq!(ended.code, Some(70), "{script}: {ended:?}");
        assert!(ended.err.contains(why), "{script}: {ended:?}");
        assert!(ended.err.contains("is not done"), "{script}: {ended:?}");
        let last = Zklock::run(hosts, &format!("last {path}"), "");
        assert!(last.out.contains("done:    slot 1,"), "{last:?}");
        assert!(last.out.contains(why), "{last:?}");
        assert_eq!(state(hosts, &path).as_deref(), Some("1\n"));
    }
    let all = once(
        hosts,
        &path,
        "2",
        "head -c 8192 /dev/zero > $ZKLOCK_STATE_OUT",
    );
    assert_eq!(all.code, Some(0), "{all:?}");
    let read = once(hosts, &path, "3", "wc -c < $ZKLOCK_STATE_IN");
    assert_eq!(read.out.trim(), "8192", "{read:?}");
}

/// Returns the folders of state files that are left in this folder.
fn left_in(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let ours = |path: &PathBuf| path.to_string_lossy().contains("zklock-state-");
    found.filter(ours).collect()
}

fn start_in(folder: &Path, hosts: &str, path: &str, script: &str) -> Zklock {
    let mut command = command(hosts);
    command
        .env("TMPDIR", folder)
        .args(["once", "--slot", "1", path]);
    Zklock::spawn(command.args(["--", "sh", "-c", script]))
}

fn the_files_are_private_and_gone_at_the_end(hosts: &str) {
    let folder = Folder::new();
    let temporary = folder.path("tmp");
    fs::create_dir(&temporary).unwrap();
    for (signal, code) in [("TERM", 143), ("INT", 130), ("ALRM", 142), ("KILL", 137)] {
        let (path, log) = (fresh_path("private"), Log::new());
        let zklock = start_in(&temporary, hosts, &path, &log.beat("begun"));
        log.await_word("begun");
        let [ours] = &left_in(&temporary)[..] else {
            panic!("{:?}", left_in(&temporary))
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(ours), mode(&ours.join("in"))), (0o700, 0o600));
        zklock.signal(signal);
        assert_eq!(zklock.end().code, Some(code));
        eventually("they are gone", || left_in(&temporary).is_empty());
    }
    let ended = start_in(&temporary, hosts, &fresh_path("private"), COUNT).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(left_in(&temporary).is_empty());
}

fn the_files_are_found_from_every_folder(hosts: &str) {
    let folder = Folder::new();
    fs::create_dir(folder.path("tmp")).unwrap();
    let (path, log) = (fresh_path("relative"), Log::new());
    let start = |slot: &str, script: &str| {
        let mut command = command(hosts);
        command.env("TMPDIR", "tmp").current_dir(folder.path(""));
        command.args(["once", "--slot", slot, &path]);
        Zklock::spawn(command.args(["--", "sh", "-c", script]))
    };
    let ended = start("1", &format!("cd /; {COUNT}")).end();
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    assert_eq!(state(hosts, &path).as_deref(), Some("1\n"));
    let mut killed = start("2", &log.beat("begun"));
    log.await_word("begun");
    killed.kill();
    let left = || left_in(&folder.path("tmp"));
    eventually("they are gone", || left().is_empty());
}

fn an_empty_name_of_a_folder_names_none(hosts: &str) {
    let mut command = command(hosts);
    command.env("TMPDIR", "");
    command.args(["once", "--slot", "1", &fresh_path("no-folder"), "--"]);
    command.args(["sh", "-c", "echo $ZKLOCK_STATE_OUT"]);
    let ended = Zklock::spawn(&mut command).end();
    assert!(ended.out.starts_with("/tmp/zklock-state-"), "{ended:?}");
}

fn a_lock_inside_has_no_files(hosts: &str) {
    let (zklock, inner) = (env!("CARGO_BIN_EXE_zklock"), fresh_path("inner"));
    let names = "${ZKLOCK_STATE_IN-none} ${ZKLOCK_STATE_OUT-none}";
    let script = format!("{zklock} run {inner} -- sh -c 'echo {names}'");
    let ended = once(hosts, &fresh_path("outer"), "1", &script);
    assert_eq!(ended.out, "none none\n", "{ended:?}");
}

fn without_room_for_the_files_nothing_is_lost(hosts: &str) {
    let path = fresh_path("no-room");
    let nowhere = Path::new("/proc/none");
    // No run has left a state: a command that needs none goes on.
    let script = "echo ran ${ZKLOCK_STATE_OUT-none}; exit 7";
    let ended = start_in(nowhere, hosts, &path, script).end();
    assert_eq!(
        (ended.code, &*ended.out),
        (Some(7), "ran none\n"),
        "{ended:?}"
    );
    assert!(ended.err.contains("/proc/none"), "{ended:?}");
    assert_eq!(once(hosts, &path, "0", COUNT).code, Some(0));
    let ended = start_in(nowhere, hosts, &path, "echo ran").end();
    assert_eq!((ended.code, &*ended.out), (Some(70), ""), "{ended:?}");
    let advice = "; TMPDIR may name another folder";
    let told = ended.err.contains("/proc/none") && ended.err.contains(advice);
    assert!(told, "{ended:?}");
    assert_eq!(state(hosts, &path).as_deref(), Some("1\n"));
}

/// Each night is run until it is done, by programs most of which are killed before or after they
/// have written the end down, together with their commands and their locks.
fn a_cursor_moves_with_its_mark_whenever_the_program_is_killed(hosts: &str) {
    let path = fresh_path("killed");
    let client = Client::connect(hosts).unwrap();
    let job = client.job(&path).unwrap();
    let (mut night, mut kills) = (1, 0);
    for _ in 0..rounds(40) {
        let log = Log::new();
        let args = format!("--session-timeout 2 once --slot {night:06} {path}");
        let script = format!("{}; {COUNT}; sleep 0.02", log.write("begun"));
        let mut zklock = Zklock::start(hosts, &args, &script);
        // On a busy machine a session as short as this may be lost before the command begins.
        let begun = || log.contains("begun");
        eventually("it has begun", || begun() || zklock.has_ended());
        thread::sleep(Duration::from_micros(fastrand::u64(0..40_000)));
        zklock.kill();
        kills += i32::from(zklock.end().code == Some(137));
        // Its last requests may still be on their way.
        await_queue(hosts, &path, 0);
        let last = job.last().unwrap();
        let done = last.map_or(0, |run| run.slot().parse().unwrap());
        let left = state(hosts, &path).unwrap_or_default();
        let count = left.trim().parse().unwrap_or(0);
        assert_eq!((count, done), (done, count));
        assert!(done == night || done + 1 == night, "{done} in {night}");
        night = done + 1;
    }
    println!("{kills} were killed, and {} nights are done", night - 1);
}
