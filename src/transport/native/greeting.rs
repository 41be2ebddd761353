//! What happens before a server serves requests: the connect request, its answer, and the answers
//! that follow.

use std::time::Duration;

use super::channel::{Channel, Failed, HUNG_UP};
use super::frame_reader::{Frame, Inbox};
use super::hosts::Target;
use crate::error::{ANSWERS_IN_TLS, OTHER_SERVICE};
use crate::system::clock::since_boot;
use crate::system::{contained, is_timeout};
use crate::transport::handover::SessionKey;
use zklock_core::connection::rotation::Refusal;
use zklock_jute::{ConnectReply, ConnectRequest, Malformed};

/// The longest greeting.
const GREETING_LIMIT: usize = 4 * 1024;
/// The two bytes with which a server begins that refuses what is no TLS.
const TLS_ALERT: usize = 0x1503;
/// The length of every session's password.
const PASSWORD: usize = 16;
/// The least time that a read waits.
const LEAST_WAIT: Duration = Duration::from_millis(1);

/// The complaint about a server that ends sessions by a wall clock.
const WALL_CLOCK: &str = "it ends sessions by a clock that may be set, as ClickHouse Keeper and \
    RaftKeeper do: ClientBuilder::wall_clock_expiry (--wall-clock-expiry) accepts that";

/// The status of a server that has not greeted yet.
pub(super) const NOT_GREETED: &str = "it has accepted a connection, and has not greeted";

/// Why there is no frame.
pub(super) enum Complaint {
    HungUp,
    Late,
    /// The frame has this many bytes.
    TooLong(usize),
    /// The bytes are not a frame, or the frame is not the expected one.
    Unreadable(String),
    Broken(String),
}

/// Returns the request for this session, or for a new one if there is none.
pub(super) fn connect_request(
    session: &SessionKey,
    last_zxid: i64,
    timeout: Duration,
) -> ConnectRequest {
    let mut password = session.password.0.clone();
    if password.is_empty() {
        // Servers expect a password even without a session.
        password = vec![0; PASSWORD];
    }
    ConnectRequest {
        last_zxid,
        timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
        session: session.id,
        password,
        read_only: false,
    }
}

/// Waits for the server's greeting.
pub(super) fn greeting(
    channel: &Channel,
    inbox: &mut Inbox,
    limit: Duration,
    wall_clock_expiry: bool,
) -> Result<ConnectReply, Failed> {
    let deadline = since_boot().saturating_add(limit);
    let reply = next_frame(channel, inbox, deadline, GREETING_LIMIT, |frame| {
        ConnectReply::decode(frame)
    });
    let silent = |reason| Failed(Some(Refusal::Silent), reason);
    let reply = reply.map_err(|complaint| silent(match complaint {
        Complaint::HungUp => return Failed(Some(Refusal::HungUp), HUNG_UP.to_owned()),
        Complaint::Late => format!("it did not greet within {limit:.1?}"),
        Complaint::TooLong(length) if length >> 16 == TLS_ALERT => ANSWERS_IN_TLS.to_owned(),
        Complaint::TooLong(length) => {
            format!(
                "its answer is not ZooKeeper's, {OTHER_SERVICE}: a frame of {length} bytes was announced"
            )
        }
        Complaint::Unreadable(reason) => {
            format!("its answer is not ZooKeeper's, {OTHER_SERVICE}: {reason}")
        }
        Complaint::Broken(reason) => reason,
    }))?;
    if let Some(nonsense) = nonsense(&reply) {
        return Err(silent(nonsense));
    }
    match goes_by_a_wall_clock(&reply) && !wall_clock_expiry {
        true => Err(silent(WALL_CLOCK.to_owned())),
        false => Ok(reply),
    }
}

/// Returns whether a server ends sessions by a wall clock, which may be set.
///
/// ClickHouse Keeper and RaftKeeper do, and give every session a password of zeros. ZooKeeper's
/// passwords are random.
fn goes_by_a_wall_clock(reply: &ConnectReply) -> bool {
    0 < reply.timeout_ms && reply.password.iter().all(|byte| *byte == 0)
}

/// Returns what is wrong with a greeting that neither grants a session nor says that one has
/// expired.
///
/// A server may grant more time than the client asked for: `minSessionTimeout` may be longer.
fn nonsense(reply: &ConnectReply) -> Option<String> {
    let ConnectReply {
        timeout_ms,
        session,
        password,
        ..
    } = reply;
    let what = match (*timeout_ms, *session) {
        (0, 0) => return None,
        (timeout, _) if timeout <= 0 => format!("a timeout of {timeout} ms"),
        (_, session @ (0 | -1)) => format!("the session {session}, which is none"),
        _ if password.len() != PASSWORD => {
            format!("a password of {} bytes, not {PASSWORD}", password.len())
        }
        _ => return None,
    };
    Some(format!("it greeted with {what}, as no ZooKeeper does"))
}

/// Logs a warning if a server grants an unexpected timeout. A resumed session `had` a timeout before.
pub(super) fn tell_granted(
    target: &Target,
    granted: Duration,
    had: Option<Duration>,
    asked: Duration,
) {
    contained(|| match had {
        // If this answer had been lost, guards would have been trusted for too long.
        Some(had) if granted < had => log::warn!(
            "{target} grants the session {granted:?}, and it had {had:?}: give all servers the same \
             limits, or state ClientBuilder::granted_at_least (--granted-at-least)"
        ),
        None if granted != asked => {
            log::info!("{target} grants a session timeout of {granted:?}; {asked:?} was asked for");
        }
        _ => {}
    });
}

/// Waits for one frame, and decodes it.
pub(super) fn next_frame<T>(
    channel: &Channel,
    inbox: &mut Inbox,
    deadline: Duration,
    longest: usize,
    read: impl Fn(&[u8]) -> Result<T, Malformed>,
) -> Result<T, Complaint> {
    let broken = |error: std::io::Error| Complaint::Broken(error.to_string());
    loop {
        // The rest may never come.
        if let Some(length) = inbox.announced().filter(|length| longest < *length) {
            return Err(Complaint::TooLong(length));
        }
        match inbox.frame() {
            Ok(None) => {}
            Ok(Some(Frame::Whole(frame))) => {
                return read(frame).map_err(|error| Complaint::Unreadable(error.to_string()));
            }
            Ok(Some(Frame::TooLong { length, .. })) => return Err(Complaint::TooLong(length)),
            Err(error) => return Err(Complaint::Unreadable(error)),
        }
        let left = deadline.saturating_sub(since_boot());
        if left.is_zero() {
            return Err(Complaint::Late);
        }
        channel.set_patience(left.max(LEAST_WAIT)).map_err(broken)?;
        match inbox.fill(channel) {
            Ok(0) => return Err(Complaint::HungUp),
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(broken(error)),
        }
    }
}
