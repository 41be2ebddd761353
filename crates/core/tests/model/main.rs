//! Tries everything that can happen to a few contenders, on the real protocol.
//!
//! A world is a ZooKeeper directory with its clients ([`world`]). From every world, every step that
//! could come next is taken ([`steps`]), among them each mishap as often as the setting's budget
//! allows, until no new world comes up ([`explore`]). The properties are checked in every world
//! ([`property`]). The number of worlds is pinned: a change of the protocol or the model shows
//! here, and needs a reason.
//!
//! A checker that passes everything proves nothing. [`mutant`] has the wrong variants that it must
//! catch.
//!
//! Locks that take more than one attempt, or do something besides, are in [`journey`]; jobs that
//! run once under a lock are in [`once`].
//!
//! A new role needs a letter and a [`client::Wish`] in [`setting`], the roles that it excludes in
//! [`property`], and in [`driver`] what its client does besides the attempt.
//!
//! `cargo test --test model -- --nocapture` prints the settings that were tried, and the mutants
//! that were caught.

mod background;
mod client;
mod directory;
mod driver;
mod explore;
mod hurry;
mod journey;
mod mishap;
mod mutant;
mod numbers;
mod once;
mod property;
mod setting;
mod steps;
mod trust;
mod world;

use std::time::{Duration, Instant};

use self::directory::Overflow;
use self::explore::{Explored, Model, explore};
use self::hurry::{Haste, Hurry};
use self::journey::{Detour, Journey};
use self::mutant::Mutant;
use self::numbers::{Mishaps, Numbers, Slip};
use self::once::{Job, Shortcut};
use self::property::Property::{
    self, Attempts, Exclusion, Herd, Liveness, Once, Order, Orphan, Ownership, Progress, Sleep,
    Truth,
};
use self::setting::Setting;
use self::trust::{Allowance, Doubt, Trust};
use self::world::{Transport, World};

/// The wishes, the mishaps that may happen, the number of worlds, and how many times all clients
/// together wait for an answer at most.
type Tried = (&'static str, &'static str, usize, u32);

/// Explores settings, and compares the number of worlds and the price of each with the table.
#[track_caller]
fn check(table: &[Tried], adapt: impl Fn(&mut Setting)) {
    let mut found = Vec::new();
    for &(wishes, mishaps, ..) in table {
        let mut setting = Setting::new(wishes, mishaps);
        adapt(&mut setting);
        let start = Instant::now();
        let explored = explore(World::new(&setting));
        let took = start.elapsed();
        let exchanges = tell(wishes, mishaps, &explored, took);
        found.push((wishes, mishaps, explored.worlds, exchanges));
    }
    assert_eq!(found, table);
}

/// Prints the result of an exploration; returns its price.
#[track_caller]
fn tell(wanted: &str, mishaps: &str, explored: &Explored, took: Duration) -> u32 {
    let Explored { worlds, steps, .. } = explored;
    assert_sound(wanted, mishaps, explored);
    let exchanges = explored.exchanges.expect("every way has an end");
    println!(
        "{wanted:8} {mishaps:40} {worlds:7} worlds {steps:8} steps {took:9.1?} {exchanges} exchanges"
    );
    exchanges
}

#[track_caller]
fn assert_sound(wishes: &str, mishaps: &str, explored: &Explored) {
    if let Some(counterexample) = explored.counterexamples.first() {
        panic!("{wishes} with {mishaps}: {counterexample}");
    }
}

#[test]
fn mutexes_exclude_whatever_is_lost_or_given_up() {
    let table = [
        ("x", "", 6, 4),
        ("x x", "", 52, 10),
        ("x x x", "", 695, 16),
        ("x", "3 faults, 3 cancels", 88, 10),
        ("x x", "3 faults, 2 cancels", 2_874, 16),
        ("x x x", "1 fault, 1 cancel", 16_457, 19),
        ("x x x", "2 faults", 10_581, 21),
        ("x x x", "2 cancels", 5_683, 16),
        ("x x x x", "", 13_380, 22),
        ("x x x x", "1 cancel", 71_958, 24),
        ("xx xx", "1 fault, 1 cancel", 32_934, 27),
        ("xxx x", "1 fault", 3_896, 26),
        ("x? x", "2 faults, 1 cancel", 1_517, 15),
        ("x? x? x", "1 fault, 1 cancel", 17_558, 20),
    ];
    check(&table, |_| {});
}

#[test]
fn mutexes_exclude_whoever_expires_dies_or_is_evicted() {
    let table = [
        ("x x", "2 faults, 2 cancels, 2 expiries", 259_340, 26),
        ("x x x", "1 fault, 1 cancel, 1 expiry", 519_074, 26),
        ("x x", "1 fault, 1 cancel, 2 crashes", 1_584, 12),
        ("x x x", "1 fault, 1 crash", 12_295, 19),
        ("x x", "1 fault, 2 evictions, 1 touch", 4_284, 16),
        ("x x x", "1 fault, 1 eviction", 32_188, 20),
        ("x x x", "1 cancel, 1 touch", 9_130, 20),
        ("xx x", "1 expiry, 1 eviction", 22_981, 23),
        ("xxx x", "1 crash, 1 eviction", 8_366, 23),
        ("xx xx", "1 expiry", 14_990, 30),
    ];
    check(&table, |_| {});
}

/// A hold ends when it is released, or when its time is over: at any time.
#[test]
fn a_hold_takes_the_place_of_its_lock() {
    let table = [
        ("x", "1 hold", 8, 4),
        ("x x", "2 holds, 1 fault, 1 cancel", 1_042, 13),
        ("x x x", "1 hold", 2_985, 19),
        ("x x x", "1 hold, 1 cancel", 8_440, 19),
        ("x x x", "1 hold, 1 fault", 14_232, 22),
        ("xx xx", "1 hold", 2_831, 24),
        ("x? x x", "1 hold, 1 cancel", 7_814, 20),
        ("x x", "1 hold, 1 expiry, 1 crash", 2_839, 16),
        ("x x", "1 hold, 1 eviction, 1 touch", 941, 13),
        ("w r r", "1 hold, 1 cancel", 8_197, 19),
        ("w r w", "1 hold, 1 fault", 10_714, 19),
    ];
    check(&table, |_| {});
}

#[test]
fn readers_share_and_writers_do_not() {
    let table = [
        ("r w", "2 faults, 1 cancel, 1 expiry", 20_338, 19),
        ("w w", "2 faults, 1 cancel, 1 expiry", 20_818, 19),
        ("r r", "2 faults, 1 cancel, 1 expiry", 17_976, 14),
        ("r w", "1 fault, 1 crash, 1 eviction, 1 touch", 3_952, 16),
        ("r w r", "1 fault, 1 cancel", 15_981, 18),
        ("r r w", "1 expiry, 1 touch", 61_534, 26),
        ("r r r", "1 fault, 1 cancel", 15_935, 14),
        ("w w r", "1 fault, 1 crash", 10_948, 18),
        ("w w w", "1 fault, 1 cancel", 15_437, 18),
        ("rr ww", "1 fault, 1 cancel", 25_007, 24),
        ("r? w r", "1 cancel, 1 eviction", 15_196, 17),
        ("w? r r", "1 fault, 1 crash", 12_836, 19),
    ];
    check(&table, |_| {});
}

#[test]
fn a_directory_may_be_missing_and_vanish() {
    let table = [
        ("x x", "2 faults, 1 vanishing", 1_243, 22),
        ("xx x", "1 fault, 2 vanishings", 4_621, 31),
        ("xx x", "1 expiry, 2 vanishings", 18_823, 35),
        ("xx xx", "1 eviction, 2 vanishings", 33_516, 35),
        ("x? x", "1 fault, 1 cancel, 2 vanishings", 3_380, 25),
        ("x x x", "1 fault, 1 vanishing", 10_728, 31),
        ("r w r", "1 cancel, 1 vanishing", 9_014, 28),
    ];
    check(&table, |setting| setting.there = false);
}

#[test]
fn used_up_numbers_that_repeat_keep_the_order() {
    let table = [
        ("x x", "1 fault, 1 cancel, 1 expiry", 13_562, 23),
        ("x x x", "1 fault", 7_375, 24),
        ("x x x", "1 cancel, 1 eviction", 36_061, 21),
        ("xx xx", "1 fault, 1 vanishing", 14_127, 32),
        ("r w r", "1 fault, 1 cancel", 28_263, 24),
        ("x? x x", "1 cancel, 1 touch", 13_764, 28),
    ];
    check(&table, |setting| {
        setting.counter = 2_147_483_646;
        setting.overflow = Overflow::Sticks;
    });
}

#[test]
fn used_up_numbers_that_turn_negative_keep_the_order() {
    let table = [
        ("x x x", "1 fault", 7_378, 24),
        ("r w r", "1 fault, 1 cancel", 28_301, 24),
        ("x x", "1 eviction, 1 expiry", 6_126, 20),
    ];
    check(&table, |setting| {
        setting.counter = 2_147_483_646;
        setting.overflow = Overflow::Wraps;
    });
}

#[test]
fn a_node_may_be_in_the_queue_from_the_beginning() {
    let table = [
        ("X X", "1 fault, 1 cancel, 1 expiry", 1_973, 15),
        ("X x x", "1 fault, 1 cancel", 4_729, 18),
        ("R W r", "1 expiry", 2_950, 19),
        ("X? x", "1 fault, 1 eviction", 352, 11),
    ];
    check(&table, |_| {});
}

#[test]
fn a_create_need_not_tell_whose_the_node_is() {
    let table = [
        ("x x", "1 fault, 1 cancel, 1 expiry", 11_852, 20),
        ("x x", "2 faults, 1 eviction", 2_452, 18),
        ("x x x", "1 fault, 1 cancel", 20_624, 22),
    ];
    check(&table, |setting| setting.rules.create_tells = false);
}

#[test]
fn an_attempt_without_a_node_may_hear_late_of_a_new_session() {
    let table = [
        ("x x", "2 faults, 1 expiry", 23_882, 20),
        ("x x", "1 fault, 1 cancel, 1 expiry", 24_910, 18),
        ("x x", "2 expiries", 23_621, 23),
        ("x x x", "1 expiry", 45_182, 24),
        ("r w", "1 fault, 1 expiry, 1 eviction", 34_065, 20),
    ];
    check(&table, |setting| setting.rules.late_news = true);
}

#[test]
fn a_transport_that_does_not_know_its_session_will_do() {
    let table = [
        ("x x", "1 fault, 1 cancel, 1 expiry", 152_941, 27),
        ("x x", "2 faults", 31_461, 27),
        ("x x", "1 fault, 1 crash, 1 eviction", 14_267, 19),
        ("x x x", "1 fault", 50_343, 28),
        ("r w r", "1 fault", 49_325, 27),
        ("xx x", "1 fault, 1 vanishing", 20_852, 32),
    ];
    check(&table, |setting| {
        setting.rules.transport = Transport::Handle;
        setting.rules.create_tells = false;
    });
}

/// However late each is, one more contender costs the create, a look at the queue, the watches and the
/// proof, a second look if it had to wait, and the deletion.
#[test]
fn a_contender_more_costs_the_same_in_any_queue_and_a_wasteful_one_is_seen() {
    let price = |wishes: &str, mutant| {
        let mut setting = Setting::new(wishes, "");
        setting.rules.mutant = mutant;
        let explored = explore(World::new(&setting));
        assert_sound(wishes, "", &explored);
        explored.exchanges.expect("every way has an end")
    };
    let prices = |mutant| ["x", "x x", "x x x", "x x x x"].map(|wishes| price(wishes, mutant));
    assert_eq!(prices(Mutant::Sound), [4, 10, 16, 22]);
    assert_eq!(prices(Mutant::TakesADeletionForAnyWake), [4, 10, 17, 24]);
}

/// A mutant, the setting in which it is tried, and the properties that it violates, the one with
/// the shortest way first.
type Wrong = (Mutant, &'static str, &'static str, &'static [Property]);

#[rustfmt::skip]
const WRONG: [Wrong; 38] = [
    (Mutant::FindsWithoutSync,          "x x",   "1 fault",             &[Progress, Liveness]),
    (Mutant::RepeatsLostCreates,        "x x",   "1 fault",             &[Progress, Liveness]),
    (Mutant::AdoptsAcrossSessions,      "x x",   "2 faults, 1 expiry", &[Truth, Exclusion]),
    (Mutant::UsesOneId,                 "xx x",  "1 fault, 1 cancel",  &[Ownership, Truth, Exclusion]),
    (Mutant::OverlooksOwnAbsence,       "x x",   "1 eviction",          &[Exclusion]),
    (Mutant::ListsOnlyTheNearest,       "x x x", "1 cancel",            &[Order, Exclusion]),
    (Mutant::WatchesTheFarthest,        "x x x", "",                     &[Herd]),
    (Mutant::SleepsOnAbsence,           "x x",   "",                     &[Sleep, Progress, Liveness]),
    (Mutant::ReadersWaitForReaders,     "r r",   "",                     &[Sleep]),
    (Mutant::WritersOverlookReaders,    "r w",   "",                     &[Order, Exclusion]),
    (Mutant::OrdersByText,              "x x",   "",                     &[Order, Sleep, Exclusion]),
    (Mutant::OrdersByNumberOnly,        "x x x", "",                     &[Order, Herd, Exclusion]),
    (Mutant::MakesParentsOnce,          "x x",   "1 vanishing",         &[Liveness]),
    (Mutant::TakesAnyNumberForTheNext, "xx x", "",                    &[Order, Exclusion]),
    (Mutant::TrustsANewDirectory,      "xx x", "1 vanishing",         &[Order, Exclusion]),
    (Mutant::TakesAnyWakeForADeletion,  "x x",   "1 touch",            &[Order, Exclusion]),
    (Mutant::SleepsThroughReconnects,   "x x",   "1 fault",             &[Sleep, Progress, Liveness]),
    (Mutant::SleepsThroughChanges,      "x x",   "1 touch",            &[Sleep, Progress, Liveness]),
    (Mutant::SleepsThroughExpiry,       "x x",   "1 expiry",           &[Sleep, Progress, Liveness]),
    (Mutant::WatchesOnlyTheNearest,     "x x x", "1 eviction",          &[Sleep, Truth, Exclusion]),
    (Mutant::HearsOutOfOrder,           "x x x", "1 eviction",          &[Truth, Exclusion]),
    (Mutant::HearsWhatIsSetAgain,       "x x x", "1 fault, 1 eviction", &[Truth, Exclusion]),
    (Mutant::DropsWatchesToRelist,      "x x x", "",                     &[Sleep, Progress, Liveness]),
    (Mutant::TakesAMissForADeletion,    "x x x", "1 hold, 1 cancel",     &[Exclusion]),
    (Mutant::RelistsWithLostWatches,    "x x x", "1 fault",             &[Sleep, Progress, Liveness]),
    (Mutant::TrustsUnansweredWatches,   "x x",   "1 fault, 1 eviction", &[Sleep, Truth]),
    (Mutant::TakesOwnEndForEviction,    "x x",   "1 expiry",           &[Truth]),
    (Mutant::CarriesOnInNewSession,     "x x",   "1 expiry",           &[Truth, Exclusion]),
    (Mutant::HoldsUnproved,             "x x",   "1 expiry",           &[Exclusion]),
    (Mutant::TrustsPings,               "x x",   "1 expiry",           &[Exclusion]),
    (Mutant::ForgetsLeftovers,          "x",     "1 cancel",            &[Orphan, Liveness]),
    (Mutant::CancelsWithoutLoss,        "x",     "1 cancel",            &[Orphan, Liveness]),
    (Mutant::GivesUpFarewells,          "x",     "1 fault",             &[Orphan, Liveness]),
    (Mutant::PartsWithoutSync,          "x",     "1 cancel",           &[Orphan, Liveness]),
    (Mutant::DropsFarewells,            "x",     "1 fault",             &[Orphan, Progress, Liveness]),
    (Mutant::AscribesToOldSession,      "x",     "1 expiry",             &[Progress, Liveness]),
    (Mutant::DeletesBeforeRelease,      "x x",   "",                     &[Ownership, Exclusion]),
    (Mutant::HoldsUnannounced,          "x x",   "1 hold",               &[Exclusion]),
];

#[test]
fn every_wrong_variant_is_caught() {
    let mut found = Vec::new();
    for (mutant, wishes, mishaps, _) in WRONG {
        let mut setting = Setting::new(wishes, mishaps);
        match mutant {
            Mutant::AscribesToOldSession => setting.rules.late_news = true,
            Mutant::DropsFarewells => setting.rules.transport = Transport::Handle,
            Mutant::OrdersByNumberOnly => setting.counter = 2_147_483_646,
            _ => {}
        }
        assert_sound(wishes, mishaps, &explore(World::new(&setting)));
        setting.rules.mutant = mutant;
        let counterexamples = explore(World::new(&setting)).counterexamples;
        let violated: Vec<_> = counterexamples
            .iter()
            .map(|c| c.violation.property)
            .collect();
        println!("{mutant:?} violates {violated:?}: {wishes} with {mishaps}");
        counterexamples
            .iter()
            .take(1)
            .for_each(|first| println!("    {first}"));
        found.push((mutant, wishes, mishaps, violated));
    }
    let expected = WRONG
        .map(|(mutant, wishes, mishaps, violated)| (mutant, wishes, mishaps, violated.to_vec()));
    assert_eq!(found, expected);
}

/// As [`check`], for journeys.
#[track_caller]
fn check_journeys(table: &[Tried]) {
    let mut found = Vec::new();
    for &(goals, mishaps, ..) in table {
        let start = Instant::now();
        let explored = explore(Journey::new(goals, mishaps, Detour::None));
        let took = start.elapsed();
        let exchanges = tell(goals, mishaps, &explored, took);
        found.push((goals, mishaps, explored.worlds, exchanges));
    }
    assert_eq!(found, table);
}

#[test]
fn no_more_permits_are_out_than_there_are() {
    let table = [
        ("p1 p1", "", 162, 21),
        ("p1 p1", "1 fault, 1 cancel", 2_102, 23),
        ("p1 p1", "1 fault, 1 expiry", 26_896, 34),
        ("p1 p1", "1 cancel, 1 crash", 1_398, 21),
        ("p1 p1 p1", "1 expiry", 183_767, 44),
        ("p1 p1 p1", "1 cancel", 8_377, 33),
        ("p2 p2 p2", "1 fault", 19_660, 34),
        ("p2 p2 p2", "1 crash", 18_089, 32),
        ("p1 p1", "1 eviction, 1 fault", 7_352, 25),
        ("p1 p1? p1?", "1 cancel", 10_964, 40),
        ("p1 p1", "2 expiries", 110_164, 43),
    ];
    check_journeys(&table);
}

#[test]
fn all_permits_that_are_out_were_given_by_one_number() {
    let table = [
        ("p1 p2", "1 fault, 1 cancel", 2_019, 28),
        ("p1 p2", "1 fault, 1 expiry", 27_592, 42),
        ("p1 p2 p2", "", 2_687, 40),
        ("p1 p2 p2", "1 expiry", 210_517, 54),
        ("p2 p1 p2", "1 cancel", 8_440, 39),
        ("p2 p1", "1 eviction, 1 fault", 7_421, 29),
        ("P1 P2", "1 fault, 1 cancel, 1 crash", 6_698, 29),
        ("p1 P2 p2?", "1 cancel", 10_794, 42),
        ("k1 k2", "1 fault, 1 cancel", 2_019, 28),
    ];
    check_journeys(&table);
}

#[test]
fn several_permits_are_had_together_or_not_at_all() {
    let table = [
        ("q2 q2", "", 330, 30),
        ("q2 q2", "1 fault, 1 cancel", 6_460, 32),
        ("q2 q2", "1 expiry", 17_580, 44),
        ("q2 p2", "1 fault, 1 cancel", 4_082, 27),
        ("q2 p2", "1 expiry", 11_644, 39),
        ("q2 p2", "1 eviction", 5_542, 43),
        ("q2 p2", "1 crash", 953, 25),
        ("q3 p3 q3?", "", 8_053, 46),
        ("q2 p2 q2", "", 4_627, 42),
        ("K2 K2", "1 fault, 1 cancel", 6_078, 34),
        ("K2 k2", "1 expiry", 11_437, 42),
    ];
    check_journeys(&table);
}

#[test]
fn in_kazoos_layout_there_is_never_a_node_more_than_there_are_permits() {
    let table = [
        ("k1 k1", "", 160, 22),
        ("k1 k1", "1 fault, 1 cancel", 1_986, 24),
        ("k1 k1", "1 fault, 1 expiry", 25_580, 36),
        ("k1 k1", "1 cancel, 1 crash", 1_336, 22),
        ("k1 k1 k1", "1 cancel", 7_738, 35),
        ("k2 k2 k2", "1 fault", 19_498, 35),
        ("k2 k2 k2", "1 crash", 18_107, 33),
    ];
    check_journeys(&table);
}

#[test]
fn a_downgrade_lets_no_writer_in() {
    let table = [
        ("d w", "1 fault, 1 cancel, 1 expiry", 14_760, 21),
        ("d r w", "1 fault", 11_180, 22),
        ("d d", "1 fault, 1 crash", 2_254, 18),
        ("d w r", "1 expiry", 56_253, 25),
        ("d w", "1 eviction, 1 fault", 3_432, 18),
        ("d d", "1 eviction, 1 fault", 6_362, 20),
        ("D w", "1 fault, 1 cancel, 1 expiry", 19_556, 23),
        ("D w", "2 evictions, 1 fault", 12_291, 21),
        ("D d r", "1 fault", 20_683, 25),
        ("D r w", "1 eviction", 24_552, 23),
        ("d D", "1 fault, 1 expiry, 1 crash", 28_633, 24),
    ];
    check_journeys(&table);
}

#[test]
fn those_who_want_several_mutexes_do_not_wait_for_each_other() {
    let table = [
        ("m m", "1 fault", 425, 19),
        ("m m", "1 expiry", 1_584, 24),
        ("m m", "1 cancel", 266, 17),
        ("m m m", "", 1_703, 29),
        ("m m x", "", 1_266, 24),
        ("m m", "1 crash", 418, 17),
        ("m m", "1 eviction, 1 fault", 17_557, 30),
        ("m x", "2 evictions", 18_141, 28),
        ("m m", "1 cancel, 1 expiry", 3_612, 24),
        ("m m m", "1 fault", 8_343, 31),
        ("m? m", "1 fault", 485, 20),
        ("m? m", "1 eviction", 3_676, 27),
        ("m? m? x", "1 expiry", 41_687, 30),
    ];
    check_journeys(&table);
}

#[test]
fn those_who_want_a_mutex_and_to_read_do_not_wait_for_each_other() {
    let table = [
        ("n n", "1 fault", 335, 15),
        ("n m", "1 eviction", 3_452, 28),
        ("n n y", "", 1_164, 23),
        ("n? m", "1 fault", 488, 20),
        ("n m", "1 cancel, 1 expiry", 3_680, 24),
    ];
    check_journeys(&table);
}

#[test]
fn who_dies_inside_is_told_to_the_next_and_nobody_else_is() {
    let table = [
        ("t t", "1 fault, 1 cancel, 1 expiry", 9_281, 21),
        ("t t t", "1 fault, 1 crash", 23_329, 24),
        ("t t t", "2 crashes", 10_832, 22),
        ("t t", "2 expiries", 10_382, 24),
        ("t t", "2 faults, 1 cancel, 1 panic", 1_828, 19),
        ("t t t", "1 panic, 1 eviction", 17_943, 24),
        ("t t t", "1 expiry", 29_468, 27),
        ("t t t", "1 fault, 1 cancel", 13_488, 24),
    ];
    check_journeys(&table);
}

/// A detour, the setting in which it is tried, and the properties that it violates, the one with
/// the shortest way first.
type Detoured = (Detour, &'static str, &'static str, &'static [Property]);

#[rustfmt::skip]
const DETOURS: [Detoured; 36] = [
    (Detour::CountsWithoutItself,     "p1 p1",    "1 expiry",            &[Exclusion]),
    (Detour::DoesNotWatchTheLeases,   "p1 p1",    "",                    &[Sleep, Progress, Liveness]),
    (Detour::LetsTheNextInTooEarly,   "p1 p1 p1", "",                    &[Progress, Herd, Liveness]),
    (Detour::RestartsTheLeaseAlone,   "p1 p1",    "1 expiry",            &[Progress, Liveness]),
    (Detour::DoesNotWatchTheLeases,   "k1 k1",    "",                    &[Sleep, Progress, Liveness]),
    (Detour::DoesNotLook,             "k1 k1",    "",                    &[Exclusion]),
    (Detour::LooksAfterItsTurn,       "k1 k1",    "",                    &[Exclusion, Progress, Liveness]),
    (Detour::OverlooksTheNumber,      "p1 p2",    "",                    &[Exclusion]),
    (Detour::OverlooksThoseOut,       "p1 p2",    "",                    &[Exclusion]),
    (Detour::WritesWithoutTheLine,    "p1 p2 p1", "1 eviction",          &[Sleep]),
    (Detour::SleepsThroughTheLastOne, "p1 p2",    "",                    &[Sleep, Progress, Liveness]),
    (Detour::LetsTheLineGoForTheSecond, "q2 q2",  "",                    &[Progress, Liveness]),
    (Detour::OutlivesTheLine,         "p1 p1",    "1 eviction",          &[Progress, Liveness]),
    (Detour::DeletesTheWriterFirst,   "d w",      "",                    &[Exclusion]),
    (Detour::TakesANewNumber,         "d w",      "",                    &[Exclusion]),
    (Detour::DowngradesUnchecked,     "d w",      "1 eviction",          &[Exclusion]),
    (Detour::DowngradesUnproved,      "D w",      "1 eviction",          &[Exclusion]),
    (Detour::KeepsTheWriter,          "d r",      "",                    &[Progress, Orphan, Liveness]),
    (Detour::ForgetsTheReader,        "D w",      "1 eviction",          &[Progress, Orphan, Liveness]),
    (Detour::PlacesOneByOne,          "m m",      "",                    &[Progress, Liveness]),
    (Detour::PlacesOneByOne,          "n m",      "",                    &[Progress, Liveness]),
    (Detour::HoldsAllUnproved,        "m x",      "1 eviction",          &[Exclusion]),
    (Detour::KeepsHalf,               "m x",      "1 eviction",          &[Exclusion]),
    (Detour::SkipsAQueue,             "m y",      "",                    &[Exclusion]),
    (Detour::TakesOldPlaces,          "m x",      "1 expiry",            &[Truth, Exclusion]),
    (Detour::OverlooksWhoWasListed,   "m x",      "",                    &[Exclusion]),
    (Detour::ForgetsWhatWasPlaced,    "m m",      "1 fault, 1 cancel",   &[Progress, Orphan, Liveness]),
    (Detour::ForgetsTheOtherQueue,    "m m",      "1 cancel",            &[Progress, Orphan, Liveness]),
    (Detour::ClearsAfterwards,        "t t t",    "1 crash",             &[Truth]),
    (Detour::MarksInTheQueue,         "t t t",    "1 crash",             &[Truth]),
    (Detour::ClearsWithoutDeleting,   "t t t",    "1 fault, 1 crash",    &[Truth]),
    (Detour::ClearsInAPanic,          "t t",      "1 panic",             &[Truth]),
    (Detour::DoesNotRead,             "t t",      "1 crash",             &[Truth]),
    (Detour::DoesNotMark,             "t t",      "1 crash",             &[Truth]),
    (Detour::MarksUnchecked,          "t t t",    "1 eviction",          &[Exclusion]),
    (Detour::LeavesAMarkBehind,       "t t",      "1 fault, 1 cancel",   &[Truth]),
];

#[test]
fn every_detour_is_caught() {
    let mut found = Vec::new();
    for (detour, goals, mishaps, _) in DETOURS {
        assert_sound(
            goals,
            mishaps,
            &explore(Journey::new(goals, mishaps, Detour::None)),
        );
        let explored = explore(Journey::new(goals, mishaps, detour));
        let violated: Vec<_> = explored
            .counterexamples
            .iter()
            .map(|c| c.violation.property)
            .collect();
        println!("{detour:?} violates {violated:?}: {goals} with {mishaps}");
        explored
            .counterexamples
            .iter()
            .take(1)
            .for_each(|first| println!("    {first}"));
        found.push((detour, goals, mishaps, violated));
    }
    let expected = DETOURS
        .map(|(detour, goals, mishaps, violated)| (detour, goals, mishaps, violated.to_vec()));
    assert_eq!(found, expected);
}

/// As [`check`], for jobs.
#[track_caller]
fn check_jobs(table: &[(&str, &str, usize)]) {
    let mut found = Vec::new();
    for &(wishes, mishaps, _) in table {
        let name = format!("{wishes:8} {mishaps}");
        let job = Job::new(wishes, mishaps, Shortcut::None);
        found.push((wishes, mishaps, check_small(&name, job)));
    }
    assert_eq!(found, table);
}

#[test]
fn a_slot_is_done_once_by_who_held_the_lock_to_the_end() {
    let table = [
        ("a a", "", 84),
        ("a a a", "", 874),
        ("a a b", "", 934),
        ("a a a?", "1 failure", 1_606),
        ("a a", "2 faults, 1 lag", 1_594),
        ("a a", "1 fault, 1 expiry, 1 lag", 6_389),
        ("a a", "1 fault, 1 eviction, 1 lag", 3_570),
        ("a a b", "1 crash, 1 lag", 8_844),
        ("a b a", "1 expiry", 13_813),
        ("a a", "1 panic, 1 crash, 1 failure", 513),
        ("a a", "1 fault, 1 cancel, 1 lag", 1_968),
        ("a a", "2 expiries, 1 cancel", 9_186),
        ("a a a", "1 fault, 1 crash", 18_138),
        ("a a b?", "1 expiry, 1 cancel", 44_476),
    ];
    check_jobs(&table);
}

#[test]
fn a_slot_in_any_order_is_done_once_by_itself() {
    let table = [
        ("a* a* b", "", 998),
        ("b a* a", "1 failure", 1_823),
        ("a* b* a*", "1 crash", 4_648),
        ("a* b a*", "1 fault, 1 lag", 13_272),
        ("a* b a*", "1 expiry", 14_765),
        ("a2* b a2*", "1 failure, 1 lag", 3_950),
        ("a1* b a1*", "1 failure", 1_857),
        ("a* b a*", "2 failures", 2_087),
        ("b a* a*", "1 eviction, 1 cancel", 31_204),
    ];
    check_jobs(&table);
}

#[test]
fn a_slot_that_is_wanted_again_is_done_once_more() {
    let table = [
        ("a a!", "1 failure", 132),
        ("a b! a", "1 fault, 1 lag", 11_416),
        ("a! b a!", "1 crash", 4_992),
        ("b a!* a*", "1 expiry", 15_410),
        ("a! a!", "1 fault, 1 expiry", 3_766),
        ("a2! a2! a", "1 failure, 1 lag", 3_968),
    ];
    check_jobs(&table);
}

#[test]
fn a_slot_is_begun_no_more_often_than_it_may_be() {
    let table = [
        ("a1 a1", "1 fault, 1 expiry", 2_823),
        ("a1 a1", "1 fault, 1 cancel, 1 lag", 1_951),
        ("a2 a2 a2", "2 failures", 1_799),
        ("a2 a2 a2", "1 crash, 1 panic", 6_937),
        ("a2 a1 a2", "1 failure, 1 lag", 3_332),
        ("a1 a2", "1 eviction, 1 lag", 683),
        ("a2 b1 a1", "1 failure, 1 crash", 7_867),
        ("a2 a2", "2 expiries, 1 lag", 7_299),
    ];
    check_jobs(&table);
}

#[test]
fn a_run_begins_no_sooner_after_the_last_than_it_may() {
    let table = [
        ("E E", "3 ticks", 9_156),
        ("E E", "2 ticks, 1 fault", 21_801),
        ("E E", "2 ticks, 1 expiry", 38_281),
        ("E E", "3 ticks, 1 crash", 29_458),
        ("E E", "2 ticks, 1 failure, 1 lag", 11_637),
    ];
    check_jobs(&table);
}

/// As [`check`], for small models.
#[track_caller]
fn check_small<M: Model>(name: &str, model: M) -> usize {
    let start = Instant::now();
    let explored = explore(model);
    let took = start.elapsed();
    let Explored { worlds, steps, .. } = explored;
    println!("{name:49} {worlds:7} worlds {steps:8} steps {took:9.1?}");
    assert_sound(name, "", &explored);
    worlds
}

/// Tries a wrong variant of a small model; returns the properties that it violates.
fn violated<M: Model>(name: &str, model: M) -> Vec<Property> {
    let counterexamples = explore(model).counterexamples;
    let violated = counterexamples.iter().map(|c| c.violation.property);
    let violated: Vec<_> = violated.collect();
    println!("{name} violates {violated:?}");
    counterexamples
        .iter()
        .take(1)
        .for_each(|first| println!("    {first}"));
    violated
}

fn mishaps([faults, expiries, evictions, lags]: [u8; 4]) -> Mishaps {
    Mishaps {
        faults,
        expiries,
        evictions,
        lags,
    }
}

#[test]
fn no_two_permits_have_one_number() {
    #[rustfmt::skip]
    let table = [
        // holders, rounds, permits; faults, expiries, evictions, lags
        ((2, 2, 2), [0, 0, 0, 0], 749),
        ((3, 1, 2), [1, 0, 0, 0], 10_233),
        ((2, 1, 2), [2, 1, 0, 1], 15_338),
        ((3, 1, 2), [0, 1, 1, 0], 15_381),
        ((2, 2, 1), [1, 1, 1, 1], 78_993),
    ];
    let found = table.map(|(scene, left, _)| {
        let numbers = Numbers::new(scene, mishaps(left), Slip::None);
        let worlds = check_small(&format!("{scene:?} {left:?}"), numbers);
        (scene, left, worlds)
    });
    assert_eq!(found, table);
}

/// A wrong variant, the setting in which it shows, and the properties that it violates.
type Slipped = (Slip, (usize, u8, u32), [u8; 4], &'static [Property]);

#[rustfmt::skip]
const SLIPS: [Slipped; 5] = [
    (Slip::ClaimsUnversioned,    (2, 1, 2), [0, 0, 0, 0], &[Exclusion]),
    (Slip::ListsThePermitsFirst, (3, 1, 2), [0, 0, 1, 0], &[Exclusion]),
    (Slip::OverlooksItsOwn,      (2, 1, 2), [1, 0, 0, 0], &[Liveness]),
    (Slip::CountsTheDead,        (2, 1, 1), [0, 0, 1, 0], &[Truth]),
    (Slip::LeavesItsClaim,       (2, 1, 2), [0, 0, 0, 0], &[Orphan]),
];

#[test]
fn every_slip_is_caught() {
    let found = SLIPS.map(|(slip, scene, left, _)| {
        let numbers = Numbers::new(scene, mishaps(left), slip);
        (slip, scene, left, violated(&format!("{slip:?}"), numbers))
    });
    let expected =
        SLIPS.map(|(slip, scene, left, violated)| (slip, scene, left, violated.to_vec()));
    assert_eq!(found, expected);
}

fn allow([time, pings, proofs, breaks]: [u8; 4]) -> Allowance {
    Allowance {
        time,
        pings,
        proofs,
        breaks,
    }
}

#[test]
fn a_guard_is_lost_before_somebody_else_can_have_its_lock() {
    #[rustfmt::skip]
    let table = [
        // time, pings, proofs, breaks
        ([ 8, 0, 0, 0], 9),
        ([10, 1, 1, 1], 225_538),
        ([10, 2, 1, 0], 833_954),
        ([10, 1, 2, 0], 724_482),
        ([ 8, 1, 1, 2], 399_801),
        ([ 8, 0, 2, 2], 232_809),
    ];
    let found = table.map(|(left, _)| {
        let trust = Trust::new(allow(left), Doubt::None);
        (left, check_small(&format!("{left:?}"), trust))
    });
    assert_eq!(found, table);
}

#[rustfmt::skip]
const DOUBTS: [(Doubt, [u8; 4], &[Property]); 8] = [
    (Doubt::TakesPingsForProofs,   [10, 2, 0, 1], &[Exclusion]),
    (Doubt::TakesACommitForATouch, [10, 0, 2, 1], &[Exclusion]),
    (Doubt::CountsFromTheAnswer,   [10, 0, 2, 1], &[Exclusion]),
    (Doubt::ReturnsFromLost,       [10, 0, 2, 0], &[Truth]),
    (Doubt::KeepsTheLongerTimeout, [10, 0, 1, 2], &[Exclusion]),
    (Doubt::ForgivesAReconnect,    [ 8, 0, 0, 1], &[Truth]),
    (Doubt::SleepsPastTheChange,   [ 8, 0, 0, 0], &[Sleep]),
    (Doubt::OverlooksABreak,       [ 8, 0, 0, 1], &[Truth]),
];

#[test]
fn every_doubt_is_caught() {
    let found = DOUBTS.map(|(doubt, left, _)| {
        let trust = Trust::new(allow(left), doubt);
        (doubt, left, violated(&format!("{doubt:?}"), trust))
    });
    assert_eq!(
        found,
        DOUBTS.map(|(doubt, left, violated)| (doubt, left, violated.to_vec()))
    );
}

/// A shortcut, the setting in which it is tried, and the properties that it violates.
type Cut = (Shortcut, &'static str, &'static str, &'static [Property]);

#[rustfmt::skip]
const SHORTCUTS: [Cut; 18] = [
    (Shortcut::BeginsOnAnyVersion,       "a a",   "1 lag",      &[Once]),
    (Shortcut::BeginsWithoutItsNode,     "a a",   "1 eviction", &[Exclusion]),
    (Shortcut::EndsWithoutItsNode,       "a a",   "1 eviction", &[Once]),
    (Shortcut::EndsInTwoSteps,           "a a",   "",           &[Truth]),
    (Shortcut::CountsAfterwards,         "a1 a1", "1 crash",    &[Attempts]),
    (Shortcut::DoesNotTouch,             "E E",   "3 ticks",    &[Truth]),
    (Shortcut::LeavesStateAtTheBeginning, "a a",  "",           &[Once]),
    (Shortcut::LeavesStateOfAFailure,    "a a",   "1 failure",  &[Once]),
    (Shortcut::TakesAnyRunForItsOwn,     "a a",   "1 crash",    &[Once]),
    (Shortcut::RunsTheSameSlotAgain,     "a a",   "",           &[Once]),
    (Shortcut::ForgetsSingleSlots,       "a* b* a*", "",        &[Once]),
    (Shortcut::ForgetsTheDead,           "a a",   "1 crash",    &[Truth]),
    (Shortcut::TrustsALaggingServer,     "a1 a1", "2 lags",     &[Truth]),
    (Shortcut::ReadsInAnySession,        "a a",   "1 expiry, 1 lag", &[Once]),
    (Shortcut::TakesALostAnswerForAnEnd, "a a",   "1 eviction", &[Truth]),
    (Shortcut::ReadsWhileItIsAdrift,     "a a",   "1 cancel",   &[Truth]),
    (Shortcut::MarksAPanic,              "a a",   "1 panic",    &[Once]),
    (Shortcut::MarksAFailure,            "a a",   "1 failure",  &[Once]),
];

#[test]
fn every_shortcut_is_caught() {
    let found = SHORTCUTS.map(|(shortcut, wishes, mishaps, _)| {
        check_small(wishes, Job::new(wishes, mishaps, Shortcut::None));
        let job = Job::new(wishes, mishaps, shortcut);
        let violated = violated(&format!("{shortcut:?}"), job);
        (shortcut, wishes, mishaps, violated)
    });
    let expected = SHORTCUTS.map(|(shortcut, wishes, mishaps, violated)| {
        (shortcut, wishes, mishaps, violated.to_vec())
    });
    assert_eq!(found, expected);
}

#[test]
fn a_head_is_hurried_in_time_and_nobody_else_is() {
    let table = [((20, 0), 397), ((30, 2), 102_175), ((40, 3), 818_041)];
    let found = table.map(|((end, comers), _)| {
        let hurry = Hurry::new(end, comers, Haste::None);
        let worlds = check_small(&format!("{end} steps, {comers} more"), hurry);
        ((end, comers), worlds)
    });
    assert_eq!(found, table);
}

const HASTES: [(Haste, &[Property]); 7] = [
    (Haste::GoesByTheName, &[Truth, Ownership]),
    (Haste::GoesByAFastClock, &[Truth, Ownership]),
    (Haste::AsksNobody, &[Ownership]),
    (Haste::AsksItself, &[Ownership]),
    (Haste::AsksTheNext, &[Truth, Liveness]),
    (Haste::OversleepsTheGrace, &[Liveness]),
    (Haste::CountsTheGraceFromTheSending, &[Ownership]),
];

#[test]
fn every_haste_is_caught() {
    let found = HASTES.map(|(haste, _)| {
        let hurry = Hurry::new(30, 2, haste);
        (haste, violated(&format!("{haste:?}"), hurry))
    });
    assert_eq!(
        found,
        HASTES.map(|(haste, violated)| (haste, violated.to_vec()))
    );
}
