//! The embedded server as its clients see it.
//!
//! `differential` is compiled with the library, whose codec it uses to talk to both servers.

mod abuse;
mod clients;
mod data;
mod faults;
mod kazoo;
mod kazoo_suite;
mod lag;
mod libraries;
mod mistakes;
mod order;
mod sessions;
mod wire;
mod words;

use zklock_testkit as support;
