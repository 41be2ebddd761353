#!/bin/sh
# A RUSTC_WORKSPACE_WRAPPER: compiles this package, and no other, for the simulation, and without
# `mysql`, which takes its threads and clocks from the system. Cargo has that feature turned on, so
# that the dependencies are those of every other build with all features.
for argument; do
  shift
  [ "$argument" != 'feature="mysql"' ] || argument=zklock_sim
  set -- "$@" "$argument"
done
exec "$@" --cfg zklock_sim
