//! Tables for the rule, and a property: whatever ZooKeeper allows, a guard stops passing its check before
//! its session can end.
//!
//! A model of the servers, made after their source, produces the histories. Only the leader
//! expires sessions, in its ticks. A message to the leader touches the session when it arrives.
//! A follower notes a message and reports it to the leader in its answer to the next ping; what
//! the follower forwards is committed without a touch. When a session opens or moves, the leader
//! touches it with the timeout that the server grants. A new leader gives every session the
//! timeout of its creation; a follower of the previous leader may answer handshakes and pings
//! for up to a tick more.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "whoever tests may ask for more histories, and is told what they show"
)]

mod servers;

use core::iter;

use super::*;
use crate::validity::{ENOUGH_PROOFS, GuardState};
use servers::{Broken, run};

const T: Duration = Duration::from_secs(60);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn trust_ends_with_the_first_of_the_two_bounds() {
    // sent, touched, suspect from, until
    for (sent, touched, suspect, until) in [
        (100_000, 100_000, 120_000, 130_000),
        (100_000, 75_000, 120_000, 130_000),
        (100_000, 70_000, 119_400, 129_400),
        (100_000, 50_000, 99_400, 109_400),
        (100_000, 0, 49_400, 59_400),
    ] {
        let [sent, touched, suspect, until] =
            [sent, touched, suspect, until].map(Duration::from_millis);
        let stamp = Stamp { sent, touched };
        assert_eq!(stamp.suspect_from(T), suspect, "{stamp:?}");
        assert_eq!(stamp.until(T), until, "{stamp:?}");
        let just = Duration::from_nanos(1);
        for (shaken, now, state) in [
            (false, suspect - just, GuardState::Held),
            (true, suspect - just, GuardState::Suspect),
            (false, until - just, GuardState::Suspect),
            (false, until, GuardState::Lost),
            (true, until, GuardState::Lost),
        ] {
            let mut lifetime = lifetime();
            if shaken {
                lifetime.broke();
            }
            assert_eq!(lifetime.terms().validity(stamp).state(now), state);
        }
    }
    let never = lifetime().terms().validity(Stamp::NEVER);
    assert_eq!(never.state(T), GuardState::Lost);
}

#[test]
fn the_next_change_is_known() {
    let stamp = Stamp {
        sent: seconds(100),
        touched: seconds(100),
    };
    let mut lifetime = lifetime();
    let changes_at = |lifetime: &Lifetime, now| {
        let validity = lifetime.terms().validity(stamp);
        validity.next_change(validity.state(now))
    };
    assert_eq!(changes_at(&lifetime, seconds(101)), Some(seconds(120)));
    assert_eq!(changes_at(&lifetime, seconds(120)), Some(seconds(130)));
    assert_eq!(changes_at(&lifetime, seconds(130)), None);
    // A server may have granted so little that the lock is lost before it would be suspect.
    lifetime.greets(seconds(105), Some(seconds(10)));
    assert!(changes_at(&lifetime, seconds(106)) < Some(seconds(120)));
}

#[test]
fn a_break_is_forgiven_by_a_proof_on_the_next_connection_only() {
    let mut lifetime = lifetime();
    let before = lifetime.stamp(seconds(1));
    let state = |lifetime: &Lifetime, stamp, now| lifetime.terms().validity(stamp).state(now);
    assert_eq!(state(&lifetime, before, seconds(2)), GuardState::Held);
    lifetime.broke();
    assert_eq!(state(&lifetime, before, seconds(2)), GuardState::Suspect);
    lifetime.greeted(T, seconds(3), seconds(3));
    assert_eq!(state(&lifetime, before, seconds(4)), GuardState::Suspect);
    let after = before.or_newer(lifetime.stamp(seconds(4)));
    assert_eq!(state(&lifetime, after, seconds(4)), GuardState::Held);
}

fn lifetime() -> Lifetime {
    Lifetime::new(T, Duration::ZERO, Duration::ZERO)
}

#[test]
fn a_message_counts_when_the_leader_must_have_heard_of_its_answer() {
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
    assert_eq!(lifetime.stamp(seconds(101)).touched, seconds(100));
    lifetime.answered(seconds(120), seconds(124));
    for (now, touched) in [(124, 100), (144, 100), (145, 120), (200, 120)] {
        assert_eq!(
            lifetime.stamp(seconds(now)).touched,
            seconds(touched),
            "{now}"
        );
    }
    let stamp = lifetime.stamp(seconds(130));
    assert_eq!(lifetime.better_at(stamp), Some(seconds(145)));
    let stamp = lifetime.stamp(seconds(145));
    assert_eq!(lifetime.better_at(stamp), None);
    // The session moves to another server, and the leader knows it at once.
    lifetime.greeted(T, seconds(150), seconds(151));
    assert_eq!(lifetime.stamp(seconds(151)).touched, seconds(150));
}

#[test]
fn a_lost_answer_counts_until_something_is_committed_on_a_later_connection() {
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
    let stamp = lifetime.stamp(seconds(101));
    lifetime.greets(seconds(110), Some(seconds(10)));
    // A hundredth is for clocks that do not run at the same speed.
    let least = seconds(110) + Duration::from_millis(9_900);
    assert_eq!(lifetime.terms().until(stamp), least);
    lifetime.greets(seconds(112), Some(seconds(10)));
    assert_eq!(lifetime.terms().until(stamp), least);
    // The leader that greeted may have been deposed.
    lifetime.greeted(T, seconds(112), seconds(113));
    assert_eq!(lifetime.terms().until(stamp), least);
    lifetime.committed(seconds(114), 0);
    assert_eq!(lifetime.terms().until(stamp), seconds(131));
    // A request that was answered leaves no doubt.
    lifetime.greets(seconds(120), Some(seconds(5)));
    assert!(lifetime.terms().until(stamp) < seconds(125));
    lifetime.greeted(T, seconds(120), seconds(121));
    assert_eq!(lifetime.terms().until(stamp), seconds(131));
}

#[test]
fn servers_are_taken_to_grant_what_they_have_granted_before() {
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
    lifetime.committed(seconds(110), 0);
    let stamp = lifetime.stamp(seconds(110));
    let until = lifetime.terms().until(stamp);
    for asked in 111..120 {
        lifetime.greets(seconds(asked), None);
        assert_eq!(lifetime.terms().until(stamp), until);
    }
    // A stated timeout counts only up to what was granted.
    lifetime.greeted(T / 2, seconds(119), seconds(120));
    lifetime.committed(seconds(121), 0);
    lifetime.greets(seconds(122), Some(T));
    assert_eq!(lifetime.latest(), seconds(122) + T / 2 - T / 200);
}

/// The leader may be about to end a session that it had not heard of for T, and answers until it comes to
/// that session.
#[test]
fn a_session_that_may_be_due_counts_as_resumed_when_the_leader_must_have_ended_it() {
    let counts_at = |lifetime: &mut Lifetime, sent, at| {
        lifetime.greeted(T, seconds(sent), seconds(at));
        let finds = |now: &u64| lifetime.stamp(seconds(*now)).touched >= seconds(sent);
        (at..).find(finds)
    };
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
    assert_eq!(counts_at(&mut lifetime, 150, 159), Some(159));
    // Nothing was committed since the session began.
    assert_eq!(counts_at(&mut lifetime, 158, 160), Some(175));
    lifetime.committed(seconds(181), 0);
    assert_eq!(counts_at(&mut lifetime, 200, 217), Some(217));
    assert_eq!(counts_at(&mut lifetime, 200, 218), Some(233));
    // A connect request without an answer may have shortened the session.
    lifetime.committed(seconds(239), 0);
    lifetime.greets(seconds(240), Some(seconds(10)));
    lifetime.greets(seconds(241), Some(seconds(10)));
    assert_eq!(counts_at(&mut lifetime, 241, 249), Some(249));
    lifetime.committed(seconds(249), 0);
    lifetime.greets(seconds(250), Some(seconds(10)));
    lifetime.greets(seconds(251), Some(seconds(10)));
    assert_eq!(counts_at(&mut lifetime, 251, 260), Some(275));
    // Of a session of another process, nothing is known.
    let mut resumed = Lifetime::new(T, Duration::ZERO, Duration::ZERO);
    assert_eq!(counts_at(&mut resumed, 20, 21), Some(36));
}

#[test]
fn a_message_after_a_silence_counts_when_the_leader_must_have_ended_the_session() {
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
    let mut counts_at = |sent, at| {
        lifetime.answered(seconds(sent), seconds(at));
        let finds = |now: &u64| lifetime.stamp(seconds(*now)).touched >= seconds(sent);
        (at..).find(finds)
    };
    assert_eq!(counts_at(130, 135), Some(156));
    assert_eq!(counts_at(160, 166), Some(202));
    // The leader may come to the session after this one, too.
    assert_eq!(counts_at(170, 171), Some(202));
}

/// A server that was cut off from the leader has answered pings and reported none of them.
#[test]
fn a_lock_is_not_granted_on_what_an_earlier_connection_was_answered() {
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(101));
    for at in (110..=160).step_by(10) {
        lifetime.answered(seconds(at), seconds(at));
    }
    let stamp = lifetime.stamp(seconds(165));
    assert!(lifetime.supports_a_grant(stamp, (0, Duration::ZERO), seconds(166)));
    lifetime.greets(seconds(165), None);
    lifetime.greeted(T, seconds(165), seconds(166));
    for proofs in [0, ENOUGH_PROOFS] {
        assert!(!lifetime.supports_a_grant(stamp, (proofs, Duration::ZERO), seconds(166)));
    }
    assert_eq!(lifetime.stamp(seconds(166)).touched, Duration::ZERO);
}

#[test]
fn a_lock_is_granted_when_its_guard_will_see_another_proof() {
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
    let early = lifetime.stamp(seconds(101));
    assert!(lifetime.supports_a_grant(early, (0, Duration::ZERO), seconds(102)));
    assert!(
        !lifetime.supports_a_grant(early, (0, Duration::ZERO), seconds(111)),
        "an old proof"
    );
    // After a silence the session may be about to end.
    let late = lifetime.stamp(seconds(155));
    assert!(!lifetime.supports_a_grant(late, (0, Duration::ZERO), seconds(155)));
    // The session lives on, but a lock granted now would be lost before that can be known.
    lifetime.answered(seconds(155), seconds(156));
    let late = lifetime.stamp(seconds(157));
    assert!(!lifetime.supports_a_grant(late, (0, Duration::ZERO), seconds(158)));
    let better_at = lifetime.better_at(late).unwrap();
    let proven = lifetime.stamp(better_at);
    assert!(lifetime.supports_a_grant(proven, (0, Duration::ZERO), better_at + seconds(1)));
}

/// A client that has connected, pings, and proves its node when the one ahead goes.
#[test]
fn a_fresh_proof_supports_a_grant_whatever_the_age_of_the_session_and_the_wait() {
    let trip = Duration::from_millis(20);
    for age in (0..=3 * 48).map(|part| T * part / 48) {
        for waited in (0..=3 * 48).map(|part| T * part / 48) {
            let mut lifetime = Lifetime::new(T, seconds(100), seconds(100) + trip);
            let asks = seconds(100) + 2 * trip + age;
            let granted = asks + waited;
            let mut pinged = seconds(100);
            for sent in [asks, granted] {
                while pinged + T / 6 < sent {
                    pinged += T / 6;
                    lifetime.answered(pinged, pinged + trip);
                }
                lifetime.answered(sent, sent + trip);
            }
            assert_eq!(lifetime.provable_at(granted), None, "{age:?}, {waited:?}");
            let stamp = lifetime.stamp(granted);
            // The proof may be T/6 old, and another answer may have come since.
            for later in (0..8).map(|part| T * part / 48) {
                let (mut lifetime, now) = (lifetime.clone(), granted + trip + later);
                lifetime.answered(granted + later, now);
                assert!(
                    lifetime.supports_a_grant(stamp, (0, Duration::ZERO), now),
                    "connected for {age:?}, waited for {waited:?}, proven {later:?} ago"
                );
            }
            // The guard is not suspect before its next proof is answered.
            let next = stamp.due(lifetime.better_at(stamp), T) + trip;
            assert!(next < stamp.suspect_from(T), "{age:?}, {waited:?}");
        }
    }
}

#[test]
fn on_a_slow_link_a_lock_is_granted_while_it_lives_at_all() {
    let lifetime = Lifetime::new(T, seconds(100), seconds(100));
    let stamp = lifetime.stamp(seconds(101));
    for (now, proofs, granted) in [
        (112, 0, false),
        (112, 1, true),
        (116, 2, false),
        (116, 3, true),
        (128, 3, true),
        (129, 3, false),
    ] {
        let supported = lifetime.supports_a_grant(stamp, (proofs, Duration::ZERO), seconds(now));
        assert_eq!(supported, granted, "{now} s, {proofs} proofs");
    }
}

#[test]
fn a_check_is_due_before_the_guard_is_suspect() {
    let regular = Stamp {
        sent: seconds(100),
        touched: seconds(80),
    };
    let regularly = seconds(100) + T / 8;
    assert_eq!(regular.due(Some(seconds(101)), T), regularly);
    assert_eq!(regular.due(None, T), regularly);
    let silent = Stamp {
        sent: seconds(100),
        touched: seconds(62),
    };
    assert_eq!(silent.due(Some(seconds(101)), T), seconds(101));
    assert_eq!(silent.due(Some(seconds(90)), T), seconds(100));
}

#[test]
fn many_messages_are_remembered_in_little_space() {
    let mut lifetime = Lifetime::new(T, seconds(0), seconds(0));
    for milli in 0..600_000 {
        let sent = Duration::from_millis(milli);
        lifetime.answered(sent, sent + Duration::from_millis(1));
    }
    assert!(lifetime.answers.len() < 64, "{}", lifetime.answers.len());
    let stamp = lifetime.stamp(seconds(600));
    let age = seconds(600) - stamp.touched;
    assert!(age < reported_after(T) + T / 32, "{age:?}");
}

/// A client that is cut off again, before the first handshake counts, waits no longer for that.
#[test]
fn several_short_disconnects_cost_the_wait_for_the_leader_once() {
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
    let counts_at = |lifetime: &mut Lifetime, sent, at| {
        lifetime.greets(seconds(sent), None);
        lifetime.greeted(T, seconds(sent), seconds(at));
        let finds = |now: &u64| lifetime.stamp(seconds(*now)).touched >= seconds(sent);
        (at..).find(finds)
    };
    assert_eq!(counts_at(&mut lifetime, 200, 201), Some(216));
    // The first server may be one of a leader that was deposed.
    assert_eq!(counts_at(&mut lifetime, 203, 204), Some(219));
    lifetime.committed(seconds(205), 0);
    assert_eq!(counts_at(&mut lifetime, 210, 211), Some(219));
    lifetime.committed(seconds(212), 0);
    assert_eq!(counts_at(&mut lifetime, 217, 218), Some(219));
    lifetime.committed(seconds(218), 0);
    assert_eq!(counts_at(&mut lifetime, 250, 251), Some(251));
    // The session may be due again.
    assert_eq!(counts_at(&mut lifetime, 309, 310), Some(325));
}

/// What is known of the session when a request is committed is 7/20 T old, and up to a pause between two
/// messages older. The pings of a client that waits add nothing.
#[test]
fn a_reconnect_delays_only_who_has_committed_nothing_for_a_part_of_the_timeout() {
    let trip = T / 1_000;
    // How often the client sent something before its last commit, and whether that was committed; after
    // which percents of T without a commit a reconnect delays it not yet, and in any case.
    for (every, commits, not_yet, surely) in [
        (T / 100, true, 62, 64),
        (T / 6, false, 46, 64),
        (T / 3, false, 29, 64),
    ] {
        for asks in (0..30).map(|part| seconds(100) + 3 * T + T * part / 90) {
            let mut lifetime = Lifetime::new(T, seconds(100), seconds(100) + trip);
            let mut sent = seconds(100) + every;
            while sent < asks {
                lifetime.answered(sent, sent + trip);
                if commits {
                    lifetime.committed(sent, 0);
                }
                sent += every;
            }
            lifetime.answered(asks, asks + trip);
            lifetime.committed(asks, 0);
            for ping in (1..4).map(|nth| asks + T * nth / 6) {
                lifetime.answered(ping, ping + trip);
            }
            let is_delayed = |percent| {
                let (mut lifetime, at) = (lifetime.clone(), asks + T * percent / 100);
                lifetime.greeted(T, at - trip, at);
                lifetime.provable_at(at) == Some(at + T / 4)
            };
            assert!(!is_delayed(not_yet) && is_delayed(surely), "{every:?}");
        }
    }
    // One that connected when it asked is known of by its connect request.
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100) + trip);
    lifetime.committed(seconds(100) + trip, 0);
    lifetime.greeted(T, seconds(159), seconds(159) + trip);
    assert_eq!(lifetime.provable_at(seconds(160)), None);
}

/// A leader gives each session all of its time when its term begins, after all was sent that earlier leaders have
/// committed.
#[test]
fn a_session_that_a_later_leader_has_renewed_counts_as_resumed_at_once() {
    let provable_at = |lost: bool, at: u64, term: i64| {
        let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
        lifetime.committed(seconds(150), 7 << 32);
        // A connect request without an answer may have shortened the session.
        if lost {
            lifetime.greets(seconds(151), Some(seconds(10)));
        }
        lifetime.greets(seconds(at), Some(T));
        lifetime.greeted(T, seconds(at), seconds(at));
        assert_eq!(lifetime.provable_at(seconds(at)), Some(seconds(at) + T / 4));
        lifetime.answered(seconds(at), seconds(at));
        lifetime.committed(seconds(at), (term << 32) + 5);
        lifetime.provable_at(seconds(at))
    };
    for (lost, at, term, is_renewed) in [
        (false, 209, 8, true),
        (false, 209, 9, true),
        (false, 209, 7, false),
        (false, 210, 8, false),
        (true, 209, 8, false),
    ] {
        let waits = (!is_renewed).then_some(seconds(at) + T / 4);
        assert_eq!(provable_at(lost, at, term), waits, "{lost} {at} {term}");
    }
}

/// A server that grants less heard the first of three connect requests. The second finds the session due, and
/// the leader commits what is sent after it until it ends the session.
#[test]
fn a_session_that_was_due_is_not_excused_by_what_the_leader_had_heard_of_before() {
    let mut lifetime = Lifetime::new(T, seconds(100), seconds(100));
    let least = Some(T / 10);
    lifetime.greets(seconds(110), least);
    let sent = seconds(110) + T / 5;
    lifetime.greets(sent, least);
    lifetime.greeted(T, sent, sent);
    lifetime.committed(sent, 0);
    lifetime.greets(sent, least);
    lifetime.greeted(T, sent, sent);
    let stamp = lifetime.stamp(sent);
    assert_eq!(stamp.touched, Duration::ZERO, "{lifetime:?}");
}

/// How many histories to try; `ZKLOCK_HISTORIES` asks for more.
fn histories() -> u64 {
    let asked = std::env::var("ZKLOCK_HISTORIES").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(4_000)
}

#[test]
fn no_check_passes_when_the_session_can_have_ended() {
    let mut trusted = Duration::ZERO;
    for seed in 0..histories() {
        let seen = run(seed, Broken::Nothing);
        assert_eq!(
            seen.late,
            Duration::ZERO,
            "seed {seed}: a check passed after the end"
        );
        trusted += seen.trusted;
    }
    assert!(
        trusted > Duration::from_secs(histories()),
        "the guards were trusted, too"
    );
}

#[test]
fn each_part_of_the_rule_is_needed() {
    for (broken, known) in Broken::ALL {
        // Only what has changed since is looked for anew.
        let mut histories = iter::once(known).chain(0..40 * histories());
        let caught = histories.find(|seed| run(*seed, broken).late > Duration::ZERO);
        assert!(caught.is_some(), "nobody noticed {broken:?}");
        println!(
            "{broken:?}: caught by history {}",
            caught.unwrap_or_default()
        );
    }
}
