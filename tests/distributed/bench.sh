#!/usr/bin/env bash
# bench.sh PROGRAM: what longhand-mpi bench ranks and bench sequence print and write, and what they refuse.
set -euo pipefail
program=$1
here=$(dirname "$(readlink -f "$0")")
mpirun=$here/mpirun.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() { echo "bench.sh: $*" >&2; cat "$out/text" >&2; exit 1; }

# measure NAME ARGUMENT...: one table, printed by the first rank, and results with the usual fields.
measure() {
  local name=$1 field
  shift
  "$mpirun" 2 "$program" bench "$name" "$@" --threads 1 -o "$out/$name.json" >"$out/text" 2>&1 || fail "$name failed"
  [ "$(grep -c "written to $out/$name.json" "$out/text")" = 1 ] || fail "expected one rank to print"
  for field in "\"kind\": \"bench $name\"" '"command": "mpirun -np 2 longhand-mpi bench' '"machine": "' '"date": "' '"version": "'; do
    grep -qF -- "$field" "$out/$name.json" || fail "expected $field in the results"
  done
  "$program" report "$out/$name.json" -o "$out/$name.html" >"$out/text"
}

measure ranks "$here/../../examples/configs/mqar.toml" --steps 2 --turns 2 --set data.length=32 data.pairs=4 \
  data.train_size=64 train.batch_size=4 model.d_model=16 data.vocabulary=64 model.vocabulary=64
grep -q '"name": "timeline"' "$out/ranks.json" || fail "expected a timeline"
for phase in forward backward wait update sum; do
  grep -q "\"$phase\"" "$out/ranks.json" || fail "expected the phase $phase in the timeline"
done

# Every variant, over MPI.
measure sequence --length 32,64 --d-model 16 --heads 2 --layers 1
variants=$("$program" variants --json | grep -c '"name": ')
for variant in softmax performer retnet deltanet nystrom conv; do
  grep -q "\"$variant\"" "$out/sequence.json" || fail "expected $variant in the results ($variants variants)"
done

for name in ranks sequence; do
  status=0
  "$program" bench $name "$here/../../examples/configs/mqar.toml" >"$out/text" 2>&1 || status=$?
  [ $status = 2 ] || fail "bench $name in one process ended with $status, expected 2"
done
status=0
"$program" bench sequence >"$out/text" 2>&1 || status=$?
grep -qF "expected several ranks; start it as mpirun -np 2 longhand-mpi bench sequence" "$out/text" || fail "expected the remedy"
echo "bench ranks and bench sequence measure, write and refuse"
