#!/usr/bin/env bash
# examples/atlas/run.sh DIRECTORY [SWEEP...] [-- OPTION...]: trains the cells that the atlas still lacks, in
# DIRECTORY/SWEEP, from those in results/. Stopped, it goes on where it was. The options are those of longhand ablate.
#
#   examples/atlas/run.sh runs/atlas -- --dry-run            # what is left, and how long it takes
#   examples/atlas/run.sh runs/atlas mad recall -- --jobs 2
#
# LONGHAND is the program [longhand]. Needs xz; language needs the text of examples/fetch/tinyshakespeare.sh.
set -euo pipefail
atlas=$(dirname "$(readlink -f "$0")")
directory=${1:?expected a directory, such as runs/atlas}
shift
sweeps=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  [ -f "$atlas/$1.toml" ] && [ -d "$atlas/results/$1" ] ||
    { echo "$1: expected one of: $(ls "$atlas/results" | xargs)" >&2; exit 2; }
  sweeps+=("$1")
  shift
done
[ $# -eq 0 ] || shift
command -v xz >/dev/null || { echo "xz: not found; install the package xz-utils" >&2; exit 1; }

unpack() {
  [ ! -d "$directory/$1" ] || return 0
  local part=$directory/$1.part  # another name first, so that an interrupted copy is not taken for cells
  rm -rf "$part"
  mkdir -p "$part"
  find "$atlas/results/$1" -name cells.tar.xz -exec tar -xJf {} -C "$part" \;
  mv "$part" "$directory/$1"
}

if [ ${#sweeps[@]} -eq 0 ]; then
  for results in "$atlas"/results/*/; do unpack "$(basename "$results")"; done
  exec "${LONGHAND:-longhand}" ablate "$atlas/atlas.toml" --out "$directory" --change-sweep "$@"
fi
for sweep in "${sweeps[@]}"; do
  echo "== $sweep"
  unpack "$sweep"
  "${LONGHAND:-longhand}" ablate "$atlas/$sweep.toml" --out "$directory/$sweep" --change-sweep "$@"
done
