"""The training step of `longhand bench step` in PyTorch, and both of them timed in turn.

The same model, sizes, dropout, optimizer and number of threads; exact attention by
scaled_dot_product_attention, the others by the formulas of their authors. PyTorch runs eager and
compiled, on the C library's malloc and on jemalloc where that is installed, and the best of them
counts. Every measurement is a process of its own; its memory is VmHWM, import included.
"""

import argparse
import glob
import importlib.metadata
import importlib.util
import json
import math
import os
import subprocess
import sys
import time

MODELS = {
    "L": dict(layers=2, d=64, heads=2, mlp=128, classes=10, causal=False, lengths=[2048]),
    "M": dict(layers=4, d=256, heads=8, mlp=1024, classes=256, causal=True, lengths=[2048]),
}
VOCABULARY = 256
SLOTS = FEATURES = 256  # of linformer and performer
LANDMARKS, CONVOLUTION, ITERATIONS = 64, 35, 6  # of nystrom
LATENTS, KEYS = 64, 32  # of latent and topk
CHUNK = 64  # tokens of the chunked forms
BARE = ["norm=false", "gate=false"]  # the scans alone: what surrounds them is the same for all
OPTIONS = {  # of the same in longhand
    "linformer": [f"k={SLOTS}"],
    "performer": [f"features={FEATURES}"],
    "nystrom": [f"landmarks={LANDMARKS}", f"conv_kernel={CONVOLUTION}",
                f"pinv_iterations={ITERATIONS}"],
    "retnet": BARE, "gla": BARE, "gated_deltanet": BARE, "kda": BARE + ["rank=16"],
    "deltanet": ["norm=false"],
    "latent": [f"latents={LATENTS}"],
    "topk": [f"k={KEYS}"],
}
CAUSAL_ONLY = ["retnet", "gla", "deltanet", "gated_deltanet", "kda", "forgetting"]


def build(cell):
    import torch
    from torch import nn
    from torch.nn import functional as F

    d, heads, n = cell["d"], cell["heads"], cell["length"]
    width = d // heads
    p = cell["dropout"]

    class Softmax(nn.Module):
        def forward(self, q, k, v):
            drop = p if self.training else 0.0
            return F.scaled_dot_product_attention(q, k, v, dropout_p=drop, is_causal=cell["causal"])

    class Linformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.E = nn.Parameter(torch.randn(SLOTS, n) / math.sqrt(n))
            self.F = nn.Parameter(torch.randn(SLOTS, n) / math.sqrt(n))

        def forward(self, q, k, v):
            scores = q @ (self.E @ k).transpose(-1, -2) / math.sqrt(width)
            return F.dropout(torch.softmax(scores, -1), p, self.training) @ (self.F @ v)

    class Performer(nn.Module):
        """FAVOR+ with the features exp(w x - |x|^2 / 2), stabilised by maxima and an eps."""

        def __init__(self):
            super().__init__()
            blocks = []
            for _ in range(math.ceil(FEATURES / width)):
                blocks.append(torch.linalg.qr(torch.randn(width, width))[0].T)
            norms = torch.randn(FEATURES, width).norm(dim=1, keepdim=True)
            self.register_buffer("W", torch.cat(blocks)[:FEATURES] * norms)

        def features(self, x, dims):
            x = x * width**-0.25
            u = x @ self.W.T
            half_square = (x * x).sum(-1, keepdim=True) / 2
            most = u.amax(dims, keepdim=True).detach()
            return FEATURES**-0.5 * (torch.exp(u - half_square - most) + 1e-4)

        def forward(self, q, k, v):
            return kernel_attention(self.features(q, -1), self.features(k, (-1, -2)), v)

    class Linear(nn.Module):
        def forward(self, q, k, v):
            return kernel_attention(F.elu(q) + 1, F.elu(k) + 1, v)

    def kernel_attention(q, k, v):
        normaliser = q @ k.sum(-2).unsqueeze(-1)
        return q @ (k.transpose(-1, -2) @ v) / normaliser

    class Nystrom(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(heads, heads, (CONVOLUTION, 1), padding=(CONVOLUTION // 2, 0),
                                  groups=heads, bias=False)

        def forward(self, q, k, v):
            q, k = q * width**-0.25, k * width**-0.25
            size = n // LANDMARKS
            landmarks = lambda x: x.reshape(-1, heads, LANDMARKS, size, width).mean(-2)
            qm, km = landmarks(q), landmarks(k)
            first = torch.softmax(q @ km.transpose(-1, -2), -1)
            middle = torch.softmax(qm @ km.transpose(-1, -2), -1)
            last = torch.softmax(qm @ k.transpose(-1, -2), -1)
            return first @ inverse(middle) @ (last @ v) + self.conv(v)

    def inverse(a):
        eye = torch.eye(LANDMARKS)
        most = a.sum(-2).amax(-1)[..., None, None]
        z = a.transpose(-1, -2) / most
        for _ in range(ITERATIONS):
            az = a @ z
            z = 0.25 * z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az)))
        return z

    class Nothing(nn.Module):
        def forward(self, q, k, v):
            return v

    # The chunked forms of flash-linear-attention: everything inside the chunks at once, then one
    # state after the other. g, the logarithms of the decays, has one number a head or channel.
    def chunks(x):
        return x.reshape(x.shape[0], heads, n // CHUNK, CHUNK, x.shape[-1])

    def pairs(a, b, G):
        """a_i . b_j e^(G_i - G_j) for j <= i."""
        if G.shape[-1] == 1:
            return (a @ b.transpose(-1, -2)) * torch.exp(
                (G - G.transpose(-1, -2)).masked_fill(later, -math.inf))
        return ((a * torch.exp(G)) @ (b * torch.exp(-G)).transpose(-1, -2)).masked_fill(later, 0)

    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)

    def gated_scan(q, k, v, g):
        q, k, v, G = chunks(q * width**-0.5), chunks(k), chunks(v), chunks(g).cumsum(-2)
        inside = pairs(q, k, G) @ v
        writes = (k * torch.exp(G[..., -1:, :] - G)).transpose(-1, -2) @ v
        decays = torch.exp(G[..., -1, :]).unsqueeze(-1)
        state, states = torch.zeros_like(writes[:, :, 0]), []
        for i in range(n // CHUNK):
            states.append(state)
            state = decays[:, :, i] * state + writes[:, :, i]
        out = inside + (q * torch.exp(G)) @ torch.stack(states, 2)
        return out.reshape(-1, heads, n, width)

    def delta_rule(q, k, v, beta, g):
        unit = lambda x: F.normalize(F.silu(x), dim=-1)
        q, k, v, beta, G = (chunks(unit(q) * width**-0.5), chunks(unit(k)), chunks(v),
                            chunks(beta), chunks(g).cumsum(-2))
        lower = pairs(k * beta, k, G).tril(-1)
        u, w = torch.linalg.solve_triangular(
            lower, torch.cat([v * beta, k * beta * torch.exp(G)], -1), upper=False,
            unitriangular=True).split(width, -1)
        inside = pairs(q, k, G)
        reads, ends = q * torch.exp(G), (k * torch.exp(G[..., -1:, :] - G)).transpose(-1, -2)
        decays = torch.exp(G[..., -1, :]).unsqueeze(-1)
        state, out = torch.zeros(q.shape[0], heads, width, width), []
        for i in range(n // CHUNK):
            new = u[:, :, i] - w[:, :, i] @ state
            out.append(reads[:, :, i] @ state + inside[:, :, i] @ new)
            state = decays[:, :, i] * state + ends[:, :, i] @ new
        return torch.cat(out, 2)

    def by_head(x):  # (B, N, H E): (B, H, N, E)
        return x.view(x.shape[0], n, heads, -1).transpose(1, 2)

    class Retnet(nn.Module):
        def forward(self, q, k, v, x):
            g = torch.log1p(-torch.exp2(-5.0 - torch.arange(heads))).view(1, heads, 1, 1)
            return gated_scan(q, k, v, g.expand(q.shape[0], heads, n, 1))

    class Gla(nn.Module):
        def __init__(self):
            super().__init__()
            self.decay = nn.Sequential(nn.Linear(d, 16, bias=False), nn.Linear(16, d))

        def forward(self, q, k, v, x):
            return gated_scan(q, k, v, by_head(F.logsigmoid(self.decay(x)) / 16))

    class DeltaNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.beta = nn.Linear(d, heads, bias=False)

        def decay(self, x):
            return torch.zeros(x.shape[0], heads, n, 1)

        def forward(self, q, k, v, x):
            return delta_rule(q, k, v, by_head(torch.sigmoid(self.beta(x))), self.decay(x))

    class GatedDeltaNet(DeltaNet):
        def __init__(self):
            super().__init__()
            self.step = nn.Linear(d, heads, bias=False)
            self.bias, self.rate = nn.Parameter(torch.full((heads,), -4.0)), nn.Parameter(
                torch.zeros(heads))

        def decay(self, x):
            return by_head(-self.rate.exp() * F.softplus(self.step(x) + self.bias))

    class Kda(DeltaNet):
        def __init__(self):
            super().__init__()
            self.step = nn.Sequential(nn.Linear(d, 16, bias=False), nn.Linear(16, d))
            self.rate = nn.Parameter(torch.zeros(heads, 1))

        def decay(self, x):
            # At least e^-1 a token: e^-G overflows below that in the published chunked form.
            steps = F.softplus(self.step(x) - 4).view(-1, n, heads, width) * self.rate.exp()
            return -steps.transpose(1, 2)

    class Forgetting(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(d, heads)

        def forward(self, q, k, v, x):
            G = by_head(F.logsigmoid(self.gate(x))).cumsum(-2)
            bias = (G - G.transpose(-1, -2)).masked_fill(self.future, -math.inf)
            return F.scaled_dot_product_attention(q, k, v, bias)

        future = torch.ones(n, n, dtype=torch.bool).triu(1) if cell["attention"] == "forgetting" \
            else None

    class Topk(nn.Module):
        def forward(self, q, k, v):
            scores = q @ k.transpose(-1, -2) / math.sqrt(width)
            least = scores.topk(KEYS, -1).values[..., -1:]
            return torch.softmax(scores.masked_fill(scores < least, -math.inf), -1) @ v

    class Latent(nn.Module):
        def __init__(self):
            super().__init__()
            self.latents = nn.Parameter(torch.randn(heads, LATENTS, width))

        def forward(self, q, k, v):
            latents = self.latents.expand(q.shape[0], -1, -1, -1)
            collected = F.scaled_dot_product_attention(latents, k, v)
            return F.scaled_dot_product_attention(q, latents, collected)

    kinds = dict(softmax=Softmax, linformer=Linformer, performer=Performer, nystrom=Nystrom,
                 linear=Linear, none=Nothing, retnet=Retnet, gla=Gla, deltanet=DeltaNet,
                 gated_deltanet=GatedDeltaNet, kda=Kda, forgetting=Forgetting, topk=Topk,
                 latent=Latent)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.fc1, self.fc2 = nn.Linear(d, cell["mlp"]), nn.Linear(cell["mlp"], d)
            self.kernel = kinds[cell["attention"]]()

        def forward(self, x):
            drop = lambda y: F.dropout(y, p, self.training)
            y = self.norm1(x)
            qkv = self.qkv(y).view(-1, n, 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
            o = self.kernel(*qkv, y) if cell["attention"] in CAUSAL_ONLY else self.kernel(*qkv)
            x = x + drop(self.out(o.transpose(1, 2).reshape(-1, n, d)))
            return x + drop(self.fc2(drop(F.gelu(self.fc1(self.norm2(x))))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(VOCABULARY, d), nn.Embedding(n, d)
            self.blocks = nn.Sequential(*(Block() for _ in range(cell["layers"])))
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, cell["classes"])

        def forward(self, tokens):
            x = F.dropout(self.token(tokens) + self.position.weight, p, self.training)
            x = self.norm(self.blocks(x))
            # A language model has logits for each token, the other one for the sequence.
            return self.head(x if cell["causal"] else x.mean(1))

    return Model()


def peak_memory():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024


def median(x):
    x = sorted(x)
    return (x[(len(x) - 1) // 2] + x[len(x) // 2]) / 2


def measure(cell):
    """The step in this process."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(cell["threads"])
    torch.manual_seed(0)
    model = build(cell)
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
        if i >= 0:
            times.append(time.perf_counter() - start)
        if len(times) >= 3 and sum(times) >= cell["seconds"]:
            break
    return dict(seconds=median(times), peak_memory_bytes=peak_memory(),
                parameters=sum(x.numel() for x in model.parameters()))


def in_process(command, environment=None):
    """What the process prints, as JSON; None if it fails."""
    run = subprocess.run(command, env={**os.environ, **(environment or {})}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if run.returncode:
        last = run.stderr.strip().splitlines()[-1:] or [f"exit code {run.returncode}"]
        print(f"  {' '.join(command[:3])} …: {last[0]}", file=sys.stderr)
        return None
    return json.loads(run.stdout[run.stdout.index("{"):])


def longhand(program, cell, model):
    options = [f"attention.{o}" for o in OPTIONS.get(cell["attention"], [])]
    command = [program, "bench", "step", "--json", "--quiet", "--model", model,
               "--attention", cell["attention"], "--length", str(cell["length"]),
               "--tokens", str(cell["tokens"]), "--dropout", str(cell["dropout"]),
               "--threads", str(cell["threads"]), "--seconds", str(cell["seconds"])]
    if cell["attention"] in CAUSAL_ONLY:
        options.append("model.causal=true")
    for option in options:
        command += ["--set", option]
    result = in_process(command)
    return result and result["cells"][0]


def find_jemalloc():
    found = sorted(glob.glob("/usr/lib/*/libjemalloc.so.2"))
    return found[0] if found else ""


def ways(arguments):
    """Name, whether compiled, environment."""
    mallocs = {"glibc": {}}
    if arguments.jemalloc:
        # Nothing is given back to the system, which is what costs most.
        mallocs["jemalloc"] = {
            "LD_PRELOAD": arguments.jemalloc,
            "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0"}
    for compiled in (False, True):
        for malloc, environment in mallocs.items():
            name = f"{'compiled' if compiled else 'eager'}+{malloc}"
            if not arguments.ways or name in arguments.ways:
                yield name, compiled, environment


def compare(arguments, cell, model):
    """The fastest of all rounds of each way; ours under the name "longhand"."""
    best = {}

    def keep(name, result):
        if result and (name not in best or result["seconds"] < best[name]["seconds"]):
            best[name] = result

    for round_ in range(arguments.rounds):
        keep("longhand", longhand(arguments.longhand, cell, model))
        for name, compiled, environment in ways(arguments):
            if round_ > 0 and name not in best:
                continue
            keep(name, in_process([sys.executable, __file__, "--cell",
                                   json.dumps({**cell, "compiled": compiled})], environment))
            if name in best:
                print(f"  {name}: {best[name]['seconds']:.4f} s", file=sys.stderr)
    return best


HEAD = f"{'attention':<14} {'N':>6} {'drop':>5} {'longhand s':>11} {'torch s':>9} " \
       f"{'faster':>7} {'MiB':>6} {'torch':>6} {'smaller':>8} {'parameters':>11}  best of torch"


def show(cell, best):
    """A row of the table; whether the models have as many parameters."""
    ours = best.get("longhand")
    fastest = min(best.keys() - {"longhand"}, key=lambda name: best[name]["seconds"], default="-")
    theirs = best.get(fastest)

    def column(width, digits, key, unit=1):
        mine, peer = (result and result[key] / unit for result in (ours, theirs))
        ratio = peer / mine if mine and peer else None
        text = lambda x, n: f"{x:.{n}f}" if x else "-"
        return (f"{text(mine, digits):>{width[0]}} {text(peer, digits):>{width[1]}} "
                f"{text(ratio, 2):>{width[2]}}")

    counts = {result["parameters"] for result in best.values()}
    print(f"{cell['attention']:<14} {cell['length']:>6} {cell['dropout']:>5g} "
          f"{column((11, 9, 7), 4, 'seconds')} "
          f"{column((6, 6, 8), 0, 'peak_memory_bytes', 2**20)} "
          f"{' != '.join(map(str, sorted(counts))):>11}  {fastest}", flush=True)
    return len(counts) <= 1


def numbers(of_type):
    return lambda text: [of_type(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longhand", help="the program")
    parser.add_argument("--model", choices=MODELS, default="L")
    parser.add_argument("--attention", type=numbers(str))
    parser.add_argument("--length", type=numbers(int))
    parser.add_argument("--dropout", type=numbers(float), default=[0.0, 0.1])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2, help="of all, in turn; the best counts")
    parser.add_argument("--ways", type=numbers(str),
                        help="of PyTorch to try, such as eager+glibc,compiled+jemalloc [all]")
    parser.add_argument("--jemalloc", default=find_jemalloc(), help="its library; empty: without")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not importlib.util.find_spec("torch"):
        print("peers: there is no torch in this Python, nothing to compare with")
        return 0
    if arguments.cell:
        print(json.dumps(measure(json.loads(arguments.cell))))
        return 0

    model = MODELS[arguments.model]
    kinds = arguments.attention or (
        ["softmax"] if model["causal"] else
        ["softmax", "linformer", "performer", "nystrom", "linear", "none", "latent", "topk"] +
        CAUSAL_ONLY)
    print(f"PyTorch {importlib.metadata.version('torch')}, {arguments.threads} threads, model {arguments.model}, "
          f"{arguments.tokens} tokens a step")
    print(HEAD, flush=True)
    agree = True
    for dropout in arguments.dropout:
        for kind in kinds:
            for length in arguments.length or model["lengths"]:
                cell = dict(model, attention=kind, length=length, dropout=dropout,
                            tokens=arguments.tokens, threads=arguments.threads,
                            seconds=arguments.seconds)
                agree = show(cell, compare(arguments, cell, arguments.model)) and agree
    if not agree:
        print("peers: the models are not the same", file=sys.stderr)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
