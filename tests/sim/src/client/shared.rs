//! Locks of every kind at the same paths, by clients of several dialects.

use super::{Actor, token_and_node};
use crate::history::Kind;
use crate::plan::{SHARED, Shared, Step};

impl Actor {
    pub(super) fn shared(&self, shared: Shared, step: &Step) {
        match shared {
            Shared::Alone(at) => self.mutex(SHARED[at], false, step),
            Shared::Again(at) => self.reentrant(SHARED[at], step),
            Shared::Read(at) => self.read(SHARED[at], step),
            Shared::Write(at) => self.write(SHARED[at], step),
            Shared::Permits { at, of, count } => self.permits(SHARED[at], (of, count), step),
            Shared::Both { reads } => self.both(reads, step),
        }
    }

    fn permits(&self, path: &str, (of, count): (u8, u8), step: &Step) {
        let semaphore = self.client.semaphore(path, u32::from(of));
        let semaphore = semaphore.expect("a semaphore");
        // Each permit is an operation of its own.
        let one = (Kind::Permit(usize::from(of)), vec![path.to_owned()]);
        let (op, options) = self.request_all(vec![one; usize::from(count)], step);
        let taken = self.call(op, || {
            semaphore.acquire_many_with(u32::from(count), options)
        });
        if let Some(guard) = self.granted(op, taken, |permit| {
            (token_and_node(permit).0, permit.nodes().to_vec())
        }) {
            self.hold_and_give_up(op, step, guard);
        }
    }

    fn both(&self, reads: bool, step: &Step) {
        let lock = self.client.multi_lock(SHARED).expect("a lock");
        let lock = match reads {
            true => lock.reading([SHARED[1]]).expect("its own path"),
            false => lock,
        };
        let second = if reads { Kind::Read } else { Kind::Exclusive };
        let owned = |path: &str| vec![path.to_owned()];
        let locks = vec![
            (Kind::Exclusive, owned(SHARED[0])),
            (second, owned(SHARED[1])),
        ];
        let (op, options) = self.request_all(locks, step);
        let taken = self.call(op, || lock.lock_with(options));
        if let Some(guard) = self.granted(op, taken, |guard| {
            let tokens = guard.tokens().map(|(_, token)| token.get());
            (tokens.collect(), guard.nodes().to_vec())
        }) {
            self.hold_and_give_up(op, step, guard);
        }
    }
}
