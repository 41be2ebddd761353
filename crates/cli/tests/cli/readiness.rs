//! The ways in which `zklock standby` tells others whether it is active.

use std::fs;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::program::{Log, Zklock, await_queue, command, embedded, on_every_server, rounds};
use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, Raw, children};
use crate::support::zookeeper::Folder;
use crate::support::{eventually, fresh_path};

on_every_server! {
    the_ready_file_is_there_while_the_command_runs
    the_ready_file_is_gone_before_another_machine_is_active
    the_ready_file_of_a_killed_zklock_is_removed
    a_zklock_that_is_killed_as_its_command_begins_leaves_no_ready_file
    a_probe_tells_whether_this_machine_is_active
    a_probe_tells_a_standby_from_who_shares_the_lock
}

/// Starts a standby with this ready file.
fn start(hosts: &str, path: &str, file: &PathBuf, script: &str) -> Zklock {
    Zklock::spawn(&mut with_file(hosts, path, file, script))
}

fn with_file(hosts: &str, path: &str, file: &PathBuf, script: &str) -> Command {
    let mut command = command(hosts);
    command.args(["--session-timeout", "6", "standby", "--ready-file"]);
    command.arg(file).args([path, "--", "sh", "-c", script]);
    command
}

fn the_ready_file_is_there_while_the_command_runs(hosts: &str) {
    let (path, log, folder) = (fresh_path("ready"), Log::new(), Folder::new());
    let [one, two] = ["one", "two"].map(|name| folder.path(name));
    // The file of an earlier process says nothing.
    fs::write(&two, "stale").unwrap();
    let script = |word: &str, file: &PathBuf| {
        let sees = format!("test -s {} && {}", file.display(), log.write(word));
        format!("{sees}; {}", log.beat("beat"))
    };
    let first = start(hosts, &path, &one, &script("one", &one));
    log.await_word("one");
    let node = children(hosts, &path).remove(0);
    assert_eq!(
        fs::read_to_string(&one).unwrap(),
        format!("{path}/{node}\n")
    );
    let second = start(hosts, &path, &two, &script("two", &two));
    await_queue(hosts, &path, 2);
    assert!(one.exists() && !two.exists());
    first.signal("TERM");
    assert_eq!(first.end().signal, Some(15));
    assert!(!one.exists());
    log.await_word("two");
    second.signal("TERM");
    second.end();
    assert!(!two.exists());
    assert_eq!(fs::read_dir(folder.path("")).unwrap().count(), 0);
}

fn the_ready_file_is_gone_before_another_machine_is_active(hosts: &str) {
    for end in ["revoked", "cut off"] {
        assert!(is_gone_first(hosts, end), "{end}");
    }
    // The next in line knows as soon as the holder, which then has a quarter of a second: not enough on a machine
    // that stands still for longer.
    assert!((0..3).any(|_| is_gone_first(hosts, "evicted")));
}

/// Returns whether the next command, which begins when the command before has ended in this way, finds no file of
/// that one.
fn is_gone_first(hosts: &str, end: &str) -> bool {
    let (path, log, folder) = (fresh_path("gone"), Log::new(), Folder::new());
    let [one, two] = ["one", "two"].map(|name| folder.path(name));
    let proxy = Proxy::start(hosts);
    let first = start(&proxy.hosts(), &path, &one, &log.beat("first"));
    log.await_word("first");
    eventually("the file is there", || one.exists());
    let next = format!(
        "test -e {} && {}; {}; sleep 60",
        one.display(),
        log.write("both"),
        log.write("second")
    );
    let second = start(hosts, &path, &two, &next);
    await_queue(hosts, &path, 2);
    match end {
        "revoked" => {
            let asked = Zklock::run(hosts, &format!("revoke {path}"), "");
            assert_eq!(asked.code, Some(0));
        }
        "evicted" => {
            let names = children(hosts, &path);
            let first = names.iter().min_by_key(|name| name.rsplit('-').next());
            let node = format!("{path}/{}", first.unwrap());
            Raw::connect(hosts).delete(&node).unwrap();
        }
        _ => proxy.blackhole(),
    }
    log.await_word("second");
    let is_gone = !log.words().contains(&"both".to_owned()) && !one.exists();
    proxy.heal();
    for standby in [second, first] {
        standby.signal("TERM");
        standby.end();
    }
    is_gone
}

fn the_ready_file_of_a_killed_zklock_is_removed(hosts: &str) {
    let (path, log, folder) = (fresh_path("killed"), Log::new(), Folder::new());
    let file = folder.path("ready");
    let mut killed = with_file(hosts, &path, &PathBuf::from("ready"), &log.beat("first"));
    let mut killed = Zklock::spawn(killed.current_dir(folder.path("")));
    log.await_word("first");
    eventually("the file is there", || file.exists());
    let next = format!("test -e {} && exit 9", file.display());
    let second = Zklock::start(hosts, &format!("standby {path}"), &next);
    await_queue(hosts, &path, 2);
    killed.kill();
    assert_eq!(second.end().code, Some(1));
    assert!(!file.exists());
}

fn a_zklock_that_is_killed_as_its_command_begins_leaves_no_ready_file(hosts: &str) {
    for _ in 0..rounds(5) {
        let (path, folder) = (fresh_path("begins"), Folder::new());
        let file = folder.path("ready");
        let mut killed = start(hosts, &path, &file, "sleep 100");
        let since = Instant::now();
        while !file.exists() {
            assert!(since.elapsed() < Duration::from_secs(20), "no file");
        }
        killed.kill();
        eventually("the file is gone", || !file.exists());
        await_queue(hosts, &path, 0);
    }
}

fn a_probe_tells_whether_this_machine_is_active(hosts: &str) {
    let (path, log) = (fresh_path("probe"), Log::new());
    let probe = || Zklock::run(hosts, &format!("standby --status {path}"), "");
    let none = probe();
    assert_eq!(none.code, Some(1), "{none:?}");
    assert_eq!(none.out, format!("no machine is active for {path}\n"));
    let pause = |kind: &str| Zklock::run(hosts, &format!("{kind} {path}"), "");
    assert_eq!(pause("pause --reason repair").code, Some(0));
    let paused = probe();
    assert_eq!(paused.code, Some(1), "{paused:?}");
    let said = format!("no machine is active for {path}: ");
    assert!(paused.out.starts_with(&said), "{paused:?}");
    assert_eq!(pause("resume").code, Some(0));
    let mut standby = Zklock::start(hosts, &format!("standby {path}"), &log.beat("beat"));
    log.await_word("beat");
    let here = probe();
    assert_eq!(here.code, Some(0), "{here:?}");
    assert!(
        here.out
            .starts_with(&format!("this machine is active for {path}: "))
    );
    standby.kill();
    await_queue(hosts, &path, 0);
    let mut raw = Raw::connect(hosts);
    let card = br#"{"host":"another","pid":7}"#;
    raw.create(&format!("{path}/x-lock-0000000009"), card, EPHEMERAL)
        .unwrap();
    let there = probe();
    assert_eq!(there.code, Some(1), "{there:?}");
    let said = format!("another machine is active for {path}: another pid 7\n");
    assert_eq!(there.out, said);
    let gone = Zklock::run(
        "127.0.0.1:1",
        &format!("--connect-timeout 1 standby --status {path}"),
        "",
    );
    assert_eq!(gone.code, Some(69), "{gone:?}");
}

fn a_probe_tells_a_standby_from_who_shares_the_lock(hosts: &str) {
    for (kind, code) in [("-s", 1), ("--permits 2", 78)] {
        let (path, log) = (fresh_path("probe"), Log::new());
        let mut other = Zklock::start(hosts, &format!("run {kind} {path}"), &log.beat("beat"));
        log.await_word("beat");
        let probe = Zklock::run(hosts, &format!("standby --status {path}"), "");
        assert_eq!(probe.code, Some(code), "{kind}: {probe:?}");
        assert!(!probe.out.contains("this machine"), "{probe:?}");
        other.kill();
    }
}

#[test]
fn a_ready_file_that_cannot_be_made_is_told_at_the_start() {
    let folder = Folder::new();
    let inside = folder.path("no/such/folder");
    for (file, code, said) in [
        (folder.path(""), 64, "is there and is no file"),
        (PathBuf::from("/dev/full"), 64, "is there and is no file"),
        (inside, 70, "No such file or directory"),
    ] {
        let ended = start(embedded(), &fresh_path("bad"), &file, "true").end();
        assert_eq!(ended.code, Some(code), "{file:?}: {}", ended.err);
        assert!(ended.err.contains(said), "{}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
    assert!(PathBuf::from("/dev/full").exists());
}

/// A link that somebody has put beside the file leads nowhere.
#[test]
fn a_ready_file_is_written_through_no_link() {
    let (path, folder) = (fresh_path("link"), Folder::new());
    let (file, other) = (folder.path("ready"), folder.path("other"));
    fs::write(&other, "keep").unwrap();
    let mut linked = Command::new("sh");
    linked.args(["-c", "ln -s other ready.$$; exec \"$@\"", "sh"]);
    linked.args([env!("CARGO_BIN_EXE_zklock"), "--hosts", embedded()]);
    linked.args(["standby", "--ready-file", "ready", &path, "--"]);
    linked.args(["sh", "-c", "test -f ready"]);
    let ended = Zklock::spawn(linked.current_dir(folder.path(""))).end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(fs::read_to_string(&other).unwrap(), "keep");
    assert!(!file.exists());
}

/// A socket at which a test listens as a service manager does.
struct Manager {
    socket: UnixDatagram,
    said: Vec<String>,
}

impl Manager {
    fn new(address: &SocketAddr) -> Self {
        let socket = UnixDatagram::bind_addr(address).unwrap();
        let limit = Duration::from_secs(20);
        socket.set_read_timeout(Some(limit)).unwrap();
        Self {
            socket,
            said: Vec::new(),
        }
    }

    /// Waits for a message with this line.
    #[track_caller]
    fn hear(&mut self, line: &str) {
        let mut buffer = [0; 4096];
        while !self.said.iter().any(|said| said == line) {
            let length = self.socket.recv(&mut buffer);
            let length = length.unwrap_or_else(|_| panic!("no {line:?} in {:?}", self.said));
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            self.said.extend(text.lines().map(str::to_owned));
        }
    }
}

fn tells_the_manager(address: &SocketAddr, name: &str) {
    let (path, log) = (fresh_path("manager"), Log::new());
    let mut manager = Manager::new(address);
    let standby = |word: &str| {
        let mut command = command(embedded());
        command.args(["standby", &path, "--", "sh", "-c", &log.beat(word)]);
        command
    };
    let first = Zklock::spawn(&mut standby("first"));
    log.await_word("first");
    let mut second = standby("second");
    second.env("NOTIFY_SOCKET", name);
    // The queue of the socket is short, and the test may be slow to read it.
    second.env("WATCHDOG_USEC", "2000000");
    let second = Zklock::spawn(&mut second);
    manager.hear("READY=1");
    let stands_by = format!("STATUS=standing by for {path}, behind ");
    assert!(manager.said.iter().any(|said| said.starts_with(&stands_by)));
    manager.hear("WATCHDOG=1");
    first.signal("TERM");
    first.end();
    manager.hear(&format!("STATUS=active for {path}"));
    log.await_word("second");
    let ready = manager
        .said
        .iter()
        .filter(|said| *said == "READY=1")
        .count();
    assert_eq!(ready, 1);
    manager.said.clear();
    manager.hear("WATCHDOG=1");
    second.signal("TERM");
    second.end();
    manager.hear(&format!("STATUS=passive for {path}"));
    manager.hear("STOPPING=1");
}

#[test]
fn the_service_manager_is_told_at_its_socket() {
    let folder = Folder::new();
    let socket = folder.path("notify");
    let address = SocketAddr::from_pathname(&socket).unwrap();
    tells_the_manager(&address, &socket.to_string_lossy());
}

#[cfg(target_os = "linux")]
#[test]
fn the_service_manager_is_told_at_an_abstract_socket() {
    let name = fresh_path("abstract").replace('/', "-");
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    tells_the_manager(&address, &format!("@{name}"));
}

#[test]
fn the_service_manager_waits_for_no_hook() {
    let (folder, path, log) = (Folder::new(), fresh_path("prepares"), Log::new());
    let socket = folder.path("notify");
    let mut manager = Manager::new(&SocketAddr::from_pathname(&socket).unwrap());
    let go = folder.path("go");
    let up = format!("until [ -e {} ]; do sleep 0.01; done", go.display());
    let mut standby = command(embedded());
    standby.args(["standby", "--on-active", &up, &path, "--", "sh", "-c"]);
    standby.arg(log.write("runs")).env("NOTIFY_SOCKET", &socket);
    let standby = Zklock::spawn(&mut standby);
    manager.hear("READY=1");
    manager.hear(&format!("STATUS=becoming active for {path}"));
    fs::write(&go, "").unwrap();
    manager.hear(&format!("STATUS=active for {path}"));
    assert_eq!(standby.end().code, Some(0));
    assert_eq!(log.words(), ["runs"]);
}

#[test]
fn a_service_manager_that_is_not_there_or_does_not_read_changes_nothing() {
    let folder = Folder::new();
    let full = folder.path("full");
    let _full = UnixDatagram::bind(&full).unwrap();
    for socket in [
        "/no/such/socket",
        "@",
        "nonsense",
        "",
        &full.to_string_lossy(),
    ] {
        let mut quiet = command(embedded());
        quiet.args(["standby", &fresh_path("quiet"), "--", "sleep", "0.2"]);
        quiet
            .env("NOTIFY_SOCKET", socket)
            .env("WATCHDOG_USEC", "1000");
        let began = Instant::now();
        let ended = Zklock::spawn(&mut quiet).end();
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{socket}");
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
