#!/usr/bin/env bash
# Builds a Debian package of the program, with manual pages and completions, by cargo-deb
# (cargo install cargo-deb). The package is in target/debian.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --release -p zklock-cli --features sasl,tls
docs/assets.sh target/release/zklock target/debian-assets
cargo deb --no-build -p zklock-cli
