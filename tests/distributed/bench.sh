#!/usr/bin/env bash
# bench.sh PROGRAM: what longhand-mpi bench ranks, sequence and comm print and write, and what they refuse.
set -euo pipefail
export LONGHAND_THREADS=1
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
  "$mpirun" 2 "$program" bench "$name" "$@" -o "$out/$name.json" >"$out/text" 2>&1 || fail "$name failed"
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

# Rates of the network, which longhand plan reads.
measure comm --max-bytes 100000 --seconds 0
"$mpirun" 2 --tag-output "$program" bench comm --max-bytes 100000 --seconds 0 >"$out/text" 2>&1 || fail "comm failed"
[ "$(grep -c 'Latency and bandwidth' "$out/text")" = 1 ] || fail "expected one table"
grep -Eq ',0\]<stdout>: ?Latency and bandwidth' "$out/text" || fail "expected the first rank to print"
sed -Ei 's/^\[[^]]*\]<stdout>: ?//' "$out/text"
for operation in sum all_gather sum_scatter all_to_all shift broadcast barrier; do
  grep -Eq "^$operation +2 +[0-9]" "$out/text" || fail "expected a row of $operation with 2 ranks"
done
grep -qF "\"$(hostname)\"" "$out/comm.json" || fail "expected the name of this machine in the results"

# Ranks that share cores are measured, but with a note.
cores=$(getconf _NPROCESSORS_ONLN)
if [ "$cores" -ge 2 ] && [ "$cores" -le 8 ]; then
  for ranks in $cores $((cores + 1)); do
    "$mpirun" "$ranks" "$program" bench comm --max-bytes 1000 --seconds 0 >"$out/text" 2>&1 || fail "comm failed"
    [ "$(grep -c 'More ranks than cores' "$out/text")" = $((ranks - cores)) ] || fail "$ranks ranks, $cores cores"
  done
fi

# refused RANKS TEXT ARGUMENT...
refused() {
  local ranks=$1 text=$2 status=0
  shift 2
  "$mpirun" "$ranks" "$program" bench "$@" >"$out/text" 2>&1 || status=$?
  [ $status = 2 ] || fail "$*: ended with $status, expected 2"
  grep -qF -- "$text" "$out/text" || fail "expected: $text"
}
refused 1 "expected several ranks, found one; start it as mpirun -np 2 longhand-mpi bench sequence" sequence
refused 1 "expected several ranks, found one; start it as mpirun -np 2 longhand-mpi bench ranks" ranks \
  "$here/../../examples/configs/mqar.toml"
refused 1 "expected several ranks, found one; start it as mpirun -np 2 longhand-mpi bench comm" comm
refused 2 "--max-bytes 31: expected at least 32, two sizes for 2 ranks" comm --max-bytes 31
refused 2 "--max-bytes: expected an integer from 1 to 2^30, got 2147483648" comm --max-bytes 2147483648
echo "bench ranks, sequence and comm measure, write and refuse"
