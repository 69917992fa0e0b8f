#!/usr/bin/env bash
# tests/reliability/sweep_kill.sh PATH/TO/longhand [CELLS [KILLS]]: runs a sweep undisturbed, then the
# same sweep (24 cells) killed with SIGKILL at 20 moments, and compares: no cell may be lost or trained
# twice, and the tables must be equal. Every second kill also kills the processes of the cells. Prints
# one line; exits with 1 if anything differs.
set -euo pipefail
longhand=$(readlink -f "${1:?expected the path of longhand}")
config=$(dirname "$(readlink -f "$0")")/../cli/tiny.toml
cells=${2:-24} kills=${3:-20}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
variants=('"softmax"' '"linear"' '"performer"' '"linformer"' '"window"' '"nystrom"')
seeds=$(( (cells + 5) / 6 ))
cat >sweep.toml <<END
[sweep]
base = "$config"
seeds = $seeds
set = ["train.steps=300", "train.checkpoint_every=10", "train.log_every=5", "train.eval_every=30"]
[[axis]]
attention.type = [$(IFS=,; echo "${variants[*]}")]
END

begin=$(date +%s%N)
"$longhand" ablate sweep.toml --out whole --jobs 2 --quiet >/dev/null
seconds=$(( ($(date +%s%N) - begin) / 1000000 ))  # milliseconds

# Columns up to `parameters`; those after it depend on the machine and on interruptions.
lasting() { sed 's/\(,[^,]*\)\{4\}\r*$//' "$1/cells.csv"; }

killed=0 rounds=0
while [ "$killed" -lt "$kills" ] && [ "$rounds" -lt $((10 * kills)) ]; do
  rounds=$((rounds + 1))
  setsid "$longhand" ablate sweep.toml --out killed --jobs 2 --quiet >/dev/null 2>>errors.txt &
  sweep=$!
  # Spread over a time in which an undisturbed sweep would get through two cells at most.
  sleep "$(awk -v r=$RANDOM -v s="$seconds" -v c="$cells" 'BEGIN { print 0.01 + r / 32768 * s / 1000 * 2 / c }')"
  children=
  if [ $((killed % 2)) = 1 ]; then children=$(cat "/proc/$sweep/task/$sweep/children" 2>/dev/null || true); fi
  if kill -KILL "$sweep" 2>/dev/null; then killed=$((killed + 1)); fi
  # shellcheck disable=SC2086
  [ -z "$children" ] || kill -KILL $children 2>/dev/null || true
  if wait "$sweep" 2>/dev/null; then  # it had ended before
    killed=$((killed - 1))
    break
  fi
done
"$longhand" ablate sweep.toml --out killed --jobs 2 --quiet >/dev/null

twice=0
for log in killed/cells/*/log.txt; do
  [ "$(grep -c 'finished after' "$log")" -le 1 ] || twice=$((twice + 1))
done
finished=$(grep -c ',finished,' killed/cells.csv)
attempts=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "attempts") a = i } NR > 1 { s += $a } END { print s }' killed/cells.csv)
equal=yes
cmp -s <(lasting whole) <(lasting killed) || equal=no
total=$(ls -d killed/cells/*/ | wc -l)
echo "$killed kills, $total cells: $finished finished, $((total - finished)) lost, $twice trained twice, $attempts attempts; tables equal: $equal"
[ "$equal" = yes ] && [ "$twice" = 0 ] && [ "$finished" = "$total" ] && [ "$total" = "$cells" ] && [ "$killed" = "$kills" ]
