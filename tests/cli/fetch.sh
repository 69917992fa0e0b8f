#!/usr/bin/env bash
# cli/fetch.sh LONGHAND: the scripts of examples/fetch on files at hand in place of those on the network: what they
# write is read by longhand; another file, a missing one and a missing network are errors. Without curl it exits
# with 77, which CTest counts as skipped.
set -euo pipefail
command -v curl >/dev/null || { echo "skipped: curl is not installed"; exit 77; }
longhand=$1
scripts=$(readlink -f "$(dirname "$0")/../../examples/fetch")
samples=$(readlink -f "$(dirname "$0")/../data")
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
cd "$top"

hash_of() { sha256sum "$1" | cut -d ' ' -f 1; }
refused() {  # TEXT COMMAND...
  local text=$1
  shift
  if "$@" >out 2>&1; then echo "expected an error: $*"; exit 1; fi
  grep -q -- "$text" out || { echo "expected \"$text\" of $*:"; cat out; exit 1; }
}

for i in $(seq 1000); do echo "To be, or not to be"; done >text
refused "expected SHA-256 86c4" env URL="file://$top/text" "$scripts/tinyshakespeare.sh" play
refused "cannot download file:///none" env URL=file:///none "$scripts/tinyshakespeare.sh" none
[ ! -e none/input.txt ] && [ ! -e none/input.txt.part ]
rm -r play
URL="file://$top/text" SHA256=$(hash_of text) "$scripts/tinyshakespeare.sh" play >out
grep -q "20000 bytes" out
grep -q -- "--set data.task=text_lm data.path=play/input.txt" out
"$longhand" data show text_lm --set data.path=play/input.txt data.length=32 --count 1 >out
grep -q "To be" out
# It is there already: nothing is fetched.
URL=file:///none SHA256=$(hash_of text) "$scripts/tinyshakespeare.sh" play >out

for split in train test; do
  for label in pos neg; do
    mkdir -p "aclImdb/$split/$label"
    for i in $(seq 0 11); do printf 'a %s\tfilm %s of %s' "$label" "$i" "$split" >"aclImdb/$split/$label/${i}_7.txt"; done
  done
done
tar -czf reviews.tar.gz aclImdb
URL="file://$top/reviews.tar.gz" SHA256=$(hash_of reviews.tar.gz) "$scripts/imdb.sh" imdb >out
grep -q "train.tsv: 22 reviews" out
grep -q "test.tsv: 24 reviews" out
grep -q $'^neg\ta neg film 0 of test$' imdb/test.tsv
[ "$(sed -n 11p imdb/test.tsv)" = $'neg\ta neg film 10 of test' ]
"$longhand" data check text_classification imdb >out
grep -q "labels      neg 11, pos 11" out

mkdir -p lra_release/lra_release/listops-1000
for split in train val test; do cp "$samples/listops_sample.tsv" "lra_release/lra_release/listops-1000/basic_$split.tsv"; done
tar -czf lra.gz lra_release
URL="file://$top/lra.gz" KEEP= "$scripts/listops.sh" listops >out
grep -q "not compared" out
[ ! -e listops/lra_release.gz ]
"$longhand" data show listops --set data.path=listops --count 1 >out
grep -q "target: " out
refused "expected SHA-256 0" env URL="file://$top/lra.gz" SHA256=0 "$scripts/listops.sh" other
tar -czf wrong.gz text
refused "expected an archive with listops-1000" env URL="file://$top/wrong.gz" "$scripts/listops.sh" wrong
echo "fetch: all scripts write what longhand reads"
