//! The embedded server as its clients see it.

mod abuse;
mod clients;
mod faults;
mod kazoo;
mod kazoo_suite;
mod lag;
mod libraries;
mod mistakes;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod wire;
mod words;
