//! What a check has found.

use comfy_table::{ContentArrangement, Table, presets};
use console::{StyledObject, style};
use serde_json::{Value, json};

use crate::sanitize::plain;

/// How bad a finding is; its number is the exit status.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Level {
    Good = 0,
    Warning = 1,
    Trouble = 2,
}

/// What was found about one thing.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The server or the path.
    about: String,
    what: String,
    /// What to do.
    advice: Option<String>,
}

impl Finding {
    pub(super) fn new(level: Level, about: &str, what: impl Into<String>) -> Self {
        Self {
            level,
            about: about.to_owned(),
            what: what.into(),
            advice: None,
        }
    }

    pub(super) fn good(about: &str, what: impl Into<String>) -> Self {
        Self::new(Level::Good, about, what)
    }

    pub(super) fn advice(mut self, what_to_do: impl Into<String>) -> Self {
        self.advice = Some(what_to_do.into());
        self
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "level": self.level.word(),
            "about": self.about,
            "what": self.what,
            "do": self.advice,
        })
    }
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Trouble => "trouble",
        }
    }
}

/// Returns one line for each finding.
pub(super) fn table(findings: &[Finding]) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["STATE", "ABOUT", "FOUND", "DO"]);
    for finding in findings {
        table.add_row([
            finding.level.word().to_owned(),
            plain(&finding.about),
            plain(&finding.what),
            plain(finding.advice.as_deref().unwrap_or_default()),
        ]);
    }
    let lines = table.lines().map(|line| in_colour(line.trim()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Colours the state at the beginning of a line if stdout is a terminal that supports
/// colours, and `NO_COLOR` is not set.
fn in_colour(line: &str) -> String {
    let states = [
        (Level::Warning, style("warning").yellow()),
        (Level::Trouble, style("trouble").red()),
    ];
    let begins = |(level, _): &(Level, StyledObject<&str>)| line.starts_with(level.word());
    match states.into_iter().find(begins) {
        Some((level, word)) => format!("{word}{}", &line[level.word().len()..]),
        None => line.to_owned(),
    }
}
