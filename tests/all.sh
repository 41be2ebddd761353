#!/usr/bin/env bash
# Everything that must hold before a change lands: format, lints, tests against real
# servers, documentation, benches in test mode. Stops at the first thing that does not.
#
# On Debian and Ubuntu it installs what is missing, as root or through sudo. Elsewhere it
# says what to install; ZKLOCK_TEST_CLASSPATH then names ZooKeeper's jars.
set -euo pipefail
cd "$(dirname "$0")/.."
# The folders of mariadbd, which only root has in its path.
PATH+=:/usr/local/sbin:/usr/sbin

# shellcheck source=tests/steps.sh
source tests/steps.sh

# The files that the tests need, and the packages of Debian and Ubuntu that have them. `zookeeper` is the library
# and its scripts; the daemon is another package, so nothing is started.
needed() {
  command -v cc >/dev/null || echo build-essential
  command -v javac >/dev/null || echo default-jdk-headless
  command -v mariadbd >/dev/null || echo mariadb-server
  [ -n "$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null)" ] || command -v postgres >/dev/null || echo postgresql
  command -v sqlite3 >/dev/null || echo sqlite3
  command -v faketime >/dev/null || echo faketime
  command -v ip >/dev/null || echo iproute2
  command -v strace >/dev/null || echo strace
  command -v fish >/dev/null || echo fish
  command -v krb5kdc >/dev/null || echo krb5-kdc
  command -v kadmin.local >/dev/null || echo krb5-admin-server
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3 python3-venv
  [ -e /usr/share/java/curator-recipes.jar ] || echo libcurator-recipes-java
  [ -n "${ZKLOCK_TEST_CLASSPATH:-}" ] || {
    [ -e /usr/share/java/zookeeper.jar ] || echo zookeeper
    [ -e /usr/share/java/slf4j-simple.jar ] || echo libslf4j-java
  }
}

# The packages without which the tests can do: go-zookeeper, as a peer.
welcome() {
  command -v go >/dev/null || echo golang-go
  [ -e /usr/share/gocode/src/github.com/samuel/go-zookeeper ] ||
    echo golang-github-samuel-go-zookeeper-dev
}

# Names everything that is missing before anything is built, and installs what apt-get has.
have_what_is_needed() {
  local missing tools package root=
  doing="looking for what is needed"
  tools=$(missing_tools)
  missing=$(needed | xargs)
  if [ -n "$missing" ]; then
    [ "$(id -u)" -eq 0 ] || root=sudo
    if ! command -v apt-get >/dev/null; then
      tools+="
Install a C compiler, a Java runtime and Apache ZooKeeper 3.8, and set
ZKLOCK_TEST_CLASSPATH='<its folder>/lib/*'. Debian calls what is missing: $missing"
    elif [ -n "$root" ] && ! command -v sudo >/dev/null; then
      tools+="
As root: apt-get install $missing"
    fi
  fi
  if [ -n "$tools" ]; then
    echo "$tools"
    return 1
  fi
  [ -n "$missing" ] || return 0
  doing="installing $missing"
  $root apt-get -qq update
  for package in $(welcome); do
    ! apt-cache show "$package" >/dev/null 2>&1 || missing+=" $package"
  done
  echo "==> installing with apt-get: $missing"
  # shellcheck disable=SC2086 # The packages are words, and so may be nothing before them.
  $root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -y --no-install-recommends install $missing >/dev/null
}

# Prints what the run leaves out.
say_what_is_left_out() {
  [ -z "$(welcome)" ] || echo "leaving go-zookeeper out: install $(welcome | xargs)"
  [ "$(id -u)" -ne 0 ] || unshare -m true 2>/dev/null ||
    echo "leaving out what takes namespaces: unshare -m fails, as in a chroot whose root is no mount point"
  command -v cargo-deny >/dev/null ||
    echo "leaving licences and sources out: cargo install cargo-deny"
  has_public_api ||
    echo "leaving the list of the public API out: tests/public_api.sh says what it takes"
}

has_public_api() {
  command -v cargo-public-api >/dev/null && cargo +nightly --version >/dev/null 2>&1
}

# rustup_gets WHAT ARGUMENT..: prints what is left out if rustup does not get it.
rustup_gets() {
  local what=$1
  shift
  timeout 300 rustup "$@" >"$logs/rustup" 2>&1 && return 0
  echo "leaving $what out: rustup does not get it" >&2
  return 1
}

# The targets that are compiled for the tests. The benches are tests here: each runs once.
targets=(--workspace --lib --bins --tests --benches)

# The suites that take longest, which begin first.
long="tests/promises tests/cli tests/mysql tests/chaos.sh tests/session tests/interop tests/embedded src/lib"

# Lists the suites, a line of a name and a command each. Workers are no tests, and tests/chaos.sh runs the scenes.
suites() {
  local source binary
  {
    echo "tests/chaos.sh bash tests/chaos.sh --all-features"
    echo "src/doctests cargo test --quiet --workspace --all-features --doc"
    grep -vE '^tests/(model|play) ' "$logs/compiled" | while read -r source binary; do
      case $source in
        benches/*) printf '%s %q\n' "$source" "$binary" ;;
        *) printf '%s %q --include-ignored --skip scenes:: --skip worker_that_\n' "$source" "$binary" ;;
      esac
    done
  } | awk -v long="$long" 'BEGIN { n = split(long, first) }
    { for (rank = 1; rank <= n && first[rank] != $1; rank++); print rank, $0 }' | sort -sn | cut -d ' ' -f 2-
}

# The steps that compile and compute, which give way to suites that wait.
computations() {
  local oldest system packages
  # These are over before tests/chaos.sh asks Cargo for anything, which would wait for them.
  echo "features tests/features.sh"
  echo "documentation env RUSTDOCFLAGS='$verdict' cargo doc --quiet --workspace --no-deps --all-features"
  echo "sim/compile tests/sim.sh --compile"
  echo "sim/test tests/sim.sh --test"
  sed -n 's/^tests\/model /&/p' "$logs/compiled"
  # These are seeds that no run has played; a seed that fails is named, and its story is told.
  sed -n "s/^tests\/play /&env ZKLOCK_PLAY_FIRST=$((RANDOM * 32768 + RANDOM)) /p" "$logs/compiled"
  echo "sim/seeds tests/sim.sh --fresh"
  # This checks the packages with the oldest Rust that Cargo.toml allows.
  oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1.0/p' Cargo.toml)
  cargo "+$oldest" --version >/dev/null 2>&1 || rustup_gets "Rust $oldest" toolchain install "$oldest" --profile minimal || true
  echo "oldest-dependencies tests/oldest_dependencies.sh"
  # None of the tests runs on these systems.
  for system in x86_64-pc-windows-gnu x86_64-apple-darwin; do
    # The program is for Unix.
    case $system in
      *-windows-*) packages="-p zklock" ;;
      *) packages="-p zklock -p zklock-cli" ;;
    esac
    rustup target list --installed 2>/dev/null | grep -qx "$system" ||
      rustup_gets "$system" target add "$system" || continue
    echo "rust/$system cargo check --quiet $packages --no-default-features --features zklock/embedded,zklock/metrics --target $system"
  done
}

# Leaves out of a build for one run what only later builds and debuggers need: the build is a third of the size. One
# unit for each crate takes a tenth less of the processors than sixteen. Changes nothing if the target folder shows that
# somebody builds on it.
build_for_one_run() {
  [ -z "$(ls -A "$CARGO_TARGET_DIR/debug/incremental" 2>/dev/null)" ] || return 0
  export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0} CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0}
  export CARGO_PROFILE_DEV_CODEGEN_UNITS=${CARGO_PROFILE_DEV_CODEGEN_UNITS:-1}
}

# Puts the servers' classes into a file from which each start takes them.
archive_the_servers_classes() {
  local binary
  export ZKLOCK_TEST_ARCHIVE="$CARGO_TARGET_DIR/tmp/zookeeper.jsa"
  rm -f "$ZKLOCK_TEST_ARCHIVE"*
  binary=$(sed -n 's/^tests\/tools //p' "$logs/compiled")
  timeout 120 "$binary" --ignored --exact worker_that_archives_classes >"$logs/archive" 2>&1 8>&- || true
  [ -s "$ZKLOCK_TEST_ARCHIVE" ] || echo "leaving the archive of the servers' classes out: there is none"
}

have_what_is_needed
judge_by_the_toolchain
say_what_is_left_out
find_the_target
build_for_one_run
# Two runs of one checkout would write the same files.
exec 8>"$CARGO_TARGET_DIR/all.sh.lock"
! command -v flock >/dev/null || flock --nonblock 8 || { echo "waiting for another run"; flock 8; }

[ "$verdict" != "-D warnings" ] || step 60 "checking the format" cargo fmt --all --check
[ "$verdict" != "-D warnings" ] ||
  step 60 "checking the simulation's format" cargo fmt --manifest-path tests/sim/Cargo.toml --check
lint 1500 "with all features" --workspace --all-targets --all-features
if command -v cargo-deny >/dev/null; then
  step 60 "looking at licences and sources" cargo deny --offline check licenses bans sources
fi
! has_public_api || step 600 "comparing the public API" tests/public_api.sh
step 1500 "compiling the tests" cargo test --quiet --no-run --all-features "${targets[@]}"
doing="looking for what there is to test"
# This compiles nothing: it lists the test binaries.
test_binaries --all-features "${targets[@]}" >"$logs/compiled"
[ -s "$logs/compiled" ] || { echo "no test binaries?"; exit 1; }
archive_the_servers_classes
suites >"$logs/suites"
computations >"$logs/computations"
side_by_side 1800 3 "testing, with real servers" "$logs/suites" "$logs/computations"
