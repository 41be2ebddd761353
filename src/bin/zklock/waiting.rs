//! The one line that a terminal shows while we wait.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use indicatif::{ProgressBar, ProgressStyle};
use zklock::{Client, Waiting};

use crate::away::Away;
use crate::plain::plain;
use crate::table::{brief, who};

/// How often the line moves.
const TICK: Duration = Duration::from_millis(100);

/// Draws nothing if nobody looks: not on a terminal, or in the background of one.
#[derive(Debug)]
pub(crate) struct Line(Option<Drawing>);

#[derive(Debug)]
struct Drawing {
    to: Sender<Seen>,
    /// Told when the line is gone.
    ended: Receiver<()>,
}

/// How long the end of the wait waits for the line to be gone. A terminal that shows
/// nothing any more, after Ctrl-S, must not keep us from what comes next.
const ERASE: Duration = Duration::from_millis(100);

/// What the line is about.
#[derive(Clone, Debug)]
struct Seen {
    place: String,
    since: SystemTime,
}

impl Line {
    pub(crate) fn new(path: &str, foreground: bool, client: &Client) -> Self {
        if !foreground || !io::stderr().is_terminal() {
            return Self(None);
        }
        let (to, seen) = unbounded();
        let (end, ended) = bounded::<()>(1);
        let (path, client) = (plain(path), client.clone());
        let drawing = thread::Builder::new()
            .name("zklock-line".into())
            .spawn(move || {
                draw(&path, &client, &seen);
                drop(end);
            });
        Self(drawing.ok().map(|_| Drawing { to, ended }))
    }

    pub(crate) fn tell(&self, waiting: &Waiting) {
        let seen = Seen::new(waiting);
        log::info!("{}", seen.place);
        if let Some(drawing) = &self.0 {
            drop(drawing.to.send(seen));
        }
    }
}

impl Drop for Line {
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

/// Draws until nobody tells anything any more.
fn draw(path: &str, client: &Client, seen: &Receiver<Seen>) {
    // Who gets the lock at once sees nothing.
    let Ok(mut now) = seen.recv() else { return };
    let (started, mut away) = (Instant::now(), Away::default());
    let bar = bar();
    loop {
        let silent = away.look(client);
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

fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

fn text(path: &str, seen: &Seen, waited: Duration, silent: Option<Duration>) -> String {
    let waited = brief(waited);
    // Another machine's clock may be ahead of ours.
    let since = seen.since.elapsed().unwrap_or_default();
    match silent {
        None => format!(
            "waiting {waited} for {path}: {} for {}",
            seen.place,
            brief(since)
        ),
        Some(silent) => format!(
            "waiting {waited} for {path}: no server has answered for {}, before it was {} for {}",
            brief(silent),
            seen.place,
            brief(since.saturating_sub(silent))
        ),
    }
}
