//! The four-letter words that operators ask of this server and of a real one.

use zklock::embedded::Server;

use super::support::raw::{EPHEMERAL, Raw, op};
use super::support::zookeeper::{Folder, ZooKeeper};
use super::wire::{Wire, look, word, word_of};

#[test]
fn operators_get_their_answers() {
    let folder = Folder::new();
    let server = Server::builder().data(folder.path("data")).start().unwrap();
    let mut client = Wire::connect(&server);
    client.call(op::EXISTS, &look("/a", true)).unwrap_err();
    client.create("/mine", EPHEMERAL).unwrap();
    assert_eq!(word(&server, "ruok"), "imok");
    assert_eq!(word(&server, "isro"), "rw");
    assert_eq!(
        word(&server, "wchs"),
        "1 connections watching 1 paths\nTotal watches:1\n"
    );
    let port = server.hosts().rsplit_once(':').unwrap().1;
    let session = format!("0x{:x}", client.session);
    for (name, parts) in [
        (
            "srvr",
            vec!["Mode: standalone\n", "Node count: 6\n", "Connections: 2\n"],
        ),
        ("stat", vec!["Clients:\n /127.0.0.1:", "Mode: standalone\n"]),
        (
            "conf",
            vec![
                &format!("clientPort={port}\n"),
                &format!("dataDir={}\n", folder.path("data").display()),
                "tickTime=2000\n",
                "maxSessionTimeout=40000\n",
            ],
        ),
        ("envi", vec!["Environment:\nzookeeper.version=3.8.0-zklock"]),
        (
            "mntr",
            vec![
                "zk_server_state\tstandalone\n",
                "zk_ephemerals_count\t1\n",
                "zk_watch_count\t1\n",
                "zk_global_sessions\t1\n",
            ],
        ),
        (
            "cons",
            vec![&format!("sid={session},lop=CREA,"), "to=10000,lcxid=0x1,"],
        ),
        (
            "dump",
            vec![
                &format!("{session}:\n\t/mine\n"),
                " expire at ",
                &format!("sessionId: {session}\n"),
            ],
        ),
    ] {
        let report = word(&server, name);
        for part in parts {
            assert!(report.contains(part), "{name}: {part:?} in {report}");
        }
    }
}

/// Numbers and names may differ; the text around them must be the same.
#[test]
#[ignore = "needs a ZooKeeper server"]
fn the_answers_have_the_shape_of_a_real_servers() {
    let real = ZooKeeper::builder().fsync(false).start();
    let server = Server::start().unwrap();
    let hosts = [real.hosts(), server.hosts().to_owned()];
    let _clients = hosts.each_ref().map(|hosts| {
        let mut client = Raw::connect(hosts);
        client.create("/mine", b"", EPHEMERAL).unwrap();
        client
    });
    for name in [
        "srvr", "stat", "conf", "cons", "isro", "ruok", "wchs", "dump",
    ] {
        let [theirs, ours] = hosts.each_ref().map(|hosts| shape(&word_of(hosts, name)));
        // A real server lists connections in no fixed order.
        let sorted = |mut lines: Vec<String>| {
            lines.sort_unstable();
            lines.dedup();
            lines
        };
        assert_eq!(sorted(ours), sorted(theirs), "{name}");
    }
    // In these, the real server has more: it runs on Java, and counts more.
    for name in ["envi", "mntr"] {
        let [theirs, ours] = hosts.each_ref().map(|hosts| keys(&word_of(hosts, name)));
        let unknown: Vec<_> = ours.iter().filter(|key| !theirs.contains(key)).collect();
        assert_eq!(unknown, [""; 0], "{name}");
        assert!(ours.len() > 5, "{name}: {ours:?}");
    }
}

/// Returns the lines without their values.
fn shape(report: &str) -> Vec<String> {
    report.lines().map(line_shape).collect()
}

fn line_shape(line: &str) -> String {
    if line.contains(" expire at ") {
        return "_ expire at _:".to_owned();
    }
    let split = line.split_once(": ").or_else(|| line.split_once('='));
    let key = split.map_or_else(|| line.to_owned(), |(key, _)| format!("{key}: _"));
    // The words of one line, for example of a connection.
    let words = line
        .split(['(', ',', ')'])
        .filter_map(|part| part.split_once('='));
    match line.contains('(') && line.contains('=') {
        true => words.map(|(name, _)| name).collect::<Vec<_>>().join(","),
        false => key
            .chars()
            .filter(|c| !c.is_ascii_digit())
            .filter(|c| !('a'..='f').contains(c))
            .collect(),
    }
}

/// Returns the names in a table of names and values.
fn keys(report: &str) -> Vec<String> {
    let name = |line: &str| {
        line.split(['=', '\t'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    report.lines().map(name).collect()
}
