//! Watches a queue without being in it.
//!
//! One watch on the directory, or on its coming into being, and one listing whenever
//! that fires or the connection was made anew: no event can be missed, because the watch
//! is set by the request that lists.

use std::collections::BTreeSet;
use std::sync::Arc;

use crossbeam_channel::{Sender, select, unbounded};

use crate::contender::Contender;
use crate::error::Result;
use crate::path;
use crate::proto::{ErrorCode, Reply, Request};
use crate::protocol::name::NodeName;
use crate::protocol::names::Names;
use crate::session::Session;
use crate::session::ask::{Asker, over, refused};
use crate::session::limit::Limit;
use crate::session::transport::{Failure, Fired, Watch, WatchId};

/// One watch; forgotten when dropped.
struct Onlooker<'a> {
    session: &'a Session,
    dir: &'a str,
    id: WatchId,
}

impl Session {
    /// Returns the contenders as soon as they are not the `known` ones, or at the limit.
    pub(crate) fn contenders_changed(
        self: &Arc<Self>,
        dir: &str,
        known: &[Contender],
        limit: &Limit,
    ) -> Result<Vec<Contender>> {
        let mut asker = self.asker();
        let (to, fired) = unbounded();
        loop {
            let changes = asker.changes().clone();
            let onlooker = Onlooker::new(self, dir);
            let Some(names) = onlooker.look(&mut asker, &to, limit)? else {
                return Ok(known.to_vec());
            };
            if !is_known(&names, known) {
                let present = self.contenders(dir)?;
                // Who came may have gone before he was looked at.
                if !is_same(&present, known) {
                    return Ok(present);
                }
            }
            self.transport.attend();
            select! {
                recv(fired) -> _ => {}
                recv(changes) -> _ => {}
                recv(limit.timer()) -> _ => return Ok(known.to_vec()),
                recv(limit.cancel) -> _ => return Ok(known.to_vec()),
            }
        }
    }
}

impl<'a> Onlooker<'a> {
    fn new(session: &'a Session, dir: &'a str) -> Self {
        let id = session.next_watch();
        Self { session, dir, id }
    }

    /// Sets the watch and lists the directory; `None` at the limit.
    fn look(&self, asker: &mut Asker, to: &Sender<Fired>, limit: &Limit) -> Result<Option<Names>> {
        let list = Request::GetChildren {
            path: self.dir.to_owned(),
            watch: true,
            stat: false,
        };
        let await_it = Request::Exists {
            path: self.dir.to_owned(),
            watch: true,
        };
        let mut request = list.clone();
        loop {
            if asker.connected(limit)?.is_err() {
                return Ok(None);
            }
            let watch = Watch::new(self.id, to.clone());
            let ticket = asker.post([(request.clone(), Some(watch))]);
            let Ok(answered) = asker.wait(ticket, limit) else {
                return Ok(None);
            };
            match answered {
                Ok(Reply::Children { names, .. }) => return Ok(Some(names)),
                // It has just been made: list it after all.
                Ok(_) => request = list.clone(),
                Err(Failure::Refused(ErrorCode::NO_NODE)) if request == await_it => {
                    return Ok(Some(Names::default()));
                }
                Err(Failure::Refused(ErrorCode::NO_NODE)) => request = await_it.clone(),
                Err(Failure::Refused(code)) => return Err(refused(self.dir, code)),
                Err(Failure::TooLong(long)) => return Err(long.about(self.dir)),
                Err(Failure::Closed) => return Err(over(&self.session.hub.link())),
                Err(Failure::Lost | Failure::NotSent) => asker.breathe(),
            }
        }
    }
}

impl Drop for Onlooker<'_> {
    fn drop(&mut self) {
        self.session.transport.unwatch(self.dir, self.id);
    }
}

fn is_known(names: &Names, known: &[Contender]) -> bool {
    let present: BTreeSet<_> = names
        .iter()
        .filter(|name| NodeName::parse(name).is_some())
        .collect();
    let known: BTreeSet<_> = known.iter().map(|known| path::name(known.node())).collect();
    present == known
}

fn is_same(present: &[Contender], known: &[Contender]) -> bool {
    let key = |one: &Contender| (one.node().to_owned(), one.token());
    present.iter().map(key).eq(known.iter().map(key))
}
