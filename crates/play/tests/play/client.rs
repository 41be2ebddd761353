//! A client's process: threads that want locks, and the shell around their core, which decides
//! nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use zklock_core::attempt::Patience;
use zklock_core::dialect::{Dialect, Role};
use zklock_core::validity::Validity;
use zklock_jute::Request;
use zklock_play::{
    Ahead, Ask, Core, Grant, Greeting, GuardId, LOST, Loss, Notice, Outcome, Settings, Thread,
    Ticket,
};

use crate::places::Places;
use crate::plan::{Plan, Want};
use crate::proofs::Proofs;
use crate::servers::tree::ConnNo;
use crate::servers::{Conn, SERVERS, Said, Time, Told};
use crate::world::{Asked, Happening, PATHS, World};

pub(crate) struct Client {
    pub(crate) core: Core,
    conn: Option<ConnNo>,
    pub(crate) is_serving: bool,
    /// When the connect request that is not answered yet was sent.
    greeted: Time,
    /// The shortest timeout of the servers that were asked and have not answered.
    pub(crate) asked_for: Time,
    /// When the last message to the server, and the last one from it, arrive: none overtakes
    /// another.
    pub(crate) arrivals: [Time; 2],
    pub(crate) delayed_until: Time,
    pub(crate) stopped_until: Time,
    /// Until when ticks come late, and how late they come.
    pub(crate) late_ticks: (Time, Duration),
    pub(crate) loses_a_reply: bool,
    pub(crate) throttled_until: Time,
    /// Until when the answers to its connect requests are lost. Then it gives its session up.
    pub(crate) unheard_until: Option<Time>,
    pub(crate) was_evicted: bool,
    /// The tick that is planned.
    tick: Option<Time>,
    pub(crate) threads: Vec<ThreadState>,
    tickets: BTreeMap<Ticket, Waits>,
    /// The ops whose guards are open.
    guards: BTreeMap<GuardId, usize>,
    pub(crate) asked: Asked,
    /// When the requests without an answer were sent, and whether they are writes.
    open: VecDeque<(Time, bool)>,
    /// When the last request that is answered was sent.
    pub(crate) answered: Time,
    pub(crate) proofs: Proofs,
    pub(crate) places: Places,
    /// How many releases should have taken the next thread's create along.
    pub(crate) joins: u32,
    pub(crate) connected_at: Time,
    /// When the client's connection last broke.
    pub(crate) broke_at: Time,
    pub(crate) is_closed: bool,
    /// How many servers have served the client, and how many of its sessions expired.
    pub(crate) greetings: u64,
    pub(crate) expiries: u64,
    pub(crate) lost_guards: BTreeSet<GuardId>,
    /// How many times a guard that was not suspect was told that it is.
    pub(crate) suspicions: u64,
}

/// The purpose of a ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waits {
    Lock(usize),
    Verify(usize),
    Commit(usize),
    Unlock(usize),
}

pub(crate) struct ThreadState {
    script: Vec<Want>,
    next: usize,
    does: Does,
}

#[derive(Clone, Copy, Debug)]
enum Does {
    Pauses,
    Asks,
    Holds(usize),
    /// The same, for an op that has verified the lock, or written under it.
    HoldsOn(usize),
    Unlocks,
}

/// A thread's request for one lock.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) client: usize,
    pub(crate) thread: usize,
    pub(crate) want: Want,
    pub(crate) asked: Time,
    pub(crate) until: Option<Time>,
    pub(crate) cancelled: bool,
    pub(crate) granted: Option<Time>,
    pub(crate) node: Option<Rc<str>>,
    guard: Option<GuardId>,
    pub(crate) trust: Validity,
    is_lost: bool,
    pub(crate) released: Option<Time>,
    pub(crate) ended: Option<(Time, String)>,
    /// Whether its guard came from another thread of its client.
    pub(crate) was_handed_on: bool,
    /// Whether its thread released the lock, and held it until then.
    pub(crate) was_orderly: bool,
    /// Whether it was told how the holders ahead left.
    pub(crate) is_told: bool,
    /// The contenders that it was told it waits for, and when.
    pub(crate) news: Vec<(Time, Ahead)>,
    /// The reason that it was told for the loss of its lock, and when.
    pub(crate) loss: Option<(Time, Loss)>,
}

impl Op {
    fn new((client, thread): (usize, usize), want: Want, asked: Time) -> Self {
        Self {
            client,
            thread,
            want,
            asked,
            until: want.limit.map(|limit| asked + limit),
            cancelled: false,
            granted: None,
            node: None,
            guard: None,
            trust: LOST,
            is_lost: false,
            released: None,
            ended: None,
            was_handed_on: false,
            was_orderly: false,
            is_told: false,
            news: Vec::new(),
            loss: None,
        }
    }
}

impl ThreadState {
    /// Returns whether it wants a lock whose queue is in this directory. Who has lost the first place in front of a
    /// semaphore gives it up and queues again, so semaphores do not count.
    pub(crate) fn wants(&self, dir: &str) -> bool {
        let is_there = |want: &Want| PATHS[want.path] == dir && want.role != Role::Permit;
        self.script.iter().any(is_there)
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.does, Does::Pauses) && self.script.len() <= self.next
    }
}

impl Client {
    pub(crate) fn new(at: usize, threads: &[Vec<Want>], plan: &Plan) -> Self {
        let mut settings = Settings::new(Dialect::Curator, (at as u128) << 100);
        settings.local_handoffs = plan.local_handoffs;
        settings.notes = plan.notes;
        settings.card = format!("c{at}").into_bytes();
        let threads = threads.iter().map(|script| ThreadState {
            script: script.clone(),
            next: 0,
            does: Does::Pauses,
        });
        Self {
            core: Core::new(settings),
            conn: None,
            is_serving: false,
            greeted: Time::ZERO,
            asked_for: Time::MAX,
            arrivals: [Time::ZERO; 2],
            delayed_until: Time::ZERO,
            stopped_until: Time::ZERO,
            late_ticks: (Time::ZERO, Duration::ZERO),
            loses_a_reply: false,
            throttled_until: Time::ZERO,
            was_evicted: false,
            tick: None,
            threads: threads.collect(),
            tickets: BTreeMap::new(),
            guards: BTreeMap::new(),
            asked: Asked::default(),
            open: VecDeque::new(),
            answered: Time::ZERO,
            proofs: Proofs::default(),
            places: Places::default(),
            joins: 0,
            connected_at: Time::ZERO,
            broke_at: Time::ZERO,
            unheard_until: None,
            is_closed: false,
            greetings: 0,
            expiries: 0,
            lost_guards: BTreeSet::new(),
            suspicions: 0,
        }
    }
}

// The shell.
impl World {
    /// Gives one input to a core, and carries out what the core says.
    pub(crate) fn turn<T>(&mut self, client: usize, input: impl FnOnce(&mut Core, Time) -> T) -> T {
        let now = self.now;
        let result = input(&mut self.clients[client].core, now);
        self.carry_out(client);
        result
    }

    fn carry_out(&mut self, client: usize) {
        while let Some((guard, notice)) = self.clients[client].core.next_notice() {
            self.noticed(client, guard, notice);
        }
        while let Some(request) = self.clients[client].core.next_request() {
            if self.tells() {
                let line = format!("c{client} sends {}", short(&request));
                self.tell_story(|| line);
            }
            if let Some(conn) = self.clients[client].conn {
                self.judge_place(client, self.conns[conn].session, &request);
                let one = &mut self.clients[client];
                match request {
                    Request::Ping => one.proofs.pings(self.now),
                    _ => one.open.push_back((self.now, request.commits())),
                }
                self.say(
                    conn,
                    match request {
                        Request::Ping => Said::Ping,
                        request => Said::Request(Rc::new(request)),
                    },
                );
            }
        }
        while let Some((ticket, outcome)) = self.clients[client].core.next_wake() {
            self.woken(client, ticket, outcome);
        }
        while let Some((ticket, ahead)) = self.clients[client].core.next_news() {
            self.told(client, ticket, ahead);
        }
        self.judge_line(client);
        if self.clients[client].core.hangs_up() && self.clients[client].is_serving {
            self.tell_story(|| format!("c{client} leaves its server"));
            self.breaks(client, true);
        }
        self.plan_tick(client);
    }

    fn plan_tick(&mut self, client: usize) {
        let one = &mut self.clients[client];
        let Some(next) = one.core.next_tick() else {
            return;
        };
        if one.tick.is_some_and(|tick| tick <= next && self.now < tick) {
            return;
        }
        let (until, late) = one.late_ticks;
        let at = if next < until { next + late } else { next };
        one.tick = Some(at.max(self.now));
        self.plan(at, Happening::ClientTick { client });
    }

    pub(crate) fn client_tick(&mut self, client: usize) {
        let one = &mut self.clients[client];
        if one.tick.is_none_or(|tick| self.now < tick) {
            return;
        }
        one.tick = None;
        match one.core.next_tick() {
            Some(next) if next <= self.now => {
                self.turn(client, Core::tick);
                self.judge_tick(client);
            }
            _ => self.plan_tick(client),
        }
    }

    pub(crate) fn connect(&mut self, client: usize) {
        if self.clients[client].conn.is_some() || self.clients[client].is_closed {
            return;
        }
        let server = self.chance.usize(..SERVERS);
        if self.servers[server].is_down {
            return self.connect_later(client);
        }
        let conn = self.conns.len();
        self.open.push(conn);
        self.conns.push(Conn {
            client,
            server,
            session: 0,
            greeted: false,
            open: true,
            waiting: Default::default(),
        });
        let (session, seen) = self.clients[client].core.session();
        self.turn(client, Core::greets);
        self.clients[client].conn = Some(conn);
        self.clients[client].is_serving = false;
        self.clients[client].greeted = self.now;
        let asked_for = &mut self.clients[client].asked_for;
        *asked_for = self.plan.grants[server].min(*asked_for);
        self.clients[client].arrivals = [self.now; 2];
        self.clients[client].open.clear();
        self.say(conn, Said::Connect { session, seen });
        let limit = self.now + self.plan.timeout / 4;
        self.plan(limit, Happening::DialLimit { client, conn });
    }

    pub(crate) fn dial_limit(&mut self, client: usize, conn: ConnNo) {
        let one = &self.clients[client];
        if one.conn == Some(conn) && !one.is_serving {
            self.breaks(client, true);
        }
    }

    fn connect_later(&mut self, client: usize) {
        let pause = Duration::from_micros(self.chance.u64(1_000..50_000));
        self.plan(self.now + pause, Happening::Connect { client });
    }

    /// Returns the server that a client is connected to.
    pub(crate) fn server_of(&self, client: usize) -> Option<usize> {
        let conn = self.clients[client].conn?;
        Some(self.conns[conn].server)
    }

    /// Ends the connection of a client; the messages that it has sent arrive, or do not.
    pub(crate) fn breaks(&mut self, client: usize, arrives: bool) {
        let Some(conn) = self.clients[client].conn else {
            return;
        };
        match arrives {
            true => {
                let at = self.clients[client].arrivals[0].max(self.now + self.plan.trip);
                self.plan(at, Happening::HangUp { conn });
            }
            false => self.forget(conn),
        }
        self.left(client);
    }

    /// Ends the connection of a client without telling the client.
    pub(crate) fn vanish(&mut self, client: usize) {
        if let Some(conn) = self.clients[client].conn {
            self.forget(conn);
        }
    }

    /// Handles the loss of a client's connection.
    fn left(&mut self, client: usize) {
        let one = &mut self.clients[client];
        one.conn = None;
        if std::mem::take(&mut one.is_serving) {
            self.seen.broken += 1;
            one.broke_at = self.now;
            self.tell_story(|| format!("c{client} has lost its connection"));
            self.turn(client, Core::broke);
            self.judge_doubt(client);
        }
        self.connect_later(client);
    }

    pub(crate) fn at_client(&mut self, conn: ConnNo, told: Told) {
        let client = self.conns[conn].client;
        if self.clients[client].conn != Some(conn) {
            return;
        }
        match told {
            Told::Greeting(Some(_)) if self.is_unheard(client) => {}
            Told::Greeting(Some(session)) => {
                self.clients[client].is_serving = true;
                let one = &mut self.clients[client];
                one.connected_at = self.now;
                one.asked_for = Time::MAX;
                one.greetings += 1;
                one.proofs.connected(one.greeted);
                let server = self.conns[conn].server;
                self.tell_story(|| format!("c{client} has session {session} at server {server}"));
                let greeting = Greeting {
                    session,
                    timeout: self.plan.grants[server],
                    asked: self.clients[client].greeted,
                };
                self.turn(client, |core, now| core.connected(now, greeting));
            }
            Told::Greeting(None) => {
                self.seen.expired += 1;
                self.clients[client].expiries += 1;
                self.tell_story(|| format!("the session of c{client} has expired"));
                self.turn(client, Core::expired);
                self.judge_loss(client);
                self.left(client);
            }
            Told::Answer(answer) => {
                if self.tells() {
                    let line = format!(
                        "c{client} is answered {:.90}",
                        format!("{:?}", answer.result)
                    );
                    self.tell_story(|| line);
                }
                let (shortest, longest) = self.plan.granted();
                let one = &mut self.clients[client];
                if let Some((sent, commits)) = one.open.pop_front() {
                    if commits && answer.result.is_ok() {
                        one.proofs.committed(sent, shortest, longest);
                    }
                    one.proofs.answered(sent, self.now);
                    one.answered = sent;
                }
                self.turn(client, |core, now| core.answer(now, *answer));
            }
            Told::Pong => {
                self.clients[client].proofs.pong(self.now);
                self.turn(client, Core::pong);
            }
            Told::Event(event) => {
                self.tell_story(|| {
                    format!("c{client} gets the event {} {:?}", event.path, event.kind)
                });
                self.turn(client, |core, now| core.event(now, &event));
                self.judge_event(client, &event);
            }
            Told::Closed => self.left(client),
        }
    }
}

// The threads.
impl World {
    /// Plans the next want of a thread.
    pub(crate) fn next_want(&mut self, client: usize, thread: usize) {
        let one = &mut self.clients[client].threads[thread];
        one.does = Does::Pauses;
        if let Some(want) = one.script.get(one.next) {
            let at = self.now + want.pause;
            self.plan(at, Happening::Act { client, thread });
        }
    }

    pub(crate) fn act(&mut self, client: usize, thread: usize) {
        match self.clients[client].threads[thread].does {
            Does::Pauses => self.asks(client, thread),
            Does::Holds(op) if self.ops[op].want.verifies => self.verifies(client, thread, op),
            Does::Holds(op) if self.ops[op].want.commits => {
                self.clients[client].threads[thread].does = Does::HoldsOn(op);
                if let Some(guard) = self.ops[op].guard {
                    self.commits((client, thread), op, guard);
                }
            }
            Does::Holds(op) | Does::HoldsOn(op) => self.releases(client, thread, op),
            Does::Asks | Does::Unlocks => {}
        }
    }

    fn asks(&mut self, client: usize, thread: usize) {
        let one = &mut self.clients[client].threads[thread];
        let Some(want) = one.script.get(one.next).copied() else {
            return;
        };
        one.next += 1;
        one.does = Does::Asks;
        let until = want.limit.map(|limit| self.now + limit);
        let op = self.ops.len();
        self.ops.push(Op::new((client, thread), want, self.now));
        self.tell_story(|| format!("c{client}.{thread} wants {} (op {op})", PATHS[want.path]));
        let path = self.paths[want.path].clone();
        let patience = match want.tries {
            true => Patience::Tries,
            false => Patience::Waits,
        };
        let ask = match want.role {
            Role::Permit => Ask::Permit {
                path,
                permits: self.plan.permits_of(client, want.path),
                patience,
                until,
            },
            role => Ask::Lock {
                path,
                role,
                patience,
                until,
            },
        };
        let ticket = self.ticket(client, thread, ask, Waits::Lock(op));
        if let Some(after) = want.cancel_after {
            self.plan(self.now + after, Happening::Cancel { client, ticket });
        }
    }

    /// Asks the core. The ticket is known before its wake-up, which may come in the same turn.
    pub(crate) fn ticket(
        &mut self,
        client: usize,
        thread: usize,
        ask: Ask,
        waits: Waits,
    ) -> Ticket {
        let follows = matches!(waits, Waits::Lock(op) if self.follows(op));
        let one = &mut self.clients[client];
        let ticket = one.core.ask(self.now, Thread(thread as u64), ask);
        one.tickets.insert(ticket, waits);
        if follows {
            one.core.follow(self.now, ticket);
        }
        self.carry_out(client);
        ticket
    }

    pub(crate) fn cancel(&mut self, client: usize, ticket: Ticket) {
        if let Some(Waits::Lock(op)) = self.clients[client].tickets.get(&ticket) {
            self.ops[*op].cancelled = true;
            self.turn(client, |core, now| core.cancel(now, ticket));
            if self.clients[client].tickets.contains_key(&ticket) {
                self.fail("an ask that was cancelled goes on");
            }
        }
    }

    fn verifies(&mut self, client: usize, thread: usize, op: usize) {
        self.clients[client].threads[thread].does = Does::HoldsOn(op);
        let Some(guard) = self.ops[op].guard else {
            return;
        };
        let until = (op % 2 == 0).then(|| self.now + self.plan.timeout);
        self.ticket(
            client,
            thread,
            Ask::Verify { guard, until },
            Waits::Verify(op),
        );
    }

    fn releases(&mut self, client: usize, thread: usize, op: usize) {
        let Some(guard) = self.ops[op].guard else {
            return;
        };
        self.tell_story(|| format!("c{client}.{thread} releases op {op}"));
        self.clients[client].joins += u32::from(self.is_to_join(op));
        self.judge_untold(op);
        self.ops[op].was_orderly = self.is_valid(op);
        self.ops[op].released = Some(self.now);
        self.judge_explained(op);
        self.clients[client].guards.remove(&guard);
        match self.ops[op].want.unlocks {
            true => {
                self.clients[client].threads[thread].does = Does::Unlocks;
                let ops = self.farewell(op);
                self.ticket(
                    client,
                    thread,
                    Ask::Unlock { guard, ops },
                    Waits::Unlock(op),
                );
            }
            false => {
                self.turn(client, |core, now| core.release(now, guard));
                self.next_want(client, thread);
            }
        }
    }

    fn woken(&mut self, client: usize, ticket: Ticket, outcome: Outcome) {
        let one = &mut self.clients[client];
        let Some(waits) = one.tickets.remove(&ticket) else {
            return self.fail("a thread is woken twice");
        };
        let (Waits::Lock(op) | Waits::Verify(op) | Waits::Commit(op) | Waits::Unlock(op)) = waits;
        let thread = self.ops[op].thread;
        self.tell_story(|| format!("c{client}.{thread} is told of op {op}: {outcome:?}"));
        match (waits, outcome) {
            (Waits::Lock(op), Outcome::Held(grant)) => self.granted(op, grant),
            (Waits::Lock(op), outcome) => {
                self.ops[op].ended = Some((self.now, format!("{outcome:?}")));
                self.judge_refusal(op, &outcome);
                self.next_want(client, thread);
            }
            (Waits::Verify(op), outcome) => {
                self.judge_verdict(op, &outcome);
                let at = self.now + self.ops[op].want.hold / 2;
                self.plan(at, Happening::Act { client, thread });
            }
            (Waits::Commit(op), outcome) => {
                self.judge_writing((op, false), &outcome);
                let at = self.now + self.ops[op].want.hold / 2;
                self.plan(at, Happening::Act { client, thread });
            }
            (Waits::Unlock(op), outcome) => {
                match self.ops[op].want.leaves {
                    true => self.judge_writing((op, true), &outcome),
                    false => self.judge_verdict(op, &outcome),
                }
                self.next_want(client, thread);
            }
        }
    }

    fn granted(&mut self, op: usize, grant: Grant) {
        let (client, thread) = (self.ops[op].client, self.ops[op].thread);
        let node: Rc<str> = (&*grant.node).into();
        self.clients[client].threads[thread].does = Does::Holds(op);
        self.clients[client].guards.insert(grant.guard, op);
        let handed_on = self
            .ops
            .iter()
            .any(|other| other.node.as_ref() == Some(&node));
        self.seen.grants += 1;
        self.seen.handed_on += u64::from(handed_on);
        let one = &mut self.ops[op];
        one.was_handed_on = handed_on;
        one.granted = Some(self.now);
        one.node = Some(node);
        one.guard = Some(grant.guard);
        one.trust = grant.trust;
        let hold = match one.want.verifies || one.want.commits {
            true => one.want.hold / 2,
            false => one.want.hold,
        };
        self.plan(self.now + hold, Happening::Act { client, thread });
        self.judge_grant(op);
    }

    /// Returns whether a guard passes its own check now. The promise does not cover an evicted
    /// guard.
    pub(crate) fn is_valid(&self, op: usize) -> bool {
        let op = &self.ops[op];
        let node = op.node.as_deref();
        if self.evicted.iter().any(|evicted| Some(&**evicted) == node) {
            return false;
        }
        let open = op.granted.is_some() && op.released.is_none();
        open && !op.is_lost && self.now < op.trust.until
    }

    /// Returns the op whose thread waits with this ticket.
    pub(crate) fn op_of(&self, client: usize, ticket: Ticket) -> Option<usize> {
        match self.clients[client].tickets.get(&ticket) {
            Some(Waits::Lock(op)) => Some(*op),
            _ => None,
        }
    }

    /// Returns the ops of a client whose threads wait for a lock, in the order of their asks.
    pub(crate) fn waiting(&self, client: usize) -> impl Iterator<Item = usize> {
        let tickets = self.clients[client].tickets.values();
        tickets.filter_map(|waits| match waits {
            Waits::Lock(op) => Some(*op),
            _ => None,
        })
    }

    /// Closes a client, whose session then ends by itself.
    pub(crate) fn closes(&mut self, client: usize) {
        if std::mem::replace(&mut self.clients[client].is_closed, true) {
            return;
        }
        self.turn(client, |core, now| core.ends(now, Loss::Closed));
        if let Some(conn) = self.clients[client].conn.take() {
            self.clients[client].is_serving = false;
            self.forget(conn);
        }
        self.judge_end_of(client);
    }

    /// Returns the ops of a client whose guards are open.
    pub(crate) fn guards(&self, client: usize) -> Vec<usize> {
        self.clients[client].guards.values().copied().collect()
    }

    /// Returns whether a thread of a client waits for the end of its release.
    pub(crate) fn unlocks(&self, client: usize) -> bool {
        let mut tickets = self.clients[client].tickets.values();
        tickets.any(|waits| matches!(waits, Waits::Unlock(_)))
    }

    fn noticed(&mut self, client: usize, guard: GuardId, notice: Notice) {
        if let Notice::Lost(_) = notice {
            self.clients[client].lost_guards.insert(guard);
        }
        let Some(op) = self.clients[client].guards.get(&guard).copied() else {
            return;
        };
        let one = &mut self.ops[op];
        match notice {
            Notice::Trust(trust) => {
                let turns = one.trust.suspect_from.min(one.trust.until) <= self.now;
                let is_suspect = trust.suspect_from <= self.now && self.now < trust.until;
                self.clients[client].suspicions += u64::from(is_suspect && !turns);
                // A guard that has seen the end of its time stays lost.
                one.is_lost |= one.trust.until <= self.now || trust.until <= self.now;
                one.trust = trust;
                self.judge_trust(op);
            }
            Notice::Lost(why) => {
                self.seen.lost += u64::from(!one.is_lost);
                one.is_lost = true;
                self.tell_story(|| format!("op {op} is lost: {why:?}"));
                self.judge_reason(op, why);
                self.ops[op].trust = LOST;
            }
            Notice::Follows { released } => {
                self.tell_story(|| {
                    format!("op {op} is told that those ahead released: {released}")
                });
                self.judge_follows(op, released);
            }
            Notice::Revoked => {}
        }
    }
}

/// Returns a request in few words.
fn short(request: &Request) -> String {
    let text = format!("{request:?}");
    let end = text.find(", data").unwrap_or(text.len());
    text[..end.min(150)].to_owned()
}
