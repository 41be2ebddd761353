//! The embedded server as its clients see it.

mod abuse;
mod clients;
mod data;
mod differential;
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
