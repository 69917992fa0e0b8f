#!/usr/bin/env bash
# report_browser.sh PROGRAM: opens a report in headless Chromium, from a file, at the widths of a desktop and of a
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
cp report.html page.html
# The policy of the page lets scripts run that have its nonce, and no others: the second one must not.
nonce=$(sed -n "s/.*script-src 'nonce-\([0-9a-f]*\)'.*/\1/p" page.html | head -n 1)
[ ${#nonce} -eq 32 ] || { echo "the page has no Content-Security-Policy"; exit 1; }
cat >>page.html <<HTML
<script>document.documentElement.dataset.injected = 'yes';</script>
<script nonce="$nonce">
HTML
cat >>page.html <<'HTML'
requestAnimationFrame(() => {
  const set = document.documentElement.dataset;
  const all = [...document.querySelectorAll('.picture:not([hidden]) > svg')];
  const size = svg => svg.getBoundingClientRect();
  set.charts = `${all.filter(svg => size(svg).width > 200 && svg.querySelector('path, image')).length}/${all.length}`;
  // A font that is not as wide as Helvetica may reach into the margin.
  const outside = text => {
    const a = text.getBoundingClientRect(), b = size(text.closest('.picture > svg'));
    return a.left < b.left - 24 || a.right > b.right + 24 || a.bottom > b.bottom + 4;
  };
  set.cut = [...document.querySelectorAll('.picture:not([hidden]) > svg text')].filter(outside).map(text => text.textContent).join('; ');
  set.wide = document.documentElement.scrollWidth > innerWidth;
  set.numbers = document.querySelectorAll('figure[data-numbers]').length ===
    document.querySelectorAll('figure[data-numbers] > details.data').length;
  const key = document.querySelector('.key[tabindex="0"]');
  key.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
  const part = key.closest('svg').querySelector(`g[data-s="${key.dataset.s}"]:not(.key)`);
  set.keys = key.getAttribute('aria-pressed') === 'false' && part.getAttribute('visibility') === 'hidden';
  // Into a <details> that is closed.
  const figure = document.querySelector('figure'), closed = document.createElement('details');
  figure.replaceWith(closed);
  closed.append(figure);
  addEventListener('hashchange', () => { set.linked = closed.open; });
  location.hash = figure.id;
});
</script>
HTML
for width in 1280 390; do
  timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$folder/profile" \
    --host-resolver-rules='MAP * ~NOTFOUND' --window-size=$width,900 --virtual-time-budget=5000 --enable-logging=stderr \
    --dump-dom "file://$folder/page.html" >dom.html 2>log.txt || { cat log.txt; exit 1; }
  if grep 'CONSOLE' log.txt | grep -v 'Content Security Policy'; then
    echo "width $width: the console has messages"
    exit 1
  fi
  if ! grep -q 'Content Security Policy' log.txt || grep -q 'data-injected' dom.html; then
    echo "width $width: a script without the nonce of the page ran"
    exit 1
  fi
  # Learning curves: 2. The analysis: 3. The leaderboard: time, parameters or state, where these differ.
  grep -o '<html[^>]*>' dom.html | head -1
  drawn=$(grep -o 'data-charts="[0-9/]*"' dom.html | grep -m 1 -o '[0-9]*/[0-9]*') ||
    { echo "width $width: no data-charts: a script did not reach its end"; exit 1; }
  [ "${drawn%/*}" = "${drawn#*/}" ] && [ "${drawn%/*}" -ge 5 ] ||
    { echo "width $width: $drawn charts drawn, expected all, and at least 5"; exit 1; }
  for each in 'data-cut=""' 'data-numbers="true"' 'data-keys="true"' 'data-linked="true"'; do
    grep -q "<html[^>]* $each" dom.html || { echo "width $width: expected $each"; exit 1; }
  done
  # The leaderboard has a row with a bar for each variant, and both ends of all intervals are on a bar.
  [ "$(grep -o '<span class="interval"' dom.html | wc -l)" = 2 ] && grep -q '<i style="left: 0%' dom.html &&
    grep -q '<i style="[^"]*left: [0-9.]*%; width: [0-9.]*%' dom.html ||
    { echo "width $width: the leaderboard does not have two bars"; exit 1; }
  grep -q 'data-wide="false"' dom.html || { echo "width $width: the page is wider than the window"; exit 1; }
done
echo "drawn without messages"
