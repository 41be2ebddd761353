//! Looks up the names of the servers, off the I/O thread.
//!
//! The system's resolver has no time limit and cannot be interrupted. Each name is therefore looked
//! up in a thread of its own, all names at the same time, and the I/O thread waits only for a
//! while. A name that is not answered in time, or cannot be resolved, keeps its earlier addresses.
//! The threads are detached: each ends when the system's resolver returns. One that takes long gets
//! company, because the resolver may be well again long before it gives up an old question.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::hosts::{Server, Target};
use super::server_list::Listed;
use super::shared::Shared;
use crate::system::clock::since_boot;
use crate::system::{net, thread};

/// The longest wait for a first address.
const LIMIT: Duration = Duration::from_secs(5);
/// The longest wait while there are addresses to try: a twentieth of the session timeout
/// within these bounds, so that the session survives even if the resolver does not answer.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// The addresses to try.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The addresses of the names that were answered, in random order.
    pub(super) targets: Vec<Target>,
    /// The earlier addresses of the other names, which other servers may have by now.
    pub(super) kept: Vec<Target>,
    pub(super) unresolved: Vec<Unresolved>,
}

/// A name that is not resolved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Unresolved {
    pub(super) server: Server,
    pub(super) reason: String,
    /// Whether the last lookup has ended without an address; otherwise none has ended yet.
    pub(super) failed: bool,
    /// Whether the name was resolved before, and still has those addresses.
    pub(super) has_addresses: bool,
}

impl Shared {
    /// Looks up all names, and returns the addresses that are known after a while. The earlier
    /// addresses are for a client that has a session.
    ///
    /// Returns at once if the transport must end.
    pub(super) fn look_up(self: &Arc<Self>, has_session: bool) -> Found {
        let mut to_ask = Vec::new();
        let now = since_boot();
        let mut state = self.state.lock();
        for (place, Listed { server, name }) in state.list.servers.iter_mut().enumerate() {
            if let Some(address) = server.literal() {
                name.addresses = vec![address];
            } else if let Some(number) = name.begins(now) {
                to_ask.push((place, number, server.clone()));
            }
        }
        let nothing_known = state.list.knows_no_address();
        drop(state);
        if let (true, Some((_, _, first))) = (nothing_known, to_ask.first()) {
            let so_far = "its name is being resolved";
            self.status.asks(first, so_far);
        }
        for (place, number, server) in to_ask {
            self.ask((place, number), server);
        }
        self.await_names(has_session);
        self.found(has_session)
    }

    /// Asks for the server at a place in the list, in the lookup with this number.
    fn ask(self: &Arc<Self>, lookup: (usize, u32), server: Server) {
        let shared = Arc::downgrade(self);
        let of = server.clone();
        let asking = thread::spawn("zklock-names", move || {
            let answer = net::resolve(&of.host, of.port);
            if let Some(shared) = shared.upgrade() {
                shared.answered(lookup, &of, answer);
            }
        });
        if let Err(error) = asking {
            self.answered(lookup, &server, Err(error));
        }
    }

    fn answered(
        &self,
        (place, number): (usize, u32),
        server: &Server,
        answer: io::Result<Vec<SocketAddr>>,
    ) {
        let mut state = self.state.lock();
        // The list may have changed meanwhile.
        let asked = state.list.servers.get_mut(place);
        if let Some(asked) = asked.filter(|listed| listed.server == *server) {
            asked.name.answered(number, answer);
        }
        drop(state);
        self.stop.notify_all();
    }

    fn await_names(&self, has_session: bool) {
        let begun = since_boot();
        let patience = self.status.snapshot().timeout / 20;
        let patience = patience.clamp(PATIENCE.0, PATIENCE.1);
        let mut state = self.state.lock();
        while state.link.wants_connection(since_boot()) && state.list.awaits_a_name(has_session) {
            let limit = match state.list.knows_no_address() {
                true => LIMIT,
                false => patience,
            };
            let left = (begun + limit).saturating_sub(since_boot());
            if left.is_zero() {
                return state.list.note_late();
            }
            self.stop.wait_for(&mut state, left);
        }
    }

    fn found(&self, has_session: bool) -> Found {
        let state = self.state.lock();
        let mut found = Found::default();
        for listed in &state.list.servers {
            let Listed { server, name } = listed;
            let place = match name.is_answered() {
                true => &mut found.targets,
                false => &mut found.kept,
            };
            place.extend(listed.targets());
            let unresolved = name.reason().map(|reason| Unresolved {
                server: server.clone(),
                reason,
                failed: name.complaint.is_some(),
                has_addresses: !name.addresses.is_empty(),
            });
            found.unresolved.extend(unresolved);
        }
        fastrand::shuffle(&mut found.targets);
        fastrand::shuffle(&mut found.kept);
        let former = state.list.former().iter().cloned();
        match has_session {
            true => found.kept.extend(former),
            false => {
                // The servers there may belong to another ensemble by now, and grant its locks.
                found.kept.clear();
                found.targets.extend(former);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::transport::native::config::Config;
    use crate::transport::status::Status;

    fn shared(hosts: &str) -> Arc<Shared> {
        let session_timeout = Duration::from_secs(10);
        let config = Config::plain(hosts, session_timeout);
        let status = Arc::new(Status::new(session_timeout, true));
        Arc::new(Shared::new(config, status))
    }

    #[test]
    fn every_address_is_tried_and_a_bad_name_among_good_ones_is_only_reported() {
        let shared = shared("127.0.0.1:1,no-such-host.invalid:2,[::1]:3");
        // The resolver may take long to report that a name is unknown.
        let mut found = shared.look_up(true);
        while found.unresolved.iter().any(|name| !name.failed) {
            found = shared.look_up(true);
        }
        let unresolved = &found.unresolved[0];
        assert_eq!(unresolved.server.to_string(), "no-such-host.invalid:2");
        assert!(!unresolved.has_addresses);
        let mut found: Vec<String> = found.targets.iter().map(Target::to_string).collect();
        found.sort();
        assert_eq!(found, ["127.0.0.1:1", "[::1]:3"]);
    }

    #[test]
    fn an_address_that_is_only_kept_comes_after_those_that_were_answered() {
        let shared = shared("127.0.0.1:1,no-such-host.invalid:2");
        let old = SocketAddr::from(([127, 0, 0, 9], 2));
        shared.look_up(true);
        shared.state.lock().list.servers[1].name.addresses = vec![old];
        for _ in 0..3 {
            let found = shared.look_up(true);
            let shown = |targets: &[Target]| {
                targets
                    .iter()
                    .map(|target| target.address.port())
                    .collect::<Vec<_>>()
            };
            assert_eq!(
                (shown(&found.targets), shown(&found.kept)),
                (vec![1], vec![2])
            );
        }
    }

    #[test]
    fn a_name_whose_lookup_hangs_delays_one_round_and_no_more_while_another_is_known() {
        let waits = |shared: &Arc<Shared>| {
            let begun = since_boot();
            shared.look_up(true);
            PATIENCE.1 <= since_boot().saturating_sub(begun)
        };
        for (hosts, expected) in [
            ("127.0.0.1:1,hangs.invalid:2", [true, false, true, false]),
            ("hangs.invalid:2", [true; 4]),
        ] {
            let (shared, mut waited) = (shared(hosts), Vec::new());
            for number in [1, 2] {
                let found = || Ok(vec![SocketAddr::from(([127, 0, 0, 9], 2))]);
                let mut state = shared.state.lock();
                let place = state.list.servers.len() - 1;
                let Listed { server, name } = &mut state.list.servers[place];
                name.addresses = found().unwrap();
                assert_eq!(name.begins(since_boot()), Some(number));
                let server = server.clone();
                drop(state);
                waited.extend([waits(&shared), waits(&shared)]);
                shared.answered((place, number), &server, found());
            }
            assert_eq!(waited, expected, "{hosts}");
        }
    }

    #[test]
    fn the_order_is_random() {
        let shared = shared("127.0.0.1:1,127.0.0.1:2,127.0.0.1:3");
        let firsts = (0..200).filter_map(|_| {
            let targets = shared.look_up(true).targets;
            targets.first().map(|target| target.server.port)
        });
        let firsts: BTreeSet<u16> = firsts.collect();
        assert_eq!(firsts.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
