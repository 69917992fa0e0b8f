#!/usr/bin/env bash
# tests/reliability/injected_errors.sh PATH/TO/longhand: lets every system call on files of a short run fail
# once with EIO, ENOSPC and EINTR, each in a run of its own. The run must end normally with the same last
# checkpoint, or with an error message and an exit code; then `train --resume` (or `train --out`, if no run
# exists) must end with that checkpoint. Needs strace. Prints one line; exits with 1 if a run crashed, was
# lost or differs.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/short_run.sh"

# Calls before the program itself runs are the system's: its loader opens libraries.
declare -A first
for call in "${calls[@]}"; do first[$call]=1; done
first[openat]=$(($(grep ' openat(' trace.txt | grep -n "$config" | head -1 | cut -d: -f1)))
first[close]=$(($(sed "/$(basename "$config")/q" trace.txt | grep -c ' close(') + 1))

tried=0 survived=0 reported=0 lost=0
for call in "${calls[@]}"; do
  for error in EIO ENOSPC EINTR; do
    for ((n = first[$call]; n <= count[$call]; ++n)); do
      rm -rf run
      tried=$((tried + 1))
      code=0
      strace -f -o /dev/null -e trace="$call" -e "inject=$call:error=$error:when=$n" "${train[@]}" \
        >/dev/null 2>error.txt || code=$?
      problem=
      if [ "$code" = 0 ]; then
        survived=$((survived + 1))
      elif [ "$code" -lt 128 ] && [ -s error.txt ]; then
        reported=$((reported + 1))
        again=("${train[@]}")
        [ -e run/config.toml ] && again=("$longhand" train --resume run --quiet --threads 1)
        "${again[@]}" >/dev/null 2>error.txt || problem="cannot be continued: $(cat error.txt)"
      else
        problem="exit code $code: $(cat error.txt)"
      fi
      cmp -s {whole,run}/checkpoints/last.h5 || problem=${problem:-the last checkpoint differs}
      if [ -n "$problem" ]; then
        lost=$((lost + 1))
        echo "$call $n $error: $problem" >&2
      fi
    done
  done
done
echo "$tried errors (${calls[*]}; EIO, ENOSPC, EINTR): $survived runs ended normally, $reported with a message and were continued; $lost crashed, lost or different"
[ "$lost" = 0 ] && [ "$survived" -gt 0 ] && [ "$reported" -gt 0 ]
