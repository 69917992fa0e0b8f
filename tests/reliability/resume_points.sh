#!/usr/bin/env bash
# tests/reliability/resume_points.sh PATH/TO/longhand [STEPS]: trains every attention variant from `longhand config
# init` for 10 steps, and resumes it from each step, with 1, 2 and 3 threads. The last
# checkpoint must equal that of the undisturbed run in every byte. Then trains one model 20 times with 1
# to 4 threads: the hashes of the parameters after each step must be equal. Prints two lines; exits
# with 1 if anything differs.
set -euo pipefail
longhand=$(readlink -f "${1:?expected the path of longhand}")
here=$(dirname "$(readlink -f "$0")")
steps=${2:-10}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

points=0 different=0 variants=0 bytes=0
for name in $(sed -n 's/^VARIANT(\(.*\))$/\1/p' "$here/../../attention/variants.def"); do
  variants=$((variants + 1))
  # The sizes of examples/configs/variants.toml.
  "$longhand" config init mqar "$name" --quiet -o "$name.toml" --set model.d_model=32 model.heads=2 model.layers=2 \
    model.d_mlp=64 model.dropout=0.1 data.length=64 data.pairs=4 data.vocabulary=256 data.train_size=10000 \
    data.validation_size=100 data.test_size=100
  "$longhand" train "$name.toml" --quiet --threads 2 --out "$name" --set "train.steps=$steps" train.batch_size=16 \
    train.micro_batches=2 train.log_every=1 train.eval_every=4 train.keep_every=1 >/dev/null
  whole=$name/checkpoints/last.h5
  bytes=$((bytes + $(stat -c %s "$whole")))
  for ((step = 1; step < steps; ++step)); do
    for threads in 1 2 3; do
      rm -rf run
      cp -r "$name" run
      # The newest valid checkpoint is the one to continue from.
      for ((later = step + 1; later <= steps; ++later)); do
        rm -f "$(printf 'run/checkpoints/step-%08d.h5' "$later")"
      done
      rm -f run/checkpoints/{last,previous,best}.h5
      before=$("$longhand" train --resume run --threads "$threads" 2>&1 >/dev/null |
        sed -nE 's/^resuming after step ([0-9]+)$/\1/p')
      points=$((points + 1))
      if [ "$before" != "$step" ] || ! cmp -s "$whole" run/checkpoints/last.h5; then
        different=$((different + 1))
        echo "$name: resumed after step ${before:-none} (expected $step) with $threads threads: differs" >&2
      fi
    done
  done
done
echo "$points resumed runs ($variants variants, $((steps - 1)) steps, 3 numbers of threads): $different differ in any byte of the last checkpoint"

for ((i = 0; i < 20; ++i)); do
  "$longhand" train "$here/../cli/tiny.toml" --quiet --threads $((1 + i % 4)) --out "same-$i" \
    --set train.hash_every=1 model.dropout=0.1 'attention.type="performer"' >/dev/null
  grep -o '"hash":"[^"]*"' "same-$i/metrics.jsonl" >"hashes-$i"
done
[ -s hashes-0 ] || { echo "no hashes in metrics.jsonl" >&2; exit 1; }
distinct=$(sha256sum hashes-* | cut -d' ' -f1 | sort -u | wc -l)
echo "20 runs with 1 to 4 threads, $(wc -l <hashes-0) hashes each: $distinct distinct"
[ "$different" = 0 ] && [ "$distinct" = 1 ]
