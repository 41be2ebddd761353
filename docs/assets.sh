#!/usr/bin/env bash
# docs/assets.sh PROGRAM FOLDER: writes what the program says of itself, for packages: its manual
# pages, and its completions by the names that each shell looks for.
set -euo pipefail
program=${1:?which program?} folder=${2:?into which folder?}
rm -rf "$folder"
mkdir -p "$folder/man"
"$program" man --folder "$folder/man"
"$program" completions bash >"$folder/zklock"
"$program" completions zsh >"$folder/_zklock"
"$program" completions fish >"$folder/zklock.fish"
