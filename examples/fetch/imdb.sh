#!/usr/bin/env bash
# imdb.sh [FOLDER]: fetches the Large Movie Review Dataset (Maas et al. 2011), the texts of the Long Range Arena, 84 MB,
# for the task text_classification: 50,000 reviews, as TSV. Every tenth one of training is for validation.
# URL=... names another source, SHA256=... another hash.
set -euo pipefail
source "$(dirname "$(readlink -f "$0")")/common.sh"
folder=${1:-data/imdb}
archive=$folder/aclImdb_v1.tar.gz
fetch "${URL:-https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz}" "$archive" \
  "${SHA256:-c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe}"

# "pos<TAB>text" for each review of a split, in the order of their files.
reviews() {
  local label
  for label in neg pos; do
    (cd "$folder/aclImdb/$1/$label" && printf '%s\0' *.txt | sort -z -n |
      xargs -0 awk -v label="$label" '{ gsub(/\t/, " "); printf "%s%s", (FNR == 1 ? (n++ ? "\n" : "") label "\t" : " "), $0 }
                                      END { print "" }')
  done
}
export LC_ALL=C
tar -xzf "$archive" -C "$folder" aclImdb/train/neg aclImdb/train/pos aclImdb/test/neg aclImdb/test/pos
reviews train >"$folder/all.tsv"
awk 'NR % 10 == 0' "$folder/all.tsv" >"$folder/validation.tsv"
awk 'NR % 10 != 0' "$folder/all.tsv" >"$folder/train.tsv"
reviews test >"$folder/test.tsv"
rm -r "$folder/all.tsv" "$folder/aclImdb"
for split in train validation test; do
  echo "wrote     $folder/$split.tsv: $(wc -l <"$folder/$split.tsv") reviews"
done
echo "use it    --set data.task=text_classification data.path=$folder model.max_length=4096"
