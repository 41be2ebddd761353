//! A server's answer to a connect request.

use std::io::ErrorKind;
use std::time::Duration;

use super::channel::{Channel, is_timeout};
use super::inbox::{Frame, Inbox};
use crate::jute::ConnectReply;
use crate::time::clock::Moment;

/// The longest greeting.
const GREETING_LIMIT: usize = 4 * 1024;

/// The complaint about a server that gives neither a session nor a reason.
pub(super) const HUNG_UP: &str = "it closed the connection instead of greeting";

/// Waits for the answer.
pub(super) fn greeting(
    channel: &Channel,
    inbox: &mut Inbox,
    limit: Duration,
) -> Result<ConnectReply, String> {
    let deadline = Moment::now() + limit;
    loop {
        match inbox.fill(channel) {
            Ok(0) => return Err(HUNG_UP.to_owned()),
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return Err(HUNG_UP.to_owned());
            }
            Err(error) => return Err(error.to_string()),
        }
        match inbox.frame_within(GREETING_LIMIT) {
            Ok(None) => {}
            Ok(Some(Frame::Whole(frame))) => {
                return ConnectReply::decode(frame).map_err(|error| error.to_string());
            }
            Ok(Some(Frame::TooLong { length, .. })) => {
                return Err(format!("it greeted with {length} bytes"));
            }
            Err(error) => {
                return Err(format!(
                    "its answer is not ZooKeeper's, as of another service's port: {error}"
                ));
            }
        }
        if Moment::now() >= deadline {
            return Err(format!("it did not greet within {limit:?}"));
        }
    }
}
