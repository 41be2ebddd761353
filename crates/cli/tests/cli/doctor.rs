//! `zklock doctor`: its report, and what it leaves alone.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use zklock::{Acl, Client};

use crate::program::{Log, Zklock, masked, on_every_server};
use crate::support::ensemble::Ensemble;
use crate::support::keeper::{self, Kind};
use crate::support::proxy::Proxy;
use crate::support::raw::{EPHEMERAL, PERSISTENT, Raw, children, op};
use crate::support::relay::{listen, pass_on};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, free_port, fresh_path, timed};

on_every_server! {
    nothing_healthy_is_accused
    kinds_and_dialects_that_share_a_queue_are_not_accused
    a_server_that_is_not_there_is_named
    what_is_no_zookeeper_is_told_and_spoils_nothing
    sessions_of_another_length_are_a_warning
    contenders_that_do_not_wait_for_each_other_are_told
    a_contender_that_a_command_would_not_queue_beside_is_told
    a_node_of_no_session_at_the_head_of_a_queue_is_told
    a_path_that_cannot_be_listed_is_told_with_the_reason
    a_path_that_nobody_uses_is_left_as_it_is
    whoever_was_asked_to_let_go_and_whoever_holds_for_long_is_told
}

/// A session timeout that both servers grant.
const WELL: &str = "doctor --session-timeout 5";

fn nothing_healthy_is_accused(hosts: &str) {
    // The trial is made right above the lock, where no other test has one.
    let (above, log) = (fresh_path("well"), Log::new());
    let path = format!("{above}/lock");
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    let mut waiting = Zklock::start(hosts, &format!("run {path}"), ":");
    eventually("somebody waits", || children(hosts, &path).len() == 2);
    for args in ["", " --older-than 1h"] {
        let told = Zklock::run(hosts, &format!("{WELL}{args} {path}"), "");
        assert_eq!(told.code, Some(0), "{told:?}");
        assert_eq!(
            masked(
                &told.out,
                &[(&path, "PATH"), (&above, "ABOVE"), (hosts, "SERVER")]
            ),
            [
                "STATE ABOUT FOUND DO",
                "good SERVER standalone, version VERSION",
                "good SERVER grants sessions of TIME",
                "good SERVER answers in NUMBER ms",
                "good ABOVE a lock can be taken, proven, written under and given back here",
                "good all servers their clock is this machine's",
                "good PATH holders: 1, waiters: 1",
            ]
        );
    }
    // No node of the trial is left.
    assert_eq!(children(hosts, &above), ["lock"]);
    let json = Zklock::run(hosts, &format!("{WELL} --json"), "").out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let findings = json["findings"].as_array().expect("findings");
    assert!(3 < findings.len() && findings.iter().all(|finding| finding["level"] == "good"));
    holder.kill();
    waiting.kill();
}

fn kinds_and_dialects_that_share_a_queue_are_not_accused(hosts: &str) {
    let (path, log) = (fresh_path("mixture"), Log::new());
    let mut holder = Zklock::start(hosts, &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    let kinds = ["run -s", "--dialect kazoo run", "--dialect kazoo run -s"];
    let mut waiting = kinds.map(|kind| Zklock::start(hosts, &format!("{kind} {path}"), ":"));
    eventually("they wait", || children(hosts, &path).len() == 4);
    let told = Zklock::run(hosts, &format!("{WELL} {path}"), "");
    assert_eq!(told.code, Some(0), "{told:?}");
    holder.kill();
    waiting.iter_mut().for_each(Zklock::kill);
}

fn a_server_that_is_not_there_is_named(hosts: &str) {
    let missing = format!("127.0.0.1:{}", free_port());
    let told = Zklock::run(&format!("{hosts},{missing}"), WELL, "");
    assert_eq!(told.code, Some(2), "{told:?}");
    let troubles: Vec<_> = told
        .out
        .lines()
        .filter(|line| line.starts_with("trouble"))
        .collect();
    assert_eq!(troubles.len(), 1, "{told:?}");
    assert!(
        troubles[0].contains(&missing) && troubles[0].contains("Connection refused"),
        "{told:?}"
    );
    let none = Zklock::run(&missing, WELL, "");
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.out.contains("none of them can be reached"), "{none:?}");
    // Once, it tried all of them again for 5 s, and said so.
    let none = Zklock::run(&missing, "doctor", "");
    assert_eq!((none.code, none.err.as_str()), (Some(2), ""), "{none:?}");
    let unnamed = Zklock::run("no-such-host.invalid:2181", WELL, "");
    assert!(
        unnamed.out.contains("no address: ") && unnamed.out.contains("correct the name here"),
        "{unnamed:?}"
    );
}

fn what_is_no_zookeeper_is_told_and_spoils_nothing(hosts: &str) {
    let mute = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let web = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let [mute_at, web_at] = [&mute, &web].map(|it| it.local_addr().expect("its port").to_string());
    // The thread ends with the process.
    thread::spawn(move || {
        for mut client in web.incoming().flatten() {
            let _ = client.read(&mut [0; 64]);
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let told = Zklock::run(&format!("{mute_at},{web_at},{hosts}"), "doctor", "");
    assert_eq!(told.code, Some(2), "{told:?}");
    let is_told = |level: &str, at: &str, what: &str| {
        let is = |line: &str| line.starts_with(level) && line.contains(at) && line.contains(what);
        assert!(told.out.lines().any(is), "{level} {at} {what}: {told:?}");
    };
    is_told("trouble", &mute_at, "no session");
    is_told("trouble", &web_at, "no session");
    is_told("warning", &web_at, "no ZooKeeper server's answer");
    assert!(!told.out.contains("trouble  all servers"), "{told:?}");
    // Each reason is told once, so that no line is longer than a server's.
    let told = Zklock::run(
        &format!("{mute_at},{web_at}"),
        "doctor --connect-timeout 2",
        "",
    );
    assert_eq!(
        told.out.matches("another service's port").count(),
        1,
        "{told:?}"
    );
    assert!(told.out.contains("name the ports"), "{told:?}");
    assert!(
        told.out.contains("none of them grants a session"),
        "{told:?}"
    );
    drop(mute);
}

fn sessions_of_another_length_are_a_warning(hosts: &str) {
    let told = Zklock::run(hosts, "doctor --session-timeout 3600", "");
    assert_eq!(told.code, Some(1), "{told:?}");
    let warnings: Vec<_> = told
        .out
        .lines()
        .filter(|line| line.starts_with("warning"))
        .collect();
    assert_eq!(warnings.len(), 1, "{told:?}");
    assert!(warnings[0].contains("3600s were asked for"), "{told:?}");
}

fn contenders_that_do_not_wait_for_each_other_are_told(hosts: &str) {
    let path = fresh_path("mixed");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&path);
    let contenders = [
        "_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-0000000000",
        "6f9c1c9e5a0b4b579a3e0123456789ab__rlock__0000000001",
    ];
    raw.create(&format!("{path}/{}", contenders[0]), b"", EPHEMERAL)
        .expect("a node");
    let alone = Zklock::run(hosts, &format!("{WELL} {path}"), "");
    assert_eq!(alone.code, Some(0), "{alone:?}");
    raw.create(&format!("{path}/{}", contenders[1]), b"", EPHEMERAL)
        .expect("a node");
    let told = Zklock::run(hosts, &format!("{WELL} {path}"), "");
    assert_eq!(told.code, Some(2), "{told:?}");
    let libraries = "Curator's InterProcessMutex; kazoo's ReadLock";
    assert!(told.out.contains(libraries), "{told:?}");
}

/// Once, all was well where `zklock run` ends with 78.
fn a_contender_that_a_command_would_not_queue_beside_is_told(hosts: &str) {
    const ID: &str = "6f9c1c9e5a0b4b579a3e0123456789ab";
    let mut raw = Raw::connect(hosts);
    for (name, dialect) in [
        (format!("{ID}__lock__0000000001"), "kazoo"),
        (format!("{ID}__rlock__0000000001"), "kazoo"),
        (format!("_c_{ID}-latch-0000000001"), "leader-latch"),
    ] {
        let path = fresh_path("stranger");
        raw.create_all(&path);
        let node = format!("{path}/{name}");
        raw.create(&node, b"", EPHEMERAL).expect("a node");
        for (option, refused) in [("", true), (dialect, false)] {
            let option = match option {
                "" => String::new(),
                dialect => format!("--dialect {dialect}"),
            };
            let told = Zklock::run(hosts, &format!("{option} {WELL} {path}"), "");
            assert_eq!(
                told.code,
                Some(u8::from(refused).into()),
                "{name} {option}: {told:?}"
            );
            let advice = format!("use --dialect {dialect} or another path");
            assert_eq!(told.out.contains(&advice), refused, "{told:?}");
            let run = Zklock::run(hosts, &format!("{option} run -n {path}"), ":");
            let status = if refused { 78 } else { 1 };
            assert_eq!(run.code, Some(status), "{name} {option}: {run:?}");
        }
    }
}

/// All others wait behind such a node for ever.
fn a_node_of_no_session_at_the_head_of_a_queue_is_told(hosts: &str) {
    let path = fresh_path("ghost");
    let mut raw = Raw::connect(hosts);
    raw.create_all(&path);
    let [ghost, waiter] = [0, 1].map(|place| {
        format!("{path}/_c_6f9c1c9e-5a0b-4b57-9a3e-0123456789ab-lock-000000000{place}")
    });
    raw.create(&ghost, b"", PERSISTENT).expect("a node");
    let stays = format!("{ghost} is of no session, and stays");
    // Commands that do not wait find the lock taken, and are gone when the doctor comes.
    let told = Zklock::run(hosts, &format!("{WELL} {path}"), "");
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.out.contains(&stays), "{told:?}");
    raw.create(&waiter, b"", EPHEMERAL).expect("a node");
    let told = Zklock::run(hosts, &format!("{WELL} {path}"), "");
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.out.contains("holders: 1, waiters: 1"), "{told:?}");
    assert!(told.out.contains(&stays), "{told:?}");
}

fn a_path_that_cannot_be_listed_is_told_with_the_reason(hosts: &str) {
    let path = fresh_path("unlisted");
    let owner = Client::builder(hosts).auth("digest", "jo:secret");
    let owner = owner.acl(Acl::creator_all()).connect().expect("a client");
    owner.nodes().create(&path, b"").expect("a node");
    let told = Zklock::run(hosts, &format!("{WELL} {path}"), "");
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.out.contains("with these credentials"), "{told:?}");
    let (path, mut raw) = (fresh_path("crowded"), Raw::connect(hosts));
    raw.create_all(&path);
    for number in 0..250 {
        let node = format!("{path}/{}{number}", "x".repeat(5_000));
        raw.create(&node, b"", PERSISTENT).expect("a node");
    }
    let told = Zklock::run(hosts, &format!("{WELL} {path}"), "");
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.out.contains("and the limit is"), "{told:?}");
    assert!(!told.out.contains("credentials"), "{told:?}");
}

fn a_path_that_nobody_uses_is_left_as_it_is(hosts: &str) {
    let path = fresh_path("mistyped");
    let told = Zklock::run(hosts, &format!("{WELL} {path}/no/such/lock"), "");
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(Raw::connect(hosts).stat(&path).is_none());
}

fn whoever_was_asked_to_let_go_and_whoever_holds_for_long_is_told(hosts: &str) {
    let (path, log) = (fresh_path("asked"), Log::new());
    let script = format!("trap '' TERM; {}", log.beat("held"));
    let mut holder = Zklock::start(hosts, &format!("run --note report {path}"), &script);
    log.await_word("held");
    let told = Zklock::run(hosts, &format!("{WELL} --older-than 0 {path}"), "");
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.out.contains("(report) has been there for"), "{told:?}");
    assert_eq!(
        Zklock::run(hosts, &format!("revoke {path}"), "").code,
        Some(0)
    );
    let told = Zklock::run(hosts, &format!("{WELL} {path}"), "");
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.out.contains("was asked to let go, and has not yet"),
        "{told:?}"
    );
    holder.kill();
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn what_is_wrong_with_a_server_is_told() {
    let odd = ZooKeeper::builder().line("minSessionTimeout=500");
    let odd = odd.fsync(false).start();
    let told = Zklock::run(&odd.hosts(), WELL, "");
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.out
            .contains("minSessionTimeout is 500 ms, and a tick 500 ms"),
        "{told:?}"
    );
    // Two servers that know nothing of each other are not an ensemble.
    let told = Zklock::run(
        &format!("{},{}", odd.hosts(), ZooKeeper::shared().hosts()),
        WELL,
        "",
    );
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(
        told.out.contains("they do not belong to one ensemble"),
        "{told:?}"
    );
}

/// A client relies on what it was granted, and the next server may shorten its session.
#[test]
#[ignore = "needs ZooKeeper servers"]
fn servers_of_one_ensemble_that_grant_different_timeouts_are_told() {
    let ensemble = Ensemble::start();
    let examined = || Zklock::run(&ensemble.hosts(), WELL, "");
    let told = examined();
    assert!(!told.out.contains("they grant sessions"), "{told:?}");
    // As with every setting that ZooKeeper's documentation proposes, this is no warning.
    let late = "a leader whose machine loses power is missed after 5s, and commands may be stopped after 1.0 s";
    assert_eq!(
        (told.code, told.out.contains(late)),
        (Some(0), true),
        "{told:?}"
    );
    let follower = ensemble.follower().expect("a follower");
    ensemble.restart_with_without_waiting(follower, "maxSessionTimeout=4000");
    let mut told = None;
    eventually("all of them serve", || {
        let told = told.insert(examined());
        told.code == Some(1)
    });
    let said = told.expect("it was examined").out;
    let said: Vec<_> = said
        .lines()
        .filter(|line| line.contains("all servers"))
        .collect();
    assert!(
        said[0].starts_with("warning") && said[0].contains("they grant sessions of 4s to 5s"),
        "{said:?}"
    );
    assert!(said[0].contains("--granted-at-least 4s"), "{said:?}");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn whoever_may_not_write_is_told() {
    let server = ZooKeeper::builder().fsync(false).start();
    let path = fresh_path("closed");
    Raw::connect(&server.hosts()).create_all(&path);
    let hosts = server.hosts();
    let owner = Client::builder(&hosts).auth("digest", "jo:secret");
    let owner = owner.acl(Acl::creator_all()).connect().expect("a client");
    owner
        .nodes()
        .create(&format!("{path}/mine"), b"")
        .expect("a node");
    let told = Zklock::run(&hosts, &format!("{WELL} {path}/mine/lock"), "");
    assert_eq!(told.code, Some(2), "no command can lock it: {told:?}");
    let missing = format!("{path}/mine/lock does not exist");
    assert!(told.out.contains(&missing), "{told:?}");
    let told = Zklock::run(&format!("{hosts}{path}/mine"), WELL, "");
    assert_eq!(told.code, Some(1), "a path below may be open: {told:?}");
    assert!(told.out.contains("no right to"), "{told:?}");
    let read_only = format!("{path}/read-only");
    let mut raw = Raw::connect(&hosts);
    raw.create_all(&read_only);
    raw.allow_reads_only(&read_only)
        .expect("the right to do so");
    let before = raw.stat(&read_only);
    let told = Zklock::run(&hosts, &format!("{WELL} {read_only}"), "");
    assert_eq!(told.code, Some(1), "a mutex needs more: {told:?}");
    let line = told.out.lines().find(|line| line.starts_with("warning"));
    let closed = |line: &str| line.contains(&read_only) && line.contains("no right to create");
    assert!(line.is_some_and(closed), "{told:?}");
    assert_eq!(raw.stat(&read_only), before, "the doctor changes nothing");
}

/// The servers behave as in their sources; an embedded server is behind them.
#[test]
fn a_server_that_ends_sessions_by_a_wall_clock_is_named() {
    for (kind, name) in [
        (Kind::ClickHouse, "ClickHouse Keeper, version v25.3.2.39"),
        (Kind::Raft, "RaftKeeper, version RaftKeeper v2.1.4"),
    ] {
        let hosts = keeper::start(kind, crate::program::embedded());
        let accepting = format!("{WELL} --wall-clock-expiry");
        let told = Zklock::run(&hosts, &accepting, "");
        assert_eq!(told.code, Some(1), "{told:?}");
        assert!(told.out.contains(name), "{told:?}");
        assert!(told.out.contains("a lock can be taken"), "{told:?}");
        let told = Zklock::run(&hosts, &format!("{WELL} --connect-timeout 1"), "");
        assert_eq!(told.code, Some(2), "{told:?}");
        assert!(told.out.contains(name), "{told:?}");
        assert!(told.out.contains("--wall-clock-expiry"), "{told:?}");
    }
}

/// Whatever the server lacks, a lock can be taken there.
#[test]
fn a_server_that_drops_a_newer_request_is_not_accused() {
    for opcode in [op::CREATE2, op::CREATE_CONTAINER, op::REMOVE_WATCHES] {
        let network = Proxy::start(crate::program::embedded());
        network.swallow(opcode);
        let told = Zklock::run(&network.hosts(), WELL, "");
        assert!(told.out.contains("a lock can be taken"), "{told:?}");
    }
}

/// The doctor names a greeting that is no session, and looks at the next server.
#[test]
fn a_server_with_a_greeting_that_is_none_is_named() {
    let hosts = keeper::start_leaderless();
    let told = Zklock::run(&format!("{hosts},{}", crate::program::embedded()), WELL, "");
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(
        told.out.contains("it runs, and knows no leader"),
        "{told:?}"
    );
    assert!(told.out.contains("a lock can be taken"), "{told:?}");
}

/// A server whose process is stopped hangs like this: the system still accepts its connections. Once, the doctor
/// looked at such servers one after the other, for ten seconds each, without a word.
#[test]
fn servers_that_hang_are_looked_at_together_and_named() {
    let hanging = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let [one, other] = [0, 1].map(|nth: usize| hanging[nth].local_addr().unwrap());
    let hosts = format!("{one},{},{other}", crate::program::embedded());
    let (told, took) = timed(|| Zklock::run(&hosts, WELL, ""));
    assert_eq!(told.code, Some(2), "{told:?}");
    let what = "it accepts connections and answers nothing";
    assert_eq!(told.out.matches(what).count(), 2, "{told:?}");
    assert!(told.out.contains("a lock can be taken"), "{told:?}");
    let waits = format!("waiting for answers of {one}, {other}");
    assert!(told.err.contains(&waits), "{told:?}");
    assert!(took < Duration::from_secs(18), "{took:?}");
}

/// Starts a server that has counted transactions after which its data differed from its leader's, and counts this
/// many more before the next question. An embedded server is behind it.
fn counts_differences(more: u64) -> String {
    let count = AtomicU64::new(3);
    listen(move |client| drop(count_differences(client, &count, more)))
}

fn count_differences(mut client: TcpStream, count: &AtomicU64, more: u64) -> io::Result<()> {
    let mut word = [0; 4];
    client.read_exact(&mut word)?;
    match &word {
        b"srvr" => write!(
            client,
            "Zookeeper version: 3.8.0-1, built on\nMode: follower\n"
        ),
        b"mntr" => {
            let count = count.fetch_add(more, Ordering::SeqCst);
            write!(
                client,
                "zk_uptime\t7\nzk_digest_mismatches_count\t{count}\n"
            )
        }
        [0, ..] => {
            let mut server = TcpStream::connect(crate::program::embedded())?;
            server.write_all(&word)?;
            pass_on(&client, &server, |_, _| Ok(()));
            pass_on(&server, &client, |_, _| Ok(()));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A server that replays its log at its start counts what its snapshot already contains.
#[test]
fn data_that_differed_once_are_told_from_data_that_differ() {
    for (more, code, what) in [
        (
            0,
            0,
            "differed from its leader's 3 times, and do not any more",
        ),
        (
            2,
            2,
            "its data differ from its leader's, by 5 transactions so far",
        ),
    ] {
        let told = Zklock::run(&counts_differences(more), WELL, "");
        assert_eq!(told.code, Some(code), "{told:?}");
        assert!(told.out.contains(what), "{told:?}");
    }
}
