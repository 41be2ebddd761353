//! The program `zklock`, used as a user would use it.

mod commands;
mod doctor;
#[cfg(feature = "tls")]
mod encrypted;
mod first_mistakes;
mod jobs;
#[cfg(feature = "sasl-gssapi")]
mod kerberos;
#[cfg(feature = "sasl")]
mod logged_in;
mod lost;
mod program;
mod signals;
mod standby;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod usage;
