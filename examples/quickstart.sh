#!/usr/bin/env bash
# examples/quickstart.sh: installs the required packages (Debian 12 or 13), builds Longhand, trains two attention
# variants on associative recall until they have learned it, evaluates them on the test split, and
# writes a table and a report to runs/quickstart.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
examples/install-packages.sh
build=build/quickstart
mkdir -p build
echo "== build (takes some minutes)"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLONGHAND_BUILD_TESTS=OFF \
  >build/quickstart.log 2>&1 || { cat build/quickstart.log; exit 1; }
cmake --build "$build" --target longhand
longhand=$build/longhand

# Keys and values, then some keys again: recall their values. (MQAR: examples/configs/mqar.toml)
task=(--set data.length=32 --set data.pairs=4 --set data.vocabulary=1024 --set data.test_size=1000)
runs=runs/quickstart
rm -rf "$runs"
for variant in softmax linformer; do
  echo "== train: $variant attention"
  options=()
  # keys and values are projected to 16 slots, half of the tokens
  [ "$variant" = linformer ] && options=(--set attention.k=16)
  "$longhand" train examples/configs/mqar.toml --out "$runs/$variant" "${task[@]}" "${options[@]}" \
    --set "attention.type=$variant" --set train.steps=3000 --set train.eval_every=100
done

echo "== evaluate on the test split"
field() { grep -m 1 -o "\"$1\": *[0-9.e+-]*" | grep -o '[0-9.e+-]*$'; }
{
  printf '%-12s %10s %10s %8s %10s\n' attention loss accuracy steps seconds
  for variant in softmax linformer; do
    result=$("$longhand" evaluate "$runs/$variant" --split test --json --quiet)
    printf '%-12s %10.4f %10.4f %8s %10s\n' "$variant" "$(field loss <<<"$result")" \
      "$(field accuracy <<<"$result")" "$(field step <"$runs/$variant/summary.json")" \
      "$(field seconds <"$runs/$variant/summary.json")"
  done
} | tee "$runs/table.txt"
echo "Accuracy of guessing among the values shown: 0.25."
"$longhand" report "$runs"/{softmax,linformer} -o "$runs/report.html" >/dev/null
echo "Report: $PWD/$runs/report.html"
