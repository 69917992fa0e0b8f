"""The training step of `longhand bench step` in PyTorch, and both of them timed in turn.

The same model, sizes, dropout, optimizer and number of threads; the attentions are those of
forms.py. PyTorch runs eager and compiled, on the C library's malloc and on jemalloc where that is
installed. Every measurement is a process of its own; its memory is VmHWM, import included. Compiling
that takes too long is given up, and its column is "-".
"""

import argparse
import glob
import importlib.metadata
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

MODELS = {
    "L": dict(layers=2, d=64, heads=2, mlp=128, classes=10, causal=False, lengths=[2048]),
    "M": dict(layers=4, d=256, heads=8, mlp=1024, classes=256, causal=True, lengths=[2048]),
    # Short sequences: M with fewer layers, without a feed-forward part.
    "S": dict(layers=2, d=128, heads=1, mlp=0, classes=256, causal=True, lengths=[128]),
}


def peak_memory():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024


def median(x):
    x = sorted(x)
    return (x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2


def measure(cell):
    """The step in this process. Prints a line when the first one is done, and with it compiling."""
    import torch
    from torch.nn import functional as F

    from forms import VOCABULARY, Model

    torch.set_num_threads(cell["threads"])
    torch.manual_seed(0)
    model = Model(cell)
    batch = max(1, cell["tokens"] // cell["length"])
    tokens = torch.randint(VOCABULARY, (batch, cell["length"]))
    targets = torch.randint(cell["classes"],
                            (batch, cell["length"]) if cell["causal"] else (batch,)).flatten()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    forward = torch.compile(model) if cell["compiled"] else model
    model.train()
    times = []
    for i in range(-2, 1000):
        start = time.perf_counter()
        loss = F.cross_entropy(forward(tokens).view(-1, cell["classes"]), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if i == -2:
            print("started", flush=True)
        if i >= 0:
            times.append(time.perf_counter() - start)
        if len(times) >= 3 and sum(times) >= cell["seconds"]:
            break
    return dict(seconds=median(times), peak_memory_bytes=peak_memory(),
                parameters=sum(x.numel() for x in model.parameters()))


class Failed(Exception):
    pass


def in_process(command, environment=None, patience=None):
    """What the process prints, as JSON. Throws Failed if it fails, or prints nothing for `patience`
    seconds: it is killed then, with all that it started."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, text=True,
                                   stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        try:
            if not select.select([process.stdout], [], [], patience)[0]:
                raise Failed(f"given up after {patience:g} s")
            output = process.stdout.read()
            if process.wait():
                errors.seek(0)
                last = errors.read().strip().splitlines()[-1:]
                raise Failed(last[0] if last else f"exit code {process.returncode}")
            return json.loads(output[output.index("{"):])
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def longhand(program, cell, model, options):
    command = [program, "bench", "step", "--json", "--quiet",
               "--model", "M" if model == "S" else model,
               "--layers", str(cell["layers"]), "--d-model", str(cell["d"]),
               "--heads", str(cell["heads"]), "--d-mlp", str(cell["mlp"]),
               "--attention", cell["attention"], "--length", str(cell["length"]),
               "--tokens", str(cell["tokens"]), "--dropout", str(cell["dropout"]),
               "--threads", str(cell["threads"]), "--seconds", str(cell["seconds"])]
    for option in options:
        command += ["--set", option]
    return in_process(command)["cells"][0]


def find_jemalloc():
    found = sorted(glob.glob("/usr/lib/*/libjemalloc.so.2"))
    return found[0] if found else ""


def ways(arguments):
    """Names of the ways that PyTorch runs in, whether compiled, environments."""
    mallocs = {"glibc": {}}
    if arguments.jemalloc:
        # Nothing is given back to the system, which is what costs most.
        mallocs["jemalloc"] = {
            "LD_PRELOAD": arguments.jemalloc,
            "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0"}
    for how in ("eager", "compiled"):
        for malloc, environment in mallocs.items():
            if not arguments.ways or f"{how}+{malloc}" in arguments.ways:
                yield how, malloc, environment


def compare(arguments, cell, options):
    """The fastest of all rounds: "longhand", "eager" and "compiled", as far as they succeed."""
    best, failed = {}, set()

    def attempt(name, detail, measurement):
        if name in failed:
            return
        said = f"{cell['attention']} {cell['length']}, round {round_ + 1}, {name}{detail}"
        try:
            result = measurement()
        except Failed as reason:
            failed.add(name)
            print(f"  {said}: {reason}", file=sys.stderr)
            return
        print(f"  {said}: {result['seconds']:.4f} s", file=sys.stderr)
        if name not in best or result["seconds"] < best[name]["seconds"]:
            best[name] = result

    for round_ in range(arguments.rounds):
        attempt("longhand", "",
                lambda: longhand(arguments.longhand, cell, arguments.model, options))
        for how, malloc, environment in ways(arguments):
            compiled = how == "compiled"
            attempt(how, f" on {malloc}", lambda: in_process(
                [sys.executable, __file__, "--cell", json.dumps({**cell, "compiled": compiled})],
                environment, arguments.compile_seconds if compiled else None))
    return best


HEAD = """
| attention | N | Longhand s | PyTorch eager s | compiled s | times faster | MiB | PyTorch MiB |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def show(cell, best):
    """Prints a row of the table. Returns whether the models have as many parameters."""
    seconds = lambda name: best[name]["seconds"] if name in best else None
    ours = best.get("longhand")
    theirs = min((best[name] for name in best.keys() - {"longhand"}),
                 key=lambda result: result["seconds"], default=None)
    text = lambda x, digits: "-" if x is None else f"{x:,.{digits}f}"
    mebibytes = lambda result: result and result["peak_memory_bytes"] / 2**20
    columns = [cell["attention"], f"{cell['length']:,}",
               *(text(seconds(name), 4) for name in ("longhand", "eager", "compiled")),
               text(theirs["seconds"] / ours["seconds"] if ours and theirs else None, 2),
               text(mebibytes(ours), 0), text(mebibytes(theirs), 0)]
    print(f"| {' | '.join(columns)} |", flush=True)
    counts = {name: result["parameters"] for name, result in best.items()}
    if len(set(counts.values())) <= 1:
        return True
    print(f"peers: the models are not the same, their numbers of parameters are {counts}",
          file=sys.stderr)
    return False


def numbers(of_type):
    return lambda text: [of_type(word) for word in text.split(",")]


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longhand", help="the program")
    parser.add_argument("--model", choices=MODELS, default="L")
    parser.add_argument("--attention", type=numbers(str), help="[all that the model can have]")
    parser.add_argument("--length", type=numbers(int))
    parser.add_argument("--d-model", type=int, help="[that of the model]")
    parser.add_argument("--dropout", type=numbers(float), default=[0.0, 0.1])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2, help="of all, in turn; the best counts")
    parser.add_argument("--compile-seconds", type=float, default=180, metavar="S",
                        help="for the first compiled step, after which it is given up [180]")
    parser.add_argument("--ways", type=numbers(str),
                        help="of PyTorch to try, such as eager+glibc,compiled+jemalloc [all]")
    parser.add_argument("--jemalloc", default=find_jemalloc(), help="its library; empty: without")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    return parser, parser.parse_args()


def main():
    parser, arguments = read_arguments()
    if not importlib.util.find_spec("torch"):
        print("peers: there is no torch in this Python, nothing to compare with")
        return 0
    if arguments.cell:
        print(json.dumps(measure(json.loads(arguments.cell))))
        return 0

    from forms import FORMS

    # An end by `finally`, so that no measurement goes on alone.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    model = MODELS[arguments.model]
    # A model that is not causal becomes so for a form that only is.
    fits = lambda form: model["causal"] in form.masks or form.masks == (True,)
    able = [name for name, form in FORMS.items() if fits(form)]
    kinds = arguments.attention or able
    for kind in kinds:
        if kind not in able:
            parser.error(f"there is no form of {kind} for model {arguments.model}")
    print(f"PyTorch {importlib.metadata.version('torch')}, {arguments.threads} threads, "
          f"model {arguments.model}, {arguments.tokens:,} tokens a step")
    left_out = [name for name in FORMS if name not in able]
    if left_out and not arguments.attention:
        print(f"Left out, as their forms are not causal: {', '.join(left_out)}")
    agree = True
    for dropout in arguments.dropout:
        print(f"\nDropout {dropout:g}:\n{HEAD}", flush=True)
        for kind in kinds:
            form = FORMS[kind]
            options = [f"attention.{option}" for option in form.options]
            if form.masks == (True,) and not model["causal"]:
                options.append("model.causal=true")
            for length in arguments.length or model["lengths"]:
                cell = dict(model, attention=kind, length=length, dropout=dropout,
                            tokens=arguments.tokens, threads=arguments.threads,
                            seconds=arguments.seconds)
                if arguments.d_model:
                    cell["d"] = arguments.d_model
                agree = show(cell, compare(arguments, cell, options)) and agree
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
