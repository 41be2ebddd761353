//! The one line that a terminal shows while we wait.

use std::io::{self, IsTerminal};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{RecvTimeoutError, Sender, unbounded};
use indicatif::{ProgressBar, ProgressStyle};
use zklock::Waiting;

use crate::table::{brief, plain, who};

/// How often the line moves.
const TICK: Duration = Duration::from_millis(100);

/// Draws nothing if nobody looks: not on a terminal, or in the background of one.
#[derive(Debug)]
pub(crate) struct Line(Option<(Sender<Seen>, JoinHandle<()>)>);

/// What the line is about.
#[derive(Clone, Debug)]
struct Seen {
    place: String,
    since: SystemTime,
}

impl Line {
    pub(crate) fn new(path: &str, foreground: bool) -> Self {
        if !foreground || !io::stderr().is_terminal() {
            return Self(None);
        }
        let (to, seen) = unbounded::<Seen>();
        let path = plain(path);
        let drawing = thread::Builder::new()
            .name("zklock-line".into())
            .spawn(move || {
                // Who gets the lock at once sees nothing.
                let Ok(mut now) = seen.recv() else { return };
                let started = Instant::now();
                let bar = bar();
                loop {
                    bar.set_message(text(&path, &now, started.elapsed()));
                    bar.tick();
                    match seen.recv_timeout(TICK) {
                        Ok(next) => now = next,
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
                bar.finish_and_clear();
            });
        Self(drawing.ok().map(|drawing| (to, drawing)))
    }

    pub(crate) fn tell(&self, waiting: &Waiting) {
        let seen = Seen::new(waiting);
        log::info!("{}", seen.place);
        if let Some((to, _)) = &self.0 {
            drop(to.send(seen));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some((to, drawing)) = self.0.take() {
            drop(to);
            drop(drawing.join());
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

fn bar() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

fn text(path: &str, seen: &Seen, waited: Duration) -> String {
    // Another machine's clock may be ahead of ours.
    let since = seen.since.elapsed().unwrap_or_default();
    format!(
        "waiting {} for {path}: {} for {}",
        brief(waited),
        seen.place,
        brief(since)
    )
}
