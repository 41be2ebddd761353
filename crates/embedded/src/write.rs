//! The requests that are transactions.

use super::config::ServerConfig;
use zklock_jute::{Access, CreateMode, ErrorCode, OpCode, Request};

/// A change that a client asks for.
#[derive(Clone, Debug)]
pub enum Write {
    One(Request),
    Multi(Vec<Request>),
    SetAcl {
        path: String,
        acl: Vec<Access>,
        version: i32,
    },
    /// A request that fails, and still takes a zxid.
    Refused(ErrorCode),
}

impl Write {
    /// Returns what the request writes, or the request if it writes nothing.
    pub fn of(mut request: Request, config: &ServerConfig) -> Result<Self, Box<Request>> {
        settle_modes(&mut request, config);
        Ok(match request {
            Request::Create { .. } | Request::Delete { .. } | Request::SetData { .. } => {
                Self::One(request)
            }
            Request::Multi(ops) if ops.iter().any(|op| is_unknown(op, config)) => {
                Self::Refused(ErrorCode::MARSHALLING_ERROR)
            }
            Request::Multi(ops) => Self::Multi(ops),
            Request::SetAcl { path, acl, version } => Self::SetAcl { path, acl, version },
            // A standalone ZooKeeper answers the same.
            Request::Unknown(OpCode::RECONFIG) => Self::Refused(ErrorCode::UNIMPLEMENTED),
            other => return Err(Box::new(other)),
        })
    }

    /// Returns a request that writes the same; its reply may differ.
    pub(super) fn into_request(self) -> Request {
        match self {
            Self::One(op) => Request::Multi(vec![op]),
            Self::Multi(ops) => Request::Multi(ops),
            Self::SetAcl { path, acl, version } => Request::SetAcl { path, acl, version },
            Self::Refused(_) => Request::Multi(Vec::new()),
        }
    }

    /// Undoes [`into_request`](Self::into_request).
    pub(super) fn from_request(request: Request) -> Option<Self> {
        match request {
            Request::Multi(ops) => Some(Self::Multi(ops)),
            Request::SetAcl { path, acl, version } => Some(Self::SetAcl { path, acl, version }),
            _ => None,
        }
    }

    /// Returns its operations on nodes.
    pub(super) fn ops(&self) -> &[Request] {
        match self {
            Self::One(op) => std::slice::from_ref(op),
            Self::Multi(ops) => ops,
            Self::SetAcl { .. } | Self::Refused(_) => &[],
        }
    }
}

/// Turns the modes of nodes into those of a server of this configuration.
fn settle_modes(request: &mut Request, config: &ServerConfig) {
    match request {
        Request::Create { mode, .. } => *mode = config.known(*mode),
        Request::Multi(ops) => ops.iter_mut().for_each(|op| settle_modes(op, config)),
        _ => {}
    }
}

/// Returns whether a server of this configuration cannot read the part of a multi.
fn is_unknown(op: &Request, config: &ServerConfig) -> bool {
    match op {
        Request::Create {
            mode: CreateMode::Container,
            ..
        } => config.without_containers,
        Request::Create { stat, .. } => *stat && config.without_create2,
        _ => false,
    }
}
