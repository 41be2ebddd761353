#!/usr/bin/env bash
# Compiles the library and the program with the oldest dependencies that Cargo.toml allows.
#
#   tests/oldest_dependencies.sh            with those of the lock file beside this
#   tests/oldest_dependencies.sh --update   looks for them anew, after Cargo.toml has changed
set -euo pipefail
cd "$(dirname "$0")/.."
lock=$PWD/tests/oldest_dependencies.lock
copy=target/oldest-dependencies

mkdir -p "$copy"
ln -sfn "$PWD/src" "$copy/src"
# What only tests and benches need may be newer.
awk '/^\[/ { drop = /^\[(dev-dependencies\]|\[(bench|test|example)\])/ } !drop' \
  Cargo.toml >"$copy/Cargo.toml"
cd "$copy"
if [ "${1:-}" = --update ]; then
  rm -f Cargo.lock
  RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions
  cp Cargo.lock "$lock"
fi
cp "$lock" Cargo.lock
exec cargo check --quiet --locked --lib --bins --target-dir target \
  --features "cli metrics mysql sasl tls"
