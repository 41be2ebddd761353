//! The words that an operator can send instead of a client's first frame.

use std::fmt::Write;

use super::state::State;

/// A word; it stands where a client's first frame has its length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Word {
    Cons,
    Ruok,
    Srvr,
    Wchs,
}

impl Word {
    pub(super) fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        Some(match &bytes {
            b"cons" => Self::Cons,
            b"ruok" => Self::Ruok,
            b"srvr" => Self::Srvr,
            b"wchs" => Self::Wchs,
            _ => return None,
        })
    }
}

impl State {
    pub(super) fn tell_operator(&self, word: Word) -> String {
        match word {
            Word::Cons => self.connections_report(),
            Word::Ruok => "imok".to_owned(),
            Word::Srvr => self.server_report(),
            Word::Wchs => {
                let (connections, paths, total) = self.watches.summary();
                format!("{connections} connections watching {paths} paths\nTotal watches:{total}\n")
            }
        }
    }

    fn server_report(&self) -> String {
        format!(
            "Zookeeper version: 3.8.0-zklock-{}, built on {}\n\
             Latency min/avg/max: 0/0.0/0\n\
             Received: {}\n\
             Sent: {}\n\
             Connections: {}\n\
             Outstanding: 0\n\
             Zxid: 0x{:x}\n\
             Mode: standalone\n\
             Node count: {}\n",
            env!("CARGO_PKG_VERSION"),
            "01/01/1970 00:00 UTC",
            self.traffic.received,
            self.traffic.sent,
            self.connections.len(),
            self.zxid,
            self.tree.len(),
        )
    }

    fn connections_report(&self) -> String {
        let mut report = String::new();
        for connection in self.connections.values() {
            let traffic = connection.traffic;
            let _ = writeln!(
                report,
                " /{}[1](queued=0,recved={},sent={},sid=0x{:x})",
                connection.peer,
                traffic.received,
                traffic.sent,
                connection.session.unwrap_or(0),
            );
        }
        report.push('\n');
        report
    }
}
