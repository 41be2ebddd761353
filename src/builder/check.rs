//! Refuses settings that cannot work.

use super::ClientBuilder;
use crate::error::{Error, Result};
use crate::transport::native::{self, Credentials};

impl ClientBuilder {
    /// Returns whether the client gives the servers no identity. A certificate may carry one.
    fn is_anonymous(&self) -> bool {
        #[cfg(feature = "sasl")]
        if self.sasl.is_some() {
            return false;
        }
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return false;
        }
        self.config.auth.is_empty()
    }

    pub(super) fn check(&self) -> Result<()> {
        if !native::FRAME_LIMITS.contains(&self.config.frame_limit) {
            return Err(Error::BadArgument {
                name: "max_buffer",
                rule: "it must be from 256 KiB to 512 MiB".into(),
            });
        }
        if !(3..=native::PINGS).contains(&self.config.idle_pings) {
            return Err(Error::BadArgument {
                name: "idle_pings",
                rule: "it must be from 3 to 6".into(),
            });
        }
        if self.config.auth.iter().any(Credentials::are_of_a_login) {
            return Err(Error::BadArgument {
                name: "auth",
                rule: "a password for SASL is not to be sent: use the login, which is called sasl in small letters"
                    .into(),
            });
        }
        if self.settings.acl.needs_credentials() && self.is_anonymous() {
            return Err(Error::BadArgument {
                name: "acl",
                rule: "it is for the creator's credentials, and there are none: add them with auth or sasl"
                    .into(),
            });
        }
        Ok(())
    }
}
