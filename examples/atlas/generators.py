#!/usr/bin/env python3
"""Compares tasks of the atlas with the generators that published them.

generators.py LONGHAND MAD_LAB ZOOLOGY RUNS: a program, clones of github.com/athms/mad-lab and github.com/HazyResearch/zoology,
and a folder for one run per task, which is trained if it is not there. Needs NumPy, SciPy, h5py, and what both import: PyTorch, pandas and tqdm.

For each task: chi-squared tests that tokens and targets of 4,000 test sequences of both have the same distributions, and the accuracy
that a model trained on Longhand's sequences reaches on either.
"""
import json, pathlib, subprocess, sys, types

import h5py
import numpy as np
from scipy import stats

program, mad_lab, zoology, runs = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
sys.path += [str(mad_lab), str(zoology)]
count, here = 4000, pathlib.Path(__file__).parent


def mad(name, **options):
    """Test sequences of mad-lab's generator, whose options are its published defaults."""
    from mad.data import instances
    np.random.seed(1)  # selective copying draws from the global generator, too
    random, generate = np.random.default_rng(1), getattr(instances, f"generate_{name}_instance")
    return map(np.array, zip(*(generate(is_training=False, rng=random, **options) for _ in range(count))))


def selective_copy():
    tokens, targets = mad("selective_copying")
    longhand = np.array([*range(1, 15), 0, 15])  # there: symbols 0 to 13, the blank 14, the delimiter 15
    return longhand[tokens], np.where(targets < 0, targets, longhand[targets.clip(0)])


def mqar():
    config = types.ModuleType("zoology.config")  # what the generator needs of it
    config.DataSegmentConfig, config.DataConfig = object, object
    sys.modules["zoology.config"] = config
    from zoology.data.multiquery_ar import multiquery_ar
    data = multiquery_ar(vocab_size=512, num_examples=count, input_seq_len=64, seed=1, num_kv_pairs=8)
    return data.inputs.numpy(), data.labels.numpy()


tasks = {  # Longhand's options, those of the published test sequences by default; the other generator
    "in_context_recall": ({}, lambda: mad("in_context_recall", multi_query=True, noise_vocab_size=0)),
    "noisy_recall": ({}, lambda: mad("noisy_in_context_recall", multi_query=True)),
    "fuzzy_recall": ({}, lambda: mad("fuzzy_in_context_recall", multi_query=True)),
    "compression": ({}, lambda: mad("compression")),
    "selective_copy": ({"symbols": 14, "blanks": "before_symbols"}, selective_copy),
    "mqar": ({"vocabulary": 512, "length": 64, "pairs": 8, "random_non_queries": True}, mqar),
}


def settings(options):
    return [f"{key}={json.dumps(value)}" if not isinstance(value, str) else f"{key}={value}" for key, value in options.items()]


def longhand(*arguments):
    return subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout


def p_value(one, other):
    """Of the hypothesis that two lists of integers have one distribution; rare values count together."""
    values = np.arange(min(one.min(), other.min()), max(one.max(), other.max()) + 2)
    table = np.array([np.histogram(x, values)[0] for x in (one, other)])
    frequent = table.sum(0) >= 20
    table = np.column_stack([table[:, frequent], table[:, ~frequent].sum(1)])
    table = table[:, table.sum(0) > 0]
    return stats.chi2_contingency(table).pvalue if table.shape[1] > 1 else 1.0


def p_values(ours, theirs):
    """Each from one number per sequence, because those of one sequence are not independent: tokens at five places (the least p of
    five, corrected), the last target, the number of targets, the place of the first."""
    length = ours[0].shape[1]
    places = [i * (length - 1) // 4 for i in range(5)]
    yield min(1, 5 * min(p_value(ours[0][:, i], theirs[0][:, i]) for i in places))
    for of in (lambda t: t[np.arange(count), length - 1 - (t[:, ::-1] >= 0).argmax(1)], lambda t: (t >= 0).sum(1), lambda t: (t >= 0).argmax(1)):
        yield p_value(of(ours[1]), of(theirs[1]))


def evaluate(run, *arguments):
    return json.loads(longhand("evaluate", run, "--json", "--quiet", *arguments))["accuracy"]


print("| task | p: tokens | last target | number of targets | place of the first | accuracy on ours | on theirs |\n" + "| --- " * 7 + "|")
for name, (options, generate) in tasks.items():
    run, options = runs / name, {f"data.{key}": value for key, value in options.items()}
    if not run.exists():
        extra = {"model.reconstruct": True} if name == "compression" else {}
        longhand("train", here / "generators.toml", "--out", run, "--quiet", "--set",
                 *settings({"data.task": name, **options, **extra}))
    ours_file, theirs_file = runs / f"{name}.ours.h5", runs / f"{name}.theirs.h5"
    longhand("data", "make", name, "--out", ours_file, "--force", "--quiet", "--seed", 9, "--set",
             *settings({**options, "data.test_size": count, "data.train_size": 1, "data.validation_size": 1}))
    with h5py.File(ours_file) as file:
        ours = [file["test"][key][:] for key in ("tokens", "targets")]
        attributes = dict(file.attrs)
    theirs = [np.array(x, np.int32) for x in generate()]
    with h5py.File(theirs_file, "w") as file:
        for key in ("vocabulary", "classes", "causal"):
            if key in attributes:
                file.attrs[key] = attributes[key]
        for split in ("train", "validation", "test"):  # of which the test split alone is read
            for key, value in zip(("tokens", "targets"), theirs):
                file[f"{split}/{key}"] = value
    scores = [evaluate(run, "--set", "data.task=tokens", f"data.path={file}") for file in (ours_file, theirs_file)]
    print("| " + " | ".join([name, *(f"{p:.2f}" for p in p_values(ours, theirs)), *(f"{score:.4f}" for score in scores)]) + " |", flush=True)
