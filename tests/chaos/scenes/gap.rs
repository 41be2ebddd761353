//! The fault of ZooKeeper by which replicas diverge (ZOOKEEPER-2846), and what avoids it.
//!
//! A leader is cut off while it proposes changes that nobody else receives, and comes back to get a
//! snapshot from the next leader: now its log has a gap. When it leads again, a follower that
//! missed the last change loses everything in the gap. A setting prevents that, by which a leader
//! sends no changes from its log; the servers of all runs have it.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::cluster::{Run, SERVERS, wait};
use crate::support::eventually;
use crate::support::netns::{self, Network};
use crate::support::raw::{PERSISTENT, Raw};

#[test]
#[ignore = "needs a real ZooKeeper: tests/chaos.sh"]
fn a_gap_in_a_leaders_log_stays_its_own() {
    netns::inside(|| {
        let network = Some(Network::new(SERVERS));
        let mut run = Run::start("gap in a leader's log", Duration::from_secs(4), network);
        let first = run.ensemble.wait_for_leader();
        create(&run, first, "/before");
        run.fault(&format!("leader {first} is cut off"));
        if let Some(network) = &run.network {
            network.isolate(first);
        }
        let proposed = propose(&run, first);
        let mut second = first;
        eventually("the others elect a leader", || {
            let leads = |i: &usize| *i != first && leads(&run, *i);
            second = (0..SERVERS).find(leads).unwrap_or(first);
            second != first
        });
        drop(proposed);
        create(&run, second, "/in-the-gap");
        run.make_whole();
        let late = SERVERS - first - second;
        run.fault(&format!(
            "server {late}, a follower, misses the last change"
        ));
        run.ensemble.kill(late);
        create(&run, second, "/after");
        run.fault(&format!(
            "leader {second} is killed, and {first} leads again"
        ));
        run.ensemble.kill(second);
        run.ensemble.restart_without_waiting(late);
        eventually("the first leads again", || leads(&run, first));
        run.make_whole();
        let mut raw = Raw::connect(&run.ensemble.server(late).hosts());
        for node in ["/before", "/in-the-gap", "/after"] {
            assert!(raw.stat(node).is_some(), "server {late} has lost {node}");
        }
        run.finish();
    });
}

fn create(run: &Run, server: usize, node: &str) {
    let mut raw = Raw::connect(&run.ensemble.server(server).hosts());
    raw.create(node, b"", PERSISTENT).expect("a node");
}

/// Requests a session, which an isolated leader proposes but cannot grant.
fn propose(run: &Run, server: usize) -> TcpStream {
    let hosts = run.ensemble.server(server).hosts();
    let mut socket = TcpStream::connect(hosts).expect("a connection");
    let mut request = [0; 49];
    // The length of the request, the timeout of 4000 ms, and the length of the password.
    request[3] = 45;
    request[18..20].copy_from_slice(&4000_u16.to_be_bytes());
    request[31] = 16;
    socket.write_all(&request).expect("a request");
    wait(200);
    socket
}

fn leads(run: &Run, server: usize) -> bool {
    let said = run.ensemble.server(server).four_letter("srvr");
    said.is_ok_and(|said| said.contains("Mode: leader"))
}
