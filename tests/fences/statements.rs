//! The statements of `docs/fencing.md`, with the fence in each of them, and without it.

use std::fs;
use std::path::Path;

/// Returns the statements on the page that are marked with these words.
#[track_caller]
pub(crate) fn marked(words: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fencing.md");
    let page = fs::read_to_string(page).expect("the page on fencing");
    let begins = format!("```sql {words}\n");
    let (_, rest) = page
        .split_once(&begins)
        .unwrap_or_else(|| panic!("no statements are marked {words:?}"));
    let (statements, _) = rest.split_once("```").expect("the end of the statements");
    statements.to_owned()
}

/// Removes the fence from statements.
#[track_caller]
pub(crate) fn without(statements: &str, fence: &str, instead: &str) -> String {
    assert!(statements.contains(fence), "no {fence:?} in {statements}");
    statements.replace(fence, instead)
}
