#!/usr/bin/env bash
# Compares tests/public-api.txt, all that a program can name with all features, with the sources,
# so that a change of the API is seen in a review. Needs cargo-public-api and a nightly Rust:
#
#   cargo install --locked cargo-public-api && rustup toolchain install nightly
#   tests/public_api.sh             # fails, and shows the change
#   tests/public_api.sh --update    # writes the file
set -euo pipefail
cd "$(dirname "$0")/.."

listing=tests/public-api.txt
now=$(mktemp)
trap 'rm -f "$now"' EXIT
for crate in zklock zklock-embedded; do
  cargo +nightly public-api --package "$crate" --all-features -sss --target-dir target/public-api >>"$now" 2>"$now.log" || {
    cat "$now.log" >&2
    exit 1
  }
done
rm -f "$now.log"
if [ "${1:-}" = --update ]; then
  cp "$now" "$listing"
elif ! diff -u "$listing" "$now"; then
  echo "the public API has changed: tests/public_api.sh --update, and say it in CHANGELOG.md" >&2
  exit 1
fi
