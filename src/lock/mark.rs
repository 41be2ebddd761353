//! Telling the next holder that its predecessor went without releasing.
//!
//! As a poisoned mutex of Rust's and POSIX's EOWNERDEAD do. The mark is the data of the
//! lock's directory itself, never a child, which would get in other clients' way: it is
//! set by whoever enters and cleared in the same transaction as the release, so it stays
//! if a session expires, a process dies or a critical section panics. A directory that is
//! a container would go when it is empty, and the mark with it; since the server does not
//! tell containers from other nodes, only directories that were made for marks are used.

use std::time::Duration;

use crossbeam_channel::{after, select};
use serde_json::{Value, json};

use super::raw_guard::RawGuard;
use crate::error::{Error, Result};
use crate::guard::FencingToken;
use crate::jute::{ErrorCode, Op, Reply, Request, failure};
use crate::session::caller::{over, refused};
use crate::time::limit::{Limit, LimitReached};
use crate::transport::Failure;

/// The data of a directory that keeps marks, while nobody holds the lock.
pub(crate) const CLEAN: &[u8] = b"{\"held\":null}";

/// What a mutex does about predecessors that went without releasing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tracking {
    /// How long to wait before entering after one.
    pub(crate) delay: Duration,
}

/// The hold, with the mark set, and the token of a predecessor that went.
pub(crate) type Settled = (RawGuard, Option<FencingToken>);

impl RawGuard {
    /// Finds out how the predecessor went, waits if that was asked for, and sets the mark.
    ///
    /// `None` if the limit was reached; the hold is released then, and the mark is left as
    /// it was.
    pub(crate) fn settle(
        mut self,
        tracking: Tracking,
        dir: &str,
        limit: &Limit,
    ) -> Result<Option<Settled>> {
        if !self.session().transport.capabilities().multi {
            return Err(Error::Unsupported {
                what: "tracking of abandonment",
            });
        }
        let Some(data) = self.read(dir, limit)? else {
            return Ok(None);
        };
        let Some(abandoned) = parse(&data) else {
            return Err(Error::Unsupported {
                what: "tracking of abandonment in a directory that was made without it: delete it when it is idle",
            });
        };
        if let Some(token) = abandoned {
            log::warn!("the holder of {dir} with the token {token} went without releasing it");
            if self.wait(tracking.delay, limit).is_err() {
                return Ok(None);
            }
        }
        if !self.mark(dir, limit)? {
            return Ok(None);
        }
        self.close_with(clear);
        Ok(Some((self, abandoned)))
    }

    fn read(&self, dir: &str, limit: &Limit) -> Result<Option<Vec<u8>>> {
        let read = Request::GetData {
            path: dir.to_owned(),
            watch: false,
        };
        match self.session().caller().insist(&read, limit)? {
            Ok(Ok(Reply::Data { data, .. })) => Ok(Some(data.into())),
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Err(self.lease().lost()),
            Ok(Err(Failure::Refused(code))) => Err(refused(dir, code)),
            Ok(Err(Failure::TooLong(long))) => Err(long.about(dir)),
            Ok(Err(Failure::Closed)) => Err(over(&self.session().status.snapshot())),
            Ok(_) | Err(LimitReached) => Ok(None),
        }
    }

    fn wait(&self, delay: Duration, limit: &Limit) -> std::result::Result<(), LimitReached> {
        if delay.is_zero() {
            return Ok(());
        }
        select! {
            recv(after(delay)) -> _ => Ok(()),
            recv(limit.timer()) -> _ => Err(LimitReached),
            recv(limit.cancel) -> _ => Err(limit.cancelled()),
        }
    }

    /// Sets the mark if our node is still there. Doing so twice changes nothing.
    fn mark(&self, dir: &str, limit: &Limit) -> Result<bool> {
        let mark = Request::Multi(vec![
            Op::Check {
                path: self.node().to_owned(),
                version: -1,
            },
            Op::SetData {
                path: dir.to_owned(),
                data: json!({ "held": self.token().get() })
                    .to_string()
                    .into_bytes()
                    .into(),
                version: -1,
            },
        ]);
        let answered = self.session().caller().insist(&mark, limit)?;
        match answered {
            Ok(Ok(Reply::Multi(results))) => match failure(&results) {
                None => Ok(true),
                Some(ErrorCode::NO_NODE) => Err(self.lease().lost()),
                Some(code) => Err(refused(dir, code)),
            },
            Ok(Err(Failure::Refused(ErrorCode::NO_NODE))) => Err(self.lease().lost()),
            Ok(Err(Failure::Refused(code))) => Err(refused(dir, code)),
            Ok(Err(Failure::TooLong(long))) => Err(long.about(dir)),
            Ok(Err(Failure::Closed)) => Err(over(&self.session().status.snapshot())),
            Ok(_) | Err(LimitReached) => Ok(false),
        }
    }
}

/// The transaction that deletes a holder's node and clears the mark, or does neither.
fn clear(dir: &str, node: String) -> Request {
    Request::Multi(vec![
        Op::Delete {
            path: node,
            version: -1,
        },
        Op::SetData {
            path: dir.to_owned(),
            data: CLEAN.to_vec().into(),
            version: -1,
        },
    ])
}

/// Reads the mark: the holder's token, if there is one, and `None` if this directory keeps
/// no marks.
fn parse(data: &[u8]) -> Option<Option<FencingToken>> {
    let mark: Value = serde_json::from_slice(data).ok()?;
    Some(
        mark.as_object()?
            .get("held")?
            .as_i64()
            .map(FencingToken::new),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_are_read_as_marks() {
        assert_eq!(parse(CLEAN), Some(None));
        assert_eq!(parse(b"{\"held\":7}"), Some(Some(FencingToken::new(7))));
        for data in [&b""[..], b"127.0.0.1", b"3", b"{}", b"[\"held\"]", b"\xff"] {
            assert_eq!(parse(data), None, "{data:?}");
        }
    }
}
