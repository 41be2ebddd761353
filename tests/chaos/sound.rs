//! The handling of servers that themselves break: their data diverges, or they lose what they have
//! committed, which [`witness`](crate::witness) sees.
//!
//! ZooKeeper has faults that make one replica differ from the others for good. Clients then wait
//! behind nodes that others do not see, which no client can know or mend. So a run on such servers
//! shows nothing about this code: it says so, and is run once more. What the checker still judges,
//! above all two holds at a time, is not excused.
//!
//! A server that reports this once has diverged for good, though often no difference is left when
//! everything rests. A long run then compares the nodes, and continues if they are the same.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::checker::Summary;
use crate::cluster::{Run, SERVERS, row};
use crate::stuck::tree;
use crate::support::within;

/// Plays a scene, and once more with another seed if the servers' data diverged.
#[track_caller]
pub(crate) fn on_sound_servers(
    start: impl Fn() -> Run,
    scene: impl Fn(Run) -> Option<Summary>,
) -> Summary {
    let first = start();
    let other_seed = first.seed.wrapping_add(1);
    scene(first).unwrap_or_else(|| {
        let mut second = start();
        second.seed = other_seed;
        row(&format!("{}: once more, seed {other_seed}", second.name));
        scene(second).expect("the servers' data diverged twice, so nothing was shown")
    })
}

impl Run {
    /// Like [`conclude`](Self::conclude), for a run whose servers must be sound.
    #[track_caller]
    pub(crate) fn finish(self) -> Summary {
        self.conclude()
            .expect("the servers' data diverged, so nothing was shown: run it again")
    }

    /// Lets all processes end, and judges what they have written; returns nothing if the
    /// servers' data diverged.
    #[track_caller]
    pub(crate) fn conclude(mut self) -> Option<Summary> {
        self.end();
        let summary = self.judge();
        self.unsound().is_none().then_some(summary)
    }

    /// Returns whether the servers have different nodes while nobody changes them.
    pub(crate) fn differs(&self) -> bool {
        let same = || {
            let trees = (0..SERVERS).map(|i| tree(self, i));
            trees.collect::<BTreeSet<_>>().len() == 1
        };
        // Some servers may not have heard of the last release yet.
        !within(Duration::from_secs(5), same)
    }

    /// Returns which server reports that its data differs from its leader's, and its words.
    pub(crate) fn divergence(&self) -> Option<String> {
        (0..SERVERS).find_map(|i| {
            let log = self.ensemble.server(i).whole_log();
            divergence(&log).map(|line| format!("server {i}: {line}"))
        })
    }
}

/// Returns the line of a server's log that says that its data differs from its leader's.
fn divergence(log: &str) -> Option<&str> {
    const SAID: [&str; 2] = [
        "digest mismatch on txn",
        "Unexpected extra paths under session",
    ];
    log.lines()
        .find(|line| SAID.iter().any(|said| line.contains(said)))
}

#[test]
fn a_log_tells_of_data_that_diverged() {
    let log = "[main] WARN ServerCnxnFactory - maxCnxns is not configured\n\
        [CommitProcessor:1] ERROR DataTree - First digest mismatch on txn: 72058716996501507,5\n\
        , expected digest is 2,47739301660\n\
        [CommitProcessor:1] WARN DataTree - Unexpected extra paths under session [/a]\n";
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(divergence(log), Some(lines[1]));
    assert_eq!(divergence(lines[3]), Some(lines[3]));
    assert_eq!(divergence(lines[0]), None);
}
