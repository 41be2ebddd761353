//! What the simulation itself promises.

use crate::plan::Plan;
use crate::play::play;

/// A seed repeats a run, bit by bit.
#[test]
fn a_seed_repeats_its_run() {
    for seed in 1..20 {
        let plan = Plan::from_seed(seed);
        let run = || match play(&plan, true) {
            Ok(played) => (played.lines, played.steps),
            Err(story) => panic!("seed {seed}: {story}"),
        };
        let (one, other) = (run(), run());
        let differs = one.0.iter().zip(&other.0).find(|(one, other)| one != other);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(one.1, other.1, "seed {seed}");
    }
}
