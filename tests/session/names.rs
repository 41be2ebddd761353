//! Servers with names, and a resolver that is slow, dead or wrong. The system asks this resolver,
//! in a namespace where it is the only one.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, Error};

use super::{SOON, connect};
use crate::support::netns;
use crate::support::proxy::Proxy;
use crate::support::zookeeper::ZooKeeper;
use crate::support::{aside, eventually, fresh_path, timed};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// An address at which nobody listens.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// The types of questions, A and AAAA.
const ADDRESS: [u8; 2] = [0, 1];
const ADDRESS_V6: [u8; 2] = [0, 28];
const HEADER: usize = 12;

/// An answer of the resolver.
#[derive(Clone, Copy, Debug)]
enum Says {
    Nothing,
    Unknown,
    Address(IpAddr),
    After(Duration, IpAddr),
}

/// A resolver that gives every name the same answer.
struct Resolver {
    /// The answers, given one after the other; the last one is repeated for ever.
    answers: Mutex<VecDeque<Says>>,
    asked: AtomicUsize,
}

impl Resolver {
    /// Becomes the system's resolver.
    fn start() -> Arc<Self> {
        Self::start_with("")
    }

    /// Becomes the system's resolver, which is asked with these options.
    fn start_with(options: &str) -> Arc<Self> {
        netns::ip("link set lo up");
        let file = env::temp_dir().join(format!("zklock-resolv-{}", std::process::id()));
        let text = format!("nameserver 127.0.0.1\n{options}\n");
        fs::write(&file, text).unwrap();
        let mut mount = Command::new("mount");
        let mount = mount.arg("--bind").arg(&file).arg("/etc/resolv.conf");
        assert!(mount.status().unwrap().success());
        fs::remove_file(file).unwrap();
        let resolver = Arc::new(Self {
            answers: Mutex::new([Says::Address(HERE)].into()),
            asked: AtomicUsize::new(0),
        });
        let socket = Arc::new(UdpSocket::bind((HERE, 53)).unwrap());
        let serving = Arc::clone(&resolver);
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                let (socket, answer) = (Arc::clone(&socket), serving.answer(&question[..length]));
                let Some((delay, answer)) = answer else {
                    continue;
                };
                thread::spawn(move || {
                    thread::sleep(delay);
                    socket.send_to(&answer, from).unwrap();
                });
            }
        });
        resolver
    }

    fn says(&self, answers: impl IntoIterator<Item = Says>) {
        *self.answers.lock().unwrap() = answers.into_iter().collect();
    }

    /// Returns how often an address was asked for.
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns a reply, and when to send it.
    fn answer(&self, question: &[u8]) -> Option<(Duration, Vec<u8>)> {
        let end_of_name = HEADER + question[HEADER..].iter().position(|byte| *byte == 0)?;
        let kind = &question[end_of_name + 1..end_of_name + 3];
        let says = {
            let mut answers = self.answers.lock().unwrap();
            if kind != ADDRESS {
                answers[0]
            } else {
                self.asked.fetch_add(1, Ordering::SeqCst);
                match answers.len() {
                    1 => answers[0],
                    _ => answers.pop_front()?,
                }
            }
        };
        let (delay, address) = match says {
            Says::Nothing => return None,
            Says::Unknown => (Duration::ZERO, None),
            Says::Address(address) => (Duration::ZERO, Some(address)),
            Says::After(delay, address) => (delay, Some(address)),
        };
        let flags: u16 = if address.is_some() { 0x8180 } else { 0x8183 };
        let found = match address {
            Some(IpAddr::V4(address)) if kind == ADDRESS => address.octets().to_vec(),
            Some(IpAddr::V6(address)) if kind == ADDRESS_V6 => address.octets().to_vec(),
            _ => Vec::new(),
        };
        let length = u8::try_from(found.len()).expect("an address");
        let mut answer = question[..2].to_vec();
        answer.extend(flags.to_be_bytes());
        answer.extend([0, 1, 0, u8::from(0 < length), 0, 0, 0, 0]);
        answer.extend(&question[HEADER..end_of_name + 5]);
        if 0 < length {
            // These are the name in the question, its type and class, a TTL of zero, and the
            // length.
            answer.extend([0xc0, 12, kind[0], kind[1], 0, 1, 0, 0, 0, 0, 0, length]);
            answer.extend(found);
        }
        Some((delay, answer))
    }
}

/// Returns a way to a server that has a name, and a client that uses it.
fn named(timeout: Duration) -> (Proxy, Client) {
    let proxy = Proxy::start(&ZooKeeper::shared().hosts());
    let client = connect(&format!("zk.test:{}", proxy.port()), timeout);
    (proxy, client)
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_resolver_that_is_dead_slow_or_wrong_costs_no_guard() {
    netns::inside(|| {
        let resolver = Resolver::start();
        let (proxy, client) = named(Duration::from_secs(6));
        let mutex = client.mutex(&fresh_path("named")).unwrap();
        let guard = mutex.lock().unwrap();
        let session = client.session_id();
        let slow = Says::After(Duration::from_secs(4), HERE);
        for answers in [
            vec![Says::Nothing],
            vec![Says::Unknown],
            vec![slow],
            vec![Says::Address(ELSEWHERE), Says::Address(HERE)],
        ] {
            let what = format!("{answers:?}");
            resolver.says(answers);
            let before = proxy.greetings();
            proxy.cut();
            eventually("it connects again", || before < proxy.greetings());
            eventually(&what, || guard.verify().is_ok());
            assert_eq!(client.session_id(), session, "{what}");
            // The next answer is for a question of its own.
            resolver.says([Says::Address(HERE)]);
        }
        guard.unlock().unwrap();
    });
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_that_moves_is_found_at_the_next_attempt() {
    netns::inside(|| {
        let resolver = Resolver::start();
        let (mut proxy, client) = named(Duration::from_secs(6));
        let mutex = client.mutex(&fresh_path("moved")).unwrap();
        let guard = mutex.lock().unwrap();
        let addresses = (2..6).map(|last| IpAddr::from([127, 0, 0, last]));
        // The last server has no IPv4 address.
        for address in addresses.chain([Ipv6Addr::LOCALHOST.into()]) {
            resolver.says([Says::Address(address)]);
            let before = proxy.greetings();
            proxy.move_to(address);
            eventually("it connects again", || before < proxy.greetings());
            eventually("it holds", || guard.verify().is_ok());
        }
        guard.unlock().unwrap();
    });
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_server_whose_name_was_unknown_while_it_moved_is_found_before_a_guard_is_lost() {
    netns::inside(|| {
        let resolver = Resolver::start();
        let (mut proxy, client) = named(Duration::from_secs(10));
        let mutex = client.mutex(&fresh_path("moved")).unwrap();
        let guard = mutex.lock().unwrap();
        resolver.says([Says::Unknown]);
        let there = IpAddr::from([127, 0, 0, 2]);
        proxy.move_to(there);
        // The address now belongs to a server that accepts connections and says nothing.
        let _mute = TcpListener::bind((HERE, proxy.port())).unwrap();
        thread::sleep(Duration::from_secs(1));
        let before = proxy.greetings();
        resolver.says([Says::Address(there)]);
        eventually("it connects again", || before < proxy.greetings());
        eventually("it holds", || guard.verify().is_ok());
        guard.unlock().unwrap();
    });
}

#[test]
#[ignore = "needs a network namespace"]
fn whoever_has_a_servers_old_address_by_now_ends_no_session_that_may_be_alive() {
    netns::inside(|| {
        let resolver = Resolver::start();
        let server = Server::start().unwrap();
        let mut proxy = Proxy::start(server.hosts());
        let hosts = format!("zk.test:{}", proxy.port());
        let client = connect(&hosts, Duration::from_secs(20));
        let session = client.session_id();
        let guard = client.mutex("/m").unwrap().lock().unwrap();
        // A server that has not seen as much as the client would not answer.
        let other = Server::start().unwrap();
        let mut others = Proxy::start(other.hosts());
        resolver.says([Says::Unknown]);
        let there = IpAddr::from([127, 0, 0, 2]);
        proxy.move_to(there);
        others.take_over(HERE, proxy.port());
        eventually("it asks there", || 0 < others.greetings());
        resolver.says([Says::Address(there)]);
        eventually("it is back", || {
            guard.check().expect("it is held");
            guard.verify().is_ok()
        });
        assert_eq!(client.session_id(), session);
    });
}

#[test]
#[ignore = "needs ZooKeeper servers"]
fn whoever_has_a_servers_old_address_by_now_grants_no_locks_in_its_place() {
    netns::inside(|| {
        let resolver = Resolver::start();
        let other = ZooKeeper::start();
        let (mut proxy, client) = named(Duration::from_secs(2));
        let mut others = Proxy::start(&other.hosts());
        let mutex = client.mutex(&fresh_path("others")).unwrap();
        let guard = mutex.lock().unwrap();
        resolver.says([Says::Unknown]);
        let there = IpAddr::from([127, 0, 0, 2]);
        proxy.move_to(there);
        others.take_over(HERE, proxy.port());
        let next = aside(move || mutex.lock().map(drop));
        // That takes longer than the session lasts and servers count it: each pause is a fifth of
        // the time that has passed, so these attempts take twice as long.
        eventually("it tries and tries", || 16 <= others.connections());
        assert!(guard.check().is_err());
        drop(guard);
        assert!(next.is_empty());
        assert_eq!(other.monitor("zk_global_sessions"), Some(0));

        resolver.says([Says::Address(there)]);
        next.recv_timeout(6 * SOON).unwrap().unwrap();
        assert_eq!(other.monitor("zk_global_sessions"), Some(0));
    });
}

#[test]
#[ignore = "needs a network namespace"]
fn connect_ends_in_time_while_no_name_is_resolved() {
    netns::inside(|| {
        let resolver = Resolver::start();
        resolver.says([Says::Nothing]);
        let client = Client::builder("zk1.test,zk2.test").connect_timeout(Duration::from_secs(1));
        let (connected, time) = timed(|| client.connect());
        let error = connected.unwrap_err();
        assert!(matches!(error, Error::ConnectTimeout { .. }), "{error}");
        assert!(
            error.to_string().contains("its name is being resolved"),
            "{error}"
        );
        assert!(time < SOON, "{time:?}");
        // Both names are looked up at the same time.
        eventually("both are asked for", || 2 <= resolver.asked());
    });
}

#[test]
#[ignore = "needs a network namespace"]
fn connect_does_not_complain_of_a_name_that_was_resolved_late() {
    netns::inside(|| {
        let resolver = Resolver::start();
        resolver.says([Says::After(Duration::from_secs(1), ELSEWHERE)]);
        let client = Client::builder("zk.test:1,127.0.0.1:1");
        let client = client.connect_timeout(Duration::from_secs(4));
        let error = client.connect().unwrap_err().to_string();
        assert!(error.contains("zk.test:1 (127.0.0.9): "), "{error}");
        assert!(!error.contains("resolved"), "{error}");
    });
}

/// The system repeats a question only after half a minute here.
#[test]
#[ignore = "needs a network namespace"]
fn a_name_is_looked_up_again_while_a_lookup_hangs() {
    netns::inside(|| {
        let resolver = Resolver::start_with("options timeout:30 attempts:1");
        let server = Server::start().unwrap();
        let hosts = server.hosts().replace("127.0.0.1", "zk.test");
        resolver.says([Says::Nothing]);
        let client = Client::builder(&hosts).connect_timeout(6 * SOON);
        let connected = aside(move || client.connect().map(drop));
        eventually("it is asked for", || 0 < resolver.asked());
        resolver.says([Says::Address(HERE)]);
        connected.recv_timeout(2 * SOON).expect("in time").unwrap();
    });
}
