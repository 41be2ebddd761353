//! The program `zklock`, used as a user would use it.

mod commands;
mod doctor;
mod elections;
#[cfg(feature = "tls")]
mod encrypted;
mod first_mistakes;
mod holds;
mod hooks;
mod job_state;
mod jobs;
#[cfg(feature = "sasl-gssapi")]
mod kerberos;
#[cfg(feature = "sasl")]
mod logged_in;
mod lost;
mod metrics;
mod processes;
mod program;
mod readiness;
mod recipes;
mod rights;
mod several;
mod signals;
mod standby;
mod succession;
mod terminal;
mod time_limits;
mod unanswered;
mod usage;
mod vfork;
mod waits;

use zklock_testkit as support;
