//! Who reads what the server sends: one thread at a time, the leader.
//!
//! The I/O thread leads until another thread waits for an answer: then that one reads, since
//! it would otherwise have to be woken by the thread that does. A leader that leaves calls
//! the next follower. The I/O thread reclaims the lead when no other thread wanted it for a
//! moment, when the connection has ended, and for as long as many wait: replies come many
//! at a time then, and it wakes all of them without leaving.
//!
//! The pattern is known as leader and followers (Schmidt and others, "Pattern-Oriented
//! Software Architecture", volume 2).

use std::fmt;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::transport::slot::park;

/// How long the I/O thread leaves the lead to others before it reclaims it: longer than
/// a server that is near needs for an answer, or it would be woken for each.
const LULL: Duration = Duration::from_millis(4);
/// If more than these wait, it is a crowd.
const FEW: usize = 2;
/// How long ago the last crowd must be for the I/O thread to leave.
const CALM: Duration = Duration::from_millis(20);

/// A connection that one thread at a time reads.
pub(super) trait Read {
    /// Why there is nothing more to read.
    type End: fmt::Debug;

    /// What comes before the first turn.
    fn begin(&mut self) -> Result<(), Self::End>;

    /// Waits for bytes until then, or for less, and acts on what came.
    fn turn(&mut self, until: Option<Instant>) -> Result<(), Self::End>;

    /// The end of a connection whose leader panicked.
    fn panicked() -> Self::End;
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct LeaderFollowers<R: Read> {
    lead: Mutex<Lead<R>>,
    /// Where the I/O thread sleeps.
    io: Condvar,
}

#[derive(Debug)]
struct Lead<R: Read> {
    /// What there is to read; absent while a thread reads, and without a connection.
    free: Option<Box<R>>,
    /// Why there is nothing more to read.
    end: Option<R::End>,
    /// Those that wait for another thread to read, or for the lead.
    followers: Vec<(u64, Thread)>,
    /// The number of the last follower.
    last: u64,
    /// How often a thread of a user's took the lead.
    turns: u64,
    /// A thread followed while the I/O thread led.
    wanted: bool,
    /// When there was last a crowd, or a thread that waits elsewhere.
    crowded: Option<Instant>,
    /// A thread waits elsewhere: the I/O thread is to read for it.
    reclaimed: bool,
    /// The I/O thread sleeps until it is woken.
    asleep: bool,
}

impl<R: Read> Default for LeaderFollowers<R> {
    fn default() -> Self {
        let lead = Lead {
            free: None,
            end: None,
            followers: Vec::new(),
            last: 0,
            turns: 0,
            wanted: false,
            crowded: None,
            reclaimed: false,
            asleep: false,
        };
        Self {
            lead: Mutex::new(lead),
            io: Condvar::new(),
        }
    }
}

impl<R: Read> LeaderFollowers<R> {
    /// Reads until the connection ends; for the I/O thread.
    pub(super) fn serve(&self, mut reader: Box<R>) -> (Box<R>, R::End) {
        if let Err(end) = reader.begin() {
            return (reader, end);
        }
        loop {
            if let Err(end) = reader.turn(None) {
                return (reader, end);
            }
            let state = self.lead.lock();
            if state.wanted && !state.is_crowded() {
                let (back, end) = self.make_room(state, reader);
                reader = back;
                if let Some(end) = end {
                    return (reader, end);
                }
            }
        }
    }

    /// Lets others lead, until none of them does.
    fn make_room(
        &self,
        mut state: MutexGuard<'_, Lead<R>>,
        reader: Box<R>,
    ) -> (Box<R>, Option<R::End>) {
        state.free = Some(reader);
        self.call_next(&mut state);
        loop {
            if state.end.is_none() && !state.reclaimed {
                let seen = state.turns;
                let lull = self.io.wait_for(&mut state, LULL).timed_out();
                if !lull || state.turns != seen {
                    continue;
                }
            }
            if let Some(reader) = state.free.take() {
                state.wanted = false;
                state.reclaimed = false;
                return (reader, state.end.take());
            }
            // Another thread reads through a long wait.
            state.asleep = true;
            self.io.wait(&mut state);
            state.asleep = false;
        }
    }

    /// Reads while the calling thread waits, if nobody else does, or has it sleep, until it
    /// is `awake` or the time has come; perhaps not as long.
    pub(super) fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        let over = || awake() || until.is_some_and(|until| until <= Instant::now());
        let mut state = self.lead.lock();
        while !over() {
            if state.end.is_none()
                && let Some(reader) = state.free.take()
            {
                state.turns += 1;
                drop(state);
                return self.read(reader, over, until);
            }
            let id = state.follow();
            MutexGuard::unlocked(&mut state, || park(until));
            if state.leave(id) {
                return;
            }
        }
        // A thread that was called for nothing calls another.
        self.call_next(&mut state);
    }

    fn read(&self, reader: Box<R>, over: impl Fn() -> bool, until: Option<Instant>) {
        let mut leader = Leader {
            lead: self,
            reader: Some(reader),
            end: Some(R::panicked()),
        };
        leader.end = leader.reader.as_mut().and_then(|reader| {
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
    pub(super) fn reclaim(&self) {
        let mut state = self.lead.lock();
        state.crowded = Some(Instant::now());
        self.call_io(&mut state);
    }

    fn call_io(&self, state: &mut Lead<R>) {
        if state.free.is_some() {
            state.reclaimed = true;
            self.io.notify_one();
        }
    }

    /// The thread that is called leads, or calls the next.
    fn call_next(&self, state: &mut Lead<R>) {
        if state.is_crowded() {
            self.call_io(state);
        } else if state.free.is_some()
            && state.end.is_none()
            && let Some((_, thread)) = state.followers.pop()
        {
            thread.unpark();
        }
    }
}

impl<R: Read> Lead<R> {
    fn follow(&mut self) -> u64 {
        self.last += 1;
        self.wanted = true;
        self.followers.push((self.last, thread::current()));
        if FEW < self.followers.len() {
            self.crowded = Some(Instant::now());
        }
        self.last
    }

    /// Returns whether nobody had called the one that leaves.
    fn leave(&mut self, id: u64) -> bool {
        let before = self.followers.len();
        self.followers.retain(|(follower, _)| *follower != id);
        self.followers.len() < before
    }

    fn is_crowded(&self) -> bool {
        self.crowded.is_some_and(|since| since.elapsed() < CALM)
    }
}

/// A thread that reads; it gives the lead up even in a panic.
struct Leader<'a, R: Read> {
    lead: &'a LeaderFollowers<R>,
    reader: Option<Box<R>>,
    end: Option<R::End>,
}

impl<R: Read> Drop for Leader<'_, R> {
    fn drop(&mut self) {
        let mut state = self.lead.lead.lock();
        state.free = self.reader.take();
        state.end = self.end.take();
        self.lead.call_next(&mut state);
        if state.asleep || state.end.is_some() {
            self.lead.io.notify_one();
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
    use super::super::end::End;
    use super::super::hosts::Target;
    use super::super::identity::Identity;
    use super::super::inbox::Inbox;
    use super::super::receive::{Connection, Reader};
    use super::super::shared::Shared;
    use super::super::{Config, FRAME_LIMIT, Hosts};
    use super::*;
    use crate::jute::{ErrorCode, ReplyHeader, xid};
    use crate::support::eventually;
    use crate::transport::status::Status;

    const SOON: Duration = Duration::from_secs(30);
    /// So long that nothing happens for the sake of the connection.
    const TIMEOUT: Duration = Duration::from_secs(3600);

    /// The lead with an I/O thread, and the server's end of the connection.
    struct Rig {
        reading: Arc<LeaderFollowers<Reader>>,
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
            let session = Identity::default();
            let connection = Connection::new(&shared, &Arc::new(channel), &session, TIMEOUT);
            let reader = Box::new(Reader::new(Inbox::new(FRAME_LIMIT), connection));
            let (end, ended) = bounded(1);
            let reading = Arc::<LeaderFollowers<Reader>>::default();
            let serving = Arc::clone(&reading);
            thread::spawn(move || end.send(serving.serve(reader).1));
            Self {
                reading,
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

        fn turns(&self) -> u64 {
            self.reading.lead.lock().turns
        }

        fn end(&self) -> End {
            self.ended.recv_timeout(SOON).expect("it reads on")
        }

        /// A thread that waits for what nobody reads.
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
        rig.answer_pings_until("one reads", |rig| rig.turns() > 0);
        let [(awake, one), (other_awake, other)] = waiting;
        awake.store(true, Ordering::Release);
        one.thread().unpark();
        rig.answer_pings_until("it leaves", |_| one.is_finished());
        let so_far = rig.turns();
        rig.answer_pings_until("the other reads or has done so", |rig| {
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
        // A thread that could not lead in this time waits again.
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
}
