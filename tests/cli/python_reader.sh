#!/usr/bin/env bash
# python_reader.sh PROGRAM: trains a run and a sweep, and compares what examples/python/longhand_runs.py reads with
# the files; then executes the notebook. Without NumPy and h5py in $PYTHON (default python3) it exits with
# 77, which CTest counts as skipped; without nbconvert and matplotlib the notebook is left out.
set -euo pipefail
longhand=$1
here=$(dirname "$(readlink -f "$0")")
python=${PYTHON:-python3}
if ! "$python" -c 'import h5py, numpy, tomllib' 2>/dev/null; then
  echo "skipped: $python has no h5py and NumPy; set PYTHON to one that does"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$longhand" train "$here/tiny.toml" --quiet --out run --set data.seed=0 train.ema_decay=0.9 >/dev/null
{
  printf '[sweep]\nseeds = 2\nmetric = "loss"\n'
  cat "$here/tiny.toml"
  printf '\n[[axis]]\nattention.type = ["softmax", "linear"]\n'
} >sweep.toml
"$longhand" ablate sweep.toml --out sweep --quiet >/dev/null
"$longhand" predict run --quiet -o run.npz

cat >check.py <<'PYTHON'
import csv
import sys

import h5py
import numpy as np

import longhand_runs as longhand

program = sys.argv[1]
run = longhand.Run("run")
with h5py.File("run/checkpoints/best.h5") as file:
    averaged = file["ema/head.weight"][()]
assert (run.weights()["head.weight"] == averaged).all()
assert (run.checkpoint()["model"]["head.weight"] != averaged).any()
assert run.summary["status"] == "finished"
validation = run.metrics("validation")
assert validation["accuracy"].max() <= 1 and validation["step"][-1] == run.summary["step"]

arrays = longhand.predictions("run.npz")
examples = run.predictions(program=program)
first = examples[0]["predictions"] if "predictions" in examples[0] else [examples[0]["prediction"]]
assert list(arrays["prediction"][: len(first)]) == first

sweep = longhand.Sweep("sweep")
variants = sweep.results["variants"]
with open("sweep/results.csv") as file:
    rows = list(csv.DictReader(file))
assert len(rows) == len(variants) == 2
for column in ("loss", "low", "high"):
    found, expected = variants[column], [float(row[column] or "nan") for row in rows]
    assert np.allclose(found, expected, rtol=1e-12, equal_nan=True), (column, found, expected)
assert list(variants.where(attention_type="linear")["variant"]) == ["linear"]
cells = sweep.cells()
assert len(cells) == 4 and {cell.record["seed"] for cell in cells} == {0, 1}
for cell in cells:
    row = sweep.results["cells"].where(cell=cell.run.path.name)
    assert row["test_loss"][0] == cell.test["loss"]
for wrong, error in ((lambda: longhand.Run("sweep"), "no config.toml"),
                     (lambda: longhand.Sweep("run"), "no sweep.toml"),
                     (lambda: variants["nothing"], "no column 'nothing'")):
    try:
        wrong()
        raise SystemExit("expected an error: " + error)
    except (FileNotFoundError, KeyError) as raised:
        assert error in str(raised), raised
PYTHON
PYTHONPATH="$here/../../examples/python" "$python" check.py "$longhand"

if ! "$python" -c 'import nbconvert, matplotlib, ipykernel' 2>/dev/null; then
  echo "the notebook was left out: $python has no nbconvert, ipykernel and matplotlib"
  exit 0
fi
cp "$here/../../examples/python/sweep.ipynb" .
LONGHAND_EXAMPLES="$here/../../examples" "$python" -m nbconvert --to notebook --execute sweep.ipynb \
  --output executed.ipynb >log.txt 2>&1 || { cat log.txt; exit 1; }
[ "$(grep -c '"image/png"' executed.ipynb)" -eq 2 ] || { echo "expected two charts in the notebook"; exit 1; }
