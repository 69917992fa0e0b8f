#!/usr/bin/env bash
# examples/quickstart.sh: installs the required packages (Debian 12 or 13), builds Longhand, compares six
# attention variants on associative recall with five seeds each (examples/sweeps/quickstart.toml), and
# writes a report to runs/quickstart. Stopped or killed, it continues where it was when run again.
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

runs=runs/quickstart
echo "== compare six attention variants"
"$longhand" ablate examples/sweeps/quickstart.toml --out "$runs" --jobs 2
echo "== shortcut baselines: what the task allows without attention"
"$longhand" analyse heuristics mqar --set data.length=32 --set data.pairs=4 \
  --set data.vocabulary=64 --quiet -o "$runs/heuristics.json" >/dev/null
"$longhand" report "$runs" "$runs/heuristics.json" -o "$runs/report.html" >/dev/null
echo "Report: $PWD/$runs/report.html"
