//! The user's settings of encrypted connections.
//!
//! `transport/native/cipher.rs` uses them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Result};
use crate::system::contained;
use crate::transport::native::Security;

/// Encrypted connections to ZooKeeper's `secureClientPort`.
///
/// The server's certificate must be signed by a trusted authority, for the host name (or the
/// address) in the list of servers. This check cannot be disabled.
///
/// Files that are renewed while a client runs, such as certificates that live for a day, are read
/// again before its next connection. If they cannot be used then, the client uses what it read
/// before, and logs a warning.
///
/// # Example
///
/// ```no_run
/// # fn main() -> zklock::Result<()> {
/// use zklock::{Client, Tls};
///
/// let tls = Tls::new()
///     .ca_file("/etc/zookeeper/ca.pem")
///     .client_cert("/etc/zookeeper/me.pem", "/etc/zookeeper/me.key");
/// let client = Client::builder("zk1:2281,zk2:2281").tls(tls).connect()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Tls {
    authorities: Vec<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Returns settings that trust the system's authorities and have no client certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this PEM file instead of the system's.
    ///
    /// May be called several times. Defaults to the system's authorities.
    pub fn ca_file(mut self, pem: impl Into<PathBuf>) -> Self {
        self.authorities.push(pem.into());
        self
    }

    /// Shows the server this certificate: a PEM file with the chain, the client's own
    /// certificate first, and a PEM file with its private key. Defaults to none.
    pub fn client_cert(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client = Some((chain.into(), key.into()));
        self
    }

    /// Reads the files now, and again before each connection for which they have changed.
    pub(crate) fn configure(&self) -> Result<Security> {
        let (mut seen, mut config, files) = (self.stamps(), self.read()?, self.clone());
        Ok(Security::new(move || {
            let now = files.stamps();
            if seen != now {
                match files.read() {
                    Ok(renewed) => {
                        contained(|| {
                            log::info!(
                                "the files for TLS have changed: they are used from here on"
                            );
                        });
                        (seen, config) = (now, renewed);
                    }
                    Err(error) => {
                        contained(|| log::warn!("{error}; what was read before is used"));
                    }
                }
            }
            Arc::clone(&config)
        }))
    }

    /// Returns the time and length of each file, which show whether it has changed.
    fn stamps(&self) -> Vec<Option<(SystemTime, u64)>> {
        let pair = self.client.iter().flat_map(|(chain, key)| [chain, key]);
        let stamp = |file: &PathBuf| {
            let about = fs::metadata(file).ok()?;
            Some((about.modified().ok()?, about.len()))
        };
        self.authorities.iter().chain(pair).map(stamp).collect()
    }

    fn read(&self) -> Result<Arc<ClientConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(self.roots()?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| bad(format!("the authorities cannot be used: {error}")))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(error.to_string()))?
            .with_webpki_verifier(verifier);
        let config = match &self.client {
            None => config.with_no_client_auth(),
            Some((chain, key)) => config
                .with_client_auth_cert(certificates(chain)?, private_key(key)?)
                .map_err(|error| bad(format!("{}: {error}", chain.display())))?,
        };
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        for file in &self.authorities {
            for certificate in certificates(file)? {
                roots
                    .add(certificate)
                    .map_err(|error| bad(format!("{}: {error}", file.display())))?;
            }
        }
        if self.authorities.is_empty() {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                contained(|| log::warn!("an authority of the system cannot be read: {error}"));
            }
            roots.add_parsable_certificates(found.certs);
        }
        if roots.is_empty() {
            return Err(bad("the system has no authorities".to_owned()));
        }
        Ok(roots)
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let unreadable = |error| bad(format!("{}: {error}", file.display()));
    let found: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(unreadable)?;
    if found.is_empty() {
        return Err(bad(format!("{} holds no certificate", file.display())));
    }
    Ok(found)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>> {
    let found = PrivateKeyDer::from_pem_file(file);
    found.map_err(|error| {
        let file = file.display();
        bad(match error {
            pem::Error::NoItemsFound => {
                format!("{file} holds no private key, or one that takes a password")
            }
            error => format!("{file}: {error}"),
        })
    })
}

fn bad(reason: String) -> Error {
    Error::BadTls { reason }
}
