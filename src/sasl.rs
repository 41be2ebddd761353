//! The user's settings of a SASL login.
//!
//! `transport/native/sasl` uses them.

use crate::error::{Error, Result};
use crate::transport::native::{Digest, Login};
#[cfg(feature = "sasl-gssapi")]
use crate::transport::native::{Kerberos, Waiters};

/// A SASL login, for [`ClientBuilder::sasl`](crate::ClientBuilder::sasl).
///
/// A client logs in on every connection, also when it reconnects to another server with the same
/// session. Until the server has accepted the client and proven its own identity, the client sends
/// no request, no other credentials and no watch.
///
/// A login that is refused ends the client with [`Error::SaslRefused`](crate::Error::SaslRefused).
/// A server without SASL, or with another mechanism, is not used, and the client tries another one:
/// [`Error::ConnectTimeout`](crate::Error::ConnectTimeout) reports what each said.
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
    /// Logs in with DIGEST-MD5: with a user and a password from the servers' JAAS file.
    ///
    /// The password is not sent, but anyone who can read the connection can try passwords against
    /// what is sent, and could change what follows the login. Over a shared network, use
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

    /// Logs in with Kerberos, through the GSSAPI library of the system.
    ///
    /// The tickets are those of the system, as `kinit` and `k5start` get them: from the cache that
    /// `KRB5CCNAME` names, or with the keytab that `KRB5_CLIENT_KTNAME` names, from which MIT's
    /// library renews them by itself. Each login uses the tickets that exist at that time. If there
    /// are none, or the key distribution centre does not answer, the client tries again as if the
    /// server had not answered.
    ///
    /// The server is `zookeeper/HOST`, where HOST is its name in the list of servers.
    #[cfg(feature = "sasl-gssapi")]
    #[doc(alias = "GSSAPI")]
    #[doc(alias = "Krb5LoginModule")]
    pub fn kerberos() -> Self {
        Self(Login::Kerberos(Kerberos {
            service: "zookeeper".to_owned(),
            host: None,
            principal: None,
            waiters: Waiters::default(),
        }))
    }

    /// Names the service of the servers, for [`kerberos`](Self::kerberos). Defaults to `zookeeper`.
    #[cfg(feature = "sasl-gssapi")]
    #[doc(alias = "zookeeper.sasl.client.username")]
    pub fn service(self, name: impl Into<String>) -> Self {
        self.with(|kerberos| kerberos.service = name.into())
    }

    /// Names the host of the servers' principal, for [`kerberos`](Self::kerberos), where all
    /// servers share one. Defaults to each server's own.
    #[cfg(feature = "sasl-gssapi")]
    #[doc(alias = "zookeeper.server.principal")]
    pub fn host(self, name: impl Into<String>) -> Self {
        self.with(|kerberos| kerberos.host = Some(name.into()))
    }

    /// Names the client's own principal, for [`kerberos`](Self::kerberos). Defaults to the one that
    /// the system has tickets for.
    #[cfg(feature = "sasl-gssapi")]
    pub fn principal(self, name: impl Into<String>) -> Self {
        self.with(|kerberos| kerberos.principal = Some(name.into()))
    }

    #[cfg(feature = "sasl-gssapi")]
    fn with(mut self, set: impl FnOnce(&mut Kerberos)) -> Self {
        if let Login::Kerberos(kerberos) = &mut self.0 {
            set(kerberos);
        }
        self
    }

    /// Checks what can be checked without a server.
    pub(crate) fn configure(self) -> Result<Login> {
        // Builders may be cloned.
        #[cfg(feature = "sasl-gssapi")]
        let own = self.with(|kerberos| kerberos.waiters = Waiters::default());
        #[cfg(not(feature = "sasl-gssapi"))]
        let own = self;
        let rule = match &own.0 {
            Login::Digest(digest) if digest.user.is_empty() || digest.password.is_empty() => {
                "a user and a password are needed"
            }
            _ => return Ok(own.0),
        };
        Err(Error::BadArgument {
            name: "sasl",
            rule: rule.into(),
        })
    }
}
