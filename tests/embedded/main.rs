//! The embedded server as its clients see it.

mod abuse;
mod clients;
mod faults;
mod interop;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod wire;
