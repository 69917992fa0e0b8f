#!/usr/bin/env bash
# tests/mutants/run.sh: plants the mistakes of mutants.txt, one at a time, in a copy of the library,
# and verifies that the conformance suite catches each of them.
#   tests/mutants/run.sh              all of them; about 15 s each on 2 cores
#   tests/mutants/run.sh PATTERN ...  those whose name contains a pattern
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
echo "== build the suite"
cmake -S "$work/source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DLONGHAND_BUILD_TESTS=OFF >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/build" --target longhand >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/build/longhand" check attention --quiet || { echo "the suite fails without any mutant"; exit 1; }
echo "== break it"
exec perl tests/mutants/run.pl "$work" tests/mutants/mutants.txt "$@"
