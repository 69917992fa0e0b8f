#!/usr/bin/env bash
# examples/pictures.sh LONGHAND [QUICKSTART]: redraws the pictures of the examples from committed results, as LONGHAND
# reports them today: recall/state.png and ablation/spectrum.png, and with QUICKSTART, the folder that
# examples/quickstart.sh filled (runs/quickstart), also quickstart.png. Needs Chromium (package chromium).
set -euo pipefail
longhand=$(readlink -f "${1:?expected the path of longhand}")
quickstart=${2:+$(readlink -f "$2")}
cd "$(dirname "$(readlink -f "$0")")"
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
  { echo "examples/pictures.sh: Chromium was not found: install the package chromium" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# picture FILE WIDTH HEIGHT FIGURES INPUT...: draws the report of the inputs; FIGURES are the titles of the charts
# to show, separated by |, in their order; if empty, the top of the page.
picture() {
  local page=$folder/page.html
  "$longhand" report "${@:5}" -o "$page" >/dev/null
  local nonce
  nonce=$(sed -n "s/.*script-src 'nonce-\([0-9a-f]*\)'.*/\1/p" "$page" | head -n 1)
  cat >>"$page" <<HTML
<style>.only { display: block; max-width: none; margin: 0; padding: 6px; } .only figure { margin: 0 0 8px; }
.only details { display: none; }</style>
<script nonce="$nonce">
const titles = '$4'.split('|').filter(title => title);
const figures = titles.map(title => [...document.querySelectorAll('figure')].find(
    figure => figure.querySelector('figcaption').textContent === title));
if (titles.length) {
  document.body.className = 'only';
  document.body.replaceChildren(...figures);
}
</script>
HTML
  timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
    --user-data-dir="$folder/profile" --host-resolver-rules='MAP * ~NOTFOUND' --window-size="$2,$3" \
    --virtual-time-budget=5000 --screenshot="$folder/page.png" "file://$page" 2>"$folder/log" ||
    { cat "$folder/log" >&2; exit 1; }
  mv "$folder/page.png" "$1"
  echo "$PWD/$1: $2 x $3"
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
  }' recall/results/results.csv >"$folder/recall.json"
picture recall/state.png 640 800 'Accuracy against elements of the state|Accuracy against bytes of the cache' \
  "$folder/recall.json"
picture ablation/spectrum.png 640 900 'Singular values that hold 90 % of Σ σ against length|Entropy rank against length' \
  ablation/results/spectrum.json
if [ -n "$quickstart" ]; then picture quickstart.png 960 1720 '' "$quickstart" "$quickstart/heuristics.json"; fi
