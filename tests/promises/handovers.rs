//! Hand-overs: a lock goes from one process to another, and nobody else gets in between.

use std::env;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use zklock::{
    Acl, Client, Error, GuardState, Handover, LockOptions, LostReason, MutexGuard, Permission,
    Result,
};

use crate::support::proxy::Proxy;
use crate::support::raw::{self, Raw, assert_nothing_left, op, wait_for_children};
use crate::support::worker::{self, Worker};
use crate::support::{aside, eventually, fresh_path, timed};
use crate::transport::{Place, SOON, Transport, in_every_place, on_every_server, wait_for_queue};

// A handle does not tell its session.
on_every_server! {
    a_process_that_replaces_its_program_keeps_its_lock
    a_lock_whose_new_process_never_comes_is_free_after_the_session_timeout
    of_all_that_take_over_one_holds
    a_client_with_another_chroot_is_told_so_and_takes_nothing_over
    an_old_process_takes_its_own_handover_back
    a_handover_that_is_late_is_lost
    a_lost_reply_leaves_the_lock_with_who_has_marked_it
    a_server_that_cannot_tell_what_a_session_has_does_not_keep_the_lock_from_it
    a_request_to_let_go_survives_a_handover
    a_client_with_other_locks_hands_nothing_over
    what_waits_in_the_old_process_is_not_left_behind
    a_thread_that_waits_for_a_permit_stops_no_handover
    a_node_that_cannot_be_given_up_stops_no_handover
    a_failed_handover_changes_nothing
    a_handover_by_another_clock_is_trusted_once_the_session_is_known_to_last
    a_network_that_goes_in_the_middle_of_a_take_over_holds_nobody_up_for_longer
    a_term_goes_on_in_the_new_process
}

in_every_place! {
    a_handover_works_or_says_that_it_cannot
}

/// The variable that the new program finds in its environment.
const HANDOVER: &str = "ZKLOCK_TEST_HANDOVER";

/// A holder, and somebody who waits behind it.
struct Scene {
    hosts: String,
    path: String,
    other: Client,
}

impl Scene {
    fn of(place: Place) -> Self {
        let hosts = place.shared().hosts();
        Self {
            other: place.connect(&hosts),
            path: fresh_path("handover"),
            hosts,
        }
    }

    fn holder(&self, timeout: Duration) -> MutexGuard {
        let client = Transport::Wire.connect_with(&self.hosts, timeout);
        client.mutex(&self.path).unwrap().lock().unwrap()
    }

    /// Lets another client wait, which reports its token once it has the lock.
    fn waiter(&self) -> Receiver<i64> {
        let mutex = self.other.mutex(&self.path).unwrap();
        let waiting = aside(move || {
            let guard = mutex.lock().unwrap();
            let token = guard.fencing_token().get();
            guard.unlock().unwrap();
            token
        });
        wait_for_queue(&self.other, &self.path, 2);
        waiting
    }

    fn take_over(&self, handover: &Handover) -> Result<(Client, MutexGuard)> {
        Client::builder(&self.hosts).take_over(handover)
    }
}

fn lost<T>(outcome: Result<T>) -> Option<LostReason> {
    match outcome {
        Err(Error::Lost { why, .. }) => Some(why),
        _ => None,
    }
}

/// Returns the hand-over as another process reads it.
fn copy(handover: &Handover) -> Handover {
    handover.text().parse().unwrap()
}

#[track_caller]
fn lets_in(waiting: &Receiver<i64>, after: i64) {
    assert!(after < waiting.recv_timeout(SOON).expect("it is let in"));
}

#[test]
#[ignore = "a worker process"]
fn worker_that_replaces_its_program() {
    let Some(input) = worker::input() else { return };
    let [hosts, path] = worker::words(&input);
    let told = |client: &Client, what: &str| {
        let node = format!("{path}-{what}");
        eventually("it is told to go on", || {
            client.nodes().exists(&node).unwrap()
        });
    };
    let Ok(text) = env::var(HANDOVER) else {
        let client = Transport::Wire.connect(&hosts);
        let guard = client.mutex(&path).unwrap().lock().unwrap();
        worker::say(&format!("{} {}", guard.node(), guard.fencing_token()));
        told(&client, "replace");
        let handover = guard.hand_over().unwrap();
        let mut program = Command::new(env::current_exe().unwrap());
        let program = program.args(env::args_os().skip(1));
        panic!("{}", program.env(HANDOVER, handover.text()).exec());
    };
    let handover: Handover = text.parse().unwrap();
    let (client, guard) = Client::builder(&hosts).take_over(&handover).unwrap();
    worker::say(&format!("{} {}", guard.node(), guard.fencing_token()));
    told(&client, "release");
    guard.verify().unwrap();
    assert_eq!(guard.state(), GuardState::Held);
    guard.unlock().unwrap();
    client.close().unwrap();
    worker::say("released");
    worker::stay();
}

fn a_process_that_replaces_its_program_keeps_its_lock(place: Place) {
    let scene = Scene::of(place);
    let input = format!("{} {}", scene.hosts, scene.path);
    let worker = Worker::spawn(worker_that_replaces_its_program, &input);
    let held = worker.hear();
    let waiting = scene.waiter();
    let tell = |what: &str| {
        let node = format!("{}-{what}", scene.path);
        scene.other.nodes().create(&node, "").unwrap();
    };
    tell("replace");
    assert_eq!(worker.hear(), held, "the same node, with the same token");
    let queue = scene.other.contenders(&scene.path).unwrap();
    let (node, token) = held.split_once(' ').unwrap();
    assert!(queue[0].holds() && queue[0].node() == node && queue.len() == 2);
    assert_eq!(queue[0].owner().pid, Some(worker.id()));
    assert!(waiting.is_empty(), "it was let in");
    tell("release");
    worker.expect("released");
    lets_in(&waiting, token.parse().unwrap());
    assert_nothing_left(&scene.hosts, &scene.path);
}

#[test]
#[ignore = "a worker process"]
fn worker_that_hands_over_to_nobody() {
    let Some(input) = worker::input() else { return };
    let [hosts, path] = worker::words(&input);
    let client = Transport::Wire.connect_with(&hosts, Duration::from_secs(2));
    let guard = client.mutex(&path).unwrap().lock().unwrap();
    worker::say(&guard.fencing_token().to_string());
    wait_for_queue(&client, &path, 2);
    let _handover = guard.hand_over().unwrap();
    worker::say("handed over");
    worker::stay();
}

fn a_lock_whose_new_process_never_comes_is_free_after_the_session_timeout(place: Place) {
    let scene = Scene::of(place);
    let input = format!("{} {}", scene.hosts, scene.path);
    let mut worker = Worker::spawn(worker_that_hands_over_to_nobody, &input);
    let token = worker.hear().parse().unwrap();
    let waiting = scene.waiter();
    worker.expect("handed over");
    worker.kill();
    lets_in(&waiting, token);
}

fn of_all_that_take_over_one_holds(place: Place) {
    let scene = Scene::of(place);
    let guard = scene.holder(2 * SOON);
    let (node, token) = (guard.node().to_owned(), guard.fencing_token());
    let waiting = scene.waiter();
    let handover = guard.hand_over().unwrap();
    assert_eq!(guard.lost_reason(), Some(LostReason::HandedOver));
    assert_eq!(
        (handover.fencing_token(), handover.path()),
        (token, guard.path())
    );
    drop(guard);
    let outcomes: Vec<_> = thread::scope(|scope| {
        let attempt = || {
            let builder = Client::builder(&scene.hosts).session_timeout(SOON / 5);
            let taken = builder.take_over(&copy(&handover));
            taken.map(|(client, guard)| (client, guard.into_send()))
        };
        let all: Vec<_> = (0..5).map(|_| scope.spawn(attempt)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (won, others): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    for other in others {
        assert_eq!(lost(other), Some(LostReason::HandedOver));
    }
    let [Ok((client, guard))] = &won[..] else {
        panic!("{won:?}");
    };
    // A shorter timeout would end the session while another process trusts it.
    assert_eq!(client.session_timeout(), handover.session_timeout());
    // A late take-over does no harm either.
    assert_eq!(
        lost(scene.take_over(&handover)),
        Some(LostReason::HandedOver)
    );
    eventually("the guard is confirmed again", || guard.verify().is_ok());
    assert_eq!((guard.node(), guard.fencing_token()), (&*node, token));
    assert_eq!(raw::owner(&scene.hosts, &node), client.session_id());
    assert!(waiting.is_empty(), "it was let in");
    drop(won);
    lets_in(&waiting, token.get());
}

/// It would look for the lock where there is none.
fn a_client_with_another_chroot_is_told_so_and_takes_nothing_over(place: Place) {
    let scene = Scene::of(place);
    let below = format!("{}{}", scene.hosts, fresh_path("chroot"));
    let client = Client::builder(&below).create_chroot(true);
    let client = client.session_timeout(2 * SOON).connect().unwrap();
    let guard = client.mutex(&scene.path).unwrap().lock().unwrap();
    let handover = copy(&guard.hand_over().unwrap());
    for elsewhere in [scene.hosts.clone(), format!("{below}x")] {
        let refused = Client::builder(&elsewhere).take_over(&handover);
        let refused = refused.unwrap_err();
        assert!(refused.is_bad_input(), "{refused}");
        assert!(refused.to_string().contains("has the chroot"), "{refused}");
    }
    let (_client, guard) = Client::builder(&below).take_over(&handover).unwrap();
    guard.verify().unwrap();
}

fn an_old_process_takes_its_own_handover_back(place: Place) {
    let scene = Scene::of(place);
    let first = scene.holder(2 * SOON);
    let token = first.fencing_token();
    let waiting = scene.waiter();
    let mut handover = first.hand_over().unwrap();
    // Starting the program fails several times.
    for _ in 0..3 {
        let (_, guard) = scene.take_over(&handover).unwrap();
        assert_eq!(guard.fencing_token(), token);
        guard.check().unwrap();
        handover = guard.hand_over().unwrap();
    }
    assert!(waiting.is_empty(), "it was let in");
    let (_, guard) = scene.take_over(&handover).unwrap();
    guard.unlock().unwrap();
    lets_in(&waiting, token.get());
}

fn a_handover_that_is_late_is_lost(place: Place) {
    let scene = Scene::of(place);
    let guard = scene.holder(2 * SOON);
    let handover = guard.hand_over().unwrap();
    place
        .shared()
        .expire(raw::owner(&scene.hosts, guard.node()));
    let network = Proxy::start(&scene.hosts);
    let taken = Client::builder(&network.hosts()).take_over(&handover);
    assert_eq!(lost(taken), Some(LostReason::SessionExpired));
    assert_eq!(network.connections(), 1, "another session is of no use");

    let guard = scene.holder(2 * SOON);
    let handover = guard.hand_over().unwrap();
    Raw::connect(&scene.hosts).delete(guard.node()).unwrap();
    assert_eq!(lost(scene.take_over(&handover)), Some(LostReason::Evicted));
}

fn a_lost_reply_leaves_the_lock_with_who_has_marked_it(place: Place) {
    let scene = Scene::of(place);
    let network = Proxy::start(&scene.hosts);
    let handover = scene.holder(2 * SOON).hand_over().unwrap();
    network.drop_next_reply_to(op::SET_DATA);
    let builder = Client::builder(&network.hosts());
    let (_, guard) = builder.clone().take_over(&handover).unwrap();
    assert!(network.fired());

    let handover = guard.hand_over().unwrap();
    network.drop_next_request(op::SET_DATA);
    let (_client, guard) = builder.take_over(&handover).unwrap();
    assert!(network.fired());
    guard.verify().unwrap();
}

/// ZooKeeper before 3.6 hangs up at the question.
fn a_server_that_cannot_tell_what_a_session_has_does_not_keep_the_lock_from_it(place: Place) {
    let scene = Scene::of(place);
    let network = Proxy::start(&scene.hosts);
    let handover = scene.holder(2 * SOON).hand_over().unwrap();
    network.hang_up_at(op::GET_EPHEMERALS);
    let builder = Client::builder(&network.hosts());
    let (_client, guard) = builder.take_over(&handover).unwrap();
    eventually("it is back", || guard.verify().is_ok());
    assert_eq!(network.requests(op::GET_EPHEMERALS), 2);
}

fn a_request_to_let_go_survives_a_handover(place: Place) {
    let scene = Scene::of(place);
    let ask = || {
        scene.other.contenders(&scene.path).unwrap()[0]
            .revoke()
            .unwrap()
    };
    let guard = scene.holder(2 * SOON);
    let handover = guard.hand_over().unwrap();
    ask();
    let (_, guard) = scene.take_over(&handover).unwrap();
    let asked = |guard: &MutexGuard| {
        let events: Vec<_> = guard.events().try_iter().collect();
        events.contains(&zklock::GuardEvent::RevokeRequested)
    };
    assert!(asked(&guard), "asked meanwhile");
    let handover = guard.hand_over().unwrap();
    let (_client, guard) = scene.take_over(&handover).unwrap();
    assert!(asked(&guard), "asked before");

    // The holder has not been told of the request yet.
    drop(guard);
    let guard = scene.holder(2 * SOON);
    ask();
    let (_client, guard) = scene.take_over(&guard.hand_over().unwrap()).unwrap();
    assert!(asked(&guard), "asked just before");
}

fn a_client_with_other_locks_hands_nothing_over(place: Place) {
    let scene = Scene::of(place);
    let client = Transport::Wire.connect_with(&scene.hosts, 2 * SOON);
    let guard = client.mutex(&scene.path).unwrap().lock().unwrap();
    let beside = format!("{}-beside", scene.path);
    let other = client.mutex(&beside).unwrap().lock().unwrap();
    let refused = guard.hand_over().unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    guard.verify().unwrap();
    other.verify().unwrap();
    drop(other);
    let (_client, guard) = scene.take_over(&guard.hand_over().unwrap()).unwrap();
    guard.verify().unwrap();
}

fn what_waits_in_the_old_process_is_not_left_behind(place: Place) {
    let scene = Scene::of(place);
    let (beside, own) = (format!("{}-beside", scene.path), scene.holder(2 * SOON));
    let client = Transport::Wire.connect_with(&scene.hosts, 2 * SOON);
    let guard = client.mutex(&beside).unwrap().lock().unwrap();
    let mutex = client.mutex(&scene.path).unwrap();
    let waiting = aside(move || mutex.lock().map(drop));
    wait_for_children(&scene.hosts, &scene.path, 2);
    let handover = guard.hand_over().unwrap();
    assert_eq!(waiting.recv_timeout(SOON).unwrap(), Err(Error::Closed));
    let (_client, guard) = scene.take_over(&handover).unwrap();
    wait_for_children(&scene.hosts, &scene.path, 1);
    drop(own);
    guard.verify().unwrap();
}

/// The first of those that wait for a permit holds a lock in front of the semaphore.
fn a_thread_that_waits_for_a_permit_stops_no_handover(place: Place) {
    let scene = Scene::of(place);
    let beside = format!("{}-beside", scene.path);
    let permits = |client: &Client| client.semaphore(&beside, 1).unwrap();
    let permit = permits(&scene.other).acquire().unwrap();
    let client = Transport::Wire.connect_with(&scene.hosts, 2 * SOON);
    let guard = client.mutex(&scene.path).unwrap().lock().unwrap();
    let semaphore = permits(&client);
    let waiting = aside(move || semaphore.acquire().map(drop));
    wait_for_queue(&scene.other, &beside, 2);
    let handover = guard.hand_over().unwrap();
    assert_eq!(waiting.recv_timeout(SOON).unwrap(), Err(Error::Closed));
    let (_client, guard) = scene.take_over(&handover).unwrap();
    wait_for_queue(&scene.other, &beside, 1);
    drop(permit);
    assert!(permits(&scene.other).try_acquire().unwrap().is_some());
    guard.verify().unwrap();
}

/// A client that may not delete the node of a call that has given up goes on trying.
fn a_node_that_cannot_be_given_up_stops_no_handover(place: Place) {
    let scene = Scene::of(place);
    let beside = format!("{}-beside", scene.path);
    let client = Transport::Wire.connect_with(&scene.hosts, 2 * SOON);
    let guard = client.mutex(&scene.path).unwrap().lock().unwrap();
    let allowed = [Permission::Create, Permission::Read];
    let owner = Client::builder(&scene.hosts)
        .auth("digest", "owner:password")
        .acl(Acl::creator_all().with(&allowed, "world", "anyone"))
        .connect()
        .unwrap();
    let own = owner.mutex(&beside).unwrap().lock().unwrap();
    let mutex = client.mutex(&beside).unwrap();
    let (end, cancelled) = bounded(1);
    let until_it_waits = LockOptions::new()
        .cancel(cancelled)
        .on_wait(|_| end.try_send(()).unwrap_or_default());
    assert!(mutex.lock_with(until_it_waits).unwrap().is_none());
    wait_for_children(&scene.hosts, &beside, 2);
    let handover = guard.hand_over().unwrap();
    let (_client, guard) = scene.take_over(&handover).unwrap();
    guard.verify().unwrap();
    drop(own);
}

fn a_failed_handover_changes_nothing(place: Place) {
    let scene = Scene::of(place);
    let network = Proxy::start(&scene.hosts);
    let client = Transport::Wire.connect_with(&network.hosts(), 2 * SOON);
    let guard = client.mutex(&scene.path).unwrap().lock().unwrap();
    network.drop_next_request(op::MULTI);
    // The client asks again, on another connection.
    let handover = guard.hand_over().unwrap();
    let mut wrong = handover.text();
    wrong.insert(0, 'x');
    assert!(wrong.parse::<Handover>().unwrap_err().is_bad_input());
    // No server answers: nothing is taken over, and no session ends.
    let nobody = Client::builder("127.0.0.1:1").connect_timeout(Duration::from_millis(50));
    let failed = nobody.take_over(&handover).unwrap_err();
    assert!(matches!(failed, Error::ConnectTimeout { .. }), "{failed}");
    let (_client, guard) = scene.take_over(&handover).unwrap();
    guard.verify().unwrap();
}

/// Returns the hand-over as a process on another machine reads it.
fn from_afar(handover: &Handover) -> Handover {
    let text = handover
        .text()
        .replace(r#""clock":""#, r#""clock":"another"#);
    assert_ne!(text, handover.text());
    text.parse().unwrap()
}

fn a_handover_by_another_clock_is_trusted_once_the_session_is_known_to_last(place: Place) {
    let scene = Scene::of(place);
    let handover = scene.holder(SOON / 5).hand_over().unwrap();
    let (took, time) = timed(|| scene.take_over(&from_afar(&handover)));
    let (_client, guard) = took.unwrap();
    assert!(handover.session_timeout() / 4 <= time, "after {time:?}");
    guard.verify().unwrap();
}

fn a_network_that_goes_in_the_middle_of_a_take_over_holds_nobody_up_for_longer(place: Place) {
    let scene = Scene::of(place);
    let network = Proxy::start(&scene.hosts);
    let handover = scene.holder(SOON).hand_over().unwrap();
    // The lock is marked and is to be proven.
    network.blackhole_at_next_request(op::MULTI);
    let limit = handover.session_timeout() / 5;
    let builder = Client::builder(&network.hosts()).connect_timeout(limit);
    let (took, time) = timed(|| builder.take_over(&from_afar(&handover)));
    assert_eq!(lost(took), Some(LostReason::NotConfirmed));
    assert!(time < handover.session_timeout(), "after {time:?}");
}

fn a_term_goes_on_in_the_new_process(place: Place) {
    let scene = Scene::of(place);
    let client = Transport::Wire.connect_with(&scene.hosts, 2 * SOON);
    let (mut handover, mut token) = (None, None);
    let standby = client.standby(&scene.path).unwrap();
    let run = standby.run(|term| {
        token = Some(term.fencing_token());
        handover = Some(term.hand_over().unwrap());
        assert!(term.is_over());
        ControlFlow::Break(())
    });
    assert_eq!(run, Ok(()));
    let (client, guard) = scene.take_over(&handover.unwrap()).unwrap();
    let other = client.standby(&format!("{}-other", scene.path)).unwrap();
    let mut terms = Vec::new();
    let standby = client.standby(&scene.path).unwrap();
    standby
        .first_term(guard)
        .unwrap()
        .run(|term| {
            assert!(!term.is_over());
            terms.push(term.fencing_token());
            match terms.len() {
                1 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })
        .unwrap();
    assert_eq!((terms.len(), terms.first().copied()), (2, token));
    assert!(terms[0] < terms[1]);
    let guard = client.mutex(&scene.path).unwrap().lock().unwrap();
    assert!(other.first_term(guard).unwrap_err().is_bad_input());
}

fn a_handover_works_or_says_that_it_cannot(place: Place) {
    let hosts = place.shared().hosts();
    let client = place.connect(&hosts);
    let guard = client
        .mutex(&fresh_path("handover"))
        .unwrap()
        .lock()
        .unwrap();
    match (place.transport, guard.hand_over()) {
        (Transport::Wire, handover) => {
            assert_eq!(handover.unwrap().path(), guard.path());
            assert!(guard.check().is_err());
        }
        #[cfg(feature = "zookeeper")]
        (Transport::Handle, refused) => {
            assert!(matches!(refused, Err(Error::Unsupported { .. })));
            guard.verify().unwrap();
        }
    }
}
