#!/bin/sh
# Training steps of Longhand and of PyTorch, one after the other: run.sh PATH/TO/longhand [options of peers.py].
# Needs a Python with torch, $PYTHON or python3; without one it says so and succeeds.
set -eu
program=${1:?usage: run.sh PATH/TO/longhand [--model L|M|S] [--length N,...] [--attention NAME,...] …}
shift
exec "${PYTHON:-python3}" "$(dirname "$0")/peers.py" --longhand "$program" "$@"
