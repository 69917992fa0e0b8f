#!/usr/bin/env bash
# maps.sh PROGRAM: the maps and the quoted code in the pages of the variants are those that tests/update_pages.sh
# writes.
set -euo pipefail
longhand=$(realpath "$1")
source=$(realpath "$(dirname "$0")/../..")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{attention,data,train,tests}
cp -r "$source/attention/variants" "$source/attention/definitions" "$folder/attention"
cp "$source/tests/update_pages.sh" "$folder/tests"
"$folder/tests/update_pages.sh" "$longhand"
diff -r "$source/attention/variants" "$folder/attention/variants" ||
  { echo "stale; run tests/update_pages.sh PATH/TO/longhand"; exit 1; }
for page in "$source"/attention/variants/*.md; do
  grep -q '^<!-- map: ' "$page" || case $(basename "$page" .md) in
    # No weights: the result is not linear in the values, or they differ between channels.
    aft | conv | fnet | parallel | gallery) ;;
    *) echo "$page: expected a map: <!-- map: VARIANT FLAGS --> and <!-- end -->"; exit 1 ;;
  esac
done
check() {  # PAGE FIGURE
  grep -q "(figures/$2)" "$source/attention/variants/$1.md" ||
    { echo "$1.md: expected the picture $2"; exit 1; }
}
for figure in "$source"/attention/variants/figures/*.svg; do check gallery "$(basename "$figure")"; done
for figure in "$source"/attention/variants/figures/states/*.svg; do
  check "$(basename "$figure" .svg)" "states/$(basename "$figure")"
done
