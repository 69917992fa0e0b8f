#!/usr/bin/env bash
# tests/reliability/soak.sh PATH/TO/longhand [SAVES [RESUMES [SEED]]]: interrupts runs by random signals at
# random moments, damages their files in between, and lets system calls fail (if strace is installed),
# until they have been saved 10,000 times and resumed 1,000 times. Each run must end with the checkpoint,
# the metrics and the hashes of the parameters of one that was not interrupted. Prints one line; exits
# with 1 if a run was lost or differs.
set -euo pipefail
longhand=$(readlink -f "${1:?expected the path of longhand}")
config=$(dirname "$(readlink -f "$0")")/../cli/tiny.toml
saves_wanted=${2:-10000} resumes_wanted=${3:-1000}
RANDOM=${4:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
steps=1000
train=("$longhand" train "$config" --set "train.steps=$steps" train.checkpoint_every=1
  train.keep_every=300 train.eval_every=100 train.log_every=7 train.hash_every=10)
"${train[@]}" --threads 1 --quiet --out whole >/dev/null

# What does not depend on the clock and the machine.
lasting() { sed -E 's/,"(tokens_per_second|peak_memory_bytes|seconds)":[^,}]*//g' "$1/metrics.jsonl"; }

flip() {  # a byte of a file
  local size at byte
  size=$(stat -c %s "$1")
  at=$(((RANDOM * 32768 + RANDOM) % size))
  byte=$(od -An -tu1 -j "$at" -N 1 "$1")
  printf "\\x$(printf %02x $((byte ^ (1 << RANDOM % 8))))" |
    dd of="$1" bs=1 seek="$at" conv=notrunc status=none
}

exec 3>&2 2>/dev/null  # the shell reports every process that a signal ends
declare -A count=([KILL]=0 [TERM]=0 [INT]=0 [HUP]=0 [USR1]=0 [flip]=0 [cut]=0 [delete]=0 [garbage]=0 [error]=0)
saves=0 resumes=0 runs=0 lost=0 fallbacks=0 early=0 step=0
signals=(KILL KILL TERM INT HUP USR1)
while [ "$saves" -lt "$saves_wanted" ] || [ "$resumes" -lt "$resumes_wanted" ]; do
  if [ -e run/config.toml ]; then
    command=("$longhand" train --resume run)
    resumes=$((resumes + 1))
  else
    rm -rf run
    step=0
    command=("${train[@]}" --out run)
  fi
  command+=(--threads $((1 + RANDOM % 2)))
  signal=${signals[RANDOM % ${#signals[@]}]}
  fails=$((RANDOM % 10 == 0))
  if [ "$fails" = 1 ] && command -v strace >/dev/null; then
    calls=(write fsync rename openat link) errors=(EIO ENOSPC EINTR EDQUOT)
    inject=${calls[RANDOM % 5]}:error=${errors[RANDOM % 4]}:when=$((1 + RANDOM % 150))
    command=(strace -f -o /dev/null -e "inject=$inject" "${command[@]}")
    signal=KILL  # for strace and the program
    count[error]=$((count[error] + 1))
  else
    fails=0
  fi
  setsid "${command[@]}" >/dev/null 2>log.txt &
  process=$!
  sleep "0.$(printf %03d $((RANDOM % 150)))"
  # One that saves on request is killed a little later.
  if kill -s "$signal" -- "-$process" 2>/dev/null; then count[$signal]=$((count[$signal] + 1)); fi
  if [ "$signal" = USR1 ]; then
    sleep 0.02
    kill -s KILL -- "-$process" 2>/dev/null || true
  fi
  code=0
  wait "$process" 2>/dev/null || code=$?
  case $code in
    0 | 75 | 137) ;;  # finished, stopped, killed
    129 | 130 | 138 | 143) early=$((early + 1)) ;;  # while the system loaded the program
    *) if [ "$fails" = 0 ]; then
         lost=$((lost + 1))
         echo "exit code $code: $(tail -n 3 log.txt)" >&3
         rm -rf run
         continue
       fi ;;
  esac
  before=$(sed -nE 's/^resuming after step ([0-9]+)$/\1/p' log.txt)
  [ "${before:-0}" -gt "$step" ] && saves=$((saves + before - step))
  step=${before:-$step}
  if grep -q 'continuing from' log.txt; then fallbacks=$((fallbacks + 1)); fi
  if [ "$code" = 0 ]; then
    runs=$((runs + 1))
    saves=$((saves + steps - step))
    if ! cmp -s {whole,run}/checkpoints/last.h5 || ! cmp -s <(lasting whole) <(lasting run); then
      lost=$((lost + 1))
      echo "run $runs differs from one without interruptions" >&3
      rm -rf kept && mv run kept
    fi
    rm -rf run
    continue
  fi
  last=run/checkpoints/last.h5
  if [ -s $last ] && [ -s run/checkpoints/previous.h5 ]; then
    case $((RANDOM % 12)) in
      0) flip $last && count[flip]=$((count[flip] + 1)) ;;
      1) truncate -s "-$((1 + RANDOM % 1000))" $last && count[cut]=$((count[cut] + 1)) ;;
      2) rm $last && count[delete]=$((count[delete] + 1)) ;;
      3) printf '{"step":1,"spl' >>run/metrics.jsonl && count[garbage]=$((count[garbage] + 1)) ;;
    esac
  fi
done
text=
for name in KILL TERM INT HUP USR1 flip cut delete garbage error; do text+=" $name ${count[$name]}"; done
echo "$saves saves, $resumes resumes, $runs runs to their end;$text; $fallbacks fallbacks, $early signals before main; $lost lost or different"
[ "$lost" = 0 ]
