//! Addresses that do not answer a request to connect, as those of a version of IP that the network drops.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;

use super::connect;
use crate::support::proxy::Proxy;
use crate::support::{eventually, netns, timed};

/// An address that swallows requests to connect.
struct Unreachable {
    hosts: String,
    _full: (TcpListener, Vec<TcpStream>),
}

impl Unreachable {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // The kernel drops such requests while as many connections wait to be accepted.
        rustix::net::listen(&listener, 0).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let waiting: Vec<_> = std::iter::from_fn(|| connect().ok()).take(9).collect();
        assert!(waiting.len() < 9, "the queue is never full");
        Self {
            hosts: address.to_string(),
            _full: (listener, waiting),
        }
    }
}

/// Once, each reconnect took a second and a half for each of them, and longer where guards end.
#[test]
fn addresses_that_accept_no_connection_delay_one_reconnect_and_no_more() {
    let dead = [(); 3].map(|()| Unreachable::new());
    let hosts = dead.each_ref().map(|one| one.hosts.clone());
    // All of them take 4.5 s.
    delay_one_reconnect(hosts, Duration::from_millis(2500));
}

/// Servers hang up while they elect a leader. Once, the addresses took two seconds each in every other round.
#[test]
fn addresses_that_accept_no_connection_keep_nobody_from_servers_that_hang_up() {
    let server = Server::start().unwrap();
    let servers = [(); 2].map(|()| Proxy::start(server.hosts()));
    let dead = [(); 3].map(|()| Unreachable::new());
    let dead = dead.each_ref().map(|one| one.hosts.clone());
    let hosts: Vec<_> = servers.iter().map(Proxy::hosts).chain(dead).collect();
    let _client = connect(&hosts.join(","), Duration::from_secs(20));
    drop(server);
    let both_hang_up_again = || {
        let before = servers.each_ref().map(Proxy::connections);
        let asked = |(one, before): (&Proxy, _)| before < one.connections();
        eventually("they are asked", || servers.iter().zip(before).all(asked));
    };
    both_hang_up_again();
    let ((), took) = timed(|| (0..2).for_each(|_| both_hang_up_again()));
    // The pauses of two rounds, and three times half a second in each.
    assert!(took < Duration::from_secs(9), "{took:?}");
}

/// The network says so only after a while.
#[test]
#[ignore = "needs a network namespace"]
fn addresses_without_a_machine_delay_one_reconnect_and_no_more() {
    netns::inside(|| {
        netns::ip("link set lo up");
        netns::ip("link add here type veth peer name there");
        netns::ip("address add 10.90.0.1/24 dev here");
        netns::ip("link set here up");
        netns::ip("link set there up");
        // A machine is asked for three times, which takes less than the client waits for an address.
        fs::write("/proc/sys/net/ipv4/neigh/here/retrans_time_ms", "250").unwrap();
        let hosts = [2, 3, 4].map(|last| format!("10.90.0.{last}:2181"));
        // All of them take 2.3 s.
        delay_one_reconnect(hosts, Duration::from_millis(1200));
    });
}

fn delay_one_reconnect(dead: [String; 3], limit: Duration) {
    let server = Server::start().unwrap();
    let good = Proxy::start(server.hosts());
    let hosts: Vec<_> = dead.into_iter().chain([good.hosts()]).collect();
    let client = connect(&hosts.join(","), Duration::from_secs(20));
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    let mut away = Vec::new();
    for _ in 0..4 {
        // The connection is to last.
        thread::sleep(Duration::from_secs(1));
        let before = good.greetings();
        good.cut();
        let back = || eventually("it is back", || before < good.greetings());
        away.push(timed(back).1);
    }
    guard.check().unwrap();
    // By then the client has tried each address.
    let late = away.iter().skip(1).max().unwrap();
    assert!(*late < limit, "{away:?}");
}
