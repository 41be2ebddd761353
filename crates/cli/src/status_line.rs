//! The line that a terminal shows during the wait for a server and for a lock, and the messages
//! that a log gets instead.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use zklock::{Client, Waiting};

use crate::sanitize::plain;
use crate::stderr::say;
use crate::table::{brief, who};
use crate::terminal::Terminal;

/// How often the line is drawn.
const TICK: Duration = Duration::from_millis(100);

/// The pictures of the spinner, one a tick.
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// How often the connection is checked for a log.
const LOOK: Duration = Duration::from_secs(1);

/// How long a server may take before the line says so.
const SOON: Duration = Duration::from_secs(1);

/// How long servers are silent before a log reports it, and before it reports it again.
const SILENT: Duration = Duration::from_secs(10);
const STILL_SILENT: Duration = Duration::from_secs(60);

/// Draws nothing unless stderr is a terminal, and this process is in its foreground. Otherwise a
/// log reports that no server answers, or that the lock is on hold.
#[derive(Debug)]
pub(crate) struct StatusLine(Option<Drawing<Seen>>);

/// Shows that no server has answered yet, if that takes long: on a terminal while it lasts, and
/// elsewhere once.
#[derive(Debug)]
pub(crate) struct ConnectingLine {
    drawing: Option<Drawing<String>>,
}

/// The thread that draws a line; it erases the line and ends when this is dropped.
#[derive(Debug)]
struct Drawing<T> {
    to: Option<Sender<T>>,
    /// Disconnected when the line is erased.
    ended: Receiver<()>,
}

/// How long to wait for the line to be erased. A terminal that was stopped with Ctrl-S must not
/// delay the next step.
const ERASE: Duration = Duration::from_millis(100);

/// What the line shows.
#[derive(Clone, Debug)]
struct Seen {
    place: String,
    /// The reason why the lock is on hold.
    hold: Option<String>,
    since: SystemTime,
}

/// A line on the terminal. A job that goes on in the background leaves it to the shell.
struct Line {
    bar: ProgressBar,
    terminal: Terminal,
    drawn: usize,
}

impl StatusLine {
    pub(crate) fn new(path: &str, foreground: bool, client: &Client) -> Self {
        let is_shown = foreground && io::stderr().is_terminal();
        // The library's log contains it too.
        if !is_shown && log::Level::Info <= log::max_level() {
            return Self(None);
        }
        let (path, client) = (plain(path), client.clone());
        Self(Drawing::start(move |seen| match is_shown {
            true => draw(&path, &client, seen),
            false => tell_of_silence(&path, &client, seen),
        }))
    }

    pub(crate) fn tell(&self, waiting: &Waiting) {
        let seen = Seen::new(waiting);
        if let Some(to) = self.0.as_ref().and_then(|drawing| drawing.to.as_ref()) {
            drop(to.send(seen));
        }
    }
}

impl ConnectingLine {
    pub(crate) fn new(hosts: &str) -> Self {
        // The library's log reports this too.
        let is_shown = log::max_level() < log::Level::Info
            && io::stderr().is_terminal()
            && Terminal::open().is_ours();
        let hosts = plain(hosts);
        let drawing = is_shown.then(|| Drawing::start(move |seen| draw_connecting(&hosts, seen)));
        Self {
            drawing: drawing.flatten(),
        }
    }

    /// Reports why each server has given no session so far; returns what stays to be read.
    pub(crate) fn tell(&self, trouble: &[String]) -> Option<String> {
        let trouble = trouble.join("; ");
        let drawing = self.drawing.as_ref();
        if let Some(to) = drawing.and_then(|drawing| drawing.to.as_ref()) {
            drop(to.send(plain(&trouble)));
            return None;
        }
        say(&format!("no server has answered yet, trying on: {trouble}"));
        Some(trouble)
    }
}

impl<T: Send + 'static> Drawing<T> {
    /// Runs `draw` in a thread, until its receiver is disconnected.
    fn start(draw: impl FnOnce(&Receiver<T>) + Send + 'static) -> Option<Self> {
        let (to, seen) = unbounded();
        let (end, ended) = bounded::<()>(1);
        let drawing = thread::Builder::new()
            .name("zklock-line".into())
            .spawn(move || {
                draw(&seen);
                drop(end);
            });
        let to = Some(to);
        drawing.ok().map(|_| Self { to, ended })
    }
}

impl<T> Drop for Drawing<T> {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.ended.recv_timeout(ERASE);
    }
}

impl Seen {
    fn new(waiting: &Waiting) -> Self {
        let ahead = waiting.ahead();
        let name = ahead.map_or_else(|| "somebody".to_owned(), |ahead| who(ahead.owner()));
        let hold = ahead.and_then(zklock::Contender::hold);
        let hold = hold.map(|hold| plain(&hold.to_string()));
        let place = match (waiting.position(), ahead) {
            _ if hold.is_some() => hold.clone().unwrap_or_default(),
            (1, Some(ahead)) if ahead.holds() => format!("held by {name}"),
            (count, _) => format!("{count} ahead, the nearest is {name}"),
        };
        Self {
            place,
            hold,
            since: ahead.map_or_else(SystemTime::now, zklock::Contender::since),
        }
    }
}

/// Draws until the sender is gone.
fn draw(path: &str, client: &Client, seen: &Receiver<Seen>) {
    // Without a wait there is no line.
    let Ok(mut now) = seen.recv() else { return };
    let started = Instant::now();
    let mut line = Line::new();
    loop {
        let silent = client.silent_for();
        let waited = started.elapsed();
        line.show(&match client.held_back() {
            Some(left) => format!("waiting {} for {}", brief(waited), held_back(path, left)),
            None => text(path, &now, waited, silent),
        });
        match seen.recv_timeout(TICK) {
            Ok(next) => now = next,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
}

/// Draws until the sender is gone.
fn draw_connecting(hosts: &str, seen: &Receiver<String>) {
    let started = Instant::now();
    let mut shown = match seen.recv_timeout(SOON) {
        Ok(trouble) => trouble,
        Err(RecvTimeoutError::Timeout) => hosts.to_owned(),
        Err(RecvTimeoutError::Disconnected) => return,
    };
    let mut line = Line::new();
    loop {
        match seen.recv_timeout(TICK) {
            Ok(trouble) => shown = trouble,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let waited = brief(started.elapsed());
        line.show(&format!("waiting {waited} for a server: {shown}"));
    }
}

/// Reports from time to time that no server answers, and what delays the grant after that, until
/// the sender is gone.
fn tell_of_silence(path: &str, client: &Client, seen: &Receiver<Seen>) {
    let (mut next, mut told, mut told_hold) = (SILENT, false, None);
    loop {
        let left = client.held_back();
        if let Some(left) = left.filter(|_| !told) {
            say(&format!("waiting for {}", held_back(path, left)));
        }
        told = left.is_some();
        match client.silent_for() {
            Some(silent) if next <= silent => {
                let why = client.why_silent().map(|why| format!(" {}", plain(&why)));
                say(&format!(
                    "waiting for {path}: no server has answered for {}{}",
                    brief(silent),
                    why.unwrap_or_default()
                ));
                next = silent + STILL_SILENT;
            }
            Some(_) => {}
            None => next = SILENT,
        }
        match seen.recv_timeout(LOOK) {
            // The hold may last long.
            Ok(Seen {
                hold: Some(hold), ..
            }) if told_hold.as_ref() != Some(&hold) => {
                // The lock is one of several.
                let taken = client.found_taken().map(|(path, _)| plain(&path));
                let path = taken.as_deref().unwrap_or(path);
                say(&format!("waiting for {path}, which is {hold}"));
                told_hold = Some(hold);
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Returns the text about a lock that is free and not granted yet.
fn held_back(path: &str, left: Duration) -> String {
    // The time is rounded up, to allow for what starts meanwhile.
    let left = brief(Duration::from_secs(left.as_secs() + 1));
    format!(
        "{path}: nobody is ahead, and it is granted in {left}: the connection was lost, and the servers may \
         still be about to end this session"
    )
}

impl Line {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        let terminal = Terminal::open();
        Self {
            bar,
            terminal,
            drawn: 0,
        }
    }

    /// Draws the line once. A stop between two draws would put the second one over the shell's prompt.
    fn show(&mut self, text: &str) {
        if self.terminal.is_no_others() {
            let spinner = SPINNER[self.drawn % SPINNER.len()];
            self.bar.set_message(format!("{spinner} {text}"));
            self.drawn += 1;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.terminal.is_no_others() {
            // Even a bar that is abandoned is drawn once more.
            self.bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        self.bar.finish_and_clear();
    }
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
