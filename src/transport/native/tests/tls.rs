//! Encrypted connections to a real ZooKeeper that asks for the client's certificate.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::Tls;
use crate::support::relay::Relay;
use crate::support::secure::{Keys, server};
use crate::support::timed;
use crate::transport::native::channel::{Channel, Failed};
use crate::transport::native::hosts::Target;
use zklock_core::connection::rotation::Refusal;

const LONG: Duration = Duration::from_secs(10);

fn secure(hosts: &str, tls: &Tls) -> Config {
    Config {
        tls: Some(tls.configure().unwrap()),
        ..Config::plain(hosts, LONG)
    }
}

/// Waits until a client is connected.
fn let_in(hosts: &str, tls: &Tls) {
    let rig = Rig::open(secure(hosts, tls));
    rig.reconnected();
    rig.transport.close(PATIENCE);
}

/// Waits until the status says why a client is not connected.
///
/// The words depend on the version of Java.
#[track_caller]
fn turned_away(hosts: &str, tls: &Tls) {
    let rig = Rig::open(secure(hosts, tls));
    let mut trouble = Vec::new();
    let seen = crate::support::within(PATIENCE, || {
        trouble = rig.status.trouble();
        !trouble.is_empty()
    });
    assert!(seen, "nothing is said of {hosts}");
    println!("{trouble:?}");
    assert_eq!(rig.status.snapshot().connects, 0);
}

/// Returns the server names in the clients' TLS greetings, which are not encrypted.
fn names_asked_for(listener: TcpListener) -> mpsc::Receiver<Option<String>> {
    let (to, names) = mpsc::channel();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut acceptor = rustls::server::Acceptor::default();
            while let Ok(1..) = acceptor.read_tls(&mut socket) {
                if let Ok(Some(accepted)) = acceptor.accept() {
                    let name = accepted.client_hello().server_name().map(str::to_owned);
                    let _ = to.send(name);
                    break;
                }
            }
        }
    });
    names
}

#[test]
fn a_server_that_falls_silent_amid_the_handshake_gets_no_more_than_its_time() {
    let keys = Keys::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::of(listener.local_addr().unwrap());
    let limit = Duration::from_secs(3);
    let late = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        thread::sleep(limit * 4 / 5);
        // A record begins.
        socket.write_all(&[22]).unwrap();
        socket
    });
    let security = Tls::new().ca_file(keys.ca()).configure().unwrap();
    let channel = Channel::connect(&target, limit, Some(&security)).unwrap();
    let (agreed, took) = timed(|| channel.secure(limit));
    assert!(took < limit * 3 / 2, "{took:?}");
    assert_eq!(
        agreed.unwrap_err().1,
        "TLS could not be agreed on within 3.0s"
    );
    drop(late.join().unwrap());
}

/// Others without a leader get little time while one of them seems to hang: see `rotation`.
#[test]
fn a_server_that_hangs_up_amid_the_handshake_counts_as_one_without_a_leader() {
    let keys = Keys::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::of(listener.local_addr().unwrap());
    let security = Tls::new().ca_file(keys.ca()).configure().unwrap();
    let channel = Channel::connect(&target, LONG, Some(&security)).unwrap();
    drop(listener.accept().unwrap());
    let Failed(refusal, reason) = channel.secure(LONG).unwrap_err();
    assert_eq!(refusal, Some(Refusal::HungUp), "{reason}");
}

#[test]
fn each_server_is_asked_for_by_the_name_that_it_has_in_the_list() {
    let keys = Keys::new();
    for (host, expected) in [("localhost", Some("localhost")), ("127.0.0.1", None)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts = format!("{host}:{}", listener.local_addr().unwrap().port());
        let names = names_asked_for(listener);
        let rig = Rig::open(secure(&hosts, &Tls::new().ca_file(keys.ca())));
        let asked = names.recv_timeout(PATIENCE).unwrap();
        assert_eq!(asked.as_deref(), expected, "{hosts}");
        rig.transport.close(PATIENCE);
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn an_encrypted_session_works_and_survives_a_cut() {
    let keys = Keys::new();
    let (chain, key) = keys.sign("client", &[]);
    let (_zk, hosts) = server(&keys, &["127.0.0.1"]);
    let tls = Tls::new().ca_file(keys.ca()).client_cert(chain, key);
    let relay = Relay::start(vec![hosts]);
    let rig = Rig::open(secure(&relay.hosts, &tls));
    rig.reconnected();
    let session = rig.session();
    rig.ask(create("/a", CreateMode::Ephemeral)).unwrap();
    let big = vec![7; 900_000];
    let write = Request::SetData {
        path: "/a".to_owned(),
        data: big.clone().into(),
        version: -1,
    };
    rig.ask(write).unwrap();
    let batch = (0..50).map(|_| exists("/a", false)).collect();
    let answers = rig.send(batch);
    assert!((0..50).all(|_| one(&answers).is_ok()));
    let (read, fired) = rig.watch(data("/a", true), 1);
    assert!(matches!(read, Ok(Reply::Data { data, .. }) if data[..] == big));

    relay.cut();
    rig.disconnected();
    rig.reconnected();
    assert_eq!(rig.session(), session);
    rig.ask(delete("/a")).unwrap();
    assert_eq!(fires(&fired), (1, EventKind::Deleted));
    rig.transport.close(PATIENCE);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_renewed_certificate_is_used_from_the_next_connection_on() {
    let (keys, strange) = (Keys::new(), Keys::new());
    let (chain, key) = keys.sign("client", &[]);
    let (_zk, hosts) = server(&keys, &["127.0.0.1"]);
    let tls = Tls::new().ca_file(keys.ca()).client_cert(&chain, &key);
    let relay = Relay::start(vec![hosts]);
    let rig = Rig::open(secure(&relay.hosts, &tls));
    rig.reconnected();
    let session = rig.session();
    let cut = || {
        relay.cut();
        rig.disconnected();
    };

    fs::write(&chain, "half of it").unwrap();
    cut();
    rig.reconnected();

    let (other_chain, other_key) = strange.sign("client", &[]);
    fs::copy(other_chain, &chain).unwrap();
    fs::copy(other_key, &key).unwrap();
    let (connects, attempts) = (rig.status.snapshot().connects, relay.picked().len());
    cut();
    let again = || attempts + 2 <= relay.picked().len();
    assert!(crate::support::within(LONG, again));
    assert_eq!(rig.status.snapshot().connects, connects);

    keys.sign("client", &[]);
    rig.reconnected();
    assert_eq!(rig.session(), session);
    rig.transport.close(PATIENCE);
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_or_a_client_that_cannot_prove_who_it_is_gets_nowhere() {
    let keys = Keys::new();
    let (chain, key) = keys.sign("client", &[]);
    let mine = Tls::new().ca_file(keys.ca()).client_cert(&chain, &key);
    let strange = Keys::new();

    let (_zk, hosts) = server(&keys, &["other.example.org"]);
    turned_away(&hosts, &mine);

    // Each of the other clients differs in one point from the one that is let in.
    let (zk, hosts) = server(&keys, &["127.0.0.1"]);
    let_in(&hosts, &mine);
    turned_away(
        &hosts,
        &Tls::new().ca_file(strange.ca()).client_cert(&chain, &key),
    );
    turned_away(&hosts, &Tls::new().ca_file(keys.ca()));
    let (chain, key) = strange.sign("client", &[]);
    turned_away(
        &hosts,
        &Tls::new().ca_file(keys.ca()).client_cert(chain, key),
    );
    turned_away(&zk.hosts(), &mine);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let keys = Keys::new();
    let (chain, key) = keys.sign("client", &[]);
    let other = keys.sign("other", &[]).1;
    let none = keys.folder.path("none.pem");
    fs::write(keys.folder.path("empty.pem"), "").unwrap();
    let empty = keys.folder.path("empty.pem");
    let tls = || Tls::new().ca_file(keys.ca());
    for (bad, named) in [
        (Tls::new().ca_file(&none), "none.pem"),
        (Tls::new().ca_file(&empty), "empty.pem"),
        (Tls::new().ca_file(&key), "client.key"),
        (tls().client_cert(&none, &key), "none.pem"),
        (tls().client_cert(&chain, &none), "none.pem"),
        (
            tls().client_cert(&chain, &chain),
            "client.pem holds no private key",
        ),
        (tls().client_cert(&chain, &other), "client.pem"),
    ] {
        let error = bad.configure().unwrap_err();
        assert!(error.is_bad_input());
        assert!(error.to_string().contains(named), "{error}");
    }
    assert!(tls().client_cert(chain, key).configure().is_ok());
}
