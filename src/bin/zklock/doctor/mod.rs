//! Checks whether the servers and a lock are well, and says what to do. It changes no lock.
//!
//! What a check finds is a [`Finding`]; the worst one is the exit status. Each server is checked on
//! its own, over a connection to it alone, and by its four-letter words where allowed.

mod finding;
mod lock;
mod record;
mod server;
mod trial;
mod words;

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;

use self::finding::{Finding, Level, table};
use crate::args::{Args, Doctor};
use crate::connect::{connect, hosts};
use crate::failure::{Failure, written};
use crate::sanitize::plain_json;

/// How long each server may take for each answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn doctor(args: &Args, doctor: &Doctor) -> Result<u8, Failure> {
    let hosts = hosts(args)?;
    let (servers, chroot) = split(&hosts);
    let patience = PATIENCE.min(args.connect_timeout);
    let mut findings = Vec::new();
    let mut seen = Vec::new();
    for server in servers {
        let (found, view) = server::look(args, &format!("{server}{chroot}"), server, patience)?;
        findings.extend(found);
        seen.push(view);
    }
    findings.extend(server::compare(&seen));
    match connect(args, None, patience) {
        Ok(client) => {
            findings.extend(trial::go_through(&client, doctor.path.as_deref()));
            if let Some(path) = &doctor.path {
                findings.extend(lock::look(&client, path, doctor.older_than, &seen));
                findings.extend(record::look(&client, path));
            }
            drop(client.close());
        }
        Err(failure) => {
            // The findings above say what is wrong with each server.
            let trouble = |what| Finding::new(Level::Trouble, "all servers", what);
            findings.push(match seen.iter().any(|server| server.is_there) {
                // The failure contains its own advice.
                true => trouble(failure.message()),
                false => trouble("none of them can be reached")
                    .advice("mend what is said of each server"),
            });
        }
    }
    let worst = findings.iter().map(|finding| finding.level).max();
    written(show(doctor, &findings))?;
    Ok(worst.map_or(0, |level| level as u8))
}

fn show(doctor: &Doctor, findings: &[Finding]) -> io::Result<()> {
    let mut to = io::stdout().lock();
    if doctor.json {
        let all: Vec<_> = findings.iter().map(Finding::json).collect();
        let text = format!("{:#}", json!({ "path": doctor.path, "findings": all }));
        return writeln!(to, "{}", plain_json(&text));
    }
    writeln!(to, "{}", table(findings))
}

/// Splits a list into the servers, each once, and the chroot at its end.
fn split(hosts: &str) -> (Vec<&str>, &str) {
    let (hosts, chroot) = hosts.split_at(hosts.find('/').unwrap_or(hosts.len()));
    let mut servers = Vec::new();
    for server in hosts.split(',').map(str::trim) {
        // A server that is named twice would look like two that do not belong together.
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
