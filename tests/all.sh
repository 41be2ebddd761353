#!/usr/bin/env bash
# Everything that must hold before a change lands: format, lints, tests against real
# servers, documentation, benches in test mode. Stops at the first thing that does not.
#
# On Debian and Ubuntu it installs what is missing, as root or through sudo. Elsewhere it
# says what to install; ZKLOCK_TEST_CLASSPATH then names ZooKeeper's jars.
set -euo pipefail
cd "$(dirname "$0")/.."

started=$SECONDS
doing="getting started"
running=

finish() {
  local status=$?
  # A step that was interrupted must not go on behind our back.
  [ -z "$running" ] || kill "$running" 2>/dev/null || true
  if [ "$status" -eq 0 ]; then
    echo "all.sh: everything passed in $((SECONDS - started)) s"
  else
    echo "all.sh: FAILED while $doing, after $((SECONDS - started)) s (status $status)"
  fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# step LIMIT WHAT COMMAND..: runs the command, for LIMIT seconds at most.
step() {
  local limit=$1 began=$SECONDS
  doing=$2
  shift 2
  echo "==> $doing"
  # `timeout` ends the whole process group of the step, and with it what the step started.
  timeout --kill-after=10 "$limit" "$@" &
  running=$!
  wait "$running"
  running=
  echo "    $doing: $((SECONDS - began)) s"
}

# What the tests need, and the packages of Debian and Ubuntu that have it. `zookeeper` is
# the library and its scripts; the daemon is another package, so nothing is started.
needed() {
  command -v cc >/dev/null || echo build-essential
  command -v javac >/dev/null || echo default-jdk-headless
  command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || echo mariadb-server
  command -v openssl >/dev/null || echo openssl
  command -v faketime >/dev/null || echo faketime
  command -v ip >/dev/null || echo iproute2
  command -v strace >/dev/null || echo strace
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3 python3-venv
  [ -e /usr/share/java/curator-recipes.jar ] || echo libcurator-recipes-java
  [ -n "${ZKLOCK_TEST_CLASSPATH:-}" ] || {
    [ -e /usr/share/java/zookeeper.jar ] || echo zookeeper
    [ -e /usr/share/java/slf4j-simple.jar ] || echo libslf4j-java
  }
}

install_what_is_missing() {
  local missing root=
  missing=$(needed | xargs)
  [ -n "$missing" ] || return 0
  doing="installing $missing"
  if ! command -v apt-get >/dev/null; then
    echo "Install a C compiler, a Java runtime and Apache ZooKeeper 3.8, and set"
    echo "ZKLOCK_TEST_CLASSPATH='<its folder>/lib/*'. Debian calls what is missing: $missing"
    return 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    root=sudo
    command -v sudo >/dev/null || { echo "As root: apt-get install $missing"; return 1; }
  fi
  echo "==> installing with apt-get: $missing"
  $root apt-get -qq update
  # shellcheck disable=SC2086 # The packages are words, and so may be nothing before them.
  $root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -y --no-install-recommends install $missing >/dev/null
}

have_the_toolchain() {
  doing="looking for cargo, rustfmt and clippy"
  for tool in cargo rustfmt cargo-clippy; do
    command -v "$tool" >/dev/null && continue
    echo "$tool is missing: install Rust with rustup.rs; rustup component add rustfmt clippy"
    return 1
  done
}

# The features of Cargo.toml, one a line.
features() {
  sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z][a-z-]*\) *=.*/\1/p' Cargo.toml | grep -vx default
}

install_what_is_missing
have_the_toolchain

step 60 "checking the format" cargo fmt --check
step 1500 "linting with all features" \
  cargo clippy --quiet --all-targets --all-features -- -D warnings
step 600 "linting without features" \
  cargo clippy --quiet --lib --bins --no-default-features -- -D warnings
for feature in $(features); do
  step 600 "linting with $feature alone" \
    cargo clippy --quiet --lib --bins --no-default-features --features "$feature" -- -D warnings
done
step 1800 "testing, without servers" cargo test --all-features
step 1800 "testing, with real servers" \
  cargo test --all-features --lib --bins --tests -- --ignored --skip scenes::
step 1500 "breaking servers, links and clients" tests/chaos.sh
RUSTDOCFLAGS="-D warnings" \
  step 600 "writing the documentation" cargo doc --quiet --no-deps --all-features
if compgen -G "benches/*.rs" >/dev/null; then
  step 1500 "running every bench once" cargo bench --all-features --bench '*' -- --test
fi
