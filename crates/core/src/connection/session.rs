//! The session of a client: what a greeting grants to it, and when it is given up that goes on without its client.
//!
//! Each connect request may extend the session, also one that a server takes and does not answer, or after which it
//! does not let the client in. The session's locks would stay taken for as long as that goes on.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use super::rotation::{Refusal, Resumption};
use zklock_jute::{ConnectReply, ConnectRequest, Secret};

/// How much longer than its timeout a session may last, because servers count in ticks.
const MARGIN: Duration = Duration::from_secs(1);

/// The length of every session's password.
const PASSWORD: usize = 16;

/// The complaint about a server that ends sessions by a wall clock.
const WALL_CLOCK: &str = "it ends sessions by a clock that may be set, as ClickHouse Keeper and \
    RaftKeeper do: ClientBuilder::wall_clock_expiry (--wall-clock-expiry) accepts that";

/// A session's id and password, for a process that outlives the one that opened the session.
#[derive(Clone, Debug, Default)]
pub struct SessionKey {
    /// The id; 0 if there is no session.
    pub id: i64,
    /// The password, with which anybody can use the session.
    pub password: Secret,
}

/// What a greeting grants to a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Granted {
    /// The session goes on, with this timeout.
    Resumed(Duration),
    /// A session begins, with this timeout. That of before is over, if there was one.
    Begun(Duration),
    /// Nothing: the session of before is over.
    Expired,
}

impl SessionKey {
    /// Returns the key as text, in hexadecimal digits.
    pub fn text(&self) -> String {
        let digits = |byte: &u8| format!("{byte:02x}");
        let password: String = self.password.0.iter().map(digits).collect();
        format!("{:x}:{password}", self.id)
    }

    /// Parses a key from its text.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, password) = text.split_once(':')?;
        let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
        let password: Option<Vec<_>> = password.as_bytes().chunks(2).map(byte).collect();
        Some(Self {
            id: u64::from_str_radix(id, 16).ok()? as i64,
            password: Secret(password?),
        })
    }

    /// Returns the request for this session, or for a new one if there is none.
    pub fn request(&self, last_zxid: i64, timeout: Duration) -> ConnectRequest {
        let mut password = self.password.0.clone();
        // Servers expect a password even without a session.
        if password.is_empty() {
            password.resize(PASSWORD, 0);
        }
        ConnectRequest {
            last_zxid,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            session: self.id,
            password,
            read_only: false,
        }
    }

    /// Returns what a server grants to the client of this session, which `is_overdue` if it should have ended by
    /// now; fails if the server is of no use.
    pub fn granted(
        &self,
        reply: &ConnectReply,
        wish: Resumption,
        is_overdue: bool,
    ) -> Result<Granted, &'static str> {
        if reply.read_only {
            return Err("it is read-only at present");
        }
        let had_one = self.id != 0;
        let timeout = u64::try_from(reply.timeout_ms).unwrap_or(0);
        let granted = Duration::from_millis(timeout);
        if had_one && timeout > 0 && reply.session == self.id {
            return Ok(Granted::Resumed(granted));
        }
        // Some servers grant a new session when asked for an unknown one.
        if had_one && wish == Resumption::ResumeOnly && (timeout > 0 || !is_overdue) {
            return Err("it lacks the session, and has an address of before");
        }
        match (timeout, had_one) {
            (0, true) => Ok(Granted::Expired),
            (0, false) => Err("it refused to open a session"),
            _ => Ok(Granted::Begun(granted)),
        }
    }
}

/// Fails if a greeting neither grants a session nor says that one has expired, or if the session would end by a wall
/// clock, unless the client `accepts` that.
///
/// A server may grant more time than the client asked for: `minSessionTimeout` may be longer.
pub fn check(reply: &ConnectReply, accepts: bool) -> Result<(), String> {
    let ConnectReply {
        timeout_ms,
        session,
        password,
        ..
    } = reply;
    let what = match (*timeout_ms, *session) {
        (0, 0) => return Ok(()),
        (timeout, _) if timeout <= 0 => format!("a timeout of {timeout} ms"),
        (_, session @ (0 | -1)) => format!("the session {session}, which is none"),
        _ if password.len() != PASSWORD => {
            format!("a password of {} bytes, not {PASSWORD}", password.len())
        }
        // ClickHouse Keeper and RaftKeeper go by a wall clock, and give every session a password of zeros.
        // ZooKeeper's passwords are random.
        _ if !accepts && password.iter().all(|byte| *byte == 0) => {
            return Err(WALL_CLOCK.to_owned());
        }
        _ => return Ok(()),
    };
    Err(format!("it greeted with {what}, as no ZooKeeper does"))
}

/// What a client knows of its session since a server last served.
#[derive(Debug, Default)]
pub struct Outage {
    served_at: Duration,
    /// The session timeout that this server granted.
    pub granted: Duration,
    /// Whether a server has hung up in the last round.
    hung_up: bool,
    /// When the last connect request was sent.
    asked_at: Duration,
    unanswered: Unanswered,
    /// The requests after which the client was not let in.
    not_let_in: Unanswered,
}

impl Outage {
    /// Creates what a client knows when it begins; the session that it continues, if it does, was `granted` that long.
    pub fn since(served_at: Duration, granted: Duration) -> Self {
        Self {
            served_at,
            granted,
            ..Self::default()
        }
    }

    /// Returns for how long no server has served.
    pub fn away(&self, now: Duration) -> Duration {
        now.saturating_sub(self.served_at)
    }

    /// Notes that a server has let the client in and served until now, and has granted this session timeout.
    pub fn served_until(&mut self, now: Duration, granted: Duration) {
        (self.served_at, self.granted) = (now, granted);
        self.not_let_in.end();
    }

    /// Returns whether the session should have ended by now.
    pub fn is_overdue(&self, now: Duration) -> bool {
        self.away(now) > self.lasts()
    }

    /// Notes what a server did instead of serving.
    pub fn refused(&mut self, refusal: Refusal) {
        self.hung_up |= refusal == Refusal::HungUp;
    }

    /// Returns whether the last round suggests that no server will ever resume the session. This is asked before each
    /// round.
    ///
    /// A server whose data is older than what the client has seen closes the connection without a
    /// reason. If that server lags behind, another one resumes the session; if the ensemble was set
    /// up anew or restored from a backup, none ever does. A server without a quorum closes the
    /// connection too, as does a proxy whose server is down; once that passes, the session
    /// continues. The client therefore asks for a new session only at a server that has just closed
    /// the connection.
    pub fn may_be_forgotten(&mut self, now: Duration) -> bool {
        mem::take(&mut self.hung_up) && self.is_overdue(now)
    }

    /// Notes that a connect request was sent, what the server did instead of greeting, if it did not, and whether most
    /// servers have been silent. Returns whether to give the session up: servers have taken such requests for longer
    /// than it lasts, and let the client in at none of them, and may go on like that.
    pub fn asked(
        &mut self,
        sent: Duration,
        refusal: Option<Refusal>,
        most_are_silent: bool,
        now: Duration,
    ) -> bool {
        self.asked_at = sent;
        match refusal {
            Some(Refusal::Silent) => {
                self.not_let_in.goes_on(sent, self.lasts());
                return self.unanswered.add(sent, now, self.lasts());
            }
            // The others may have a leader, and extend the session, whatever this one says.
            Some(Refusal::HungUp) if most_are_silent => {}
            _ => self.unanswered.end(),
        }
        false
    }

    /// Notes that a server has extended the session, and not let the client in. Returns whether to give the session
    /// up, because that goes on. Right after an outage of all servers, the next attempt may be luckier.
    pub fn was_not_let_in(&mut self, now: Duration) -> bool {
        self.not_let_in.add(self.asked_at, now, self.lasts())
    }

    /// Returns how long a session lasts from its extension on, at most.
    fn lasts(&self) -> Duration {
        self.granted + MARGIN
    }
}

/// When connect requests were sent that servers took and did not answer, or after which they did not let the client in.
#[derive(Debug, Default)]
struct Unanswered {
    /// The first and the last since a server answered, or since a pause that was longer than a session.
    sent: Option<(Duration, Duration)>,
}

impl Unanswered {
    /// Notes that a server has answered a request or let the client in, or that one hung up and not most others are
    /// silent: without a leader they extend no session.
    fn end(&mut self) {
        self.sent = None;
    }

    /// Notes a request without an answer. Returns whether such requests may have extended a session that lasts
    /// this long to more than twice its time.
    ///
    /// A session ends in a pause that is longer. If it goes on after one, all servers were down.
    fn add(&mut self, sent: Duration, now: Duration, lasts: Duration) -> bool {
        self.goes_on(sent, lasts);
        let first = self.sent.map_or(sent, |(first, _)| first);
        self.sent = Some((first, sent));
        lasts < now.saturating_sub(first)
    }

    /// Notes a request of another kind, which may also have extended the session.
    fn goes_on(&mut self, sent: Duration, lasts: Duration) {
        let before = self.sent.filter(|(_, last)| sent <= *last + lasts);
        self.sent = before.map(|(first, _)| (first, sent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    const SILENT: Option<Refusal> = Some(Refusal::Silent);
    const HUNG_UP: Option<Refusal> = Some(Refusal::HungUp);

    /// A client that was served until then, whose session lasts for [`LASTS`].
    fn served() -> Outage {
        Outage::since(at(0), LASTS - MARGIN)
    }

    #[test]
    fn a_session_that_no_server_lets_in_is_given_up_unless_most_have_no_leader() {
        for most in [true, false] {
            let mut outage = served();
            assert!(!outage.asked(at(0), SILENT, most, at(1)));
            assert!(!outage.asked(at(9), SILENT, most, at(10)));
            assert!(!outage.asked(at(10), HUNG_UP, most, at(10)));
            assert_eq!(outage.asked(at(11), SILENT, most, at(12)), most);
            assert!(!outage.asked(at(13), None, most, at(14)), "it has greeted");
            assert!(!outage.asked(at(15), SILENT, most, at(16)));
        }
    }

    #[test]
    fn a_session_that_servers_greet_and_do_not_let_in_is_given_up_until_one_serves() {
        let mut outage = served();
        for (sent, gives_up) in [(0, false), (9, false), (12, true)] {
            assert!(!outage.asked(at(sent), None, false, at(sent)));
            assert_eq!(outage.was_not_let_in(at(sent)), gives_up);
        }
        outage.served_until(at(13), LASTS - MARGIN);
        assert!(!outage.was_not_let_in(at(14)));
    }

    #[test]
    fn a_session_may_be_forgotten_when_it_is_overdue_and_a_server_has_just_hung_up() {
        let mut outage = served();
        outage.refused(Refusal::Silent);
        assert!(!outage.may_be_forgotten(at(11)), "none has hung up");
        for (now, is_overdue) in [(10, false), (11, true)] {
            outage.refused(Refusal::HungUp);
            assert_eq!(outage.is_overdue(at(now)), is_overdue);
            assert_eq!(outage.may_be_forgotten(at(now)), is_overdue);
            assert!(!outage.may_be_forgotten(at(11)), "not in the last round");
        }
    }

    #[test]
    fn requests_of_another_kind_bridge_a_pause_and_begin_nothing() {
        let mut unanswered = Unanswered::default();
        unanswered.goes_on(at(0), LASTS);
        assert!(!unanswered.add(at(9), at(11), LASTS));
        for sent in [18, 27] {
            unanswered.goes_on(at(sent), LASTS);
        }
        assert!(unanswered.add(at(36), at(37), LASTS));
        unanswered.goes_on(at(47), LASTS);
        assert!(!unanswered.add(at(48), at(49), LASTS));
    }

    #[test]
    fn requests_extend_a_session_only_if_none_comes_after_its_end() {
        let mut unanswered = Unanswered::default();
        let mut add = |sent| unanswered.add(at(sent), at(sent + 1), LASTS);
        let extended = [0, 5, 9, 10, 30, 39, 40].map(&mut add);
        assert_eq!(extended, [false, false, false, true, false, false, true]);
        assert!(add(45));
        unanswered.end();
        assert!(!unanswered.add(at(46), at(47), LASTS));
    }

    #[test]
    fn a_key_reads_back_as_written_and_mistakes_are_none() {
        for id in [1, i64::MAX, -2] {
            let password = Secret(vec![0, 7, 255]);
            let key = SessionKey { id, password };
            let read = SessionKey::parse(&key.text()).unwrap();
            assert_eq!((read.id, read.password.0), (id, key.password.0));
        }
        for text in ["", "1", "x:00", "1:0g", "1:é", "11111111111111111:00"] {
            assert!(SessionKey::parse(text).is_none(), "{text}");
        }
    }

    fn reply(timeout_ms: i32, session: i64, password: Vec<u8>) -> ConnectReply {
        ConnectReply {
            timeout_ms,
            session,
            password,
            read_only: false,
        }
    }

    #[test]
    fn a_greeting_grants_a_session_or_says_that_one_has_expired() {
        let random = || vec![7; PASSWORD];
        for (timeout, session, password, is_one) in [
            (4000, 7, random(), true),
            (0, 0, vec![0; PASSWORD], true),
            (-1, 7, random(), false),
            (0, 7, random(), false),
            (4000, 0, random(), false),
            (4000, -1, random(), false),
            (4000, 7, vec![7; PASSWORD - 1], false),
            (4000, 7, vec![0; PASSWORD], false),
        ] {
            let reply = reply(timeout, session, password);
            assert_eq!(check(&reply, false).is_ok(), is_one, "{reply:?}");
        }
        assert_eq!(check(&reply(4000, 7, vec![0; PASSWORD]), true), Ok(()));
    }

    #[test]
    fn a_session_is_resumed_or_over_unless_another_ensemble_may_have_answered() {
        use Resumption::{Anew, Resume, ResumeOnly};

        let four = Duration::from_secs(4);
        let (resumed, begun) = (Ok(Granted::Resumed(four)), Ok(Granted::Begun(four)));
        let over = Ok(Granted::Expired);
        let lacks = Err("it lacks the session, and has an address of before");
        for (had, got, wish, is_overdue, granted) in [
            (7, (4000, 7), Resume, false, resumed),
            (7, (4000, 7), ResumeOnly, false, resumed),
            (7, (4000, 8), Resume, false, begun),
            (7, (4000, 8), ResumeOnly, true, lacks),
            (7, (0, 0), Resume, false, over),
            (7, (0, 0), ResumeOnly, false, lacks),
            (7, (0, 0), ResumeOnly, true, over),
            (0, (4000, 8), Resume, false, begun),
            (0, (4000, 8), Anew, false, begun),
            (
                0,
                (0, 0),
                Resume,
                false,
                Err("it refused to open a session"),
            ),
        ] {
            let (key, (timeout, session)) = (
                SessionKey {
                    id: had,
                    ..SessionKey::default()
                },
                got,
            );
            let reply = reply(timeout, session, Vec::new());
            assert_eq!(
                key.granted(&reply, wish, is_overdue),
                granted,
                "{had} {got:?} {wish:?}"
            );
        }
    }
}
