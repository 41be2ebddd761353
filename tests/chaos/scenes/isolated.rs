//! A follower that is cut off from its leader while its client stays attached to it.
//!
//! The follower continues to answer pings for as long as its sync limit, while the rest of the
//! ensemble lets the client's session expire and passes its lock on. The client must not rely on
//! these answers, and it does not: it asks the quorum. The second test, which `tests/chaos.sh`
//! compiles with `trust_pings.sh`, shows that the schedule would find a client that relies on them:
//! its clients trust the pings, and there the checker must find two holders.

use std::time::Duration;

use crate::checker::check;
use crate::cluster::{Run, SERVERS, number, row, wait};
use crate::history::{Entry, Process, Time, What};
use crate::holder::{LET_GO, worker_that_holds_mutexes};
use crate::support::eventually;
use crate::support::netns::{self, Network};
use crate::support::zookeeper::ZooKeeper;
use crate::workload::ROOT;

const TIMEOUT: Duration = Duration::from_secs(4);

const OLD: Process = Process { slot: 0, life: 0 };
const NEW: Process = Process { slot: 1, life: 0 };

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn a_holder_behind_an_isolated_follower_knows_before_the_next_one_holds() {
    netns::inside(|| {
        for i in 0..number("ZKLOCK_CHAOS_ISOLATIONS").unwrap_or(2) {
            let seen = isolate(&format!("isolated follower, {}", i + 1));
            assert!(seen.old_valid < seen.new_granted, "{seen:?}");
        }
    });
}

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn without_the_proof_of_life_two_hold_at_a_time() {
    assert!(trusts_pings(), "compile it with tests/chaos/trust_pings.sh");
    netns::inside(|| {
        let seen = isolate("isolated follower, trusting pings");
        assert!(seen.new_granted < seen.old_valid, "{seen:?}");
        let story = seen.story.expect("the checker finds two holders");
        assert!(story.contains("both had a valid hold"), "{story}");
        println!("{story}");
    });
}

/// Returns whether this is compiled with `trust_pings.sh`.
fn trusts_pings() -> bool {
    cfg!(zklock_trust_pings)
}

/// The observations of one run.
#[derive(Debug)]
struct Seen {
    /// The old holder's last check that passed.
    old_valid: Time,
    new_granted: Time,
    story: Option<String>,
}

fn isolate(name: &str) -> Seen {
    // The follower waits for 10 s before it concludes that its leader is gone.
    let builder = ZooKeeper::builder().fsync(false).line("syncLimit=20");
    let network = Network::new(SERVERS + 2);
    let mut run = Run::start_with(name, TIMEOUT, Some(network), &builder);
    let leader = run.ensemble.wait_for_leader();
    let mut follower = None;
    eventually("there is a follower", || {
        follower = run.ensemble.follower();
        follower.is_some()
    });
    let follower = follower.expect("a follower was just seen");
    let path = format!("{ROOT}/isolated");

    let hosts = run.ensemble.server(follower).hosts();
    run.hire(OLD, worker_that_holds_mutexes, &[&hosts, &path]);
    run.worker(OLD.slot).expect("ready");
    run.worker(OLD.slot).expect("held");
    let hosts = run.ensemble.server(leader).hosts();
    run.hire(NEW, worker_that_holds_mutexes, &[&hosts, &path]);
    run.worker(NEW.slot).expect("ready");
    wait(1000);

    run.fault(&format!(
        "follower {follower}, with {OLD}, is cut off from the servers"
    ));
    let cut = run.history().last().map_or(0, |entry| entry.at);
    cut_off(&run, follower);
    run.worker(NEW.slot).expect("held");
    // In this time, two clients would hold the lock if the old holder still did.
    wait(1000);
    let seen = look(&run);
    run.heal();
    run.signal(LET_GO);
    tell(name, cut, &seen, &run.history());
    if !trusts_pings() {
        run.finish();
    }
    seen
}

fn cut_off(run: &Run, follower: usize) {
    let network = run.network.as_ref().expect("a network");
    for other in (0..SERVERS).filter(|other| *other != follower) {
        network.cut(follower, other);
    }
}

fn look(run: &Run) -> Seen {
    let entries = run.history();
    let granted = |entry: &&Entry| matches!(entry.what, What::Granted { .. });
    let mut new = entries.iter().filter(|entry| entry.who == NEW);
    let old = entries.iter().filter(|entry| entry.who == OLD);
    let valid = old.filter(|entry| entry.what == What::Valid);
    Seen {
        old_valid: valid.map(|entry| entry.at).max().unwrap_or(0),
        new_granted: new.find(granted).map_or(0, |entry| entry.at),
        story: check(&entries, &run.rules())
            .err()
            .map(|story| story.to_string()),
    }
}

fn tell(name: &str, cut: Time, seen: &Seen, entries: &[Entry]) {
    let suspect = entries.iter().find(|entry| {
        let told = matches!(&entry.what, What::Told { event } if event == "Suspect");
        told && entry.who == OLD && cut <= entry.at
    });
    let after = |at: Time| format!("{:.2} s", (at as f64 - cut as f64) / 1e9);
    let suspect = suspect.map_or_else(|| "never".to_owned(), |entry| after(entry.at));
    let (valid, granted) = (after(seen.old_valid), after(seen.new_granted));
    row(&format!(
        "{name}: after the cut, the old holder was told Suspect: {suspect}, its check() \
         passed last: {valid}, the new holder's call returned: {granted}"
    ));
}
