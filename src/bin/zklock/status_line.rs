//! The line that a terminal shows during the wait for a lock, and what a log gets instead.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use indicatif::{ProgressBar, ProgressStyle};
use zklock::{Client, Waiting};

use crate::outage::Outage;
use crate::sanitize::plain;
use crate::stderr::say;
use crate::table::{brief, who};

/// How often the line is drawn.
const TICK: Duration = Duration::from_millis(100);
/// How often the connection is checked for a log.
const LOOK: Duration = Duration::from_secs(1);

/// How long servers are silent before a log reports it, and before it reports it again.
const SILENT: Duration = Duration::from_secs(10);
const STILL_SILENT: Duration = Duration::from_secs(60);

/// Draws nothing unless stderr is a terminal, and this process is in its foreground. A log is
/// told when no server answers.
#[derive(Debug)]
pub(crate) struct StatusLine(Option<Drawing>);

#[derive(Debug)]
struct Drawing {
    to: Sender<Seen>,
    /// Disconnected when the line is erased.
    ended: Receiver<()>,
}

/// How long to wait for the line to be erased. A terminal that was stopped with Ctrl-S must
/// not delay what follows.
const ERASE: Duration = Duration::from_millis(100);

/// What the line shows.
#[derive(Clone, Debug)]
struct Seen {
    place: String,
    since: SystemTime,
}

impl StatusLine {
    pub(crate) fn new(path: &str, foreground: bool, client: &Client) -> Self {
        let is_shown = foreground && io::stderr().is_terminal();
        // The library's log contains it too.
        if !is_shown && log::Level::Info <= log::max_level() {
            return Self(None);
        }
        let (to, seen) = unbounded();
        let (end, ended) = bounded::<()>(1);
        let (path, client) = (plain(path), client.clone());
        let drawing = thread::Builder::new()
            .name("zklock-line".into())
            .spawn(move || {
                match is_shown {
                    true => draw(&path, &client, &seen),
                    false => tell_of_silence(&path, &client, &seen),
                }
                drop(end);
            });
        Self(drawing.ok().map(|_| Drawing { to, ended }))
    }

    pub(crate) fn tell(&self, waiting: &Waiting) {
        let seen = Seen::new(waiting);
        if let Some(drawing) = &self.0 {
            drop(drawing.to.send(seen));
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if let Some(Drawing { to, ended }) = self.0.take() {
            drop(to);
            let _ = ended.recv_timeout(ERASE);
        }
    }
}

impl Seen {
    fn new(waiting: &Waiting) -> Self {
        let ahead = waiting.ahead();
        let name = ahead.map_or_else(|| "somebody".to_owned(), |ahead| who(ahead.owner()));
        let place = match (waiting.position(), ahead) {
            (1, Some(ahead)) if ahead.holds() => format!("held by {name}"),
            (count, _) => format!("{count} ahead, the nearest is {name}"),
        };
        Self {
            place,
            since: ahead.map_or_else(SystemTime::now, zklock::Contender::since),
        }
    }
}

/// Draws until the sender is gone.
fn draw(path: &str, client: &Client, seen: &Receiver<Seen>) {
    // Without a wait there is no line.
    let Ok(mut now) = seen.recv() else { return };
    let (started, mut outage) = (Instant::now(), Outage::default());
    let bar = bar();
    loop {
        let silent = outage.look(client);
        bar.set_message(text(path, &now, started.elapsed(), silent));
        bar.tick();
        match seen.recv_timeout(TICK) {
            Ok(next) => now = next,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    bar.finish_and_clear();
}

/// Reports from time to time that no server answers, until the sender is gone.
fn tell_of_silence(path: &str, client: &Client, seen: &Receiver<Seen>) {
    let (mut outage, mut next) = (Outage::default(), SILENT);
    loop {
        match outage.look(client) {
            Some(silent) if next <= silent => {
                say(&format!(
                    "waiting for {path}: no server has answered for {}",
                    brief(silent)
                ));
                next = silent + STILL_SILENT;
            }
            Some(_) => {}
            None => next = SILENT,
        }
        match seen.recv_timeout(LOOK) {
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

fn text(path: &str, seen: &Seen, waited: Duration, silent: Option<Duration>) -> String {
    let waited = brief(waited);
    // The other machine's clock may be ahead.
    let since = seen.since.elapsed().unwrap_or_default();
    match silent {
        None => format!(
            "waiting {waited} for {path}: {}, queued {} ago",
            seen.place,
            brief(since)
        ),
        Some(silent) => format!(
            "waiting {waited} for {path}: no server has answered for {}, before it was {}, queued {} ago",
            brief(silent),
            seen.place,
            brief(since.saturating_sub(silent))
        ),
    }
}
