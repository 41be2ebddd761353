//! Checks whether the servers and a lock are well, and gives advice. It changes no lock.
//!
//! The result of a check is a [`Finding`]; the worst one is the exit status. Each server is checked
//! on its own, over a connection to it alone, and by its four-letter words where they are allowed.

mod finding;
mod lock;
mod neighbours;
mod record;
mod server;
mod trial;
mod words;

use std::convert::Infallible;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};
use serde_json::json;
use zklock::Client;

use self::finding::{Finding, Level, columns, table};
use self::server::View;
use crate::args::{Args, Doctor};
use crate::connect::{connect, dialect, hosts};
use crate::failure::{Failure, written};
use crate::sanitize::{plain, plain_json};
use crate::stderr::say;

/// How long each server may take for each answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the servers may take before the slow ones are named.
const SOON: Duration = Duration::from_secs(2);

/// The findings about a server, and its properties.
type Looked = (Vec<Finding>, View);

pub(crate) fn doctor(args: &Args, doctor: &Doctor) -> Result<u8, Failure> {
    let hosts = hosts(args)?;
    let (servers, chroot) = split(&hosts);
    let patience = PATIENCE.min(args.connect_timeout);
    let mut findings = Vec::new();
    let mut seen = Vec::new();
    for look in look_at_all(args, (&servers, chroot), patience) {
        let (found, view) = look?;
        findings.extend(found);
        seen.push(view);
    }
    findings.extend(server::compare(&seen));
    // Servers of which none has given a session would give none to another attempt, which takes as long.
    let serve = seen.iter().any(|server| server.granted.is_some());
    match serve.then(|| connect(args, None, patience)) {
        Some(Ok(client)) => {
            match ask(&client, (args, doctor), &seen) {
                Ok(found) => findings.extend(found),
                Err(silence) => findings.push(silence),
            }
            drop(client.close());
        }
        // The failure contains its own advice.
        Some(Err(failure)) => findings.push(unserved(failure.message())),
        None => findings.push(none_serves(&seen)),
    }
    let worst = findings.iter().map(|finding| finding.level).max();
    written(show(doctor, &findings))?;
    Ok(worst.map_or(0, |level| level as u8))
}

/// Says that no server gave a session. Other findings say what is wrong with each.
fn none_serves(seen: &[View]) -> Finding {
    let what = match seen.iter().any(|server| server.is_there) {
        true => "none of them grants a session",
        false => "none of them can be reached",
    };
    unserved(what).advice("mend what is said of each server")
}

fn unserved(what: &str) -> Finding {
    Finding::new(Level::Trouble, "all servers", what)
}

/// Takes a lock and examines the path. Fails if no server answers any more.
fn ask(
    client: &Client,
    (args, doctor): (&Args, &Doctor),
    seen: &[View],
) -> Result<Vec<Finding>, Finding> {
    let mut findings = trial::go_through(client, doctor.path.as_deref())?;
    if let Some(path) = &doctor.path {
        let how = (doctor.older_than, dialect(args.dialect));
        findings.extend(lock::look(client, path, how, seen));
        findings.extend(record::look(client, path));
    }
    Ok(findings)
}

/// Examines all servers at once, and names those that take long.
fn look_at_all(
    args: &Args,
    (servers, chroot): (&[&str], &str),
    patience: Duration,
) -> Vec<Result<Looked, Failure>> {
    thread::scope(|scope| {
        // Disconnected when the last look has ended.
        let (looking, ended) = bounded::<Infallible>(0);
        let start = |server| {
            let (looking, hosts) = (looking.clone(), format!("{server}{chroot}"));
            let look = move || {
                let _looking = looking;
                server::look(args, &hosts, server, patience)
            };
            let started = thread::Builder::new().spawn_scoped(scope, look);
            started.map_err(|error| Failure::not_started("a thread", &error))
        };
        let looks: Vec<_> = servers.iter().map(|server| start(*server)).collect();
        drop(looking);
        if ended.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
            let slow = servers.iter().zip(&looks);
            let slow = slow.filter(|(_, look)| look.as_ref().is_ok_and(|look| !look.is_finished()));
            let slow: Vec<_> = slow.map(|(server, _)| plain(server)).collect();
            say(&format!("waiting for answers of {}", slow.join(", ")));
        }
        let end = |look: ScopedJoinHandle<'_, _>| {
            look.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        looks.into_iter().map(|look| look.and_then(end)).collect()
    })
}

fn show(doctor: &Doctor, findings: &[Finding]) -> io::Result<()> {
    let mut to = io::stdout().lock();
    if doctor.json {
        let all: Vec<_> = findings.iter().map(Finding::json).collect();
        let text = format!("{:#}", json!({ "path": doctor.path, "findings": all }));
        return writeln!(to, "{}", plain_json(&text));
    }
    writeln!(to, "{}", table(findings, columns()))
}

/// Splits a list into the servers, each once, and the chroot at its end.
fn split(hosts: &str) -> (Vec<&str>, &str) {
    let (hosts, chroot) = hosts.split_at(hosts.find('/').unwrap_or(hosts.len()));
    let mut servers = Vec::new();
    for server in hosts.split(',').map(str::trim) {
        // A server that is named twice would look like two servers that do not belong together.
        if !server.is_empty() && !servers.contains(&server) {
            servers.push(server);
        }
    }
    (servers, chroot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_servers_is_taken_apart() {
        assert_eq!(split("a:1,b"), (vec!["a:1", "b"], ""));
        assert_eq!(split("a:1, a:1,,"), (vec!["a:1"], ""));
        assert_eq!(
            split("[::1]:2181, b:2/app/x"),
            (vec!["[::1]:2181", "b:2"], "/app/x")
        );
    }
}
