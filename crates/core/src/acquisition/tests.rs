use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::connection::Capabilities;
use crate::dialect::{Dialect, Role};
use crate::grant_proof::Next;
use crate::lifetime::Lifetime;
use zklock_jute::{CreateMode, ErrorCode, Reply, Request};

const NOW: Duration = Duration::from_secs(1_000);
const T: Duration = Duration::from_secs(60);
const SESSION: i64 = 7;
const AHEAD: &str = "_c_6f9c1c9e-5a0b-8b57-9a3e-0123456789ab-lock-0000000001";
const ID: &str = "6f9c1c9e-5a0b-8b57-9a3e-0123456789ac";

/// Notes what is sent, on a connection that lasts.
#[derive(Default)]
struct Notes {
    sent: Vec<Request>,
}

impl Notes {
    fn post(&mut self, request: Request) -> CallId {
        self.sent.push(request);
        CallId(self.sent.len() as u64 - 1)
    }

    /// The last request that is like this.
    fn last(&self, is: impl Fn(&Request) -> bool) -> Option<CallId> {
        let at = self.sent.iter().rposition(is)?;
        Some(CallId(at as u64))
    }
}

fn lifetime() -> Lifetime {
    Lifetime::new(T, NOW, NOW)
}

impl Wire for Notes {
    fn now(&self) -> Duration {
        NOW
    }

    fn session(&self) -> Option<i64> {
        Some(SESSION)
    }

    fn is_connected(&self) -> bool {
        true
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            multi: true,
            sync: true,
            resumes: true,
        }
    }

    fn stamp(&self) -> Stamp {
        lifetime().stamp(NOW)
    }

    fn next_for_a_grant(&self, proof: &GrantProof) -> Next {
        proof.next(&lifetime(), NOW)
    }

    fn renews_at(&self, proof: &GrantProof) -> Duration {
        proof.renews_at(&lifetime(), NOW)
    }

    fn fresh_id(&mut self) -> String {
        ID.to_string()
    }

    fn send(&mut self, _: &Arc<str>, request: Request) -> CallId {
        self.post(request)
    }

    fn create(&mut self, dir: &Arc<str>, prefix: &str) -> CallId {
        let create = self.creation(dir, prefix);
        self.post(create)
    }

    fn creation(&self, dir: &str, prefix: &str) -> Request {
        Request::Create {
            path: crate::path::node_in(dir, prefix),
            data: Vec::new().into(),
            acl: Vec::new(),
            mode: CreateMode::EphemeralSequential,
            stat: true,
        }
    }

    fn parents(&self, _: &str) -> Option<Vec<Request>> {
        None
    }

    fn abandon(&mut self, _: CallId) -> bool {
        false
    }

    fn sends_late(&self) -> bool {
        true
    }

    fn unwatch(&mut self, _: &str) {}

    fn saw_clock(&mut self, _: i64) {}

    fn servers_time(&self) -> Duration {
        Duration::ZERO
    }

    fn probable_time(&self) -> Duration {
        Duration::ZERO
    }
}

fn asks(role: Role) -> (Contest, Patience) {
    let contest = Contest {
        dialect: Dialect::Curator,
        role,
        permits: 1,
    };
    (contest, Patience::Waits)
}

fn children(names: &[&str]) -> Answered {
    let names = names.iter().collect();
    Ok(Reply::Children { names, stat: None })
}

fn is_look(request: &Request) -> bool {
    matches!(request, Request::Exists { .. })
}

fn is_read(request: &Request) -> bool {
    matches!(request, Request::GetData { .. })
}

/// A contender behind another one, which has just asked for its watches.
fn behind_another(wire: &mut Notes) -> Acquisition {
    let mut acquisition = Acquisition::enter(asks(Role::Exclusive), &"/q".into(), None, wire);
    assert!(acquisition.advance(wire).is_none());
    let Some(Request::Create { path, .. }) = wire.sent.first() else {
        panic!("{:?}", wire.sent);
    };
    let path = alloc::format!("{path}0000000002");
    let name = crate::path::name(&path).to_string();
    let stat = Stat {
        ephemeral_owner: SESSION,
        ..Stat::default()
    };
    let created = Reply::Created {
        path,
        stat: Some(stat),
    };
    acquisition.answered(CallId(0), Ok(created), wire);
    acquisition.answered(CallId(1), children(&[AHEAD, &name]), wire);
    assert!(acquisition.advance(wire).is_none());
    acquisition
}

#[test]
fn a_look_at_its_own_node_that_was_refused_in_passing_sets_its_watch_again() {
    let mut wire = Notes::default();
    let mut acquisition = behind_another(&mut wire);
    let (look, read) = (wire.last(is_look).unwrap(), wire.last(is_read).unwrap());
    acquisition.answered(look, Err(Failure::Lost), &mut wire);
    let seen = Reply::Data {
        data: Data::default(),
        stat: Stat::default(),
    };
    acquisition.answered(read, Ok(seen), &mut wire);
    assert!(acquisition.advance(&mut wire).is_none());
    let again = wire.last(is_look).filter(|again| *again != look);
    let again = &wire.sent[again.expect("another look").0 as usize];
    assert!(
        matches!(again, Request::Exists { watch: true, .. }),
        "{again:?}"
    );
}

#[test]
fn a_permit_whose_directory_is_gone_was_not_seen_taken() {
    let mut wire = Notes::default();
    let gone = || Err(Failure::Refused(ErrorCode::NO_NODE));
    let permit = asks(Role::Permit);
    let mut acquisition = Acquisition::enter(permit, &"/s/leases".into(), None, &mut wire);
    let mut reached = None;
    for call in 0..9 {
        reached = acquisition.advance(&mut wire);
        if reached.is_some() {
            break;
        }
        acquisition.answered(CallId(call), gone(), &mut wire);
    }
    let is_open = matches!(reached, Some(Reached::GaveUp { taken: false }));
    assert!(is_open, "{reached:?}");
}

#[test]
fn the_end_of_its_own_node_is_heard_while_it_sets_another_watch() {
    let mut wire = Notes::default();
    let mut acquisition = behind_another(&mut wire);
    let mine = acquisition.node().unwrap().to_string();
    acquisition.happened(AHEAD, EventKind::Deleted);
    acquisition.happened(&mine, EventKind::Deleted);
    let blocked = Blocked {
        nearest: "another".to_string(),
        ..Blocked::default()
    };
    acquisition.step(Action::Watch(blocked), &mut wire);
    assert_eq!(acquisition.events, [(mine, EventKind::Deleted)]);
}
