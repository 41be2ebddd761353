//! A client's link, as an acquisition sees it.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::calls::{Creation, Purpose};
use super::ids::id_of;
use super::link::Link;
use zklock_core::acquisition::{CallId, Note, Wire};
use zklock_core::path::{self, node_in};
use zklock_core::proof::{GrantProof, Next};
use zklock_core::validity::Stamp;
use zklock_jute::{CreateMode, Request};

impl Creation {
    pub(super) fn new(path: &Arc<str>, prefix: &str) -> Self {
        Self {
            path: path.clone(),
            prefix: prefix.into(),
            is_wanted: true,
        }
    }
}

impl Link {
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

impl Wire for Link {
    fn now(&self) -> Duration {
        self.now
    }

    fn session(&self) -> Option<i64> {
        Some(self.session).filter(|session| *session != 0)
    }

    fn is_connected(&self) -> bool {
        Self::is_connected(self)
    }

    fn transacts(&self) -> bool {
        self.transacts
    }

    fn stamp(&self) -> Stamp {
        Self::stamp(self)
    }

    fn next_for_a_grant(&self, proof: &GrantProof) -> Next {
        proof.next(&self.lifetime, self.now)
    }

    fn renews_at(&self, proof: &GrantProof) -> Duration {
        proof.renews_at(&self.lifetime, self.now)
    }

    fn fresh_id(&mut self) -> String {
        id_of(Self::fresh_id(self))
    }

    fn send(&mut self, dir: &Arc<str>, request: Request) -> CallId {
        Self::send(self, request, Purpose::Step(dir.clone()))
    }

    fn create(&mut self, dir: &Arc<str>, prefix: &str) -> CallId {
        let create = self.creation(dir, prefix);
        Self::send(self, create, Purpose::Create(Creation::new(dir, prefix)))
    }

    fn parents(&self, dir: &str) -> Option<Vec<Request>> {
        let idle = match self.settings.dialect.takes_containers() {
            true => CreateMode::Container,
            false => CreateMode::Persistent,
        };
        let make = |path: &str| Request::Create {
            path: path.into(),
            data: Vec::new().into(),
            acl: self.settings.acl.clone(),
            mode: match path == dir {
                true => idle,
                false => CreateMode::Persistent,
            },
            stat: false,
        };
        Some(path::ancestors(dir).chain([dir]).map(make).collect())
    }

    fn abandon(&mut self, create: CallId) -> bool {
        self.calls.abandons(create);
        true
    }

    // A watch that fires for nothing costs less than its removal.
    fn unwatch(&mut self, _: &str) {}

    // A client enters the queue, where its own node tells the time.
    fn probable_time(&self) -> Duration {
        Duration::MAX
    }

    fn tell(&mut self, note: Note<'_>) {
        self.hangs_up |= matches!(note, Note::Diverged(_));
    }
}
