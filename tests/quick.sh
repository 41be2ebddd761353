#!/usr/bin/env bash
# What is worth a minute before a commit: format, lints of what changed, the rules about values, the
# model, a promise of each kind on the embedded server, and fresh seeds in the simulation. It needs
# no server and no root. tests/all.sh is the rest.
#
#   tests/quick.sh              1,000 fresh seeds, which take ten seconds
#   tests/quick.sh --seeds N    this many
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=1000
case ${1:-} in
  "") ;;
  --seeds) seeds=${2:?how many seeds?} ;;
  *)
    echo "usage: tests/quick.sh [--seeds N]" >&2
    exit 64
    ;;
esac
# shellcheck source=tests/steps.sh
source tests/steps.sh

# The fuzz tests get a tenth of the usual input.
export PROPTEST_CASES=${PROPTEST_CASES:-500}

# The folders of tests that are binaries and have changed since the last commit; all that changed
# are targets of Cargo.
changed() {
  { git diff --name-only HEAD && git ls-files --others --exclude-standard; } 2>/dev/null |
    sed -n 's|^\(.*tests/\([a-z]*\)\)/.*|\1 \2|p' | sort -u | while read -r folder name; do
      [ ! -e "$folder/main.rs" ] || echo "--test $name"
    done
}

# The targets that are compiled: units, the model, promises and the house.
targets=(--workspace --lib --bins --test promises --test house --test model)

missing=$(missing_tools)
[ -z "$missing" ] || { echo "$missing"; exit 1; }
judge_by_the_toolchain
find_the_target

[ "$verdict" != "-D warnings" ] || step 60 "checking the format" cargo fmt --all --check
# shellcheck disable=SC2046 # Words.
lint 600 "what changed" --workspace --lib --bins $(changed)
step 900 "compiling" cargo test --quiet --no-run "${targets[@]}"
step 900 "compiling the simulation" tests/sim.sh --compile-quick

# The suites are in the order of the time that they take.
{
  echo "tests/seeds nice -n 4 tests/sim.sh --seeds $seeds"
  test_binaries "${targets[@]}" | while read -r source binary; do
    case $source in
      tests/promises) printf '%s %q embedded_wire embedded_server\n' "$source" "$binary" ;;
      *) printf '%s %q\n' "$source" "$binary" ;;
    esac
  done
} >"$logs/suites"
side_by_side 600 3 "testing" "$logs/suites"
