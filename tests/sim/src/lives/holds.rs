//! The judge of holds, by what the servers have carried out: while a hold is in a queue, nobody behind it is
//! granted the lock, and nobody removes it before its time, except to release it.

use std::time::Duration;

use zklock::sim;
use zklock::sim::ensemble::{Change, Fault, What};
use zklock_core::name::NodeName;

use super::{Planted, RUN_BEGAN};
use crate::client::{Journal, ms};
use crate::history::{Entry, Kind, Process, What as Seen, nanos};
use crate::ops::Op;
use crate::plan::{Plan, What as Trouble};
use crate::troubles::ensemble;

/// A hold, as the servers have recorded it.
#[derive(Clone, Debug)]
struct Hold {
    node: String,
    zxid: i64,
    /// When the hold was asked for, by its reason.
    asked: Option<u64>,
    from: Duration,
    /// The earliest time at which the hold may be removed.
    until: Option<Duration>,
    /// When the hold was removed, and by which session.
    gone: Option<(Duration, i64)>,
}

impl Hold {
    /// Returns whether the hold was in the queue at this time, ahead of this node.
    fn blocks(&self, node: &str, at: Duration) -> bool {
        let stood = self.from <= at && self.gone.is_none_or(|(gone, _)| at < gone);
        stood
            && place(&self.node).is_some_and(|mine| {
                place(node).is_some_and(|other| mine.0 == other.0 && mine.1 < other.1)
            })
    }
}

/// Returns the directory of a contender's node, and its number there.
fn place(node: &str) -> Option<(&str, i64)> {
    let (dir, name) = node.rsplit_once('/')?;
    Some((dir, NodeName::parse(name)?.sequence))
}

pub(super) fn judge(plan: &Plan, journal: &Journal, ops: &[Op]) -> Result<usize, String> {
    let history = ensemble(|ensemble, _| ensemble.history().to_vec());
    let holds = holds(&history);
    for hold in &holds {
        is_removed_in_time(hold, journal)?;
        is_made_once(hold, &holds)?;
    }
    for (who, number, nodes) in journal.nodes() {
        let op = ops.iter().find(|op| op.id() == (who, number));
        let Some((op, grant)) = op.and_then(|op| Some((op, op.granted.as_ref()?))) else {
            continue;
        };
        let at = Duration::from_nanos(grant.at);
        let ahead = |hold: &&Hold| nodes.iter().any(|node| hold.blocks(node, at));
        if let Some(hold) = holds.iter().find(ahead) {
            let name = op.name();
            return Err(format!(
                "{name} was granted {nodes:?} at {at:?}, behind {hold:?}"
            ));
        }
    }
    // A leader that keeps a deleted node may keep a hold from being made, and say that it was.
    let differ = |trouble: &crate::plan::Trouble| matches!(trouble.what, Trouble::Ghost { .. });
    if !plan.troubles.iter().any(differ) {
        let planted = journal.planted();
        planted
            .iter()
            .try_for_each(|planted| is_as_told(planted, &holds, &history))?;
    }
    Ok(holds.len())
}

/// Reads the holds of a run.
fn holds(history: &[Change]) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    for change in history {
        match &change.what {
            What::Created {
                path,
                owner: 0,
                data,
            } if is_hold(path) => holds.push(Hold {
                node: path.clone(),
                zxid: change.zxid,
                asked: number(data, "note"),
                from: change.at,
                until: until(data),
                gone: None,
            }),
            What::Deleted { path, owner: 0, by } => {
                if let Some(hold) = holds.iter_mut().find(|hold| hold.node == *path) {
                    hold.gone = Some((change.at, *by));
                }
            }
            _ => {}
        }
    }
    holds
}

fn is_hold(path: &str) -> bool {
    let (_, name) = path.rsplit_once('/').unwrap_or_default();
    NodeName::parse(name).is_some_and(|name| name.is_hold())
}

/// Returns a number in a hold's data.
fn number(data: &[u8], key: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(data);
    let (_, rest) = text.split_once(&format!("\"{key}\":"))?;
    let rest = rest.trim_start_matches('"');
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse().ok()
}

/// Returns the earliest time at which a hold with this data may be removed; its reason says when it was asked for.
fn until(data: &[u8]) -> Option<Duration> {
    let number = |key| number(data, key);
    match (number("until_ms"), number("for_ms")) {
        (Some(at), _) => Some(ms(at).saturating_sub(Duration::from_secs(RUN_BEGAN))),
        (None, Some(time)) => Some(Duration::from_nanos(number("note")?) + ms(time)),
        (None, None) => None,
    }
}

fn is_removed_in_time(hold: &Hold, journal: &Journal) -> Result<(), String> {
    let unconfirmed = |asked: u64| journal.unconfirmed().contains(&asked);
    let may_go = journal.released().contains(&hold.node) || hold.asked.is_some_and(unconfirmed);
    match hold.gone {
        Some((gone, by)) if by != 0 && !may_go => {
            // The servers count whole milliseconds.
            match hold.until.is_some_and(|until| until <= gone + ms(1)) {
                true => Ok(()),
                false => Err(format!("a waiter removed {hold:?}")),
            }
        }
        _ => Ok(()),
    }
}

/// Checks that a call whose reply was lost does not make a second hold beside its first. A hold that was removed
/// before the call looked again may be made once more.
fn is_made_once(hold: &Hold, holds: &[Hold]) -> Result<(), String> {
    let id = |hold: &Hold| hold.node[..hold.node.len() - 10].to_owned();
    let beside = |other: &&Hold| {
        let is_later = hold.zxid < other.zxid && id(other) == id(hold);
        is_later && hold.gone.is_none_or(|(gone, _)| other.from < gone)
    };
    match holds.iter().find(beside) {
        Some(other) => Err(format!("one call made {hold:?} and {other:?}")),
        None => Ok(()),
    }
}

/// Checks that a hold whose maker was told of it was made; in the place of a lock, at the same moment as the
/// lock's end.
fn is_as_told(planted: &Planted, holds: &[Hold], history: &[Change]) -> Result<(), String> {
    let made = holds
        .iter()
        .find(|hold| hold.node == planted.node && hold.from <= planted.at);
    let Some(made) = made else {
        return Err(format!("{planted:?} was never made"));
    };
    let Some(lock) = &planted.instead_of else {
        return Ok(());
    };
    let ends = |change: &Change| matches!(&change.what, What::Deleted { path, .. } if path == lock);
    match history
        .iter()
        .any(|change| change.zxid == made.zxid && ends(change))
    {
        true => Ok(()),
        false => Err(format!(
            "{planted:?} was not made in the place of the lock: {made:?}"
        )),
    }
}

/// Removes, as a person would, the holds without an end that nobody has released.
pub(crate) fn release_endless(plan: &Plan) {
    let history = ensemble(|ensemble, _| ensemble.history().to_vec());
    let old = sim::elapsed().saturating_sub(2 * ms(plan.timeout));
    for hold in holds(&history) {
        if hold.until.is_none() && hold.gone.is_none() && hold.from < old {
            let path = hold.node;
            ensemble(|ensemble, now| ensemble.fault(now, Fault::Evict { path }));
        }
    }
}

/// Returns when each hold kept others waiting, as entries of the history: it ends at its time, or when it is
/// removed before.
pub(crate) fn busy() -> Vec<Entry> {
    let history = ensemble(|ensemble, _| ensemble.history().to_vec());
    let mut entries = Vec::new();
    for (op, hold) in holds(&history).into_iter().enumerate() {
        // A hold belongs to no client.
        let who = Process {
            slot: usize::MAX - 1,
            life: 0,
        };
        let path = place(&hold.node).map_or("", |(dir, _)| dir).to_owned();
        let gone = hold.gone.map_or(sim::elapsed(), |(gone, _)| gone);
        // The hold counts from when it is written, which may be later than when it was asked for.
        let over = hold
            .until
            .map_or(gone, |until| gone.min(until.max(hold.from)));
        let (kind, paths, limit) = (Kind::Exclusive, vec![path], None);
        let granted = Seen::Granted {
            session: 0,
            tokens: Vec::new(),
        };
        let mut enter = |at, what| {
            entries.push(Entry {
                at: nanos(at),
                who,
                op,
                what,
            })
        };
        enter(hold.from, Seen::Request { kind, paths, limit });
        enter(hold.from, granted);
        enter(over, Seen::Release);
        enter(over, Seen::Released { well: true });
    }
    entries
}
