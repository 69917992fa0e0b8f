#!/usr/bin/env bash
# tests/reliability/afl.sh [SECONDS [TARGET...]]: the fuzz targets under afl++ (package afl++), each for 60 seconds,
# in build/afl, where the library is built with its instrumentation. Prints one line a target; what was found is
# in build/afl/found/TARGET, and inputs that crash or hang (above 20 s) make it exit with 1.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift $(($# < 1 ? $# : 1))
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(sed -n 's/^ *TARGET(\([a-z_0-9]*\),.*/\1/p' tests/reliability/fuzz/fuzz.h)
command -v afl-fuzz afl-clang-fast++ > /dev/null || {
  echo "afl.sh needs afl-fuzz and afl-clang-fast++: apt-get install afl++ clang" >&2
  exit 1
}
build=build/afl
# No log of afl++'s compiler among that of ours, and no complaint about how this machine writes core files or
# sets the speed of its processor.
export AFL_QUIET=1 AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES=1 AFL_SKIP_CPUFREQ=1 AFL_NO_UI=1 AFL_NO_AFFINITY=1
CC=afl-clang-fast CXX=afl-clang-fast++ cmake -G Ninja -B "$build" -DCMAKE_BUILD_TYPE=Release -DLONGHAND_BUILD_TESTS=ON \
  -DLONGHAND_BUILD_FUZZERS=ON > /dev/null
cmake --build "$build" --target fuzz_corpus "${targets[@]/#/fuzz_}" > "$build/build.log" ||
  { tail -20 "$build/build.log"; exit 1; }
rm -rf "$build/corpora" "$build/found"
"$build/tests/fuzz_corpus" --write "$build/corpora"
mkdir -p "$build/found"
status=0
for target in "${targets[@]}"; do
  afl-fuzz -V "$seconds" -t 20000 -m none -i "$build/corpora/$target" -o "$build/found/$target" \
    -- "$build/tests/fuzz_$target" > "$build/found/$target.log" 2>&1 ||
    { tail -20 "$build/found/$target.log"; exit 1; }
  value() { sed -n "s/^$1 *: *//p" "$build/found/$target/default/fuzzer_stats"; }
  crashes=$(value saved_crashes) hangs=$(value saved_hangs)
  printf '%-14s %10s inputs, %5s in the corpus, %s crashes, %s hangs\n' "$target" "$(value execs_done)" \
    "$(value corpus_count)" "$crashes" "$hangs"
  [ "$crashes$hangs" = 00 ] || status=1
done
exit $status
