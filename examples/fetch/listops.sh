#!/usr/bin/env bash
# listops.sh [FOLDER]: fetches the ListOps files of the Long Range Arena (Tay et al. 2020, arXiv 2011.04006) for the task
# listops. They are part of an archive of several GB, which KEEP= removes afterwards. No hash of the archive is
# published: SHA256=... compares it with that of an earlier download; longhand data check listops recomputes every
# target. URL=... names another source. Without data.path, the task generates its examples.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/common.sh"
folder=${1:-data/listops}
archive=$folder/lra_release.gz
fetch "${URL:-https://storage.googleapis.com/long-range-arena/lra_release.gz}" "$archive" "${SHA256:-}"
tar -xzf "$archive" -C "$folder" --strip-components=3 --wildcards '*/listops-1000/basic_*.tsv' ||
  fail "$archive: expected an archive with listops-1000/basic_train.tsv, basic_val.tsv and basic_test.tsv"
[ -n "${KEEP-yes}" ] || rm "$archive"
for split in train val test; do
  [ -e "$folder/basic_$split.tsv" ] || fail "$archive: has no listops-1000/basic_$split.tsv"
  echo "wrote     $folder/basic_$split.tsv: SHA-256 $(sha256sum "$folder/basic_$split.tsv" | cut -d ' ' -f 1)"
done
echo "use it    --set data.task=listops data.path=$folder"
