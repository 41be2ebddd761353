//! One contender, of ours or of a peer's: what it is told and what it says.

use std::fmt;
use std::time::Duration;

use crossbeam_channel::Receiver;
use zklock::Dialect;

/// How long a contender may take to do what nothing stands in the way of.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a contender says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Said {
    /// It holds, with this node; `-` where its library does not tell.
    Held(String),
    /// It is in the queue; only ours say so.
    Waiting,
    /// It does not hold: the limit has passed.
    Late,
    Released,
    Done,
    /// Somebody asked it to let go.
    Revoked,
    /// The data of the contenders' nodes.
    Contenders(Vec<String>),
    /// One of ours will not queue with somebody.
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
    /// Reads what a peer says.
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

    /// Tells it to queue, and returns at once.
    pub(crate) fn lock(&self, kind: &str, path: &str) {
        (self.tell)(&format!("lock {kind} {path}"));
    }

    /// Tells a writer to become a reader, and returns at once.
    pub(crate) fn downgrade(&self) {
        (self.tell)("downgrade");
    }

    /// Has it let go and waits until it has.
    #[track_caller]
    pub(crate) fn release(&self) {
        assert_eq!(self.let_go(), Said::Released);
    }

    /// Has it let go; returns what it says of that.
    pub(crate) fn let_go(&self) -> Said {
        self.begin_release();
        self.hear()
    }

    /// Tells it to let go, and returns at once.
    pub(crate) fn begin_release(&self) {
        (self.tell)("release");
    }

    /// Has it ask the contender with this node to let go.
    #[track_caller]
    pub(crate) fn revoke(&self, node: &str) {
        (self.tell)(&format!("revoke {node}"));
        assert_eq!(self.hear(), Said::Done);
    }

    /// Has it read who is in a queue.
    #[track_caller]
    pub(crate) fn contenders(&self, path: &str) -> Vec<String> {
        (self.tell)(&format!("contenders {path}"));
        match self.hear() {
            Said::Contenders(texts) => texts,
            other => panic!("no contenders: {other:?}"),
        }
    }

    /// Waits until it holds, and returns its node.
    #[track_caller]
    pub(crate) fn held(&self) -> String {
        match self.hear() {
            Said::Held(node) => node,
            other => panic!("it does not hold: {other:?}"),
        }
    }

    /// Returns what it says next, beside that it waits.
    #[track_caller]
    pub(crate) fn hear(&self) -> Said {
        loop {
            match self.said.recv_timeout(PATIENCE) {
                Ok(Said::Waiting) => {}
                Ok(said) => return said,
                Err(error) => panic!("a contender says nothing: {error}"),
            }
        }
    }

    /// Returns what it says within `limit`.
    pub(crate) fn hear_within(&self, limit: Duration) -> Option<Said> {
        self.said.recv_timeout(limit).ok()
    }

    /// Returns all that it says, to be used in a `select`.
    pub(crate) fn said(&self) -> &Receiver<Said> {
        &self.said
    }
}

impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").finish_non_exhaustive()
    }
}
