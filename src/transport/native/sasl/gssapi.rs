//! GSSAPI with Kerberos (RFC 4752), by the system's library, without a security layer.
//!
//! ```text
//!  Start ──► Context ──► Layer ──► Sent
//!  a ticket, from the    what protects what follows: nothing
//!  key distribution centre
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::mechanism::{LoginFailure, Mechanism, NOT_CONFIGURED, Step};
use crate::error::{NO_TICKET, NOT_GSSAPI};
use crate::system::channel::bounded;
use crate::system::clock::since_boot;
use crate::system::thread;
use zklock_gssapi::{Context, Error};

/// The bit for "no security layer" among the layers that a server offers.
const NO_LAYER: u8 = 1;

/// How many threads of one client may wait for the library, which may never answer.
///
/// MIT's library gives up after about 25 s, so one of the threads ends every second or two.
const MOST_WAITERS: usize = 16;

/// Whose tickets to use, and what the servers are called.
#[derive(Clone, Debug)]
pub(crate) struct Kerberos {
    pub(crate) service: String,
    /// The servers' host name; absent if each server has the name that the connect string has for it.
    pub(crate) host: Option<String>,
    /// The client's principal; absent for the one that the system has tickets for.
    pub(crate) principal: Option<String>,
    /// The threads of this client that wait for the library.
    pub(crate) waiters: Waiters,
}

/// One login.
pub(super) struct KerberosLogin {
    service: String,
    principal: Option<String>,
    waiters: Waiters,
    deadline: Duration,
    stage: Stage,
}

enum Stage {
    Start,
    Context(Context),
    Layer(Context),
    Sent,
}

impl Kerberos {
    /// Begins a login at the server that the user calls `host`.
    pub(super) fn begin(&self, host: &str, deadline: Duration) -> KerberosLogin {
        let host = self.host.as_deref().unwrap_or(host);
        KerberosLogin {
            service: format!("{}@{host}", self.service),
            principal: self.principal.clone(),
            waiters: self.waiters.clone(),
            deadline,
            stage: Stage::Start,
        }
    }
}

impl Mechanism for KerberosLogin {
    fn name(&self) -> &'static str {
        "GSSAPI"
    }

    fn principal(&self) -> String {
        let known = self.principal.clone();
        known.unwrap_or_else(|| "the default principal".to_owned())
    }

    fn step(&mut self, token: &[u8]) -> Result<Step, LoginFailure> {
        let stage = std::mem::replace(&mut self.stage, Stage::Sent);
        let (step, stage) = match stage {
            Stage::Start => {
                let (ctx, token, principal) = self.ticket()?;
                self.principal = Some(principal);
                // This token proves nothing yet: a server with a wrong key of its own refuses it too.
                (Step::Ask(token), Stage::Context(ctx))
            }
            Stage::Context(_) | Stage::Layer(_) if token.is_empty() => {
                return Err(LoginFailure::Server(NOT_CONFIGURED.to_owned()));
            }
            Stage::Context(mut ctx) => {
                let answer = ctx.step(token).map_err(untrusted)?;
                let stage = match ctx.is_complete() {
                    true => Stage::Layer(ctx),
                    false => Stage::Context(ctx),
                };
                (Step::Ask(answer), stage)
            }
            Stage::Layer(mut ctx) => {
                let offered = ctx.unwrap(token).map_err(untrusted)?;
                if offered.len() != 4 || offered.first().is_none_or(|all| all & NO_LAYER == 0) {
                    let reason = "it demands a security layer".to_owned();
                    return Err(LoginFailure::Server(reason));
                }
                let choice = ctx.wrap(&[NO_LAYER, 0, 0, 0]).map_err(untrusted)?;
                (Step::Prove(choice), Stage::Sent)
            }
            Stage::Sent => (Step::Done, Stage::Sent),
        };
        self.stage = stage;
        Ok(step)
    }
}

impl KerberosLogin {
    /// Returns a context, its first token, and the name of the client.
    fn ticket(&self) -> Result<(Context, Vec<u8>, String), LoginFailure> {
        let (service, principal) = (self.service.clone(), self.principal.clone());
        let limit = self.deadline.saturating_sub(since_boot());
        let ask = move || Context::begin(&service, principal.as_deref());
        let token = self.waiters.wait(limit, ask);
        let token = token.and_then(|token| token.map_err(|error| error.to_string()));
        token.map_err(|why| {
            let service = &self.service;
            LoginFailure::Server(format!("{NO_TICKET} for {service}: {why}"))
        })
    }
}

/// Counts the threads that wait for the library.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<AtomicUsize>);

/// A thread that is counted among the waiters.
struct Waiter(Arc<AtomicUsize>);

impl Waiters {
    /// Calls the library in a thread of its own, because the library waits for the key distribution
    /// centre without a limit. A thread that takes too long is abandoned.
    fn wait<T: Send + 'static>(
        &self,
        limit: Duration,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        if MOST_WAITERS <= self.0.load(Ordering::Relaxed) {
            return Err(format!(
                "{MOST_WAITERS} earlier requests for one have not come back"
            ));
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter(Arc::clone(&self.0));
        let (to, come) = bounded(1);
        let asking = thread::spawn("zklock-ticket", move || {
            let _waiter = waiter;
            // This fails if the answer comes too late.
            drop(to.send(ask()));
        });
        asking.map_err(|error| error.to_string())?;
        let come = come.recv_timeout(limit);
        come.map_err(|_| format!("none came within {limit:.1?}"))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn untrusted(error: Error) -> LoginFailure {
    LoginFailure::Server(format!(
        "{NOT_GSSAPI}, or does not prove who it is: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_wait_for_a_library_that_does_not_answer() {
        let waiters = Waiters::default();
        let (release, held) = bounded::<()>(0);
        let ask = || {
            let held = held.clone();
            waiters.wait(Duration::from_millis(1), move || held.recv().is_ok())
        };
        for _ in 0..MOST_WAITERS {
            let late = ask().unwrap_err();
            assert!(late.contains("none came within"), "{late}");
        }
        for _ in 0..9 {
            let refused = ask().unwrap_err();
            assert!(refused.contains("have not come back"), "{refused}");
        }
        assert_eq!(waiters.0.load(Ordering::Relaxed), MOST_WAITERS);
        drop(release);
        crate::support::eventually("they come back", || {
            waiters.wait(Duration::from_secs(9), || 7) == Ok(7)
        });
    }
}
