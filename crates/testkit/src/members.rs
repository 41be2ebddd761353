//! Real ZooKeeper servers that take each other's place by reconfiguration.

use std::fs;
use std::time::Duration;

use super::raw::Raw;
use super::zookeeper::{Builder, Folder, ZooKeeper};
use super::{eventually, free_port};

/// The node in which the servers keep the list of members.
pub const CONFIG: &str = "/zookeeper/config";

/// The members of an ensemble, which end when this is dropped.
#[derive(Debug)]
pub struct Members {
    members: Vec<Member>,
    /// The number of the latest member.
    last: usize,
    tick: Duration,
}

#[derive(Debug)]
struct Member {
    id: usize,
    /// The member's line in the configuration.
    line: String,
    server: ZooKeeper,
}

impl Members {
    /// Starts three servers with this tick that anybody may replace.
    pub fn start(tick: Duration) -> Self {
        let lines: Vec<_> = (1..=3).map(Line::new).collect();
        let all: Vec<_> = lines.iter().map(|line| line.text.clone()).collect();
        let members: Vec<_> = lines
            .into_iter()
            .map(|line| line.start(&all, tick))
            .collect();
        for member in &members {
            member.server.wait_until_ready().expect("a server");
        }
        Self {
            members,
            last: 3,
            tick,
        }
    }

    pub fn hosts(&self) -> String {
        let hosts = self.members.iter().map(|member| member.server.hosts());
        hosts.collect::<Vec<_>>().join(",")
    }

    pub fn oldest(&self) -> &ZooKeeper {
        &self.members[0].server
    }

    /// Replaces the oldest server by a fresh one; the old one runs on and is returned.
    pub fn replace_oldest(&mut self) -> ZooKeeper {
        self.last += 1;
        let line = Line::new(self.last);
        let mut all: Vec<_> = self.members.iter().map(|one| one.line.clone()).collect();
        all.push(line.text.clone());
        let fresh = line.start(&all, self.tick);
        fresh.server.wait_until_ready().expect("another server");
        let oldest = self.members.remove(0);
        let leaving = oldest.id.to_string();
        let hosts = self.hosts();
        self.members.push(fresh);
        eventually("the ensemble has changed", || {
            let text = Raw::connect(&hosts).data(CONFIG).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let is_done = !text.contains(&oldest.line) && text.contains(&all[3]);
            // An answer is lost if a leader leaves.
            is_done || {
                let _ = Raw::connect(&hosts).reconfigure(&all[3], &leaving);
                false
            }
        });
        oldest.server
    }
}

/// The content of a member's line, with its port for clients.
struct Line {
    id: usize,
    port: u16,
    text: String,
}

impl Line {
    fn new(id: usize) -> Self {
        let [quorum, election, port] = [(); 3].map(|()| free_port());
        let at = format!("127.0.0.1:{quorum}:{election}:participant;127.0.0.1:{port}");
        let text = format!("server.{id}={at}");
        Self { id, port, text }
    }

    fn start(self, all: &[String], tick: Duration) -> Member {
        let builder = Builder::default()
            .fsync(false)
            .tick(tick)
            .property("zookeeper.skipACL", "yes")
            .line("reconfigEnabled=true")
            .line("standaloneEnabled=false");
        let builder = all.iter().fold(builder, |builder, line| builder.line(line));
        let folder = Folder::new();
        let Self { id, port, text } = self;
        fs::create_dir_all(folder.path("data")).expect("making the server's data folder");
        fs::write(folder.path("data/myid"), format!("{id}\n")).expect("writing myid");
        Member {
            id,
            line: text,
            server: ZooKeeper::launch(builder, port, folder),
        }
    }
}
