//! The requests for the actions of an attempt at a permit, and the events that their answers amount to.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::action_and_event::{Event, Look};
use crate::connection::sync;
use crate::dialect::Dialect;
use crate::directories::Lasting;
use crate::path::node_in;
use crate::places::permits_of_kazoos;
use zklock_jute::{Access, CreateMode, ErrorCode, Names, Reply, Request};

/// Where a semaphore has its directories, in the dialect of a client.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// The path of the semaphore.
    pub path: &'a str,
    /// The client's dialect.
    pub dialect: Dialect,
}

/// A refusal of a request about a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// The path.
    pub path: String,
    /// Why the request was refused.
    pub code: ErrorCode,
}

impl Layout<'_> {
    fn is_kazoos(self) -> bool {
        self.dialect == Dialect::Kazoo
    }

    /// Returns the directory of the line.
    pub fn line(self) -> String {
        match self.is_kazoos() {
            true => format!("{}-__lock__", self.path),
            false => node_in(self.path, "locks"),
        }
    }

    /// Returns the dialect of the names in the line: in the latch's dialect, a client uses the line of Curator's
    /// semaphore.
    pub fn dialect_of_line(self) -> Dialect {
        match self.dialect {
            Dialect::LeaderLatch => Dialect::Curator,
            dialect => dialect,
        }
    }

    /// Returns the directory of the permits that are out.
    pub fn permits(self) -> String {
        match self.is_kazoos() {
            true => self.path.to_string(),
            false => node_in(self.path, "leases"),
        }
    }

    /// Returns what becomes of the directories of the line and of the permits, if the semaphore has this number of
    /// permits.
    pub fn lasting(self, number: &[u8]) -> [Lasting<'_>; 2] {
        match self.is_kazoos() {
            true => [Lasting::WhileUsed, Lasting::Always(number)],
            false => [Lasting::WhileUsedIn(number); 2],
        }
    }

    /// Returns the requests of a look, at a server that `catches_up` if asked for. The answers to the first ones, as
    /// many as are returned too, say nothing.
    pub fn looks(self, catches_up: bool) -> (Vec<Request>, usize) {
        let sync = catches_up.then(|| sync(self.path));
        let mut requests: Vec<_> = sync.into_iter().collect();
        let before = requests.len();
        requests.extend([Request::get(self.path), Request::list(self.path)]);
        if !self.is_kazoos() {
            requests.push(Request::list(&self.permits()));
        }
        (requests, before)
    }

    /// Returns what the answers to a look show.
    pub fn looked(self, answers: Vec<Result<Reply, ErrorCode>>) -> Result<Look, Refusal> {
        let refused = |path: &str, code| Refusal {
            path: path.to_string(),
            code,
        };
        let mut answers = answers.into_iter();
        let (number, absent) = match answers.next() {
            Some(Ok(Reply::Data { data, stat })) => (Some((data.into(), stat.version)), false),
            Some(Err(ErrorCode::NO_NODE)) => (None, true),
            Some(Err(code)) if code != ErrorCode::NO_AUTH => {
                return Err(refused(self.path, code));
            }
            _ => (None, false),
        };
        // A client that may not list the permits must not assume that none are taken.
        let mut names = |dir: &str, permits: bool| match answers.next() {
            Some(Ok(Reply::Children { names, .. })) => Ok(Some(names)),
            Some(Err(ErrorCode::NO_AUTH)) if !permits => Ok(None),
            Some(Err(code)) if code != ErrorCode::NO_NODE => Err(refused(dir, code)),
            _ => Ok(None),
        };
        let own: Names = names(self.path, self.is_kazoos())?.unwrap_or_default();
        let out = match self.is_kazoos() {
            true => Some(permits_of_kazoos(&own)),
            false => names(&self.permits(), true)?,
        };
        Ok(Look {
            number,
            absent,
            unready: out.is_none(),
            own,
            out: out.unwrap_or_default(),
        })
    }

    /// Returns the request that writes the number if the semaphore's node has this version and the client's node at
    /// this path is in the line, as far as the server can check that.
    pub fn write(
        self,
        (number, version): (&str, i32),
        (line, transacts): (&str, bool),
        acl: &[Access],
    ) -> Request {
        let write = Request::set(self.path, number.as_bytes().to_vec(), version);
        if !transacts {
            return write;
        }
        let mut ops = vec![Request::check(line), write];
        // These fail if the path has the permits of Curator's semaphore: these obey the number, and a client in kazoo's
        // dialect counts none of them. In Curator's, the look shows kazoo's.
        if self.is_kazoos() {
            let permits = node_in(self.path, "leases");
            let (acl, mode) = (acl.to_vec(), CreateMode::Persistent);
            let create = Request::create(permits.clone(), Vec::new(), acl, mode);
            ops.extend([create, Request::delete(permits)]);
        }
        Request::Multi(ops)
    }
}

/// Returns what an answer to [`Layout::write`] says.
pub fn written(answer: Result<(), ErrorCode>) -> Result<Event, ErrorCode> {
    match answer {
        Ok(()) => Ok(Event::Written),
        Err(ErrorCode::BAD_VERSION | ErrorCode::NODE_EXISTS) => Ok(Event::BadVersion),
        Err(ErrorCode::NO_NODE) => Ok(Event::NoNode),
        Err(ErrorCode::NO_AUTH) => Ok(Event::NoAuth),
        Err(code) => Err(code),
    }
}

/// Returns what a look at this client's node in the line says, given whether that node's session still lasts: whether
/// another client deleted the node, or it went with the session.
pub fn inspected(answer: Result<(), ErrorCode>, lasts: bool) -> Event {
    match answer {
        Err(ErrorCode::NO_NODE) if lasts => Event::NoNode,
        Ok(()) | Err(_) => Event::IsThere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zklock_jute::Stat;

    const CURATORS: Layout<'_> = Layout {
        path: "/s",
        dialect: Dialect::Curator,
    };

    fn children(names: &str) -> Result<Reply, ErrorCode> {
        let names = names.split_whitespace().collect();
        Ok(Reply::Children { names, stat: None })
    }

    fn data(version: i32) -> Result<Reply, ErrorCode> {
        Ok(Reply::Data {
            data: b"3".to_vec().into(),
            stat: Stat {
                version,
                ..Stat::default()
            },
        })
    }

    #[test]
    fn a_look_shows_the_permits_that_are_out() {
        for dialect in [Dialect::Curator, Dialect::Kazoo] {
            let layout = Layout {
                dialect,
                ..CURATORS
            };
            let own = match dialect {
                Dialect::Kazoo => "a b locks",
                _ => "leases locks",
            };
            let answers = [data(7), children(own), children("a b")];
            let (requests, before) = layout.looks(true);
            let answers = answers.into_iter().take(requests.len() - before);
            let look = layout.looked(answers.collect()).unwrap();
            assert_eq!(look.number, Some((b"3".to_vec(), 7)));
            assert_eq!(look.out.iter().collect::<Vec<_>>(), ["a", "b"]);
            assert!(!look.unready && !look.absent);
        }
    }

    #[test]
    fn what_is_missing_is_to_be_made_and_what_may_not_be_seen_is_not_assumed() {
        const NO_NODE: Result<Reply, ErrorCode> = Err(ErrorCode::NO_NODE);
        const NO_AUTH: Result<Reply, ErrorCode> = Err(ErrorCode::NO_AUTH);
        let look = CURATORS.looked(vec![NO_NODE, NO_NODE, NO_NODE]).unwrap();
        assert!(look.absent && look.unready);
        let look = CURATORS
            .looked(vec![NO_AUTH, NO_AUTH, children("")])
            .unwrap();
        assert!(!look.absent && !look.unready && look.number.is_none());
        let refusal = CURATORS
            .looked(vec![data(0), children(""), NO_AUTH])
            .unwrap_err();
        let path = "/s/leases".to_string();
        let code = ErrorCode::NO_AUTH;
        assert_eq!(refusal, Refusal { path, code });
    }

    #[test]
    fn the_first_in_the_line_alone_writes_the_number() {
        let ops = |dialect, transacts| {
            let layout = Layout {
                dialect,
                ..CURATORS
            };
            match layout.write(("3", 7), ("/s/locks/mine", transacts), &[]) {
                Request::Multi(ops) => ops.len(),
                _ => 1,
            }
        };
        assert_eq!(ops(Dialect::Curator, true), 2);
        assert_eq!(ops(Dialect::Kazoo, true), 4);
        assert_eq!(ops(Dialect::Curator, false), 1);
        let is = |code| written(Err(code)).map(|event| format!("{event:?}"));
        assert_eq!(is(ErrorCode::NODE_EXISTS), Ok("BadVersion".into()));
        assert_eq!(is(ErrorCode::NO_NODE), Ok("NoNode".into()));
        assert_eq!(
            is(ErrorCode::QUOTA_EXCEEDED),
            Err(ErrorCode::QUOTA_EXCEEDED)
        );
    }

    #[test]
    fn a_node_that_went_with_its_session_was_not_deleted_by_another_client() {
        let gone = Err(ErrorCode::NO_NODE);
        assert!(matches!(inspected(gone, true), Event::NoNode));
        assert!(matches!(inspected(gone, false), Event::IsThere));
        assert!(matches!(inspected(Ok(()), true), Event::IsThere));
    }
}
