#!/usr/bin/env bash
# report_browser.sh PROGRAM: opens reports in headless Chromium, from a file, at the widths of a desktop and of a
# phone. Fails if the console has a message, if a chart or the leaderboard is not drawn or is cut, if a link to a chart
# does not open what it is in, or if the keyboard does not reach the keys of a chart. Without Chromium it exits with 77,
# which CTest counts as skipped.
set -euo pipefail
longhand=$1
config=$(dirname "$(readlink -f "$0")")/tiny.toml
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$chromium" ]; then
  echo "skipped: there is no Chromium to open the report with (package chromium)"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

for attention in softmax linear; do
  for seed in 0 1; do
    "$longhand" train "$config" --quiet --out "runs/$attention-$seed" --set "attention.type=$attention" \
      "train.seed=$seed" train.eval_every=5 train.log_every=2 >/dev/null
  done
done
# Every kind of chart: curves with logarithmic axes, intervals and theory; bars; heat maps; no values.
cat >analysis.json <<'JSON'
{"kind": "analyse error", "title": "Errors </script><b>&", "summary": "Errors fall.", "command": "longhand analyse error",
 "machine": "test", "date": "2025-01-01T00:00:00Z", "version": "0.1.0", "tables": [
 {"name": "error", "title": "Error", "note": "A note.",
  "columns": [{"name": "variant", "heading": "variant", "digits": 4}, {"name": "m", "heading": "features", "digits": 4},
   {"name": "error", "heading": "error", "digits": 4}, {"name": "low", "heading": "low", "digits": 4},
   {"name": "high", "heading": "high", "digits": 4}, {"name": "law", "heading": "law", "digits": 4}],
  "rows": [["softmax", 16, 0.5, 0.4, 0.6, 0.5], ["softmax", 64, 0.25, 0.2, 0.3, 0.25], ["softmax", 256, 0.125, 0.1, 0.2, 0.125],
   ["linear", 16, 1.0, 0.9, 1.1, 0.5], ["linear", 64, 0.3, 0.2, 0.4, 0.25], ["linear", 256, 0.1, null, "NaN", 0.125]],
  "charts": [{"title": "Error against features", "x": "m", "y": "error", "series": ["variant"], "low": "low", "high": "high",
    "log_x": true, "log_y": true, "bars": false, "theory": "law"},
   {"title": "Error by variant", "x": "variant", "y": "error", "series": ["m"], "low": "", "high": "", "log_x": false,
    "log_y": false, "bars": true}]},
 {"name": "maps", "title": "Maps", "note": "",
  "columns": [{"name": "layer", "heading": "layer", "digits": 4}, {"name": "query", "heading": "query", "digits": 4},
   {"name": "key", "heading": "key", "digits": 4}, {"name": "weight", "heading": "weight", "digits": 4}],
  "rows": [[0, 0, 0, 1.0], [0, 0, 1, 0.0], [0, 1, 0, 0.25], [0, 1, 1, 0.75], [1, 0, 0, 0.5], [1, 1, 1, 0.5]],
  "charts": [{"title": "Attention", "x": "key", "y": "query", "series": ["layer"], "low": "", "high": "", "log_x": false,
   "log_y": false, "bars": false, "colour": "weight"}]},
 {"name": "empty", "title": "Empty", "note": "", "columns": [{"name": "x", "heading": "x", "digits": 4},
   {"name": "y", "heading": "y", "digits": 4}], "rows": [],
  "charts": [{"title": "No values", "x": "x", "y": "y", "series": [], "low": "", "high": "", "log_x": false, "log_y": false,
   "bars": false}]}]}
JSON
"$longhand" report runs analysis.json -o report.html >/dev/null

# A sweep of 36 variants at 7 tasks with 3 seeds: its data are compressed, and most charts are made when they are opened.
awk 'BEGIN {
  for (t = 0; t < 7; ++t)
    for (v = 0; v < 36; ++v) {
      name = sprintf("\"task%d variant%d\", \"task%d\", \"variant%d\"", t, v, t, v)
      mean = 0.3 + 0.01 * ((v * 7 + t * 5) % 40)
      variants = variants (variants == "" ? "" : ",\n") sprintf("[%s, %.2f, %d, %d]", name, mean, 1024 * (v + 1), 7000 + 100 * v)
      for (s = 0; s < 3; ++s)
        cells = cells (cells == "" ? "" : ",\n") sprintf("[\"%016d\", %s, %d, \"final\", \"finished\", 1.0, %.3f, %d]",
                       1000 * t + 10 * v + s, name, s, mean + 0.001 * (s - 1), 7000 + 100 * v)
    }
  keys = "{\"name\": \"variant\", \"heading\": \"variant\", \"digits\": 4}, {\"name\": \"data_task\", \"heading\": \"data.task\", \"digits\": 4}, " \
         "{\"name\": \"attention_type\", \"heading\": \"attention.type\", \"digits\": 4}"
  rest = "\"series\": [\"variant\"], \"low\": \"\", \"high\": \"\", \"log_x\": true, \"log_y\": false, \"bars\": false}"
  printf "{\"kind\": \"ablate\", \"title\": \"Large\", \"summary\": \"\", \"command\": \"\", \"machine\": \"\", \"date\": \"\", \"version\": \"\", \"tables\": [\n"
  printf "{\"name\": \"variants\", \"title\": \"Variants\", \"note\": \"\", \"columns\": [%s, {\"name\": \"accuracy\", \"heading\": \"test accuracy\", " \
         "\"digits\": 4}, {\"name\": \"state_bytes\", \"heading\": \"state (bytes)\", \"digits\": 4}, {\"name\": \"parameters\", \"heading\": " \
         "\"parameters\", \"digits\": 4}], \"rows\": [%s], \"charts\": [{\"title\": \"Accuracy against state\", \"x\": \"state_bytes\", \"y\": \"accuracy\", %s, " \
         "{\"title\": \"Accuracy against parameters\", \"x\": \"parameters\", \"y\": \"accuracy\", %s]},\n", keys, variants, rest, rest
  printf "{\"name\": \"cells\", \"title\": \"Cells\", \"note\": \"\", \"columns\": [{\"name\": \"cell\", \"heading\": \"cell\", \"digits\": 4}, %s, " \
         "{\"name\": \"seed\", \"heading\": \"seed\", \"digits\": 4}, {\"name\": \"phase\", \"heading\": \"phase\", \"digits\": 4}, {\"name\": \"status\", \"heading\": " \
         "\"status\", \"digits\": 4}, {\"name\": \"test_loss\", \"heading\": \"test loss\", \"digits\": 4}, {\"name\": \"test_accuracy\", \"heading\": \"test accuracy\", " \
         "\"digits\": 4}, {\"name\": \"parameters\", \"heading\": \"parameters\", \"digits\": 4}], \"rows\": [%s], \"charts\": []}]}\n", keys, cells
}' >large.json
"$longhand" report large.json -o large.html >/dev/null
grep -q '<script type="application/json" id="data">{' report.html && ! grep -q 'id="data">{' large.html ||
  { echo "the data of a large page are not compressed, or those of a small one are"; exit 1; }

cat >check.js <<'JS'
const set = document.documentElement.dataset;
const size = svg => svg.getBoundingClientRect();
async function check() {
  const drawn = () => [...document.querySelectorAll('.picture:not([hidden]) > svg')].filter(svg => size(svg).width > 0);
  // Paper shows what is marked, and what is open.
  const panels = [...document.querySelectorAll('details.panels')], before = panels.map(details => details.open);
  dispatchEvent(new Event('beforeprint'));
  const printed = panels.every((details, i) => details.open === (before[i] || 'print' in details.dataset));
  dispatchEvent(new Event('afterprint'));
  set.printed = printed && panels.every((details, i) => details.open === before[i]);
  // Everything that is folded is reached by the keyboard's way: its summary.
  for (const details of panels) if (!details.open) details.querySelector('summary').click();
  while (document.querySelector('[data-folded]:not(:has(> :not(summary)))')) await later();
  const all = drawn();
  set.charts = `${all.filter(svg => size(svg).width > 200 && svg.querySelector('path, image')).length}/${all.length}`;
  // A font that is not as wide as Helvetica may reach into the margin.
  const outside = text => {
    const a = text.getBoundingClientRect(), b = size(text.closest('.picture > svg'));
    return a.left < b.left - 24 || a.right > b.right + 24 || a.bottom > b.bottom + 4;
  };
  set.cut = all.flatMap(svg => [...svg.querySelectorAll('text')]).filter(outside).map(text => text.textContent).join('; ');
  set.wide = document.documentElement.scrollWidth > innerWidth;
  set.numbers = document.querySelectorAll('figure[data-numbers]').length ===
    document.querySelectorAll('figure[data-numbers] > details.data').length;
  const key = document.querySelector('.key[tabindex="0"]');
  key.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
  const part = key.closest('svg').querySelector(`g[data-s="${key.dataset.s}"]:not(.key)`);
  set.keys = key.getAttribute('aria-pressed') === 'false' && part.getAttribute('visibility') === 'hidden';
}
/// A link to a chart opens what it is in: the last one of the page, which may be in what was never opened.
async function follow(name) {
  location.hash = name;
  for (let i = 0; i < 100 && !document.getElementById(name); ++i) await later();
  const within = document.getElementById(name).closest('details');
  for (let i = 0; i < 100 && within && !within.open; ++i) await later();
  return !within || within.open;
}
const later = () => new Promise(done => setTimeout(done, 10));
(async () => {
  while (set.ready !== 'yes') await later();
  set.linked = await follow(NAME);
  await check();
  set.done = 'yes';
})();
JS

# opened PAGE NAME WIDTH: opens a page, of which it follows the link to a chart, and checks it; its DOM is in dom.html. A
# browser on a machine with much else to do may end before the scripts of the page: it has three tries.
opened() {
  # The policy of the page lets scripts run that have its nonce, and no others: the second one must not.
  nonce=$(sed -n "s/.*script-src 'nonce-\([0-9a-f]*\)'.*/\1/p" "$1.html" | head -n 1)
  [ ${#nonce} -eq 32 ] || { echo "the page has no Content-Security-Policy"; exit 1; }
  {
    cat "$1.html"
    echo "<script>document.documentElement.dataset.injected = 'yes';</script><script nonce=\"$nonce\">"
    sed "s/NAME/'$2'/" check.js
    echo "</script>"
  } >page.html
  for try in 1 2 3; do
    timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$folder/profile" \
      --host-resolver-rules='MAP * ~NOTFOUND' --window-size=$3,900 --virtual-time-budget=20000 --enable-logging=stderr \
      --dump-dom "file://$folder/page.html" >dom.html 2>log.txt || { cat log.txt; exit 1; }
    ! grep 'CONSOLE' log.txt | grep -v 'Content Security Policy' || { echo "$1, width $3: the console has messages"; exit 1; }
    ! grep -q '<html[^>]* data-done="yes"' dom.html || break
    [ $try -lt 3 ] || { echo "$1, width $3: its scripts did not reach their end"; exit 1; }
  done
  if ! grep -q 'Content Security Policy' log.txt || grep -q 'data-injected' dom.html; then
    echo "$1, width $3: a script without the nonce of the page ran"
    exit 1
  fi
  grep -o '<html[^>]*>' dom.html | head -1
  drawn=$(grep -o 'data-charts="[0-9/]*"' dom.html | grep -m 1 -o '[0-9]*/[0-9]*')
  [ "${drawn%/*}" = "${drawn#*/}" ] && [ "${drawn%/*}" -ge "$4" ] ||
    { echo "$1, width $3: $drawn charts drawn, expected all, and at least $4"; exit 1; }
  for each in 'data-cut=""' 'data-numbers="true"' 'data-keys="true"' 'data-linked="true"' 'data-printed="true"' 'data-wide="false"'; do
    grep -q "<html[^>]* $each" dom.html || { echo "$1, width $3: expected $each"; exit 1; }
  done
}

for width in 1280 390; do
  # Learning curves: 2. The analysis: 3. The leaderboard: time, parameters or state, where these differ.
  opened report error-by-variant $width 5
  # The leaderboard has a row with a bar for each variant, and both ends of all intervals are on a bar.
  [ "$(grep -o '<span class="interval"' dom.html | wc -l)" = 2 ] && grep -q '<i style="left: 0%' dom.html &&
    grep -q '<i style="[^"]*left: [0-9.]*%; width: [0-9.]*%' dom.html ||
    { echo "width $width: the leaderboard does not have two bars"; exit 1; }
  opened large accuracy-against-state-task6-4-of-4 $width 57
done
echo "drawn without messages"
