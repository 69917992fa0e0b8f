#!/usr/bin/env bash
# tests/reliability/sweep_faults.sh PATH/TO/longhand MODE [STRIDE]: disturbs tiny sweeps of two cells in every way,
# then runs each again without disturbance: it must end with the tables of an undisturbed one, without
# temporary files, and no report may show a run in between that there is not. With STRIDE, every
# STRIDE-th case is tried. Prints one line per kind; exits with 1 if anything was lost. MODE is one of
#   kill     SIGKILL at each system call on files: of the sweep alone, of the sweep and its cells, of one of two
#            sweeps that share a directory, and of a merge
#   errors   each of these calls fails once, with EIO, ENOSPC or EMFILE
#   flips    one bit of each byte of a finished sweep is flipped: it is reported, or the tables are the same
#   full     disks of 8 KiB to 1 MiB (needs root)
#   limits   every limit of ulimit, with a watchdog of 30 s
# All but flips and limits need strace.
set -euo pipefail
longhand=$(readlink -f "${1:?expected the path of longhand}")
config=$(readlink -f "$(dirname "$0")/../cli/tiny.toml")
mode=${2:?expected kill, errors, flips, full or limits} stride=${3:-1}
folder=$(mktemp -d)
trap 'cd /; mountpoint -q "$folder/disk" && umount "$folder/disk"; rm -rf "$folder"' EXIT
cd "$folder"
cat >sweep.toml <<END
[sweep]
base = "$config"
set = ["train.steps=4", "train.eval_every=2", "train.checkpoint_every=2"]
[[axis]]
attention.type = ["softmax", "linear"]
END
sweep=("$longhand" ablate sweep.toml --quiet --threads 1)
calls=(openat mkdir flock write fsync close link unlink rename renameat2 sendfile)

# The columns of cells.csv that do not depend on the machine and on interruptions.
lasting() { sed 's/\(,[^,]*\)\{4\}\r*$//' "$1/cells.csv"; }

"${sweep[@]}" --out whole >/dev/null
for shard in 1 2; do "${sweep[@]}" --out "shard$shard" --shard "$shard/2" >/dev/null; done

tried=0 lost=0
problem() {
  lost=$((lost + 1))
  echo "$*: $(tail -n 3 error.txt)" >&2
}
# again NAME WORDS...: counts a case; runs the sweep ./$out again, with these words, and compares.
out=out
again() {
  local name=$1 runs code=0
  shift
  tried=$((tried + 1))
  if [ -d "$out/cells" ] && "$longhand" report "$out" --csv >report.csv 2>/dev/null; then
    runs=$(tail -n +2 report.csv | wc -l)
    [ "$runs" -le 2 ] || problem "$name: the report has $runs runs"
  fi
  "${sweep[@]}" --out "$out" "$@" >/dev/null 2>error.txt || code=$?
  if [ "$code" != 0 ]; then
    problem "$name: exit code $code"
  elif ! cmp -s <(lasting whole) <(lasting "$out"); then
    problem "$name: the tables differ"
  elif [ -n "$(find "$out" -name '.tmp-*')" ]; then
    problem "$name: $(find "$out" -name '.tmp-*')"
  fi
}
total() {
  echo "$1: $tried cases, $lost lost${2:-}"
  all_lost=$((${all_lost:-0} + lost))
  tried=0 lost=0
}

# each_call FLAGS FUNCTION WORDS...: FUNCTION CALL NUMBER for each call of "${sweep[@]} --out out WORDS...".
# FLAGS of strace: with -f those of its cells, too, in which the same numbers are meant.
each_call() {
  local flags=$1 function=$2 call n first last
  shift 2
  rm -rf out
  # shellcheck disable=SC2086
  strace $flags -o trace.txt -e "trace=$(IFS=,; echo "${calls[*]}")" "${sweep[@]}" --out out "$@" >/dev/null
  # One list for each process; the program begins with reading its sweep, after libraries.
  [ -z "$flags" ] && sed -i 's/^/0 /' trace.txt
  for call in "${calls[@]}"; do
    first=$(awk -v call="$call(" '/sweep.toml|cell.toml|cells\// { exit } index($2, call) == 1 { ++n } END { print n + 1 }' trace.txt)
    last=$(awk -v call="$call(" 'index($2, call) == 1 { if (++n[$1] > m) m = n[$1] } END { print m + 0 }' trace.txt)
    for ((n = first; n <= last; n += stride)); do
      rm -rf out
      "$function" "$flags" "$call" "$n" "$@"
    done
  done
}
inject() {  # FLAGS CALL WHAT NUMBER WORDS...
  local flags=$1 call=$2 what=$3 n=$4
  shift 4
  # shellcheck disable=SC2086
  strace $flags -o /dev/null -e "trace=$call" -e "inject=$call:$what:when=$n" "${sweep[@]}" --out out "$@" >/dev/null 2>error.txt
}

kill_at() {
  local flags=$1 call=$2 n=$3
  shift 3
  (inject "$flags" "$call" signal=KILL "$n" "$@" || true) 2>/dev/null
  again "killed at $call $n${flags:+ of each process} $*" "$@"
}
kill_one_of_two() {
  local call=$2 n=$3 other code=0
  "${sweep[@]}" --out out >/dev/null 2>other.txt &
  other=$!
  (inject "" "$call" signal=KILL "$n" || true) 2>/dev/null
  wait "$other" || code=$?
  [ "$code" = 0 ] || { cp other.txt error.txt; problem "the other of two, of which one was killed at $call $n: exit code $code"; }
  again "one of two killed at $call $n"
}
fail_at() {
  local flags=$1 call=$2 n=$3 error code
  shift 3
  for error in EIO ENOSPC EMFILE; do
    [ "$error" != EMFILE ] || [ "$call" = openat ] || continue
    rm -rf out
    code=0
    inject "$flags" "$call" "error=$error" "$n" "$@" || code=$?
    if [ "$code" -ge 128 ] || { [ "$code" != 0 ] && [ ! -s error.txt ]; }; then
      problem "$error at $call $n: exit code $code"
    fi
    [ "$code" = 0 ] && survived=$((survived + 1))
    again "$error at $call $n${flags:+ of each process} $*" "$@"
  done
}

case $mode in
  kill)
    each_call "" kill_at
    total "kill, the sweep"
    each_call -f kill_at
    total "kill, the sweep and its cells"
    each_call "" kill_one_of_two
    total "kill, one of two sweeps in one directory"
    each_call "" kill_at --merge shard1,shard2
    total "kill, a merge"
    ;;
  errors)
    survived=0
    each_call "" fail_at
    total "errors, in the sweep" ", $survived ended normally"
    survived=0
    each_call -f fail_at
    total "errors, in the sweep and its cells" ", $survived ended normally"
    survived=0
    each_call "" fail_at --merge shard1,shard2
    total "errors, in a merge" ", $survived ended normally"
    ;;
  flips)
    table() { "$longhand" ablate --table csv "$1" 2>error.txt; }
    cp -r whole out
    table out >expected.csv
    detected=0
    while IFS= read -r file; do
      size=$(stat -c %s "out/$file")
      for ((at = 0; at < size; at += stride)); do
        byte=$(od -An -tu1 -j "$at" -N 1 "whole/$file")
        printf "\\x$(printf %02x $((byte ^ (1 << (at / stride + at) % 8))))" |
          dd of="out/$file" bs=1 seek="$at" conv=notrunc status=none
        tried=$((tried + 1))
        code=0
        table out >table.csv || code=$?
        if [ "$code" = 0 ] && ! cmp -s table.csv expected.csv; then
          if "$longhand" ablate --status out 2>/dev/null | grep -q damaged; then code=1; else problem "$file, byte $at: the table differs"; fi
        elif [ "$code" -ge 128 ] || { [ "$code" != 0 ] && [ ! -s error.txt ]; } || grep -q 'json.exception' error.txt; then
          problem "$file, byte $at: exit code $code"
        fi
        [ "$code" = 0 ] || detected=$((detected + 1))
      done
      cp "whole/$file" "out/$file"
    done < <(cd whole && find . -type f ! -name '*.h5' ! -name log.txt ! -name lock ! -name 'cell*.csv' ! -name 'results.*')
    total "flips" ", $detected noticed, the others without effect"
    ;;
  full)
    mkdir disk
    out=disk/out
    stopped=0
    for ((size = 8; size <= 1024; size += 8 * stride)); do
      mount -t tmpfs -o "size=${size}k" tmpfs disk
      code=0
      "${sweep[@]}" --out "$out" >/dev/null 2>error.txt || code=$?
      [ "$code" = 0 ] || stopped=$((stopped + 1))
      if [ "$code" -ge 128 ] || { [ "$code" != 0 ] && [ ! -s error.txt ]; }; then problem "$size KiB: exit code $code"; fi
      mount -o remount,size=16m disk
      again "disk of $size KiB"
      umount disk
    done
    total "full disks" ", $stopped were full"
    ;;
  limits)
    hung=0
    while read -r flag values; do
      for value in $values; do
        rm -rf out
        SECONDS=0
        code=0
        (ulimit "-$flag" "$value" && exec timeout --signal=KILL 30 "${sweep[@]}" --out out) >/dev/null 2>error.txt || code=$?
        if [ "$SECONDS" -ge 30 ]; then
          hung=$((hung + 1))
          problem "ulimit -$flag $value: hung"
        fi
        again "ulimit -$flag $value (exit code $code)"
      done
    done <<END
v $(seq -s ' ' 20000 $((20000 * stride)) 400000) 800000 1600000
d $(seq -s ' ' 10000 $((30000 * stride)) 200000)
n $(seq -s ' ' 3 "$stride" 20) 30 50
f 0 1 2 3 4 8 16 32 64 128
s 64 128 256 512 1024
u 0 1 2 4 8 16
t 0 1
l 0 64
c 0
i 0 1
q 0
e 0
r 0
x 0 1
END
    total "limits" ", $hung hung"
    ;;
  *)
    echo "expected kill, errors, flips, full or limits, not $mode" >&2
    exit 2
    ;;
esac
[ "$all_lost" = 0 ]
