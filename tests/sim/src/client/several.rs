//! Locks of several kinds at once, and several permits.

use super::{Actor, token_and_node};
use crate::history::Kind;
use crate::plan::{Role, SEATS, Step, TOGETHER, Together};

/// The number of the semaphore's permits.
const COUNT: usize = 3;

impl Actor {
    pub(super) fn together(&self, together: Together, step: &Step) {
        let of = |wanted: Role| {
            let places = TOGETHER.iter().zip(together.roles);
            let of = places.filter(move |(_, role)| *role == Some(wanted));
            of.map(|(path, _)| *path)
        };
        let (alone, reads): (Vec<_>, Vec<_>) =
            (of(Role::Alone).collect(), of(Role::Reads).collect());
        let all = || alone.iter().chain(&reads).copied();
        let lock = self.client.multi_lock(all()).expect("a lock");
        let lock = lock.reading(reads.iter().copied()).expect("its own paths");
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let mut locks = vec![
            (Kind::Exclusive, owned(&alone)),
            (Kind::Read, owned(&reads)),
        ];
        locks.retain(|(_, paths): &(_, Vec<_>)| !paths.is_empty());
        let (op, options) = self.request_all(locks, step);
        let taken = self.call(op, || lock.lock_with(options));
        if let Some(guard) = self.granted(op, taken, |guard| {
            let token = |path| guard.tokens().find(|(of, _)| *of == path);
            let tokens = all().filter_map(token).map(|(_, token)| token.get());
            (tokens.collect(), guard.nodes().to_vec())
        }) {
            self.hold_and_give_up(op, step, guard);
        }
    }

    pub(super) fn seats(&self, count: u8, step: &Step) {
        let semaphore = self.client.semaphore(SEATS, COUNT as u32);
        let semaphore = semaphore.expect("a semaphore");
        // Each permit is an operation of its own.
        let one = (Kind::Permit(COUNT), vec![SEATS.to_owned()]);
        let (op, options) = self.request_all(vec![one; usize::from(count)], step);
        let taken = self.call(op, || {
            semaphore.acquire_many_with(u32::from(count), options)
        });
        if let Some(guard) = self.granted(op, taken, |permit| {
            let nodes = permit.nodes().to_vec();
            assert_eq!(
                nodes.len(),
                usize::from(count),
                "{} of {}",
                nodes.len(),
                count
            );
            (token_and_node(permit).0, nodes)
        }) {
            self.hold_and_give_up(op, step, guard);
        }
    }
}
