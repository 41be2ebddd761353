#!/usr/bin/env bash
# System calls of our side per cycle, counted by strace.
#
#   benches/peers/syscalls.sh HOST:PORT [SCENARIO]
set -euo pipefail
hosts=$1
scenario=${2:-alone}
# Cargo adds a hash to its name, and keeps what it built before.
# shellcheck disable=SC2012 # The names are Cargo's.
floor=$(ls -t "${CARGO_TARGET_DIR:-target}"/release/deps/floor-* | grep -v '\.d$' | head -n 1)
counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
strace -f -c -o "$counts" "$floor" "$hosts" "$scenario" rounds=1 only=ours >/dev/null
# Each acquire makes one uuid, and each uuid takes one call of getrandom.
awk '
  $NF != "total" && $NF ~ /^[a-z_0-9]+$/ && $4 ~ /^[0-9]+$/ { calls[$NF] = $4 }
  END {
    cycles = calls["getrandom"]
    for (name in calls)
      if (calls[name] > cycles / 10) printf "%-12s %6.2f a cycle\n", name, calls[name] / cycles
  }' "$counts" | sort -k2 -nr
