#!/usr/bin/env bash
# examples/atlas/pretraining.sh DIRECTORY [-- OPTION...]: listops.toml after pretraining on its own inputs (Amos et al. 2023,
# arXiv 2310.02980). Each variant is trained to predict 15 % of the tokens of ListOps (DIRECTORY/masked, one seed), and then
# trained as in listops.toml, from these weights and from scratch (DIRECTORY/tuned, all seeds). Stopped, it goes on where
# it was. The options are those of longhand ablate; --merge takes the cells from scratch from another directory.
#
#   examples/atlas/pretraining.sh runs/pretraining -- --jobs 2 --merge runs/atlas/listops
#
# LONGHAND is the program [longhand].
set -euo pipefail
sweep=$(dirname "$(readlink -f "$0")")/listops.toml
mkdir -p "${1:?expected a directory, such as runs/pretraining}"
directory=$(readlink -f "$1")
shift
[ "${1:-}" != -- ] || shift
options=() merge=()
while [ $# -gt 0 ]; do
  case $1 in
    --merge) merge+=(--merge "${2:?--merge: expected a directory}") && shift ;;
    --merge=*) merge+=("$1") ;;
    *) options+=("$1") ;;
  esac
  shift
done

sed 's/^seeds = .*/seeds = 1/' "$sweep" >"$directory/masked.toml"
"${LONGHAND:-longhand}" ablate "$directory/masked.toml" --out "$directory/masked" "${options[@]}" --set data.masked=0.15

# Each variant starts from its own pretrained cell, and is compared with itself.
awk -F, -v cells="$directory/masked/cells" '
  FNR != NR && FNR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
  FNR != NR {
    printf "\n[[axis]]\nwhen = { attention.type = \"%s\" }\n", $at["attention_type"]
    printf "train.init_from = [\"\", \"%s/%s\"]\n", cells, $at["cell"]
    next
  }
  /^baseline/ { print "baseline = { train.init_from = \"\" }"; next }
  { print }
' "$sweep" "$directory/masked/cells.csv" >"$directory/tuned.toml"
"${LONGHAND:-longhand}" ablate "$directory/tuned.toml" --out "$directory/tuned" "${options[@]}" "${merge[@]}"
