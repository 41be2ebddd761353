//! A client's link, as an acquisition sees it.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::ask::Settings;
use super::calls::{Creation, Purpose};
use super::ids::id_of;
use super::line::LineId;
use super::link::Link;
use zklock_core::acquisition::{CallId, Note, Wire};
use zklock_core::dialect::Role;
use zklock_core::directories::Lasting;
use zklock_core::path::{node_in, parent};
use zklock_core::permit_attempt::Layout;
use zklock_core::proof::{GrantProof, Next};
use zklock_core::validity::Stamp;
use zklock_jute::{CreateMode, Request};

impl Creation {
    pub(super) fn new(line: &LineId, prefix: &str) -> Self {
        Self {
            line: line.clone(),
            prefix: prefix.into(),
            is_wanted: true,
        }
    }
}

/// The link, for the attempt in a line.
pub(super) struct Wired<'a> {
    link: &'a mut Link,
    line: &'a LineId,
}

impl Link {
    pub(super) fn on<'a>(&'a mut self, line: &'a LineId) -> Wired<'a> {
        Wired { link: self, line }
    }

    pub(super) fn creation(&self, dir: &str, prefix: &str) -> Request {
        Request::Create {
            path: node_in(dir, prefix),
            data: self.settings.card.clone().into(),
            acl: self.settings.acl.clone(),
            mode: CreateMode::EphemeralSequential,
            stat: true,
        }
    }
}

impl Wire for Wired<'_> {
    fn now(&self) -> Duration {
        self.link.now
    }

    fn session(&self) -> Option<i64> {
        Some(self.link.session).filter(|session| *session != 0)
    }

    fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    fn transacts(&self) -> bool {
        self.link.transacts()
    }

    fn stamp(&self) -> Stamp {
        self.link.stamp()
    }

    fn next_for_a_grant(&self, proof: &GrantProof) -> Next {
        proof.next(&self.link.lifetime, self.link.now)
    }

    fn renews_at(&self, proof: &GrantProof) -> Duration {
        proof.renews_at(&self.link.lifetime, self.link.now)
    }

    fn fresh_id(&mut self) -> String {
        id_of(self.link.fresh_id())
    }

    fn send(&mut self, _: &Arc<str>, request: Request) -> CallId {
        self.link.send(request, Purpose::Step(self.line.clone()))
    }

    fn create(&mut self, dir: &Arc<str>, prefix: &str) -> CallId {
        let create = self.link.creation(dir, prefix);
        let creation = Creation::new(self.line, prefix);
        self.link.send(create, Purpose::Create(creation))
    }

    fn parents(&self, dir: &str) -> Option<Vec<Request>> {
        let Settings { dialect, acl, .. } = &self.link.settings;
        let Some(permits) = self.line.permits else {
            return Some(Lasting::WhileUsed.creates(dir, *dialect, acl));
        };
        let (path, dialect, number) = (parent(dir), *dialect, permits.to_string());
        let [line, permits] = Layout { path, dialect }.lasting(number.as_bytes());
        let (lasting, role) = match self.line.only {
            None => (line, Role::Exclusive),
            Some(_) => (permits, Role::Permit),
        };
        let creates = || lasting.creates(dir, dialect, acl);
        lasting.is_made_by(role).then(creates)
    }

    fn abandon(&mut self, create: CallId) -> bool {
        self.link.abandon(create);
        true
    }

    // A watch that fires for nothing costs less than its removal.
    fn unwatch(&mut self, _: &str) {}

    // A client enters the queue, where its own node tells the time.
    fn probable_time(&self) -> Duration {
        Duration::MAX
    }

    fn tell(&mut self, note: Note<'_>) {
        if let Note::Diverged(_) = note {
            self.link.move_on();
        }
    }
}
