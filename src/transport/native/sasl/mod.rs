//! The SASL login, on a connection whose session is granted and before any request.
//!
//! ```text
//!  client                                        server
//!    │   a first token, empty for DIGEST-MD5       │
//!    │ ──────────────────────────────────────────► │
//!    │ ◄────────────────────────────────────────── │ a challenge
//!    │   the proof of the client                   │
//!    │ ──────────────────────────────────────────► │ refused: a code, and the end
//!    │ ◄────────────────────────────────────────── │ the proof of the server
//! ```
//!
//! ZooKeeper names no mechanism: the server has one, and takes a token of another for a
//! login that fails.

mod digest_md5;
mod directives;
mod mechanism;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::digest_md5::Digest;
use self::mechanism::{LoginFailure, Mechanism, Step};
use super::channel::Channel;
use super::end::End;
use super::greeting::{Complaint, next_frame};
use super::hosts::Target;
use super::inbox::Inbox;
use super::shared::Shared;
use crate::error::Error;
use crate::jute::{ErrorCode, SaslReply, encode_sasl};
use crate::system::random;
use crate::time::clock::Moment;

/// The longest answer to a token. Tickets of Kerberos may take most of it.
const REPLY_LIMIT: usize = 128 * 1024;
/// No mechanism takes as many steps.
const STEPS: usize = 16;

/// A mechanism, and the client's credentials; see [`Sasl`](crate::Sasl).
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Digest(Digest),
}

impl Login {
    /// What the servers are told who the client is.
    fn principal(&self) -> &str {
        match self {
            Self::Digest(digest) => &digest.user,
        }
    }

    /// Begins a login.
    fn begin(&self) -> Box<dyn Mechanism> {
        match self {
            Self::Digest(digest) => Box::new(digest.begin(&random::unique_bytes())),
        }
    }
}

/// Logs in; no other thread uses the connection before.
pub(super) fn log_in(
    login: &Login,
    shared: &Shared,
    channel: &Arc<Channel>,
    inbox: &mut Inbox,
    target: &Target,
    deadline: Moment,
) -> Result<(), End> {
    shared.status.asks(
        target,
        "it has granted a session, and has not answered the SASL login",
    );
    let limit = deadline.saturating_since(Moment::now());
    let ask = |token: &[u8]| {
        let mut state = shared.state.lock();
        state.queue.push_aside(|out| encode_sasl(token, out));
        shared.flush(state);
        let reply = next_frame(channel, inbox, deadline, REPLY_LIMIT, SaslReply::decode);
        reply.map_err(|complaint| in_words(complaint, limit))
    };
    run(&mut *login.begin(), ask).map_err(|failure| match failure {
        LoginFailure::Server(reason) => End::Broken(reason),
        LoginFailure::Credentials(reason) => End::Refused(Error::SaslRefused {
            principal: login.principal().to_owned(),
            server: target.to_string(),
            reason,
        }),
    })
}

/// Passes tokens between the mechanism and the server, until one of them has enough.
fn run(
    mechanism: &mut dyn Mechanism,
    mut ask: impl FnMut(&[u8]) -> Result<SaslReply, String>,
) -> Result<(), LoginFailure> {
    let mut token = Vec::new();
    for _ in 0..STEPS {
        let (sent, proves) = match mechanism.step(&token)? {
            Step::Ask(sent) => (sent, false),
            Step::Prove(sent) => (sent, true),
            Step::Done => return Ok(()),
        };
        let reply = ask(&sent).map_err(LoginFailure::Server)?;
        token = match reply.code {
            ErrorCode::OK => reply.token,
            code @ (ErrorCode::AUTH_FAILED | ErrorCode::SASL_REQUIRED) if proves => {
                return Err(LoginFailure::Credentials(code.to_string()));
            }
            code => {
                let name = mechanism.name();
                return Err(LoginFailure::Server(format!(
                    "it does not take a SASL login by {name}: {code}"
                )));
            }
        };
    }
    let reason = "its SASL login does not come to an end".to_owned();
    Err(LoginFailure::Server(reason))
}

fn in_words(complaint: Complaint, limit: Duration) -> String {
    match complaint {
        Complaint::HungUp => {
            "it closed the connection at the SASL login, as a server without SASL may do".to_owned()
        }
        Complaint::Late => format!("it did not answer the SASL login within {limit:.1?}"),
        Complaint::TooLong(length) => format!("it answered the SASL login with {length} bytes"),
        Complaint::Unreadable(reason) => {
            format!("its answer to the SASL login cannot be read: {reason}")
        }
        Complaint::Broken(reason) => reason,
    }
}
