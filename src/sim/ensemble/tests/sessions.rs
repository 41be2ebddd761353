//! When a session ends, and where it may go before.

use std::time::Duration;

use super::lab::{Lab, check, config, create, end_of, ms};
use crate::sim::ensemble::{EnsembleConfig, Fault, SessionEnd};
use zklock_jute::{ConnectRequest, CreateMode, ErrorCode, Request};

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

#[test]
fn a_second_connection_to_the_same_server_ends_the_first() {
    let mut lab = Lab::new(config(), 4);
    let first = lab.client(0, ms(2000));
    let second = lab.meet(0, &first.again()).unwrap();
    assert!(lab.is_closed(first.connection));
    assert_eq!(lab.code(second.connection, &Request::Ping), ErrorCode::OK);
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
