//! The result of a check.

use comfy_table::{ContentArrangement, Table, presets};
use console::{StyledObject, Term, style};
use serde_json::{Value, json};

use crate::sanitize::plain;

/// How bad a finding is; its number is the exit status.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Level {
    Good = 0,
    Warning = 1,
    Trouble = 2,
}

/// A finding about one thing.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The server or the path.
    about: String,
    what: String,
    /// The advice what to do.
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

/// Returns the number of columns of stdout, if it is a terminal.
pub(super) fn columns() -> Option<u16> {
    Term::stdout().size_checked().map(|size| size.1)
}

/// Returns one line for each finding, or as many as a table of this many columns takes.
pub(super) fn table(findings: &[Finding], columns: Option<u16>) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["STATE", "ABOUT", "FOUND", "DO"]);
    if let Some(columns) = columns {
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(columns.max(NARROWEST));
    }
    for finding in findings {
        table.add_row([
            finding.level.word().to_owned(),
            plain(&finding.about),
            plain(&finding.what),
            plain(finding.advice.as_deref().unwrap_or_default()),
        ]);
    }
    let lines = table.lines().map(|line| {
        let line = line.strip_prefix(' ').unwrap_or(&line);
        in_colour(line.trim_end())
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The narrowest table: in fewer columns, words would be cut.
const NARROWEST: u16 = 60;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_finding_is_a_line_in_a_file_and_fits_on_a_terminal() {
        let found = "no word of it fits beside another ".repeat(10);
        let advice = "look whether it runs ".repeat(5);
        let finding = Finding::new(Level::Trouble, "zk1:2181", found).advice(advice);
        let findings = [finding.clone(), finding];
        assert_eq!(table(&findings, None).lines().count(), 3);
        for columns in [60, 80, 133] {
            let shown = table(&findings, Some(columns));
            let longest = shown.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns.into()), "{columns}: {shown}");
            assert!(shown.contains("DO"), "{shown}");
        }
    }
}
