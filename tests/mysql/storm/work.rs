//! The work of a client's threads, which take locks and record everything.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use zklock::Error;
use zklock::mysql::{Client, MutexGuard};

use super::{NAMES, Storm, THREADS, Way};

use crate::history::{Journal, Kind, Process, What, now};
use crate::ops::TIMEOUT;

/// How many calls a thread makes before its client is dropped.
const CALLS: usize = 5;

const LIMIT: Duration = Duration::from_secs(10);

/// Runs clients with the same connection, in turn, until there are enough acquisitions.
///
/// A client without a pool stays, so that all connections are its own.
pub(super) fn lives(storm: &Storm, client: usize, way: &Way) {
    let journals: Vec<_> = (0..THREADS)
        .map(|thread| {
            let slot = client * THREADS + thread;
            let who = Process { slot, life: 0 };
            Journal::open(&storm.folder.path(format!("{slot}.history")), who)
        })
        .collect();
    let calls = match way {
        Way::Url(_) => usize::MAX,
        Way::Pool(_) => CALLS,
    };
    let mut first = 0_usize;
    while !storm.has_enough() {
        let Ok(client) = way.connect() else { continue };
        thread::scope(|scope| {
            for journal in &journals {
                let client = &client;
                scope.spawn(move || {
                    let end = first.saturating_add(calls);
                    let numbers = (first..end).take_while(|_| !storm.has_enough());
                    numbers.for_each(|number| take(storm, client, journal, number));
                });
            }
        });
        first += CALLS;
    }
}

/// Takes and releases a lock, if it is available.
fn take(storm: &Storm, client: &Client, journal: &Journal, number: usize) {
    let name = format!("n{}", fastrand::usize(..NAMES));
    let mutex = client.mutex(&name).unwrap();
    let request = What::Request {
        kind: Kind::Exclusive,
        paths: vec![name],
        limit: Some(LIMIT),
    };
    journal.note(number, request);
    let why = match mutex.try_lock_for(LIMIT) {
        Ok(Some(guard)) => {
            let tokens = vec![guard.fencing_token().get()];
            journal.note(number, What::Granted { session: 0, tokens });
            storm.acquired.fetch_add(1, Ordering::Relaxed);
            return hold(guard, journal, number);
        }
        Ok(None) => TIMEOUT.to_owned(),
        Err(error @ Error::Database { .. }) => error.to_string().replace('\n', " "),
        Err(error) => panic!("{error}"),
    };
    journal.note(number, What::Refused { why });
}

fn hold(guard: MutexGuard, journal: &Journal, number: usize) {
    // Now and then the hold is longer than the lease, which then must be renewed, or is lost.
    let pause = match fastrand::u8(..12) {
        0 => fastrand::u64(1000..6000),
        _ => fastrand::u64(..3),
    };
    let end = Instant::now() + Duration::from_millis(pause);
    let mut valid = None;
    while Instant::now() < end {
        let at = now();
        if guard.is_valid() {
            valid = Some(at);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let at = now();
    match guard.is_valid() {
        true => valid = Some(at),
        false => journal.note(number, What::Lost),
    }
    if let Some(at) = valid {
        journal.note_at(at, number, What::Valid);
    }
    journal.note(number, What::Release);
    let well = match fastrand::bool() {
        true => guard.unlock().is_ok(),
        false => {
            drop(guard);
            true
        }
    };
    journal.note(number, What::Released { well });
}
