# What tests/all.sh and tests/quick.sh share: steps with a limit, suites side by side, and where
# the time went. They source it from the root of the repository.
# shellcheck shell=bash

# The lock of a run is descriptor 8, which no step may keep open.
script=${0##*/}
started=$SECONDS
doing="getting started"
logs=$(mktemp -d)
# The running steps, by their process ids.
declare -A running=()

# Tests mostly wait, so more of them are in progress than there are cores.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(getconf _NPROCESSORS_ONLN)))}

# The tests start hundreds of Pythons. A shim, such as pyenv's, costs more than the Python that it looks for.
python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) || python=
[ -z "$python" ] || [ "$(command -v python3)" -ef "$python" ] || PATH="${python%/*}:$PATH"

finish() {
  local status=$?
  # Interrupted steps must not go on in the background.
  [ ${#running[@]} -eq 0 ] || kill "${!running[@]}" 2>/dev/null || true
  wait
  tell_the_times
  [ ! -s "$logs/failed-once" ] || cat "$logs/failed-once"
  rm -rf "$logs"
  if [ "$status" -eq 0 ]; then
    echo "$script: everything passed in $((SECONDS - started)) s"
  else
    echo "$script: FAILED while $doing, after $((SECONDS - started)) s (status $status)"
  fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Sets `used` to the processors' seconds of all processes that have ended.
look_at_the_processors() {
  # This is not in a pipe, where it would report another process.
  times >"$logs/times"
  used=$(awk 'NR == 2 { split($1 "m" $2, t, /[ms]+/); print int(60 * t[1] + t[2] + 60 * t[3] + t[4]) }' "$logs/times")
}

# ended WHAT BEGAN USED: reports a step that began then, when this much was used.
ended() {
  local took=$((SECONDS - $2))
  look_at_the_processors
  echo "    $1: $took s"
  printf '%6d s  %5d s  %s\n' "$took" $((used - $3)) "$1" >>"$logs/steps"
}

# Prints the steps and the suites, those that took longest first.
tell_the_times() {
  [ -s "$logs/steps" ] || return 0
  echo "where the time went, and the processors':"
  sort -rn "$logs/steps"
  [ -s "$logs/suites-took" ] || return 0
  echo "of that, side by side:"
  sort -rn "$logs/suites-took"
}

# step LIMIT WHAT COMMAND..: runs the command, for LIMIT seconds at most.
step() {
  local limit=$1 began=$SECONDS used
  doing=$2
  shift 2
  echo "==> $doing"
  look_at_the_processors
  local before=$used
  # `timeout` ends the whole process group of the step, and with it all processes that the step
  # started.
  timeout --kill-after=10 "$limit" "$@" 8>&- &
  running[$!]=$doing
  wait "$!"
  running=()
  ended "$doing" "$began" "$before"
}

# side_by_side LIMIT LANES WHAT FILE [COMPUTING]: runs the suites in the file, each a line of a name
# and a command in the shell's syntax, LANES at a time; and beside them, one after the other and with
# what the suites leave of the processors, those of the file COMPUTING, for which there are more lanes
# once no suite is left to begin. Says a line of each that passes, and everything of one that fails.
# Up to two tests may fail beside the others if they pass alone.
side_by_side() {
  local limit=$1 lanes=$2 what=$3 began=$SECONDS name command used computing=0
  local -A since=() binary=()
  doing=$what
  echo "==> $doing"
  look_at_the_processors
  local before=$used
  exec 3<"$4" 4<"${5:-/dev/null}"
  while :; do
    if [ "$computing" -eq 0 ] && read -r name command <&4; then
      begin "nice -n 5 $command"
      computing=$!
    fi
    while [ ${#running[@]} -lt $((computing ? lanes + 1 : lanes)) ] &&
      { read -r name command <&3 || read -r name command <&4; }; do
      begin "$command"
    done
    [ ${#running[@]} -gt 0 ] || break
    reap
  done
  exec 3<&- 4<&-
  run_again "$limit"
  ended "$what" "$began" "$before"
}

# begin COMMAND: begins the suite `name` of a `side_by_side`. The suites have another input, so that
# they do not read its files.
begin() {
  eval "exec timeout --kill-after=10 $limit $1" >"$(log_of "$name")" 2>&1 </dev/null 3<&- 4<&- 8>&- &
  running[$!]=$name since[$name]=$SECONDS binary[$name]=${1%% *}
}

# Prints the file for a suite's output; the name of a suite may begin with that of another one.
log_of() {
  echo "$logs/log-${1//\//-}"
}

# Waits until one of the suites has ended.
reap() {
  local pid name took used before status=0
  # The processor time of a suite counts from when it is waited for.
  look_at_the_processors
  before=$used
  wait -n -p pid "${!running[@]}" || status=$?
  look_at_the_processors
  name=${running[$pid]}
  unset "running[$pid]"
  [ "$pid" -ne "$computing" ] || computing=0
  if [ "$status" -ne 0 ]; then
    doing="testing $name"
    cat "$(log_of "$name")"
    is_worth_another_try "$name" && return 0
    return "$status"
  fi
  took=$((SECONDS - since[$name]))
  echo "    $name: $(passed <"$(log_of "$name")"), $took s"
  printf '%6d s  %5d s  %s\n' "$took" $((used - before)) "$name" >>"$logs/suites-took"
}

# Returns whether one test or two failed, and so may be run again. Tests that wait for real servers
# fail where a machine stands still for seconds; a broken promise fails alone, too.
# ZKLOCK_TEST_STRICT forbids another run.
is_worth_another_try() {
  local failed
  [ -z "${ZKLOCK_TEST_STRICT:-}" ] && [ -x "${binary[$1]}" ] || return 1
  failed=$(sed -n '/^failures:$/,/^test result/s/^    \([a-z0-9_:]*\)$/\1/p' "$(log_of "$1")" | sort -u)
  [ -n "$failed" ] || return 1
  # shellcheck disable=SC2086 # They are words.
  printf '%s\n' $failed | sed "s|^|$1 ${binary[$1]} |" >>"$logs/again"
  [ "$(wc -l <"$logs/again")" -le 2 ]
}

# run_again LIMIT: runs the tests that failed, alone.
run_again() {
  local name binary test
  [ -s "$logs/again" ] || return 0
  while read -r name binary test <&3; do
    doing="testing $name, $test alone"
    timeout --kill-after=10 "$1" "$binary" --include-ignored --exact "$test" 3<&- 8>&-
    echo "$name: $test failed beside others, and passed alone: see above" >>"$logs/failed-once"
  done 3<"$logs/again"
}

# Prints how many tests passed, by the suite's output, or a script's last line.
passed() {
  awk '/^test result: ok/ { sum += $4 } /^Success$/ { sum++ } NF { last = $0 }
    END { print (last ~ /^([a-z]+\.sh:|[0-9]+ seeds) /) ? last : sum ? sum " passed" : "passed" }'
}

# Prints which of the tools that compile are missing.
missing_tools() {
  local tool
  [ $((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1])) -ge 501 ] ||
    echo "bash $BASH_VERSION is too old: install 5.1 or newer"
  # rustup has the commands even where it does not have the tools.
  for tool in "" fmt clippy; do
    # shellcheck disable=SC2086 # Nothing is no word.
    cargo $tool --version >/dev/null 2>&1 ||
      echo "cargo $tool does not work: install Rust with rustup.rs; rustup component add rustfmt clippy"
  done
}

# One folder for everything that is compiled, wherever the environment or Cargo's configuration has
# it.
find_the_target() {
  CARGO_TARGET_DIR=$(cargo metadata --format-version 1 --no-deps --offline |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
  export CARGO_TARGET_DIR
  mkdir -p "$CARGO_TARGET_DIR"
}

# The Rust version whose warnings and format end the run. Warnings of another version are only
# shown: no change of the code has caused them.
known=1.95

judge_by_the_toolchain() {
  local here
  here=$(rustc --version)
  export verdict="-D warnings"
  [[ $here == "rustc $known"[.\ ]* ]] && return 0
  verdict="-W warnings"
  echo "$here is not Rust $known: its warnings are shown, the format is left alone"
}

# lint LIMIT WHAT ARGUMENT..: runs clippy.
lint() {
  local limit=$1 what=$2
  shift 2
  # shellcheck disable=SC2086 # The verdict is words.
  step "$limit" "linting $what" cargo clippy --quiet "$@" -- $verdict
}

# test_binaries ARGUMENT..: the test binaries that Cargo compiles with these arguments, each a line of
# its source and its path.
test_binaries() {
  CARGO_TERM_COLOR=never cargo test --no-run "$@" 2>&1 |
    sed -n 's/^ *Executable \(unittests \)\{0,1\}\([^ ]*\) (\(.*\))$/\2 \3/p' |
    sed -e 's/\(\/main\)\{0,1\}\.rs / /' -e 's|^src/lib \(.*/zklock_\([a-z]*\)-\)|crates/\2 \1|' \
      -e 's|^src \(.*/zklock-\)|crates/cli \1|'
}
