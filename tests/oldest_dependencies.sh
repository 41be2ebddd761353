#!/usr/bin/env bash
# Packages the library and the program as they are published, and compiles what is in the package
# with the oldest dependencies that Cargo.toml allows, and with the oldest Rust where rustup has it.
#
#   tests/oldest_dependencies.sh            with those of the lock file beside this
#   tests/oldest_dependencies.sh --update   looks for them anew, after Cargo.toml has changed
set -euo pipefail
cd "$(dirname "$0")/.."
lock=$PWD/tests/oldest_dependencies.lock
target=$(cargo metadata --format-version 1 --no-deps --offline |
  sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
copy=$target/oldest-dependencies

# The package is compiled below.
cargo package --workspace --quiet --allow-dirty --no-verify
rm -rf "$copy/package"
for crate in zklock zklock-cli zklock-core zklock-embedded zklock-gssapi zklock-jute; do
  mkdir -p "$copy/package/$crate"
  cd "$copy/package/$crate"
  # The files get today's time: cargo takes files as old as a package's for compiled.
  tar -xmzf "$(ls -t "$target/package/$crate"-[0-9]*.crate | head -n 1)" --strip-components=1
  # The dependencies of tests and benches alone may be newer; profiles are those of a whole workspace.
  awk '/^\[/ { drop = /^\[(dev-dependencies|profile|\[(bench|test|example)\])/ } !drop' \
    Cargo.toml >Cargo.toml.new
  mv Cargo.toml.new Cargo.toml
  rm -f Cargo.lock
done
cd "$copy/package"
cat >Cargo.toml <<'END'
[workspace]
resolver = "3"
members = ["zklock*"]
[patch.crates-io]
zklock.path = "zklock"
zklock-core.path = "zklock-core"
zklock-embedded.path = "zklock-embedded"
zklock-gssapi.path = "zklock-gssapi"
zklock-jute.path = "zklock-jute"
END
if [ "${1:-}" = --update ]; then
  RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions
  cp Cargo.lock "$lock"
fi
cp "$lock" Cargo.lock
# `mysql` needs a newer Rust.
oldest=+$(sed -n 's/^rust-version = "\([0-9.]*\)"$/\1.0/p' zklock/Cargo.toml)
cargo "$oldest" --version >/dev/null 2>&1 || oldest=
# shellcheck disable=SC2086 # Nothing is no word.
cargo $oldest check --quiet --locked --target-dir "$copy/target" -p zklock -p zklock-cli \
  --features zklock/metrics,zklock-cli/sasl-gssapi,zklock-cli/tls
exec cargo check --quiet --locked --target-dir "$copy/target" -p zklock --no-default-features \
  --features mysql
