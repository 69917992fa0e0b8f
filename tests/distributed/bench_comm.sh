#!/usr/bin/env bash
# bench_comm.sh PROGRAM: what longhand-mpi bench comm prints and writes, and what it refuses; longhand plan reads it, and
# predicts the bytes that ranks send.
set -euo pipefail
program=$1
here=$(dirname "$(readlink -f "$0")")
mpirun=$here/mpirun.sh
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() { echo "bench_comm.sh: $*" >&2; cat "$out/text" >&2; exit 1; }

"$mpirun" 2 "$program" bench comm --max-bytes 100000 --seconds 0 -o "$out/comm.json" >"$out/text" 2>&1 || fail "it failed"
[ "$(grep -c '^Latency and bandwidth' "$out/text")" = 1 ] || fail "expected one table: the first rank alone prints"
for operation in sum all_gather sum_scatter all_to_all shift broadcast barrier; do
  grep -Eq "^$operation +2 +[0-9]" "$out/text" || fail "expected a row of $operation with 2 ranks"
done
for field in '"kind": "bench comm"' '"machine": "' '"date": "' '"version": "' "\"$(hostname)\"" Open; do
  grep -qF -- "$field" "$out/comm.json" || fail "expected $field in the results"
done

# The value of a column in the last row of a table in a file of results.
value() {
  perl -MJSON::PP -0777 -e '
    my ($table) = grep { $_->{name} eq $ARGV[1] } @{decode_json(do { open my $f, "<", $ARGV[0]; <$f> })->{tables}};
    my @names = map { $_->{name} } @{$table->{columns}};
    my ($column) = grep { $names[$_] eq $ARGV[2] } 0 .. $#names;
    print $table->{rows}[-1][$column];' "$@"
}
# Wide enough that gradients are several buckets.
config=("$here/../cli/tiny.toml" --set model.d_model=128 model.d_mlp=1024 --threads 1)
"$mpirun" 2 "$program" bench ranks "${config[@]}" --steps 1 --turns 1 -o "$out/ranks.json" >"$out/text" 2>&1 || fail "bench ranks failed"
"$program" plan "${config[@]}" --ranks 2 --rates "$out/comm.json" --seconds 0 -o "$out/plan.json" >"$out/text" 2>&1 || fail "plan failed"
grep -qF "comm.json" "$out/text" || fail "expected the name of the file with the rates"
sent=$(value "$out/ranks.json" rates sent_bytes)
predicted=$(value "$out/plan.json" forecasts sent_mib)
perl -e "exit !(abs($predicted * 2 ** 20 / $sent - 1) < 0.001)" || fail "sent $sent bytes, predicted $predicted MiB"

refused() {
  local ranks=$1 text=$2 status=0
  shift 2
  "$mpirun" "$ranks" "$program" bench comm "$@" >"$out/text" 2>&1 || status=$?
  [ $status = 2 ] || fail "$*: ended with $status, expected 2"
  grep -qF -- "$text" "$out/text" || fail "expected: $text"
}
refused 1 "there is only one; start several, such as: mpirun -np 4 longhand-mpi bench comm"
refused 2 "--max-bytes 31: expected at least 32, two sizes for 2 ranks" --max-bytes 31
refused 2 "--max-bytes: expected an integer from 1 to 2^30, got 2147483648" --max-bytes 2147483648
echo "bench comm measures, writes and refuses"
