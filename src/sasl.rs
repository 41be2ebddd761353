//! The user's settings of a SASL login.
//!
//! `transport/native/sasl` uses them.

use crate::error::{Error, Result};
use crate::transport::native::{Digest, Login};

/// A SASL login, for [`ClientBuilder::sasl`](crate::ClientBuilder::sasl).
///
/// A client logs in on every connection, also when it reconnects to another server with the same
/// session. No request, no other credentials and no watch is sent before the server has let the
/// client in and has proven that it knows the password too.
///
/// A login that is refused ends the client with
/// [`Error::SaslRefused`](crate::Error::SaslRefused). A server that has no SASL, or another
/// mechanism, is not used, and another one is tried:
/// [`Error::ConnectTimeout`](crate::Error::ConnectTimeout) tells what each said.
///
/// # Example
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// use zklock::{Acl, Client, Sasl};
///
/// let client = Client::builder("zk1:2181,zk2:2181")
///     .sasl(Sasl::digest("report", "the password"))
///     .acl(Acl::sasl("report"))
///     .connect()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Sasl(Login);

impl Sasl {
    /// Logs in by DIGEST-MD5: a user and a password that the servers' JAAS file names.
    ///
    /// The password is not sent. But whoever can read the connection can try passwords against what
    /// is sent, and could change what follows the login: over a network that others share, use
    /// `ClientBuilder::tls` too, or a password that cannot be guessed. The password appears in no
    /// log and no `Debug` output.
    #[doc(alias = "DIGEST-MD5")]
    #[doc(alias = "DigestLoginModule")]
    pub fn digest(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self(Login::Digest(Digest {
            user: user.into(),
            password: password.into(),
        }))
    }

    /// Checks what can be checked without a server.
    pub(crate) fn configure(self) -> Result<Login> {
        let Login::Digest(digest) = &self.0;
        if digest.user.is_empty() || digest.password.is_empty() {
            return Err(Error::BadArgument {
                name: "sasl",
                rule: "a user and a password are needed".into(),
            });
        }
        Ok(self.0)
    }
}
