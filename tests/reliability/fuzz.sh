#!/usr/bin/env bash
# tests/reliability/fuzz.sh BUILD [SECONDS [TARGET...]]: changes the inputs of each fuzz target at random for
# 60 seconds, and prints one line per target. A crash, a hang, a report of a sanitizer or an exception that is
# not Longhand's leaves the input in a file that is named, and makes the script exit with 1.
#
# With the preset fuzz (libFuzzer, sanitizers, coverage), corpora are kept in the folder $CORPORA, by default
# BUILD/corpora. The next call continues from them, and prints the totals of all calls and the share of the
# branches in the parser's sources that the corpus reaches. With 0 seconds it only does the latter.
set -euo pipefail
build=${1:?expected the build folder} seconds=${2:-60}
shift $(($# < 2 ? $# : 2))
source=$(cd "$(dirname "$0")/../.." && pwd)
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(sed -n 's/^ *TARGET(\([a-z_0-9]*\),.*/\1/p' "$source/tests/reliability/fuzz/fuzz.h")
corpora=${CORPORA:-$build/corpora}
export LLVM_PROFILE_FILE=/dev/null UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$source/tests/lsan.supp:print_suppressions=0

sources() {  # of the parser of a target
  case $1 in
    config) echo train/config/toml.cpp train/config/config.cpp core/options.cpp ;;
    assignments) echo train/config/toml.cpp train/config/config.cpp ;;
    sweep) echo train/lab/sweep.cpp ;;
    listops) echo data/listops.cpp data/lines.cpp ;;
    labelled_text) echo data/tasks/text_classification.cpp data/lines.cpp ;;
    csv | jsonl) echo data/records.cpp data/record_files.cpp data/token_lines.cpp ;;
    idx) echo data/tasks/pixels.cpp ;;
    hdf5) echo data/hdf5.cpp data/tasks/tokens.cpp ;;
    checkpoint) echo train/checkpoint/checkpoint.cpp data/hdf5.cpp data/trailer.cpp ;;
    safetensors) echo train/checkpoint/safetensors.cpp train/checkpoint/tensor_file.cpp ;;
    npz) echo train/checkpoint/npz.cpp train/checkpoint/tensor_file.cpp ;;
    text) echo data/tasks/text_lm.cpp ;;
    drop_in_grid) echo train/lab/drop_in_grid.cpp ;;
    metrics | summary) echo train/run/run_record.cpp train/results/codec.h train/results/json.cpp ;;
    cell) echo train/lab/cell.cpp train/results/codec.h train/results/json.cpp ;;
    results) echo train/results/table.cpp train/results/codec.h ;;
    bench_results) echo train/cost/forecast.cpp ;;
    plugins) echo train/plugin/load_plugin.cpp ;;
    *) echo "fuzz.sh: no sources of $1" >&2; return 1 ;;
  esac
}

branches() {
  LLVM_PROFILE_FILE=$corpora/$1.profraw "$build/tests/fuzz_$1" -runs=0 "$corpora/$1" > /dev/null 2>&1
  llvm-profdata-14 merge -sparse "$corpora/$1.profraw" -o "$corpora/$1.profdata"
  # shellcheck disable=SC2046
  llvm-cov-14 report "$build/tests/fuzz_$1" -instr-profile "$corpora/$1.profdata" -show-functions \
    $(sources "$1" | sed "s|[^ ]*|$source/&|g") | awk '
    NF == 10 && $1 !~ /^(Name|TOTAL)$/ { ++all; if ($6 < $5) { ++entered; branches += $8; missed += $9 } }
    END { printf "%.1f %% of %d branches in %d of %d functions", 100 - 100 * missed / branches, branches, entered, all }'
}

libfuzzer() {
  local code=0
  "$build/tests/fuzz_$1" "$corpora/$1" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -max_len=65536 \
    -artifact_prefix="$corpora/$1-" -print_final_stats=1 > "$corpora/$1.log" 2>&1 || code=$?
  echo "$1 $(sed -n 's/^stat::number_of_executed_units: *//p' "$corpora/$1.log") $SECONDS $code" >> "$corpora/calls"
  return $code
}

status=0
libfuzzer=$(test ! -x "$build/tests/fuzz_${targets[0]}" || echo yes)
[ -z "$libfuzzer" ] || [ -d "$corpora" ] || "$build/tests/fuzz_corpus" --write "$corpora"
for target in "${targets[@]}"; do
  if [ -z "$libfuzzer" ]; then
    "$build/tests/fuzz_corpus" --mutate "$seconds" "$target" "$RANDOM" || {
      status=1
      echo "$target: the input is in $PWD/crash-$target"
    }
    continue
  fi
  SECONDS=0
  [ "$seconds" = 0 ] || libfuzzer "$target" || {
    status=1
    echo "$target: $(grep -o 'Test unit written to .*' "$corpora/$target.log" || tail -n 1 "$corpora/$target.log")"
  }
  awk -v t="$target" -v corpus="$(find "$corpora/$target" -type f | wc -l)" -v branches="$(branches "$target")" '
    $1 == t { n += $2; s += $3; bad += $4 != 0 }
    END { printf "%-14s %10d inputs, %5d s, %d crashes, %6d in the corpus, %s\n", t, n, s, bad, corpus, branches }' "$corpora/calls"
done
exit $status
