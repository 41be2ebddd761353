//! What a SASL mechanism does, whichever it is.

/// One login over one connection.
pub(super) trait Mechanism {
    /// The name that SASL has for it.
    fn name(&self) -> &'static str;

    /// Who the client says to be.
    fn principal(&self) -> String;

    /// Takes the server's token, empty at the beginning or if the server sent none, and says
    /// what comes next.
    fn step(&mut self, token: &[u8]) -> Result<Step, LoginFailure>;
}

/// What comes next in a login.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// This token is sent; it says nothing of the credentials.
    Ask(Vec<u8>),
    /// This token is sent, by which the server judges the credentials.
    Prove(Vec<u8>),
    /// The client is logged in.
    Done,
}

/// Why a server is not used that answers the first token with nothing.
pub(super) const NOT_CONFIGURED: &str = "it has no SASL login: it is not configured for one";

/// Why a login failed.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum LoginFailure {
    /// This server lets nobody in, or is not one to trust; another server may be.
    Server(String),
    /// The server refused the credentials.
    Credentials(String),
}
