#!/usr/bin/env bash
# tests/reliability/sweep_errors.sh PATH/TO/longhand [EVERY [FLIPS]]: lets every EVERY-th system call on files
# that the process of a sweep (not its cells) makes fail once with EIO, ENOSPC or EMFILE. The sweep must end, no
# cell may be killed or lost, and `longhand ablate` must then end it with equal tables. Then flips one bit at
# FLIPS random places of each file of a finished sweep: the tables must be equal, or the damage reported, and
# `--repair` must restore the tables, also if it is killed at any of these calls. Needs strace. Prints three
# lines; exits with 1 if anything was lost.
set -euo pipefail
longhand=$(readlink -f "${1:?expected the path of longhand}")
config=$(readlink -f "$(dirname "$0")/../cli/tiny.toml")
every=${2:-1} flips=${3:-40}
command -v strace >/dev/null || { echo "sweep_errors.sh needs strace" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat >sweep.toml <<END
[sweep]
base = "$config"
set = ["train.steps=20", "train.checkpoint_every=5", "train.log_every=5", "train.eval_every=10"]
[[axis]]
attention.type = ["softmax", "linear"]
END
ablate=("$longhand" ablate sweep.toml --jobs 2 --threads 1 --quiet --out)
# Columns up to `parameters`; those after it depend on the machine and on interruptions.
lasting() { sed 's/\(,[^,]*\)\{4\}\r*$//' "$1/cells.csv"; }
"${ablate[@]}" whole >/dev/null

# Not close: strace would leave the file open, and locked, which the kernel never does.
calls=(openat mkdir flock write fsync rename unlink pread64)
strace -o trace.txt -e "trace=$(IFS=,; echo "${calls[*]}")" "${ablate[@]}" run >/dev/null
tried=0 normal=0 reported=0 lost=0
for call in "${calls[@]}"; do
  case $call in openat) errors="EIO EMFILE" ;; write | fsync | rename | mkdir) errors="EIO ENOSPC" ;; *) errors=EIO ;; esac
  count=$(grep -c "^$call(" trace.txt || true)
  for error in $errors; do
    for ((n = 1 + tried % every; n <= count; n += every)); do
      rm -rf run
      tried=$((tried + 1)) code=0 problem=
      timeout 60 strace -o /dev/null -e trace="$call" -e "inject=$call:error=$error:when=$n" "${ablate[@]}" run \
        >/dev/null 2>error.txt || code=$?
      if [ "$code" = 0 ]; then normal=$((normal + 1)); else reported=$((reported + 1)); fi
      if [ "$code" -ge 124 ] && [ "$code" != 127 ]; then problem="exit code $code"; fi
      if [ "$code" != 0 ] && [ ! -s error.txt ]; then problem="no message"; fi
      if grep -qs '"status": "crashed"' run/cells/*/cell.json; then problem="a cell was killed"; fi
      "${ablate[@]}" run >/dev/null 2>again.txt || problem="${problem:-cannot be continued: $(cat again.txt)}"
      for log in run/cells/*/log.txt; do
        [ "$(grep -c 'finished after' "$log")" -le 1 ] || problem="trained twice"
      done
      cmp -s <(lasting whole) <(lasting run) || problem=${problem:-the tables differ}
      if [ -n "$problem" ]; then
        lost=$((lost + 1))
        echo "$call $n $error: $problem: $(tail -1 error.txt)" >&2
      fi
    done
  done
done
echo "$tried errors of the process of a sweep (${calls[*]}; EIO, ENOSPC, EMFILE): $normal sweeps ended normally, $reported with a message and were continued; $lost hung, lost or different"

# The table, the damage that is reported, and whether there is any.
show() { "$longhand" ablate --table csv "$1" 2>&1; }
show whole >expected.txt
flipped=0 noticed=0 unnoticed=0
while read -r file; do
  size=$(stat -c %s "$file")
  for ((i = 0; i < flips; ++i)); do
    rm -rf run
    cp -a whole run
    python3 - "run/${file#whole/}" $((RANDOM * 32768 + RANDOM)) <<'END'
import sys
with open(sys.argv[1], "r+b") as file:
    text = bytearray(file.read())
    place = int(sys.argv[2]) % len(text)
    text[place] ^= 1 << int(sys.argv[2]) // len(text) % 8
    file.seek(0)
    file.write(text)
END
    flipped=$((flipped + 1)) code=0
    show run >shown.txt || code=$?
    if [ "$code" -lt 124 ] && ! cmp -s expected.txt shown.txt && ! grep -qF '[json.' shown.txt &&
      { [ "$code" != 0 ] || grep -qE 'damaged' shown.txt; }; then
      noticed=$((noticed + 1))
      "${ablate[@]}" run --repair >/dev/null 2>&1 || true
      cmp -s <(lasting whole) <(lasting run) || { unnoticed=$((unnoticed + 1)); echo "$file: not repaired" >&2; }
    elif ! cmp -s expected.txt shown.txt; then
      unnoticed=$((unnoticed + 1))
      echo "$file: another table: $(cat shown.txt)" >&2
    fi
  done
done < <(find whole -type f -size +0 ! -name '*.csv' ! -name '*.h5' | sort)
echo "$flipped flipped bits in the files of a sweep: $noticed noticed and repaired, $((flipped - noticed - unnoticed)) without effect, $unnoticed lost"

kills=0 unrepaired=0
for recorded in yes no; do
  damage() {
    rm -rf run
    cp -a whole run
    [ "$recorded" = yes ] || rm run/manifest
    for cell in run/cells/*; do truncate -s 100 "$cell/metrics.jsonl"; done
  }
  damage
  strace -o trace.txt -e trace=mkdir,rename,fsync,write,flock "${ablate[@]}" run --repair >/dev/null
  for call in mkdir rename fsync write flock; do
    count=$(grep -c "^$call(" trace.txt || true)
    for ((n = 1 + kills % every; n <= count; n += every)); do
      damage
      kills=$((kills + 1))
      { strace -o /dev/null -e trace=$call -e "inject=$call:signal=SIGKILL:when=$n" \
        "${ablate[@]}" run --repair >/dev/null || true; } 2>/dev/null
      "${ablate[@]}" run --repair >/dev/null 2>again.txt || true
      "${ablate[@]}" run --repair >/dev/null 2>again.txt || true  # without a manifest, in two steps
      cmp -s <(lasting whole) <(lasting run) || { unrepaired=$((unrepaired + 1)); echo "$call $n: $(cat again.txt)" >&2; }
    done
  done
done
echo "$kills kill points of ablate --repair: $unrepaired not repaired"
[ "$unrepaired" = 0 ] && [ "$lost" = 0 ] && [ "$unnoticed" = 0 ] && [ "$noticed" -gt 0 ]
