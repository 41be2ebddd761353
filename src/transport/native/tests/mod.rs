//! The client against real servers, and against servers that break the protocol.

mod broken;
mod busy;
mod closing;
mod fake;
mod following;
mod lying;
mod old;
mod real;
#[cfg(feature = "sasl")]
mod sasl;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::system::channel::{Receiver, Sender, bounded, unbounded};

use super::config::FRAME_LIMIT;
use super::{Config, Credentials, open};
use crate::support::zookeeper::ZooKeeper;
use crate::transport::session_state::{SessionEvent, SessionState};
use crate::transport::status::Status;
use crate::transport::{Answer, Call, Failure, Fired, Transport, Watch, WatchId};
use zklock_jute::{
    Access, CreateMode, ErrorCode, EventKind, Permissions, Reply, Request, Secret, Stat,
};

/// Far longer than any wait here should take.
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome = Result<Reply, Failure>;

/// A transport, its status, and the events of both.
struct Rig {
    status: Arc<Status>,
    events: Receiver<SessionEvent>,
    transport: Arc<dyn Transport>,
}

impl Rig {
    /// Connects, and waits for the connection.
    fn connect(hosts: &str, timeout: Duration) -> Self {
        let rig = Self::open(Config::plain(hosts, timeout));
        rig.hear(|event| matches!(event, SessionEvent::Connected { .. }));
        rig
    }

    fn open(config: Config) -> Self {
        let status = Arc::new(Status::new(config.session_timeout, true));
        let events = status.events();
        let transport = open(config, Arc::clone(&status)).unwrap();
        Self {
            status,
            events,
            transport,
        }
    }

    /// Waits for an event, and skips other events.
    fn hear(&self, wanted: impl Fn(&SessionEvent) -> bool) -> SessionEvent {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let event = self.events.recv_deadline(deadline);
            let event = event.expect("the status said nothing of the kind");
            if wanted(&event) {
                return event;
            }
        }
    }

    fn reconnected(&self) {
        self.hear(|event| matches!(event, SessionEvent::Connected { .. }));
    }

    fn disconnected(&self) {
        self.hear(|event| matches!(event, SessionEvent::Disconnected));
    }

    fn session(&self) -> i64 {
        self.status.snapshot().session
    }

    /// Sends requests in one batch and returns a channel with their answers in order.
    fn send(&self, requests: Vec<Request>) -> Receiver<Outcome> {
        let (to, answers) = unbounded();
        let call = |request| call(request, None, &to);
        self.transport
            .send(requests.into_iter().map(call).collect());
        answers
    }

    /// Sends a request and waits for its answer.
    fn ask(&self, request: Request) -> Outcome {
        one(&self.send(vec![request]))
    }

    /// Like `ask`, with a watch.
    fn watch(&self, request: Request, id: u64) -> (Outcome, Receiver<Fired>) {
        let (to, fired) = bounded(1);
        let watch = Watch::new(WatchId(id), to);
        let (to, answers) = unbounded();
        self.transport.send(vec![call(request, Some(watch), &to)]);
        (one(&answers), fired)
    }
}

fn node() -> String {
    format!("/{:016x}", fastrand::u64(..))
}

fn server() -> &'static ZooKeeper {
    ZooKeeper::shared()
}

fn call(request: Request, watch: Option<Watch>, to: &Sender<Outcome>) -> Call {
    let to = to.clone();
    let answer: Answer = Box::new(move |outcome| {
        let _ = to.send(outcome);
    });
    Call {
        request,
        watch,
        answer,
    }
}

#[track_caller]
fn one(answers: &Receiver<Outcome>) -> Outcome {
    answers.recv_timeout(PATIENCE).expect("there was no answer")
}

#[track_caller]
fn fires(fired: &Receiver<Fired>) -> (u64, EventKind) {
    let fired = fired.recv_timeout(PATIENCE).expect("the watch is silent");
    (fired.id.0, fired.kind)
}

fn open_acl() -> Vec<Access> {
    vec![Access {
        permissions: Permissions::ALL,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    }]
}

fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create {
        path: path.to_owned(),
        data: b"data".to_vec().into(),
        acl: open_acl(),
        mode,
        stat: true,
    }
}

fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.to_owned(),
        version: -1,
    }
}

fn data(path: &str, watch: bool) -> Request {
    Request::GetData {
        path: path.to_owned(),
        watch,
    }
}

fn exists(path: &str, watch: bool) -> Request {
    Request::Exists {
        path: path.to_owned(),
        watch,
    }
}

fn children(path: &str, watch: bool) -> Request {
    Request::GetChildren {
        path: path.to_owned(),
        watch,
        stat: true,
    }
}

const NO_NODE: Outcome = Err(Failure::Refused(ErrorCode::NO_NODE));
