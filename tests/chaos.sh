#!/usr/bin/env bash
# Breaks a real ensemble of three servers, its links and its clients, and judges what the
# clients saw; ends with a table. docs/runs.md tells what each line shows.
#
#   tests/chaos.sh [--minutes N | --soak N] [--seed S] [--all-features]
#
# The scenarios of tests/promises/early_bad_news.rs are part of `tests/all.sh`; with --minutes
# they are repeated here. About 2 minutes without --minutes; with it, random faults fill the
# time. With --soak, a fault every second for N minutes and nothing else, and at the end what
# has grown. A seed makes the same choices again, though not the same timing. To cut links takes
# root, or users that may make network namespaces; without, those lines are missing. With
# --all-features it runs what `tests/all.sh` has compiled.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  echo "usage: tests/chaos.sh [--minutes N | --soak N] [--seed S] [--all-features]" >&2
  exit 64
}

minutes= soak= features=()
while [ $# -gt 0 ]; do
  if [ "$1" = --all-features ]; then
    features=(--all-features)
    shift
    continue
  fi
  [ $# -ge 2 ] && [[ $2 =~ ^[0-9]+$ ]] || usage
  case $1 in
    --minutes) minutes=$2 ;;
    --soak) soak=$2 ;;
    --seed) export ZKLOCK_CHAOS_SEED=$2 ;;
    *) usage ;;
  esac
  shift 2
done

[ -z "$minutes" ] || [ -z "$soak" ] || usage

random=20 rounds=1 isolations=1
if [ -n "$minutes" ]; then
  # The named schedules take four minutes at least; with more time, more rounds.
  rounds=$((1 + minutes / 15)) isolations=$((2 + minutes / 2))
  random=$((minutes * 60 - 200 * rounds - 10 * isolations))
  [ "$random" -ge 20 ] || random=20
fi
export ZKLOCK_CHAOS_ROUNDS=$rounds ZKLOCK_CHAOS_ISOLATIONS=$isolations

log=$(mktemp)
trap 'rm -f "$log" "$log.lane"' EXIT
failed=0

# The other arguments for Cargo.
config=()

# run SECONDS TEST..: runs tests of the `chaos` binary, one after the other.
run() {
  local seconds=$1
  shift
  ZKLOCK_CHAOS_SECONDS=$seconds timeout --kill-after=10 $((seconds + 400 * rounds + 20 * isolations)) \
    cargo test "${config[@]}" --quiet --workspace "${features[@]}" --test chaos -- --ignored --nocapture --test-threads 1 "$@" 2>&1 |
    tee -a "$log" || failed=1
}

# run_trusting_pings TEST: as run, with clients that take a ping for a proof of life. The
# dependencies are those of the ordinary build; what is compiled for this alone is elsewhere, and
# is not optimised: its clients wait more than they compute.
run_trusting_pings() {
  local target config=(--config profile.dev.package.zklock-core.opt-level=0)
  target=$(cargo metadata --format-version 1 --no-deps --offline |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
  CARGO_BUILD_BUILD_DIR=$target CARGO_TARGET_DIR=$target/trust_pings \
    RUSTC_WORKSPACE_WRAPPER="$PWD/tests/chaos/trust_pings.sh" run 0 "$@"
}

# Two lanes of scenes follow, each with an ensemble of its own: they mostly wait.
one_lane() {
  run 0 scenes::named
  run "$random" scenes::random::random_faults --exact
}

other_lane() {
  run 0 scenes::steps scenes::paused scenes::clocks scenes::gap \
    scenes::transactions scenes::isolated::a_holder
  run_trusting_pings scenes::isolated::without
  run 0 witness::
  run 10 scenes::soak
}

# The scenes run the program, which Cargo compiles with the tests of its own package. It compiles all as in
# tests/all.sh, where every package has a say in the features of others' crates.
cargo test --quiet --no-run --workspace "${features[@]}" --test chaos --test cli
cargo test --quiet --workspace "${features[@]}" --test chaos
if [ -n "$soak" ]; then
  run $((soak * 60)) scenes::soak
elif [ -n "$minutes" ]; then
  other_lane
  ZKLOCK_ROUNDS=$((2 * rounds)) timeout --kill-after=10 $((600 * rounds)) \
    cargo test --quiet --workspace "${features[@]}" --test promises -- --include-ignored early_bad_news:: 2>&1 | tee -a "$log" || failed=1
  run $((random / 3)) scenes::random::random_faults_on_loopback --exact
  random=$((random * 2 / 3))
  one_lane
else
  # The output of the two lanes is shown one after the other.
  (one_lane; exit "$failed") >"$log.lane" 2>&1 &
  other_lane
  wait "$!" || failed=1
  cat "$log.lane"
fi

echo
echo "what was done and seen:"
sed -n 's/^CHAOS \([^|]*\)$/  \1/p' "$log"
violations=$(grep -c '^VIOLATION\|^thread .* panicked' "$log" || true)
faults=$(sed -n 's/^CHAOS .*: \([0-9]*\) faults (.*/\1/p' "$log" | awk '{ sum += $1 } END { print sum + 0 }')
echo
if [ "$failed" -eq 0 ]; then
  echo "chaos.sh: $faults faults, no promise broken"
else
  echo "chaos.sh: $faults faults, FAILED: see VIOLATION or panicked above ($violations)"
  exit 1
fi
