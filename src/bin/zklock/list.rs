//! Lists who holds a lock and who waits for it.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, select, unbounded};
use zklock::{Client, Contender};

use crate::args::{Args, List};
use crate::away::Away;
use crate::connect::connect;
use crate::failure::Failure;
use crate::plain::{plain, plain_json};
use crate::queue::Queue;
use crate::table::{brief, json, table};

/// How often we look whether a server is there. On a terminal the times go on, too; no
/// server is asked for it.
const REDRAW: Duration = Duration::from_secs(1);

/// The shortest time between two looks at one place, however often it changes.
const PAUSE: Duration = Duration::from_millis(50);

/// How long one wait for a change lasts.
const HOUR: Duration = Duration::from_secs(3_600);

/// Moves the cursor to the corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// It looks different now.
type Change = zklock::Result<Vec<Contender>>;

pub(crate) fn list(args: &Args, list: &List) -> Result<u8, Failure> {
    let client = connect(args, None, Duration::MAX)?;
    let queue = Queue::read(&client, &list.path)?;
    if list.watch {
        watch(&client, list, queue)?;
    } else {
        // If it fails, whoever read it has seen enough.
        drop(show(list, &queue, &Away::default(), false));
    }
    drop(client.close());
    Ok(0)
}

/// Goes on until nobody reads it any more.
fn watch(client: &Client, list: &List, mut queue: Queue) -> Result<(), Failure> {
    let screen = !list.json && io::stdout().is_terminal();
    let changes = onlooker(client, list, &queue)?;
    let mut away = Away::default();
    while show(list, &queue, &away, screen).is_ok() {
        let known = away.since();
        loop {
            select! {
                recv(changes) -> change => {
                    let Ok(present) = change else { return Ok(()) };
                    queue = Queue::new(present?);
                    away.look(client);
                    break;
                }
                default(REDRAW) => {
                    away.look(client);
                    if screen || away.since() != known {
                        break;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Looks on in a thread of its own.
fn onlooker(client: &Client, list: &List, queue: &Queue) -> Result<Receiver<Change>, Failure> {
    let (to, changes) = unbounded();
    let (client, path, known) = (
        client.clone(),
        list.path.clone(),
        queue.contenders().to_vec(),
    );
    thread::Builder::new()
        .name("zklock-watch".to_owned())
        .spawn(move || look_on(&client, &path, known, &to))
        .map_err(|error| Failure::other(format!("cannot start a thread: {error}")))?;
    Ok(changes)
}

/// Ends when nobody listens, at the first change after that.
fn look_on(client: &Client, path: &str, mut known: Vec<Contender>, to: &Sender<Change>) {
    let key = |one: &Contender| (one.node().to_owned(), one.token(), one.holds());
    loop {
        let present = client.contenders_changed(path, &known, HOUR);
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

/// Shows the queue, and since when it may not be like that any more.
fn show(list: &List, queue: &Queue, away: &Away, screen: bool) -> io::Result<()> {
    let mut to = io::stdout().lock();
    if list.json {
        let value = json(&list.path, queue, away.since());
        let text = match list.watch {
            true => format!("{value}"),
            false => format!("{value:#}"),
        };
        return writeln!(to, "{}", plain_json(&text));
    }
    if screen {
        write!(to, "{CLEAR}")?;
    }
    if let Some(since) = away.since() {
        let silent = brief(since.elapsed().unwrap_or_default());
        writeln!(
            to,
            "no server has answered for {silent}, and this is how it was then:"
        )?;
    }
    match queue.contenders().is_empty() {
        true => writeln!(to, "nobody holds {} or waits for it", plain(&list.path))?,
        false => writeln!(to, "{}", table(queue, away.since()))?,
    }
    if list.watch && !screen {
        writeln!(to)?;
    }
    to.flush()
}
