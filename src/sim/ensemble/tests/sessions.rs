//! When a session ends, and where it may go before.

use std::time::Duration;

use super::lab::{
    Client, Heard, Lab, check, config, create, delete, end_of, ms, open_acl, set, sync,
};
use crate::sim::ensemble::{EnsembleConfig, Fault, SessionEnd};
use zklock_jute::{ConnectRequest, CreateMode, ErrorCode, Reply, Request};

#[test]
fn a_timeout_is_negotiated_and_counts_from_each_handshake() {
    for seed in 0..10 {
        negotiate(seed);
    }
}

fn negotiate(seed: u64) {
    let mut lab = Lab::new(config(), seed);
    let client = lab.client(0, ms(1));
    assert_eq!(client.reply.timeout_ms, 200);
    // The followers touch a session that begins with the timeout it begins with.
    lab.run_for(ms(60));
    let longer = ConnectRequest {
        timeout_ms: 1_000_000,
        ..client.again()
    };
    let client = lab.meet(1, &longer).unwrap();
    assert_eq!(client.reply.timeout_ms, 2000);
    let began = lab.now;
    lab.until("it ends", |lab| !lab.is_alive(client.session()));
    let lived = lab.now - began;
    assert!(ms(1990) < lived && lived < ms(2220), "{lived:?}");
}

#[test]
fn a_session_is_taken_up_again_with_its_password_only() {
    let mut lab = Lab::new(config(), 2);
    let client = lab.client(0, ms(2000));
    let mut wrong = client.again();
    wrong.password[0] ^= 1;
    assert!(lab.meet(1, &wrong).is_none());
    let mut unknown = client.again();
    unknown.session += 1;
    assert!(lab.meet(1, &unknown).is_none());
    assert!(lab.meet(1, &client.again()).is_some());
}

#[test]
fn a_session_that_has_moved_changes_nothing_through_its_old_connection() {
    let mut lab = Lab::new(config(), 3);
    let (leader, followers) = lab.roles();
    for from in [followers[0], leader] {
        let old = lab.client(from, ms(2000));
        let new = lab.meet(followers[1], &old.again()).unwrap();
        // The old connection of a follower can read.
        let is_leader = from == leader;
        let read = lab.code(old.connection, &Request::exists("/"));
        assert_eq!(read == ErrorCode::OK, !is_leader);
        if !is_leader {
            let lost = lab.call(old.connection, &create("/a", CreateMode::Persistent));
            assert_eq!(lost, None);
        }
        assert!(lab.is_closed(old.connection));
        let path = format!("/by-{from}");
        lab.create(new.connection, &path, CreateMode::Ephemeral);
        assert_eq!(lab.code(new.connection, &check(&path)), ErrorCode::OK);
    }
    assert!(!lab.ensemble.nodes().contains(&"/a".to_owned()));
}

/// What its first server could not pass on may be carried out when the session comes back to that, after
/// another server has caught up without it.
#[test]
fn a_session_that_comes_back_may_have_changed_something_late() {
    let late = |seed: u64| {
        let mut lab = Lab::new(config(), seed);
        let (_, followers) = lab.roles();
        let [here, there] = [followers[0], followers[1]];
        let old = lab.client(here, ms(2000));
        lab.fault(Fault::Cut { server: here });
        lab.ask(old.connection, &create("/late", CreateMode::Ephemeral));
        let new = lab.meet(there, &old.again()).unwrap();
        assert_eq!(lab.code(new.connection, &sync("/")), ErrorCode::OK);
        let is_there = |lab: &mut Lab, of| lab.list(of, "/").contains(&"late".to_owned());
        assert!(!is_there(&mut lab, new.connection));
        let back = lab.dial(here);
        lab.greet(back, &new.again());
        lab.run_for(ms(10));
        lab.fault(Fault::Heal { server: here });
        lab.until("it is back", |lab| lab.greeting(back).is_some());
        assert_eq!(lab.code(back, &sync("/")), ErrorCode::OK);
        is_there(&mut lab, back)
    };
    let late: Vec<_> = (0..20).map(late).collect();
    assert!(late.contains(&true) && late.contains(&false), "{late:?}");
}

#[test]
fn a_second_connection_to_the_same_server_ends_the_first() {
    let mut lab = Lab::new(config(), 4);
    let first = lab.client(0, ms(2000));
    let second = lab.meet(0, &first.again()).unwrap();
    assert!(lab.is_closed(first.connection));
    assert_eq!(lab.code(second.connection, &Request::Ping), ErrorCode::OK);
}

/// Two clients of one session at two followers, where the first one's write is known late at the
/// second one's server.
fn two_of_one_session(seed: u64) -> (Lab, Client, Client) {
    let mut lab = Lab::new(config(), seed);
    let (_, followers) = lab.roles();
    let first = lab.client(followers[0], ms(2000));
    lab.create(first.connection, "/a", CreateMode::Persistent);
    lab.run_for(ms(20));
    lab.fault(Fault::Lag {
        server: followers[1],
        by: ms(300),
    });
    lab.ask_as(first.connection, 77, &set("/a", "first"));
    lab.run_for(ms(100));
    let second = lab.meet(followers[1], &first.again()).unwrap();
    (lab, first, second)
}

fn answers_to(lab: &Lab, client: &Client, xid: i32) -> Vec<Heard> {
    let heard = lab.heard(client.connection).into_iter();
    heard
        .filter(|heard| matches!(heard, Heard::Reply(header, _) if header.xid == xid))
        .collect()
}

#[test]
fn of_two_requests_of_a_session_with_one_number_one_gets_the_answer_to_the_other() {
    for seed in 0..5 {
        let (mut lab, first, second) = two_of_one_session(seed);
        lab.ask_as(second.connection, 77, &set("/a", "second"));
        lab.run_for(ms(600));
        for client in [&first, &second] {
            let answers = answers_to(&lab, client, 77);
            let [Heard::Reply(header, Some(Reply::Stat(stat)))] = answers.as_slice() else {
                panic!("{answers:?}");
            };
            assert_eq!((header.code, stat.version), (ErrorCode::OK, 1));
        }
        let read = lab.call(second.connection, &Request::get("/a"));
        let Some((_, Some(Reply::Data { data, .. }))) = read else {
            panic!("{read:?}");
        };
        assert_eq!(&data[..], b"first");
    }
}

#[test]
fn an_answer_to_another_request_has_the_form_of_the_own_one() {
    let created = Request::Create {
        path: "/c".to_owned(),
        data: Vec::new().into(),
        acl: open_acl(),
        mode: CreateMode::Container,
        stat: true,
    };
    let table: [(Request, Option<ErrorCode>); 5] = [
        (created, Some(ErrorCode::OK)),
        (delete("/b"), Some(ErrorCode::OK)),
        (check("/a"), Some(ErrorCode::MARSHALLING_ERROR)),
        (create("/c", CreateMode::Ephemeral), Some(ErrorCode::OK)),
        (
            Request::Sync {
                path: "/".to_owned(),
            },
            Some(ErrorCode::OK),
        ),
    ];
    for (request, expected) in table {
        let (mut lab, _, second) = two_of_one_session(9);
        lab.ask_as(second.connection, 77, &request);
        lab.run_for(ms(250));
        // The transaction of the other one has come by now, and its own has not.
        let answers = answers_to(&lab, &second, 77);
        let code = answers.first().map(|answer| match answer {
            Heard::Reply(header, _) => header.code,
            other => panic!("{other:?}"),
        });
        assert_eq!(code, expected, "{request:?}: {answers:?}");
    }
}

#[test]
fn a_request_of_another_number_gets_its_own_answer() {
    let (mut lab, _, second) = two_of_one_session(5);
    let code = lab.code(second.connection, &set("/a", "second"));
    assert_eq!(code, ErrorCode::BAD_VERSION);
}

#[test]
fn an_administrator_ends_a_session_at_once() {
    let mut lab = Lab::new(config(), 5);
    let client = lab.client(1, ms(2000));
    lab.create(client.connection, "/mine", CreateMode::Ephemeral);
    let session = client.session();
    lab.fault(Fault::Expire { session });
    lab.run_for(ms(10));
    assert!(lab.is_closed(client.connection));
    assert!(lab.ensemble.nodes().is_empty());
    let (_, why) = end_of(&lab.ensemble, session).unwrap();
    assert_eq!(why, SessionEnd::ByHand);
    assert!(lab.meet(2, &client.again()).is_none());
}

#[test]
fn commits_by_a_follower_touch_only_with_its_answer_to_a_ping() {
    // With a tick of 2 s, half a tick is long compared with everything else.
    let slow = EnsembleConfig {
        tick: ms(2000),
        ..EnsembleConfig::default()
    };
    let mut early = 0;
    for seed in 0..40 {
        let mut lab = Lab::new(slow.clone(), seed);
        let (_, followers) = lab.roles();
        let client = lab.client(followers[0], ms(4000));
        lab.create(client.connection, "/mine", CreateMode::Ephemeral);
        lab.run_for(ms(3000));
        assert_eq!(lab.code(client.connection, &check("/mine")), ErrorCode::OK);
        let committed = lab.now;
        lab.fault(Fault::Cut {
            server: followers[0],
        });
        lab.until("it ends", |lab| !lab.is_alive(client.session()));
        early += usize::from(lab.now < committed + ms(4000));
    }
    // In most runs the follower was cut off before its answer to a ping could touch the session.
    assert!(30 < early, "{early}");
}

#[test]
fn a_session_ends_exactly_at_a_tick_of_its_leader() {
    let mut phases = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let mut lab = Lab::new(config(), seed);
        let (leader, _) = lab.roles();
        // The leader's own clients are touched at once.
        let ends = [0, 37, 222].map(|wait| {
            lab.run_for(ms(wait));
            let began = lab.now;
            let client = lab.client(leader, ms(250));
            lab.until("it ends", |lab| !lab.is_alive(client.session()));
            let (end, _) = end_of(&lab.ensemble, client.session()).unwrap();
            assert!(ms(250) < end - began, "{:?}", end - began);
            // A follower touches it, too, within half a tick of its beginning.
            assert!(end - began < ms(250 + 50 + 100 + 10), "{:?}", end - began);
            end
        });
        // The commit takes two hops after the tick.
        let into = |end: &Duration| u64::try_from(end.as_micros()).unwrap() % 100_000;
        let first = into(&ends[0]);
        for end in &ends {
            let apart = (into(end) + 100_000 - first) % 100_000;
            let apart = apart.min(100_000 - apart);
            assert!(apart < 4500, "{ends:?}");
        }
        phases.insert(first / 20_000);
    }
    assert!(3 < phases.len(), "each leader has its own clock");
}
