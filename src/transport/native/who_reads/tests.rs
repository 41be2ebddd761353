//! Which thread reads, and which is called when the reader leaves.

use std::io::Write;
use std::iter;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::system::channel::{Receiver, bounded};

use super::super::Config;
use super::super::channel::Channel;
use super::super::config::FRAME_LIMIT;
use super::super::frame_reader::Inbox;
use super::super::hosts::Target;
use super::super::receive::ConnectionReader;
use super::super::shared::Shared;
use super::*;
use crate::support::eventually;
use crate::transport::handover::SessionKey;
use crate::transport::status::Status;
use zklock_jute::{ErrorCode, ReplyHeader, xid};

const SOON: Duration = Duration::from_secs(30);
/// Long enough that the connection needs nothing meanwhile.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The leader and followers with an I/O thread, and the server's end of the connection.
struct Rig {
    reading: Arc<LeaderFollowers>,
    server: TcpStream,
    ended: Receiver<End>,
}

impl Rig {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let channel = Channel::connect(&Target::of(address), SOON, None).unwrap();
        let (server, _) = listener.accept().unwrap();
        let config = Config::plain(&address.to_string(), TIMEOUT);
        let status = Arc::new(Status::new(TIMEOUT, true));
        let shared = Arc::new(Shared::new(config, status));
        let mut state = shared.state.lock();
        let key = SessionKey::default();
        state.link.greeted(key, TIMEOUT, None, iter::empty());
        drop(state);
        let inbox = Inbox::new(FRAME_LIMIT);
        let reader = Box::new(ConnectionReader::new(inbox, &shared, &Arc::new(channel)));
        let (end, ended) = bounded(1);
        let reading = Arc::<LeaderFollowers>::default();
        let serving = Arc::clone(&reading);
        thread::spawn(move || end.send(serving.serve(reader)));
        Self {
            reading,
            server,
            ended,
        }
    }

    /// Sends pongs, which wake no waiter, until the condition holds.
    fn answer_pings_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let pong = ReplyHeader {
            xid: xid::PING,
            zxid: 0,
            code: ErrorCode::OK,
        };
        let mut frame = Vec::new();
        pong.encode(None, &mut frame);
        eventually(what, || {
            // This fails when the client has closed the connection.
            let _ = self.server.write_all(&frame);
            condition(self)
        });
    }

    fn turns(&self) -> u64 {
        self.reading.lead.lock().turns
    }

    fn end(&self) -> End {
        self.ended.recv_timeout(SOON).expect("it reads on")
    }

    /// Starts a thread that waits for an answer that never arrives.
    fn waits(&self, until: Option<Duration>) -> (Arc<AtomicBool>, JoinHandle<()>) {
        let (reading, awake) = (Arc::clone(&self.reading), Arc::<AtomicBool>::default());
        let until = until.map(|time| Instant::now() + time);
        let woken = Arc::clone(&awake);
        let thread = thread::spawn(move || {
            let awake = || woken.load(Ordering::Acquire);
            while !awake() && until.is_none_or(|until| Instant::now() < until) {
                reading.rest(&awake, until);
            }
        });
        (awake, thread)
    }
}

#[test]
fn a_waiter_reads_and_then_the_next_until_the_connection_ends() {
    let mut rig = Rig::start();
    let waiting = [rig.waits(None), rig.waits(None)];
    rig.answer_pings_until("one leads", |rig| rig.turns() > 0);
    let [(awake, one), (other_awake, other)] = waiting;
    awake.store(true, Ordering::Release);
    one.thread().unpark();
    rig.answer_pings_until("it leaves", |_| one.is_finished());
    let so_far = rig.turns();
    rig.answer_pings_until("the other leads or has led", |rig| {
        let state = rig.reading.lead.lock();
        state.turns > so_far || (state.free.is_none() && state.asleep)
    });
    rig.server.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(rig.end(), End::HungUp);
    other_awake.store(true, Ordering::Release);
    other.thread().unpark();
    other.join().unwrap();
}

#[test]
fn a_leader_reads_no_longer_than_it_waits() {
    let mut rig = Rig::start();
    // A thread that did not get the lead in this time tries again.
    eventually("it waits in vain while it reads", || {
        let before = rig.turns();
        let (_, thread) = rig.waits(Some(Duration::from_secs(1)));
        rig.answer_pings_until("it reads", |rig| {
            rig.turns() > before || thread.is_finished()
        });
        eventually("its time is over", || thread.is_finished());
        rig.turns() > before
    });
}

#[test]
fn a_panic_of_the_leader_costs_the_connection_and_no_more() {
    let mut rig = Rig::start();
    let (reading, armed) = (Arc::clone(&rig.reading), Arc::<AtomicBool>::default());
    let go = Arc::clone(&armed);
    let thread = thread::spawn(move || {
        let awake = || match go.load(Ordering::Acquire) {
            true => panic!("while it reads"),
            false => false,
        };
        let rests = || loop {
            reading.rest(&awake, None);
        };
        catch_unwind(AssertUnwindSafe(rests)).is_err()
    });
    rig.answer_pings_until("it reads", |rig| rig.turns() > 0);
    armed.store(true, Ordering::Release);
    thread.thread().unpark();
    rig.answer_pings_until("it panics", |_| thread.is_finished());
    assert!(matches!(rig.end(), End::Broken(_)));
}
