//! The description in a row: who holds the lock, for those who look into the table.

use std::thread;

use serde_json::json;

/// Returns the description as JSON, of this process and the thread that calls.
pub(super) fn description() -> String {
    /// The column has room for all four even if every character has to be escaped.
    const LONGEST: usize = 50;
    let short = |text: String| text.chars().take(LONGEST).collect::<String>();
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_name());
    json!({
        "host": host().map(short),
        "pid": std::process::id(),
        "program": program.map(|name| short(name.to_string_lossy().into_owned())),
        "thread": thread::current().name().map(|name| short(name.to_owned())),
    })
    .to_string()
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
