//! The description in a row: the holder of the lock, for people who read the table.

use std::thread;

use serde_json::json;

/// The column has room for all parts even if every character has to be escaped.
const LONGEST_NAME: usize = 50;
const LONGEST_NOTE: usize = 200;

/// Returns a description of this process and the calling thread, as JSON.
pub(super) fn description(note: Option<&str>) -> String {
    let short = |text: &str| shortened(text, LONGEST_NAME);
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_name());
    let mut description = json!({
        "host": host().as_deref().map(short),
        "pid": std::process::id(),
        "program": program.map(|name| short(&name.to_string_lossy())),
        "thread": thread::current().name().map(short),
    });
    if let Some(note) = note {
        description["note"] = shortened(note, LONGEST_NOTE).into();
    }
    description.to_string()
}

/// Returns the first characters, without those that JSON escapes as six.
fn shortened(text: &str, longest: usize) -> String {
    let text = text.replace(char::is_control, "\u{fffd}");
    text.chars().take(longest).collect()
}

#[cfg(unix)]
fn host() -> Option<String> {
    let host = rustix::system::uname();
    Some(host.nodename().to_string_lossy().into_owned())
}

#[cfg(not(unix))]
fn host() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}
