#!/usr/bin/env bash
# pytorch_loader.sh PROGRAM: runs the loader of train/checkpoint/README.md on checkpoints, and compares its
# logits with those of `longhand predict`; then reads exported weights with other libraries. Without h5py
# and PyTorch in $PYTHON (default python3) it exits with 77, which CTest counts as skipped.
set -euo pipefail
longhand=$1
here=$(dirname "$(readlink -f "$0")")
python=${PYTHON:-python3}
if ! "$python" -c 'import h5py, numpy, tomllib, torch' 2>/dev/null; then
  echo "skipped: $python has no h5py and PyTorch; set PYTHON to one that does"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
awk '/^```/ { if (inside) exit; if ($0 == "```python") { inside = 1; next } } inside' \
  "$here/../../train/checkpoint/README.md" >loader.py
[ -s loader.py ] || { echo "there is no loader in README.md"; exit 1; }

"$longhand" train "$here/tiny.toml" --quiet --out copy --set data.seed=0 model.layers=2 train.ema_decay=0.9 >/dev/null
"$longhand" train "$here/tiny.toml" --quiet --out text --set data.seed=0 model.causal=true model.heads=4 >/dev/null
for run in copy text; do
  "$longhand" predict "$run" --quiet --logits -o "$run.npz" --set train.eval_batch_size=16
  "$longhand" checkpoint export "$run" -o "$run-weights.npz" >/dev/null
  "$longhand" checkpoint export "$run" -o "$run.safetensors" >/dev/null
done
"$longhand" data make copy --quiet -o data.h5 --set data.length=16 data.count=4 data.train_size=64 \
  data.validation_size=16 data.test_size=16 data.seed=0

cat >check.py <<'PYTHON'
import sys

import h5py
import numpy as np
import torch

from loader import load, logits

for run in ("copy", "text"):
    config, weights = load(f"{run}/checkpoints/best.h5")
    with h5py.File("data.h5") as data:
        tokens = torch.as_tensor(data["test/tokens"][()]).long()
    with torch.no_grad():
        found = logits(config, weights, tokens).numpy()
    with np.load(f"{run}.npz") as expected:
        places = expected["example"], expected["position"]
        np.testing.assert_allclose(found[places], expected["logits"], rtol=1e-4, atol=1e-5)
        print(f"{run}: {len(places[0])} logits agree")
    for exported in (f"{run}-weights.npz", f"{run}.safetensors"):
        try:
            again = load(exported)
        except ImportError:
            print("safetensors is not installed")
            continue
        assert again[0] == config
        assert set(again[1]) == set(weights), set(again[1]) ^ set(weights)
        assert all(torch.equal(again[1][name], weights[name]) for name in weights)
PYTHON
"$python" check.py
# What NumPy writes can be imported.
"$python" - <<'PYTHON'
import numpy as np
weights = np.load("copy-weights.npz")
np.savez("numpy.npz", **{name: np.asfortranarray(weights[name]) for name in weights.files if name[0] != "_"})
PYTHON
"$longhand" checkpoint import numpy.npz --out imported --config copy/config.toml >/dev/null
"$longhand" checkpoint diff copy-weights.npz imported >/dev/null
echo "imported weights are equal"
