//! The proof of life of every lock that this client holds.
//!
//! While there is a guard, the keeper's thread asks the quorum every sixth of the
//! session timeout, once for all guards, and feeds their vigils with what it says. It
//! also leaves a watch on each node that is held for longer than a moment: an eviction
//! and a wish to revoke are heard of at once then, and locks that are held for less
//! than a moment cost nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use super::ask::Answered;
use super::hub::{Hub, Link, SessionState};
use super::proof::{self, Proof};
use super::transport::{Call, Failure, Fired, Transport, Watch, WatchId};
use super::vigil::Vigil;
use super::vigils::{MOMENT, Vigils};
use crate::clock::Moment;
use crate::metrics::Counters;
use crate::proto::{ErrorCode, EventKind, Reply, Request};
use crate::protocol::validity::Stamp;

/// How many nodes go into one check, so that it stays far below the frame limit.
const NODES_A_CHECK: usize = 500;
/// How many bytes their names may take; the least that a client may set its requests to is
/// several times that.
const BYTES_A_CHECK: usize = 64 * 1024;
/// How much is taken in before the next look.
const AT_ONCE: usize = 1_000;

/// What those who want a holder to let go write into its node.
const REVOKE: [&[u8]; 2] = [b"__REVOKE__", b"unlock"];

/// The keeper's side: what has been asked, and what is answered.
pub(crate) struct Heart {
    hub: Arc<Hub>,
    transport: Arc<dyn Transport>,
    vigils: Arc<Vigils>,
    counters: Arc<Counters>,
    next_watch: Arc<AtomicU64>,
    connects: u64,
    /// How many vigils had begun at the last look.
    begun: u64,
    /// A check is due whatever the age of the proofs.
    urgent: bool,
    beats: Channel<Beaten>,
    fired: Channel<Fired>,
    read: Channel<(u64, Answered)>,
}

/// Both ends of a channel.
type Channel<T> = (Sender<T>, Receiver<T>);

/// A check, and what it brought.
pub(crate) type Beaten = (Beat, Vec<Answered>);

/// One check that was sent.
pub(crate) struct Beat {
    stamp: Stamp,
    /// Whose nodes were checked, in this order.
    nodes: Vec<u64>,
}

impl Heart {
    pub(crate) fn new(
        hub: Arc<Hub>,
        transport: Arc<dyn Transport>,
        vigils: Arc<Vigils>,
        counters: Arc<Counters>,
        next_watch: Arc<AtomicU64>,
    ) -> Self {
        Self {
            hub,
            transport,
            vigils,
            counters,
            next_watch,
            connects: 0,
            begun: 0,
            urgent: false,
            beats: unbounded(),
            fired: unbounded(),
            read: unbounded(),
        }
    }

    pub(crate) fn fired(&self) -> &Receiver<Fired> {
        &self.fired.1
    }

    pub(crate) fn beats(&self) -> &Receiver<Beaten> {
        &self.beats.1
    }

    pub(crate) fn reads(&self) -> &Receiver<(u64, Answered)> {
        &self.read.1
    }

    /// From here on every registration wakes the keeper.
    pub(crate) fn awake(&self) {
        self.vigils.next_look.store(u64::MAX, Ordering::Release);
    }

    /// Does what is due, and returns how long nothing will be.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        let link = self.hub.link();
        let mut all = self.vigils.all();
        self.follow(&link, &all);
        for (_, vigil) in &all {
            vigil.tell(&self.counters);
        }
        // What is lost needs no proof any more.
        all.retain(|(_, vigil)| vigil.check().is_ok());
        let now = Moment::now();
        if all.is_empty() {
            self.urgent = false;
            return self.linger(now);
        }
        let connected = link.state == SessionState::Connected;
        let mut due = self.due(&link);
        if connected {
            if self.urgent || due.is_some_and(|due| due <= now.since_boot()) {
                self.beat(&all);
                // All of them have just been asked for.
                due = Some(now.since_boot() + link.timeout / 6);
            }
            self.watch_long_holds(now);
        }
        // Without a connection there is nothing to do but to tell what fades.
        let next_beat = due.filter(|_| connected).map(|due| {
            let pause = due.saturating_sub(now.since_boot());
            pause.max(Duration::from_millis(1))
        });
        let next_watch = (connected && self.vigils.any_unwatched()).then_some(MOMENT);
        let steady = all.iter().filter_map(|(_, vigil)| vigil.steady_for()).min();
        let pauses = [next_beat, next_watch, steady].into_iter().flatten();
        let pause = pauses.min().unwrap_or(link.timeout / 6);
        self.vigils
            .next_look
            .store((now + pause).as_nanos(), Ordering::Release);
        Some(pause)
    }

    /// Nothing is held. Where locks come and go, it is cheaper to look now and then than
    /// to be woken by each.
    fn linger(&mut self, now: Moment) -> Option<Duration> {
        let begun = self.vigils.next.load(Ordering::Relaxed);
        if begun == self.begun {
            return None;
        }
        self.begun = begun;
        let next_look = (now + MOMENT).as_nanos();
        self.vigils.next_look.store(next_look, Ordering::Release);
        Some(MOMENT)
    }

    /// When the next check is due: each lock is to be proven anew before it is suspect.
    fn due(&self, link: &Link) -> Option<Duration> {
        let dues = self.vigils.proofs().into_iter().map(|(stamp, asked)| {
            if stamp.sent < asked {
                // Not answered yet; if that takes long, it is asked again.
                return asked + link.timeout / 6;
            }
            stamp.due(self.hub.better_at(stamp), link.timeout)
        });
        dues.min()
    }

    /// Takes in what has come until now: with many locks, a look for each would take long.
    pub(crate) fn take_in_what_came(&mut self) {
        let fired = self.fired.1.clone();
        let (beats, reads) = (self.beats.1.clone(), self.read.1.clone());
        fired
            .try_iter()
            .take(AT_ONCE)
            .for_each(|fired| self.touched(fired));
        for (beat, answers) in beats.try_iter().take(AT_ONCE) {
            self.beaten(beat, &answers);
        }
        for (id, answered) in reads.try_iter().take(AT_ONCE) {
            self.read(id, &answered);
        }
    }

    /// Takes in what a check brought.
    pub(crate) fn beaten(&mut self, beat: Beat, answers: &[Answered]) {
        match proof::judge(self.transport.abilities(), answers) {
            Proof::Confirmed => {
                for vigil in beat.nodes.iter().filter_map(|id| self.vigils.get(*id)) {
                    vigil.confirm(beat.stamp);
                }
            }
            Proof::Gone(at) => {
                if let Some(vigil) = beat.nodes.get(at).and_then(|id| self.vigils.get(*id)) {
                    // Whoever writes the log may take long.
                    vigil.lose();
                    log::warn!("a node of the lock {} is gone", vigil.path());
                }
                // The others were not confirmed by a check that failed.
                self.urgent = true;
            }
            Proof::Unanswered => {}
        }
    }

    /// A watch on a node of ours fired.
    pub(crate) fn touched(&mut self, fired: Fired) {
        let mut open = self.vigils.open.lock();
        let touched = open
            .iter_mut()
            .find(|(_, entry)| entry.watch == Some(fired.id));
        let Some((_, entry)) = touched else {
            return;
        };
        match fired.kind {
            EventKind::Deleted => entry.vigil.lose(),
            // Read and watched again at the next look.
            _ => entry.watch = None,
        }
    }

    /// A node of ours was read, and is watched if it is there.
    pub(crate) fn read(&mut self, id: u64, answered: &Answered) {
        let mut open = self.vigils.open.lock();
        let Some(entry) = open.get_mut(&id) else {
            return;
        };
        match answered {
            Ok(Reply::Data { data, .. }) if REVOKE.contains(&&data[..]) => {
                entry.vigil.ask_to_let_go();
            }
            Err(Failure::Refused(ErrorCode::NO_NODE)) => entry.vigil.lose(),
            Err(Failure::Lost | Failure::NotSent) => entry.watch = None,
            _ => {}
        }
    }

    /// Applies what happened to the connection.
    fn follow(&mut self, link: &Link, all: &[(u64, Arc<Vigil>)]) {
        let resumes = self.transport.abilities().resumes;
        let anew = link.connects != self.connects;
        let broke = link.state != SessionState::Connected || anew;
        let over = |vigil: &Vigil| {
            link.is_over()
                || (link.state == SessionState::Connected && vigil.session() != link.session)
                // The server has said that the session expired.
                || link.session == 0
                || (broke && !resumes && link.state != SessionState::Connected)
        };
        // What was confirmed through this connection was not there when the last one broke.
        let shaken = |vigil: &Vigil| {
            broke && (link.state != SessionState::Connected || !vigil.is_proven_since(link.since))
        };
        for (_, vigil) in all {
            if over(vigil) {
                vigil.lose();
            } else if shaken(vigil) {
                vigil.shake();
            }
        }
        if anew && link.state == SessionState::Connected {
            self.connects = link.connects;
            self.urgent = true;
        }
    }

    fn beat(&mut self, all: &[(u64, Arc<Vigil>)]) {
        let mut ids = Vec::new();
        let mut nodes = Vec::new();
        for (id, vigil) in all {
            ids.extend(vigil.nodes().iter().map(|_| *id));
            nodes.extend_from_slice(vigil.nodes());
        }
        let stamp = self.hub.stamp();
        self.vigils.asked(stamp.sent);
        // An answered ping is no proof. The chaos tests are compiled with this as well, to
        // see that they would find a client that takes it for one.
        if cfg!(zklock_trust_pings) {
            let touched = stamp.sent;
            let stamp = Stamp { touched, ..stamp };
            all.iter().for_each(|(_, vigil)| vigil.confirm(stamp));
            return;
        }
        let (mut ids, mut nodes) = (ids.as_slice(), nodes.as_slice());
        while !nodes.is_empty() {
            let (now, later) = nodes.split_at(in_one_check(nodes));
            let (whose, others) = ids.split_at(now.len());
            let beat = Beat {
                stamp,
                nodes: whose.to_vec(),
            };
            self.send(beat, now);
            (ids, nodes) = (others, later);
        }
        self.urgent = false;
    }

    fn send(&self, beat: Beat, nodes: &[String]) {
        let requests = proof::requests(self.transport.abilities(), nodes);
        let gathered = Arc::new(Mutex::new(Gathered {
            beat: Some(beat),
            answers: requests.iter().map(|_| None).collect(),
            to: self.beats.0.clone(),
        }));
        let calls = requests.into_iter().enumerate().map(|(at, request)| {
            let gathered = gathered.clone();
            Call {
                request,
                watch: None,
                answer: Box::new(move |answered| gathered.lock().put(at, answered)),
            }
        });
        self.transport.send(calls.collect());
    }

    /// Reads and watches the nodes of locks that are held for longer than a moment.
    fn watch_long_holds(&self, now: Moment) {
        let mut calls = Vec::new();
        for (id, entry) in self.vigils.open.lock().iter_mut() {
            if entry.watch.is_some() || now < entry.since + MOMENT {
                continue;
            }
            let watch = WatchId(self.next_watch.fetch_add(1, Ordering::Relaxed));
            entry.watch = Some(watch);
            let (id, read) = (*id, self.read.0.clone());
            let nodes = entry.vigil.nodes().iter();
            calls.extend(nodes.map(|path| Call {
                request: Request::GetData {
                    path: path.clone(),
                    watch: true,
                },
                watch: Some(Watch::new(watch, self.fired.0.clone())),
                answer: {
                    let read = read.clone();
                    Box::new(move |answered| {
                        let _ = read.send((id, answered));
                    })
                },
            }));
        }
        if !calls.is_empty() {
            self.transport.send(calls);
        }
    }
}

/// How many of these nodes go into one check, which must fit into one request.
fn in_one_check(nodes: &[String]) -> usize {
    let mut bytes = 0;
    let fit = nodes.iter().take(NODES_A_CHECK).take_while(|node| {
        bytes += node.len();
        bytes <= BYTES_A_CHECK
    });
    fit.count().max(1)
}

/// Collects the answers to the requests of one check.
struct Gathered {
    beat: Option<Beat>,
    answers: Vec<Option<Answered>>,
    to: Sender<Beaten>,
}

impl Gathered {
    fn put(&mut self, at: usize, answered: Answered) {
        if let Some(place) = self.answers.get_mut(at) {
            *place = Some(answered);
        }
        if self.answers.iter().any(Option::is_none) {
            return;
        }
        if let Some(beat) = self.beat.take() {
            let answers = self.answers.drain(..).flatten().collect();
            let _ = self.to.send((beat, answers));
        }
    }
}

impl fmt::Debug for Heart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heart")
            .field("vigils", &self.vigils)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;
    use crate::session::wire;

    /// A heart whose client was connected, and a lock that it watches over.
    fn heart() -> (Heart, Arc<Hub>) {
        let hub = Arc::new(Hub::new(Duration::from_secs(20), true));
        let config = wire::Config {
            hosts: wire::Hosts::parse("127.0.0.1:1").unwrap(),
            session_timeout: Duration::from_secs(20),
            auth: Vec::new(),
            frame_limit: wire::FRAME_LIMIT,
            tls: None,
        };
        // It reports elsewhere.
        let transport = wire::open(config, Arc::new(Hub::new(Duration::from_secs(20), true)));
        let vigils = Arc::new(Vigils::new(bounded(1).0));
        hub.greeted(7, Duration::from_secs(20), Moment::now());
        hub.connected(7);
        let nodes = vec!["/m/n".to_owned()];
        let vigil = Vigil::new("/m", nodes, 7, hub.bounds(7), hub.stamp());
        vigils.begin(Arc::new(vigil));
        let heart = Heart::new(
            hub.clone(),
            transport,
            vigils,
            Arc::default(),
            Arc::default(),
        );
        (heart, hub)
    }

    #[test]
    fn a_check_of_long_names_fits_into_one_request() {
        let short = vec!["/m/n".to_owned(); 1_200];
        assert_eq!(in_one_check(&short), NODES_A_CHECK);
        let long = vec![format!("/{}", "m".repeat(2_000)); 1_200];
        assert_eq!(in_one_check(&long), BYTES_A_CHECK / 2_001);
        let longer = vec![format!("/{}", "m".repeat(100_000)); 2];
        assert_eq!(in_one_check(&longer), 1);
    }

    #[test]
    fn without_a_connection_the_keeper_sleeps_until_something_fades() {
        let (mut heart, hub) = heart();
        heart.vigils.asked(Duration::from_nanos(1));
        hub.disconnected();
        let pause = heart.look().unwrap();
        assert!(Duration::from_secs(1) < pause, "{pause:?}");
    }
}
