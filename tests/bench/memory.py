#!/usr/bin/env python3
"""Estimates of memory against peaks: a run of two steps, an evaluation and a checkpoint for each configuration.

    tests/bench/memory.py build/release/longhand [NAME...]

prints a table, and how many are within 5 % or 5 MiB. A run takes at most 1.5 GiB."""
import json
import pathlib
import subprocess
import sys
import tempfile

MIB = 1 << 20

BASE = """
[model]
d_model = 128
heads = 4
layers = 2
d_mlp = 256
[data]
task = "copy"
train_size = 600
validation_size = 8
test_size = 8
[train]
steps = 2
"""

# Name of the variant, and of which kind: c causal, n not causal.
VARIANTS = """softmax:nc sigmoid:nc differential:nc linformer:n performer:nc efficient:nc nystrom:n linear:nc rff:nc retnet:c gla:c mamba2:c mamba3:c log_linear:c
deltanet:c gated_deltanet:c deltaproduct:c kda:c gdn2:c rwkv7:c mesa:c gaussian:nc skyformer:n window:nc bigbird:nc scatterbrain:nc reformer:nc eva:nc
moba:c path:c forgetting:c lowrank:nc latent:n clustered:n lara:n conv:nc parallel:nc svd:n topk:nc none:nc mean:nc random:nc
synthesizer:nc aft:nc fnet:n"""


def of_task(N, B, evaluation=None, **more):
    """B sequences of N tokens."""
    return {"data.length": N, "data.count": min(N // 4, 64), "train.batch_size": B,
            "train.eval_batch_size": evaluation or min(B, 8), **more}


def cases():
    for entry in VARIANTS.split():
        name, kinds = entry.split(":")
        for kind in kinds:
            size = {"svd": (128, 8), "rff": (1024, 8)}.get(name, (1024, 32))
            options = {"attention.type": name}
            if kind == "c":
                options["model.causal"] = "true"
            yield f"{name}{', causal' if kind == 'c' else ''}", of_task(*size, **options)
    soft = {"attention.type": "softmax"}
    yield "naive, dropout", of_task(512, 16, **{"attention.impl": "naive", "attention.dropout": 0.1, "model.dropout": 0.1})
    yield "linear, dropout", of_task(1024, 32, **{"attention.type": "linear", "model.dropout": 0.1})
    yield "recompute", of_task(1024, 64, **{"train.recompute": "true", "model.layers": 6})
    yield "micro-batches", of_task(1024, 128, **{"train.micro_batches": 8})
    yield "f64", of_task(1024, 16, **{"model.dtype": "f64"})
    yield "f64, performer", of_task(1024, 16, **{"model.dtype": "f64", "attention.type": "performer"})
    yield "N = 64, B = 512", of_task(64, 512)
    yield "N = 64, B = 1", of_task(64, 1)
    yield "N = 16,384, B = 2", of_task(16384, 2, **{"attention.type": "linear"})
    yield "N = 65,536, B = 1", of_task(65536, 1, **{"attention.type": "linear", "model.d_model": 64})
    yield "wide, average", of_task(128, 4, **{"model.d_model": 1024, "model.d_mlp": 4096, "train.ema_decay": 0.9})
    yield "deep", of_task(256, 8, **{"model.layers": 24})
    yield "surroundings", of_task(1024, 32, **{"model.short_conv": 4, "model.output_gate": "silu",
                                               "model.head_norm": "rms_norm", "model.qk_norm": "rms_norm"})
    yield "sgd, low rank", of_task(512, 32, **{"optimizer.type": "sgd", "model.low_rank": 16})
    yield "distillation", of_task(512, 32, **{"train.distill_from": "teacher", **soft})
    yield "convert", of_task(512, 32, **{"attention.type": "linear", "train.init_from": "teacher"})


def main():
    program, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    rows, misses, low = 0, 0, []
    print("| run | estimate (MiB) | peak (MiB) | estimate / peak |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.toml").write_text(BASE)

        def longhand(options, *arguments):
            assignments = [x for key, value in options.items() for x in ("--set", f"{key}={value}")]
            command = [program, "train", "config.toml", "--threads", "2", *arguments, *assignments]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
            return done.stdout

        longhand(of_task(512, 8), "-q", "--out", "teacher")
        for name, options in cases():
            if names and not any(each in name for each in names):
                continue
            estimate = json.loads(longhand(options, "--estimate", "--json"))["memory"]["total"] / MIB
            longhand(options, "-q", "--out", "run", "--overwrite")
            peak = json.loads((folder / "run/summary.json").read_text())["peak_memory_bytes"] / MIB
            rows += 1
            far = abs(estimate - peak) > max(0.05 * peak, 5)
            misses += far
            if estimate < 0.92 * peak:
                low.append(name)
            print(f"| {name} | {estimate:.0f} | {peak:.0f} | {estimate / peak:.2f}{' *' if far else ''} |", flush=True)
    print(f"\n{rows - misses} of {rows} within 5 % or 5 MiB; more than 8 % too low: {', '.join(low) or 'none'}")


if __name__ == "__main__":
    main()
