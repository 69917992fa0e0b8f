#!/usr/bin/env bash
# tests/mutants/run.sh: plants the mistakes of mutants.txt, one at a time, in a copy of the library,
# and verifies that the conformance suite catches each of them.
#   tests/mutants/run.sh              all of them; about 15 s each on 2 cores
#   tests/mutants/run.sh PATTERN ...  those whose name contains a pattern
#   tests/mutants/run.sh --sample N [--seed S] --folder F ...  N mechanical mistakes in folders or files (see
#                                     sample.pl), such as --folder train/step/optimizer.cpp
# Exits with 1 if a mutant survives or no longer matches the code. The table of the last complete run
# is in tests/mutants/README.md.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
work=${LONGHAND_MUTANTS_DIR:-build/mutants}
mkdir -p "$work"
work=$(readlink -f "$work")
mkdir -p "$work/source"
# Files that have not changed since the last run keep their time stamps and are not built again.
find "$work/source" -type f -printf '%P\n' | sort | comm -13 <(git ls-files | sort) - |
  (cd "$work/source" && xargs -r -d '\n' rm)
git ls-files | while read -r file; do
  cmp -s "$file" "$work/source/$file" || cp --parents "$file" "$work/source"
done
if [ "${1:-}" = --sample ]; then
  n=${2:?expected --sample N} seed=1 folders=()
  shift 2
  while [ $# -gt 0 ]; do
    case $1 in
      --seed) seed=$2 ;;
      --folder) folders+=("$2") ;;
      *) echo "$1: expected --seed S or --folder F" >&2; exit 2 ;;
    esac
    shift 2
  done
  [ ${#folders[@]} -gt 0 ] || folders=(core autograd nn data train)
  cp tests/mutants/mutant.h "$work/mutant.h"
  cmake -S "$work/source" -B "$work/sampled" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLONGHAND_BUILD_TESTS=ON \
    -DLONGHAND_MPI=OFF -DLONGHAND_UNITY=OFF -DCMAKE_CXX_FLAGS="-include $work/mutant.h -w" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  exec perl tests/mutants/sample.pl "$work" "$n" "$seed" "${folders[@]}"
fi
echo "== build the suite"
cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DLONGHAND_BUILD_TESTS=OFF -DLONGHAND_UNITY=OFF >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/build" --target longhand >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/build/longhand" check attention --quiet || { echo "the suite fails without any mutant"; exit 1; }
echo "== break it"
exec perl tests/mutants/run.pl "$work" tests/mutants/mutants.txt "$@"
