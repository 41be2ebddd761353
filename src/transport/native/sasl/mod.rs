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
#[cfg(feature = "sasl-gssapi")]
mod gssapi;
mod mechanism;
#[cfg(test)]
mod tests;

pub(crate) use self::digest_md5::Digest;
#[cfg(feature = "sasl-gssapi")]
pub(crate) use self::gssapi::{Kerberos, Waiters};
pub(super) use self::mechanism::LoginFailure;
use self::mechanism::{Mechanism, Step};
use crate::jute::{ErrorCode, SaslReply};
use crate::system::random;
use crate::time::clock::Moment;

/// No mechanism takes as many steps.
const STEPS: usize = 16;

/// A mechanism, and the client's credentials; see [`Sasl`](crate::Sasl).
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Digest(Digest),
    #[cfg(feature = "sasl-gssapi")]
    Kerberos(Kerberos),
}

/// A login that failed.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Who the client said to be.
    pub(super) principal: String,
    pub(super) failure: LoginFailure,
}

impl Login {
    /// Logs in to the server at `host`: `ask` sends a token and waits for the answer.
    pub(super) fn run(
        &self,
        host: &str,
        deadline: Moment,
        ask: impl FnMut(&[u8]) -> Result<SaslReply, String>,
    ) -> Result<(), Refusal> {
        let mut mechanism = self.begin(host, deadline);
        run(&mut *mechanism, ask).map_err(|failure| Refusal {
            principal: mechanism.principal(),
            failure,
        })
    }

    #[cfg_attr(
        not(feature = "sasl-gssapi"),
        expect(
            unused_variables,
            reason = "DIGEST-MD5 knows its peer, and waits for nobody else"
        )
    )]
    fn begin(&self, host: &str, deadline: Moment) -> Box<dyn Mechanism> {
        match self {
            Self::Digest(digest) => Box::new(digest.begin(&random::unique_bytes())),
            #[cfg(feature = "sasl-gssapi")]
            Self::Kerberos(kerberos) => Box::new(kerberos.begin(host, deadline)),
        }
    }
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
