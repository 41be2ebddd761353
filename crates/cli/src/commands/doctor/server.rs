//! Examines one server: whether it answers, in which role, and what it grants.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use zklock::Client;

use super::finding::{Finding, Level};
use super::words::{Said, ask, values};
use crate::args::Args;
use crate::connect::{builder_for, is_encrypted};
use crate::failure::Failure;
use crate::stop_policy::StopPolicy;
use crate::table::brief;

/// How many reads are made to see how long one takes.
const READS: usize = 5;

/// A server that is slower than this is worth a look.
const SLOW: Duration = Duration::from_millis(500);

/// Servers of ZooKeeper's protocol that end sessions by a wall clock.
const WALL_CLOCK: [&str; 2] = ["ClickHouse Keeper", "RaftKeeper"];

/// The properties of a server, for comparison with the others.
#[derive(Debug, Default)]
pub(super) struct View {
    /// `leader`, `follower` or `standalone`, if the server says so.
    pub(super) role: Option<String>,
    version: Option<String>,
    pub(super) is_there: bool,
    /// The session timeout that the server grants.
    pub(super) granted: Option<Duration>,
    /// How long the server waits for a leader that has fallen silent.
    waits_for_leader: Option<Duration>,
    /// See [`differs`].
    mismatches: Option<u64>,
    /// The address at which the server answers four-letter words.
    pub(super) server: String,
}

/// Examines a server through its four-letter words and a session.
pub(super) fn look(
    args: &Args,
    hosts: &str,
    server: &str,
    patience: Duration,
) -> Result<(Vec<Finding>, View), Failure> {
    let mut view = View {
        server: server.to_owned(),
        ..View::default()
    };
    let mut findings = match is_encrypted(args) {
        true => {
            view.is_there = true;
            let what = "its words were not asked for: they are not encrypted";
            vec![Finding::good(server, what)]
        }
        false => words(server, &mut view, patience),
    };
    if !view.is_there {
        return Ok((findings, view));
    }
    let connected = builder_for(args, hosts)?
        .connect_timeout(patience)
        .connect();
    match connected {
        Ok(client) => {
            view.granted = Some(client.session_timeout());
            findings.extend(session(args, server, &client));
            drop(client.close());
        }
        Err(error) => findings.push(no_session(server, &error)),
    }
    if let Some(before) = view.mismatches.filter(|count| 0 < *count) {
        let now = mismatches(server, patience).filter(|_| view.granted.is_some());
        findings.push(differs(server, before, now));
    }
    Ok((findings, view))
}

fn no_session(server: &str, error: &zklock::Error) -> Finding {
    match error {
        zklock::Error::ConnectTimeout { tried, .. } if tried.is_empty() => {
            Finding::new(Level::Trouble, server, "no session").advice("look at its log")
        }
        zklock::Error::ConnectTimeout { tried, .. } => {
            let named = format!("{server}: ");
            let why = tried
                .iter()
                .map(|why| why.strip_prefix(&named).unwrap_or(why));
            let what = format!("no session: {}", why.collect::<Vec<_>>().join("; "));
            Finding::new(Level::Trouble, server, what).advice(zklock::Error::to_do(tried))
        }
        error => Finding::new(Level::Trouble, server, format!("no session: {error}")),
    }
}

fn words(server: &str, view: &mut View, patience: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let said = ask(server, "srvr", patience);
    view.is_there = !matches!(said, Said::Nothing(_) | Said::NoAddress(_));
    match said {
        Said::NoAddress(error) => {
            let finding = Finding::new(Level::Trouble, server, format!("no address: {error}"));
            return vec![finding.advice("correct the name here, or its entry in DNS")];
        }
        Said::Nothing(error) => {
            let what = format!("no connection: {error}");
            let finding = Finding::new(Level::Trouble, server, what);
            return vec![finding.advice("start it, or take it out of the list")];
        }
        Said::NotServing => {
            let finding = Finding::new(Level::Trouble, server, "it runs, and knows no leader");
            return vec![finding.advice("look whether it reaches the others, and a majority runs")];
        }
        Said::Silent => {
            let what = "it accepts connections and answers nothing";
            let finding = Finding::new(Level::Trouble, server, what);
            return vec![finding.advice("look whether its process hangs or its machine does")];
        }
        Said::NotAllowed => {
            let what = "it tells nothing of itself (4lw.commands.whitelist has no srvr)";
            return vec![Finding::good(server, what)];
        }
        Said::HungUp => {
            let what = "it tells nothing of itself: it closes the connection";
            return vec![Finding::good(server, what)];
        }
        Said::Text(text) => findings.push(role(server, &text, view)),
    }
    if let Said::Text(text) = ask(server, "conf", patience) {
        findings.extend(settings(server, &values(&text, &['=']), view));
    }
    view.mismatches = mismatches(server, patience);
    findings
}

/// Returns how often this server's data differed from its leader's after a transaction.
fn mismatches(server: &str, patience: Duration) -> Option<u64> {
    let Said::Text(mntr) = ask(server, "mntr", patience) else {
        return None;
    };
    values(&mntr, &['\t'])
        .get("zk_digest_mismatches_count")?
        .parse()
        .ok()
}

/// Reports whether the server's data differ, given these counts from before and after a session,
/// whose beginning and end are transactions.
///
/// Each transaction carries the digest of the leader's data, and a server with other data counts
/// each difference (`DataTree.compareDigest` in ZooKeeper). The server also compares the
/// transactions that it repeats from its log when it starts, on a snapshot that may contain later
/// changes.
fn differs(server: &str, before: u64, now: Option<u64>) -> Finding {
    let times = format!("since its start, its data differed from its leader's {before} times");
    let advice = "stop it, delete its data and start it: it takes a snapshot from the leader";
    match now {
        Some(now) if before < now => {
            let what = format!("its data differ from its leader's, by {now} transactions so far");
            Finding::new(Level::Trouble, server, what).advice(advice)
        }
        Some(_) => Finding::good(
            server,
            format!("{times}, and do not any more: as where it reads its log again"),
        ),
        None => Finding::new(Level::Warning, server, times)
            .advice("look again when it grants sessions, whether they still do"),
    }
}

fn role(server: &str, text: &str, view: &mut View) -> Finding {
    let said = values(text, &[':']);
    let version = |product: &str| {
        let all = said.get(&format!("{product} version"))?;
        all.split([',', '-']).next()
    };
    if let Some(product) = WALL_CLOCK.iter().find(|name| version(name).is_some()) {
        view.role = said.get("Mode").cloned();
        return goes_by_a_wall_clock(server, product, version(product));
    }
    let version = version("Zookeeper");
    view.role = said.get("Mode").cloned();
    view.version = version.map(str::to_owned);
    if view.role.is_none() && version.is_none() {
        let what = "what it answers is no ZooKeeper server's answer";
        let finding = Finding::new(Level::Warning, server, what);
        return finding.advice("look whether this is ZooKeeper's client port");
    }
    let role = view.role.as_deref().unwrap_or("of an unknown role");
    let version = version.unwrap_or("unknown");
    Finding::good(server, format!("{role}, version {version}"))
}

fn goes_by_a_wall_clock(server: &str, product: &str, version: Option<&str>) -> Finding {
    let version = version.unwrap_or("unknown");
    let what = format!("{product}, version {version}: it ends sessions by a clock that may be set");
    Finding::new(Level::Warning, server, what).advice(
        "keep its clock from being set forward, fence what a lock protects, and accept this with \
         --wall-clock-expiry",
    )
}

/// Reports what the server's settings mean for locks.
fn settings(server: &str, said: &HashMap<String, String>, view: &mut View) -> Option<Finding> {
    let (tick, least) = (
        number(said, "tickTime")?,
        number(said, "minSessionTimeout")?,
    );
    let waits = number(said, "syncLimit").and_then(|ticks| ticks.checked_mul(tick));
    view.waits_for_leader = waits.map(Duration::from_millis);
    (least < 2 * tick).then(|| {
        let what = format!("minSessionTimeout is {least} ms, and a tick {tick} ms");
        Finding::new(Level::Warning, server, what)
            .advice("use two ticks at least: shorter sessions end by chance")
    })
}

fn number(said: &HashMap<String, String>, name: &str) -> Option<u64> {
    said.get(name)?.parse().ok()
}

/// Reports what the server grants, and how long it takes.
fn session(args: &Args, server: &str, client: &Client) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (asked, granted) = (args.session_timeout(), client.session_timeout());
    findings.push(match asked == granted {
        true => Finding::good(server, format!("grants sessions of {}", brief(granted))),
        false => {
            let what = format!("grants sessions of {granted:?}, and {asked:?} were asked for");
            Finding::new(Level::Warning, server, what)
                .advice("change its minSessionTimeout or maxSessionTimeout, or ask for that")
        }
    });
    findings.extend(margin(server, granted));
    let read = || {
        let began = Instant::now();
        client
            .nodes()
            .exists("/zklock-doctor")
            .map(|_| began.elapsed())
    };
    findings.push(
        match (0..READS)
            .map(|_| read())
            .collect::<zklock::Result<Vec<_>>>()
        {
            Ok(mut times) => {
                times.sort_unstable();
                let median = times[READS / 2];
                let what = format!("answers in {:.1} ms", median.as_secs_f64() * 1e3);
                match median < SLOW {
                    true => Finding::good(server, what),
                    false => Finding::new(Level::Warning, server, what)
                        .advice("look at its load and the network"),
                }
            }
            Err(error) => Finding::new(Level::Trouble, server, format!("does not answer: {error}")),
        },
    );
    findings
}

/// Reports that sessions so short leave a command no time for a reconnect.
fn margin(server: &str, granted: Duration) -> Option<Finding> {
    let complaint = StopPolicy::new(granted, None).complaint()?;
    let finding = Finding::new(Level::Warning, server, complaint);
    Some(finding.advice("ask for a longer --session-timeout, and have the server grant it"))
}

/// Reports the state of the servers as an ensemble.
pub(super) fn compare(views: &[View]) -> Vec<Finding> {
    let of = |role: &str| {
        views
            .iter()
            .filter(|view| view.role.as_deref() == Some(role))
            .count()
    };
    let roles = views.iter().filter(|view| view.role.is_some()).count();
    let mut findings = Vec::new();
    if 1 < of("leader") || 0 < of("standalone") && 1 < roles {
        let what = "they do not belong to one ensemble";
        findings.push(
            Finding::new(Level::Trouble, "all servers", what)
                .advice("name the servers of one ensemble: locks of another one exclude nobody"),
        );
    }
    let mut versions: Vec<_> = views
        .iter()
        .filter_map(|view| view.version.as_deref())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    if 1 < versions.len() {
        let what = format!("of different versions: {}", versions.join(", "));
        findings
            .push(Finding::new(Level::Warning, "all servers", what).advice("finish the upgrade"));
    }
    findings.extend(grants(views));
    findings.extend(silent_leader(views));
    findings
}

/// Reports that commands do not outlast the wait for a leader that falls silent without closing its
/// connections. That is so with the settings of ZooKeeper's sample file, so it is no warning.
fn silent_leader(views: &[View]) -> Option<Finding> {
    let missed_after = views
        .iter()
        .filter_map(|view| view.waits_for_leader)
        .max()?;
    let granted = views.iter().filter_map(|view| view.granted).min()?;
    let spare = StopPolicy::new(granted, None).spare();
    (spare < missed_after).then(|| {
        let (missed_after, spare) = (brief(missed_after), spare.as_secs_f64());
        let what = format!(
            "a leader whose machine loses power is missed after {missed_after}, and commands may be stopped after {spare:.1} s"
        );
        Finding::good("all servers", what)
            .advice("to spare them, lower tickTime or syncLimit on all servers, or raise --session-timeout")
    })
}

/// Reports servers that grant different timeouts: a server that grants less than another shortens a
/// session before its client can know.
fn grants(views: &[View]) -> Option<Finding> {
    let granted = || views.iter().filter_map(|view| view.granted);
    let (least, most) = (granted().min()?, granted().max()?);
    (least != most).then(|| {
        let what = format!("they grant sessions of {least:?} to {most:?}");
        Finding::new(Level::Warning, "all servers", what).advice(format!(
            "give all the same tickTime, minSessionTimeout and maxSessionTimeout; until then, run \
             clients with --granted-at-least {least:?}, or ClientBuilder::granted_at_least"
        ))
    })
}
