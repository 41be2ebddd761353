//! The meeting of two contenders: one holds, and another one comes.

use std::time::Duration;

use zklock::Dialect;

use super::contender::{Contender, Said};
use super::kinds::Kind;
use super::peer::server;
use crate::support::fresh_path;
use crate::support::raw::Raw;
use crate::support::zookeeper::ZooKeeper;

/// How often to check whether a contender waits.
const TICK: Duration = Duration::from_millis(30);

/// How long a contender that is in the queue must have been silent to count as waiting.
const SILENCE: Duration = Duration::from_millis(300);

/// The same for contenders that watch no node, so that only their silence can be seen.
const LONG_SILENCE: Duration = Duration::from_secs(2);

/// The outcome for the second of two contenders.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// The second waited, and got its turn when the first released.
    Waited,
    /// Both held, as readers may.
    Shared,
    /// Both held.
    BothHeld,
    /// Ours refused to queue here, and knows a dialect in which it can, if there is one.
    Refused(Option<Dialect>),
    /// Theirs failed.
    Failed,
}

/// The outcome of a meeting, and of one more of ours that came afterwards.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Meeting {
    pub(crate) outcome: Outcome,
    pub(crate) next_of_ours: Option<Outcome>,
}

/// Lets `first` hold a fresh path, and then `second` come there.
pub(crate) fn meet(first: Kind, second: Kind) -> Meeting {
    let server = server();
    let path = fresh_path("meeting");
    let hosts = server.hosts();
    // A container may be deleted between the two, and kazoo takes that for an error.
    Raw::connect(&hosts).create_all(&path);
    let holder = first.contender(&hosts);
    holder.lock(first.word, &path);
    let node = holder.held();
    let comer = second.contender(&hosts);
    comer.lock(second.word, &path);
    let waits = || {
        if second.counts() {
            false
        } else {
            is_watched(server, &node)
        }
    };
    let outcome = match first_words(second, &comer, waits) {
        Some(said) => judge(first, second, &said),
        None => {
            holder.release();
            comer.held();
            comer.release();
            return Meeting {
                outcome: Outcome::Waited,
                next_of_ours: None,
            };
        }
    };
    let both = outcome == Outcome::BothHeld;
    let next_of_ours = (both && first.is_ours()).then(|| next(first, &hosts, &path));
    holder.release();
    if both || outcome == Outcome::Shared {
        comer.release();
    }
    Meeting {
        outcome,
        next_of_ours,
    }
}

/// Returns what a contender reports, or nothing once it is known to wait.
fn first_words(kind: Kind, comer: &Contender, waits: impl Fn() -> bool) -> Option<Said> {
    let mut silent = Duration::ZERO;
    while silent < LONG_SILENCE {
        match comer.hear_within(TICK) {
            Some(Said::Waiting) => return None,
            Some(said) => return Some(said),
            None if !kind.is_ours() && waits() => return comer.hear_within(SILENCE),
            // Only the server's silence can delay ours, and that ends.
            None if !kind.is_ours() && kind.counts() => silent += TICK,
            None => {}
        }
    }
    None
}

/// Returns whether a session other than the owner's has a watch on this node.
fn is_watched(server: &ZooKeeper, node: &str) -> bool {
    let Some(stat) = Raw::connect(&server.hosts()).stat(node) else {
        return false;
    };
    let owner = format!("{:#x}", stat.owner);
    let table = server.four_letter("wchp").unwrap_or_default();
    let mut lines = table.lines().skip_while(|line| *line != node).skip(1);
    lines
        .by_ref()
        .take_while(|line| line.starts_with('\t'))
        .any(|line| line.trim() != owner)
}

fn judge(first: Kind, second: Kind, said: &Said) -> Outcome {
    match said {
        Said::Held(_) if first.only_reads() && second.only_reads() => Outcome::Shared,
        Said::Held(_) => Outcome::BothHeld,
        Said::Refused { dialect, .. } => Outcome::Refused(*dialect),
        Said::Error(text) if !second.is_ours() => {
            println!("{} fails behind {}: {text}", second.label, first.label);
            Outcome::Failed
        }
        other => panic!("{second:?} behind {first:?}: {other:?}"),
    }
}

/// Returns what one more contender of ours does on a path that two hold already.
fn next(kind: Kind, hosts: &str, path: &str) -> Outcome {
    let contender = kind.contender(hosts);
    contender.lock(kind.word, path);
    match contender.hear_within(LONG_SILENCE) {
        Some(Said::Waiting) | None => Outcome::Waited,
        Some(said) => judge(kind, kind, &said),
    }
}
