//! Shows contenders: to people as a table, to programs as JSON.
//!
//! Control characters are removed from text in other clients' nodes.

use std::time::{Duration, SystemTime};

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};
use zklock::diagnostics::Hold;
use zklock::{Contender, Owner, Role};

use crate::sanitize::plain;

const COLUMNS: [&str; 11] = [
    "PLACE", "STATE", "ROLE", "QUEUED", "HOST", "PID", "PROGRAM", "NOTE", "SESSION", "TOKEN",
    "NODE",
];

/// Moves the cursor to the corner and clears the screen.
pub(crate) const CLEAR: &str = "\x1b[H\x1b[2J";

/// Returns the table, one line per contender, as of a server's last answer.
pub(crate) fn table(contenders: &[Contender], outage: Option<SystemTime>) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(COLUMNS);
    let now = outage.unwrap_or_else(SystemTime::now);
    for (place, contender) in contenders.iter().enumerate() {
        table.add_row(row(place + 1, contender, now));
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

/// Returns the contenders, and since when no server answers, if none does. Fields may be added, but
/// are not removed.
pub(crate) fn json(path: &str, contenders: &[Contender], outage: Option<SystemTime>) -> Value {
    let contenders: Vec<_> = contenders
        .iter()
        .enumerate()
        .map(|(place, contender)| one(place + 1, contender))
        .collect();
    json!({
        "path": path,
        "contenders": contenders,
        "unanswered_since_ms": outage.map(millis),
    })
}

/// Names a contender, for example `db1 pid 4711 (report.sh)`.
pub(crate) fn who(owner: &Owner) -> String {
    if let Some(text) = &owner.text {
        return format!("{:?}", plain(text));
    }
    let mut words = vec![
        owner
            .host
            .clone()
            .unwrap_or_else(|| "an unknown host".into()),
    ];
    words.extend(owner.pid.map(|pid| format!("pid {pid}")));
    let program = owner.program.as_deref();
    // The command under the lock says more than the program that runs it.
    let name = owner.note.as_deref().or(program);
    words.extend(name.map(|name| format!("({name})")));
    plain(&words.join(" "))
}

/// Returns a duration in its two largest units.
pub(crate) fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

/// Returns how far this time is ahead of this machine's clock, if not by less than clocks usually differ.
pub(crate) fn time_ahead(time: SystemTime) -> Option<Duration> {
    let ahead = time.duration_since(SystemTime::now()).ok()?;
    (Duration::from_secs(60) < ahead).then_some(ahead)
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Exclusive => "exclusive",
        Role::Read => "read",
        Role::Write => "write",
        Role::Permit => "permit",
    }
}

fn row(place: usize, contender: &Contender, now: SystemTime) -> [String; COLUMNS.len()] {
    let owner = contender.owner();
    // The other machine's clock may be ahead.
    let since = now.duration_since(contender.since()).unwrap_or_default();
    let text = |text: &Option<String>| text.as_deref().map_or_else(|| "-".into(), plain);
    [
        place.to_string(),
        if contender.holds() { "holds" } else { "waits" }.to_owned(),
        role(contender.role()).to_owned(),
        brief(since),
        text(&owner.host),
        owner.pid.map_or_else(|| "-".into(), |pid| pid.to_string()),
        text(&owner.program),
        match contender.hold() {
            Some(hold) => plain(&hold.to_string()),
            // For a foreign client, only its own text is known.
            None => text(&owner.note.clone().or_else(|| owner.text.clone())),
        },
        session(contender),
        contender.token().to_string(),
        plain(name(contender)),
    ]
}

pub(crate) fn one(place: usize, contender: &Contender) -> Value {
    let owner = contender.owner();
    json!({
        "place": place,
        "holds": contender.holds(),
        "role": role(contender.role()),
        "since_ms": millis(contender.since()),
        "session": session(contender),
        "token": contender.token().get(),
        "node": contender.node(),
        "hold": contender.hold().map(hold),
        "owner": {
            "host": owner.host,
            "pid": owner.pid,
            "program": owner.program,
            "thread": owner.thread,
            "started_ms": owner.started.map(millis),
            "note": owner.note,
            "text": owner.text,
            "inside": owner.inside,
        },
    })
}

/// Returns the description of a hold.
pub(crate) fn hold(hold: &Hold) -> Value {
    json!({
        "reason": hold.reason(),
        "by": hold.by(),
        "until_ms": hold.until().map(millis),
    })
}

/// Names a contender, or says why it is on hold.
pub(crate) fn named(contender: &Contender) -> String {
    match contender.hold() {
        Some(hold) => plain(&hold.to_string()),
        None => who(contender.owner()),
    }
}

fn session(contender: &Contender) -> String {
    format!("{:#x}", contender.session_id())
}

/// Returns whether a session owns the contender's node.
pub(crate) fn has_session(contender: &Contender) -> bool {
    contender.session_id() != 0
}

fn name(contender: &Contender) -> &str {
    contender.node().rsplit('/').next().unwrap_or_default()
}

pub(crate) fn millis(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let table = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m 0s"),
            (3_599, "59m 59s"),
            (3_661, "1h 1m"),
            (90_000, "1d 1h"),
        ];
        for (seconds, text) in table {
            assert_eq!(brief(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn nothing_of_others_reaches_the_terminal_as_a_command() {
        let owner = Owner {
            host: Some("db1\u{1b}[2J".into()),
            note: Some("a\nb".into()),
            ..Owner::default()
        };
        assert_eq!(who(&owner), "db1\u{fffd}[2J (a\u{fffd}b)");
        let owner = Owner {
            text: Some("\u{9b}31m".into()),
            ..Owner::default()
        };
        assert!(!who(&owner).contains(char::is_control));
    }
}
