//! Lists the holders of a lock and its waiters.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use zklock::{Client, Contender};

use crate::args::{Args, List};
use crate::connect::connect;
use crate::failure::{Failure, USAGE, has_reader, written};
use crate::outage::Outage;
use crate::sanitize::{plain, plain_json};
use crate::stderr::say;
use crate::table::{json, table};
use crate::values::absolute;

/// How often the connection is checked and the times on a terminal are updated. This sends no
/// request.
const REDRAW: Duration = Duration::from_secs(1);

/// The shortest time between two lists, however often the contenders change.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the watch of a server is relied on, which does not tell a client of changes that it may not see any more.
const LOOKS_AGAIN: Duration = Duration::from_secs(15);

/// The contenders after a change.
type Listing = zklock::Result<Vec<Contender>>;

pub(crate) fn list(args: &Args, list: &List) -> Result<u8, Failure> {
    absolute(list.path()).map_err(|rule| Failure::new(USAGE, rule))?;
    let client = connect(args, None, Duration::MAX)?;
    let present = client.contenders(list.path())?;
    if list.watch {
        watch(&client, list, present)?;
    } else {
        // This fails if the reader has closed the pipe.
        written(show(list, &present, &Outage::default(), false))?;
        if let (true, Ok(below)) = (present.is_empty(), client.strangers(list.path())) {
            tell_what_lies_below(list.path(), &below);
        }
    }
    drop(client.close());
    Ok(0)
}

/// If the path is a directory of locks, says where the locks may be.
fn tell_what_lies_below(path: &str, below: &[String]) {
    if let Some(first) = below.first() {
        let (path, count) = (plain(path), below.len());
        say(&format!(
            "{path} is no lock in use, and has {count} below it: list all with zklock list -r {path}, or one, such as zklock list {}",
            plain(first)
        ));
    }
}

/// Lists again at each change, until the output has no reader any more.
fn watch(client: &Client, list: &List, mut present: Vec<Contender>) -> Result<(), Failure> {
    let screen = !list.json && io::stdout().is_terminal();
    let changes = start_watching(client, list, &present)?;
    let mut outage = Outage::default();
    loop {
        if let Err(error) = show(list, &present, &outage, screen) {
            return written(Err(error));
        }
        let known = outage.since();
        loop {
            select! {
                recv(changes) -> change => {
                    let Ok(change) = change else { return Ok(()) };
                    present = change?;
                    outage.look(client);
                    break;
                }
                default(REDRAW) => {
                    if !has_reader() {
                        return Ok(());
                    }
                    outage.look(client);
                    if screen || outage.since() != known {
                        break;
                    }
                }
            }
        }
    }
}

/// Starts a thread that waits for changes.
fn start_watching(
    client: &Client,
    list: &List,
    present: &[Contender],
) -> Result<Receiver<Listing>, Failure> {
    let (to, changes) = unbounded();
    let (client, path, known) = (client.clone(), list.path().to_owned(), present.to_vec());
    thread::Builder::new()
        .name("zklock-watch".to_owned())
        .spawn(move || wait_for_changes(&client, &path, known, &to))
        .map_err(|error| Failure::not_started("a thread", &error))?;
    Ok(changes)
}

/// Waits for changes; ends at the first change after the receiver is gone.
fn wait_for_changes(client: &Client, path: &str, mut known: Vec<Contender>, to: &Sender<Listing>) {
    let key = |one: &Contender| (one.node().to_owned(), one.token(), one.holds());
    loop {
        let deadline = Some(Instant::now() + LOOKS_AGAIN);
        let changed = client.wait_for_change_until(path, &known, deadline, &never());
        let Some(present) = changed.transpose() else {
            continue;
        };
        if let Ok(present) = &present {
            thread::sleep(PAUSE);
            if present.iter().map(key).eq(known.iter().map(key)) {
                continue;
            }
            known.clone_from(present);
        }
        let failed = present.is_err();
        if to.send(present).is_err() || failed {
            return;
        }
    }
}

/// Shows the contenders, and since when the list may be out of date.
fn show(list: &List, present: &[Contender], outage: &Outage, screen: bool) -> io::Result<()> {
    let mut to = io::stdout().lock();
    if list.json {
        let value = json(list.path(), present, outage.since());
        let text = match list.watch {
            true => format!("{value}"),
            false => format!("{value:#}"),
        };
        return writeln!(to, "{}", plain_json(&text));
    }
    outage.write_above(&mut to, screen)?;
    match present.is_empty() {
        true => writeln!(to, "nobody holds {} or waits for it", plain(list.path()))?,
        false => writeln!(to, "{}", table(present, outage.since()))?,
    }
    if list.watch && !screen {
        writeln!(to)?;
    }
    to.flush()
}
