//! What the errors are called.

use super::Error;

impl Error {
    /// The name of the variant.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "Lost",
            Self::Suspect { .. } => "Suspect",
            Self::WouldDeadlock { .. } => "WouldDeadlock",
            Self::Deadlock { .. } => "Deadlock",
            Self::Evicted { .. } => "Evicted",
            Self::ForeignContender { .. } => "ForeignContender",
            Self::BadArgument { .. } => "BadArgument",
            Self::BadPath { .. } => "BadPath",
            Self::BadHosts { .. } => "BadHosts",
            Self::BadTls { .. } => "BadTls",
            Self::ConnectTimeout { .. } => "ConnectTimeout",
            Self::AuthFailed => "AuthFailed",
            Self::SaslRefused { .. } => "SaslRefused",
            Self::NoAuth { .. } => "NoAuth",
            Self::Closed => "Closed",
            Self::Unconfirmed { .. } => "Unconfirmed",
            Self::GaveUp { .. } => "GaveUp",
            Self::NoThread { .. } => "NoThread",
            Self::SessionExpired => "SessionExpired",
            Self::Refused { .. } => "Refused",
            Self::RequestTooLong { .. } => "RequestTooLong",
            Self::ReplyTooLong { .. } => "ReplyTooLong",
            Self::Exhausted { .. } => "Exhausted",
            Self::PermitsDisagree { .. } => "PermitsDisagree",
            Self::Database { .. } => "Database",
            Self::Stale { .. } => "Stale",
            Self::Fence { .. } => "Fence",
            Self::SlotForgotten { .. } => "SlotForgotten",
            Self::Unmarked { .. } => "Unmarked",
            Self::Unsupported { .. } => "Unsupported",
        }
    }
}
