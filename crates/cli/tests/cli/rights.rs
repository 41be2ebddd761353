//! Commands under a lock whose access control list lacks a right.

use crate::program::{Log, Zklock, on_every_server};
use crate::support::fresh_path;
use crate::support::raw::Raw;

on_every_server! {
    a_permit_that_keeps_the_others_waiting_says_so_at_once
}

/// Once, the others waited silently, as if there were one permit.
fn a_permit_that_keeps_the_others_waiting_says_so_at_once(hosts: &str) {
    let (path, log) = (fresh_path("permits"), Log::new());
    let line = format!("{path}/locks");
    Raw::connect(hosts).create_all(&line);
    Raw::connect(hosts).forbid_deletes(&line).unwrap();
    let args = format!("run --permits 2 {path}");
    let mut first = Zklock::start(hosts, &args, &format!("{}; read line", log.write("begun")));
    log.await_word("begun");
    let other = Zklock::run(hosts, &format!("run -w 0.5 -E 9 --permits 2 {path}"), ":");
    assert_eq!(other.code, Some(9), "{other:?}");
    first.feed("\n");
    let ended = first.end();
    let told = format!(
        "zklock: what this client leaves in {line} stays until its session ends, and keeps the others waiting until then: the access control list of {line} does not give it the right DELETE\n"
    );
    assert_eq!((ended.code, ended.err), (Some(0), told));
    let next = Zklock::run(hosts, &format!("run -w 5 --permits 2 {path}"), ":");
    assert_eq!(next.code, Some(0), "{next:?}");
}
