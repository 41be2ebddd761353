//! The resources of a run while it has nothing to do: at its clients, and at its servers.
//!
//! One number says little, since a client may be about to connect, and the allocator may still hold
//! freed memory. So numbers are taken repeatedly, and the least one of a later period is compared
//! with the least one of an earlier period: only a leak makes it grow.

use std::fmt;
use std::fs;
use std::time::Duration;

use crate::support::zookeeper::ZooKeeper;

/// The resources of a client process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Usage {
    pub(crate) threads: i64,
    pub(crate) descriptors: i64,
    /// The resident memory, in KiB.
    pub(crate) memory: i64,
}

/// The resources of the ensemble for its clients.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Kept {
    pub(crate) nodes: i64,
    pub(crate) ephemerals: i64,
    pub(crate) watches: i64,
    pub(crate) sessions: i64,
    /// The file descriptors of all servers.
    pub(crate) descriptors: i64,
}

/// The resources at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) faults: usize,
    pub(crate) clients: Vec<Usage>,
    pub(crate) kept: Kept,
}

/// How much each number may grow without being called a leak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margin {
    /// The growth per client, in KiB.
    pub(crate) memory: i64,
    pub(crate) nodes: i64,
    /// The growth of all servers together.
    pub(crate) descriptors: i64,
}

impl Usage {
    /// Measures a process; everything is zero if it does not exist.
    pub(crate) fn of(process: u32) -> Self {
        let folder = format!("/proc/{process}");
        let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|rest| rest.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        Self {
            threads: number("Threads:"),
            descriptors: fs::read_dir(format!("{folder}/fd")).map_or(0, |fds| fds.count() as i64),
            memory: number("VmRSS:"),
        }
    }
}

impl Kept {
    /// Asks the servers; `None` if one does not answer.
    pub(crate) fn of<'a>(
        leader: &ZooKeeper,
        servers: impl Iterator<Item = &'a ZooKeeper>,
    ) -> Option<Self> {
        let mut kept = Self {
            nodes: leader.monitor("zk_znode_count")?,
            ephemerals: leader.monitor("zk_ephemerals_count")?,
            sessions: leader.monitor("zk_global_sessions")?,
            ..Self::default()
        };
        for server in servers {
            kept.watches += server.monitor("zk_watch_count")?;
            kept.descriptors += server.monitor("zk_open_file_descriptor_count")?;
        }
        Some(kept)
    }
}

/// The least value of a number in the second quarter of the samples, because the first quarter is
/// for warming up, and its least value in the last quarter.
#[derive(Clone, Debug)]
struct Trend {
    what: String,
    early: i64,
    late: i64,
    margin: i64,
}

impl Trend {
    fn of(samples: &[Sample], what: &str, margin: i64, of: impl Fn(&Sample) -> i64) -> Self {
        let quarter = samples.len() / 4;
        let least = |from: usize| {
            let part = samples.iter().skip(from).take(quarter);
            part.map(&of).min().unwrap_or(0)
        };
        Self {
            what: what.to_owned(),
            early: least(quarter),
            late: least(samples.len() - quarter),
            margin,
        }
    }
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what, early, late, ..
        } = self;
        write!(f, "{what} {early} then {late}")
    }
}

fn trends_of_client(samples: &[Sample], i: usize, margin: Margin) -> [Trend; 3] {
    let usage = |sample: &Sample| sample.clients.get(i).copied().unwrap_or_default();
    let name = |what: &str| format!("{what} of client {i}");
    [
        Trend::of(samples, &name("threads"), 0, |s| usage(s).threads),
        Trend::of(samples, &name("descriptors"), 0, |s| usage(s).descriptors),
        Trend::of(samples, &name("KiB"), margin.memory, |s| usage(s).memory),
    ]
}

fn trends_of_servers(samples: &[Sample], margin: Margin) -> [Trend; 4] {
    [
        Trend::of(samples, "nodes", margin.nodes, |s| s.kept.nodes),
        Trend::of(samples, "watches", 0, |s| s.kept.watches),
        Trend::of(samples, "sessions", 0, |s| s.kept.sessions),
        Trend::of(
            samples,
            "descriptors of the servers",
            margin.descriptors,
            |s| s.kept.descriptors,
        ),
    ]
}

fn trends(samples: &[Sample], margin: Margin) -> Vec<Trend> {
    let clients = samples.iter().map(|sample| sample.clients.len()).min();
    let clients = (0..clients.unwrap_or(0)).flat_map(|i| trends_of_client(samples, i, margin));
    clients.chain(trends_of_servers(samples, margin)).collect()
}

/// Returns the least value of each number in the second quarter and in the last.
pub(crate) fn summary(samples: &[Sample], margin: Margin) -> String {
    let trends = trends(samples, margin);
    let lines: Vec<_> = trends.iter().map(Trend::to_string).collect();
    lines.join("; ")
}

/// Lists the numbers that have grown from the second quarter to the last.
pub(crate) fn growth(samples: &[Sample], margin: Margin) -> Vec<String> {
    let trends = trends(samples, margin);
    let grown = trends
        .iter()
        .filter(|trend| trend.early + trend.margin < trend.late);
    grown.map(Trend::to_string).collect()
}

/// The headings of the columns in which a [`Sample`] is shown.
pub(crate) const HEADS: &str = "     at  faults | clients: threads descriptors      KiB \
     | servers: nodes ephemerals watches sessions descriptors";

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&Usage) -> i64| self.clients.iter().map(of).sum::<i64>();
        let Kept {
            nodes,
            ephemerals,
            watches,
            sessions,
            descriptors,
        } = self.kept;
        write!(
            f,
            "{:>5} s {:>7} | {:>16} {:>11} {:>8} | {:>14} {:>10} {:>7} {:>8} {:>11}",
            self.at.as_secs(),
            self.faults,
            sum(|usage| usage.threads),
            sum(|usage| usage.descriptors),
            sum(|usage| usage.memory),
            nodes,
            ephemerals,
            watches,
            sessions,
            descriptors,
        )
    }
}

#[test]
fn what_leaks_is_told_from_what_only_comes_and_goes() {
    let margin = Margin {
        memory: 512,
        nodes: 5,
        descriptors: 5,
    };
    let sample = |i: i64, leak: &str| {
        let grows = |name: &str| if leak == name { i } else { i % 3 };
        let usage = Usage {
            threads: 9 + grows("threads"),
            descriptors: 9 + grows("descriptors"),
            memory: 9000 + 100 * grows("KiB"),
        };
        Sample {
            at: Duration::from_secs(i as u64),
            faults: 0,
            clients: vec![Usage::default(), usage],
            kept: Kept {
                nodes: grows("nodes"),
                ephemerals: 0,
                watches: grows("watches"),
                sessions: grows("sessions"),
                descriptors: grows("of the servers"),
            },
        }
    };
    let found = |leak: &str| {
        let samples: Vec<_> = (0..40).map(|i| sample(i, leak)).collect();
        growth(&samples, margin)
    };
    assert_eq!(found("nothing"), [""; 0]);
    for leak in [
        "threads",
        "descriptors",
        "KiB",
        "nodes",
        "watches",
        "sessions",
        "of the servers",
    ] {
        let found = found(leak);
        assert_eq!(found.len(), 1, "{leak}: {found:?}");
        assert!(found[0].contains(leak), "{leak}: {found:?}");
    }
    assert_eq!(growth(&[], margin), [""; 0]);
}

#[test]
fn this_process_takes_up_something() {
    let usage = Usage::of(std::process::id());
    assert!(0 < usage.threads && 0 < usage.descriptors && 1000 < usage.memory);
    assert_eq!(Usage::of(0), Usage::default());
}
