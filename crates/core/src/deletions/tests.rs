//! What becomes of answers that arrive late, twice or not at all.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::deletion::{LONG_PAUSE, PAUSE};
use super::leftover::THE_NEXT;
use super::*;
use crate::answer::{Answered, Failure, TooLong};
use crate::attempt::Orphan;
use crate::connection::{is_sync, sync};
use crate::dialect::Sharing;
use zklock_jute::{ErrorCode, Names, Reply, Request, Stat};

const NOW: Duration = Duration::from_secs(100);
const TOO_LONG: Failure = Failure::TooLong(TooLong {
    reply: true,
    bytes: 2,
    limit: 1,
});

fn node() -> Deletion {
    Deletion::new("/m", 1, Orphan::Node("n".to_owned()))
}

fn perhaps() -> Deletion {
    Deletion::new("/m", 1, Orphan::Prefix("_c_me-lock-".to_owned()))
}

/// Returns the one deletion that is due.
#[track_caller]
fn the_one_due(deletions: &Deletions<()>) -> u64 {
    let [id] = deletions.due(NOW)[..] else {
        panic!("it is looked for: {deletions:?}");
    };
    id
}

fn delete(path: &str) -> Option<Request> {
    Some(Request::delete(path.to_owned()))
}

#[test]
fn one_request_at_a_time_is_under_way() {
    let mut deletion = perhaps();
    assert!(deletion.ask().is_some());
    assert_eq!(deletion.ask(), None);
    let synced = Reply::Synced { path: "/m".into() };
    deletion.answered(NOW, Ok(synced.clone()));
    assert_eq!(deletion.ask(), Some(Request::list("/m")));
    let names = ["_c_me-lock-0000000001"].iter().collect();
    let listed = Reply::Children { names, stat: None };
    deletion.answered(NOW, Ok(listed.clone()));
    // Nothing but the answer to a deletion says that a node is gone.
    for stale in [synced, listed] {
        let progress = deletion.answered(NOW, Ok(stale));
        assert_eq!(progress, Progress::GoesOn(None));
    }
    let ended = deletion.answered(NOW, Ok(Reply::Nothing));
    assert_eq!(ended, Progress::Ended(Ended::Presumed));
}

#[test]
fn in_a_directory_that_is_too_long_to_be_listed_the_session_is_asked_for_its_own_nodes() {
    let mut deletion = perhaps();
    let mut ask = |answered| {
        let request = deletion.ask();
        deletion.answered(NOW, answered);
        request
    };
    ask(Ok(Reply::Synced { path: "/m".into() }));
    ask(Err(TOO_LONG));
    let paths = ["/m/_c_me-lock-0000000001", "/m/a/b", "/mm/c"];
    let own = Some(Request::GetEphemerals { below: "/m".into() });
    let answer = Ok(Reply::Ephemerals(paths.map(str::to_owned).to_vec()));
    assert_eq!(ask(answer), own);
    assert_eq!(ask(Ok(Reply::Nothing)), delete(paths[0]));
}

#[test]
fn what_may_not_be_written_neither_keeps_the_node_nor_delays_its_deletion() {
    let unwritten = Ended::Unwritten(ErrorCode::NO_AUTH);
    for (refused, ends) in [
        (Failure::Refused(ErrorCode::NO_AUTH), unwritten),
        (Failure::Refused(ErrorCode::BAD_VERSION), Ended::Presumed),
        (TOO_LONG, Ended::Presumed),
    ] {
        let mut deletion = node().closing(Some((b"{}", -1)));
        assert!(matches!(deletion.ask(), Some(Request::Multi(_))));
        let progress = deletion.answered(NOW, Err(refused));
        assert_eq!(progress, Progress::GoesOn(None));
        assert_eq!(deletion.ask(), delete("/m/n"));
        let ended = deletion.answered(NOW, Ok(Reply::Nothing));
        assert_eq!(ended, Progress::Ended(ends));
    }
}

/// Once, what was to be written was lost with the deletion.
#[test]
fn what_is_to_be_written_is_written_over_the_node_that_may_not_be_deleted() {
    let (ok, no_auth) = (Ok(Reply::Nothing), Err(ErrorCode::NO_AUTH));
    let multi = |first, second| Ok(Reply::Multi(vec![first, second]));
    let refused = Failure::Refused(ErrorCode::NO_AUTH);
    let not_run = || Err(ErrorCode::RUNTIME_INCONSISTENCY);
    for wrote in [
        multi(ok.clone(), ok),
        multi(Err(ErrorCode::OK), Err(ErrorCode::BAD_VERSION)),
        multi(Err(ErrorCode::OK), no_auth.clone()),
    ] {
        let mut deletion = node().closing(Some((b"{}", 7)));
        deletion.ask();
        let progress = deletion.answered(NOW, multi(no_auth.clone(), not_run()));
        assert_eq!(progress, Progress::GoesOn(None));
        let (check, set) = (
            Request::check("/m/n"),
            Request::set("/m", b"{}".to_vec(), 7),
        );
        // Whoever has lost an answer asks the same again.
        for answered in [Err(Failure::Lost), wrote] {
            let both = Request::Multi(vec![check.clone(), set.clone()]);
            assert_eq!(deletion.ask(), Some(both));
            let progress = deletion.answered(NOW, answered);
            assert_eq!(progress, Progress::GoesOn(None));
        }
        assert_eq!(deletion.ask(), delete("/m/n"));
        let progress = deletion.answered(NOW, Err(refused));
        assert_eq!(progress, Progress::GoesOn(Some(refused)));
        assert!(deletion.is_forbidden());
    }
    let mut deletion = node().closing(Some((b"{}", 7)));
    deletion.ask();
    deletion.answered(NOW, multi(no_auth, not_run()));
    deletion.ask();
    let gone = multi(Err(ErrorCode::NO_NODE), not_run());
    let ended = deletion.answered(NOW, gone);
    assert_eq!(ended, Progress::Ended(Ended::GoneBefore));
}

#[test]
fn a_refusal_is_told_and_the_request_is_repeated_after_a_pause() {
    for (failure, pause) in [
        (Failure::Refused(ErrorCode::NO_AUTH), PAUSE),
        (TOO_LONG, LONG_PAUSE),
    ] {
        let mut deletions = Deletions::default();
        let mut refused = node();
        refused.crowded = failure == TOO_LONG;
        let id = deletions.begin(refused, ());
        let (deletion, ()) = deletions.get(id).unwrap();
        deletion.ask();
        let told = deletion.answered(NOW, Err(failure));
        assert_eq!(told, Progress::GoesOn(Some(failure)));
        assert!(deletions.due(NOW).is_empty());
        assert_eq!(deletions.next_tick(NOW), Some(NOW + pause));
        assert_eq!(deletions.due(NOW + pause), [id]);
        assert_eq!(deletions.delayed_until(), None, "it delays no end");
    }
}

/// Once, it was repeated each second, for ever.
#[test]
fn what_is_refused_again_and_again_is_asked_for_less_and_less_often_unless_somebody_needs_it() {
    let mut deletions = Deletions::default();
    let id = deletions.begin(node(), ());
    let mut now = NOW;
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        let (deletion, ()) = deletions.get(id).unwrap();
        deletion.ask();
        deletion.answered(now, Err(Failure::Refused(ErrorCode::NO_AUTH)));
        let next = now + Duration::from_secs(seconds);
        assert_eq!(deletions.next_tick(now), Some(next));
        assert!(!deletions.is_forbidden_in("/other"));
        assert_eq!(deletions.next_tick(now), Some(next));
        if seconds < 60 {
            now = next;
        }
    }
    for _ in 0..2 {
        assert!(deletions.is_forbidden_in("/m"));
        assert_eq!(deletions.next_tick(now), Some(now + PAUSE));
    }
}

#[test]
fn what_a_server_has_thrown_away_is_repeated_in_a_moment_and_leaves_no_doubt() {
    let mut deletions = Deletions::default();
    let id = deletions.begin(node(), ());
    let (deletion, ()) = deletions.get(id).unwrap();
    deletion.ask();
    let throttled = Err(Failure::Refused(ErrorCode::THROTTLED));
    let progress = deletion.answered(NOW, throttled);
    assert_eq!(progress, Progress::GoesOn(None));
    assert!(deletions.due(NOW).is_empty());
    assert_eq!(deletions.due(NOW + PAUSE / 100), [id]);
    let (deletion, ()) = deletions.get(id).unwrap();
    deletion.ask();
    let ended = deletion.answered(NOW, Ok(Reply::Nothing));
    assert_eq!(ended, Progress::Ended(Ended::Deleted));
}

#[test]
fn a_release_that_is_put_off_is_not_forgotten_when_an_earlier_one_is_due() {
    let mut deletions = Deletions::default();
    let later = NOW + Duration::from_secs(60);
    let first = deletions.begin(node().not_before(Some(NOW)), ());
    deletions.begin(node().not_before(Some(later)), ());
    deletions.begin(node().not_before(Some(Duration::MAX)), ());
    assert_eq!(deletions.due(NOW), [first]);
    assert_eq!(deletions.next_tick(NOW), Some(later));
    assert_eq!(deletions.delayed_until(), Some(later));
}

#[test]
fn the_end_of_a_session_ends_its_deletions() {
    let mut deletions = Deletions::default();
    for session in [1, 2, 1] {
        let orphan = Orphan::Node("n".to_owned());
        deletions.begin(Deletion::new("/m", session, orphan), session);
    }
    deletions.serves(2, None);
    assert_eq!((deletions.len(), deletions.take(2)), (1, Some(2)));
    assert!(deletions.is_empty());
}

#[test]
fn the_deletions_of_a_session_that_was_given_up_go_on_in_the_next() {
    let mut deletions = Deletions::default();
    for session in [1, 2] {
        let orphan = Orphan::Node("n".to_owned());
        deletions.begin(Deletion::new("/m", session, orphan), session);
    }
    deletions.serves(3, Some((1, NOW)));
    let (deletion, _) = deletions.get(1).expect("it goes on");
    assert_eq!(deletion.session(), 3);
    assert_eq!(deletions.len(), 1);
}

#[test]
fn what_is_kept_for_longer_than_a_session_that_was_given_up_goes_with_it() {
    const T: Duration = Duration::from_secs(20);
    for (until, left) in [(NOW + T, 1), (NOW + 2 * T, 0), (Duration::MAX, 0)] {
        let mut deletions = Deletions::default();
        let deletion = Deletion::new("/m", 1, Orphan::Node("n".to_owned()));
        deletions.begin(deletion.not_before(Some(until)), ());
        deletions.serves(2, Some((1, NOW + T)));
        assert_eq!(deletions.len(), left, "{until:?}");
    }
}

#[test]
fn what_may_be_the_next_sessions_ends_with_that() {
    let mut deletions = Deletions::default();
    let orphan = Orphan::Prefix("_c_me-lock-".to_owned());
    deletions.begin(Deletion::new("/m", THE_NEXT, orphan), ());
    for (session, left) in [(2, 1), (2, 1), (3, 0)] {
        deletions.serves(session, None);
        assert_eq!(deletions.len(), left);
    }
}

/// A directory whose server answers as it likes at first.
struct Server {
    nodes: BTreeSet<&'static str>,
    /// Whether it answers listings.
    lists: bool,
}

const OWN: [&str; 2] = ["_c_me-lock-0000000001", "_c_me-lock-0000000002"];

impl Server {
    fn new(lists: bool) -> Self {
        let nodes = OWN.into_iter().chain(["_c_you-lock-0000000003"]);
        Self {
            nodes: nodes.collect(),
            lists,
        }
    }

    fn serve(&mut self, request: &Request) -> Answered {
        match request {
            request if is_sync(request) => Err(Failure::Refused(ErrorCode::NO_NODE)),
            Request::GetChildren { .. } if !self.lists => Err(TOO_LONG),
            Request::GetChildren { .. } => Ok(Reply::Children {
                names: self.nodes.iter().collect(),
                stat: None,
            }),
            Request::GetEphemerals { .. } => {
                let own = self.nodes.iter().filter(|name| OWN.contains(name));
                Ok(Reply::Ephemerals(
                    own.map(|name| format!("/m/{name}")).collect(),
                ))
            }
            Request::Delete { path, .. } => self.delete(path).map(|()| Reply::Nothing),
            Request::Multi(ops) => {
                let Request::Delete { path, .. } = &ops[0] else {
                    panic!("{ops:?}");
                };
                match self.delete(path) {
                    Ok(()) => Ok(Reply::Multi(vec![Ok(Reply::Nothing), Ok(Reply::Checked)])),
                    Err(_) => Ok(Reply::Multi(vec![
                        Err(ErrorCode::NO_NODE),
                        Err(ErrorCode::RUNTIME_INCONSISTENCY),
                    ])),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn delete(&mut self, path: &str) -> Result<(), Failure> {
        match self.nodes.remove(path.trim_start_matches("/m/")) {
            true => Ok(()),
            false => Err(Failure::Refused(ErrorCode::NO_NODE)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Mishap {
    None,
    /// The request does not arrive, for this reason.
    Fails(Failure),
    /// The request is carried out, and its answer is lost.
    AnswerLost,
}

fn mishap() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        Just(Mishap::None),
        Just(Mishap::AnswerLost),
        Just(Mishap::Fails(Failure::NotSent)),
        Just(Mishap::Fails(Failure::Lost)),
        Just(Mishap::Fails(Failure::Refused(ErrorCode::NO_AUTH))),
        Just(Mishap::Fails(Failure::Refused(ErrorCode::CONNECTION_LOSS))),
        Just(Mishap::Fails(TOO_LONG)),
    ]
}

proptest! {
    /// Whatever happens to the first requests: nothing of another client is deleted; a deletion ends when
    /// all of its nodes are gone and not before, in few requests once answers arrive; and it counts as ours
    /// only if a server has said so.
    #[test]
    fn a_deletion_ends_with_its_nodes(
        mishaps in proptest::collection::vec(mishap(), 0..8),
        known: bool, closing: bool, lists: bool,
    ) {
        let mut server = Server::new(lists);
        let mut deletion = match known {
            true => Deletion::new("/m", 1, Orphan::Node(OWN[0].to_owned())),
            false => perhaps(),
        };
        deletion = deletion.closing((closing && known).then_some((&b"{}"[..], 1)));
        let (mut now, mut asked, mut lost) = (NOW, 0, false);
        let ended = loop {
            asked += 1;
            prop_assert!(asked <= mishaps.len() + 6, "it goes on for ever");
            let request = deletion.ask().expect("a request is due");
            prop_assert_eq!(deletion.ask(), None, "two at once");
            let answer = match mishaps.get(asked - 1).copied().unwrap_or(Mishap::None) {
                Mishap::None => server.serve(&request),
                Mishap::Fails(failure) => Err(failure),
                Mishap::AnswerLost => {
                    let _ = server.serve(&request);
                    lost = true;
                    Err(Failure::Lost)
                }
            };
            match deletion.answered(now, answer) {
                Progress::Ended(ended) => break ended,
                Progress::GoesOn(failure) => {
                    let paused = matches!(deletion.turn, Turn::Paused(until) if now < until);
                    prop_assert_eq!(paused, failure.is_some(), "a pause is told");
                }
            }
            now += LONG_PAUSE;
        };
        let left: Vec<_> = OWN.iter().filter(|name| server.nodes.contains(*name)).collect();
        prop_assert_eq!(left.len(), usize::from(known), "{:?}", left);
        prop_assert!(server.nodes.contains("_c_you-lock-0000000003"));
        // Nobody else deletes anything here.
        prop_assert!(!known || ended != Ended::GoneBefore);
        prop_assert!(!known || !lost || matches!(ended, Ended::Presumed | Ended::Unwritten(_)));
    }
}

/// Plays what a look for nodes sends, and the answers.
fn finds(deletions: &mut Deletions<()>, id: u64, names: &[&str]) -> Progress {
    let listed = Reply::Children {
        names: names.iter().collect(),
        stat: None,
    };
    let synced = Reply::Synced { path: "/m".into() };
    let mut progress = Progress::GoesOn(None);
    for answer in [synced, listed] {
        let (deletion, ()) = deletions.get(id).expect("it goes on");
        assert!(deletion.ask().is_some());
        progress = deletion.answered(NOW, Ok(answer));
    }
    progress
}

#[test]
fn a_create_that_was_not_found_is_looked_for_through_each_new_connection() {
    const T: Duration = Duration::from_secs(4);
    let mut deletions = Deletions::default();
    deletions.connected(1, NOW);
    let id = deletions.begin(perhaps(), ());
    assert!(matches!(finds(&mut deletions, id, &[]), Progress::Ended(_)));
    deletions.ended(id, NOW, T);
    // The node can come through another connection only.
    deletions.connected(1, NOW);
    assert!(deletions.due(NOW).is_empty());
    for connection in 2..4 {
        deletions.connected(connection, NOW);
        let id = the_one_due(&deletions);
        assert!(matches!(finds(&mut deletions, id, &[]), Progress::Ended(_)));
        deletions.ended(id, NOW, T);
    }
    deletions.connected(4, NOW);
    let id = the_one_due(&deletions);
    let found = finds(&mut deletions, id, &["_c_me-lock-0000000004"]);
    assert_eq!(found, Progress::GoesOn(None));
    let (deletion, ()) = deletions.get(id).expect("it goes on");
    assert_eq!(deletion.ask(), delete("/m/_c_me-lock-0000000004"));
    deletion.answered(NOW, Ok(Reply::Nothing));
    deletions.ended(id, NOW, T);
    deletions.connected(5, NOW);
    assert!(deletions.is_empty());
}

#[test]
fn a_create_that_cannot_come_any_more_is_not_looked_for() {
    const T: Duration = Duration::from_secs(4);
    let looks = |after: Duration, session: i64| {
        let mut deletions = Deletions::default();
        let id = deletions.begin(perhaps(), ());
        finds(&mut deletions, id, &[]);
        deletions.ended(id, NOW, T);
        deletions.serves(session, None);
        deletions.connected(2, NOW + after);
        deletions.len()
    };
    assert_eq!(looks(10 * T - T, 1), 1);
    assert_eq!(looks(10 * T, 1), 0);
    assert_eq!(looks(T, 2), 0);
}

/// A server that was asked for only a part of it may still have the create.
#[test]
fn a_look_that_a_new_connection_cuts_in_two_begins_again() {
    for is_under_way in [false, true] {
        let mut deletions = Deletions::default();
        deletions.connected(1, NOW);
        let id = deletions.begin(perhaps(), ());
        let (deletion, ()) = deletions.get(id).expect("it goes on");
        assert!(deletion.ask().is_some());
        deletion.answered(NOW, Ok(Reply::Synced { path: "/m".into() }));
        if is_under_way {
            assert_eq!(deletion.ask(), Some(Request::list("/m")));
        }
        deletions.connected(2, NOW);
        let (deletion, ()) = deletions.get(id).expect("it goes on");
        if is_under_way {
            let listed = Reply::Children {
                names: Names::default(),
                stat: None,
            };
            assert_eq!(deletion.answered(NOW, Ok(listed)), Progress::GoesOn(None));
        }
        assert_eq!(deletion.ask(), Some(sync("/m")));
    }
}

/// The node of a hold outlives the session.
#[test]
fn a_hold_that_was_not_found_is_looked_for_in_the_next_session() {
    const T: Duration = Duration::from_secs(4);
    const NAME: &str = "_c_401d401d-5a0b-8b57-9a3e-0123456789ab-lock-";
    let node = format!("{NAME}0000000004");
    for step in ["the look is under way", "it was not found", "it was found"] {
        let mut deletions = Deletions::default();
        deletions.connected(1, NOW);
        let hold = Orphan::Prefix(NAME.to_owned());
        let id = deletions.begin(Deletion::new("/m", 1, hold), ());
        match step {
            "it was not found" => {
                finds(&mut deletions, id, &[]);
                deletions.ended(id, NOW, T);
            }
            "it was found" => drop(finds(&mut deletions, id, &[&node])),
            _ => {}
        }
        assert!(deletions.serves(2, None).is_empty());
        // It does not matter how long that took: the node came before the end of the first session, or never.
        let later = NOW + 20 * T;
        deletions.connected(2, later);
        let [id] = deletions.due(later)[..] else {
            panic!("{step}, and it is looked for: {deletions:?}");
        };
        if step != "it was found" {
            finds(&mut deletions, id, &[&node]);
        }
        let (deletion, ()) = deletions.get(id).expect("it goes on");
        assert_eq!(deletion.ask(), delete(&format!("/m/{node}")));
        deletion.answered(later, Ok(Reply::Nothing));
        deletions.ended(id, later, T);
        deletions.connected(3, later);
        assert!(deletions.is_empty());
    }
}

#[test]
fn a_node_whose_name_others_use_is_looked_for_again_and_deleted_if_it_is_ours() {
    const T: Duration = Duration::from_secs(4);
    let mut deletions = Deletions::default();
    deletions.connected(1, NOW);
    let stake = || Deletion::new("/m", 1, Orphan::Marked("stake".into(), "ours".into()));
    deletions.begin(stake(), ());
    let data = |text: &str| Reply::Data {
        data: text.as_bytes().to_vec().into(),
        stat: Stat::default(),
    };
    let unread = Failure::Refused(ErrorCode::NO_AUTH);
    let missed = [Failure::Refused(ErrorCode::NO_NODE), unread].map(Err);
    let looks = missed
        .into_iter()
        .chain([Ok(data("another's")), Ok(data("ours"))]);
    for (connection, found) in (2..).zip(looks) {
        let id = the_one_due(&deletions);
        let (deletion, ()) = deletions.get(id).expect("it goes on");
        assert_eq!(deletion.ask(), Some(sync("/m")));
        deletion.answered(NOW, Ok(Reply::Synced { path: "/m".into() }));
        assert_eq!(deletion.ask(), Some(Request::get("/m/stake")));
        let is_ours = found == Ok(data("ours"));
        let progress = deletion.answered(NOW, found);
        assert_eq!(matches!(progress, Progress::Ended(_)), !is_ours);
        match is_ours {
            true => assert_eq!(deletion.ask(), delete("/m/stake")),
            false => drop(deletions.ended(id, NOW, T)),
        }
        // If the deletion was carried out, another may have the name by now.
        deletions.connected(connection, NOW);
    }
    let (deletion, ()) = deletions.get(4).expect("it goes on");
    assert_eq!(
        deletion.answered(NOW, Err(Failure::Lost)),
        Progress::GoesOn(None)
    );
    assert_eq!(deletion.ask(), Some(sync("/m")));
}

#[test]
fn what_is_left_and_what_may_still_come_can_be_told() {
    const T: Duration = Duration::from_secs(4);
    let mut deletions = Deletions::default();
    let left = |deletions: &Deletions<()>, now| -> Vec<Orphan> {
        let left = deletions.left(now).into_iter().flatten();
        left.inspect(|(dir, _)| assert_eq!(*dir, "/m"))
            .map(|(_, orphan)| orphan)
            .collect()
    };
    let orphan = || Orphan::Prefix("_c_me-lock-".to_owned());
    let id = deletions.begin(perhaps(), ());
    assert_eq!(left(&deletions, NOW), [orphan()], "it is looked for");
    finds(&mut deletions, id, &[]);
    deletions.ended(id, NOW, T);
    assert_eq!(left(&deletions, NOW), [orphan()]);
    assert_eq!(left(&deletions, NOW + 10 * T), []);
    let node = || Orphan::Node("_c_me-lock-0000000007".to_owned());
    deletions.begin(Deletion::new("/m", 1, node()), ());
    assert_eq!(left(&deletions, NOW + 10 * T), [node()], "it is deleted");
}

#[test]
fn a_try_waits_for_what_its_client_has_left_and_no_longer_for_what_has_stood_for_long() {
    let mut deletions = Deletions::default();
    deletions.begin(node(), "left");
    deletions.begin(Deletion::of_guard("/m/g", 1), "a guard's");
    let mut awaited =
        |dir, now| deletions.awaited((dir, Sharing::Alone), now, |one| assert_eq!(*one, "left"));
    let until = NOW + Duration::from_secs(1);
    assert_eq!(awaited("/other", NOW), None);
    assert_eq!(awaited("/m", NOW), Some(until));
    assert_eq!(awaited("/m", until - PAUSE / 100), Some(until));
    assert_eq!(awaited("/m", until), None);
}

/// A reader's try waited for the deletion of its client's other readers, which no reader waits for.
#[test]
fn a_try_waits_for_nothing_that_is_not_in_its_way() {
    let mut deletions = Deletions::default();
    let read = Orphan::Node("_c_me-__READ__0000000007".to_owned());
    let perhaps = Orphan::Prefix("_c_me-__READ__".to_owned());
    for orphan in [read, perhaps] {
        deletions.begin(Deletion::new("/m", 1, orphan), ());
    }
    let mut awaited = |sharing| deletions.awaited(("/m", sharing), NOW, |()| {});
    assert_eq!(awaited(Sharing::WithReaders), None);
    assert!(awaited(Sharing::Alone).is_some());
    let write = Orphan::Prefix("_c_me-__WRIT__".to_owned());
    deletions.begin(Deletion::new("/m", 1, write), ());
    let mut awaited = |sharing| deletions.awaited(("/m", sharing), NOW, |()| {});
    assert!(awaited(Sharing::WithReaders).is_some());
}

/// A daemon whose calls often reach their limits may keep one connection for months.
#[test]
fn creates_that_cannot_come_any_more_take_no_memory_while_the_connection_lasts() {
    const T: Duration = Duration::from_secs(4);
    /// How many calls reach their limits while a create may come late.
    const LATELY: usize = 100;
    let (mut deletions, mut now) = (Deletions::default(), NOW);
    let mut most = 0;
    for _ in 0..100 * LATELY {
        let id = deletions.begin(perhaps(), ());
        finds(&mut deletions, id, &[]);
        now += 10 * T / LATELY as u32;
        deletions.ended(id, now, T);
        most = most.max(deletions.late.len());
    }
    assert!(most <= 2 * LATELY, "{most}");
    assert!(deletions.late.capacity() <= 4 * LATELY);
    deletions.connected(2, now);
    assert_eq!(deletions.len(), LATELY);
}
