//! A held lock on its way to another process.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::system::clock;
use crate::time::nanos;
use crate::token::FencingToken;
use zklock_core::attempt::Orphan;
pub(crate) use zklock_core::connection::session::SessionKey;

/// A mutex that a process has handed over, together with the session that holds it. Another process
/// can take it over, so that a daemon can replace its own program without a fail-over.
///
/// The queue at the lock does not move: the node, its place and the fencing token stay. Of all
/// processes that try to take the mutex over, one succeeds. If none does, the mutex is free once
/// the session has timed out. If the new program does not start, the old process can take its own
/// hand-over back, with [`ClientBuilder::take_over`](crate::ClientBuilder::take_over) like any
/// other.
///
/// The hand-over contains the session's password, with which anybody who reaches the servers can
/// end the session, and so free the mutex. Pass its text through a pipe, a file that others cannot
/// read, or the environment of the new program. [`Debug`](fmt::Debug) hides the password.
///
/// # Example
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zklock::embedded::Server::start()?;
/// # let hosts = server.hosts();
/// use zklock::{Client, Handover};
///
/// let guard = Client::connect(hosts)?.mutex("/services/importer")?.lock()?;
/// let token = guard.fencing_token();
///
/// let handover = guard.hand_over()?; // from here on, the guard is Lost
/// let text = handover.text(); // for Command::env and exec, for example
///
/// // In the new program:
/// let handover: Handover = text.parse()?;
/// let (client, guard) = Client::builder(hosts).take_over(&handover)?;
/// assert_eq!(guard.fencing_token(), token);
/// # drop((client, guard));
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is kept until its session times out, and nobody has it"]
pub struct Handover {
    pub(crate) session: Inherited,
    /// The name of the clock that the session's times are from.
    pub(crate) clock: Option<String>,
    /// The chroot of the client, below which the paths are; `None` in the text of an earlier version.
    pub(crate) chroot: Option<String>,
    pub(crate) path: String,
    pub(crate) node: String,
    pub(crate) token: i64,
    /// The version of the node's data.
    pub(crate) version: i32,
    /// Whether another client has asked for the lock.
    pub(crate) is_revoked: bool,
    /// The nodes that attempts of the session have left, and those that they have requested and not found, which may
    /// still appear: each with its directory.
    pub(crate) left: Vec<(String, Orphan)>,
}

impl Handover {
    /// Returns the hand-over as one line of text, the password included; parsing it gives the
    /// hand-over back.
    pub fn text(&self) -> String {
        json!({
            "zklock_handover": 1,
            "session": self.session.key.text(),
            "timeout_ms": self.session_timeout().as_millis() as u64,
            "heard_of_ns": nanos(self.session.heard_of),
            "clock": self.clock,
            "chroot": self.chroot,
            "path": self.path,
            "node": self.node,
            "token": self.token,
            "version": self.version,
            "revoked": self.is_revoked,
            "late": self.left.iter().map(written).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Returns the path of the mutex.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the fencing token of the guard that was handed over; the new guard has the same one.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken::new(self.token)
    }

    /// Returns the session timeout: if no process takes the lock over for this long, the lock is free.
    pub fn session_timeout(&self) -> Duration {
        self.session.timeout
    }

    /// Fails if a client with this chroot would look for the lock where it is not.
    pub(crate) fn check_chroot(&self, chroot: &str) -> Result<()> {
        let Some(its) = self.chroot.as_deref().filter(|its| *its != chroot) else {
            return Ok(());
        };
        let rule = format!("its client has the chroot {its:?}, and this one has {chroot:?}");
        Err(Error::BadArgument {
            name: "handover",
            rule: rule.into(),
        })
    }

    /// Returns the session, without its times if they are from another clock.
    pub(crate) fn inherited(&self) -> Inherited {
        let now = clock::since_boot();
        let same = self.clock.is_some() && self.clock == clock::name();
        let mut session = self.session.clone();
        if !same || now < session.heard_of {
            session.heard_of = Duration::ZERO;
        }
        session
    }

    fn read(text: &str) -> Option<Self> {
        let read: Value = serde_json::from_str(text).ok()?;
        let text = |key: &str| read.get(key)?.as_str().map(str::to_owned);
        let number = |key: &str| read.get(key)?.as_u64();
        let session = Inherited {
            key: SessionKey::parse(&text("session")?)?,
            timeout: Duration::from_millis(number("timeout_ms").filter(|timeout| *timeout != 0)?),
            heard_of: Duration::from_nanos(number("heard_of_ns")?),
            is_kept: true,
        };
        (number("zklock_handover")? == 1 && session.key.id != 0).then_some(())?;
        let (path, node) = (text("path")?, text("node")?);
        crate::path::check(&path).ok()?;
        (crate::path::parent(&node) == path).then_some(())?;
        // A negative version would match any other.
        let version = i32::try_from(number("version")?).ok()?;
        let left = match read.get("late") {
            Some(left) => left
                .as_array()?
                .iter()
                .map(left_one)
                .collect::<Option<_>>()?,
            // Earlier versions did not write this.
            None => Vec::new(),
        };
        Some(Self {
            left,
            session,
            clock: text("clock"),
            chroot: text("chroot"),
            path,
            node,
            token: read.get("token")?.as_i64()?,
            version,
            is_revoked: read.get("revoked")?.as_bool()?,
        })
    }
}

/// Formats an orphan: two texts if it is known by its prefix, three if it is known by its data.
fn written((dir, orphan): &(String, Orphan)) -> Value {
    match orphan {
        Orphan::Node(name) | Orphan::Prefix(name) => json!([dir, name]),
        Orphan::Marked(name, mark) => json!([dir, name, mark]),
    }
}

/// Parses what [`written`] has written.
fn left_one(read: &Value) -> Option<(String, Orphan)> {
    let parts: Option<Vec<_>> = read.as_array()?.iter().map(Value::as_str).collect();
    let (dir, orphan) = match parts?[..] {
        [dir, prefix] => (dir, Orphan::Prefix(prefix.to_owned())),
        [dir, name, mark] => (dir, Orphan::Marked(name.to_owned(), mark.to_owned())),
        _ => return None,
    };
    crate::path::check(dir).ok()?;
    // Every name begins with an empty prefix.
    let is_any = orphan == Orphan::Prefix(String::new());
    (!is_any).then(|| (dir.to_owned(), orphan))
}

impl FromStr for Handover {
    type Err = Error;

    /// Parses what [`text`](Handover::text) has written.
    fn from_str(text: &str) -> Result<Self> {
        Self::read(text).ok_or_else(|| Error::BadArgument {
            name: "handover",
            rule: "it must be the text of a hand-over, as Handover::text returns it".into(),
        })
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover")
            .field("path", &self.path)
            .field("token", &self.token)
            .field("session", &format_args!("{:#x}", self.session.key.id))
            .finish_non_exhaustive()
    }
}

/// A session of another process, to be continued.
#[derive(Clone, Debug)]
pub(crate) struct Inherited {
    pub(crate) key: SessionKey,
    /// The shortest timeout that was negotiated in this session.
    pub(crate) timeout: Duration,
    /// When the last message was sent that the leader had received in time; zero if that is not known.
    pub(crate) heard_of: Duration,
    /// Whether the session may be a third process's, and must not be ended before
    /// [`keep_session`](super::Transport::keep_session) allows it.
    pub(crate) is_kept: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use zklock_jute::Secret;

    use super::*;
    use crate::support::worker::{self, Worker};

    fn handover() -> Handover {
        let heard_of = clock::since_boot();
        Handover {
            session: Inherited {
                key: SessionKey {
                    id: -7,
                    password: Secret(vec![0xab; 16]),
                },
                timeout: Duration::from_millis(4000),
                heard_of,
                is_kept: true,
            },
            clock: clock::name(),
            chroot: Some("/app".to_owned()),
            path: "/locks/a".to_owned(),
            node: "/locks/a/lock-0000000003".to_owned(),
            token: 1 << 40,
            version: 2,
            is_revoked: true,
            left: vec![
                (
                    "/locks/b".to_owned(),
                    Orphan::Prefix("_c_me-lock-".to_owned()),
                ),
                (
                    "/jobs/a".to_owned(),
                    Orphan::Marked("stake".to_owned(), "ours".to_owned()),
                ),
            ],
        }
    }

    #[test]
    fn a_handover_reads_back_as_written_and_shows_no_password() {
        let written = handover();
        let read: Handover = written.text().parse().unwrap();
        assert_eq!(read.text(), written.text());
        assert_eq!(read.left, written.left);
        assert!(written.text().contains("abab") && !written.text().contains('\n'));
        let shown = format!("{written:?}");
        assert!(shown.contains("/locks/a"), "{shown}");
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
    }

    #[test]
    fn a_text_with_a_mistake_is_no_handover() {
        let text = handover().text();
        for (from, to) in [
            ("\"version\":2", "\"version\":-1"),
            ("\"version\":2", "\"version\":2147483648"),
            ("\"timeout_ms\":4000", "\"timeout_ms\":0"),
            ("\"zklock_handover\":1", "\"zklock_handover\":2"),
            ("/locks/a/lock", "/locks/b/lock"),
            ("\"revoked\":true", "\"revoked\":1"),
            ("\"/locks/b\"", "\"locks/b\""),
            ("\"ours\"", "\"ours\",\"\""),
            ("\"_c_me-lock-\"", "\"\""),
            ("abab", "xbab"),
            ("}", ""),
        ] {
            let wrong = text.replace(from, to);
            assert_ne!(wrong, text, "{from}");
            assert!(
                wrong.parse::<Handover>().unwrap_err().is_bad_input(),
                "{to}"
            );
        }
    }

    #[test]
    fn a_text_of_an_earlier_version_tells_of_no_chroot_and_of_nothing_that_may_still_come() {
        let mut text: Value = serde_json::from_str(&handover().text()).unwrap();
        for key in ["late", "chroot"] {
            text.as_object_mut().unwrap().remove(key);
        }
        let read: Handover = text.to_string().parse().unwrap();
        assert!(read.left.is_empty());
        read.check_chroot("/any").unwrap();
    }

    #[test]
    #[ignore = "a worker process"]
    fn worker_that_names_its_clock() {
        let Some(_) = worker::input() else { return };
        worker::say(&clock::name().unwrap_or_default());
    }

    /// The kernel gives a new time namespace the number of one that is gone.
    #[test]
    fn clocks_with_other_offsets_have_other_names() {
        const OFFSETS: [&str; 8] = ["1", "2", "3", "4", "5", "6", "7", "8"];
        let name_at = |offset| {
            let mut inside = Command::new("unshare");
            inside.args(["--map-root-user", "--time", "--boottime", offset]);
            let mut tried = Command::new(inside.get_program());
            tried.args(inside.get_args()).arg("true");
            if !tried.status().is_ok_and(|tried| tried.success()) {
                eprintln!("left out: no time namespaces here");
                return offset.to_owned();
            }
            inside.arg(worker::itself().get_program());
            Worker::launch(inside, worker_that_names_its_clock, "").hear()
        };
        let names: BTreeSet<_> = OFFSETS.into_iter().map(name_at).collect();
        assert_eq!(names.len(), OFFSETS.len(), "{names:?}");
    }

    #[test]
    fn the_times_of_another_clock_and_of_the_future_are_not_believed() {
        let heard_of = |handover: Handover| handover.inherited().heard_of;
        let known = heard_of(handover());
        assert_eq!(known.is_zero(), clock::name().is_none());
        for clock in [None, Some("another".to_owned())] {
            let from_afar = Handover {
                clock,
                ..handover()
            };
            assert_eq!(heard_of(from_afar), Duration::ZERO);
        }
        let mut late = handover();
        late.session.heard_of += Duration::from_secs(60);
        assert_eq!(heard_of(late), Duration::ZERO);
    }
}
