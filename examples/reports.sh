#!/usr/bin/env bash
# examples/reports.sh LONGHAND FOLDER: writes the reports of recall, skills and distributed, from their committed
# results, to FOLDER. The CMake target docs calls it.
set -euo pipefail
longhand=$(readlink -f "${1:?expected the path of longhand}")
folder=${2:?expected a folder}
examples=$(dirname "$(readlink -f "$0")")
mkdir -p "$folder"
report() { "$longhand" report "${@:2}" -o "$folder/$1.html" >/dev/null; }
report recall "$examples/recall/results/results.json"
report skills "$examples/skills/results/results.json"
report distributed "$examples"/distributed/{ranks,sequence,one_head}.json
