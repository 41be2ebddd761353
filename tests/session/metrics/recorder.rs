//! A recorder of the `metrics` facade that asks the client something whenever it is called.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use ::metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use crossbeam_channel::{Receiver, Sender, bounded, select};
use zklock::embedded::Server;
use zklock::{Client, GuardEvent, SessionState};

use super::fail_in_every_way;
use crate::SOON;
use crate::support::worker::alone;
use crate::support::{aside, eventually, fresh_path};

static CLIENT: OnceLock<Client> = OnceLock::new();

/// At these the recorder locks a mutex, too.
const LOCKS_AT: [&str; 3] = [
    "zklock_expiries_total",
    "zklock_leftovers_deleted_total",
    "zklock_reconnects_total",
];

thread_local! {
    /// Whether the recorder is at work: its own actions are not recorded.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Asks the client all questions, which takes every lock inside it that questions take.
fn ask(locks: bool) {
    if INSIDE.replace(true) {
        return;
    }
    if let Some(client) = CLIENT.get() {
        let _ = (client.state(), client.metrics(), client.session_id());
        let _ = (client.events(), format!("{client:?}"));
        let _ = client.metrics_by_lock();
        if locks {
            drop(client.mutex(&fresh_path("recorded")).unwrap().lock());
        }
    }
    INSIDE.set(false);
}

struct Curious {
    locks: bool,
}

impl CounterFn for Curious {
    fn increment(&self, _: u64) {
        ask(self.locks);
    }

    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Curious {
    fn record(&self, _: f64) {
        ask(self.locks);
    }
}

impl Recorder for Curious {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let locks = LOCKS_AT.contains(&key.name());
        Counter::from_arc(Arc::new(Self { locks }))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Self { locks: false }))
    }
}

/// A recorder that blocks on the count of a wait until it is released.
struct Slow {
    entered: Sender<()>,
    leave: Receiver<()>,
}

impl CounterFn for Slow {
    fn increment(&self, _: u64) {
        let _ = self.entered.send(());
        let _ = self.leave.recv();
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for Slow {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let (entered, leave) = (self.entered.clone(), self.leave.clone());
        match key.name() == "zklock_waits_total" {
            true => Counter::from_arc(Arc::new(Self { entered, leave })),
            false => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A thread that waits for a lock reads for the whole client, and nobody else did while the recorder had it.
#[test]
fn while_a_recorder_is_slow_the_guards_of_other_threads_hear_from_the_servers() {
    alone(|| {
        let (entered, enters) = bounded(1);
        let (leaves, leave) = bounded(1);
        ::metrics::set_global_recorder(Slow { entered, leave })
            .ok()
            .unwrap();
        let server = Server::start().unwrap();
        let [client, other] = [(); 2].map(|()| Client::connect(server.hosts()).unwrap());
        let held = client.mutex("/slow/held").unwrap().lock().unwrap();
        let waits = loop {
            let ahead = other.mutex("/slow/waited").unwrap().lock().unwrap();
            let mutex = client.mutex("/slow/waited").unwrap();
            // It is free for the other client after that, which must not wait for it.
            let waits = aside(move || mutex.lock()?.unlock());
            eventually("a waiter", || {
                other.contenders("/slow/waited").unwrap().len() == 2
            });
            drop(ahead);
            // A client whose node is there may still find the lock free, without a wait.
            select! {
                recv(enters) -> entered => break entered.map(|()| waits).unwrap(),
                recv(waits) -> locked => locked.unwrap().unwrap(),
            }
        };
        other.contenders("/slow/held").unwrap()[0].revoke().unwrap();
        let told = || held.events().recv_timeout(SOON);
        let asked = loop {
            match told() {
                Ok(GuardEvent::RevokeRequested) => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        leaves.send(()).unwrap();
        waits.recv_timeout(SOON).unwrap().unwrap();
        assert!(asked, "nobody reads while the recorder blocks");
    });
}

/// This test runs alone: a process has one recorder.
#[test]
fn a_recorder_may_ask_the_client_whenever_it_is_told_something() {
    alone(|| {
        ::metrics::set_global_recorder(Curious { locks: false })
            .ok()
            .unwrap();
        let server = Server::start().unwrap();
        let builder = Client::builder(server.hosts())
            .local_handoffs(2)
            .metrics_by_lock(1);
        let client = CLIENT.get_or_init(|| builder.connect().unwrap());
        let other = Client::connect(server.hosts()).unwrap();
        let done = aside(move || {
            let mutex = client.mutex(&fresh_path("recorder")).unwrap();
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| drop(mutex.lock().unwrap()));
                }
            });
            fail_in_every_way(&server, client, &other);
            eventually("another session", || {
                client.state() == SessionState::Connected
            });
            client.close().unwrap();
            client.state()
        });
        let state = done.recv_timeout(Duration::from_secs(120));
        assert_eq!(state, Ok(SessionState::Closed), "it hangs");
    });
}
