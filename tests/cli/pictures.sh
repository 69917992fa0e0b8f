#!/usr/bin/env bash
# pictures.sh PROGRAM: draws the pictures of the examples again. Fails if one is not that which is committed, because
# charts are drawn in another way since, or because results have changed.
set -euo pipefail
longhand=$1
examples=$(dirname "$(readlink -f "$0")")/../../examples
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$examples/pictures.sh" "$longhand" "$folder" >/dev/null
old=0
while read -r picture; do
  cmp "$folder/$picture" "$examples/$picture" || old=1
done < <(cd "$folder" && find . -name '*.svg')
[ $old = 0 ] || { echo "draw them again with examples/pictures.sh PROGRAM, and look at them"; exit 1; }
