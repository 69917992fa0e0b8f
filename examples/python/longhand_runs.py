"""Reads the files of Longhand as NumPy arrays: runs, sweeps, results, predictions and weights.

    import longhand_runs

    run = longhand_runs.Run("runs/mqar")
    run.config["model"]["d_model"]              # 64
    run.metrics("validation")["accuracy"]       # an array, one value per evaluation
    run.weights()["head.weight"]                # the weights that `longhand evaluate` uses

    results = longhand_runs.results("runs/sweep")    # or a results.json
    variants = results["variants"]              # a Table
    variants["accuracy"]                        # an array, one value per row
    variants.frame()                            # a data frame, if pandas is installed

    for cell in longhand_runs.Sweep("runs/sweep").cells():
        print(cell.record["variant"], cell.record["seed"], cell.run.summary["best"])

Needs Python 3.11 and NumPy; h5py for checkpoints and HDF5 files, pandas for data frames.
"""

import json
import subprocess
import tomllib
from pathlib import Path

import numpy as np

_words = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}  # numbers that JSON lacks


def _array(values):
    """Values as an array of numbers, with NaN for None, or of objects where some are text or lists."""
    values = [_words.get(v, v) if isinstance(v, str) else v for v in values]
    if all(v is None or isinstance(v, (int, float)) for v in values):
        if any(v is None or isinstance(v, float) for v in values):
            return np.array([np.nan if v is None else v for v in values], dtype=float)
        return np.array(values)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _json(path):
    try:
        return json.loads(Path(path).read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: expected JSON as Longhand writes it: {error}") from None


class Table:
    """A table of results. `table["name"]` is a column as an array; `columns` and `headings` name them."""

    def __init__(self, description):
        self.name, self.title = description["name"], description["title"]
        self.note = description.get("note", "")
        self.columns = [column["name"] for column in description["columns"]]
        self.headings = [column["heading"] for column in description["columns"]]
        self.rows = description["rows"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, column):
        if column not in self.columns:
            raise KeyError(f"{self.name} has no column {column!r}; it has {', '.join(self.columns)}")
        index = self.columns.index(column)
        return _array([row[index] for row in self.rows])

    def where(self, **values):
        """The rows in which columns have these values, such as where(attention_type="linear")."""
        keep = np.ones(len(self), dtype=bool)
        for column, value in values.items():
            keep &= self[column] == value
        out = object.__new__(Table)
        out.__dict__.update(self.__dict__, rows=[r for r, k in zip(self.rows, keep) if k])
        return out

    def frame(self):
        """The table as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame({column: self[column] for column in self.columns})


def results(path):
    """The tables of a results.json, of the directory of a sweep, or of any command with --json, by name."""
    path = Path(path)
    content = _json(path / "results.json" if path.is_dir() else path)
    if "tables" not in content:
        raise ValueError(f"{path}: expected results with tables")
    return {table["name"]: Table(table) for table in content["tables"]}


class Run:
    """The directory of a run, also while it is being trained."""

    def __init__(self, path):
        self.path = Path(path)
        config = self.path / "config.toml"
        if not config.is_file():
            raise FileNotFoundError(f"{self.path} holds no run: there is no config.toml")
        self.config = tomllib.loads(config.read_text())

    @property
    def summary(self):
        """The contents of summary.json: status, best metric, time, memory, version."""
        return _json(self.path / "summary.json")

    def metrics(self, split="train"):
        """The records of a split ("train" or "validation") as arrays by name, such as "step" and "loss"."""
        lines = (self.path / "metrics.jsonl").read_text().splitlines()
        # A run that is being trained may have written part of its last line.
        records = [json.loads(line) for line in lines if line.endswith("}")]
        records = [r for r in records if r.get("split") == split]
        names = sorted({name for record in records for name in record} - {"split"})
        return {name: _array([record.get(name) for record in records]) for name in names}

    def checkpoint(self, name="best"):
        """All arrays of a checkpoint by group: "model", "ema" (averaged weights, if any), "optimizer"."""
        import h5py

        with h5py.File(self.path / "checkpoints" / f"{name}.h5") as file:
            return {
                group: {key: value[()] for key, value in file[group].items()}
                for group in ("model", "ema", "optimizer")
            }

    def weights(self, name="best"):
        """The weights that evaluation uses, by name: averaged ones where there are any."""
        groups = self.checkpoint(name)
        return {**groups["model"], **groups["ema"]}

    def predictions(self, *arguments, program="longhand"):
        """The output of `longhand predict` with these arguments: one dictionary for each example."""
        command = [program, "predict", str(self.path), "--quiet", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return [json.loads(line) for line in done.stdout.splitlines()]


class Cell:
    """One run of a sweep, with what the sweep records about it (cell.json)."""

    def __init__(self, path):
        self.record, self.run = _json(path / "cell.json"), Run(path)
        test = path / "test.json"
        self.test = _json(test) if test.is_file() else None


class Sweep:
    """The directory of a sweep."""

    def __init__(self, path):
        self.path = Path(path)
        if not (self.path / "sweep.toml").is_file():
            raise FileNotFoundError(f"{self.path} holds no sweep: there is no sweep.toml")

    @property
    def results(self):
        """The tables of results.json by name: "variants", "search", "segments", "cells"."""
        return results(self.path)

    def cells(self):
        """The cells that have begun, in alphabetical order of their names."""
        folders = sorted((self.path / "cells").iterdir())
        return [Cell(f) for f in folders if (f / "cell.json").is_file() and (f / "config.toml").is_file()]


def predictions(file):
    """The arrays of a file that `longhand predict -o FILE` wrote (.npz or .h5), by name."""
    if str(file).endswith(".h5"):
        import h5py

        with h5py.File(file) as opened:
            return {name: values[()] for name, values in opened.items()}
    with np.load(file) as opened:
        return dict(opened)
