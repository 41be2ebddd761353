//! A contender, ours or a peer's: the commands that it gets and its reports.

use std::fmt;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use zklock::Dialect;

/// How long a contender may take for a step that nothing blocks.
const PATIENCE: Duration = Duration::from_secs(60);

/// A report of a contender.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Said {
    /// The contender holds, with this node; `-` where its library does not tell the node.
    Held(String),
    /// The contender is in the queue; only our contenders report that.
    Waiting,
    /// The contender does not hold: the limit has passed.
    Late,
    Released,
    Done,
    /// Another client asked the contender to release.
    Revoked,
    /// The data of the contenders' nodes.
    Contenders(Vec<String>),
    /// One of ours refuses to queue with another contender.
    Refused {
        node: String,
        library: &'static str,
        dialect: Option<Dialect>,
    },
    Error(String),
}

/// A contender's place in a test.
pub(crate) struct Contender {
    tell: Box<dyn Fn(&str) + Send + Sync>,
    said: Receiver<Said>,
}

impl Said {
    /// Parses a peer's report.
    pub(crate) fn parse(text: &str) -> Self {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "held" => Self::Held(rest.to_owned()),
            "late" => Self::Late,
            "released" => Self::Released,
            "done" => Self::Done,
            "revoked" => Self::Revoked,
            "contenders" => Self::Contenders(rest.split('\t').map(str::to_owned).collect()),
            _ => Self::Error(rest.to_owned()),
        }
    }
}

impl Contender {
    pub(crate) fn new(tell: Box<dyn Fn(&str) + Send + Sync>, said: Receiver<Said>) -> Self {
        Self { tell, said }
    }

    /// Tells the contender to queue, and returns at once.
    pub(crate) fn lock(&self, kind: &str, path: &str) {
        (self.tell)(&format!("lock {kind} {path}"));
    }

    /// Tells a writer to become a reader, and returns at once.
    pub(crate) fn downgrade(&self) {
        (self.tell)("downgrade");
    }

    /// Makes the contender release, and waits until it has done so.
    #[track_caller]
    pub(crate) fn release(&self) {
        assert_eq!(self.let_go(), Said::Released);
    }

    /// Makes the contender release; returns its report.
    pub(crate) fn let_go(&self) -> Said {
        self.begin_release();
        self.hear()
    }

    /// Tells the contender to release, and returns at once.
    pub(crate) fn begin_release(&self) {
        (self.tell)("release");
    }

    /// Makes the contender ask the one with this node to release.
    #[track_caller]
    pub(crate) fn revoke(&self, node: &str) {
        (self.tell)(&format!("revoke {node}"));
        assert_eq!(self.hear(), Said::Done);
    }

    /// Makes the contender list those in a queue.
    #[track_caller]
    pub(crate) fn contenders(&self, path: &str) -> Vec<String> {
        (self.tell)(&format!("contenders {path}"));
        match self.hear() {
            Said::Contenders(texts) => texts,
            other => panic!("no contenders: {other:?}"),
        }
    }

    /// Waits until the contender holds; returns its node.
    #[track_caller]
    pub(crate) fn held(&self) -> String {
        match self.hear() {
            Said::Held(node) => node,
            other => panic!("it does not hold: {other:?}"),
        }
    }

    /// Returns the contender's next report, except that it waits. The report of who is dead is an error.
    #[track_caller]
    pub(crate) fn hear(&self) -> Said {
        loop {
            match self.said.recv_timeout(PATIENCE) {
                Ok(Said::Waiting) => {}
                Ok(said) => return said,
                Err(RecvTimeoutError::Disconnected) => return Said::Error("it is dead".to_owned()),
                Err(RecvTimeoutError::Timeout) => panic!("a contender says nothing"),
            }
        }
    }

    /// Returns the contender's report within `limit`.
    pub(crate) fn hear_within(&self, limit: Duration) -> Option<Said> {
        self.said.recv_timeout(limit).ok()
    }

    /// Returns all reports of the contender, for use in a `select`.
    pub(crate) fn said(&self) -> &Receiver<Said> {
        &self.said
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").finish_non_exhaustive()
    }
}
