#!/usr/bin/env bash
# Compiles what users may leave out or choose: the library without features, with each one alone, and the program. A
# feature must not need what only another one brings along. Part of `tests/all.sh`.
set -euo pipefail
cd "$(dirname "$0")/.."
verdict=${verdict:--D warnings}

# The features of Cargo.toml, one a line.
features() {
  sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z][a-z-]*\) *=.*/\1/p' Cargo.toml | grep -vx default
}

# check ARGUMENT..: runs `cargo check`, which is quiet unless it warns.
check() {
  local said
  said=$(cargo check --quiet "$@" 2>&1) || { echo "$said"; exit 1; }
  [ -z "$said" ] || { echo "with $*:"; echo "$said"; [ "$verdict" != "-D warnings" ]; }
}

# shellcheck disable=SC2086 # The verdict is words.
cargo clippy --quiet --lib --no-default-features -- $verdict
for feature in $(features); do
  check --lib --no-default-features --features "$feature"
done
check -p zklock-cli
