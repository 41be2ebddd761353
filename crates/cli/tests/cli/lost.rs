//! The end of a command whose lock is lost, which comes before the next command begins.
//!
//! All commands of a test write to one file, so the order of its lines is the order of events,
//! whatever the clocks say.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use zklock::Client;
use zklock::embedded::Server;

use crate::processes::{can_unshare, debug, foreign, is_root, keeper_of, limit_files};
use crate::program::{
    Ended, Log, Zklock, assert_keeps_the_lock_until_a_signal, await_queue, command, on_every_server,
};
use crate::support::proxy::Proxy;
use crate::support::raw::{Raw, children};
use crate::support::{eventually, fresh_path, run, timed};

/// A session timeout that keeps the tests short, and is long enough for a busy machine.
const SHORT: &str = "--session-timeout 6";

/// The number of bytes that a pipe holds before a writer must wait.
const PIPE: usize = 65_536;

/// The longest session timeout that the servers allow.
const LONG: &str = "--session-timeout 10";

on_every_server! {
    nothing_of_a_command_is_left_when_a_blackhole_has_cost_it_its_lock
    nothing_of_a_command_is_left_when_it_was_evicted
    nothing_of_a_command_is_left_when_zklock_is_killed
    a_lock_whose_zklock_is_killed_is_free_before_its_session_would_end
    a_killed_zklock_keeps_its_lock_for_the_command_of_another_inside
    a_killed_zklock_keeps_its_lock_for_a_process_without_its_first_thread
    a_killed_zklock_reads_from_no_pipe
    a_lock_is_free_after_a_kill_though_the_credentials_are_gone
    a_killed_zklock_keeps_its_lock_while_something_of_its_command_cannot_be_killed
    a_stderr_that_nobody_reads_does_not_delay_the_end_of_a_command
    what_left_the_group_keeps_the_lock_and_hears_signals
    a_connection_that_breaks_and_comes_back_costs_nothing
    a_command_may_go_on_without_its_lock_if_the_user_wants
    a_command_that_stops_in_time_is_not_killed
    a_stop_that_outlasts_the_session_ends_the_command_in_time_and_is_told
    a_shorter_stop_of_zklock_alone_costs_no_command
    a_stop_ends_a_command_whose_keeper_may_open_no_files
    a_stop_ends_a_command_that_stops_and_goes_on_often
    a_debugger_that_holds_the_first_thread_ends_the_command
    a_disk_that_hangs_with_the_ready_file_saves_no_command
}

/// Returns commands that are hard to stop.
fn stubborn(log: &Log) -> [String; STUBBORN] {
    let beat = log.beat("beat");
    [
        format!("trap '' TERM HUP INT; {beat}"),
        // Its parts are not children of each other, and its head has ended.
        format!("trap '' TERM; ({beat}) & ({beat}) & exit 0"),
        format!("({beat}) & wait"),
        // These leave the process group, and the last ones leave their parent too.
        format!("trap '' TERM; timeout 600 sh -c '{beat}'"),
        format!("setsid sh -c '{beat}' & wait"),
        format!("exec bash -c 'set -m; ({beat}) & wait'"),
        format!("(setsid sh -c \"trap '' TERM; ({beat}) & {beat}\" &); sleep 60"),
    ]
}

const STUBBORN: usize = 7;

/// Lets another client wait for the lock, takes it from the command, and checks the order.
#[track_caller]
fn assert_gone_before_the_next(hosts: &str, through: &str, script: usize, lose: impl FnOnce(&str)) {
    let log = assert_gone(hosts, through, script, lose);
    assert_eq!(log.words().last().map(String::as_str), Some("next"));
}

/// Like the above, but the lock is taken by force: the next client may have it before the first one
/// can know of that.
#[track_caller]
fn assert_gone(hosts: &str, through: &str, script: usize, lose: impl FnOnce(&str)) -> Log {
    let (path, log) = (fresh_path("lost"), Log::new());
    let script = &stubborn(&log)[script];
    let first = Zklock::start(through, &format!("run {SHORT} {path}"), script);
    lose_to_the_next(hosts, &path, &log, first, lose);
    log
}

#[track_caller]
fn lose_to_the_next(hosts: &str, path: &str, log: &Log, first: Zklock, lose: impl FnOnce(&str)) {
    log.await_word("beat");
    let next = format!("{}; sleep 0.5", log.write("next"));
    let next = Zklock::start(hosts, &format!("run {path}"), &next);
    eventually("somebody waits", || children(hosts, path).len() == 2);
    lose(path);
    let first = first.end();
    assert_eq!(first.code, Some(75), "{}", first.err);
    assert_eq!(log.writers("beat"), 0);
    let next = next.end();
    assert_eq!(next.code, Some(0), "{}", next.err);
    assert!(log.is_still());
}

fn nothing_of_a_command_is_left_when_a_blackhole_has_cost_it_its_lock(hosts: &str) {
    thread::scope(|scope| {
        for script in 0..STUBBORN {
            scope.spawn(move || {
                let proxy = Proxy::start(hosts);
                assert_gone_before_the_next(hosts, &proxy.hosts(), script, |_| proxy.blackhole());
            });
        }
    });
}

fn nothing_of_a_command_is_left_when_it_was_evicted(hosts: &str) {
    for script in 0..STUBBORN {
        assert_gone(hosts, hosts, script, |path| {
            let holder = &children(hosts, path)[0];
            // The sequence number shows which was first, not the name.
            let first = children(hosts, path)
                .into_iter()
                .min_by_key(|name| name[name.len() - 10..].to_owned());
            let node = first.as_ref().unwrap_or(holder);
            let deleted = Raw::connect(hosts).delete(&format!("{path}/{node}"));
            assert_eq!(deleted, Ok(()));
        });
    }
}

#[test]
fn nothing_of_a_command_is_left_when_its_session_was_ended() {
    let tick = Duration::from_millis(500);
    let server = Server::builder().tick(tick).start().expect("a server");
    for script in 0..STUBBORN {
        assert_gone(server.hosts(), server.hosts(), script, |path| {
            let list = Zklock::run(server.hosts(), &format!("list --json {path}"), "");
            let json: serde_json::Value = serde_json::from_str(&list.out).expect("JSON");
            let session = json["contenders"][0]["session"]
                .as_str()
                .expect("a session");
            let session = i64::from_str_radix(session.trim_start_matches("0x"), 16);
            assert!(server.expire_session(session.expect("a number")));
        });
    }
}

fn nothing_of_a_command_is_left_when_zklock_is_killed(hosts: &str) {
    for script in [0, 2, 3, 4, 5, 6] {
        let (path, log) = (fresh_path("killed"), Log::new());
        let script = &stubborn(&log)[script];
        let mut zklock = Zklock::start(hosts, &format!("run {SHORT} {path}"), script);
        log.await_word("beat");
        zklock.kill();
        log.await_end("beat");
        let next = Zklock::run(hosts, &format!("run -w 30 {path}"), ":");
        assert_eq!(next.code, Some(0), "{}", next.err);
        await_queue(hosts, &path, 0);
    }
}

/// The lock is released from outside when the last process of the command is gone, not before.
fn a_lock_whose_zklock_is_killed_is_free_before_its_session_would_end(hosts: &str) {
    for script in [0, 2, 3, 4, 5, 6] {
        let (path, log) = (fresh_path("free"), Log::new());
        let script = &stubborn(&log)[script];
        let mut zklock = Zklock::start(hosts, &format!("run {LONG} {path}"), script);
        log.await_word("beat");
        let next = Zklock::start(hosts, &format!("run {path}"), &log.write("next"));
        await_queue(hosts, &path, 2);
        zklock.kill();
        let (next, took) = timed(|| next.end());
        assert_eq!(next.code, Some(0), "{}", next.err);
        assert!(took < Duration::from_secs(8), "{took:?}");
        assert_eq!(log.writers("beat"), 0);
        assert_eq!(log.words().last().unwrap(), "next");
    }
}

/// Nothing else would end the command of the inner `zklock`.
fn a_killed_zklock_keeps_its_lock_for_the_command_of_another_inside(hosts: &str) {
    let (path, inner, log) = (fresh_path("outer"), fresh_path("inner"), Log::new());
    let zklock = env!("CARGO_BIN_EXE_zklock");
    let script = format!(
        "{zklock} run {inner} -- setsid -w sh -c '{}'",
        log.beat("beat")
    );
    let mut outer = Zklock::start(hosts, &format!("run {LONG} {path}"), &script);
    log.await_word("beat");
    let next = Zklock::start(hosts, &format!("run {path}"), &log.write("next"));
    await_queue(hosts, &path, 2);
    outer.kill();
    let next = next.end();
    assert_eq!(next.code, Some(0), "{}", next.err);
    assert_eq!(log.writers("beat"), 0);
    assert_eq!(log.words().last().unwrap(), "next");
}

fn kill(process: &str) {
    let sent = Command::new("kill").args(["-9", process]).status();
    assert!(sent.expect("kill").success());
}

fn a_killed_zklock_keeps_its_lock_for_a_process_without_its_first_thread(hosts: &str) {
    let (path, log) = (fresh_path("headless"), Log::new());
    let python = "import ctypes, threading, time\n\
        def beat():\n  \
        while True:\n    \
        open(\"FILE\", \"a\").write(\"beat\\n\")\n    \
        time.sleep(0.02)\n\
        threading.Thread(target=beat).start()\n\
        ctypes.CDLL(None).pthread_exit(None)";
    let python = python.replace("FILE", &log.file().display().to_string());
    let script = format!("setsid -w python3 -c '{python}'");
    let mut zklock = Zklock::start(hosts, &format!("run {LONG} {path}"), &script);
    log.await_word("beat");
    // Its first thread ends.
    thread::sleep(Duration::from_millis(300));
    let next = Zklock::start(hosts, &format!("run {path}"), &log.write("next"));
    await_queue(hosts, &path, 2);
    zklock.kill();
    let next = next.end();
    assert_eq!(next.code, Some(0), "{}", next.err);
    assert!(log.is_still());
    assert_eq!(log.words().last().unwrap(), "next");
}

/// Part of the command runs as another user, as after `sudo`. Only root can send that part a
/// signal.
fn a_killed_zklock_keeps_its_lock_while_something_of_its_command_cannot_be_killed(hosts: &str) {
    if !is_root() {
        return println!("only root can start a process as another user");
    }
    let (path, log) = (fresh_path("foreign"), Log::new());
    let (_, foreign) = foreign(&log);
    let script = format!(
        "setsid {foreign} --reuid 0 --clear-groups sleep 3600 & {}; wait",
        log.write("$!")
    );
    let mut zklock = Command::new("setpriv");
    zklock.args(["--reuid", "65534", "--clear-groups"]);
    zklock
        .arg(env!("CARGO_BIN_EXE_zklock"))
        .env("ZKLOCK_HOSTS", hosts);
    zklock
        .args(format!("run {LONG} {path} -- sh -c").split(' '))
        .arg(&script);
    let mut zklock = Zklock::spawn(&mut zklock);
    eventually("a process", || !log.words().is_empty());
    let process = log.words().remove(0);
    let name = || fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    eventually("it is the other user's", || name() == "sleep\n");
    let next = Zklock::start(hosts, &format!("run {path}"), &log.write("next"));
    await_queue(hosts, &path, 2);
    zklock.kill();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(
        log.words().len(),
        1,
        "the lock is free, and {process} goes on"
    );
    kill(&process);
    let next = next.end();
    assert_eq!(next.code, Some(0), "{}", next.err);
    assert_eq!(log.words().last().unwrap(), "next");
}

/// What is in it may be meant for another process, and opening the pipe blocks.
fn a_killed_zklock_reads_from_no_pipe(hosts: &str) {
    for (option, text) in [
        ("--auth-file ", "digest:ann:secret"),
        ("--hosts file:", hosts),
    ] {
        let (path, log) = (fresh_path("pipe"), Log::new());
        let file = log.file().with_file_name("pipe");
        let made = Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(&file)
            .status();
        assert!(made.expect("mkfifo").success());
        let args = format!("{SHORT} {option}{} run {path}", file.display());
        let mut zklock = Zklock::start(hosts, &args, &log.beat("beat"));
        fs::write(&file, text).expect("writing");
        log.await_word("beat");
        let keeper = keeper_of(zklock.id());
        zklock.kill();
        eventually("nothing waits for the pipe", || {
            !Path::new("/proc").join(&keeper).exists()
        });
        await_queue(hosts, &path, 0);
    }
}

/// Once, it was free when its session had timed out.
fn a_lock_is_free_after_a_kill_though_the_credentials_are_gone(hosts: &str) {
    for (kind, then) in [
        ("file", None),
        ("file", Some("garbled")),
        ("pipe", Some("")),
    ] {
        let (path, log) = (fresh_path("credentials"), Log::new());
        let file = log.file().with_file_name("auth");
        if kind == "pipe" {
            let mut make = Command::new("mkfifo");
            let made = make.args(["-m", "600"]).arg(&file).status();
            assert!(made.expect("mkfifo").success());
        }
        let write = |text: &str| fs::write(&file, text).expect("writing");
        let start = || {
            let args = format!("{LONG} --acl creator --auth-file {}", file.display());
            Zklock::start(hosts, &format!("{args} run {path}"), &log.beat("beat"))
        };
        let credentials = "digest:ann:secret";
        let mut zklock = match kind {
            "pipe" => {
                let zklock = start();
                write(credentials);
                zklock
            }
            _ => {
                write(credentials);
                start()
            }
        };
        log.await_word("beat");
        match then {
            None => fs::remove_file(&file).expect("removing"),
            Some("") => {}
            Some(text) => write(text),
        }
        let client = Client::builder(hosts).auth("digest", "ann:secret");
        let client = client.connect().expect("a client");
        let present = || client.contenders(&path).expect("an answer").len();
        assert_eq!(present(), 1);
        let begun = Instant::now();
        zklock.kill();
        eventually("the lock is free", || present() == 0);
        assert!(begun.elapsed() < Duration::from_secs(8), "{kind} {then:?}");
    }
}

fn a_stderr_that_nobody_reads_does_not_delay_the_end_of_a_command(hosts: &str) {
    // The library's threads have something to say too.
    for verbose in ["", "-vvv "] {
        let (path, log, proxy) = (fresh_path("blocked"), Log::new(), Proxy::start(hosts));
        let (_reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let mut writer = File::from(writer);
        // The pipe is full: from now on a writer must wait.
        writer.write_all(&vec![b'.'; PIPE]).expect("filling a pipe");
        let mut command = command(&proxy.hosts());
        command.args(format!("{verbose}run {SHORT} {path} -- sh -c").split(' '));
        command.arg(log.beat("beat"));
        let first = Zklock::spawn_to(&mut command, writer);
        lose_to_the_next(hosts, &path, &log, first, |_| proxy.blackhole());
        assert_eq!(log.words().last().map(String::as_str), Some("next"));
    }
}

fn what_left_the_group_keeps_the_lock_and_hears_signals(hosts: &str) {
    for leave in ["timeout 60", "setsid"] {
        let (path, log) = (fresh_path("left"), Log::new());
        let script = format!("{leave} sh -c '{}' & exit 5", log.beat("beat"));
        assert_keeps_the_lock_until_a_signal(hosts, &path, &log, &script);
        assert_eq!(log.writers("beat"), 0);
    }
}

fn a_connection_that_breaks_and_comes_back_costs_nothing(hosts: &str) {
    let (path, log, proxy) = (fresh_path("broken"), Log::new(), Proxy::start(hosts));
    let args = format!("run {LONG} {path}");
    let script = format!("{}; read _; {}", log.write("in"), log.write("out"));
    let mut zklock = Zklock::start(&proxy.hosts(), &args, &script);
    log.await_word("in");
    for _ in 0..3 {
        let connections = proxy.connections();
        proxy.cut();
        eventually("it comes back", || connections < proxy.connections());
    }
    zklock.feed("go on\n");
    let ended = zklock.end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    assert_eq!(log.words(), ["in", "out"]);
}

fn a_command_may_go_on_without_its_lock_if_the_user_wants(hosts: &str) {
    let (path, log, proxy) = (fresh_path("warn"), Log::new(), Proxy::start(hosts));
    let args = format!("run {LONG} --on-lost warn {path}");
    let script = format!("{}; read _; exit 3", log.write("in"));
    let mut first = Zklock::start(&proxy.hosts(), &args, &script);
    log.await_word("in");
    // A client that finds no server is in doubt sooner, and so for longer, than in a blackhole.
    proxy.refuse();
    assert_eq!(
        Zklock::run(hosts, &format!("run -w 30 {path}"), ":").code,
        Some(0)
    );
    first.feed("go on\n");
    let ended = first.end();
    assert_eq!(ended.code, Some(3));
    assert!(
        ended.err.contains("in doubt") && ended.err.contains("lost"),
        "{}",
        ended.err
    );
}

fn a_command_that_stops_in_time_is_not_killed(hosts: &str) {
    let (path, log, proxy) = (fresh_path("stops"), Log::new(), Proxy::start(hosts));
    let args = format!("run {LONG} --grace 4 {path}");
    let script = format!(
        "trap '{}; exit 0' TERM; {}",
        log.write("bye"),
        log.beat("beat")
    );
    let zklock = Zklock::start(&proxy.hosts(), &args, &script);
    log.await_word("beat");
    proxy.refuse();
    let ended = zklock.end();
    assert_eq!(ended.code, Some(75));
    assert!(!ended.err.contains("killed"), "{}", ended.err);
    assert_eq!(log.words().last().map(String::as_str), Some("bye"));
}

fn a_stop_that_outlasts_the_session_ends_the_command_in_time_and_is_told(hosts: &str) {
    let ended = assert_ended_before_the_next(hosts, |first, _| first.signal("STOP"));
    let told = [
        "as zklock was stopped for ",
        "and a session lasts 6s without it: killed the command",
    ];
    for told in told {
        assert!(ended.err.contains(told), "{ended:?}");
    }
}

fn a_shorter_stop_of_zklock_alone_costs_no_command(hosts: &str) {
    let (path, log) = (fresh_path("short"), Log::new());
    let mut first = Zklock::start(
        hosts,
        &format!("run --session-timeout 20 {path}"),
        &log.beat("beat"),
    );
    log.await_word("beat");
    first.signal("STOP");
    thread::sleep(Duration::from_secs(2));
    first.signal("CONT");
    let beats = log.words().len();
    eventually("it goes on", || beats + 100 < log.words().len());
    assert!(!first.has_ended());
    first.signal("TERM");
    assert_eq!(first.end().signal, Some(15));
}

/// On a busy machine the servers may take longer than their time, but not three times.
#[test]
fn a_lock_that_servers_confirm_after_a_stop_costs_no_command() {
    let tick = Duration::from_secs(1);
    let server = Server::builder().tick(tick).start().expect("a server");
    let goes_on = || goes_on_after_a_stop(server.hosts());
    assert!((0..3).any(|_| goes_on()), "the command was stopped");
}

/// Returns whether a command goes on after its `zklock` was stopped for so long that the lock is in
/// doubt.
fn goes_on_after_a_stop(hosts: &str) -> bool {
    let (path, log) = (fresh_path("confirmed"), Log::new());
    let run = format!("run --session-timeout 20 {path}");
    let mut first = Zklock::start(hosts, &run, &log.beat("beat"));
    log.await_word("beat");
    first.signal("STOP");
    thread::sleep(Duration::from_millis(6_800));
    first.signal("CONT");
    let beats = log.words().len();
    let goes_on = || beats + 100 < log.words().len();
    eventually("it goes on or ends", || goes_on() || first.has_ended());
    let went_on = !first.has_ended();
    if went_on {
        first.signal("TERM");
    }
    first.end();
    went_on
}

/// Runs a command, and stops its `zklock` for longer than the session lasts, in this way, which
/// gets the number of the command's process. Checks that the next command begins after its end.
#[track_caller]
fn assert_ended_before_the_next(hosts: &str, stop: impl FnOnce(&mut Zklock, &str)) -> Ended {
    let (path, log, head) = (fresh_path("stopped"), Log::new(), Log::new());
    let beat = log.beat("beat");
    let script = format!("{}; setsid sh -c '{beat}' & {beat}", head.write("$$"));
    let mut first = Zklock::start(hosts, &format!("run {SHORT} {path}"), &script);
    log.await_word("beat");
    stop(&mut first, &head.words()[0]);
    let stopped = Instant::now();
    let next = format!("{}; sleep 0.5", log.write("next"));
    let next = Zklock::run(hosts, &format!("run -w 60 {path}"), &next);
    assert_eq!(next.code, Some(0), "{next:?}");
    assert_eq!(log.words().last().map(String::as_str), Some("next"));
    // The session ended one timeout after its last message.
    thread::sleep(Duration::from_millis(6_500).saturating_sub(stopped.elapsed()));
    first.signal("CONT");
    let ended = first.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    ended
}

fn a_stop_ends_a_command_whose_keeper_may_open_no_files(hosts: &str) {
    assert_ended_before_the_next(hosts, |first, _| {
        limit_files(&keeper_of(first.id()), "3");
        first.signal("STOP");
    });
}

/// The command stops more often than there is room for messages about it.
fn a_stop_ends_a_command_that_stops_and_goes_on_often(hosts: &str) {
    assert_ended_before_the_next(hosts, |first, head| {
        first.signal("STOP");
        // On a busy machine, the script is killed meanwhile.
        let toggle = format!(
            "for i in $(seq 400); do kill -STOP {head} && sleep 0.002 && kill -CONT {head} || exit 0; done"
        );
        run(Command::new("bash").args(["-c", &toggle]));
    });
}

/// The other threads maintain the lock, but the thread that would stop the command hears of no
/// loss.
fn a_debugger_that_holds_the_first_thread_ends_the_command(hosts: &str) {
    if !is_root() {
        return println!("only root can debug everywhere");
    }
    let (path, log) = (fresh_path("debugged"), Log::new());
    let mut first = Zklock::start(hosts, &format!("run {SHORT} {path}"), &log.beat("beat"));
    log.await_word("beat");
    let debugger = debug(&first.id().to_string(), "stop");
    eventually("the command ends", || log.is_still());
    drop(debugger);
    assert_eq!(first.end().code, Some(75));
}

/// A file system in a file, which hangs while it is frozen.
struct Disk {
    /// The process that sees it.
    of: String,
    folder: String,
}

impl Disk {
    fn freeze(&self, how: &str) {
        let there = ["-t", &self.of, "-m", "fsfreeze", how, &self.folder];
        run(Command::new("nsenter").args(there));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.freeze("--unfreeze");
    }
}

/// The command has got SIGTERM, and the thread that would kill it waits for the disk.
fn a_disk_that_hangs_with_the_ready_file_saves_no_command(hosts: &str) {
    let (path, log, proxy) = (fresh_path("hangs"), Log::new(), Proxy::start(hosts));
    let [image, folder] =
        ["image", "disk"].map(|name| log.file().with_file_name(name).display().to_string());
    fs::create_dir(&folder).expect("a folder");
    let mount = format!("mount -o loop {image} {folder}");
    let make = format!("truncate -s 16M {image} && mkfs.ext4 -q {image} && unshare -m {mount}");
    let made = Command::new("sh").args(["-c", &make]).status();
    if !can_unshare() || !made.is_ok_and(|status| status.success()) {
        return println!("only root can mount a file system everywhere");
    }
    let standby = format!("standby {SHORT} --ready-file {folder}/ready {path}");
    let script = format!(
        "{mount} && exec {} {standby} -- sh -c \"$0\"",
        env!("CARGO_BIN_EXE_zklock")
    );
    let mut mounted = Command::new("unshare");
    mounted.args(["-m", "sh", "-c", &script]);
    mounted.arg(format!("trap '' TERM; {}", log.beat("beat")));
    let mut first = Zklock::spawn(mounted.env("ZKLOCK_HOSTS", proxy.hosts()));
    log.await_word("beat");
    let of = first.id().to_string();
    let disk = Disk { of, folder };
    disk.freeze("--freeze");
    proxy.blackhole();
    let next = format!("{}; sleep 0.5", log.write("next"));
    let next = Zklock::run(hosts, &format!("run -w 30 {path}"), &next);
    assert_eq!(next.code, Some(0), "{next:?}");
    assert_eq!(log.words().last().map(String::as_str), Some("next"));
    drop(disk);
    // It stands in line again.
    first.kill();
}
