//! The answer to bad input: at once, an error that names the input and the rule, and no other
//! effect.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, Error};

use crate::support::proxy::Proxy;
use crate::support::raw::{PERSISTENT, Raw, children};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{eventually, free_port, fresh_path, timed};
use crate::transport::{Transport, on_every_transport};

/// A time longer than any call here takes unless it hangs.
const SOON: Duration = Duration::from_secs(5);

on_every_transport! {
    a_path_that_breaks_a_rule_is_refused_with_the_rule
}

fn a_path_that_breaks_a_rule_is_refused_with_the_rule(transport: Transport) {
    let server = ZooKeeper::shared();
    let client = transport.connect(&server.hosts());
    let before = children(&server.hosts(), "/");
    let bad = [
        "",
        "/",
        "relative",
        "./a",
        "/a/",
        "//",
        "//a",
        "/a//b",
        "/a/.",
        "/a/..",
        "/./a",
        "/../a",
        "/a/./b",
        "/a/../b",
        "/a\0b",
        "/a\nb",
        "/a\x7fb",
        "/a\u{85}b",
        "/a\u{fffe}b",
    ];
    for path in bad {
        let errors = [
            client.mutex(path).map(drop).unwrap_err(),
            client.contenders(path).map(drop).unwrap_err(),
        ];
        for error in errors {
            let Error::BadPath { path: named, rule } = &error else {
                panic!("{path:?}: {error}");
            };
            assert_eq!(named, path);
            assert!(!rule.is_empty());
            assert!(error.is_bad_input());
            // The message must not carry the control characters themselves.
            assert!(!error.to_string().contains(char::is_control), "{error:?}");
        }
    }
    for path in ["/a", "/a.b/..c/.d", "/ä/日本語", "/with space/-"] {
        client.mutex(path).unwrap();
    }
    // Another test may have been the first to create a node.
    let mut after = children(&server.hosts(), "/");
    after.retain(|name| name != "tests" || before.contains(name));
    assert_eq!(after, before);
}

/// The last and the first character of each class that a server's `PathUtils` tells apart.
const BOUNDARIES: [char; 17] = [
    '\0',
    '\u{1}',
    '\u{1f}',
    ' ',
    '~',
    '\u{7f}',
    '\u{80}',
    '\u{9f}',
    '\u{a0}',
    '\u{d7ff}',
    '\u{e000}',
    '\u{f8ff}',
    '\u{f900}',
    '\u{ffef}',
    '\u{fff0}',
    '\u{10000}',
    '\u{10ffff}',
];

#[test]
fn the_client_refuses_the_characters_that_the_embedded_server_refuses() {
    are_refused_alike(Server::start().unwrap().hosts());
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn the_client_refuses_the_characters_that_zookeeper_refuses() {
    are_refused_alike(&ZooKeeper::shared().hosts());
}

fn are_refused_alike(hosts: &str) {
    let (client, mut raw) = (Client::connect(hosts).unwrap(), Raw::connect(hosts));
    let above = fresh_path("characters");
    raw.create_all(&format!("{above}/"));
    for c in BOUNDARIES {
        let path = format!("{above}/a{c}b");
        let is_taken = raw.create(&path, &[], PERSISTENT).is_ok();
        let looked = client.nodes().get(&path);
        let connected = Client::builder(&format!("{hosts}{path}"))
            .create_chroot(true)
            .connect();
        let refused = [
            client.mutex(&path).map(drop),
            looked.map(drop),
            client.nodes().create(&path, b"").map(drop),
            connected.map(drop),
        ];
        let refused = refused.map(|result| result.is_err_and(|error| error.is_bad_input()));
        assert_eq!(refused, [!is_taken; 4], "{c:?}");
    }
}

#[test]
fn a_semaphore_without_permits_is_refused_with_the_rule() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let error = client.semaphore("/a", 0).map(drop).unwrap_err();
    assert!(matches!(
        error,
        Error::BadArgument {
            name: "permits",
            ..
        }
    ));
    assert!(error.is_bad_input());
    assert!(error.to_string().contains("at least one permit"), "{error}");
}

#[test]
fn hosts_that_cannot_be_read_are_refused_with_the_reason() {
    let bad = [
        "",
        " ",
        ",",
        "a,,b",
        "a,",
        ":2181",
        "a:",
        "a:0",
        "a:port",
        "a:65536",
        "a:-1",
        "[::1",
        "[::1]2181",
        "[]:2181",
        "a:1:2",
        "/chroot",
        "a/chroot/",
        "a//chroot",
        "a/b/../c",
        "a/\0",
    ];
    for hosts in bad {
        let (result, took) = timed(|| Client::connect(hosts));
        let error = result.map(drop).unwrap_err();
        let Error::BadHosts {
            hosts: named,
            reason,
        } = &error
        else {
            panic!("{hosts:?}: {error}");
        };
        assert_eq!(named, hosts);
        assert!(!reason.is_empty());
        assert!(error.is_bad_input());
        assert!(took < SOON, "{took:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named_with_what_it_said() {
    let limit = Duration::from_secs(2);
    let (one, two) = (free_port(), free_port());
    let hosts = format!("127.0.0.1:{one},localhost:{two}");
    let (result, took) = timed(|| Client::builder(&hosts).connect_timeout(limit).connect());
    let error = result.map(drop).unwrap_err();
    let Error::ConnectTimeout {
        limit: said, tried, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!(*said, limit);
    for port in [one, two] {
        // The message is that of the system on which the test runs.
        let said = TcpStream::connect(("127.0.0.1", port)).unwrap_err();
        let port = format!(":{port}");
        let host = tried.iter().find(|line| line.contains(&port));
        assert!(
            host.is_some_and(|line| line.contains(&said.to_string())),
            "{tried:?}"
        );
        assert!(error.to_string().contains(&port), "{error}");
    }
    assert!(limit <= took && took < limit + SOON, "{took:?}");
}

#[test]
fn an_unknown_host_is_named() {
    let limit = Duration::from_secs(2);
    let (result, took) = timed(|| {
        let hosts = "no-such-host.invalid:2181";
        Client::builder(hosts).connect_timeout(limit).connect()
    });
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, Error::ConnectTimeout { .. }), "{error}");
    assert!(
        error.to_string().contains("no-such-host.invalid"),
        "{error}"
    );
    assert!(took < limit + SOON, "{took:?}");
}

#[test]
fn a_server_that_says_nothing_does_not_hold_us_up() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let limit = Duration::from_secs(2);
    let (result, took) = timed(|| Client::builder(&address).connect_timeout(limit).connect());
    let error = result.map(drop).unwrap_err();
    assert!(matches!(error, Error::ConnectTimeout { .. }), "{error}");
    assert!(limit <= took && took < limit + SOON, "{took:?}");
}

#[test]
fn a_server_of_another_kind_does_not_hold_us_up() {
    use std::io::Write;
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut client in other.incoming().flatten() {
            drop(client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    let limit = Duration::from_secs(2);
    let (result, took) = timed(|| Client::builder(&address).connect_timeout(limit).connect());
    let error = result.map(drop).unwrap_err();
    let Error::ConnectTimeout { tried, .. } = &error else {
        panic!("{error}");
    };
    assert!(
        tried.iter().any(|line| line.contains(&address)),
        "{tried:?}"
    );
    assert!(took < limit + SOON, "{took:?}");
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_bad_host_among_good_ones_does_no_harm() {
    let server = ZooKeeper::shared();
    let hosts = format!(
        "no-such-host.invalid:2181,127.0.0.1:{},{}",
        free_port(),
        server.hosts()
    );
    for _ in 0..5 {
        let client = Client::connect(&hosts).unwrap();
        let path = fresh_path("bad-host");
        drop(client.mutex(&path).unwrap().lock().unwrap());
        client.close().unwrap();
    }
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/all.sh"]
fn a_connection_that_opens_only_after_the_timeout_is_not_kept() {
    let server = ZooKeeper::start();
    let proxy = Proxy::start(&server.hosts());
    proxy.blackhole();
    let limit = Duration::from_millis(500);
    let result = Client::builder(&proxy.hosts())
        .connect_timeout(limit)
        .connect();
    assert!(matches!(result, Err(Error::ConnectTimeout { .. })));
    drop(result);
    proxy.heal();
    // Now the bytes that the proxy held back arrive, from a client that is gone.
    eventually("no connection is left", || {
        server
            .monitor("zk_num_alive_connections")
            .is_some_and(|n| n <= 1)
    });
}
