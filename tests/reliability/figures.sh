#!/usr/bin/env bash
# tests/reliability/figures.sh BUILD [FAULTS]: the long forms of tests of the suite. Each prints one line with
# what was tried; exits with 1 if anything was lost.
#   faults   100 faults that make a training step bad (NaN, Inf and huge numbers in weights, embeddings,
#            results of operations and gradients, under six variants): replay() must name the operation, the
#            layer and the pass of each
#   memory   operator new fails at every call of save, load, resume and a training step
#   power    every prefix of the system calls of saves, and of sweeps and merges, with what was not synced
#            lost, cut off or zeroed
set -euo pipefail
build=${1:?expected the build folder}
show() { grep -E "^[0-9]+ |^operator new |FAILED|passed|failed"; }
LONGHAND_FAULTS=${2:-100} "$build/tests/test_train" "replay of many faults" | show
"$build/tests/test_reliability" "operator new fails at every call" | show
"$build/tests/test_reliability" "power cuts *" | show
