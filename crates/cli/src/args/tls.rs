//! The arguments of encrypted connections. They take the heading from whoever flattens them in.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct TlsArgs {
    /// Encrypts the connection.
    #[arg(long, global = true)]
    pub(crate) tls: bool,

    /// Trusts the authorities in this PEM file instead of the system's; implies --tls.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Shows the servers the certificate in this PEM file; implies --tls.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The key of that certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}
