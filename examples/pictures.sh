#!/usr/bin/env bash
# examples/pictures.sh LONGHAND [FOLDER]: draws the pictures of the examples from their committed results, as LONGHAND
# draws charts today, to this folder, or to FOLDER. A test compares what it draws with what is committed.
set -euo pipefail
longhand=$(readlink -f "${1:?expected the path of longhand}")
examples=$(dirname "$(readlink -f "$0")")
to=$(readlink -f "${2:-$examples}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# picture FILE.svg CHART INPUT: one chart of the results, on white, which a page may not be.
picture() {
  "$longhand" report "$3" --figures "$folder/figures" --figure-width 150 --font-size 10 >/dev/null
  mkdir -p "$(dirname "$to/$1")"
  sed '1s/<svg /<svg style="background:#fff" /' "$folder/figures/$2.svg" >"$to/$1"
  echo "$to/$1"
}

# Recurrent states have 8 bytes an element, caches 4, and so have the rows that short convolutions keep: 72 bytes for
# each channel. Two charts, with a unit of their own.
awk -F, '
  NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
  {
    cache = $at["attention_type"] ~ /^(softmax|window|forgetting)$/
    bytes = $at["state_bytes"] - 72 * $at["model_d_model"]
    row = sprintf("[\"%s\", %d, %.6f]", $at["attention_type"], cache ? bytes : bytes / 8, $at["accuracy"])
    rows[cache] = rows[cache] (rows[cache] == "" ? "" : ", ") row
  }
  function table(name, title, heading, rows) {
    return sprintf("{\"name\": \"%s\", \"title\": \"%s\", \"note\": \"\", \"columns\": [" \
      "{\"name\": \"variant\", \"heading\": \"variant\", \"digits\": 4}, " \
      "{\"name\": \"size\", \"heading\": \"%s\", \"digits\": 4}, " \
      "{\"name\": \"accuracy\", \"heading\": \"test accuracy\", \"digits\": 4}], \"rows\": [%s], \"charts\": [" \
      "{\"title\": \"%s\", \"x\": \"size\", \"y\": \"accuracy\", \"series\": [\"variant\"], \"low\": \"\", " \
      "\"high\": \"\", \"log_x\": true, \"log_y\": false, \"bars\": false}]}", name, title, heading, rows, title)
  }
  END {
    print "{\"kind\": \"ablate\", \"title\": \"Recall\", \"summary\": \"\", \"command\": \"\", \"machine\": \"\", " \
      "\"date\": \"\", \"version\": \"\", \"tables\": [" \
      table("states", "Accuracy against elements of the state", "elements of the state", rows[0]) ", " \
      table("caches", "Accuracy against bytes of the cache", "bytes of the cache", rows[1]) "]}"
  }' "$examples/recall/results/results.csv" >"$folder/recall.json"
picture quickstart/accuracy.svg test-accuracy-by-variant "$examples/quickstart/results.json"
picture recall/state.svg accuracy-against-elements-of-the-state "$folder/recall.json"
picture recall/cache.svg accuracy-against-bytes-of-the-cache "$folder/recall.json"
picture ablation/spectrum.svg singular-values-that-hold-90-of-against-length "$examples/ablation/results/spectrum.json"
picture ablation/entropy.svg entropy-rank-against-length "$examples/ablation/results/spectrum.json"
tracking=$examples/atlas/results/tracking/results.json
picture atlas/tracking.svg test-accuracy-by-task-and-variant "$tracking"
for task in parity group; do
  chart=$task
  [ $task = parity ] || chart=group-degree-3-kind-s
  picture "atlas/$task.svg" "test-accuracy-against-length-$chart" "$tracking"
  picture "atlas/$task-window.svg" "validation-accuracy-against-optimizer-lr-$chart" "$tracking"
done
for task in compression selective_copy; do
  picture atlas/$task-window.svg validation-accuracy-against-optimizer-lr "$examples/atlas/results/mad/$task/results.json"
done
picture atlas/language.svg test-loss-by-variant "$examples/atlas/results/language/results.json"
picture atlas/language-window.svg validation-loss-against-optimizer-lr "$examples/atlas/results/language/results.json"
