//! Bugs of other libraries, each named as in its own tracker, that do not occur here.
//!
//! Bugs that another suite covers are named there. The embedded server can do all that is needed to
//! cause a bug: dead sessions whose nodes linger, replies that get lost, containers that vanish.

mod ghosts;
mod holders;
mod waiters;

use std::time::Duration;

use zklock::Client;
use zklock::embedded::Server;

use crate::support::eventually;

/// The path of the lock in most tests, in a directory that nobody else uses.
const PATH: &str = "/locks/report";

/// A time longer than any call takes unless it hangs, and shorter than a hang.
const SOON: Duration = Duration::from_secs(10);

fn client(server: &Server) -> Client {
    Client::connect(server.hosts()).unwrap()
}

/// Returns the nodes right below `dir`, as full paths.
fn nodes_in(server: &Server, dir: &str) -> Vec<String> {
    let mut nodes = server.nodes();
    nodes.retain(|node| node.rsplit_once('/').is_some_and(|(above, _)| above == dir));
    nodes
}

#[track_caller]
fn wait_for_nodes(server: &Server, dir: &str, count: usize) {
    eventually(&format!("{count} nodes under {dir}"), || {
        nodes_in(server, dir).len() == count
    });
}
