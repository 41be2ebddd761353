//! The news for waiting threads about the contenders ahead of them.
//!
//! A thread may want to know which contenders are ahead of it. Its place is looked up when a turn has moved
//! something in its line, and the thread is told if the place is not what it was last told. This needs only
//! what the watches have read anyway, and never sends a request.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use super::ask::{Ahead, Nearest, Ticket};
use super::line::{Line, LineId, Turn};
use zklock_core::path::node_in;

/// How many are ahead, whether the nearest has the lock, and its node: a change of any is told.
pub(super) type Place = (usize, bool, Option<String>);

/// The news that threads were told and are to be told; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The threads that want to know, each with the place that it was last told.
    pub(super) told: BTreeMap<Ticket, Option<Place>>,
    /// The lines in which something has moved in this turn.
    pub(super) stirred: Vec<LineId>,
    pub(super) out: VecDeque<(Ticket, Ahead)>,
}

impl News {
    /// Notes that something may have moved in this line.
    pub(super) fn stir(&mut self, line: &LineId) {
        if !self.told.is_empty() && !self.stirred.contains(line) {
            self.stirred.push(line.clone());
        }
    }

    /// Notes that a thread is woken, and so waits for nobody any more.
    pub(super) fn woken(&mut self, ticket: Ticket) {
        if self.told.remove(&ticket).is_some() {
            self.out.retain(|(other, _)| *other != ticket);
        }
    }

    /// Tells a thread its place, if it wants to know and does not know it yet.
    fn tell(
        &mut self,
        ticket: Ticket,
        (count, holds, node): (usize, bool, Option<&str>),
        nearest: impl FnOnce() -> Option<Nearest>,
    ) {
        let is_new = |told: &&mut Option<Place>| {
            let told = told.as_ref();
            let told = told.map(|(count, holds, node)| (*count, *holds, node.as_deref()));
            told != Some((count, holds, node))
        };
        let Some(told) = self.told.get_mut(&ticket).filter(is_new) else {
            return;
        };
        *told = Some((count, holds, node.map(String::from)));
        let nearest = nearest();
        let ahead = Ahead {
            count,
            holds,
            nearest,
        };
        self.out.push_back((ticket, ahead));
    }
}

impl Line {
    pub(super) fn tell(&self, news: &mut News) {
        if let Some((_, Turn::Acquires(acquires))) = &self.turn {
            if let Some(blocked) = acquires.acquisition.blocked() {
                let place = (blocked.ahead, blocked.holds, Some(&*blocked.nearest));
                news.tell(acquires.ticket, place, || {
                    let (data, stat) = acquires.acquisition.found();
                    Some(Nearest {
                        node: node_in(acquires.acquisition.path(), &blocked.nearest),
                        data: data.clone().into(),
                        stat: *stat,
                    })
                });
            }
        }
        for (before, waiter) in self.waiting.iter().enumerate() {
            let holds = before == 0 && self.guard().is_some();
            news.tell(waiter.ticket, (before + 1, holds, None), || None);
        }
    }
}
