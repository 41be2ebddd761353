#!/usr/bin/env bash
# Runs the client in a simulation that a seed repeats, and sees whether every promise is kept.
#
#   tests/sim.sh                2,000 fresh seeds
#   tests/sim.sh --seeds N      this many
#   tests/sim.sh --minutes N    for this long
#   tests/sim.sh --seed S       repeats one, and tells its story
#   tests/sim.sh --test         the simulation's own tests, and all orders of the small pieces
#   tests/sim.sh --help         the rest
#
# A seed that fails is made smaller before it is shown: fewer clients, fewer faults.
set -euo pipefail
cd "$(dirname "$0")/sim"

if [ "${1:-}" = --test ]; then
  shift
  # The library's tests of its simulated side. `.cargo` sets the cfg, for this folder alone.
  cargo test --quiet --manifest-path ../../Cargo.toml --target-dir ../../target/sim-lib \
    --lib --no-default-features --features embedded -- simulated:: sim:: orders:: "$@"
  exec cargo test --quiet -- "$@"
fi
cargo build --quiet
exec ../../target/sim/debug/zklock-sim "$@"
