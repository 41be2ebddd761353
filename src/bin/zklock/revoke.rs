//! Asks the holders of a lock to let go, and makes them in the end.

use std::time::{Duration, Instant};

use zklock::{Client, Contender};

use crate::args::{Args, Revoke};
use crate::connect::connect;
use crate::failure::{Failure, say};
use crate::table::{plain, who};

/// The exit status when there was nobody to ask.
const NOBODY: u8 = 1;

pub(crate) fn revoke(args: &Args, revoke: &Revoke) -> Result<u8, Failure> {
    let client = connect(args, None, Duration::MAX)?;
    let asked = chosen(revoke, client.contenders(&revoke.path)?);
    if asked.is_empty() {
        say(&match &revoke.node {
            Some(node) => format!(
                "{node} is not in the queue of {}: see zklock list",
                revoke.path
            ),
            None => format!("nobody holds {}", revoke.path),
        });
        return Ok(NOBODY);
    }
    for contender in &asked {
        contender.revoke()?;
        tell("asked", contender);
    }
    if let Some(limit) = revoke.evict_after {
        evict(&client, revoke, &asked, limit)?;
    }
    drop(client.close());
    Ok(0)
}

/// The holders, or the one that the user named.
fn chosen(revoke: &Revoke, present: Vec<Contender>) -> Vec<Contender> {
    let chosen = |contender: &Contender| match &revoke.node {
        Some(node) => contender.node() == node || contender.node().ends_with(&format!("/{node}")),
        None => contender.holds(),
    };
    present.into_iter().filter(chosen).collect()
}

/// Waits until they have gone, and deletes who has not.
fn evict(
    client: &Client,
    revoke: &Revoke,
    asked: &[Contender],
    limit: Duration,
) -> Result<(), Failure> {
    let deadline = Instant::now().checked_add(limit);
    let mut waiting = asked.to_vec();
    let mut present = client.contenders(&revoke.path)?;
    loop {
        let (stay, gone): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|one| present.iter().any(|other| is_same(one, other)));
        for contender in &gone {
            tell("let go:", contender);
        }
        waiting = stay;
        let left = deadline.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        if waiting.is_empty() || left.is_zero() {
            break;
        }
        present = client.contenders_changed(&revoke.path, &present, left)?;
    }
    for contender in &waiting {
        contender.evict()?;
        tell("evicted", contender);
    }
    Ok(())
}

fn is_same(one: &Contender, other: &Contender) -> bool {
    one.node() == other.node() && one.token() == other.token()
}

fn tell(what: &str, contender: &Contender) {
    use std::io::Write;

    let line = format!(
        "{what} {} {}",
        who(contender.owner()),
        plain(contender.node())
    );
    drop(writeln!(std::io::stdout(), "{line}"));
}
