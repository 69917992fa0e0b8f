#!/usr/bin/env bash
# tests/reliability/creation_kill.sh PATH/TO/longhand: kills `longhand train` with SIGKILL at every system
# call on files, from its start to the end of a short run, and then runs it to its end: with --resume
# if config.toml exists, else with --out. Each run must end as one that was not killed. Needs strace.
# Prints one line; exits with 1 if a run was lost.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/short_run.sh"

killed=0 resumed=0 lost=0
for call in "${calls[@]}"; do
  for ((n = 1; n <= count[$call]; ++n)); do
    rm -rf run
    (strace -f -o /dev/null -e trace="$call" -e "inject=$call:signal=KILL:when=$n" "${train[@]}" ||
      true) >/dev/null 2>&1
    killed=$((killed + 1))
    if [ -e run/config.toml ]; then
      resumed=$((resumed + 1))
      again=("$longhand" train --resume run --quiet --threads 1)
    else
      again=("${train[@]}")
    fi
    if ! "${again[@]}" >/dev/null 2>error.txt || ! cmp -s {whole,run}/checkpoints/last.h5 ||
      [ -n "$(find run -name '.tmp-*')" ]; then
      lost=$((lost + 1))
      echo "lost at $call $n: $(cat error.txt)" >&2
    fi
  done
done
echo "$killed kill points (${calls[*]}): $resumed resumed, $((killed - resumed)) created again, $lost lost"
[ "$lost" = 0 ] && [ "$resumed" -gt 0 ] && [ "$resumed" -lt "$killed" ]
