//! Every order of two calling threads, the I/O thread and the end of the connection.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::ThreadId;

use super::*;
use crate::system::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use crate::system::simulated::{JoinHandle, all_orders, elapsed, spawn};
use crate::time::limit::Limit;
use crate::transport::{Call, Reading, Transport, WatchId};
use crate::transport::{Mailbox, Slot};

const SOON: Duration = Duration::from_secs(1);

/// What arrives on the connection.
#[derive(Debug)]
enum Frame {
    /// The reply to a call.
    Reply(Slot<Reply>, u32),
    /// A calling thread that reads this panics.
    Mine,
    /// The server closes the connection.
    HangUp,
}

/// How a call ends.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Reply {
    Value(u32),
    /// The connection has ended.
    Gone,
    /// The limit was reached.
    Late,
    /// The calling thread panicked while it read.
    Panicked,
}

/// A connection made of a channel.
#[derive(Debug)]
struct Wire {
    from: Receiver<Frame>,
    io: Option<ThreadId>,
    ended: bool,
}

impl Wire {
    fn of(from: Receiver<Frame>) -> Self {
        Self {
            from,
            io: None,
            ended: false,
        }
    }
}

impl Read for Wire {
    fn begin(&mut self) -> Result<(), End> {
        self.io = Some(thread::current().id());
        Ok(())
    }

    fn turn(&mut self, until: Option<Instant>) -> Result<(), End> {
        assert!(!self.ended, "it reads on after the end");
        let frame = match until {
            None => self.from.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => self.from.recv_deadline(until),
        };
        match frame {
            Ok(Frame::Reply(slot, value)) => slot.put(Reply::Value(value)),
            Ok(Frame::Mine) if self.io == Some(thread::current().id()) => {
                return Err(panicked());
            }
            Ok(Frame::Mine) => resume_unwind(Box::new("on purpose")),
            Ok(Frame::HangUp) | Err(RecvTimeoutError::Disconnected) => {
                self.ended = true;
                return Err(End::HungUp);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        Ok(())
    }
}

fn panicked() -> End {
    End::Broken(PANICKED.to_owned())
}

/// The client's side of the connection.
#[derive(Clone)]
struct Rig {
    reading: Arc<LeaderFollowers>,
    wire: Sender<Frame>,
}

impl Transport for Rig {
    fn send(&self, _: Vec<Call>) {}

    fn unwatch(&self, _: &str, _: WatchId) {}

    fn transacts(&self) -> bool {
        unreachable!("no test asks")
    }

    fn rest(&self, awake: &dyn Fn() -> bool, until: Option<Instant>) {
        self.reading.rest(awake, until);
    }

    fn reading(&self) -> Option<&LeaderFollowers> {
        Some(&self.reading)
    }

    fn close(&self, _: Duration) -> bool {
        true
    }
}

impl Rig {
    /// Starts the I/O thread, which reads, and answers the remaining calls at the end.
    fn start() -> (Self, JoinHandle<End>) {
        let (wire, from) = unbounded();
        let reading = Arc::<LeaderFollowers>::default();
        let inner = Arc::clone(&reading);
        let io = move || {
            let left = from.clone();
            let end = inner.serve(Box::new(Wire::of(from)));
            for frame in left.iter() {
                if let Frame::Reply(slot, _) = frame {
                    slot.put(Reply::Gone);
                }
            }
            end
        };
        let io = spawn("io", io).expect("a thread");
        (Self { reading, wire }, io)
    }

    /// Makes a call, whose reply the server sends as soon as it is asked.
    fn call(&self, value: u32) -> Reply {
        self.call_with(value, &Limit::new(None, None))
    }

    fn call_with(&self, value: u32, limit: &Limit) -> Reply {
        let mailbox = Mailbox::new();
        let reply = Frame::Reply(mailbox.slot(), value);
        self.wire.try_send(reply).expect("it is read");
        self.receive(&mailbox, limit)
    }

    fn receive(&self, mailbox: &Mailbox<Reply>, limit: &Limit) -> Reply {
        let waits = AssertUnwindSafe(|| (self as &dyn Transport).receive(mailbox, limit));
        let reply = match catch_unwind(waits) {
            Ok(reply) => reply.unwrap_or(Reply::Late),
            Err(_) => Reply::Panicked,
        };
        assert!(mailbox.letters().is_empty(), "it is answered twice");
        reply
    }

    fn calls(&self, value: u32) -> JoinHandle<Reply> {
        let rig = self.clone();
        spawn("calls", move || rig.call(value)).expect("a thread")
    }

    /// Makes a call whose slot goes to `server`, which sends the reply.
    fn asks(&self, server: &Sender<Slot<Reply>>) -> JoinHandle<Reply> {
        let (rig, server) = (self.clone(), server.clone());
        let ask = move || {
            let mailbox = Mailbox::new();
            server.try_send(mailbox.slot()).expect("it listens");
            rig.receive(&mailbox, &Limit::new(None, None))
        };
        spawn("asks", ask).expect("a thread")
    }

    /// Sends a reply to no call, after which the I/O thread may make room and fall asleep.
    fn ping(&self) {
        self.reply(Mailbox::new().slot(), 0);
    }

    fn reply(&self, slot: Slot<Reply>, value: u32) {
        let reply = Frame::Reply(slot, value);
        self.wire.try_send(reply).expect("it is read");
    }

    /// Closes the connection, and waits for the I/O thread.
    fn end(self, io: JoinHandle<End>) -> End {
        let reading = Arc::clone(&self.reading);
        let wire = self.wire.clone();
        drop(self);
        wire.try_send(Frame::HangUp).expect("it is read");
        drop(wire);
        let end = joined(io);
        let lead = reading.lead.lock();
        assert!(lead.followers.is_empty(), "somebody is left to be called");
        assert!(lead.free.is_none() && lead.end.is_none());
        drop(lead);
        end
    }
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no panic but those on purpose")
}

#[test]
fn two_calls_are_answered_whoever_reads() {
    let (seen, _) = all_orders(3, || {
        let (rig, io) = Rig::start();
        let other = rig.calls(2);
        rig.ping();
        let replies = [rig.call(1), joined(other)];
        // Neither call waited until the I/O thread reclaimed the lead.
        assert!(elapsed() < LULL, "a reply was not read for {:?}", elapsed());
        let turns = rig.reading.lead.lock().turns;
        assert_eq!(rig.end(io), End::HungUp);
        assert_eq!(replies, [Reply::Value(1), Reply::Value(2)]);
        turns
    });
    assert!(seen.contains(&0) && 1 < seen.len(), "{seen:?}");
}

#[test]
fn all_come_back_when_the_connection_ends() {
    let (seen, _) = all_orders(2, || {
        let (rig, io) = Rig::start();
        let others = [rig.calls(1), rig.calls(2)];
        // The end comes before, between or after the calls.
        assert_eq!(rig.end(io), End::HungUp);
        others.map(joined)
    });
    let value = |reply: &Reply| matches!(reply, Reply::Value(_));
    for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
        let came = seen
            .iter()
            .any(|replies| [value(&replies[0]), value(&replies[1])] == [one, other]);
        assert!(came, "{one} {other}: {seen:?}");
    }
    let bad = |reply: &Reply| matches!(reply, Reply::Late | Reply::Panicked);
    assert!(!seen.iter().flatten().any(bad), "{seen:?}");
}

#[test]
fn replies_in_another_order_are_read_without_a_lull() {
    let (seen, _) = all_orders(1, || {
        let (rig, io) = Rig::start();
        let (server, asked) = unbounded();
        let threads = [rig.asks(&server), rig.asks(&server)];
        let slots = [(); 2].map(|()| asked.recv().expect("both ask"));
        let [first, second] = slots;
        rig.ping();
        rig.reply(second, 2);
        rig.reply(first, 1);
        let mut replies = threads.map(joined);
        assert!(elapsed() < LULL, "a reply was not read for {:?}", elapsed());
        assert_eq!(rig.end(io), End::HungUp);
        replies.sort_unstable();
        replies
    });
    let both = [Reply::Value(1), Reply::Value(2)];
    assert_eq!(seen, [both].into_iter().collect());
}

#[test]
fn a_thread_whose_time_is_up_leaves_the_lead_to_the_other() {
    const LIMIT: Duration = Duration::from_millis(10);
    let (seen, _) = all_orders(2, || {
        let (rig, io) = Rig::start();
        let (server, asked) = unbounded();
        let other = rig.asks(&server);
        let slot = asked.recv().expect("it asks");
        rig.ping();
        let unanswered = Mailbox::new();
        let mine = rig.receive(&unanswered, &Limit::after(LIMIT));
        rig.reply(slot, 2);
        let other = joined(other);
        let soon = LIMIT + Duration::from_millis(1);
        assert!(
            elapsed() < soon,
            "a reply was not read until {:?}",
            elapsed()
        );
        assert_eq!(rig.end(io), End::HungUp);
        [mine, other]
    });
    let both = [Reply::Late, Reply::Value(2)];
    assert_eq!(seen, [both].into_iter().collect());
}

#[test]
fn a_leader_that_panics_ends_the_connection_and_leaves_nobody_behind() {
    let (seen, _) = all_orders(2, || {
        let (rig, io) = Rig::start();
        let other = rig.calls(2);
        rig.wire.try_send(Frame::Mine).expect("it is read");
        let replies = [rig.call(1), joined(other)];
        assert_eq!(rig.end(io), panicked());
        replies
    });
    let panicked = |replies: &[Reply; 2]| replies.contains(&Reply::Panicked);
    assert!(seen.iter().any(panicked), "no caller read: {seen:?}");
    let bad = [Reply::Panicked; 2];
    assert!(!seen.contains(&bad), "both read it: {seen:?}");
}

/// Another thread has led meanwhile, and leaves. The simulation's seed 229174232434461 plays this.
#[test]
fn the_io_thread_reads_for_one_that_waits_on_a_channel_whoever_led_before() {
    const SLEEP: Duration = Duration::from_millis(100);
    let (seen, _) = all_orders(1, || {
        let (rig, io) = Rig::start();
        let (cancel, cancelled) = bounded::<()>(1);
        let mailbox = Mailbox::new();
        let slot = mailbox.slot();
        let server = rig.clone();
        let other = move || {
            // The reply comes long after the other thread has begun to wait.
            thread::sleep(SLEEP);
            let mine = server.call(2);
            server.reply(slot, 1);
            mine
        };
        let other = spawn("calls", other).expect("a thread");
        let mine = rig.receive(&mailbox, &Limit::new(None, Some(cancelled)));
        let late = elapsed().saturating_sub(SLEEP);
        assert!(late < LULL, "a reply was not read for {late:?}");
        let replies = [mine, joined(other)];
        assert_eq!(rig.end(io), End::HungUp);
        drop(cancel);
        replies
    });
    let both = [Reply::Value(1), Reply::Value(2)];
    assert_eq!(seen, [both].into_iter().collect());
}

#[test]
fn the_io_thread_reads_for_one_that_waits_on_a_channel() {
    let (seen, _) = all_orders(2, || {
        let (rig, io) = Rig::start();
        let other = rig.calls(2);
        let (_cancel, cancelled) = bounded(1);
        let replies = [
            rig.call_with(1, &Limit::new(None, Some(cancelled))),
            joined(other),
        ];
        assert!(elapsed() < LULL, "a reply was not read for {:?}", elapsed());
        assert_eq!(rig.end(io), End::HungUp);
        replies
    });
    let both = [Reply::Value(1), Reply::Value(2)];
    assert_eq!(seen, [both].into_iter().collect());
}

/// A thread that reads again and again leaves the lead to another one, and at the end to the I/O thread.
#[test]
fn a_thread_that_reads_again_soon_keeps_no_other_from_its_reply() {
    let (seen, _) = all_orders(1, || {
        let (rig, io) = Rig::start();
        let (server, asked) = unbounded();
        let reads = rig.clone();
        let again = move || {
            let _reading = Reading::of(&reads);
            [reads.call(1), reads.call(2)]
        };
        let again = spawn("reads again", again).expect("a thread");
        let other = rig.asks(&server);
        rig.ping();
        assert_eq!(joined(again), [1, 2].map(Reply::Value));
        let slot = asked.recv().expect("it asks");
        rig.reply(slot, 3);
        let other = joined(other);
        assert!(elapsed() < LULL, "a reply was not read for {:?}", elapsed());
        // No thread waits any more: the I/O thread reads what arrives now.
        let (turns, before) = (rig.reading.lead.lock().turns, elapsed());
        let mailbox = Mailbox::<Reply>::new();
        rig.reply(mailbox.slot(), 4);
        let letter = mailbox.letters().recv();
        assert_eq!(letter, Ok(Reply::Value(4)));
        let late = elapsed() - before;
        assert!(late < 3 * LULL, "a reply was not read for {late:?}");
        assert_eq!(rig.end(io), End::HungUp);
        (other, turns != 0)
    });
    let outcomes = [false, true].map(|led| (Reply::Value(3), led));
    assert!(seen.contains(&outcomes[1]), "no other thread led: {seen:?}");
    assert!(seen.iter().all(|one| outcomes.contains(one)), "{seen:?}");
}

/// The errand runs once, whether the I/O thread looks around or sleeps, and even if the connection ends.
#[test]
fn what_is_to_be_done_soon_is_done_once() {
    for (ends, pause) in [(false, 0), (true, 0), (false, 3), (true, 3)] {
        let (seen, _) = all_orders(1, move || {
            let (rig, io) = Rig::start();
            let (server, asked) = unbounded();
            let other = rig.asks(&server);
            let slot = asked.recv().expect("it asks");
            rig.ping();
            thread::sleep(LULL * pause);
            let (done, errands) = unbounded();
            let begun = elapsed();
            rig.reading.soon(Box::new(move || {
                done.try_send(()).expect("it is waited for")
            }));
            let late = match ends {
                true => {
                    rig.reply(slot, 1);
                    assert_eq!(rig.end(io), End::HungUp);
                    assert_eq!(errands.try_recv(), Ok(()), "the connection has ended");
                    elapsed() - begun
                }
                false => {
                    assert_eq!(errands.recv(), Ok(()));
                    let late = elapsed() - begun;
                    rig.reply(slot, 1);
                    assert_eq!(rig.end(io), End::HungUp);
                    late
                }
            };
            assert!(errands.recv().is_err(), "it was done twice");
            assert_eq!(joined(other), Reply::Value(1));
            late
        });
        assert!(seen.iter().all(|late| *late < 3 * LULL), "{seen:?}");
        // In some orders, the I/O thread runs the errand, and not the thread that wants it.
        let by_it = seen.iter().any(|late| LULL <= *late);
        assert!(ends || by_it, "{pause}: {seen:?}");
    }
}

/// A thread that waits on a channel calls the I/O thread, but the thread that has read before takes the lead first.
#[test]
fn what_is_to_be_done_soon_is_done_although_the_lead_was_to_be_reclaimed() {
    let (seen, _) = all_orders(2, || {
        let (rig, io) = Rig::start();
        let (server, asked) = unbounded();
        let (reads, to) = (rig.clone(), server.clone());
        let again = move || {
            let _reading = Reading::of(&reads);
            [(); 2].map(|()| {
                let mailbox = Mailbox::new();
                to.try_send(mailbox.slot()).expect("it listens");
                reads.receive(&mailbox, &Limit::new(None, None))
            })
        };
        let again = spawn("reads again", again).expect("a thread");
        let first = asked.recv().expect("it asks");
        rig.ping();
        thread::sleep(3 * LULL);
        rig.reading.attend();
        rig.reply(first, 1);
        let second = asked.recv().expect("it asks again");
        rig.reading.attended();
        thread::sleep(CALM + 3 * LULL);
        let (done, errands) = unbounded();
        let begun = elapsed();
        rig.reading.soon(Box::new(move || {
            done.try_send(()).expect("it is waited for")
        }));
        assert_eq!(errands.recv_timeout(SOON), Ok(()), "it was forgotten");
        let late = elapsed() - begun;
        rig.reply(second, 2);
        assert_eq!(joined(again), [1, 2].map(Reply::Value));
        assert_eq!(rig.end(io), End::HungUp);
        late.is_zero()
    });
    assert!(
        seen.contains(&false),
        "the I/O thread always reads: {seen:?}"
    );
}
