//! Rivals: several processes take over the same lock at the same time, each by another server.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use zklock::{Client, Error, LostReason};

use crate::support::ensemble::Ensemble;
use crate::support::raw::assert_nothing_left;
use crate::support::{eventually, fresh_path};

const ROUNDS: usize = 60;
const TIMEOUT: Duration = Duration::from_secs(10);

/// A server finds the connection for an answer by the session and the number of the request, which the rivals have
/// in common.
#[test]
#[ignore = "needs ZooKeeper servers"]
fn of_those_that_take_over_by_different_servers_one_holds() {
    let ensemble = Ensemble::start();
    let path = fresh_path("rivals");
    for round in 0..ROUNDS {
        let holder = Client::builder(&ensemble.hosts()).session_timeout(TIMEOUT);
        let guard = holder
            .connect()
            .and_then(|client| client.mutex(&path)?.lock());
        let text = guard.unwrap().hand_over().unwrap().text();
        let barrier = Barrier::new(3);
        let outcomes: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..3)
                .map(|server| {
                    let builder = Client::builder(&ensemble.server(server).hosts());
                    let (text, barrier) = (&text, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        let taken = builder.take_over(&text.parse().unwrap());
                        taken.map(|(client, guard)| (client, guard.into_send()))
                    })
                })
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let (won, others): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        for other in others {
            let why = other.unwrap_err();
            let other = matches!(&why, Error::Lost { why, .. } if *why == LostReason::HandedOver);
            assert!(other, "{why} in round {round}");
        }
        let [Ok((_client, guard))] = &won[..] else {
            panic!("{won:?} in round {round}");
        };
        eventually("it is held", || {
            guard.check().unwrap();
            guard.verify().is_ok()
        });
    }
    assert_nothing_left(&ensemble.hosts(), &path);
}
