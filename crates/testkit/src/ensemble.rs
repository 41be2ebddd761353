//! Three real ZooKeeper servers that replicate each other.

use std::fs;
use std::net::Ipv4Addr;

use super::netns::Network;
use super::valve::Valve;
use super::zookeeper::{Builder, Folder, ZooKeeper};
use super::{eventually, free_port};

const LOCALHOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

const OBSERVES: &str = "peerType=observer";

/// Servers in processes of their own, which end when this is dropped.
#[derive(Debug)]
pub struct Ensemble(Vec<ZooKeeper>);

impl Ensemble {
    /// Starts three servers with ticks of 500 ms.
    pub fn start() -> Self {
        Self::start_with(&ZooKeeper::builder().fsync(false))
    }

    /// Starts three servers and waits until they have a leader.
    pub fn start_with(builder: &Builder) -> Self {
        Self::start_all([0; 3].map(|_| builder.clone()), [LOCALHOST; 3])
    }

    /// Starts three servers, and the valves between each server (the first index) and each server
    /// that may be its leader.
    pub fn start_with_valves(builder: &Builder) -> (Self, [[Valve; 3]; 3]) {
        let builders = [0; 3].map(|_| builder.clone());
        let mut valves = None;
        let ensemble = Self::start_from(|| {
            let ports = [0; 3].map(|_| [free_port(), free_port()]);
            let between = [0; 3].map(|_| ports.map(|[quorum, _]| Valve::start(quorum)));
            let peers = [0, 1, 2].map(|me| {
                let lines = (0..3).map(|other| {
                    let [quorum, election] = ports[other];
                    let quorum = match me == other {
                        true => quorum,
                        false => between[me][other].port(),
                    };
                    format!("server.{}={LOCALHOST}:{quorum}:{election}", other + 1)
                });
                lines.collect::<Vec<_>>()
            });
            valves = Some(between);
            Self::launch_with(&builders, &peers)
        });
        (ensemble, valves.expect("the servers have started"))
    }

    /// Starts two servers that vote and, as the last one, an observer.
    pub fn start_with_observer() -> Self {
        let voter = ZooKeeper::builder().fsync(false);
        let observer = voter.clone().line(OBSERVES);
        Self::start_all([voter.clone(), voter, observer], [LOCALHOST; 3])
    }

    /// Starts three servers as the first three members of a network.
    pub fn start_inside(network: &Network, builder: &Builder) -> Self {
        let member = |i| {
            let namespace = network.namespace(i).to_owned();
            builder.clone().inside(namespace, network.address(i))
        };
        Self::start_all([0, 1, 2].map(member), [0, 1, 2].map(|i| network.address(i)))
    }

    fn start_all(builders: [Builder; 3], addresses: [Ipv4Addr; 3]) -> Self {
        Self::start_from(|| Self::launch(&builders, addresses))
    }

    fn start_from(mut launch: impl FnMut() -> Self) -> Self {
        let mut log = String::new();
        // Between the choice of a port and its use, another process may take it.
        for _ in 0..5 {
            let ensemble = launch();
            let ready = ensemble.0.iter().try_for_each(ZooKeeper::wait_until_ready);
            match ready {
                Ok(()) => return ensemble,
                Err(said) => log = said,
            }
        }
        panic!("the ensemble does not start:\n{log}");
    }

    /// Returns the addresses that clients connect to: all three.
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(ZooKeeper::hosts).collect();
        hosts.join(",")
    }

    pub fn server(&self, i: usize) -> &ZooKeeper {
        &self.0[i]
    }

    pub fn kill(&self, i: usize) {
        self.0[i].kill();
    }

    pub fn pause(&self, i: usize) {
        self.0[i].pause();
    }

    pub fn resume(&self, i: usize) {
        self.0[i].resume();
    }

    pub fn is_running(&self, i: usize) -> bool {
        self.0[i].is_running()
    }

    /// Starts a server again and waits until it serves, for which it needs a majority.
    pub fn restart(&self, i: usize) {
        self.0[i].restart();
    }

    /// As [`ZooKeeper::restart_with`], without waiting for the server.
    pub fn restart_with_without_waiting(&self, i: usize, line: &str) {
        self.0[i].configure(line);
        self.restart_without_waiting(i);
    }

    /// Starts a server again without waiting, as after all of them were killed.
    pub fn restart_without_waiting(&self, i: usize) {
        self.0[i].kill();
        self.0[i].spawn();
    }

    /// Restarts all servers, one after the other, the leader last.
    pub fn roll(&self, mut told: impl FnMut(usize)) {
        let leader = self.wait_for_leader();
        for i in (0..3).filter(|i| *i != leader).chain([leader]) {
            told(i);
            self.restart(i);
            self.wait_for_leader();
        }
    }

    /// Returns which server leads, if one does. Does not wait long for a paused server.
    pub fn leader(&self) -> Option<usize> {
        self.0.iter().position(|server| {
            server
                .four_letter("srvr")
                .is_ok_and(|said| said.contains("Mode: leader"))
        })
    }

    /// Returns a server that follows.
    pub fn follower(&self) -> Option<usize> {
        self.0.iter().position(|server| {
            server
                .four_letter("srvr")
                .is_ok_and(|said| said.contains("Mode: follower"))
        })
    }

    /// Waits until there is a leader and returns it.
    pub fn wait_for_leader(&self) -> usize {
        let mut leader = None;
        eventually("the ensemble elects a leader", || {
            leader = self.leader();
            leader.is_some()
        });
        leader.expect("a leader was just seen")
    }

    fn launch(builders: &[Builder; 3], addresses: [Ipv4Addr; 3]) -> Self {
        let peers = [1, 2, 3].map(|id| {
            let (quorum, election) = (free_port(), free_port());
            let role = match builders[id - 1].has_line(OBSERVES) {
                true => ":observer",
                false => "",
            };
            format!(
                "server.{id}={}:{quorum}:{election}{role}",
                addresses[id - 1]
            )
        });
        Self::launch_with(builders, &[0; 3].map(|_| peers.to_vec()))
    }

    /// Starts the servers. Each has its own lines about all three.
    fn launch_with(builders: &[Builder; 3], peers: &[Vec<String>; 3]) -> Self {
        let servers = builders
            .iter()
            .zip(peers)
            .zip(1..)
            .map(|((builder, peers), id)| {
                let lines = peers.iter();
                let builder = lines.fold(builder.clone(), |builder, peer| builder.line(peer));
                let folder = Folder::new();
                fs::create_dir_all(folder.path("data")).expect("making the server's data folder");
                fs::write(folder.path("data/myid"), format!("{id}\n")).expect("writing myid");
                ZooKeeper::launch(builder, free_port(), folder)
            });
        Self(servers.collect())
    }
}
