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
//! `cargo test --test model -- --nocapture` prints what was tried and what was caught.

mod background;
mod client;
mod directory;
mod driver;
mod explore;
mod mishap;
mod mutant;
mod property;
mod setting;
mod steps;
mod world;

use std::time::Instant;

use self::directory::Overflow;
use self::explore::{Explored, explore};
use self::mutant::Mutant;
use self::property::Property;
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
        match explore(World::new(&setting)) {
            Ok(Explored { worlds, steps }) => {
                let took = start.elapsed();
                println!("{wishes:6} {mishaps:40} {worlds:7} worlds {steps:8} steps {took:9.1?}");
                found.push((wishes, mishaps, worlds));
            }
            Err(counterexample) => panic!("{wishes} with {mishaps}: {counterexample}"),
        }
    }
    assert_eq!(found, table);
}

#[test]
fn mutexes_exclude_whatever_is_lost_or_given_up() {
    let table = [
        ("x", "", 6),
        ("x x", "", 48),
        ("x x x", "", 560),
        ("x", "3 faults, 3 cancels", 88),
        ("x x", "3 faults, 2 cancels", 2_818),
        ("x x x", "1 faults, 1 cancels", 14_213),
        ("x x x", "2 faults", 8_640),
        ("x x x", "2 cancels", 5_092),
        ("xx xx", "1 faults, 1 cancels", 22_974),
        ("x? x", "2 faults, 1 cancels", 1_405),
        ("x? x? x", "1 faults, 1 cancels", 14_020),
    ];
    check(&table, |_| {});
}

#[test]
fn mutexes_exclude_whoever_expires_dies_or_is_evicted() {
    let table = [
        ("x x", "1 faults, 1 cancels, 1 expiries", 9_420),
        ("x x", "1 faults, 2 expiries", 26_014),
        ("x x x", "1 faults, 1 expiries", 92_860),
        ("x x x", "1 cancels, 1 expiries", 68_767),
        ("x x", "1 faults, 1 cancels, 2 crashes", 1_536),
        ("x x x", "1 faults, 1 crashes", 9_730),
        ("x x", "1 faults, 2 evictions, 1 touches", 2_926),
        ("x x x", "1 faults, 1 evictions", 22_246),
        ("x x x", "1 cancels, 1 touches", 5_938),
        ("xx x", "1 expiries, 1 evictions", 13_347),
    ];
    check(&table, |_| {});
}

#[test]
fn readers_share_and_writers_do_not() {
    let table = [
        ("r w", "2 faults, 1 cancels, 1 expiries", 18_982),
        ("w w", "2 faults, 1 cancels, 1 expiries", 19_458),
        ("r r", "2 faults, 1 cancels, 1 expiries", 17_976),
        ("r w", "1 faults, 1 crashes, 1 evictions, 1 touches", 3_118),
        ("r w r", "1 faults, 1 cancels", 14_401),
        ("r r w", "1 expiries, 1 touches", 36_762),
        ("r r r", "1 faults, 1 cancels", 15_935),
        ("w w r", "1 faults, 1 crashes", 9_730),
        ("w w w", "1 faults, 1 cancels", 14_213),
        ("rr ww", "1 faults, 1 cancels", 20_964),
        ("r? w r", "1 cancels, 1 evictions", 12_142),
        ("w? r r", "1 faults, 1 crashes", 10_572),
    ];
    check(&table, |_| {});
}

#[test]
fn a_directory_may_be_missing_and_vanish() {
    let table = [
        ("x x", "2 faults, 1 vanishings", 1_208),
        ("xx x", "1 faults, 2 vanishings", 3_948),
        ("xx x", "1 expiries, 2 vanishings", 12_269),
        ("x? x", "1 faults, 1 cancels, 2 vanishings", 3_210),
        ("x x x", "1 faults, 1 vanishings", 9_108),
        ("r w r", "1 cancels, 1 vanishings", 8_186),
    ];
    check(&table, |setting| setting.there = false);
}

#[test]
fn used_up_numbers_keep_the_order() {
    let table = [
        ("x x", "1 faults, 1 cancels, 1 expiries", 12_196),
        ("x x x", "1 faults", 6_625),
        ("x x x", "1 cancels, 1 evictions", 28_252),
        ("xx xx", "1 faults, 1 vanishings", 10_608),
        ("r w r", "1 faults, 1 cancels", 25_263),
        ("x? x x", "1 cancels, 1 touches", 10_778),
    ];
    for overflow in [Overflow::Sticks, Overflow::Wraps] {
        check(&table, |setting| {
            setting.counter = 2_147_483_646;
            setting.overflow = overflow;
        });
    }
}

#[test]
fn a_create_need_not_tell_whose_the_node_is() {
    let table = [
        ("x x", "1 faults, 1 cancels, 1 expiries", 10_558),
        ("x x", "2 faults, 1 evictions", 2_220),
        ("x x x", "1 faults, 1 cancels", 18_236),
    ];
    check(&table, |setting| setting.rules.create_tells = false);
}

#[test]
fn an_attempt_without_a_node_may_hear_late_of_a_new_session() {
    let table = [
        ("x x", "2 faults, 1 expiries", 19_250),
        ("x x", "1 faults, 1 cancels, 1 expiries", 21_576),
        ("x x", "2 expiries", 15_477),
        ("x x x", "1 expiries", 29_186),
        ("r w", "1 faults, 1 expiries, 1 evictions", 27_245),
    ];
    check(&table, |setting| setting.rules.late_news = true);
}

#[test]
fn a_transport_that_does_not_know_its_session_will_do() {
    let table = [
        ("x x", "1 faults, 1 cancels, 1 expiries", 104_163),
        ("x x", "2 faults", 18_912),
        ("x x", "1 faults, 1 crashes, 1 evictions", 9_801),
        ("x x x", "1 faults", 34_401),
        ("r w r", "1 faults", 35_757),
        ("xx x", "1 faults, 1 vanishings", 14_121),
    ];
    check(&table, |setting| {
        setting.rules.transport = Transport::Handle;
        setting.rules.create_tells = false;
    });
}

/// A mutant, where it is tried, and what it violates first.
type Wrong = (Mutant, &'static str, &'static str, Property);

#[rustfmt::skip]
const WRONG: [Wrong; 25] = [
    (Mutant::FindsWithoutSync,         "x x",   "1 faults",              Property::Progress),
    (Mutant::RepeatsLostCreates,       "x x",   "1 faults",              Property::Progress),
    (Mutant::AdoptsAcrossSessions,     "x x",   "2 faults, 1 expiries",  Property::Truth),
    (Mutant::UsesOneId,                "xx x",  "1 faults, 1 cancels",   Property::Truth),
    (Mutant::OverlooksOwnAbsence,      "x x",   "1 evictions",           Property::Exclusion),
    (Mutant::ListsOnlyTheNearest,      "x x x", "1 cancels",             Property::Order),
    (Mutant::WatchesTheFarthest,       "x x x", "",                      Property::Herd),
    (Mutant::SleepsOnAbsence,          "x x",   "",                      Property::Sleep),
    (Mutant::ReadersWaitForReaders,    "r r",   "",                      Property::Sleep),
    (Mutant::WritersOverlookReaders,   "r w",   "",                      Property::Order),
    (Mutant::OrdersByText,             "x x",   "",                      Property::Order),
    (Mutant::OrdersByNumberOnly,       "x x x", "",                      Property::Order),
    (Mutant::MakesParentsOnce,         "x x",   "1 vanishings",          Property::Liveness),
    (Mutant::TakesAnyWakeForADeletion, "x x",   "1 touches",             Property::Order),
    (Mutant::SleepsThroughReconnects,  "x x",   "1 faults",              Property::Sleep),
    (Mutant::SleepsThroughChanges,     "x x",   "1 touches",             Property::Sleep),
    (Mutant::SleepsThroughExpiry,      "x x",   "1 expiries",            Property::Sleep),
    (Mutant::CarriesOnInNewSession,    "x x",   "1 expiries",            Property::Truth),
    (Mutant::HoldsUnproved,            "x x",   "1 expiries",            Property::Exclusion),
    (Mutant::TrustsPings,              "x x",   "1 expiries",            Property::Exclusion),
    (Mutant::ForgetsLeftovers,         "x",     "1 cancels",             Property::Leftover),
    (Mutant::CancelsWithoutLoss,       "x",     "1 cancels",             Property::Leftover),
    (Mutant::GivesUpFarewells,         "x",     "1 faults",              Property::Leftover),
    (Mutant::PartsWithoutSync,         "x",     "1 cancels, 1 faults",   Property::Leftover),
    (Mutant::DeletesBeforeRelease,     "x x",   "",                      Property::Exclusion),
];

#[test]
fn every_wrong_variant_is_caught() {
    let mut found = Vec::new();
    for (mutant, wishes, mishaps, _) in WRONG {
        let mut setting = Setting::new(wishes, mishaps);
        let world = World::new(&setting);
        assert!(
            explore(world).is_ok(),
            "{wishes} with {mishaps} is wrong without {mutant:?}"
        );
        setting.rules.mutant = mutant;
        if mutant == Mutant::OrdersByNumberOnly {
            setting.counter = 2_147_483_646;
        }
        match explore(World::new(&setting)) {
            Ok(explored) => panic!("{mutant:?} survives {wishes} with {mishaps}: {explored:?}"),
            Err(counterexample) => {
                println!("{mutant:?}, {wishes} with {mishaps}: {counterexample}");
                found.push((mutant, wishes, mishaps, counterexample.violation.0));
            }
        }
    }
    assert_eq!(found, WRONG);
}
