//! The tables of `docs/interop.md`, made from the outcomes.

use std::fmt::Write as _;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use zklock::Dialect;

use super::contender::Said;
use super::kinds::{CURATOR_WRITE, Kind, THEIRS, of_ours};
use super::meeting::{Meeting, Outcome, meet};
use super::peer::server;
use crate::support::fresh_path;

/// The variable that makes the tests rewrite the committed tables.
const BLESS: &str = "ZKLOCK_BLESS";

const BEGIN: &str = "<!-- begin: written by tests/interop -->\n";
const END: &str = "<!-- end: written by tests/interop -->\n";

/// How many meetings take place at once; most of the time is spent waiting.
const AT_ONCE: usize = 12;

/// A dialect and our locks that exist in it.
const OURS: [(Dialect, &[&str]); 4] = [
    (Dialect::Curator, &["mutex", "read", "write", "semaphore:1"]),
    (Dialect::Kazoo, &["mutex", "read", "write", "semaphore:1"]),
    (Dialect::Recipe, &["mutex", "read", "write"]),
    (Dialect::LeaderLatch, &["mutex", "standby"]),
];

/// A cell: theirs and ours in both orders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) ours: Kind,
    pub(crate) theirs: Kind,
    /// Ours holds, theirs comes.
    pub(crate) behind_us: Meeting,
    /// Theirs holds, ours comes.
    pub(crate) behind_them: Meeting,
}

/// Lets every kind meet every other.
pub(crate) fn measure() -> Vec<Cell> {
    let mut pairs = Vec::new();
    for theirs in THEIRS.into_iter().filter(|kind| kind.is_here()) {
        for (dialect, words) in OURS {
            pairs.extend(words.iter().map(|word| (of_ours(dialect, word), theirs)));
        }
    }
    let count = pairs.len();
    let next = AtomicUsize::new(0);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count);
    let work = || iter::from_fn(take).map(|i| (i, cell(pairs[i]))).collect();
    let mut cells = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let cells = workers
            .into_iter()
            .map(|worker| worker.join().expect("a meeting"));
        cells.flat_map(|cells: Vec<_>| cells).collect::<Vec<_>>()
    });
    cells.sort_by_key(|(place, _)| *place);
    cells.into_iter().map(|(_, cell)| cell).collect()
}

fn cell((ours, theirs): (Kind, Kind)) -> Cell {
    Cell {
        ours,
        theirs,
        behind_us: meet(ours, theirs),
        behind_them: meet(theirs, ours),
    }
}

/// Writes one table per dialect; rows that could not be measured are taken from `before`.
pub(crate) fn write(cells: &[Cell], before: &str) -> String {
    let mut text = String::new();
    for (dialect, words) in OURS {
        writeln!(text, "\n### `Dialect::{dialect:?}`\n").expect("writing to a string");
        writeln!(text, "| theirs | {} |", words.join(" | ")).expect("writing to a string");
        writeln!(text, "|---|{}", "---|".repeat(words.len())).expect("writing to a string");
        let section = section(before, dialect);
        for theirs in THEIRS {
            let start = format!("| {} |", theirs.label);
            if !theirs.is_here() {
                let known = section.lines().find(|line| line.starts_with(&start));
                writeln!(text, "{}", known.unwrap_or(&start)).expect("writing to a string");
                continue;
            }
            let cells = words.iter().map(|word| {
                let found =
                    |cell: &&Cell| cell.theirs == theirs && cell.ours == of_ours(dialect, word);
                cells.iter().find(found).map_or_else(String::new, describe)
            });
            let cells: Vec<_> = cells.collect();
            writeln!(text, "{start} {} |", cells.join(" | ")).expect("writing to a string");
        }
    }
    text
}

/// Returns what happens to a writer of ours behind one of Curator's that becomes a reader.
pub(crate) fn downgrade_of_curators() -> String {
    let (ours, theirs) = (of_ours(Dialect::Curator, "write"), CURATOR_WRITE);
    let hosts = server().hosts();
    let path = fresh_path("downgrade");
    let (writer, comer) = (theirs.contender(&hosts), ours.contender(&hosts));
    writer.lock(theirs.word, &path);
    writer.held();
    comer.lock(ours.word, &path);
    assert_eq!(comer.said().recv(), Ok(Said::Waiting));
    writer.downgrade();
    writer.held();
    let both = comer
        .hear_within(Duration::from_secs(2))
        .is_some_and(|said| said != Said::Waiting);
    writer.release();
    let word = if both { "**holds**" } else { "waits" };
    format!("Curator's writer becomes a reader while a writer of ours waits: ours {word}.\n")
}

fn section(text: &str, dialect: Dialect) -> &str {
    let title = format!("### `Dialect::{dialect:?}`");
    let rest = text.split_once(&title).map_or("", |(_, rest)| rest);
    rest.split_once("###").map_or(rest, |(section, _)| section)
}

fn describe(cell: &Cell) -> String {
    let (us, them) = (cell.behind_us, cell.behind_them);
    let mut text = format!("{}, {}", word(us.outcome), word(them.outcome));
    if let Some(next) = us
        .next_of_ours
        .filter(|next| matches!(next, Outcome::Refused(_)) && *next != them.outcome)
    {
        write!(text, " (the next of ours: {})", word(next)).expect("writing to a string");
    }
    text
}

fn word(outcome: Outcome) -> String {
    match outcome {
        Outcome::Waited => "waits".to_owned(),
        Outcome::Shared => "shares".to_owned(),
        Outcome::BothHeld => "**holds**".to_owned(),
        Outcome::Refused(Some(dialect)) => format!("refuses: `{dialect:?}`"),
        Outcome::Refused(None) => "refuses".to_owned(),
        Outcome::Failed => "fails".to_owned(),
    }
}

/// Returns the committed tables, without the text around them.
pub(crate) fn committed() -> String {
    let text = fs::read_to_string(page()).unwrap_or_default();
    let rest = text.split_once(BEGIN).map_or("", |(_, rest)| rest);
    rest.split_once(END)
        .map_or("", |(tables, _)| tables)
        .to_owned()
}

/// Compares the tables with the committed ones, or writes them if that was asked for.
///
/// They are the same with the versions that the page names. Other versions may behave
/// differently; then the differences are printed, but the mutual exclusion must be the same.
pub(crate) fn compare_or_bless(versions: &str, tables: &str) {
    let before = committed();
    let (known_versions, known) = before.split_once("\n\n").unwrap_or_default();
    if std::env::var_os(BLESS).is_some() {
        let text = fs::read_to_string(page()).expect("reading docs/interop.md");
        let new = text.replace(
            &format!("{BEGIN}{before}{END}"),
            &format!("{BEGIN}{versions}\n\n{}{END}", tables.trim_start()),
        );
        fs::write(page(), new).expect("writing docs/interop.md");
        return;
    }
    let tables = tables.trim_start();
    for (there, here) in known.lines().zip(tables.lines()) {
        if there != here {
            println!("docs/interop.md: {there}\nhere:            {here}");
        }
    }
    if are_named(versions, known_versions) {
        assert!(
            known == tables,
            "docs/interop.md differs from what happens; {BLESS}=1 rewrites it"
        );
        return;
    }
    println!("docs/interop.md is about other versions.\nthere: {known_versions}\nhere: {versions}");
    assert_eq!(known.lines().count(), tables.lines().count());
    for (there, here) in known.lines().zip(tables.lines()) {
        assert!(keeps_exclusion(there, here), "{there}\n{here}");
    }
}

/// Returns whether the page names all of these versions; not all of its libraries must be
/// available.
fn are_named(versions: &str, page: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let text = text
            .trim_start_matches("Measured with ")
            .trim_end_matches('.');
        text.split(' ').map(str::to_owned).collect()
    };
    let (here, page) = (words(versions), words(page));
    here.chunks(2)
        .all(|one| page.chunks(2).any(|other| one == other))
}

/// Returns whether the cells in which both sides waited for each other, or shared, are the same.
fn keeps_exclusion(there: &str, here: &str) -> bool {
    let cells = there.split('|').zip(here.split('|'));
    cells.into_iter().all(|(there, here)| {
        let excludes = ["waits, waits", "shares, shares"].contains(&there.trim());
        !excludes || there == here
    })
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/interop.md")
}
