//! The SASL login, on a connection whose session is granted and before any request.
//!
//! The first token, which may need a ticket, is created before a session is asked for.
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
//! ZooKeeper's protocol names no mechanism: each server has one, and treats a token of another
//! mechanism as a failed login.

mod digest_md5;
mod directives;
#[cfg(feature = "sasl-gssapi")]
mod gssapi;
mod mechanism;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(crate) use self::digest_md5::Digest;
#[cfg(feature = "sasl-gssapi")]
pub(crate) use self::gssapi::{Kerberos, Waiters};
pub(super) use self::mechanism::LoginFailure;
use self::mechanism::{Mechanism, Step};
use crate::error::NO_SASL_LOGIN;
use crate::system::random;
use zklock_core::connection::End;
use zklock_jute::{ErrorCode, SaslReply};

/// The most steps of a login; no mechanism takes as many.
const STEPS: usize = 16;

/// A mechanism, and the client's credentials; see [`Sasl`](crate::Sasl).
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Digest(Digest),
    #[cfg(feature = "sasl-gssapi")]
    Kerberos(Kerberos),
}

/// A login whose first token is ready.
pub(super) struct Begun {
    mechanism: Box<dyn Mechanism>,
    first: Step,
}

impl Login {
    /// Creates the first token for the server at `host`, without contacting that server.
    pub(super) fn begin(&self, host: &str, deadline: Duration) -> Result<Begun, LoginFailure> {
        let mut mechanism = self.mechanism(host, deadline);
        let first = mechanism.step(&[])?;
        Ok(Begun { mechanism, first })
    }

    #[cfg_attr(
        not(feature = "sasl-gssapi"),
        expect(
            unused_variables,
            reason = "DIGEST-MD5 knows its peer, and waits for nobody else"
        )
    )]
    fn mechanism(&self, host: &str, deadline: Duration) -> Box<dyn Mechanism> {
        match self {
            Self::Digest(digest) => Box::new(digest.begin(&random::unique_bytes())),
            #[cfg(feature = "sasl-gssapi")]
            Self::Kerberos(kerberos) => Box::new(kerberos.begin(host, deadline)),
        }
    }
}

impl Begun {
    /// Logs in: `ask` sends a token and waits for the answer.
    pub(super) fn run(
        mut self,
        ask: impl FnMut(&[u8]) -> Result<SaslReply, String>,
    ) -> Result<(), End> {
        run(&mut *self.mechanism, self.first, ask).map_err(|failure| match failure {
            LoginFailure::Server(reason) => End::Broken(reason),
            LoginFailure::Credentials(reason) => {
                End::Refused(Some((self.mechanism.principal(), reason)))
            }
        })
    }
}

/// Passes tokens between the mechanism and the server until one of them ends the login.
fn run(
    mechanism: &mut dyn Mechanism,
    mut step: Step,
    mut ask: impl FnMut(&[u8]) -> Result<SaslReply, String>,
) -> Result<(), LoginFailure> {
    for _ in 0..STEPS {
        let (sent, proves) = match step {
            Step::Ask(sent) => (sent, false),
            Step::Prove(sent) => (sent, true),
            Step::Done => return Ok(()),
        };
        let reply = ask(&sent).map_err(LoginFailure::Server)?;
        let token = match reply.code {
            ErrorCode::OK => reply.token,
            code @ (ErrorCode::AUTH_FAILED | ErrorCode::SASL_REQUIRED) if proves => {
                return Err(LoginFailure::Credentials(code.to_string()));
            }
            code => {
                let name = mechanism.name();
                return Err(LoginFailure::Server(format!(
                    "{NO_SASL_LOGIN} {name}: {code}"
                )));
            }
        };
        step = mechanism.step(&token)?;
    }
    let reason = "its SASL login does not come to an end".to_owned();
    Err(LoginFailure::Server(reason))
}
