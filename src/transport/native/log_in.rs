//! The SASL login on a connection.

use std::sync::Arc;
use std::time::Duration;

use super::channel::{Channel, NOT_GREETED};
use super::frame_reader::{Complaint, Inbox, next_frame};
use super::hosts::Target;
use super::sasl::{Begun, LoginFailure};
use super::shared::{Shared, WRITE_AGAIN};
use crate::error::PREPARES_LOGIN;
use crate::system::clock::since_boot;
use zklock_core::connection::End;
use zklock_jute::{SaslReply, encode_sasl};

/// The longest answer to a token. Kerberos tickets may take most of it.
const REPLY_LIMIT: usize = 128 * 1024;

/// Creates the first token of the login, if the user wants one.
///
/// This precedes the connect request, which extends the session: a client that gets no ticket would
/// otherwise keep its session alive, and with it the nodes of locks that it has lost.
pub(super) fn prepare(
    shared: &Shared,
    target: &Target,
    limit: Duration,
) -> Result<Option<Begun>, String> {
    let Some(login) = &shared.config.sasl else {
        return Ok(None);
    };
    let asks = |so_far| shared.status.asks(target, so_far);
    asks(PREPARES_LOGIN);
    let begun = login.begin(&target.server.host, since_boot().saturating_add(limit));
    asks(NOT_GREETED);
    begun.map(Some).map_err(|failure| match failure {
        LoginFailure::Server(reason) | LoginFailure::Credentials(reason) => reason,
    })
}

/// Logs in with the prepared token; no other thread uses the connection before that.
///
/// Each answer may take as long as the greeting: there are up to three, and a far server needs a round trip for each.
pub(super) fn log_in(
    shared: &Shared,
    channel: &Arc<Channel>,
    inbox: &mut Inbox,
    target: &Target,
    limit: Duration,
    begun: Option<Begun>,
) -> Result<(), End> {
    let Some(begun) = begun else {
        return Ok(());
    };
    shared.status.asks(
        target,
        "it has granted a session, and the SASL login goes on",
    );
    let ask = |token: &[u8]| {
        let mut state = shared.state.lock();
        state.link.queue.push_aside(|out| encode_sasl(token, out));
        shared.flush(state);
        let deadline = since_boot().saturating_add(limit);
        let reply = next_reply(shared, channel, inbox, deadline);
        reply.map_err(|complaint| in_words(complaint, limit))
    };
    begun.run(ask)
}

/// Waits for the answer, and meanwhile writes what a full socket has not taken.
fn next_reply(
    shared: &Shared,
    channel: &Channel,
    inbox: &mut Inbox,
    deadline: Duration,
) -> Result<SaslReply, Complaint> {
    loop {
        let until = match shared.is_behind() {
            true => deadline.min(since_boot() + WRITE_AGAIN),
            false => deadline,
        };
        match next_frame(channel, inbox, until, REPLY_LIMIT, SaslReply::decode) {
            Err(Complaint::Late) if since_boot() < deadline => shared.flush(shared.state.lock()),
            reply => return reply,
        }
    }
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
