//! Random histories of an ensemble and one client, in virtual time.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use core::time::Duration;

use fastrand::Rng;

use crate::lifetime::{Lifetime, ended_within, reported_after};
use crate::validity::{ENOUGH_PROOFS, LEAST_TIMEOUT, Stamp};

/// What is wrong with the client's rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Broken {
    Nothing,
    /// A commit is taken for a touch.
    CommitsTouch,
    /// A message counts from its sending, not from its answer.
    UnansweredMessages,
    /// A message counts as reported as soon as it is answered.
    ReportedAtOnce,
    /// The timeout of the last handshake counts, not the shortest.
    LastTimeout,
    /// A guard keeps the timeout that it was granted with.
    TimeoutOfTheGrant,
    /// A connect request without an answer changes nothing.
    LostGreetings,
    /// An answer makes up for those that were lost, before anything is committed.
    AnswersVouch,
    /// The user states that the servers grant what is asked for, and they do not.
    StatedTooMuch,
    /// The user does not state that servers grant less than others.
    StatedNothing,
    /// A handshake counts from its answer.
    HandshakeAnswered,
    /// A proof, and with it what it rests on, counts from its answer.
    ProofAnswered,
    /// A handshake counts at once, even if the session was due.
    HandshakeOfDue,
    /// A handshake counts when the leader has ended half of the sessions that were due with this
    /// one.
    HandshakeOfDueSoon,
    /// A message after a silence counts as any other.
    MessageOfDue,
    /// A message that was answered, and after which nothing was committed, is enough for the next
    /// handshake.
    HeardWithoutCommit,
    /// A handshake is enough for the next one, however long ago it was.
    LedLongAgo,
    /// A handshake is enough for the next one, for half a timeout too long.
    LedTooLong,
    /// A handshake is enough for the next one although its leader has committed nothing since.
    LedWithoutCommit,
    /// The next handshake counts at once.
    LedAtOnce,
    /// A commit by the same leader is taken for one by a later leader.
    RenewedBySameLeader,
    /// A later leader renews a session, however long ago its last commit was.
    RenewedLongAgo,
    /// A message that was answered counts as the last commit.
    RenewedSinceAnswer,
    /// What an earlier connection was answered vouches for a lock that is granted on this one.
    StampOfAnother,
}

impl Broken {
    /// Each flaw, and the first history that caught it when it was last looked for.
    pub(super) const ALL: [(Self, u64); 23] = [
        (Self::CommitsTouch, 79),
        (Self::UnansweredMessages, 2306),
        (Self::ReportedAtOnce, 2002),
        (Self::LastTimeout, 60),
        (Self::TimeoutOfTheGrant, 45),
        (Self::LostGreetings, 183),
        (Self::AnswersVouch, 68678),
        (Self::StatedTooMuch, 183),
        (Self::StatedNothing, 183),
        (Self::HandshakeAnswered, 505),
        (Self::ProofAnswered, 1857),
        (Self::HandshakeOfDue, 79),
        (Self::HandshakeOfDueSoon, 661),
        (Self::MessageOfDue, 79746),
        (Self::HeardWithoutCommit, 1032),
        (Self::LedLongAgo, 505),
        (Self::LedTooLong, 1751),
        (Self::LedWithoutCommit, 15619),
        (Self::LedAtOnce, 1857),
        (Self::StampOfAnother, 70196),
        (Self::RenewedBySameLeader, 5413),
        (Self::RenewedLongAgo, 1857),
        (Self::RenewedSinceAnswer, 68837),
    ];
}

/// The outcome of a history.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How long a check still passed after the session had ended.
    pub(super) late: Duration,
    /// The longest time for which the guard could be trusted.
    pub(super) trusted: Duration,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Message {
    Hello,
    Ping,
    Proof,
}

/// A message from the client on its way, and the connection it belongs to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Letter {
    kind: Message,
    sent: Duration,
    server: usize,
    connection: u32,
    granted: Duration,
    /// Whether it asks for a new session, not for an existing one.
    opens: bool,
    /// What the client stamped a proof with: when, and what it rested on.
    stamp: (Duration, Duration),
    /// The term of the leader that answered.
    term: i64,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    /// This message reaches the server.
    Arrives(Letter),
    /// What a follower forwarded reaches the leader.
    AtLeader(Letter),
    /// The answer reaches the client.
    Answered(Letter),
    /// This follower answers the leader's ping.
    Pinged(usize),
    /// A follower's report reaches the leader.
    Reported(Duration),
    /// The client does what is due.
    Client,
    /// The leader takes out the sessions that are due, unless this one was touched since.
    Expiry(u32),
    /// The leader comes to this session among those that it has taken out.
    Closing(u32),
    /// Another leader takes over, and gives every session the timeout of its creation.
    NewLeader,
    /// The previous leader has noticed, and so have its followers.
    Resigned,
    /// The client loses its connection.
    HungUp,
    /// This follower starts again, and may grant something else.
    Restarts(usize),
    /// The follower that is cut off from the leader notices.
    GivesUp,
    /// The thread that made this stamp has the processor again, and sends its proof.
    Goes(Duration, Duration),
}

const SERVERS: usize = 3;
const LEADER: usize = 0;
const HOP: Duration = Duration::from_millis(2);
/// Not zero, which stands for a time that is not known, so long ago that nothing lasts from then.
const START: Duration = Duration::from_secs(1_000);
const FOREVER: Duration = Duration::from_secs(1_000_000);

struct History {
    rng: Rng,
    broken: Broken,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    count: u64,
    tick: Duration,
    /// When the leader's first tick begins.
    offset: Duration,
    asked: Duration,
    limits: [Duration; SERVERS],
    /// The limits of the servers once they have been restarted.
    later_limits: [Duration; SERVERS],
    /// The shortest timeout that any server ever grants, as far as the client can know; delays are fractions of it.
    shortest: Duration,
    /// Whether servers grant different timeouts at any time.
    limits_differ: bool,
    /// What every server grants at least, if the user states it.
    stated: Option<Duration>,

    // The servers.
    term: i64,
    touches: u32,
    /// Whether the leader has taken the session out to end it. Until it does, it answers as before, and
    /// touches change nothing (`ExpiryQueue.poll`).
    polled: bool,
    ended: bool,
    created: Duration,
    tables: [Option<Duration>; SERVERS],
    /// When each server falls silent for good.
    stops: [Duration; SERVERS],
    /// A follower of the previous leader, which answers handshakes and pings until this time.
    deposed: Option<(usize, Duration)>,
    /// The last connection that each server has closed, with all that came before.
    closed: [u32; SERVERS],
    /// The end of an election, until which servers hang up instead of answering connect requests.
    elects_until: Duration,
    /// A follower that is cut off from the leader, and answers pings until it notices.
    cut_off: Option<usize>,
    /// When the last message leaves each wire, which is first in, first out.
    to_server: [Duration; SERVERS],
    to_leader: [Duration; SERVERS],
    to_client: Duration,
    /// How many half ticks have begun.
    half_ticks: [u32; SERVERS],

    // The client.
    /// Whether it is a client of the `zookeeper` crate, which tells little of its handshakes.
    is_handle: bool,
    /// Whether it waits for its lock and its connections are short.
    is_often_reset: bool,
    lifetime: Option<Lifetime>,
    server: usize,
    connection: u32,
    /// The last connection whose handshake was answered.
    greeted: u32,
    connected: bool,
    last_sent: Duration,
    guard: Option<Stamp>,
    /// The last proof, on which a lock may be granted later.
    proof: Option<Stamp>,
    at_grant: Duration,
    paused_until: Duration,
    seen: Seen,
}

pub(super) fn run(seed: u64, broken: Broken) -> Seen {
    let mut history = History::new(seed, broken);
    let end = START + 8 * history.asked;
    while let Some(Reverse((at, _, event))) = history.events.pop() {
        if at > end {
            break;
        }
        history.now = at;
        history.take(event);
        history.judge();
    }
    history.seen
}

impl History {
    fn new(seed: u64, broken: Broken) -> Self {
        let mut rng = Rng::with_seed(seed);
        let tick = Duration::from_secs(2);
        let mut asked = tick * [2, 3, 4, 10, 20][rng.usize(..5)];
        let mut limits = [asked; SERVERS];
        if rng.u32(..3) == 0 {
            limits = limits.map(|_| tick * rng.u32(2..=20));
        }
        let is_reign = rng.u32(..8) == 0;
        if is_reign {
            asked = tick * 20;
            limits = [asked, asked, tick * rng.u32(2..=5)];
        }
        let mut later_limits = limits;
        if rng.u32(..6) == 0 {
            later_limits = limits.map(|_| tick * rng.u32(2..=20));
        }
        let is_often_reset = rng.u32(..3) == 0;
        if is_often_reset && rng.u32(..4) == 0 {
            limits[rng.usize(..SERVERS)] = tick * rng.u32(2..=4);
            later_limits = limits;
        }
        let is_handle = !is_reign && !is_often_reset && rng.u32(..4) == 0;
        if is_handle && rng.u32(..2) == 0 {
            asked = LEAST_TIMEOUT;
        }
        let mut history = Self {
            broken,
            now: START,
            events: BinaryHeap::new(),
            count: 0,
            tick,
            offset: tick.mul_f64(rng.f64()),
            asked,
            limits,
            later_limits,
            shortest: Duration::ZERO,
            limits_differ: false,
            stated: None,
            term: 1,
            touches: 0,
            polled: false,
            ended: false,
            created: Duration::ZERO,
            tables: [None; SERVERS],
            stops: [FOREVER; SERVERS],
            deposed: None,
            closed: [0; SERVERS],
            elects_until: Duration::ZERO,
            cut_off: None,
            to_server: [Duration::ZERO; SERVERS],
            to_leader: [Duration::ZERO; SERVERS],
            to_client: Duration::ZERO,
            half_ticks: [1_000; SERVERS],
            is_handle,
            is_often_reset,
            lifetime: None,
            server: rng.usize(..SERVERS),
            connection: 0,
            greeted: 0,
            connected: false,
            last_sent: Duration::ZERO,
            guard: None,
            proof: None,
            at_grant: Duration::ZERO,
            paused_until: Duration::ZERO,
            seen: Seen::default(),
            rng,
        };
        history.look_at_limits();
        if history.one_in(2) || history.limits_differ {
            history.stated = Some(history.shortest);
        }
        let restarts = history.later_limits != history.limits || history.one_in(6);
        for server in LEADER + 1..SERVERS {
            history.at(START, Event::Pinged(server));
            if restarts {
                let at = START + history.part(4 * asked);
                history.at(at, Event::Restarts(server));
            }
        }
        let leaders = match history.is_often_reset {
            true => history.rng.u32(..4),
            false => u32::from(is_reign || history.one_in(6)),
        };
        for _ in 0..leaders {
            let at = START + history.part(4 * asked);
            history.at(at, Event::NewLeader);
        }
        history.connect();
        history.at(START, Event::Client);
        history
    }

    fn at(&mut self, time: Duration, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    fn granted_by(&self, server: usize) -> Duration {
        self.granted_within(self.limits[server])
    }

    fn granted_within(&self, limit: Duration) -> Duration {
        self.asked.min(limit).max(2 * self.tick)
    }

    fn look_at_limits(&mut self) {
        let believed = match self.is_handle {
            true => LEAST_TIMEOUT,
            false => Duration::MAX,
        };
        let limits = self.limits.iter().chain(&self.later_limits);
        let granted = limits.clone().map(|limit| self.granted_within(*limit));
        self.shortest = granted.fold(believed, Duration::min);
        self.limits_differ = limits.clone().any(|limit| *limit != self.limits[LEADER]);
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(..many) == 0
    }

    fn part(&mut self, of: Duration) -> Duration {
        of.mul_f64(self.rng.f64())
    }

    /// Returns a delay: most bytes arrive quickly, and some very late.
    fn delay(&mut self) -> Duration {
        let quick = self.part(Duration::from_millis(20));
        match self.one_in(8) {
            true => quick + self.part(self.asked),
            false => quick,
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Arrives(letter) if self.now < self.stops[letter.server] => self.arrives(letter),
            Event::AtLeader(letter) => self.at_leader(letter),
            Event::Answered(letter) if letter.connection == self.connection => {
                self.answered(letter);
            }
            Event::Pinged(server) => self.pinged(server),
            Event::Reported(granted) => self.touch(granted),
            Event::Client => self.client(),
            Event::Expiry(touches) if touches == self.touches => self.expires(),
            Event::Closing(touches) if touches == self.touches => self.ended = true,
            Event::NewLeader if self.created > Duration::ZERO => self.another_leads(),
            Event::Resigned => self.resigned(),
            Event::HungUp if self.paused_until <= self.now => self.move_on(),
            Event::GivesUp => self.gives_up(),
            Event::Restarts(server) => self.restarts(server),
            Event::Goes(sent, touched) if self.connected && self.paused_until <= self.now => {
                self.send(Message::Proof, (sent, touched));
            }
            _ => {}
        }
    }

    // The servers.

    /// Takes the session out to end it. Others may be due in the same tick. It is a precondition that the
    /// leader ends all of them within a quarter of the timeout.
    fn expires(&mut self) {
        self.polled = true;
        let others = match self.one_in(2) {
            true => self.part(self.shortest / 4 - HOP),
            false => Duration::ZERO,
        };
        self.at(self.now + others, Event::Closing(self.touches));
    }

    fn touch(&mut self, granted: Duration) {
        if self.ended || self.polled {
            return;
        }
        let after = (self.now + granted + self.tick).saturating_sub(self.offset);
        let ticks = after.as_nanos() / self.tick.as_nanos();
        let ends = self.offset + self.tick * u32::try_from(ticks).unwrap_or(u32::MAX);
        self.touches += 1;
        self.at(ends, Event::Expiry(self.touches));
    }

    /// Lets another leader take over. The previous one learns of it at its next tick, and vouches for
    /// sessions until then.
    fn another_leads(&mut self) {
        self.term += 1;
        self.polled = false;
        self.touch(self.created);
        if self.one_in(2) {
            let until = self.now + self.part(self.tick);
            self.deposed = Some((self.rng.usize(LEADER + 1..SERVERS), until));
            self.at(until, Event::Resigned);
            // Servers that look for a leader hang up.
            let mut at = self.now + self.part(self.tick / 2);
            for _ in 0..2 {
                self.at(at, Event::HungUp);
                at += self.part(Duration::from_millis(100));
            }
        }
        if self.one_in(2) {
            self.elects_until = self.now + self.part(self.asked);
            let mut at = self.now;
            while at < self.elects_until + HOP {
                self.at(at, Event::HungUp);
                at += HOP + self.part(self.asked / 4);
            }
        }
    }

    fn restarts(&mut self, server: usize) {
        self.limits[server] = self.later_limits[server];
        self.forgets(server);
    }

    /// Makes a server close its connections and forget what it has noted.
    fn forgets(&mut self, server: usize) {
        self.tables[server] = None;
        self.closed[server] = self.connection;
        if self.server == server && self.paused_until <= self.now {
            self.move_on();
        }
    }

    fn resigned(&mut self) {
        if let Some((server, _)) = self.deposed.take() {
            self.tables[server] = None;
            self.closed[server] = self.connection;
        }
    }

    fn gives_up(&mut self) {
        if let Some(server) = self.cut_off.take() {
            self.forgets(server);
        }
    }

    fn arrives(&mut self, letter: Letter) {
        let server = letter.server;
        if letter.connection <= self.closed[server] {
            return;
        }
        // A precondition: no connect request comes after the answer to a later one, if servers
        // grant different timeouts.
        let is_late = letter.connection < self.greeted;
        if letter.kind == Message::Hello && is_late && self.limits_differ {
            return;
        }
        if server == LEADER {
            return self.at_leader(letter);
        }
        if self.deposed.is_some_and(|(deposed, _)| deposed == server) {
            // A deposed follower has no quorum to commit with.
            if letter.kind != Message::Proof && !letter.opens {
                self.reply(letter);
            }
            return;
        }
        if self.cut_off == Some(server) {
            if letter.kind == Message::Ping {
                self.reply(letter);
            }
            return;
        }
        if letter.kind != Message::Hello {
            self.tables[server] = Some(letter.granted);
        }
        match letter.kind {
            // A follower answers in the order of the requests.
            Message::Ping if self.now < self.to_leader[server] => {
                self.at(self.to_leader[server], Event::Arrives(letter));
            }
            Message::Ping => self.reply(letter),
            Message::Hello | Message::Proof => self.forward(server, Event::AtLeader(letter)),
        }
    }

    /// Sends an event over the one ordered connection of a follower to its leader.
    fn forward(&mut self, server: usize, event: Event) {
        let at = self.to_leader[server].max(self.now + self.rng.u32(1..100) * HOP / 100);
        self.to_leader[server] = at;
        self.at(at, event);
    }

    /// Takes in a message at the leader: one that comes straight from the client, opens a session or moves
    /// it is a touch.
    fn at_leader(&mut self, letter: Letter) {
        if letter.opens {
            if letter.connection != self.connection {
                // Nobody will hear of that session.
                return;
            }
            self.created = letter.granted;
        }
        if letter.server == LEADER || letter.kind == Message::Hello {
            if self.created.is_zero() {
                self.created = letter.granted;
            }
            self.touch(letter.granted);
        }
        if letter.kind == Message::Hello && self.now < self.elects_until {
            return;
        }
        if !self.ended && self.now < self.stops[letter.server] {
            let term = self.term;
            self.reply(Letter { term, ..letter });
        }
    }

    fn reply(&mut self, letter: Letter) {
        let delay = HOP + self.delay();
        self.to_client = self.to_client.max(self.now + delay);
        self.at(self.to_client, Event::Answered(letter));
    }

    /// Handles a ping of the leader. Pings come every half tick, and some are late, by T/10 in all with
    /// what follows.
    fn pinged(&mut self, server: usize) {
        let is_deposed = self.deposed.is_some_and(|(deposed, _)| deposed == server);
        let is_alone = is_deposed || self.cut_off == Some(server);
        if self.now < self.stops[server] && !is_alone {
            if let Some(granted) = self.tables[server].take() {
                self.forward(server, Event::Reported(granted));
            }
        }
        self.half_ticks[server] += 1;
        let due = self.offset + self.half_ticks[server] * self.tick / 2;
        let late = match self.one_in(4) {
            true => self.part(self.shortest / 10 - HOP),
            false => Duration::ZERO,
        };
        self.at(due.max(self.now) + late, Event::Pinged(server));
    }

    // The client.

    fn connect(&mut self) {
        self.connected = false;
        self.connection += 1;
        self.to_client = self.now;
        if self.lifetime.is_none() {
            // A client that has not learned of its session asks for another one.
            self.touches += 1;
            self.created = Duration::ZERO;
            (self.polled, self.ended) = (false, false);
        }
        let heeds = self.broken != Broken::LostGreetings;
        let least = match self.broken {
            Broken::StatedTooMuch => Some(self.asked),
            Broken::StatedNothing => None,
            _ => self.stated,
        };
        if self.is_handle {
            self.guard = None;
        } else if let Some(lifetime) = self.lifetime.as_mut().filter(|_| heeds) {
            lifetime.greets(self.now, least);
        }
        self.send(Message::Hello, Default::default());
    }

    fn send(&mut self, kind: Message, stamp: (Duration, Duration)) {
        let server = self.server;
        let letter = Letter {
            kind,
            sent: self.now,
            server,
            connection: self.connection,
            granted: self.granted_by(server),
            opens: kind == Message::Hello && self.lifetime.is_none(),
            stamp,
            term: 0,
        };
        let arrives = self.now + self.delay();
        self.to_server[server] = self.to_server[server].max(arrives);
        self.last_sent = self.now;
        self.at(self.to_server[server], Event::Arrives(letter));
    }

    fn client(&mut self) {
        self.at(self.now + self.asked / 40, Event::Client);
        if self.now < self.paused_until || self.ended {
            return;
        }
        // A precondition: a handle's first message comes soon after its handshake.
        let answers = |lifetime: &Lifetime| lifetime.answers.len();
        let is_new = self.is_handle && self.lifetime.as_ref().map_or(0, answers) < 2;
        if self.one_in(60) && !is_new {
            self.paused_until = self.now + self.part(self.asked);
            return;
        }
        if self.guard.is_none() && self.one_in(4) {
            let proofs = self.rng.u32(..=ENOUGH_PROOFS);
            self.grant(proofs);
        }
        if self.one_in(120) {
            let stop = self.now + self.part(self.asked);
            self.stops[self.server] = self.stops[self.server].min(stop);
        }
        let may_be_cut = self.server != LEADER && self.cut_off.is_none() && self.deposed.is_none();
        if may_be_cut && self.one_in(100) {
            self.cut_off = Some(self.server);
            let until = self.now + self.part(self.asked * 5 / 4);
            self.at(until, Event::GivesUp);
        }
        let lasts = if self.is_often_reset { 12 } else { 80 };
        if self.one_in(lasts) {
            return self.move_on();
        }
        let Some(lifetime) = self.lifetime.as_ref().filter(|_| self.connected) else {
            return;
        };
        let silent = lifetime.timeout() / 6 <= self.now - self.last_sent;
        let stamp = lifetime.stamp(self.now);
        let locks = self.guard.is_none() && self.one_in(30);
        if locks || (silent && self.guard.is_some()) {
            self.prove(stamp);
        } else if silent {
            self.send(Message::Ping, Default::default());
        }
    }

    /// Sends a proof. A thread that has made its stamp may lose the processor, and the client its
    /// connection, before it does.
    fn prove(&mut self, Stamp { sent, touched }: Stamp) {
        self.last_sent = self.now;
        if !self.one_in(8) {
            return self.send(Message::Proof, (sent, touched));
        }
        let later = self.part(Duration::from_millis(100));
        self.at(self.now + later, Event::Goes(sent, touched));
        if self.one_in(2) {
            self.move_on();
        }
    }

    /// Connects to another server. What was on its way to the old one still arrives.
    fn move_on(&mut self) {
        self.server = match self.deposed {
            Some((server, _)) if self.is_often_reset => server,
            _ => self.rng.usize(..SERVERS),
        };
        self.connect();
    }

    fn answered(&mut self, letter: Letter) {
        if self.now < self.paused_until {
            // The answer is read when the process continues.
            return self.at(self.paused_until, Event::Answered(letter));
        }
        match letter.kind {
            Message::Hello => return self.greeted(letter),
            Message::Proof => self.proven(letter),
            Message::Ping => {}
        }
        let gap = self.granted_by(self.server) * 7 / 20;
        let at = match self.broken {
            Broken::UnansweredMessages => letter.sent,
            Broken::ReportedAtOnce => self.now.saturating_sub(gap),
            _ => self.now,
        };
        if let Some(lifetime) = &mut self.lifetime {
            lifetime.answered(letter.sent, at);
            match self.broken {
                Broken::MessageOfDue => {
                    let reported = at + reported_after(lifetime.timeout());
                    lifetime.answers.back_mut().unwrap().counts_at = reported;
                }
                Broken::HeardWithoutCommit => lifetime.heard_of = letter.sent,
                Broken::RenewedSinceAnswer => lifetime.last.sent = letter.sent,
                _ => {}
            }
        }
    }

    fn greeted(&mut self, letter: Letter) {
        if self.is_handle && letter.sent + LEAST_TIMEOUT / 5 < self.now {
            return self.move_on();
        }
        self.connected = true;
        self.greeted = letter.connection;
        let sent = match self.broken {
            Broken::HandshakeAnswered => self.now,
            _ => letter.sent,
        };
        match &mut self.lifetime {
            lifetime if self.is_handle => {
                let believed = letter.granted.min(LEAST_TIMEOUT);
                *lifetime = Some(Lifetime::new(believed, Duration::ZERO, self.now));
            }
            Some(lifetime) if self.broken == Broken::LastTimeout => {
                *lifetime = Lifetime::new(letter.granted, sent, self.now);
            }
            Some(lifetime) => {
                match self.broken {
                    Broken::LedLongAgo => lifetime.led.sent = self.now,
                    Broken::LedTooLong => lifetime.led.sent += lifetime.timeout / 2,
                    Broken::LedAtOnce => lifetime.led.counts_at = Duration::ZERO,
                    Broken::LedWithoutCommit => lifetime.led = lifetime.handshake,
                    _ => {}
                }
                lifetime.greeted(letter.granted, sent, self.now);
                match self.broken {
                    Broken::AnswersVouch => lifetime.unheard = Duration::MAX,
                    Broken::HandshakeOfDue => lifetime.answers[0].counts_at = Duration::ZERO,
                    Broken::RenewedLongAgo => {
                        lifetime.renewed_after = Some(lifetime.last.term);
                    }
                    Broken::HandshakeOfDueSoon => {
                        let half = ended_within(lifetime.timeout()) / 2;
                        let counts_at = &mut lifetime.answers[0].counts_at;
                        *counts_at = counts_at.saturating_sub(half);
                    }
                    _ => {}
                }
            }
            None => self.lifetime = Some(Lifetime::new(letter.granted, sent, self.now)),
        }
        if self.is_often_reset {
            self.waits();
        }
    }

    /// Lets a waiter have its node confirmed once on each connection, and then sleep, for about a session
    /// now and then.
    fn waits(&mut self) {
        let stamp = self
            .lifetime
            .as_ref()
            .map(|lifetime| lifetime.stamp(self.now));
        if let Some(stamp) = stamp.filter(|_| self.one_in(2)) {
            self.prove(stamp);
        } else if self.one_in(4) {
            self.paused_until = self.now + self.asked - self.part(self.asked / 8);
            self.at(self.paused_until, Event::HungUp);
        }
    }

    fn proven(&mut self, letter: Letter) {
        let Some(lifetime) = &mut self.lifetime else {
            return;
        };
        if self.broken == Broken::RenewedBySameLeader {
            lifetime.last.term = 0;
            lifetime.renewed_after = lifetime.renewed_after.map(|_| 0);
        }
        if !self.is_handle {
            lifetime.committed(letter.sent, letter.term << 32);
        }
        let (sent, touched) = letter.stamp;
        let mut stamp = Stamp { sent, touched };
        match self.broken {
            Broken::ProofAnswered => stamp = lifetime.stamp(self.now),
            Broken::CommitsTouch => stamp.touched = stamp.sent,
            _ => {}
        }
        // After some proofs, it is enough that the guard is alive.
        self.proof = Some(stamp);
        match &mut self.guard {
            Some(guard) => {
                guard.sent = guard.sent.max(stamp.sent);
                guard.touched = guard.touched.max(stamp.touched);
            }
            None => self.grant(ENOUGH_PROOFS),
        }
        if self.is_often_reset && self.one_in(3) {
            self.move_on();
        }
    }

    /// Grants the lock on the last proof, whatever has happened since, if that is allowed.
    fn grant(&mut self, proofs: u32) {
        let (Some(lifetime), Some(proof)) = (&self.lifetime, self.proof) else {
            return;
        };
        let is_granted = match self.broken {
            Broken::StampOfAnother => true,
            _ => lifetime.supports_a_grant(proof, (proofs, Duration::ZERO), self.now),
        };
        if is_granted {
            self.at_grant = lifetime.timeout();
            self.guard = Some(proof);
        }
    }

    /// Looks for a check that passes and must not.
    fn judge(&mut self) {
        let (Some(lifetime), Some(guard)) = (&self.lifetime, self.guard) else {
            return;
        };
        let until = match self.broken {
            Broken::TimeoutOfTheGrant => guard.until(self.at_grant).min(lifetime.latest()),
            _ => lifetime.terms().until(guard),
        };
        let left = until.saturating_sub(self.now);
        if self.ended {
            self.seen.late = self.seen.late.max(left);
        } else if left.is_zero() {
            // A lost lock stays lost; another one is granted later.
            self.guard = None;
        } else {
            self.seen.trusted = self.seen.trusted.max(left);
        }
    }
}
