#!/usr/bin/env bash
# tests/reliability/fuzz.sh BUILD [SECONDS [TARGET...]]: changes the inputs of each fuzz target at random for
# 60 seconds, and prints one line a target. A crash, a hang above 20 s or an exception that is not
# Longhand's leaves the input in ./crash-TARGET and exits with 1. Build with the preset asan-ubsan to find more.
set -euo pipefail
build=${1:?expected the build folder} seconds=${2:-60}
shift $(($# < 2 ? $# : 2))
targets=("$@")
[ $# -gt 0 ] || targets=(config sweep listops labelled_text idx hdf5 checkpoint safetensors npz)
status=0
for target in "${targets[@]}"; do
  "$build/tests/fuzz_corpus" --mutate "$seconds" "$target" "$RANDOM" || {
    status=1
    echo "$target: the input is in $PWD/crash-$target"
  }
done
exit $status
