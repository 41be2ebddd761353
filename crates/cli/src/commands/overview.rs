//! Lists all locks below a path, the longest wait first.

use std::cmp::Reverse;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, SystemTime};

use comfy_table::{ContentArrangement, Table, presets};
use crossbeam_channel::{RecvTimeoutError, bounded};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use zklock::diagnostics::{LockQueue, Locks};
use zklock::{Client, Contender, Error, FencingToken, Role, SessionState};

use crate::args::List;
use crate::failure::{Failure, NO_PERMISSION, has_reader, written};
use crate::outage::Outage;
use crate::sanitize::{plain, plain_json};
use crate::stderr::say;
use crate::table::{brief, millis, named, one};

const COLUMNS: [&str; 7] = [
    "LOCK", "KIND", "HOLDER", "SINCE", "WAITERS", "LONGEST", "NUMBERS",
];

/// A reading that takes longer than this is reported to the user.
const LONG: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// How often to look again with `--watch`.
const AGAIN: Duration = Duration::from_secs(2);

pub(crate) fn overview(client: &Client, list: &List) -> Result<u8, Failure> {
    let found = read(client, list.path())?;
    if list.watch {
        watch(client, list, found)?;
        return Ok(0);
    }
    // This fails if the reader has closed the pipe.
    written(show(list, &found, &Outage::default(), false))?;
    tell_what_was_not_read(found.unreadable());
    match found.unreadable() {
        [] => Ok(0),
        _ => Ok(NO_PERMISSION),
    }
}

/// Reads all locks; if that takes long, shows a line on the terminal.
fn read(client: &Client, root: &str) -> Result<Locks, Error> {
    let bar = ProgressBar::new_spinner();
    let (done, reading) = bounded::<()>(0);
    thread::scope(|scope| {
        let shown = thread::Builder::new().name("zklock-line".into());
        let shown = shown.spawn_scoped(scope, || {
            if reading.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
                bar.set_message(format!("reading all locks below {}", plain(root)));
                bar.enable_steady_tick(TICK);
                let _ = reading.recv();
                bar.finish_and_clear();
            }
        });
        let found = client.locks(root);
        drop(done);
        drop(shown);
        found
    })
}

/// Looks repeatedly and shows what has changed, until the output has no reader any more.
fn watch(client: &Client, list: &List, mut found: Locks) -> Result<(), Failure> {
    let screen = !list.json && io::stdout().is_terminal();
    let mut outage = Outage::default();
    let mut shown = None;
    loop {
        let now = outage.since().unwrap_or_else(SystemTime::now);
        let wanted = found.iter().filter(|queue| is_wanted(list, queue, now));
        let state = (outage.since(), contenders(wanted));
        // The times on a screen are updated even if nothing has changed.
        if screen || shown.as_ref() != Some(&state) {
            if let Err(error) = show(list, &found, &outage, screen) {
                return written(Err(error));
            }
        }
        shown = Some(state);
        thread::sleep(AGAIN);
        if !has_reader() {
            return Ok(());
        }
        if client.state() == SessionState::Connected {
            match client.locks(list.path()) {
                Ok(now) => found = now,
                Err(Error::ConnectTimeout { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        outage.look(client);
    }
}

fn contenders<'a>(queues: impl Iterator<Item = &'a LockQueue>) -> Vec<(String, bool)> {
    let all = queues.flat_map(LockQueue::contenders);
    all.map(|one| (one.node().to_owned(), one.holds()))
        .collect()
}

/// Reports how many unread nodes may hide more locks.
pub(crate) fn tell_what_was_not_read(unreadable: &[String]) {
    if let Some((first, others)) = unreadable.split_first() {
        let others = match others.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        say(&format!(
            "cannot read {}{others}, nor anything below: no permission, or too many children for a reply",
            plain(first)
        ));
    }
}

fn show(list: &List, found: &Locks, outage: &Outage, screen: bool) -> io::Result<()> {
    let now = outage.since().unwrap_or_else(SystemTime::now);
    let mut wanted: Vec<_> = found
        .iter()
        .filter(|queue| is_wanted(list, queue, now))
        .collect();
    wanted.sort_by_key(|queue| {
        let waited = queue.waited_for_since().map(|since| age(since, now));
        (Reverse(waited), queue.path())
    });
    let mut to = io::stdout().lock();
    if list.json {
        let value = json!({
            "root": list.path(),
            "locks": wanted.iter().map(|queue| entry(queue)).collect::<Vec<_>>(),
            "unreadable": found.unreadable(),
            "unanswered_since_ms": outage.since().map(millis),
        });
        let text = match list.watch {
            true => format!("{value}"),
            false => format!("{value:#}"),
        };
        return writeln!(to, "{}", plain_json(&text));
    }
    outage.write_above(&mut to, screen)?;
    match wanted.is_empty() {
        true => writeln!(to, "{}", nothing(list, found.unreadable()))?,
        false => writeln!(to, "{}", table(&wanted, now))?,
    }
    to.flush()
}

fn nothing(list: &List, unreadable: &[String]) -> String {
    let filtered = list.waiting || list.held || list.older_than.is_some() || list.host.is_some();
    let such = if filtered { "such a" } else { "a" };
    let seen = match unreadable {
        [] => "",
        _ => ", where it may be read",
    };
    format!(
        "nobody holds {such} lock below {}, or waits for one{seen}",
        plain(list.path())
    )
}

fn is_wanted(list: &List, queue: &LockQueue, now: SystemTime) -> bool {
    let old = |limit| {
        let mut ages = queue.contenders().iter().map(|one| age(one.since(), now));
        ages.any(|age| limit < age)
    };
    let of = |host: &str| {
        let mut hosts = queue
            .contenders()
            .iter()
            .map(|one| one.owner().host.as_deref());
        hosts.any(|its| its == Some(host))
    };
    (!list.waiting || queue.waiters().next().is_some())
        && (!list.held || queue.holders().next().is_some())
        && list.older_than.is_none_or(old)
        && list.host.as_deref().is_none_or(of)
}

fn table(queues: &[&LockQueue], now: SystemTime) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(COLUMNS);
    for queue in queues {
        table.add_row(row(queue, now));
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

fn row(queue: &LockQueue, now: SystemTime) -> [String; COLUMNS.len()] {
    let holders: Vec<_> = queue.holders().collect();
    let holder = match holders[..] {
        [] => "-".to_owned(),
        [one] => named(one),
        [one, ..] => format!("{} and {} more", named(one), holders.len() - 1),
    };
    let held = holders.iter().map(|one| one.since()).min();
    let since = |time: Option<SystemTime>| {
        time.map_or_else(|| "-".to_owned(), |time| brief(age(time, now)))
    };
    [
        plain(queue.path()),
        kind(queue),
        holder,
        since(held),
        queue.waiters().count().to_string(),
        since(queue.waited_for_since()),
        format!("{:.0}%", 100.0 * queue.numbers_used()),
    ]
}

fn kind(queue: &LockQueue) -> String {
    let role = queue.contenders().first().map(Contender::role);
    let kind = match (role, queue.permits()) {
        (Some(Role::Permit), Some(1)) => "1 permit".to_owned(),
        (Some(Role::Permit), Some(permits)) => format!("{permits} permits"),
        (Some(Role::Permit), None) => "semaphore".to_owned(),
        (Some(Role::Read | Role::Write), _) => "read-write".to_owned(),
        _ if queue.is_job() => "job".to_owned(),
        _ => "mutex".to_owned(),
    };
    match queue.abandoned() {
        Some(_) => format!("{kind}, abandoned"),
        None => kind,
    }
}

fn entry(queue: &LockQueue) -> Value {
    let contenders = queue.contenders().iter().enumerate();
    let contenders: Vec<_> = contenders
        .map(|(place, contender)| one(place + 1, contender))
        .collect();
    json!({
        "path": queue.path(),
        "kind": kind(queue),
        "permits": queue.permits(),
        "job": queue.is_job(),
        "abandoned": queue.abandoned().map(FencingToken::get),
        "numbers_used": queue.numbers_used(),
        "waited_for_since_ms": queue.waited_for_since().map(millis),
        "contenders": contenders,
    })
}

/// Returns the age of a time; zero if the servers' clock is ahead.
fn age(since: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(since).unwrap_or_default()
}
