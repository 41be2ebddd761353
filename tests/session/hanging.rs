//! A server that greets and then answers nothing, or one request after the other.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;

use super::{SOON, connect};
use crate::support::proxy::Proxy;
use crate::support::relay::{listen, pass_on};
use crate::support::{aside, eventually, timed};

const TIMEOUT: Duration = Duration::from_secs(32);

/// The timeout of a session in which many requests take longer than a client waits for one.
const SHORT: Duration = Duration::from_secs(12);

/// The number of bytes in the first frame of a client.
const HELLO: usize = 49;

/// A bad server may cost the client a connection, but not its lock.
#[test]
fn a_server_that_hangs_after_its_greeting_costs_no_lock_while_another_one_answers() {
    let server = Server::start().expect("a server");
    let [first, good] = [(); 2].map(|()| Proxy::start(server.hosts()));
    let hanging = Proxy::start(server.hosts());
    let bad = hang_after_the_greeting(&hanging.hosts());
    for down in [&good, &hanging] {
        down.refuse();
    }
    let hosts = format!("{},{bad},{}", first.hosts(), good.hosts());
    let client = connect(&hosts, TIMEOUT);
    let session = client.session_id();
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    eventually("it is proven", || guard.verify().is_ok());
    hanging.accept();
    first.refuse();
    eventually("the bad one has greeted", || hanging.greetings() == 1);
    good.accept();
    eventually("the good one answers", || {
        guard.check().expect("it is held");
        guard.verify().is_ok()
    });
    assert_eq!(hanging.greetings(), 1, "it is not tried again");
    assert_eq!(client.session_id(), session);
}

/// A waiter sends pings alone.
#[test]
fn a_waiter_leaves_a_server_that_falls_silent_long_before_its_session_ends() {
    let server = Server::start().expect("a server");
    let [first, good] = [(); 2].map(|()| Proxy::start(server.hosts()));
    good.refuse();
    let waiter = connect(&format!("{},{}", first.hosts(), good.hosts()), TIMEOUT);
    let holder = connect(server.hosts(), TIMEOUT);
    let guard = holder.mutex("/m").unwrap().lock().unwrap();
    let waited = {
        let mutex = waiter.mutex("/m").unwrap();
        aside(move || mutex.lock().map(drop))
    };
    eventually("it waits", || holder.contenders("/m").unwrap().len() == 2);
    good.accept();
    first.blackhole();
    guard.unlock().unwrap();
    let ((), took) = timed(|| eventually("it has left", || good.greetings() == 1));
    assert!(took < TIMEOUT / 2, "{took:?}");
    waited.recv_timeout(4 * SOON).expect("the lock").unwrap();
}

/// The client sends more requests than the server answers in 2/3 of the session timeout.
#[test]
fn a_server_that_answers_one_by_one_is_not_left_however_many_requests_wait() {
    let server = Server::start().expect("a server");
    let slow = Proxy::start(server.hosts());
    let client = connect(&one_by_one(&slow.hosts(), SHORT / 30), SHORT);
    let ask = |_| {
        let client = client.clone();
        aside(move || client.nodes().limit(4 * SOON).exists("/n"))
    };
    let asked: Vec<_> = (0..24).map(ask).collect();
    for asked in asked {
        let answer = asked.recv_timeout(4 * SOON).expect("an answer");
        assert_eq!(answer, Ok(false));
    }
    assert_eq!(slow.connections(), 1);
}

/// A link that many share is as slow as this.
#[test]
fn a_large_reply_that_takes_long_to_arrive_is_waited_for() {
    let server = Server::start().expect("a server");
    let slow = Proxy::start(server.hosts());
    let client = connect(&trickle(&slow.hosts(), TIMEOUT / 300), TIMEOUT);
    let data = vec![7; 900_000];
    let nodes = client.nodes().limit(4 * SOON);
    nodes.create("/large", &data[..]).unwrap();
    assert_eq!(nodes.exists("/large"), Ok(true));
    let (read, took) = timed(|| nodes.get("/large"));
    assert_eq!(read.unwrap().expect("it exists").into_data(), data);
    assert!(TIMEOUT / 8 < took, "{took:?}");
    assert_eq!(slow.connections(), 1);
}

fn hang_after_the_greeting(server: &str) -> String {
    let server = server.to_owned();
    listen(move |client| {
        let Ok(server) = TcpStream::connect(&server) else {
            return;
        };
        pass_on(&client, &server, |from, to| {
            let mut hello = [0; HELLO];
            from.read_exact(&mut hello)?;
            to.write_all(&hello)?;
            io::copy(from, &mut io::sink()).map(drop)
        });
        pass_on(&server, &client, |_, _| Ok(()));
    })
}

/// Starts a relay that passes replies on by a few bytes at a time.
fn trickle(server: &str, each: Duration) -> String {
    let server = server.to_owned();
    listen(move |client| {
        let server = TcpStream::connect(&server).expect("the server");
        pass_on(&client, &server, |_, _| Ok(()));
        pass_on(&server, &client, move |from, to| {
            let mut bytes = [0; 16 * 1024];
            loop {
                let read = from.read(&mut bytes)?;
                if read == 0 {
                    return Ok(());
                }
                to.write_all(&bytes[..read])?;
                if read == bytes.len() {
                    thread::sleep(each);
                }
            }
        });
    })
}

/// Starts a relay that passes each reply on only after this time, one after the other.
fn one_by_one(server: &str, each: Duration) -> String {
    let server = server.to_owned();
    listen(move |client| {
        let server = TcpStream::connect(&server).expect("the server");
        pass_on(&client, &server, |_, _| Ok(()));
        pass_on(&server, &client, move |from, to| {
            for pause in [Duration::ZERO].into_iter().chain(std::iter::repeat(each)) {
                let mut head = [0; 4];
                from.read_exact(&mut head)?;
                let mut frame = head.to_vec();
                let length = u64::from(u32::from_be_bytes(head));
                from.take(length).read_to_end(&mut frame)?;
                thread::sleep(pause);
                to.write_all(&frame)?;
            }
            Ok(())
        });
    })
}
