#!/usr/bin/env bash
# train.sh PROGRAM CASE: trains on several processes, and compares with one.
#   bits     the checkpoint of 1, 2, 4 and 8 ranks of 1 and 2 threads
#   restart  stopped and resumed on other numbers of ranks
#   kill     a rank is killed: the job ends, and its last checkpoint is continued with the same bits
#   stop     a rank is stopped: a warning names it; it continues, and the bits are the same
#   errors   what is refused, and how
# PROGRAM is longhand-mpi. VARIANT (performer), OPTIONS (further assignments), RUNS (number of stops or kills)
# and SEED may be set for longer runs by hand.
set -euo pipefail
program=$1
here=$(dirname "$(readlink -f "$0")")
mpirun=$here/mpirun.sh
config=$here/../../examples/configs/mqar.toml
variant=${VARIANT:-performer}
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
RANDOM=${SEED:-1}

fail() { echo "train.sh: $*" >&2; exit 1; }

# What all runs have in common; further assignments follow.
set_options() {
  echo --set "attention.type=$variant" train.shards=8 train.batch_size=16 model.dropout=0.1 \
    model.d_model=32 model.heads=2 model.layers=2 model.vocabulary=128 data.vocabulary=128 data.length=64 data.pairs=4 \
    data.train_size=256 data.validation_size=64 ${OPTIONS:-} "$@"
}

# train RANKS DIRECTORY ARGUMENT...
train() {
  local ranks=$1 out=$2
  shift 2
  "$mpirun" "$ranks" "$program" train "$@" --threads "${threads:-1}" --quiet >"$runs/log" 2>&1
}

hash() { md5sum <"$runs/$1/checkpoints/last.h5"; }

bits() {
  "$program" train "$config" --out "$runs/one" --threads 1 --quiet >/dev/null \
    $(set_options train.steps=8 train.eval_every=4)
  for ranks in 1 2 4 8; do
    for threads in 1 2; do
      train "$ranks" "$runs/x" "$config" --out "$runs/x" --overwrite $(set_options train.steps=8 train.eval_every=4) \
        || { cat "$runs/log"; fail "$ranks ranks of $threads threads failed"; }
      [ "$(hash x)" = "$(hash one)" ] || fail "$variant: $ranks ranks of $threads threads give other bits"
    done
  done
  echo "$variant: one hash over ranks 1, 2, 4, 8 and threads 1, 2: $(hash one)"
}

restart() {
  local stops=${RUNS:-3} ranks stopped=0
  local steps=$((50 * stops + 100))
  "$program" train "$config" --out "$runs/one" --threads 2 --quiet >/dev/null $(set_options train.steps=$steps)
  local arguments=("$config" --out "$runs/x" $(set_options train.steps=$steps))
  while :; do
    ranks=$((1 << RANDOM % 4))
    if [ $stopped -lt "$stops" ]; then
      "$mpirun" "$ranks" "$program" train "${arguments[@]}" --threads 1 --quiet >"$runs/log" 2>&1 &
      wait_for_steps $((10 + RANDOM % 20))
      kill -USR2 $! 2>/dev/null || true
      local status=0
      wait $! || status=$?
      [ $status = 75 ] || [ $status = 0 ] || { cat "$runs/log"; fail "$ranks ranks ended with $status, expected 75"; }
      [ $status = 0 ] && break
      stopped=$((stopped + 1))
    else
      train "$ranks" x "${arguments[@]}" || { cat "$runs/log"; fail "$ranks ranks failed"; }
      break
    fi
    [ -e "$runs/x/checkpoints/last.h5" ] && arguments=(--resume "$runs/x")
  done
  [ "$(hash x)" = "$(hash one)" ] || fail "after $stopped stops: other bits"
  echo "$variant: $stopped stops, the same bits"
}

recorded() { grep -c '' "$runs/x/metrics.jsonl" 2>/dev/null || true; }

# Waits until the run in $runs/x has recorded so many lines of metrics more than it has now.
wait_for_steps() {
  local before now
  before=$(recorded)
  before=${before:-0}
  for _ in $(seq 200); do
    now=$(recorded)
    [ "${now:-0}" -gt "$before" ] && break
    sleep 0.02
  done
  sleep "0.$(printf %02d "$1")"
}

kill_rank() {
  local kills=${RUNS:-3} begin end victim status
  local steps=$((50 * kills + 50))
  local options
  options=$(set_options train.steps=$steps train.checkpoint_every=7)
  "$program" train "$config" --out "$runs/one" --threads 2 --quiet >/dev/null $options
  local arguments=("$config" --out "$runs/x" $options)
  for ((i = 0; i < kills; ++i)); do
    "$mpirun" 4 "$program" train "${arguments[@]}" --threads 1 --quiet >"$runs/log" 2>&1 &
    wait_for_steps $((RANDOM % 50))
    victim=$(pgrep -f "^$program train .*$runs/x" | sed -n "$((1 + RANDOM % 4))p" || true)
    [ -n "$victim" ] || { wait $! || true; break; }
    kill -9 "$victim" || true
    begin=$(date +%s%N)
    status=0
    wait $! || status=$?
    end=$(date +%s%N)
    [ $status != 0 ] || break  # it had finished
    [ $((end - begin)) -lt 10000000000 ] || fail "the job ended $(((end - begin) / 1000000)) ms after a rank"
    slowest=$((${slowest:-0} > end - begin ? ${slowest:-0} : end - begin))
    if [ -e "$runs/x/checkpoints/last.h5" ]; then
      "$program" checkpoint verify "$runs/x/checkpoints/last.h5" >/dev/null || fail "an invalid checkpoint"
      arguments=(--resume "$runs/x")
    fi
  done
  if [ -e "$runs/x/checkpoints/last.h5" ]; then arguments=(--resume "$runs/x"); fi
  train 2 x "${arguments[@]}" || { cat "$runs/log"; fail "the continuation failed"; }
  [ "$(hash x)" = "$(hash one)" ] || fail "after a rank was killed: other bits"
  echo "$variant: $i kills, the job ended within $((${slowest:-0} / 1000000)) ms, the same bits"
}

warnings() { grep -c "^longhand: warning: rank $1 on .* has not joined" "$runs/log" || true; }

stop_rank() {
  local options victim others rank ranks=(0 2) steps=200  # it must not end before it is stopped
  options=$(set_options train.steps=$steps)
  "$program" train "$config" --out "$runs/one" --threads 2 --quiet >/dev/null $options
  for stopped in ${ranks[@]}; do
    rm -rf "$runs/x"
    LONGHAND_LATE_SECONDS=0.4 "$mpirun" 4 "$program" train "$config" --out "$runs/x" $options --threads 1 --quiet \
      >"$runs/log" 2>&1 &
    wait_for_steps 0
    # All are stopped while one is looked for: on a busy machine that takes seconds.
    others=$(pgrep -f "^$program train .*$runs/x")
    kill -STOP $others
    for victim in $others; do
      rank=$(tr '\0' '\n' <"/proc/$victim/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
      [ "$rank" = "$stopped" ] && break
    done
    [ "$rank" = "$stopped" ] || fail "rank $stopped was not found"
    kill -CONT $(grep -vx "$victim" <<<"$others")
    for _ in $(seq 200); do
      [ "$(warnings "$stopped")" -ge 2 ] && break
      sleep 0.05
    done
    kill -CONT "$victim"
    wait $! || { cat "$runs/log"; fail "the run failed after rank $stopped was stopped"; }
    # On a busy machine others may be late as well, but not as often.
    for rank in 0 1 2 3; do
      [ "$rank" = "$stopped" ] || [ "$(warnings "$rank")" -lt "$(warnings "$stopped")" ] ||
        { cat "$runs/log"; fail "expected warnings about rank $stopped, not $rank"; }
    done
    [ "$(hash x)" = "$(hash one)" ] || fail "after rank $stopped was stopped: other bits"
  done
  echo "stopped ranks are named, and the bits are the same"
}

# refused RANKS STATUS TEXT ARGUMENT...
refused() {
  local ranks=$1 status=$2 text=$3 found=0
  shift 3
  "$mpirun" "$ranks" "$@" >"$runs/log" 2>&1 || found=$?
  grep -qF -- "$text" "$runs/log" || { cat "$runs/log"; fail "expected: $text"; }
  [ $found = "$status" ] || fail "$*: ended with $found, expected $status"
  [ "$(grep -c '^longhand: [^w]' "$runs/log")" = 1 ] || [ "$ranks" = 1 ] || { cat "$runs/log"; fail "expected one message"; }
}

errors() {
  refused 3 2 "train.shards = 8: 3 ranks cannot divide that many parts of a batch; start 1, 2, 4 or 8 ranks" \
    "$program" train "$config" --out "$runs/x" --quiet $(set_options)
  refused 2 2 "train.shards = 5: expected a power of two" \
    "$program" train "$config" --out "$runs/x" --quiet $(set_options train.shards=5)
  [ ! -e "$runs/x" ] || fail "a refused run left a directory"
  refused 2 2 "was started as one of 2 processes, but runs in a single one" "$program" variants
  refused 2 3 "no_such_file" "$program" train "$config" --out "$runs/x" --quiet \
    --set data.task=tokens data.path=no_such_file
  # Ranks that would compute other bits.
  local arguments=("$program" train "$config" --out "$runs/x" --quiet $(set_options)) found=0
  "$mpirun" 2 bash -c \
    '[ "$OMPI_COMM_WORLD_RANK" = 0 ] && kernels=Haswell || kernels=Prescott; LONGHAND_ISA=baseline OPENBLAS_CORETYPE=$kernels exec "$@"' \
    -- "${arguments[@]}" >"$runs/log" 2>&1 || found=$?
  grep -q "rank 1 on .* has the backend OpenBLAS .*, but rank 0 on .* has OpenBLAS " "$runs/log" ||
    { cat "$runs/log"; fail "expected a message about the backend"; }
  [ $found = 2 ] && [ ! -e "$runs/x" ] || fail "ranks of different backends ended with $found"
  echo "errors are reported once, by the first rank"
}

case $2 in
  bits | restart | errors) $2 ;;
  kill) kill_rank ;;
  stop) stop_rank ;;
  *) fail "$2: expected bits, restart, kill, stop or errors" ;;
esac
