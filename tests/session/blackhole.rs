//! The network swallows everything, in both directions, and no socket closes.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, Error, GuardEvent, GuardState, SendMutexGuard};

use super::{SOON, connect};
use crate::support::proxy::Proxy;
use crate::support::raw::{assert_nothing_left, children, op, wait_for_children};
use crate::support::zookeeper::ZooKeeper;
use crate::support::{aside, eventually, fresh_path, timed};

/// How late most guards and most calls may report what they know.
const SLACK: Duration = Duration::from_millis(500);
/// How late any guard or call may be on a machine that does a hundred other things.
const NOISE: Duration = Duration::from_secs(5);
/// How often a guard is checked.
const LOOK: Duration = Duration::from_millis(4);

/// How long another client waits in vain.
const VAIN: Duration = Duration::from_secs(2);

const TRIALS: u64 = 25;

/// By the clock, the guard would be told T/3 after its last check, and by a check of its own after
/// T/8 and T/6.
#[test]
fn a_call_that_is_not_answered_makes_a_guard_suspect_when_the_client_leaves_the_server() {
    let timeout = Duration::from_secs(20);
    let server = Server::start().unwrap();
    let network = Proxy::start(server.hosts());
    let client = connect(&network.hosts(), timeout);
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    network.blackhole();
    let begun = Instant::now();
    let nodes = client.nodes().limit(timeout);
    let _asks = aside(move || nodes.get("/m").map(drop));
    let told = guard.events().recv_timeout(SOON);
    assert_eq!(told, Ok(GuardEvent::Suspect));
    let took = begun.elapsed();
    assert!(timeout / 8 <= took && took < timeout / 4, "{took:?}");
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_holder_knows_before_anybody_else_gets_its_lock_with_4_s() {
    holders_know_before_anybody_else_gets_their_lock(Duration::from_secs(4));
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn a_holder_knows_before_anybody_else_gets_its_lock_with_10_s() {
    holders_know_before_anybody_else_gets_their_lock(Duration::from_secs(10));
}

fn holders_know_before_anybody_else_gets_their_lock(timeout: Duration) {
    let trial = |i: u64| {
        // The trials do not begin together, nor does the network fail at the same moment for each.
        thread::sleep(Duration::from_millis(40 * i));
        let seen = Trial::new(timeout).run(i);
        println!("{timeout:?} {i:2}: {seen:?}");
        seen
    };
    let trials: Vec<_> = thread::scope(|scope| {
        let trials: Vec<_> = (0..TRIALS).map(|i| scope.spawn(move || trial(i))).collect();
        trials.into_iter().map(|trial| trial.join()).collect()
    });
    let seen: Vec<_> = trials
        .into_iter()
        .map(|seen| seen.expect("a trial"))
        .collect();
    let most = |what: fn(&Seen) -> Duration| seen.iter().map(what).max();
    println!(
        "{timeout:?}, {TRIALS} trials: suspect after {:?} at most, lost after {:?}, the other has it \
         {:?} later at least; a wait of 2 s took {:?} at most, a drop {:?}, close {:?}",
        most(|seen| seen.suspect),
        most(|seen| seen.lost),
        seen.iter().map(|seen| seen.lead).min(),
        most(|seen| seen.wait),
        most(|seen| seen.drop),
        most(|seen| seen.close),
    );
    // A guard that is late had to wait for a processor; half of them did not.
    let median = |what: fn(&Seen) -> Duration| {
        let mut all: Vec<_> = seen.iter().map(what).collect();
        all.sort();
        all[all.len() / 2]
    };
    assert!(median(|seen| seen.suspect) <= timeout / 3 + SLACK);
    assert!(median(|seen| seen.lost) <= timeout / 2 + SLACK);
    assert!(median(|seen| seen.wait) < VAIN + SLACK);
    assert!(median(|seen| seen.drop) < Duration::from_millis(100));
}

/// Two clients, one of which is about to lose the network.
struct Trial {
    timeout: Duration,
    proxy: Proxy,
    victim: Client,
    other: Client,
    path: String,
}

/// The times since the last committed check was sent, and how long calls took.
#[derive(Debug)]
struct Seen {
    suspect: Duration,
    lost: Duration,
    /// The time from the first failed check to the other client's lock.
    lead: Duration,
    wait: Duration,
    drop: Duration,
    close: Duration,
}

impl Trial {
    fn new(timeout: Duration) -> Self {
        let server = ZooKeeper::shared();
        let proxy = Proxy::start(&server.hosts());
        Self {
            timeout,
            victim: connect(&proxy.hosts(), timeout),
            proxy,
            other: connect(&server.hosts(), Duration::from_secs(10)),
            path: fresh_path("blackhole"),
        }
    }

    fn run(&self, i: u64) -> Seen {
        let server = ZooKeeper::shared();
        let [dropped, waited] = ["dropped", "waited"].map(|name| format!("{}-{name}", self.path));
        let guard = self.lock(&self.path);
        let doomed = self.lock(&dropped);
        let (wait, drop, others, (suspect, lost, failed)) = thread::scope(|scope| {
            let other = scope.spawn(|| self.take_over());
            wait_for_children(&server.hosts(), &self.path, 2);
            thread::sleep(self.timeout / 3 * fastrand::u32(0..1000) / 1000);
            self.proxy.blackhole();
            let begun = Instant::now();
            let wait = scope.spawn(|| self.wait_in_vain(&waited));
            let ((), drop) = timed(|| drop(doomed));
            let seen = self.watch(&guard, begun);
            (wait.join().unwrap(), drop, other.join().unwrap(), seen)
        });
        let (got, theirs) = others;
        assert!(failed < got, "two had the lock");
        assert!(guard.check().unwrap_err().is_lost());
        assert_eq!(guard.state(), GuardState::Lost);
        let ((), late_drop) = timed(|| std::mem::drop(guard));
        let close = self.end(i);

        theirs.check().unwrap();
        theirs.unlock().unwrap();
        for path in [&self.path, &dropped, &waited] {
            assert_nothing_left(&server.hosts(), path);
        }
        let seen = Seen {
            suspect,
            lost,
            lead: got - failed,
            wait,
            drop: drop.max(late_drop),
            close,
        };
        assert!(seen.drop < NOISE, "{seen:?}");
        seen
    }

    fn lock(&self, path: &str) -> SendMutexGuard {
        let mutex = self.victim.mutex(path).unwrap();
        mutex.lock().unwrap().into_send()
    }

    /// Waits in the queue, connected directly to the server.
    fn take_over(&self) -> (Instant, SendMutexGuard) {
        let mutex = self.other.mutex(&self.path).unwrap();
        let guard = mutex.lock().unwrap();
        (Instant::now(), guard.into_send())
    }

    fn wait_in_vain(&self, path: &str) -> Duration {
        let mutex = self.victim.mutex(path).unwrap();
        let (locked, took) = timed(|| mutex.try_lock_for(VAIN));
        assert!(!matches!(locked, Ok(Some(_))));
        assert!((VAIN..VAIN + NOISE).contains(&took), "{took:?}");
        took
    }

    /// Checks the guard until its check fails. Returns the age of the last proof when the guard
    /// became suspect and when it was lost, and the time at which the first check failed.
    fn watch(&self, guard: &SendMutexGuard, begun: Instant) -> (Duration, Duration, Instant) {
        let half = self.timeout / 2;
        let (mut until, mut suspect) = (begun, None);
        let mut events = Vec::new();
        let failed = loop {
            // The clock is read first: a pause in between can only make the age too small.
            let now = Instant::now();
            let left = guard.valid_for();
            if !left.is_zero() {
                until = until.max(now + left);
            }
            if guard.check().is_err() {
                break Instant::now();
            }
            events.extend(guard.events().try_iter());
            // A busy machine may have made the guard suspect before.
            if let Some(at) = events.iter().rposition(|event| *event == GuardEvent::Held) {
                events.drain(..=at);
            }
            if events.contains(&GuardEvent::Suspect) && suspect.is_none() {
                suspect = Some(Instant::now());
                assert_ne!(guard.state(), GuardState::Held);
            }
            assert!(begun.elapsed() < 3 * self.timeout, "it never knows");
            thread::sleep(LOOK);
        };
        while events.last() != Some(&GuardEvent::Lost) {
            events.push(guard.events().recv_timeout(SOON).expect("the news"));
        }
        // If the news was held up for long, only the last state was left to report.
        let told = [GuardEvent::Suspect, GuardEvent::Lost];
        assert!(told.ends_with(&events), "{events:?}");
        let suspect = suspect.unwrap_or(failed);
        // No request that was sent into the blackhole can have been confirmed.
        assert!(until <= begun + half);
        assert!(until <= failed, "it gave up before it had to");
        let age = |time: Instant| (time + half).saturating_duration_since(until);
        (age(suspect), age(failed), failed)
    }

    /// Ends the client in the blackhole, or restores its network.
    fn end(&self, i: u64) -> Duration {
        if i % 2 == 0 {
            // A client that could not come back for longer than its session lasts has given that up.
            let has_session = self.victim.session_id() != 0;
            let (closed, took) = timed(|| self.victim.close());
            assert_eq!(
                closed.is_err(),
                has_session,
                "the server can't have heard of it"
            );
            assert!(took < Duration::from_secs(3) + NOISE, "{took:?}");
            self.proxy.heal();
            return took;
        }
        let before = self.victim.session_id();
        self.proxy.heal();
        let path = format!("{}-again", self.path);
        drop(self.victim.mutex(&path).unwrap().lock().unwrap());
        assert_ne!(self.victim.session_id(), before, "that session is over");
        assert_nothing_left(&ZooKeeper::shared().hosts(), &path);
        Duration::ZERO
    }
}

#[test]
#[ignore = "needs a ZooKeeper server"]
fn what_was_sent_into_a_blackhole_and_arrives_late_is_cleared_up() {
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(outlive_a_blackhole);
        }
    });
}

/// Lets a client outlive a blackhole. Its session survives, so any node that it leaves behind would
/// stay.
fn outlive_a_blackhole() {
    let server = ZooKeeper::shared();
    let proxy = Proxy::start(&server.hosts());
    let client = connect(&proxy.hosts(), Duration::from_secs(10));
    let session = client.session_id();
    let (held, free) = (fresh_path("held"), Arc::new(fresh_path("late")));
    // The directory exists, so the create that arrives late makes a node.
    drop(client.mutex(&free).unwrap().lock().unwrap());
    eventually("the release is through", || {
        children(&server.hosts(), &free).is_empty()
    });
    let guard = client.mutex(&held).unwrap().lock().unwrap();
    let creates = proxy.requests(op::CREATE2);

    proxy.blackhole();
    let limit = Duration::from_millis(fastrand::u64(50..1500));
    let (locked, took) = timed(|| client.mutex(&free).unwrap().try_lock_for(limit));
    assert!(matches!(locked, Err(Error::ConnectTimeout { .. })));
    assert!(took < limit + NOISE, "{took:?}");
    proxy.heal();

    // If the client has just left a server that it took for one that hangs, it must come back first.
    eventually("the guard is confirmed", || guard.verify().is_ok());
    assert_eq!(client.session_id(), session);
    assert_eq!(proxy.requests(op::CREATE2), creates + 1, "it was under way");
    assert_nothing_left(&server.hosts(), &free);
    guard.unlock().unwrap();
    assert_nothing_left(&server.hosts(), &held);
}
