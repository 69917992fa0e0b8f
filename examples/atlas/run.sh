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
    { echo "$1: expected tracking, mad, memorization, recall, listops or language" >&2; exit 2; }
  sweeps+=("$1")
  shift
done
[ $# -eq 0 ] || shift
[ ${#sweeps[@]} -gt 0 ] || sweeps=(tracking mad memorization recall listops language)

command -v xz >/dev/null || { echo "xz: not found; install the package xz-utils" >&2; exit 1; }

for sweep in "${sweeps[@]}"; do
  echo "== $sweep"
  to=$directory/$sweep
  if [ ! -d "$to" ]; then  # unpacked under another name first, so that an interrupted copy is not taken for cells
    rm -rf "$to.part"
    mkdir -p "$to.part"
    find "$atlas/results/$sweep" -name cells.tar.xz -exec tar -xJf {} -C "$to.part" \;
    mv "$to.part" "$to"
  fi
  "${LONGHAND:-longhand}" ablate "$atlas/$sweep.toml" --out "$to" --change-sweep "$@"
done
