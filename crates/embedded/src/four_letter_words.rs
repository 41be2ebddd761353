//! The four-letter words, which an operator sends instead of a client's first frame.
//!
//! The answers have ZooKeeper's format. What this server does not measure, such as latency,
//! is left out where the format allows it, and 0 where it needs a number.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::path::Path;

use super::date::date;
use super::state::{ConnectionState, ServerState};
use zklock_jute::{OpCode, Request};

const VERSION: &str = concat!(
    "3.8.0-zklock-",
    env!("CARGO_PKG_VERSION"),
    ", built on 01/01/1970 00:00 UTC"
);

/// A word, sent in place of the length of a client's first frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FourLetterWord {
    Conf,
    Cons,
    Dump,
    Envi,
    Isro,
    Mntr,
    Ruok,
    Srvr,
    Stat,
    Wchs,
}

impl FourLetterWord {
    pub(super) fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        Some(match &bytes {
            b"conf" => Self::Conf,
            b"cons" => Self::Cons,
            b"dump" => Self::Dump,
            b"envi" => Self::Envi,
            b"isro" => Self::Isro,
            b"mntr" => Self::Mntr,
            b"ruok" => Self::Ruok,
            b"srvr" => Self::Srvr,
            b"stat" => Self::Stat,
            b"wchs" => Self::Wchs,
            _ => return None,
        })
    }
}

/// Returns what ZooKeeper's reports call a request.
pub(super) fn name(request: &Request) -> &'static str {
    match request.op() {
        OpCode::CREATE | OpCode::CREATE2 | OpCode::CREATE_CONTAINER | OpCode::CREATE_TTL => "CREA",
        OpCode::DELETE => "DELE",
        OpCode::EXISTS => "EXIS",
        OpCode::GET_DATA => "GETD",
        OpCode::SET_DATA => "SETD",
        OpCode::GET_ACL => "GETA",
        OpCode::SET_ACL => "SETA",
        OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2 => "GETC",
        OpCode::COUNT_DESCENDANTS => "GETACN",
        OpCode::GET_EPHEMERALS => "GETE",
        OpCode::SYNC => "SYNC",
        OpCode::MULTI => "MULT",
        OpCode::MULTI_READ => "MLTR",
        OpCode::PING => "PING",
        OpCode::SET_WATCHES => "SETW",
        OpCode::SET_WATCHES2 => "STW2",
        OpCode::ADD_WATCH => "ADDW",
        OpCode::CHECK_WATCHES => "CHKW",
        OpCode::REMOVE_WATCHES => "REMW",
        OpCode::WHO_AM_I => "HOMI",
        _ => "NA",
    }
}

impl ServerState {
    pub(super) fn report(&self, word: FourLetterWord) -> String {
        let mut report = String::new();
        // Writing to a string cannot fail.
        let _ = match word {
            FourLetterWord::Conf => self.write_configuration(&mut report),
            FourLetterWord::Cons => self.write_connections(&mut report, true),
            FourLetterWord::Dump => self.write_sessions(&mut report),
            FourLetterWord::Envi => write_environment(&mut report),
            FourLetterWord::Isro => report.write_str("rw"),
            FourLetterWord::Mntr => self.write_numbers(&mut report),
            FourLetterWord::Ruok => report.write_str("imok"),
            FourLetterWord::Srvr => self.write_server(&mut report, false),
            FourLetterWord::Stat => self.write_server(&mut report, true),
            FourLetterWord::Wchs => self.write_watches(&mut report),
        };
        report
    }

    fn write_server(&self, out: &mut String, with_clients: bool) -> std::fmt::Result {
        writeln!(out, "Zookeeper version: {VERSION}")?;
        if with_clients {
            writeln!(out, "Clients:")?;
            self.write_connections(out, false)?;
        }
        writeln!(
            out,
            "Latency min/avg/max: 0/0.0/0\n\
             Received: {}\n\
             Sent: {}\n\
             Connections: {}\n\
             Outstanding: 0\n\
             Zxid: 0x{:x}\n\
             Mode: standalone\n\
             Node count: {}",
            self.traffic.received,
            self.traffic.sent,
            self.connections.len(),
            self.view.zxid,
            self.view.tree.len(),
        )
    }

    fn write_connections(&self, out: &mut String, in_detail: bool) -> std::fmt::Result {
        for connection in self.connections.values() {
            connection.write(out, in_detail)?;
        }
        writeln!(out)
    }

    fn write_watches(&self, out: &mut String) -> std::fmt::Result {
        let (connections, paths, total) = self.view.watches.summary();
        write!(
            out,
            "{connections} connections watching {paths} paths\nTotal watches:{total}\n"
        )
    }

    fn write_configuration(&self, out: &mut String) -> std::fmt::Result {
        let timeouts = self.config.timeouts();
        let data = self.config.data.as_deref().unwrap_or_else(|| Path::new(""));
        writeln!(
            out,
            "clientPort={}\n\
             secureClientPort=-1\n\
             dataDir={}\n\
             dataDirSize=0\n\
             dataLogDir=\n\
             dataLogSize=0\n\
             tickTime={}\n\
             maxClientCnxns=0\n\
             minSessionTimeout={}\n\
             maxSessionTimeout={}\n\
             clientPortListenBacklog=-1\n\
             serverId=0",
            self.config.port,
            data.display(),
            timeouts.tick_ms,
            timeouts.min_ms,
            timeouts.max_ms,
        )
    }

    /// Writes those of ZooKeeper's 400 metrics that this server has.
    fn write_numbers(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "zk_version\t{VERSION}\nzk_server_state\tstandalone")?;
        let numbers = [
            ("ephemerals_count", self.view.tree.ephemerals_count()),
            ("num_alive_connections", self.connections.len()),
            ("outstanding_requests", 0),
            ("znode_count", self.view.tree.len()),
            ("global_sessions", self.sessions.ids().count()),
            ("watch_count", self.view.watches.len()),
            ("approximate_data_size", self.view.tree.data_size()),
            ("local_sessions", 0),
        ];
        for (name, number) in numbers {
            writeln!(out, "zk_{name}\t{number}")?;
        }
        let counters = [
            ("packets_sent", self.traffic.sent),
            ("packets_received", self.traffic.received),
            ("auth_failed_count", self.refused_identities),
            ("uptime", self.now_ms()),
        ];
        for (name, number) in counters {
            writeln!(out, "zk_{name}\t{number}")?;
        }
        Ok(())
    }

    fn write_sessions(&self, out: &mut String) -> std::fmt::Result {
        let mut ends: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
        for (id, ends_ms) in self.sessions.ends() {
            ends.entry(ends_ms).or_default().push(id);
        }
        let sets = ends.len();
        writeln!(out, "SessionTracker dump:\nSession Sets ({sets})/({sets}):")?;
        for (ends_ms, ids) in &ends {
            let when = date(self.epoch_ms_at(*ends_ms));
            writeln!(out, "{} expire at {when}:", ids.len())?;
            ids.iter().try_for_each(|id| writeln!(out, "\t0x{id:x}"))?;
        }
        let owners = self.view.tree.owners();
        writeln!(
            out,
            "ephemeral nodes dump:\nSessions with Ephemerals ({}):",
            owners.len()
        )?;
        for id in owners {
            writeln!(out, "0x{id:x}:")?;
            self.view
                .tree
                .ephemerals(id)
                .try_for_each(|path| writeln!(out, "\t{path}"))?;
        }
        self.write_open_connections(out)
    }

    fn write_open_connections(&self, out: &mut String) -> std::fmt::Result {
        let count = self.connections.len();
        writeln!(
            out,
            "Connections dump:\nConnections Sets ({count})/({count}):"
        )?;
        for connection in self.connections.values() {
            let session = connection.session.unwrap_or(0);
            writeln!(out, "\tip: /{} sessionId: 0x{session:x}", connection.peer)?;
        }
        Ok(())
    }
}

impl ConnectionState {
    fn write(&self, out: &mut String, in_detail: bool) -> std::fmt::Result {
        let Self { peer, traffic, .. } = self;
        let interested = u8::from(self.session.is_some());
        write!(
            out,
            " /{}[{interested}](queued=0,recved={},sent={}",
            peer, traffic.received, traffic.sent
        )?;
        if let (true, Some(session)) = (in_detail, self.session) {
            let last = &self.last;
            write!(
                out,
                ",sid=0x{session:x},lop={},est={},to={},lcxid=0x{:x},lzxid=0x{:x},lresp={},\
                 llat=0,minlat=0,avglat=0,maxlat=0",
                last.op, self.since_ms, self.timeout_ms, last.xid, last.zxid, last.at_ms,
            )?;
        }
        writeln!(out, ")")
    }
}

/// Writes the environment of the process; there is no Java in it.
fn write_environment(out: &mut String) -> std::fmt::Result {
    writeln!(out, "Environment:\nzookeeper.version={VERSION}")?;
    let directory = env::current_dir().unwrap_or_default();
    let values = [
        (
            "host.name",
            env::var("HOSTNAME").unwrap_or_else(|_| "localhost".to_owned()),
        ),
        ("os.name", env::consts::OS.to_owned()),
        ("os.arch", env::consts::ARCH.to_owned()),
        ("user.name", env::var("USER").unwrap_or_default()),
        ("user.home", env::var("HOME").unwrap_or_default()),
        ("user.dir", directory.display().to_string()),
    ];
    for (name, value) in values {
        writeln!(out, "{name}={value}")?;
    }
    Ok(())
}
