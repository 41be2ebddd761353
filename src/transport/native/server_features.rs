//! The requests that the server is known to support.
//!
//! ZooKeeper 3.4 answers an unknown request with "unimplemented" and closes the connection;
//! ClickHouse Keeper just closes it, or says "bad arguments"; RaftKeeper leaves it without an
//! answer. All know the older requests, so a request that fails is sent again in its older form.

use crate::jute::{CreateMode, ErrorCode, Op, OpCode, Request};
use crate::transport::Capabilities;

/// How often a server may hang up on a newer request before it is taken for old.
///
/// Once may be a coincidence. A wrong guess costs containers and the stats of created nodes.
const HANGUPS: u8 = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    age: Age,
    hangups: u8,
    multi: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Age {
    Unknown,
    /// It knows create2, containers and removeWatches.
    New,
    Old,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            age: Age::Unknown,
            hangups: 0,
            multi: true,
        }
    }
}

impl Features {
    pub(super) fn capabilities(self) -> Capabilities {
        Capabilities {
            multi: self.multi,
            // A leader answers a sync of its own client at once. The sync waits for what the
            // session asked of another server only if the leader passes that through its commit
            // processor (ZOOKEEPER-3690). A write is always carried out after it.
            sync: false,
            resumes: true,
        }
    }

    /// Whether `removeWatches` is safe: a server that lacks it closes the connection.
    pub(super) fn removes_watches(self) -> bool {
        self.age == Age::New
    }

    /// Puts a request into the form that the server knows.
    pub(super) fn fit(self, request: Request) -> Request {
        match self.age {
            Age::Old if is_newer(&request) => older(request),
            _ => request,
        }
    }

    /// A request was carried out.
    pub(super) fn succeeded(&mut self, request: &Request) {
        if matches!(request.op(), OpCode::CREATE2 | OpCode::CREATE_CONTAINER) {
            self.age = Age::New;
        }
    }

    /// A request was refused. Returns whether to send it again in its older form.
    pub(super) fn refused(&mut self, request: &Request, code: ErrorCode) -> bool {
        let unknown = code == ErrorCode::UNIMPLEMENTED;
        match request {
            request if is_newer(request) => {
                if unknown {
                    self.age = Age::Old;
                }
                let container = request.op() == OpCode::CREATE_CONTAINER;
                unknown || container && code == ErrorCode::BAD_ARGUMENTS
            }
            Request::Multi(_) if unknown => {
                self.multi = false;
                false
            }
            _ => false,
        }
    }

    /// The server answered a later request, and not this one: it drops what it does not know.
    /// Servers answer in order, so once is enough.
    pub(super) fn skipped(&mut self, request: &Request) {
        if self.age == Age::Unknown && is_newer(request) {
            self.age = Age::Old;
        }
    }

    /// The server closed the connection while `oldest` was the oldest open request.
    pub(super) fn hung_up_on(&mut self, oldest: Option<&Request>) {
        if self.age != Age::Unknown {
            return;
        }
        self.hangups = match oldest {
            Some(request) if is_newer(request) => self.hangups + 1,
            _ => 0,
        };
        if self.hangups >= HANGUPS {
            self.age = Age::Old;
        }
    }
}

/// The older form of a request, which every server knows.
pub(super) fn older(mut request: Request) -> Request {
    match &mut request {
        Request::Create { mode, stat, .. } => age(mode, stat),
        Request::Multi(ops) => {
            for op in ops {
                if let Op::Create { mode, stat, .. } = op {
                    age(mode, stat);
                }
            }
        }
        _ => {}
    }
    request
}

fn age(mode: &mut CreateMode, stat: &mut bool) {
    *stat = false;
    if *mode == CreateMode::Container {
        *mode = CreateMode::Persistent;
    }
}

/// Whether an old server does not know this form of a request.
fn is_newer(request: &Request) -> bool {
    let is_new = |mode: CreateMode, stat: bool| stat || mode == CreateMode::Container;
    match request {
        Request::Create { mode, stat, .. } => is_new(*mode, *stat),
        Request::Multi(ops) => ops
            .iter()
            .any(|op| matches!(op, Op::Create { mode, stat, .. } if is_new(*mode, *stat))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(mode: CreateMode, stat: bool) -> Request {
        Request::Create {
            path: "/a".to_owned(),
            data: Vec::new().into(),
            acl: Vec::new(),
            mode,
            stat,
        }
    }

    #[test]
    fn a_server_that_says_so_is_asked_in_the_older_form_from_then_on() {
        let newer = create(CreateMode::Ephemeral, true);
        let mut features = Features::default();
        assert_eq!(features.fit(newer.clone()), newer);
        assert!(features.refused(&newer, ErrorCode::UNIMPLEMENTED));
        assert_eq!(features.fit(newer), create(CreateMode::Ephemeral, false));
        let container = create(CreateMode::Container, true);
        assert_eq!(
            features.fit(container),
            create(CreateMode::Persistent, false)
        );
        assert!(!features.removes_watches());
    }

    #[test]
    fn a_server_that_hangs_up_twice_is_taken_for_old_unless_it_has_shown_otherwise() {
        let newer = create(CreateMode::Ephemeral, true);
        let read = Request::Sync { path: "/".into() };
        let older = create(CreateMode::Ephemeral, false);

        let mut features = Features::default();
        for oldest in [Some(&newer), Some(&read), Some(&newer), None, Some(&newer)] {
            features.hung_up_on(oldest);
            assert_eq!(features.fit(newer.clone()), newer);
        }
        features.hung_up_on(Some(&newer));
        assert_eq!(features.fit(newer.clone()), older);

        let mut features = Features::default();
        features.succeeded(&newer);
        assert!(features.removes_watches());
        features.hung_up_on(Some(&newer));
        features.hung_up_on(Some(&newer));
        assert_eq!(features.fit(newer.clone()), newer);
    }

    #[test]
    fn a_server_that_skips_a_newer_request_is_taken_for_old_at_once_unless_it_has_shown_otherwise()
    {
        let newer = create(CreateMode::Ephemeral, true);
        let older = create(CreateMode::Ephemeral, false);
        let mut features = Features::default();
        features.skipped(&Request::Sync { path: "/".into() });
        assert_eq!(features.fit(newer.clone()), newer);
        features.skipped(&newer);
        assert_eq!(features.fit(newer.clone()), older);
        let mut features = Features::default();
        features.succeeded(&newer);
        features.skipped(&newer);
        assert_eq!(features.fit(newer.clone()), newer);
    }

    #[test]
    fn a_refused_container_becomes_a_plain_node_only_this_once() {
        let container = create(CreateMode::Container, true);
        let mut features = Features::default();
        assert!(features.refused(&container, ErrorCode::BAD_ARGUMENTS));
        assert_eq!(features.fit(container.clone()), container);
        assert!(!features.refused(&container, ErrorCode::NODE_EXISTS));
        assert!(!features.refused(&older(container), ErrorCode::BAD_ARGUMENTS));
    }

    #[test]
    fn multi_is_reported_as_missing_once_the_server_said_so() {
        let mut features = Features::default();
        let multi = Request::Multi(Vec::new());
        assert!(!features.refused(&multi, ErrorCode::NO_NODE));
        assert!(features.capabilities().multi);
        assert!(!features.refused(&multi, ErrorCode::UNIMPLEMENTED));
        assert!(!features.capabilities().multi);
    }
}
