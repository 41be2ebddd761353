//! What several kinds of locks ask of a session.

use std::time::Duration;

use super::Session;
use super::ask::{Asker, not_made, over, refused};
use super::limit::{GaveUp, Limit};
use super::proof::{self, Proof};
use super::transport::Failure;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::path;
use crate::proto::{CreateMode, ErrorCode, Reply, Request};
use crate::protocol::dialect::{Dialect, Role};
use crate::protocol::queue::{Contest, Foreign};

/// How long a question about a queue may take.
const LIMIT: Duration = Duration::from_secs(15);

impl Session {
    /// Has the quorum confirm these nodes; returns when it was asked, or `None` if one is
    /// gone or the limit was reached.
    pub(crate) fn prove(&self, nodes: &[String], limit: &Limit) -> Result<Option<Moment>> {
        let abilities = self.transport.abilities();
        let mut asker = self.asker();
        loop {
            if asker.connected(limit)?.is_err() {
                return Ok(None);
            }
            let sent = Moment::now();
            let Ok(answers) = asker.prove(nodes, limit) else {
                return Ok(None);
            };
            match proof::judge(abilities, &answers) {
                Proof::Confirmed => return Ok(Some(sent)),
                Proof::Gone(_) => return Ok(None),
                Proof::Unanswered => asker.breathe(),
            }
        }
    }

    /// What this client asks of a queue.
    pub(crate) fn contest(&self, role: Role, permits: usize) -> Contest {
        Contest {
            dialect: self.settings.dialect,
            role,
            permits,
        }
    }

    /// The error of a queue with somebody who would not wait for us.
    pub(crate) fn foreign(&self, dir: &str, foreign: Foreign) -> Error {
        let node = format!("{dir}/{}", foreign.node);
        if foreign.by_number {
            log::warn!("{node} goes by its number, and those under {dir} are used up");
            return Error::Exhausted {
                path: dir.to_owned(),
                reason: "a contender of another library goes by them",
            };
        }
        Error::ForeignContender {
            node,
            library: foreign.library,
            dialect: foreign.dialect,
        }
    }

    /// Makes the directories of several locks, and what is above them.
    pub(crate) fn make_directories(
        &self,
        asker: &mut Asker,
        dirs: &[String],
        lasting: Option<&[u8]>,
        limit: &Limit,
    ) -> Result<()> {
        for dir in dirs {
            let requests = self.parents(dir, lasting);
            let count = requests.len();
            let mut ticket = asker.post(requests.into_iter().map(|request| (request, None)));
            let mut refusals = Refusals::default();
            for _ in 0..count {
                match asker.wait(ticket, limit) {
                    Ok(Err(Failure::Refused(code))) => refusals.add(code),
                    Ok(Err(Failure::TooLong(long))) => return Err(long.about(dir)),
                    Ok(_) => refusals.none(),
                    Err(GaveUp) => return Ok(()),
                }
                ticket = ticket.next();
            }
            if let Some(code) = refusals.trouble() {
                return Err(not_made(dir, code));
            }
        }
        Ok(())
    }

    /// The request that asks whoever has this node to let go of its lock.
    pub(crate) fn revocation(&self, node: &str) -> Request {
        let word = match self.settings.dialect {
            Dialect::Recipe => b"unlock".to_vec(),
            Dialect::Curator | Dialect::Kazoo => b"__REVOKE__".to_vec(),
        };
        Request::SetData {
            path: node.to_owned(),
            data: word,
            version: -1,
        }
    }

    /// The request that deletes a node, whoever has it.
    pub(crate) fn eviction(&self, node: &str) -> Request {
        Request::Delete {
            path: node.to_owned(),
            version: -1,
        }
    }

    /// Asks until there is an answer; `None` if the node is not there.
    pub(crate) fn read(&self, request: &Request, path: &str) -> Result<Option<Reply>> {
        match self.asker().insist(request, &Limit::after(LIMIT))? {
            Ok(Ok(reply)) => Ok(Some(reply)),
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Ok(None),
            Ok(Err(Failure::Refused(code))) => Err(refused(path, code)),
            Ok(Err(Failure::TooLong(long))) => Err(long.about(path)),
            Ok(Err(Failure::Closed)) => Err(over(&self.hub.link())),
            Ok(Err(_)) | Err(_) => Err(Error::ConnectTimeout {
                limit: LIMIT,
                tried: self.hub.trouble(),
            }),
        }
    }

    /// The requests that create a lock's directory and what is above it.
    pub(crate) fn parents(&self, dir: &str, lasting: Option<&[u8]>) -> Vec<Request> {
        let make = |path: &str, mode, data: &[u8]| Request::Create {
            path: path.to_owned(),
            data: data.to_vec(),
            acl: self.settings.acl.entries().to_vec(),
            mode,
            stat: false,
        };
        // kazoo remembers that a directory exists, and fails if a container has gone.
        let last = match (lasting, self.settings.dialect) {
            (Some(data), _) => make(dir, CreateMode::Persistent, data),
            (None, Dialect::Kazoo) => make(dir, CreateMode::Persistent, &[]),
            (None, Dialect::Curator | Dialect::Recipe) => make(dir, CreateMode::Container, &[]),
        };
        let above = path::ancestors(dir).map(|path| make(path, CreateMode::Persistent, &[]));
        above.chain([last]).collect()
    }
}

/// What the server said against the parents of a lock, from the outermost to the last.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    count: usize,
    /// The first that is about the parent itself.
    first: Option<ErrorCode>,
    last: Option<ErrorCode>,
}

impl Refusals {
    pub(crate) fn add(&mut self, code: ErrorCode) {
        // Above the first there is only the chroot. Others are without their parent because
        // that was refused, or because it has gone again at once.
        let consequence = code == ErrorCode::NO_NODE && 0 < self.count;
        if code != ErrorCode::NODE_EXISTS && !consequence {
            self.first = self.first.or(Some(code));
        }
        self.last = Some(code);
        self.count += 1;
    }

    /// The next parent was made.
    pub(crate) fn none(&mut self) {
        self.last = None;
        self.count += 1;
    }

    /// Why there is no reason to go on, if so: that we may not create those in between is
    /// none, for they may be there.
    pub(crate) fn trouble(&self) -> Option<ErrorCode> {
        match self.last? {
            ErrorCode::NODE_EXISTS => None,
            _ => self.first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_that_cannot_be_made_is_trouble_unless_it_is_not_needed() {
        const OK: ErrorCode = ErrorCode::OK;
        const EXISTS: ErrorCode = ErrorCode::NODE_EXISTS;
        const NO_NODE: ErrorCode = ErrorCode::NO_NODE;
        const NO_AUTH: ErrorCode = ErrorCode::NO_AUTH;
        let table: [(&[ErrorCode], Option<ErrorCode>); 8] = [
            (&[OK, OK], None),
            (&[EXISTS, EXISTS], None),
            (&[NO_AUTH, EXISTS], None),
            (&[NO_AUTH, OK], None),
            (&[EXISTS, EXISTS, NO_NODE], None),
            (&[NO_NODE, NO_NODE], Some(NO_NODE)),
            (&[EXISTS, NO_AUTH, NO_NODE], Some(NO_AUTH)),
            (&[EXISTS, NO_AUTH], Some(NO_AUTH)),
        ];
        for (codes, expected) in table {
            let mut refusals = Refusals::default();
            for code in codes {
                match *code {
                    OK => refusals.none(),
                    code => refusals.add(code),
                }
            }
            assert_eq!(refusals.trouble(), expected, "{codes:?}");
        }
    }
}
