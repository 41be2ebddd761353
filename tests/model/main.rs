//! Tries everything that can happen to a few contenders, on the real protocol.
//!
//! A world is a ZooKeeper directory with its clients ([`world`]). From every world, every
//! step that could come next is taken ([`steps`]), among them each mishap as often as the
//! setting's budget allows, until nothing new comes up ([`explore`]); what must hold is
//! looked at everywhere ([`property`]). How many worlds there are is pinned: whoever
//! changes the protocol or the model sees that here, and says why.
//!
//! A checker that passes everything proves nothing: [`mutant`] has the wrong variants
//! that it must see through.
//!
//! What takes more than one attempt, or does something beside it, is in [`journey`].
//!
//! A new role needs a letter and a [`client::Wish`] in [`setting`], what it excludes in
//! [`property`], and in [`driver`] what its client does beside the attempt.
//!
//! `cargo test --test model -- --nocapture` prints what was tried and what was caught.

mod background;
mod client;
mod directory;
mod driver;
mod explore;
mod journey;
mod mishap;
mod mutant;
mod property;
mod setting;
mod steps;
mod world;

use std::time::Instant;

use self::directory::Overflow;
use self::explore::{Explored, explore};
use self::journey::{Detour, Journey};
use self::mutant::Mutant;
use self::property::Property::{
    self, Exclusion, Herd, Liveness, Order, Orphan, Ownership, Progress, Sleep, Truth,
};
use self::setting::Setting;
use self::world::{Transport, World};

/// Explores settings, and compares how many worlds each has with what is written down.
#[track_caller]
fn check(table: &[(&str, &str, usize)], adapt: impl Fn(&mut Setting)) {
    let mut found = Vec::new();
    for &(wishes, mishaps, _) in table {
        let mut setting = Setting::new(wishes, mishaps);
        adapt(&mut setting);
        let start = Instant::now();
        let explored = explore(World::new(&setting));
        let took = start.elapsed();
        let Explored { worlds, steps, .. } = explored;
        println!("{wishes:8} {mishaps:40} {worlds:7} worlds {steps:8} steps {took:9.1?}");
        assert_sound(wishes, mishaps, &explored);
        found.push((wishes, mishaps, worlds));
    }
    assert_eq!(found, table);
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
        ("x", "", 6),
        ("x x", "", 52),
        ("x x x", "", 695),
        ("x", "3 faults, 3 cancels", 88),
        ("x x", "3 faults, 2 cancels", 2_874),
        ("x x x", "1 fault, 1 cancel", 16_457),
        ("x x x", "2 faults", 10_581),
        ("x x x", "2 cancels", 5_683),
        ("x x x x", "", 13_380),
        ("x x x x", "1 cancel", 71_958),
        ("xx xx", "1 fault, 1 cancel", 32_934),
        ("xxx x", "1 fault", 3_896),
        ("x? x", "2 faults, 1 cancel", 1_425),
        ("x? x? x", "1 fault, 1 cancel", 14_702),
    ];
    check(&table, |_| {});
}

#[test]
fn mutexes_exclude_whoever_expires_dies_or_is_evicted() {
    let table = [
        ("x x", "2 faults, 2 cancels, 2 expiries", 259_340),
        ("x x x", "1 fault, 1 cancel, 1 expiry", 519_074),
        ("x x", "1 fault, 1 cancel, 2 crashes", 1_584),
        ("x x x", "1 fault, 1 crash", 12_295),
        ("x x", "1 fault, 2 evictions, 1 touch", 4_284),
        ("x x x", "1 fault, 1 eviction", 32_188),
        ("x x x", "1 cancel, 1 touch", 9_130),
        ("xx x", "1 expiry, 1 eviction", 23_074),
        ("xxx x", "1 crash, 1 eviction", 8_366),
        ("xx xx", "1 expiry", 15_062),
    ];
    check(&table, |_| {});
}

#[test]
fn readers_share_and_writers_do_not() {
    let table = [
        ("r w", "2 faults, 1 cancel, 1 expiry", 19_162),
        ("w w", "2 faults, 1 cancel, 1 expiry", 19_458),
        ("r r", "2 faults, 1 cancel, 1 expiry", 17_976),
        ("r w", "1 fault, 1 crash, 1 eviction, 1 touch", 3_220),
        ("r w r", "1 fault, 1 cancel", 14_733),
        ("r r w", "1 expiry, 1 touch", 40_330),
        ("r r r", "1 fault, 1 cancel", 15_935),
        ("w w r", "1 fault, 1 crash", 9_730),
        ("w w w", "1 fault, 1 cancel", 14_213),
        ("rr ww", "1 fault, 1 cancel", 22_404),
        ("r? w r", "1 cancel, 1 eviction", 12_526),
        ("w? r r", "1 fault, 1 crash", 10_884),
    ];
    check(&table, |_| {});
}

#[test]
fn a_directory_may_be_missing_and_vanish() {
    let table = [
        ("x x", "2 faults, 1 vanishing", 1_243),
        ("xx x", "1 fault, 2 vanishings", 4_621),
        ("xx x", "1 expiry, 2 vanishings", 18_890),
        ("xx xx", "1 eviction, 2 vanishings", 33_516),
        ("x? x", "1 fault, 1 cancel, 2 vanishings", 3_188),
        ("x x x", "1 fault, 1 vanishing", 10_728),
        ("r w r", "1 cancel, 1 vanishing", 8_322),
    ];
    check(&table, |setting| setting.there = false);
}

#[test]
fn used_up_numbers_that_repeat_keep_the_order() {
    let table = [
        ("x x", "1 fault, 1 cancel, 1 expiry", 12_196),
        ("x x x", "1 fault", 6_625),
        ("x x x", "1 cancel, 1 eviction", 28_468),
        ("xx xx", "1 fault, 1 vanishing", 12_979),
        ("r w r", "1 fault, 1 cancel", 25_691),
        ("x? x x", "1 cancel, 1 touch", 10_778),
    ];
    check(&table, |setting| {
        setting.counter = 2_147_483_646;
        setting.overflow = Overflow::Sticks;
    });
}

#[test]
fn used_up_numbers_that_turn_negative_keep_the_order() {
    let table = [
        ("x x x", "1 fault", 6_628),
        ("r w r", "1 fault, 1 cancel", 25_729),
        ("x x", "1 eviction, 1 expiry", 4_666),
    ];
    check(&table, |setting| {
        setting.counter = 2_147_483_646;
        setting.overflow = Overflow::Wraps;
    });
}

#[test]
fn a_node_may_be_in_the_queue_from_the_beginning() {
    let table = [
        ("X X", "1 fault, 1 cancel, 1 expiry", 1_973),
        ("X x x", "1 fault, 1 cancel", 4_729),
        ("R W r", "1 expiry", 2_363),
        ("X? x", "1 fault, 1 eviction", 352),
    ];
    check(&table, |_| {});
}

#[test]
fn a_create_need_not_tell_whose_the_node_is() {
    let table = [
        ("x x", "1 fault, 1 cancel, 1 expiry", 11_852),
        ("x x", "2 faults, 1 eviction", 2_452),
        ("x x x", "1 fault, 1 cancel", 20_624),
    ];
    check(&table, |setting| setting.rules.create_tells = false);
}

#[test]
fn an_attempt_without_a_node_may_hear_late_of_a_new_session() {
    let table = [
        ("x x", "2 faults, 1 expiry", 23_882),
        ("x x", "1 fault, 1 cancel, 1 expiry", 24_910),
        ("x x", "2 expiries", 23_621),
        ("x x x", "1 expiry", 45_182),
        ("r w", "1 fault, 1 expiry, 1 eviction", 28_577),
    ];
    check(&table, |setting| setting.rules.late_news = true);
}

#[test]
fn a_transport_that_does_not_know_its_session_will_do() {
    let table = [
        ("x x", "1 fault, 1 cancel, 1 expiry", 153_323),
        ("x x", "2 faults", 31_461),
        ("x x", "1 fault, 1 crash, 1 eviction", 14_267),
        ("x x x", "1 fault", 50_343),
        ("r w r", "1 fault", 43_801),
        ("xx x", "1 fault, 1 vanishing", 20_852),
    ];
    check(&table, |setting| {
        setting.rules.transport = Transport::Handle;
        setting.rules.create_tells = false;
    });
}

/// A mutant, where it is tried, and what it violates, the shortest way first.
type Wrong = (Mutant, &'static str, &'static str, &'static [Property]);

#[rustfmt::skip]
const WRONG: [Wrong; 36] = [
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
fn check_journeys(table: &[(&str, &str, usize)]) {
    let mut found = Vec::new();
    for &(goals, mishaps, _) in table {
        let start = Instant::now();
        let explored = explore(Journey::new(goals, mishaps, Detour::None));
        let took = start.elapsed();
        let Explored { worlds, steps, .. } = explored;
        println!("{goals:8} {mishaps:40} {worlds:7} worlds {steps:8} steps {took:9.1?}");
        assert_sound(goals, mishaps, &explored);
        found.push((goals, mishaps, worlds));
    }
    assert_eq!(found, table);
}

#[test]
fn no_more_permits_are_out_than_there_are() {
    let table = [
        ("p1 p1", "", 138),
        ("p1 p1", "1 fault, 1 cancel", 1_890),
        ("p1 p1", "1 fault, 1 expiry", 35_138),
        ("p1 p1", "1 cancel, 1 crash", 934),
        ("p1 p1 p1", "1 expiry", 189_041),
        ("p1 p1 p1", "1 cancel", 7_147),
        ("p2 p2 p2", "1 fault", 15_793),
        ("p2 p2 p2", "1 crash", 9_236),
    ];
    check_journeys(&table);
}

#[test]
fn in_kazoos_layout_there_is_never_a_node_more_than_there_are_permits() {
    let table = [
        ("k1 k1", "", 132),
        ("k1 k1", "1 fault, 1 cancel", 1_786),
        ("k1 k1", "1 fault, 1 expiry", 31_156),
        ("k1 k1", "1 cancel, 1 crash", 860),
        ("k1 k1 k1", "1 cancel", 5_980),
        ("k2 k2 k2", "1 fault", 15_880),
        ("k2 k2 k2", "1 crash", 8_825),
    ];
    check_journeys(&table);
}

#[test]
fn a_downgrade_lets_no_writer_in() {
    let table = [
        ("d w", "1 fault, 1 cancel, 1 expiry", 18_027),
        ("d r w", "1 fault", 9_510),
        ("d d", "1 fault, 1 crash", 1_540),
        ("d w r", "1 expiry", 66_883),
        ("d w", "1 eviction, 1 fault", 2_399),
        ("d d", "1 eviction, 1 fault", 4_417),
    ];
    check_journeys(&table);
}

#[test]
fn those_who_want_several_mutexes_do_not_wait_for_each_other() {
    let table = [
        ("m m", "1 fault", 3_975),
        ("m m", "1 expiry", 8_574),
        ("m m", "1 cancel", 502),
        ("m m m", "", 1_658),
        ("m m x", "", 1_260),
        ("m m", "1 crash", 260),
        ("m m", "1 eviction, 1 fault", 37_815),
        ("m x", "2 evictions", 827),
    ];
    check_journeys(&table);
}

#[test]
fn who_dies_inside_is_told_to_the_next_and_nobody_else_is() {
    let table = [
        ("t t", "1 fault, 1 cancel, 1 expiry", 14_092),
        ("t t t", "1 fault, 1 crash", 15_070),
        ("t t t", "2 crashes", 5_663),
        ("t t", "2 expiries", 19_450),
    ];
    check_journeys(&table);
}

/// A detour, where it is tried, and what it violates, the shortest way first.
type Detoured = (Detour, &'static str, &'static str, &'static [Property]);

#[rustfmt::skip]
const DETOURS: [Detoured; 15] = [
    (Detour::CountsWithoutItself,   "p1 p1",    "1 expiry",  &[Exclusion]),
    (Detour::DoesNotWatchTheLeases, "p1 p1",    "",          &[Sleep, Progress, Liveness]),
    (Detour::LetsTheNextInTooEarly, "p1 p1 p1", "",          &[Progress, Herd, Liveness]),
    (Detour::RestartsTheLeaseAlone, "p1 p1",    "1 expiry",  &[Progress, Liveness]),
    (Detour::DoesNotWatchTheLeases, "k1 k1",    "",          &[Sleep, Progress, Liveness]),
    (Detour::DoesNotLook,           "k1 k1",    "",          &[Exclusion]),
    (Detour::LooksAfterItsTurn,     "k1 k1",    "",          &[Exclusion, Progress, Liveness]),
    (Detour::DeletesTheWriterFirst, "d w",      "",          &[Exclusion]),
    (Detour::TakesANewNumber,       "d w",      "",          &[Exclusion]),
    (Detour::PlacesOneByOne,        "m m",      "",          &[Progress, Liveness]),
    (Detour::DowngradesUnchecked,   "d w",      "1 eviction", &[Exclusion]),
    (Detour::HoldsAllUnproved,      "m x",      "1 eviction", &[Exclusion]),
    (Detour::ClearsAfterwards,      "t t t",    "1 crash",   &[Truth]),
    (Detour::MarksInTheQueue,       "t t t",    "1 crash",   &[Truth]),
    (Detour::ClearsWithoutDeleting, "t t t",    "1 fault, 1 crash", &[Truth]),
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
