//! What every SASL mechanism does.

/// One login over one connection.
pub(super) trait Mechanism {
    /// Returns the mechanism's name in SASL.
    fn name(&self) -> &'static str;

    /// Returns who the client claims to be.
    fn principal(&self) -> String;

    /// Takes the server's token, which is empty at the beginning or if the server sent none, and
    /// returns what comes next.
    fn step(&mut self, token: &[u8]) -> Result<Step, LoginFailure>;
}

/// What comes next in a login.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Send this token; a refusal of it says nothing about the credentials.
    Ask(Vec<u8>),
    /// Send this token, by which the server judges the credentials.
    Prove(Vec<u8>),
    /// The client is logged in.
    Done,
}

/// The complaint about a server that answers the first token with nothing.
pub(super) const NOT_CONFIGURED: &str = "it has no SASL login: it is not configured for one";

/// Why a login failed.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum LoginFailure {
    /// This server cannot log clients in, or cannot be trusted; another server may do.
    Server(String),
    /// The server refused the credentials.
    Credentials(String),
}
