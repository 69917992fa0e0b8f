#!/usr/bin/env bash
# same_hash.sh PROGRAM: runs examples/course/12_ranks/solution_3.cpp on 1, 2 and 4 ranks, whose last lines, with the loss and
# the hash of the parameters, must be equal.
set -euo pipefail
mpirun=$(dirname "$(readlink -f "$0")")/mpirun.sh
expected=
for ranks in 1 2 4; do
  text=$("$mpirun" "$ranks" "$1")
  [ "$(head -n 1 <<<"$text")" = "ranks: $ranks" ] || { echo "expected $ranks ranks, got: $text"; exit 1; }
  line=$(tail -n 1 <<<"$text")
  [ "${expected:=$line}" = "$line" ] || { echo "$ranks ranks: expected $expected, got $line"; exit 1; }
done
echo "1, 2 and 4 ranks: $line"
