//! Three real ZooKeeper servers that replicate each other.

use std::fs;

use super::zookeeper::{Builder, Folder, ZooKeeper};
use super::{eventually, free_port};

/// Servers in processes of their own, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct Ensemble(Vec<ZooKeeper>);

impl Ensemble {
    /// Starts three servers with ticks of 500 ms.
    pub(crate) fn start() -> Self {
        Self::start_with(&ZooKeeper::builder().fsync(false))
    }

    /// Starts three servers and waits until they have a leader.
    pub(crate) fn start_with(builder: &Builder) -> Self {
        let mut log = String::new();
        // Between the choice of a port and its use somebody else may take it.
        for _ in 0..5 {
            let ensemble = Self::launch(builder);
            let ready = ensemble.0.iter().try_for_each(ZooKeeper::wait_until_ready);
            match ready {
                Ok(()) => return ensemble,
                Err(said) => log = said,
            }
        }
        panic!("the ensemble does not start:\n{log}");
    }

    /// Returns what clients connect to: all three.
    pub(crate) fn hosts(&self) -> String {
        let hosts: Vec<_> = self.0.iter().map(ZooKeeper::hosts).collect();
        hosts.join(",")
    }

    pub(crate) fn server(&self, i: usize) -> &ZooKeeper {
        &self.0[i]
    }

    pub(crate) fn kill(&self, i: usize) {
        self.0[i].kill();
    }

    pub(crate) fn pause(&self, i: usize) {
        self.0[i].pause();
    }

    pub(crate) fn resume(&self, i: usize) {
        self.0[i].resume();
    }

    /// Starts a server again and waits until it serves, for which it needs a majority.
    pub(crate) fn restart(&self, i: usize) {
        self.0[i].restart();
    }

    /// Starts a server again without waiting, as after all of them were killed.
    pub(crate) fn restart_without_waiting(&self, i: usize) {
        self.0[i].kill();
        self.0[i].spawn();
    }

    /// Returns which server leads, if one does; a paused server is not asked for long.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.0.iter().position(|server| {
            server
                .four_letter("srvr")
                .is_ok_and(|said| said.contains("Mode: leader"))
        })
    }

    /// Returns a server that follows.
    pub(crate) fn follower(&self) -> Option<usize> {
        self.0.iter().position(|server| {
            server
                .four_letter("srvr")
                .is_ok_and(|said| said.contains("Mode: follower"))
        })
    }

    /// Waits until there is a leader and returns it.
    pub(crate) fn wait_for_leader(&self) -> usize {
        let mut leader = None;
        eventually("the ensemble elects a leader", || {
            leader = self.leader();
            leader.is_some()
        });
        leader.expect("a leader was just seen")
    }

    fn launch(builder: &Builder) -> Self {
        let peers = (1..=3).map(|id| {
            let (quorum, election) = (free_port(), free_port());
            format!("server.{id}=127.0.0.1:{quorum}:{election}")
        });
        let builder = peers.fold(builder.clone(), |builder, peer| builder.line(&peer));
        let servers = (1..=3).map(|id| {
            let folder = Folder::new();
            fs::create_dir_all(folder.path("data")).expect("making the server's data folder");
            fs::write(folder.path("data/myid"), format!("{id}\n")).expect("writing myid");
            ZooKeeper::launch(builder.clone(), free_port(), folder)
        });
        Self(servers.collect())
    }
}
