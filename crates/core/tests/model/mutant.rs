//! Wrong variants of the protocol and its driver. The checker must notice each.
//!
//! The protocol's own code is not changed: the queue decides wrongly because the machine sees a
//! listing other than the real one.

use zklock_core::Names;
use zklock_core::attempt::{Event, Origin, OwnNode};
use zklock_core::dialect::Role;
use zklock_core::skip_listing::LastGrant;

use super::directory::OTHERS;
use super::world::World;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Mutant {
    /// The right way.
    Sound,

    // The mutants about lost replies.
    FindsWithoutSync,
    RepeatsLostCreates,
    AdoptsAcrossSessions,
    UsesOneId,

    // The mutants about the queue.
    OverlooksOwnAbsence,
    ListsOnlyTheNearest,
    WatchesTheFarthest,
    SleepsOnAbsence,
    ReadersWaitForReaders,
    WritersOverlookReaders,
    OrdersByText,
    OrdersByNumberOnly,
    MakesParentsOnce,
    TakesAnyNumberForTheNext,
    TrustsANewDirectory,

    // The mutants about sleep. The first one only costs more.
    TakesADeletionForAnyWake,
    TakesAnyWakeForADeletion,
    SleepsThroughReconnects,
    SleepsThroughChanges,
    SleepsThroughExpiry,
    WatchesOnlyTheNearest,
    HearsOutOfOrder,
    HearsWhatIsSetAgain,
    DropsWatchesToRelist,
    TakesAMissForADeletion,
    RelistsWithLostWatches,
    TrustsUnansweredWatches,
    TakesOwnEndForEviction,

    // The mutants about sessions.
    CarriesOnInNewSession,
    HoldsUnproved,
    TrustsPings,

    // The mutants about leaving.
    ForgetsLeftovers,
    CancelsWithoutLoss,
    GivesUpFarewells,
    PartsWithoutSync,
    DropsFarewells,
    AscribesToOldSession,
    DeletesBeforeRelease,
    HoldsUnannounced,
}

impl World {
    /// Returns the listing that client `i` takes `names` for.
    pub(crate) fn shown(&self, i: usize, names: Names) -> Names {
        let client = &self.clients[i];
        let Some(own) = &client.queued else {
            return names;
        };
        let mut names: Vec<_> = names.iter().map(str::to_owned).collect();
        match (self.rules.mutant, client.wish.role) {
            (Mutant::OverlooksOwnAbsence, _) if !names.contains(own) => names.push(own.clone()),
            (Mutant::ListsOnlyTheNearest, _) => {
                let ahead = names.iter().filter(|name| number(name) < number(own));
                let nearest = ahead.max_by_key(|name| number(name)).cloned();
                names.retain(|name| name == own || Some(name) == nearest.as_ref());
            }
            (Mutant::ReadersWaitForReaders, Role::Read) => {
                for name in names.iter_mut().filter(|name| *name != own) {
                    *name = name.replace("__READ__", "__WRIT__");
                }
            }
            (Mutant::WritersOverlookReaders, Role::Write) => {
                names.retain(|name| !name.contains("__READ__"));
            }
            (Mutant::OrdersByText, _) => {
                for name in names.iter_mut().filter(|name| *name != own) {
                    // The number of the own node is at least 10, see the setting.
                    let number = if &*name < own { 1 } else { 1000 } + number(name) % 8;
                    *name = format!("{}{number:010}", stem(name));
                }
            }
            _ => {}
        }
        names.into_iter().collect()
    }

    /// Returns what client `i` takes for its last grant.
    pub(crate) fn remembered(&self, i: usize) -> Option<LastGrant> {
        let (number, czxid) = self.directory.latest();
        let last = self.clients[i].last?;
        let made_up = |number, czxid| {
            let mine = OwnNode {
                name: format!("lock-{number:010}"),
                origin: Origin {
                    czxid,
                    owner: self.clients[i].session,
                },
            };
            LastGrant::new(&mine, None)
        };
        match self.rules.mutant {
            Mutant::TakesAnyNumberForTheNext => made_up(number, czxid),
            // The mutant counts up to that number again as if that took no transactions.
            Mutant::TrustsANewDirectory => made_up(last.number(), czxid + OTHERS),
            _ => Some(last),
        }
    }

    /// Returns the node that client `i` watches when it means to watch `nearest`.
    pub(crate) fn meant(&self, i: usize, nearest: &str) -> String {
        let mut nodes = self.directory.nodes.iter().map(|node| &node.name);
        let own = self.clients[i].queued.as_ref();
        let meant = match self.rules.mutant {
            Mutant::WatchesTheFarthest => nodes
                .filter(|name| own.is_some_and(|own| number(name) < number(own)))
                .min_by_key(|name| number(name)),
            Mutant::ReadersWaitForReaders => {
                nodes.find(|name| name.replace("__READ__", "__WRIT__") == nearest)
            }
            Mutant::OrdersByText => nodes.find(|name| stem(name) == stem(nearest)),
            _ => None,
        };
        meant.map_or_else(|| nearest.to_owned(), Clone::clone)
    }
}

/// Returns the event that the lowest number is the oldest.
pub(crate) fn births_by_number(names: &[String]) -> Event {
    Event::Births(
        names
            .iter()
            .map(|name| (name.clone(), number(name)))
            .collect(),
    )
}

fn stem(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn number(name: &str) -> i64 {
    name[stem(name).len()..]
        .parse()
        .expect("ZooKeeper has numbered it")
}
