//! The mishaps: broken connections, impatient callers, ended sessions, operators.

use zklock_core::attempt::{Action, Event};
use zklock_core::path::name;
use zklock_jute::Request;

use super::client::{Change, request_of};
use super::directory::Maker;
use super::mutant::Mutant;
use super::world::{Step, Transport, Watches, World};

impl World {
    pub(crate) fn go_wrong(&mut self, mishap: Step) {
        let budget = &mut self.budget;
        let left = match mishap {
            Step::LoseRequest(..)
            | Step::LoseReply(_)
            | Step::LosePatience(_)
            | Step::LoseFarewell { .. } => &mut budget.faults,
            Step::Cancel(_) | Step::CancelCreate(_) => &mut budget.cancels,
            Step::Expire(_) => &mut budget.expiries,
            Step::Crash(_) | Step::CrashAfterCreate(_) => &mut budget.crashes,
            Step::Evict(_) => &mut budget.evictions,
            Step::Touch(_) => &mut budget.touches,
            Step::Vanish => &mut budget.vanishings,
            _ => unreachable!("{mishap:?} is no mishap"),
        };
        *left -= 1;
        match mishap {
            Step::LoseRequest(i, watches) => self.lose_request(i, watches),
            Step::LoseReply(i) => self.lose_reply(i),
            Step::LosePatience(i) => self.lose_patience(i),
            Step::LoseFarewell {
                client,
                nth,
                applied,
            } => self.lose_farewell(client, nth, applied),
            Step::Cancel(i) => self.cancel(i),
            Step::CancelCreate(i) => self.cancel_create(i),
            Step::Expire(i) => self.expire(i),
            Step::CrashAfterCreate(i) => {
                self.create_unseen(i);
                self.crash(i);
            }
            Step::Crash(i) => self.crash(i),
            Step::Evict(n) => self.evict(n),
            Step::Touch(n) => {
                let name = self.directory.nodes[n].name.clone();
                self.fire(&name, Change::Changed);
            }
            _ => self.directory.vanish(),
        }
    }

    fn lose_request(&mut self, i: usize, watches: Watches) {
        let client = &self.clients[i];
        self.reconnect(i, watches, client.attempt.is_some() && !client.is_asleep());
    }

    fn lose_reply(&mut self, i: usize) {
        match self.clients[i].action() {
            Some(Action::MakeParents) => self.make_parents(),
            _ => self.create_unseen(i),
        }
        self.lose_request(i, Watches::Lost);
    }

    fn lose_farewell(&mut self, i: usize, nth: usize, applied: bool) {
        if let (Request::Delete { path, .. }, true) =
            (request_of(&self.clients[i].farewells[nth]), applied)
        {
            self.part_with(i, name(&path));
        }
        if self.rules.mutant == Mutant::GivesUpFarewells {
            self.clients[i].farewells.remove(nth);
        }
        self.reconnect(i, Watches::Lost, false);
    }

    /// Replaces the connection, which was lost with all that was on its way.
    fn reconnect(&mut self, i: usize, watches: Watches, asks: bool) {
        let mutant = self.rules.mutant;
        let client = &mut self.clients[i];
        client.under_way = None;
        let looks = matches!(client.action(), Some(Action::Watch(..)));
        client.deaf |= looks && mutant == Mutant::TrustsUnansweredWatches;
        if watches == Watches::Lost {
            client.lose_watches();
        } else if mutant == Mutant::HearsWhatIsSetAgain {
            client.events.reverse();
        }
        client.reconnected = client.is_asleep() && mutant != Mutant::SleepsThroughReconnects;
        let relists = client.queued.is_some() && client.action() == Some(Action::List);
        let asks = (asks || relists) && !(relists && mutant == Mutant::RelistsWithLostWatches);
        if asks && mutant != Mutant::RepeatsLostCreates {
            self.report(i, Event::ReplyLost);
        }
        match self.rules.transport {
            Transport::Wire => {}
            Transport::Handle => {
                self.leave_session(i);
                if mutant == Mutant::DropsFarewells {
                    self.clients[i].farewells.clear();
                }
            }
        }
    }

    /// Carries out the attempt's create without telling it.
    fn create_unseen(&mut self, i: usize) {
        if let Some(Action::Create(prefix)) = self.clients[i].action() {
            self.create_as(i, &prefix, self.maker(i));
        }
    }

    /// Carries out a create that nobody waits for any more.
    pub(crate) fn land(&mut self, i: usize) {
        let prefix = self.clients[i].under_way.take().expect("one is under way");
        // The attempt that asked for it has ended, and the next one may have begun.
        let maker = Maker {
            attempt: 0,
            ..self.maker(i)
        };
        self.create_as(i, &prefix, maker);
    }

    fn create_as(&mut self, i: usize, prefix: &str, maker: Maker) {
        let client = &mut self.clients[i];
        if let Some((_, origin)) = self.directory.create(prefix, client.session, maker) {
            client.unseen.get_or_insert(origin.czxid);
        }
    }

    fn cancel(&mut self, i: usize) {
        self.clients[i].cancelled = true;
        self.report(i, Event::Cancel);
    }

    fn cancel_create(&mut self, i: usize) {
        match self.rules.mutant {
            Mutant::CancelsWithoutLoss => self.put_under_way(i),
            _ => self.lose_patience(i),
        }
        self.cancel(i);
    }

    /// Ends the wait for the answer to a create.
    fn lose_patience(&mut self, i: usize) {
        self.put_under_way(i);
        self.report(i, Event::ReplyLost);
    }

    fn put_under_way(&mut self, i: usize) {
        if let Some(Action::Create(prefix)) = self.clients[i].action() {
            self.clients[i].under_way = Some(prefix);
        }
    }

    fn expire(&mut self, i: usize) {
        let client = &mut self.clients[i];
        client.expired = true;
        client.under_way = None;
        client.watch = None;
        client.beyond = None;
        if let Some(raw) = &mut client.raw {
            raw.trusted &= self.rules.mutant == Mutant::TrustsPings;
        }
    }

    fn crash(&mut self, i: usize) {
        let client = &mut self.clients[i];
        client.crashed = true;
        client.attempt = None;
        client.raw = None;
        client.farewells.clear();
        client.under_way = None;
        client.unseen = None;
        client.forget_attempt();
    }

    fn evict(&mut self, n: usize) {
        let node = self.directory.nodes[n].clone();
        let client = &mut self.clients[node.maker.client];
        client.evicted = true;
        if let Some(raw) = client.raw.as_mut() {
            raw.trusted &= raw.node.name != node.name;
        }
        self.remove(&node.name);
    }
}
