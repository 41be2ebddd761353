//! Who reads what the server sends: one thread at a time, whoever sits in the seat.
//!
//! It is the I/O thread's, until a thread waits for an answer: then that one reads, since
//! it would otherwise have to be woken by the one that does. A thread that leaves calls the
//! next that waits. The I/O thread sits down again when nobody wanted to for a moment, when
//! the connection has ended, and for as long as many wait: replies come many at a time then,
//! and it wakes all of them without leaving.
//!
//! The pattern is known as leader and followers (Schmidt and others, "Pattern-Oriented
//! Software Architecture", volume 2).

use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::receive::{End, Reader};
use crate::transport::mailbox;

/// How long the I/O thread leaves the seat to others before it sits down again: longer than
/// a server that is near needs for an answer, or it would be woken for each.
const LULL: Duration = Duration::from_millis(4);
/// If more than these wait, it is a crowd.
const FEW: usize = 2;
/// How long ago the last crowd must be for the I/O thread to leave.
const CALM: Duration = Duration::from_millis(20);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Seat {
    state: Mutex<State>,
    /// Where the I/O thread sleeps.
    io: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What there is to read; absent while somebody sits, and without a connection.
    free: Option<Box<Reader>>,
    /// Why nobody is to read any more.
    end: Option<End>,
    /// Those who wait for somebody else to read, or for the seat.
    standing: Vec<(u64, Thread)>,
    /// The number of the last who stood.
    last: u64,
    /// How often a thread of a user's sat down.
    sittings: u64,
    /// Somebody stood while the I/O thread sat.
    wanted: bool,
    /// When there was last a crowd, or somebody who can't sit down.
    crowded: Option<Instant>,
    /// Somebody waits who can't sit down.
    summoned: bool,
    /// The I/O thread sleeps until it is woken.
    asleep: bool,
}

impl Seat {
    /// Reads until the connection ends; for the I/O thread.
    pub(super) fn serve(&self, mut reader: Box<Reader>) -> (Box<Reader>, End) {
        if let Err(end) = reader.begin() {
            return (reader, end);
        }
        loop {
            if let Err(end) = reader.turn(None) {
                return (reader, end);
            }
            let state = self.state.lock();
            if state.wanted && !state.is_crowded() {
                let (back, end) = self.make_room(state, reader);
                reader = back;
                if let Some(end) = end {
                    return (reader, end);
                }
            }
        }
    }

    /// Lets others sit, until none of them does.
    fn make_room(
        &self,
        mut state: MutexGuard<'_, State>,
        reader: Box<Reader>,
    ) -> (Box<Reader>, Option<End>) {
        state.free = Some(reader);
        self.call_next(&mut state);
        loop {
            if state.end.is_none() && !state.summoned {
                let seen = state.sittings;
                let lull = self.io.wait_for(&mut state, LULL).timed_out();
                if !lull || state.sittings != seen {
                    continue;
                }
            }
            if let Some(reader) = state.free.take() {
                state.wanted = false;
                state.summoned = false;
                return (reader, state.end.take());
            }
            // It is a long wait that somebody sits through.
            state.asleep = true;
            self.io.wait(&mut state);
            state.asleep = false;
        }
    }

    /// Reads while the calling thread waits, if nobody else does, or has it sleep, until it
    /// is `awake` or the time has come; perhaps not as long.
    pub(super) fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        let over = || awake() || until.is_some_and(|until| until <= Instant::now());
        let mut state = self.state.lock();
        while !over() {
            if state.end.is_none()
                && let Some(reader) = state.free.take()
            {
                state.sittings += 1;
                drop(state);
                return self.sit(reader, over, until);
            }
            let id = state.stand();
            MutexGuard::unlocked(&mut state, || mailbox::park(until));
            if state.leave(id) {
                return;
            }
        }
        // Who was called for nothing calls somebody else.
        self.call_next(&mut state);
    }

    fn sit(&self, reader: Box<Reader>, over: impl Fn() -> bool, until: Option<Instant>) {
        let mut sitting = Sitting {
            seat: self,
            reader: Some(reader),
            end: Some(End::Broken("the thread that read panicked".to_owned())),
        };
        sitting.end = sitting.reader.as_mut().and_then(|reader| {
            while !over() {
                if let Err(end) = reader.turn(until) {
                    return Some(end);
                }
            }
            None
        });
    }

    /// Has the I/O thread read, for a thread that waits elsewhere; and whoever reads now
    /// leaves to it, for nobody else could read for that thread.
    pub(super) fn summon(&self) {
        let mut state = self.state.lock();
        state.crowded = Some(Instant::now());
        self.call_io(&mut state);
    }

    fn call_io(&self, state: &mut State) {
        if state.free.is_some() {
            state.summoned = true;
            self.io.notify_one();
        }
    }

    /// Whoever is called sits down, or calls the next.
    fn call_next(&self, state: &mut State) {
        if state.is_crowded() {
            self.call_io(state);
        } else if state.free.is_some()
            && state.end.is_none()
            && let Some((_, thread)) = state.standing.pop()
        {
            thread.unpark();
        }
    }
}

impl State {
    fn stand(&mut self) -> u64 {
        self.last += 1;
        self.wanted = true;
        self.standing.push((self.last, thread::current()));
        if FEW < self.standing.len() {
            self.crowded = Some(Instant::now());
        }
        self.last
    }

    /// Returns whether nobody had called the one that leaves.
    fn leave(&mut self, id: u64) -> bool {
        let before = self.standing.len();
        self.standing.retain(|(standing, _)| *standing != id);
        self.standing.len() < before
    }

    fn is_crowded(&self) -> bool {
        self.crowded.is_some_and(|since| since.elapsed() < CALM)
    }
}

/// A thread that sits; it leaves the seat even in a panic.
struct Sitting<'a> {
    seat: &'a Seat,
    reader: Option<Box<Reader>>,
    end: Option<End>,
}

impl Drop for Sitting<'_> {
    fn drop(&mut self) {
        let mut state = self.seat.state.lock();
        state.free = self.reader.take();
        state.end = self.end.take();
        self.seat.call_next(&mut state);
        if state.asleep || state.end.is_some() {
            self.seat.io.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::JoinHandle;

    use crossbeam_channel::{Receiver, bounded};

    use super::super::channel::Channel;
    use super::super::hosts::Target;
    use super::super::inbox::Inbox;
    use super::super::io::Session;
    use super::super::receive::Connection;
    use super::super::shared::Shared;
    use super::super::{Config, FRAME_LIMIT, Hosts};
    use super::*;
    use crate::jute::{ErrorCode, ReplyHeader, xid};
    use crate::support::eventually;
    use crate::transport::status::Status;

    const SOON: Duration = Duration::from_secs(30);
    /// So long that nothing happens for the sake of the connection.
    const TIMEOUT: Duration = Duration::from_secs(3600);

    /// A seat with an I/O thread, and the server's end of the connection.
    struct Rig {
        shared: Arc<Shared>,
        server: TcpStream,
        ended: Receiver<End>,
    }

    impl Rig {
        fn start() -> Self {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let channel = Channel::connect(&Target::of(address), SOON, None).unwrap();
            let (server, _) = listener.accept().unwrap();
            let config = Config {
                hosts: Hosts::parse(&address.to_string()).unwrap(),
                session_timeout: TIMEOUT,
                auth: Vec::new(),
                frame_limit: FRAME_LIMIT,
                tls: None,
            };
            let status = Arc::new(Status::new(TIMEOUT, true));
            let shared = Arc::new(Shared::new(config, status));
            let session = Session::default();
            let connection = Connection::new(&shared, &Arc::new(channel), &session, TIMEOUT);
            let reader = Box::new(Reader::new(Inbox::new(FRAME_LIMIT), connection));
            let (end, ended) = bounded(1);
            let seat = Arc::clone(&shared);
            thread::spawn(move || end.send(seat.seat.serve(reader).1));
            Self {
                shared,
                server,
                ended,
            }
        }

        /// Sends what nobody waits for until this holds.
        fn answer_pings_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
            let pong = ReplyHeader {
                xid: xid::PING,
                zxid: 0,
                code: ErrorCode::OK,
            };
            let mut frame = Vec::new();
            pong.encode(None, &mut frame);
            eventually(what, || {
                // Fails when the other end has hung up.
                let _ = self.server.write_all(&frame);
                condition(self)
            });
        }

        fn sittings(&self) -> u64 {
            self.shared.seat.state.lock().sittings
        }

        fn end(&self) -> End {
            self.ended.recv_timeout(SOON).expect("it reads on")
        }

        /// A thread that waits for what nobody reads.
        fn waits(&self, until: Option<Duration>) -> (Arc<AtomicBool>, JoinHandle<()>) {
            let (shared, awake) = (Arc::clone(&self.shared), Arc::<AtomicBool>::default());
            let until = until.map(|time| Instant::now() + time);
            let woken = Arc::clone(&awake);
            let thread = thread::spawn(move || {
                let awake = || woken.load(Ordering::Acquire);
                while !awake() && until.is_none_or(|until| Instant::now() < until) {
                    shared.seat.rest(&awake, until);
                }
            });
            (awake, thread)
        }
    }

    #[test]
    fn who_waits_reads_and_then_the_next_until_the_connection_ends() {
        let mut rig = Rig::start();
        let waiting = [rig.waits(None), rig.waits(None)];
        rig.answer_pings_until("one reads", |rig| rig.sittings() > 0);
        let [(awake, one), (other_awake, other)] = waiting;
        awake.store(true, Ordering::Release);
        one.thread().unpark();
        rig.answer_pings_until("it leaves", |_| one.is_finished());
        let so_far = rig.sittings();
        rig.answer_pings_until("the other reads or has done so", |rig| {
            let state = rig.shared.seat.state.lock();
            state.sittings > so_far || (state.free.is_none() && state.asleep)
        });
        rig.server.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(rig.end(), End::HungUp);
        other_awake.store(true, Ordering::Release);
        other.thread().unpark();
        other.join().unwrap();
    }

    #[test]
    fn who_reads_does_so_no_longer_than_it_waits() {
        let mut rig = Rig::start();
        // Whoever could not sit down in this time waits again.
        eventually("it waits in vain while it reads", || {
            let before = rig.sittings();
            let (_, thread) = rig.waits(Some(Duration::from_secs(1)));
            rig.answer_pings_until("it reads", |rig| {
                rig.sittings() > before || thread.is_finished()
            });
            eventually("its time is over", || thread.is_finished());
            rig.sittings() > before
        });
    }

    #[test]
    fn a_panic_of_who_reads_costs_the_connection_and_no_more() {
        let mut rig = Rig::start();
        let (shared, armed) = (Arc::clone(&rig.shared), Arc::<AtomicBool>::default());
        let go = Arc::clone(&armed);
        let thread = thread::spawn(move || {
            let awake = || match go.load(Ordering::Acquire) {
                true => panic!("while it reads"),
                false => false,
            };
            let rests = || loop {
                shared.seat.rest(&awake, None);
            };
            catch_unwind(AssertUnwindSafe(rests)).is_err()
        });
        rig.answer_pings_until("it reads", |rig| rig.sittings() > 0);
        armed.store(true, Ordering::Release);
        thread.thread().unpark();
        rig.answer_pings_until("it panics", |_| thread.is_finished());
        assert!(matches!(rig.end(), End::Broken(_)));
    }
}
