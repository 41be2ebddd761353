#!/usr/bin/env bash
# Builds an archive of the program for a release page, and its checksum. The program is linked
# statically, by musl, so it runs on any Linux of this machine's architecture; manual pages,
# completions, its page and the licence are beside it. Both files are in target/static.
#
# It takes the target of Rust and its C compiler: rustup target add $(uname -m)-unknown-linux-musl;
# apt-get install musl-tools.
set -euo pipefail
cd "$(dirname "$0")/.."

system=$(uname -m)-unknown-linux-musl
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=zklock-$version-$system
out=target/static

cargo build --release -p zklock-cli --features sasl,tls --target "$system"
rm -rf "$out"
mkdir -p "$out/$name"
cp "target/$system/release/zklock" LICENSE docs/cli.md docs/jobs.md "$out/$name"
strip "$out/$name/zklock"
docs/assets.sh "$out/$name/zklock" "$out/$name/share"

# The same sources make the same archive.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
  -C "$out" -c "$name" | gzip -n >"$out/$name.tar.gz"
rm -rf "${out:?}/$name"
(cd "$out" && sha256sum "$name.tar.gz" >SHA256SUMS && sha256sum --check --quiet SHA256SUMS)
ls -l "$out"
