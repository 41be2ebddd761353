#!/usr/bin/env bash
# Builds a Debian package of the program, with manual pages and completions, by cargo-deb
# (cargo install cargo-deb). The package is in target/debian.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release --features cli,sasl,tls
zklock=target/release/zklock
assets=target/debian-assets
rm -rf "$assets"
mkdir -p "$assets/man"
"$zklock" man --folder "$assets/man"
"$zklock" completions bash >"$assets/zklock"
"$zklock" completions zsh >"$assets/_zklock"
"$zklock" completions fish >"$assets/zklock.fish"
cargo deb --no-build
