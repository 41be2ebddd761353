#!/usr/bin/env bash
# Runs the client in a simulation that a seed repeats, and sees whether every promise is kept.
#
#   tests/sim.sh                3,000 fresh seeds
#   tests/sim.sh --seeds N      this many
#   tests/sim.sh --minutes N    for this long
#   tests/sim.sh --seed S       repeats one, and tells its story
#   tests/sim.sh --test         its own tests, and all orders of the small pieces
#   tests/sim.sh --fresh        3,000 fresh seeds, by the binary of its tests
#   tests/sim.sh --compile      compiles these two; --compile-quick the program for the rest
#   tests/sim.sh --help         the rest
#
# A seed that fails is made smaller before it is shown: fewer clients, fewer faults.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(cargo metadata --format-version 1 --no-deps --offline |
  sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
cfg=$PWD/tests/sim/cfg.sh
# These flags, wherever they come from, replace those of `.cargo`.
flags="${RUSTFLAGS:-} --cfg zklock_sim"

# The library's tests of its simulated side. Its dependencies are those of the ordinary build, whose features the
# program chooses too; the
# core, of which these run little, is compiled again for the wrapper, and not optimised.
of_the_library() {
  CARGO_BUILD_BUILD_DIR=$target CARGO_TARGET_DIR=$target/sim-lib RUSTC_WORKSPACE_WRAPPER=$cfg \
    cargo test --config profile.dev.package.zklock-core.opt-level=0 --quiet \
      -p zklock -p zklock-cli --all-features --lib "$@"
}

# simulated COMMAND ARGUMENT..: runs Cargo on the simulation.
simulated() {
  (cd tests/sim && CARGO_TARGET_DIR=$target/sim RUSTFLAGS=$flags cargo "$1" --quiet "${@:2}")
}

case ${1:-} in
  --compile)
    of_the_library --no-run
    simulated test --no-run
    ;;
  --compile-quick)
    simulated build
    ;;
  --test)
    # This checks that every mutant still has its place.
    tests/sim/mutants.py --list >/dev/null
    crates/play/tests/play/mutants.py --list >/dev/null
    of_the_library -- simulated:: sim:: orders:: "${@:2}"
    simulated test --bins -- "${@:2}"
    ;;
  --fresh)
    simulated test --bins -- --ignored --exact fresh_seeds_keep_every_promise --nocapture |
      sed '/^failures:$/,$d; /^$/d; /^\.$/d; /^running /d; /^test /d' |
      grep .
    ;;
  *)
    simulated build
    exec "$target/sim/debug/zklock-sim" "$@"
    ;;
esac
