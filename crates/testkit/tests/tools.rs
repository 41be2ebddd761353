//! The tools of the other tests, tested: a proxy that loses nothing proves nothing.

use std::env;
use std::fs;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use zklock_testkit::ensemble::Ensemble;
use zklock_testkit::proxy::Proxy;
use zklock_testkit::raw::{EPHEMERAL, NODE_EXISTS, PERSISTENT, Raw, op};
use zklock_testkit::worker::{self, Worker};
use zklock_testkit::zookeeper::{ARCHIVE, ZooKeeper};
use zklock_testkit::{eventually, raw, timed, within};

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_server_keeps_its_data_and_its_port_over_a_kill() {
    let server = ZooKeeper::start();
    let mut client = Raw::connect(&server.hosts());
    client.create("/kept", b"data", PERSISTENT).unwrap();

    server.kill();
    assert!(server.four_letter("ruok").is_err());
    server.restart();

    let mut client = Raw::connect(&server.hosts());
    assert_eq!(client.data("/kept").unwrap(), b"data");
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_paused_server_answers_when_it_is_resumed() {
    let server = ZooKeeper::start();
    server.pause();
    assert!(server.four_letter("ruok").is_err());
    server.resume();
    eventually("the server answers", || {
        server.four_letter("ruok").is_ok_and(|said| said == "imok")
    });
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_session_expires_after_its_timeout_and_takes_its_nodes_along() {
    let server = ZooKeeper::shared();
    let mut silent = Raw::connect_with(&server.hosts(), Duration::from_secs(3));
    let node = zklock_testkit::fresh_path("silent");
    let mut client = Raw::connect(&server.hosts());
    client.create_all("/tests");
    let begun = Instant::now();
    silent.create(&node, b"", EPHEMERAL).unwrap();
    assert_eq!(client.stat(&node).unwrap().owner, silent.session());

    eventually("the node is gone", || client.stat(&node).is_none());
    let took = begun.elapsed();
    assert!(Duration::from_millis(2900) < took, "{took:?}");
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_session_that_is_ended_from_elsewhere_takes_its_nodes_along() {
    let hosts = ZooKeeper::shared().hosts();
    let node = zklock_testkit::fresh_path("ended");
    let mut client = Raw::connect(&hosts);
    client.create_all("/tests");
    let mut victim = Raw::connect(&hosts);
    victim.create(&node, b"", EPHEMERAL).unwrap();
    raw::expire(&hosts, raw::owner(&hosts, &node));
    assert_eq!(client.stat(&node), None);
    assert!(fails(|| drop(victim.data(&node))));
}

#[test]
#[ignore = "a worker process"]
fn worker_that_starts_a_server_and_waits_for_its_death() {
    let Some(_) = worker::input() else { return };
    let server = ZooKeeper::shared();
    worker::say(&server.hosts());
    let folder = server.four_letter("conf").unwrap();
    worker::say(folder.lines().find(|l| l.starts_with("dataDir")).unwrap());
    worker::stay();
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_server_does_not_outlive_a_test_process_that_is_killed() {
    let mut worker = Worker::spawn(worker_that_starts_a_server_and_waits_for_its_death, "");
    let hosts = worker.hear();
    let said = worker.hear();
    let folder = Path::new(said.strip_prefix("dataDir=").unwrap());
    assert!(std::net::TcpStream::connect(&hosts).is_ok());
    assert!(folder.exists());

    worker.kill();
    eventually("the server is gone", || {
        std::net::TcpStream::connect(&hosts).is_err()
    });
    eventually("its folder is gone", || !folder.exists());
}

#[test]
#[ignore = "a worker process"]
fn worker_that_echoes() {
    let Some(input) = worker::input() else { return };
    worker::say(&input);
    worker::say("done");
}

#[test]
fn a_worker_gets_its_input_and_is_heard() {
    let mut worker = Worker::spawn(worker_that_echoes, "a b\tc");
    worker.expect("a b\tc");
    worker.expect("done");
    assert!(worker.lines().recv().is_err());
    eventually("the worker ends", || worker.ended() == Some(true));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_proxy_passes_everything_on_and_counts_it() {
    let server = ZooKeeper::shared();
    let proxy = Proxy::start(&server.hosts());
    let mut client = Raw::connect(&proxy.hosts());
    assert!(!client.children("/").unwrap().is_empty());
    assert_eq!(client.data("/none"), None);

    assert_eq!(proxy.requests(op::GET_CHILDREN2), 1);
    assert_eq!(proxy.requests(op::GET_DATA), 1);
    assert_eq!((proxy.all_requests(), proxy.connections()), (2, 1));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_lost_reply_leaves_the_request_carried_out() {
    let (proxy, path) = proxy_and_path("reply");
    proxy.drop_next_reply_to(op::CREATE);
    assert!(request_fails(&proxy, &path));
    assert!(proxy.fired());

    let mut client = Raw::connect(&proxy.hosts());
    assert_eq!(client.create(&path, b"", PERSISTENT), Err(NODE_EXISTS));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_lost_request_is_not_carried_out() {
    let (proxy, path) = proxy_and_path("request");
    proxy.drop_next_request(op::CREATE);
    assert!(request_fails(&proxy, &path));
    assert!(proxy.fired());

    let mut client = Raw::connect(&proxy.hosts());
    assert_eq!(client.create(&path, b"", PERSISTENT), Ok(path));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_truncated_reply_ends_the_connection() {
    let (proxy, path) = proxy_and_path("truncated");
    proxy.truncate_next_reply();
    assert!(request_fails(&proxy, &path));
    assert!(proxy.fired());
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_blackhole_holds_everything_back_until_it_heals() {
    let (proxy, path) = proxy_and_path("hole");
    proxy.blackhole();
    let hosts = proxy.hosts();
    let waiting = path.clone();
    let client = std::thread::spawn(move || Raw::connect(&hosts).create(&waiting, b"", PERSISTENT));
    eventually("the connection is accepted", || proxy.connections() == 2);
    assert!(!within(Duration::from_millis(300), || client.is_finished()));

    proxy.heal();
    assert_eq!(client.join().unwrap(), Ok(path));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_blackhole_begins_at_the_request_that_it_is_to_begin_at() {
    let (proxy, path) = proxy_and_path("named");
    let mut client = Raw::connect(&proxy.hosts());
    proxy.blackhole_at_next_request(op::CREATE);
    assert!(client.data("/tests").is_some());
    let wanted = path.clone();
    let creating = zklock_testkit::aside(move || client.create(&wanted, b"", PERSISTENT));
    eventually("the request is there", || proxy.fired());
    let mut direct = Raw::connect(&ZooKeeper::shared().hosts());
    assert_eq!(direct.stat(&path), None);

    proxy.heal();
    assert_eq!(creating.recv().unwrap(), Ok(path));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn sessions_that_a_proxy_ends_take_their_nodes_along() {
    let (proxy, path) = proxy_and_path("over");
    let mut client = Raw::connect(&proxy.hosts());
    client.create(&path, b"", EPHEMERAL).unwrap();
    proxy.end_sessions();
    let mut direct = Raw::connect(&ZooKeeper::shared().hosts());
    eventually("the node is gone", || direct.stat(&path).is_none());
    assert!(fails(|| drop(client.data(&path))));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_proxy_that_refuses_accepts_again_on_the_same_port() {
    let (proxy, path) = proxy_and_path("refused");
    proxy.refuse();
    assert!(std::net::TcpStream::connect(proxy.hosts()).is_err());
    proxy.accept();
    assert!(
        Raw::connect(&proxy.hosts())
            .create(&path, b"", PERSISTENT)
            .is_ok()
    );
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_delay_holds_back_each_way_and_a_cut_ends_it() {
    let (proxy, path) = proxy_and_path("delay");
    let mut client = Raw::connect(&proxy.hosts());
    proxy.delay(Duration::from_millis(200));
    let (created, took) = timed(|| client.create(&path, b"", PERSISTENT));
    assert_eq!(created, Ok(path.clone()));
    assert!(Duration::from_millis(400) <= took, "{took:?}");

    proxy.cut();
    assert!(fails(|| drop(client.data(&path))));
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn an_ensemble_elects_another_leader_when_its_leader_dies_and_takes_it_back() {
    let ensemble = Ensemble::start();
    let first = ensemble.wait_for_leader();
    ensemble.kill(first);
    eventually("another server leads", || {
        ensemble.leader().is_some_and(|leader| leader != first)
    });

    ensemble.restart(first);
    let path = "/from-one-to-another";
    let mut client = Raw::connect(&ensemble.server(first).hosts());
    client.create(path, b"", PERSISTENT).unwrap();
    let leader = ensemble.wait_for_leader();
    assert!(raw::children(&ensemble.server(leader).hosts(), "/").len() >= 2);
}

/// Returns a proxy through which one client has connected, and the path of a node to create.
fn proxy_and_path(name: &str) -> (Proxy, String) {
    let proxy = Proxy::start(&ZooKeeper::shared().hosts());
    Raw::connect(&proxy.hosts()).create_all("/tests");
    (proxy, zklock_testkit::fresh_path(name))
}

fn request_fails(proxy: &Proxy, path: &str) -> bool {
    let mut client = Raw::connect(&proxy.hosts());
    fails(|| drop(client.create(path, b"", PERSISTENT)))
}

/// Returns whether a request fails: the raw client panics when its connection ends.
fn fails(request: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(request)).is_err()
}

/// Makes the archive for the servers of all suites; `tests/all.sh` runs this test before them.
#[test]
#[ignore = "a worker process"]
fn worker_that_archives_classes() {
    let archive = env::var(ARCHIVE).expect("where the archive is to be");
    let fresh = format!("{archive}.{}", process::id());
    let server = ZooKeeper::builder()
        .option(format!("-XX:ArchiveClassesAtExit={fresh}"))
        .start();
    let mut client = Raw::connect(&server.hosts());
    client.create("/node", b"data", EPHEMERAL).unwrap();
    assert_eq!(client.data("/node").unwrap(), b"data");
    server.terminate();
    // Java dies of an archive that was cut short.
    drop(
        ZooKeeper::builder()
            .option(format!("-XX:SharedArchiveFile={fresh}"))
            .start(),
    );
    fs::rename(fresh, archive).expect("the server has written the archive");
}
