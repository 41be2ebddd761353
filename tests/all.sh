#!/usr/bin/env bash
# Everything that must hold before a change lands: format, lints, tests against real
# servers, documentation, benches in test mode. Stops at the first thing that does not.
#
# On Debian and Ubuntu it installs what is missing, as root or through sudo. Elsewhere it
# says what to install; ZKLOCK_TEST_CLASSPATH then names ZooKeeper's jars.
set -euo pipefail
cd "$(dirname "$0")/.."
# Where mariadbd is; only root has these folders in its path.
PATH+=:/usr/local/sbin:/usr/sbin

started=$SECONDS
doing="getting started"
logs=$(mktemp -d)
# What runs, by its process id.
declare -A running=()

finish() {
  local status=$?
  # What was interrupted must not go on in the background.
  [ ${#running[@]} -eq 0 ] || kill "${!running[@]}" 2>/dev/null || true
  wait
  rm -rf "$logs"
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
  running[$!]=$doing
  wait "$!"
  running=()
  echo "    $doing: $((SECONDS - began)) s"
}

# side_by_side LIMIT WHAT FILE: runs the suites in the file, each a line of a name and a
# command, two at a time, because most of them mostly wait. Says a line of each that
# passes, and everything of one that fails.
side_by_side() {
  local limit=$1 began=$SECONDS name command
  local -A since=()
  doing=$2
  echo "==> $doing"
  # The suites have another input, so that they do not read the file.
  while read -r name command <&3; do
    [ ${#running[@]} -lt 2 ] || reap
    # shellcheck disable=SC2086 # The command is words.
    timeout --kill-after=10 "$limit" $command >"$(log_of "$name")" 2>&1 3<&- &
    running[$!]=$name since[$name]=$SECONDS
  done 3<"$3"
  while [ ${#running[@]} -gt 0 ]; do reap; done
  echo "    $2: $((SECONDS - began)) s"
}

# Where a suite's output goes; its name may begin with that of another suite.
log_of() {
  echo "$logs/${1//\//-}"
}

# Waits until one of the suites has ended.
reap() {
  local pid name status=0
  wait -n -p pid "${!running[@]}" || status=$?
  name=${running[$pid]}
  unset "running[$pid]"
  if [ "$status" -ne 0 ]; then
    doing="testing $name"
    cat "$(log_of "$name")"
    return "$status"
  fi
  echo "    $name: $(passed <"$(log_of "$name")"), $((SECONDS - since[$name])) s"
}

# How many tests passed, by what the suite said.
passed() {
  awk '/^test result: ok/ { sum += $4 } /^Success$/ { sum++ } END { print sum + 0, "passed" }'
}

# What the tests need, and the packages of Debian and Ubuntu that have it. `zookeeper` is
# the library and its scripts; the daemon is another package, so nothing is started.
needed() {
  command -v cc >/dev/null || echo build-essential
  command -v javac >/dev/null || echo default-jdk-headless
  command -v mariadbd >/dev/null || echo mariadb-server
  [ -n "$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null)" ] || command -v postgres >/dev/null || echo postgresql
  command -v sqlite3 >/dev/null || echo sqlite3
  command -v faketime >/dev/null || echo faketime
  command -v ip >/dev/null || echo iproute2
  command -v strace >/dev/null || echo strace
  command -v krb5kdc >/dev/null || echo krb5-kdc
  command -v kadmin.local >/dev/null || echo krb5-admin-server
  [ -e /usr/include/gssapi/gssapi.h ] || echo libkrb5-dev
  command -v pkg-config >/dev/null || echo pkg-config
  [ -n "$(ls -d /usr/lib/llvm-*/lib/libclang*.so* 2>/dev/null)" ] || echo libclang-dev
  python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3 python3-venv
  [ -e /usr/share/java/curator-recipes.jar ] || echo libcurator-recipes-java
  [ -n "${ZKLOCK_TEST_CLASSPATH:-}" ] || {
    [ -e /usr/share/java/zookeeper.jar ] || echo zookeeper
    [ -e /usr/share/java/slf4j-simple.jar ] || echo libslf4j-java
  }
}

# What the tests do without if there is no such package: go-zookeeper, as a peer.
welcome() {
  command -v go >/dev/null || echo golang-go
  [ -e /usr/share/gocode/src/github.com/samuel/go-zookeeper ] ||
    echo golang-github-samuel-go-zookeeper-dev
}

install_what_is_missing() {
  local missing package root=
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
  $root apt-get -qq update
  for package in $(welcome); do
    ! apt-cache show "$package" >/dev/null 2>&1 || missing+=" $package"
  done
  echo "==> installing with apt-get: $missing"
  # shellcheck disable=SC2086 # The packages are words, and so may be nothing before them.
  $root env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -y --no-install-recommends install $missing >/dev/null
}

have_the_toolchain() {
  doing="looking for bash, cargo, rustfmt and clippy"
  if [ $((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1])) -lt 501 ]; then
    echo "bash $BASH_VERSION is too old: install 5.1 or newer"
    return 1
  fi
  # rustup has the commands even where it does not have the tools.
  for tool in "" fmt clippy; do
    # shellcheck disable=SC2086 # Nothing is no word.
    cargo $tool --version >/dev/null 2>&1 && continue
    echo "cargo $tool does not work: install Rust with rustup.rs; rustup component add rustfmt clippy"
    return 1
  done
}

# The Rust version whose warnings and format end the run. Warnings of another version are only
# shown: no change of the code brought them.
known=1.95

judge_by_the_toolchain() {
  local here
  here=$(rustc --version)
  verdict="-D warnings"
  [[ $here == "rustc $known"[.\ ]* ]] && return 0
  verdict="-W warnings"
  echo "$here is not Rust $known: its warnings are shown, the format is left alone"
}

# Compiles the library for systems on which none of the tests runs.
check_other_systems() {
  local system
  for system in x86_64-pc-windows-gnu x86_64-apple-darwin; do
    rustup_gets "$system" target add "$system" || continue
    step 300 "checking for $system" \
      cargo check --quiet --lib --no-default-features --features embedded,metrics --target "$system"
  done
}

# rustup_gets WHAT ARGUMENT..: says what is left out if rustup does not get it.
rustup_gets() {
  local what=$1
  shift
  timeout 300 rustup "$@" >"$logs/rustup" 2>&1 && return 0
  echo "leaving $what out: rustup does not get it"
  return 1
}

# Compiles and tests with the oldest Rust that Cargo.toml allows, where rustup has it or can get
# it. The mysql crate takes a newer one.
try_the_oldest_rust() {
  local oldest
  oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1.0/p' Cargo.toml)
  rustup_gets "Rust $oldest" toolchain install "$oldest" --profile minimal || return 0
  local with=(cargo "+$oldest" test --quiet --target-dir target/oldest
    --features "$(features | grep -vx mysql | xargs)")
  step 900 "compiling with Rust $oldest" "${with[@]}" --no-run --lib --bins --test promises
  step 300 "testing with Rust $oldest" "${with[@]}" --lib --test promises -- \
    --include-ignored --skip worker_that_ jute:: native::watches recipe:: mutex::wire::
}

# lint LIMIT WHAT ARGUMENT..: runs clippy.
lint() {
  local limit=$1 what=$2
  shift 2
  # shellcheck disable=SC2086 # The verdict is words.
  step "$limit" "linting $what" cargo clippy --quiet "$@" -- $verdict
}

# The features of Cargo.toml, one a line.
features() {
  sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z][a-z-]*\) *=.*/\1/p' Cargo.toml | grep -vx default
}

# What is compiled for the tests. The benches are tests here: each runs once.
targets=(--lib --bins --tests --benches)

# What there is to test, a line of a name and a command each, what takes longest first. The
# chaos tests come later, and workers are no tests.
suites() {
  local long='^tests/(mysql|promises) '
  # This compiles nothing: it tells where the test binaries are.
  CARGO_TERM_COLOR=never cargo test --no-run --all-features "${targets[@]}" 2>&1 |
    sed -n 's/^ *Executable \(unittests \)\{0,1\}\([^ ]*\) (\(.*\))$/\2 \3/p' |
    sed -e 's/\(\/main\)\{0,1\}\.rs / /' -e '/^benches/!s/$/ --include-ignored --skip scenes:: --skip worker_that_/' \
      >"$logs/compiled"
  [ -s "$logs/compiled" ] || { echo "no test binaries?" >&2; return 1; }
  grep -E "$long" "$logs/compiled"
  echo "src/doctests cargo test --quiet --all-features --doc"
  grep -vE "$long" "$logs/compiled"
}

have_the_toolchain
judge_by_the_toolchain
install_what_is_missing
[ -z "$(welcome)" ] || echo "leaving go-zookeeper out: install $(welcome | xargs)"

[ "$verdict" != "-D warnings" ] || step 60 "checking the format" cargo fmt --check
lint 1500 "with all features" --all-targets --all-features
lint 600 "without features" --lib --bins --no-default-features
for feature in $(features); do
  lint 600 "with $feature alone" --lib --bins --no-default-features --features "$feature"
done
RUSTDOCFLAGS=$verdict \
  step 600 "writing the documentation" cargo doc --quiet --no-deps --all-features
[ "$verdict" != "-D warnings" ] ||
  step 60 "checking the simulation's format" cargo fmt --manifest-path tests/sim/Cargo.toml --check
if command -v cargo-deny >/dev/null; then
  step 60 "looking at licences and sources" cargo deny --offline check licenses bans sources
else
  echo "leaving licences and sources out: cargo install cargo-deny"
fi
if command -v cargo-public-api >/dev/null && cargo +nightly --version >/dev/null 2>&1; then
  step 600 "comparing the public API" tests/public_api.sh
else
  echo "leaving the list of the public API out: tests/public_api.sh says what it takes"
fi
step 600 "packaging" cargo package --quiet --allow-dirty
step 600 "compiling with the oldest dependencies" tests/oldest_dependencies.sh
step 1500 "compiling the tests" cargo test --quiet --no-run --all-features "${targets[@]}"
try_the_oldest_rust
check_other_systems
suites >"$logs/suites"
side_by_side 1800 "testing, with real servers" "$logs/suites"
step 1500 "breaking servers, links and clients" tests/chaos.sh
step 900 "testing the simulation" tests/sim.sh --test
step 600 "playing fresh seeds" tests/sim.sh
