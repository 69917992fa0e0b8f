"""The model of `longhand bench step` in PyTorch, and a form of each attention for it.

A form computes what Longhand's variant of that name does, by the formulas of its authors and as one
would write them in PyTorch for speed: without loops over tokens, in blocks where that saves memory.
"""

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 256
FEATURES = 256  # of random features, and slots of linformer
LANDMARKS = 64  # of nystrom, skyformer and lara, latents, and clusters
CHUNK = 64  # tokens of the chunked recurrences
BLOCK = 64  # tokens of the blocks of sparse attention, and of windows
BARE = ["norm=false", "gate=false"]  # the scans alone: what surrounds them is the same for all


class Sizes(NamedTuple):
    d: int
    heads: int
    length: int
    dropout: float
    causal: bool

    @property
    def width(self):
        return self.d // self.heads


class Form(nn.Module):
    """Maps q, k, v (B, H, N, E), and x (B, N, H E) that they are projected from, to (B, H, N, E).
    Those that it does not read are not projected, and None."""

    reads = "qkv"
    options = []  # of the same in Longhand, where they are not its defaults
    masks = (False,)  # whether it is causal: both, where it has both forms

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def drop(self, weights):
        return F.dropout(weights, self.sizes.dropout, self.training)

    def exact(self, q, k, v, mask=None, causal=False, scale=None):
        drop = self.sizes.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=drop, is_causal=causal,
                                              scale=scale)

    def biased(self, q, k, v, bias, scale):
        """softmax(scale (q kᵀ + biasᵀ)) v for bias (B, H, N, 1), without a matrix of scores."""
        q, k = torch.cat([q, torch.ones_like(q[..., :1])], -1), torch.cat([k, bias], -1)
        return self.exact(q, k, F.pad(v, (0, 1)), scale=scale)[..., :-1]


# Full matrices of weights.


class Softmax(Form):
    masks = (False, True)

    def forward(self, q, k, v, x):
        return self.exact(q, k, v, causal=self.sizes.causal)


class Gaussian(Form):
    """The norms of queries cancel."""

    def forward(self, q, k, v, x):
        bias = -(k * k).sum(-1, keepdim=True) / 2
        return self.biased(q, k, v, bias, self.sizes.width**-0.5)


class Sigmoid(Form):
    """Block by block of queries, with the keys that they see."""

    masks = (False, True)

    def __init__(self, sizes):
        super().__init__(sizes)
        self.rows = min(128, sizes.length)
        bias = torch.full((self.rows, sizes.length), -math.log(sizes.length))
        if sizes.causal:
            bias[:, -self.rows:].masked_fill_(later(self.rows), -math.inf)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, q, k, v, x):
        n, out = self.sizes.length, []
        for rows in (q * self.sizes.width**-0.5).split(self.rows, 2):
            keys = (len(out) + 1) * self.rows if self.sizes.causal else n
            weights = (rows @ k[:, :, :keys].mT).add_(self.bias[:, n - keys:]).sigmoid_()
            out.append(self.drop(weights) @ v[:, :, :keys])
        return torch.cat(out, 2)


class Differential(Form):
    """Even and odd channels as queries whose other ones are 0, which takes as many products as
    halves of the values and half of the exponentials."""

    options, masks = ["norm=false", "lambda_init=0.2"], (False, True)

    def __init__(self, sizes):
        super().__init__(sizes)
        self.vectors = nn.Parameter(0.1 * torch.randn(4, sizes.width // 2))
        self.register_buffer("even", torch.arange(sizes.width) % 2 == 0, persistent=False)

    def forward(self, q, k, v, x):
        first, second = (self.exact(q * half, k, v, causal=self.sizes.causal,
                                    scale=math.sqrt(2 / self.sizes.width))
                         for half in (self.even, ~self.even))
        powers = torch.exp((self.vectors[::2] * self.vectors[1::2]).sum(-1))
        return first - (powers[0] - powers[1] + 0.2) * second


class Synthesizer(Form):
    """Dense: scores of the tokens alone."""

    reads = "v"

    def __init__(self, sizes):
        super().__init__(sizes)
        heads, n, hidden = sizes.heads, sizes.length, sizes.width
        self.hidden = nn.Linear(sizes.d, heads * hidden)
        self.weight = nn.Parameter(torch.empty(heads, n, hidden))
        self.bias = nn.Parameter(torch.zeros(heads, n))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, q, k, v, x):
        u = by_head(F.relu(self.hidden(x)), self.sizes.heads)
        bias = self.bias.unsqueeze(-1).expand(*u.shape[:3], 1)
        return self.biased(u, self.weight.expand_as(u), v, bias, 1.0)


class Random(Form):
    """The weights never change, so that their softmax is computed once."""

    reads = "v"

    def __init__(self, sizes):
        super().__init__(sizes)
        n = sizes.length
        self.register_buffer("weights", torch.softmax(torch.randn(sizes.heads, n, n), -1))

    def forward(self, q, k, v, x):
        if self.training and self.sizes.dropout > 0:
            return self.drop(self.weights.expand(len(v), -1, -1, -1)) @ v
        return torch.einsum("hij,bhje->bhie", self.weights, v)


class Topk(Form):
    options = ["k=32"]

    def forward(self, q, k, v, x):
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.sizes.width)
        least = scores.topk(32, -1).values[..., -1:]
        return self.drop(torch.softmax(scores.masked_fill(scores < least, -math.inf), -1)) @ v


class Forgetting(Form):
    masks = (True,)

    def __init__(self, sizes):
        super().__init__(sizes)
        n = sizes.length
        self.gate = nn.Linear(sizes.d, sizes.heads)
        self.register_buffer("future", torch.ones(n, n, dtype=torch.bool).triu(1))

    def forward(self, q, k, v, x):
        G = by_head(F.logsigmoid(self.gate(x)), self.sizes.heads).cumsum(-2)
        bias = (G - G.transpose(-1, -2)).masked_fill(self.future, -math.inf)
        return self.exact(q, k, v, bias)


class Path(Form):
    """The scores of all queries with the keys of one chunk after the other, from the last one on;
    queries are multiplied by the reflections of each chunk as they pass it."""

    masks = (True,)

    def __init__(self, sizes):
        super().__init__(sizes)
        d = sizes.d
        self.w = nn.Sequential(nn.Linear(d, 32, bias=False), nn.Linear(32, d, bias=False))
        self.beta = nn.Linear(d, sizes.heads)

    def forward(self, q, k, v, x):
        heads, scale = self.sizes.heads, self.sizes.width**-0.5
        w = F.rms_norm(by_head(self.w(x), heads), (self.sizes.width,), eps=1e-6) * scale
        beta = by_head(2 * torch.sigmoid(self.beta(x)), heads)
        q, k, w, beta = (blocks(y, CHUNK) for y in (q * scale, k, w, beta))
        along = (q @ w.mT).tril()
        Y, Z = solved((beta * w @ w.mT).tril(-1), [beta * (w @ k.mT).tril(-1), beta * w])
        inside = (q @ k.mT - along @ Y).masked_fill(later(CHUNK), -math.inf)
        starts, ends = q - along @ Z, (k - Y.mT @ w).mT
        passed = torch.eye(self.sizes.width, dtype=q.dtype) - w.mT @ Z
        scores, queries = [[own] for own in inside.unbind(2)], starts[:, :, -1]
        for m in reversed(range(len(scores) - 1)):
            for row, of_keys in zip(scores[m + 1:], (queries @ ends[:, :, m]).split(CHUNK, 2)):
                row.insert(0, of_keys)
            queries = torch.cat([starts[:, :, m], queries @ passed[:, :, m]], 2)
        out = [torch.softmax(torch.cat(row, -1), -1) @ v[:, :, :len(row) * CHUNK] for row in scores]
        return torch.cat(out, 2)


# No weights, or simple ones.


class Nothing(Form):
    reads = "v"

    def forward(self, q, k, v, x):
        return v


class Mean(Form):
    reads = "v"

    def forward(self, q, k, v, x):
        return v.mean(-2, keepdim=True).expand_as(v)


class Fnet(Form):
    reads = "v"

    def forward(self, q, k, v, x):
        return by_head(torch.fft.fft2(merged(v), norm="ortho").real, self.sizes.heads)


class Conv(Form):
    """A causal convolution of each channel, gated."""

    reads = "v"

    def __init__(self, sizes):
        super().__init__(sizes)
        self.filter = nn.Parameter(torch.empty(sizes.d, 4).uniform_(-0.5, 0.5))
        self.gate = nn.Linear(sizes.d, sizes.d)

    def forward(self, q, k, v, x):
        n, v = self.sizes.length, F.pad(merged(v), (0, 0, 3, 0))
        # Faster than conv1d() of as many groups as channels.
        filtered = sum(v[:, j:j + n] * taps for j, taps in enumerate(self.filter.T))
        return by_head(self.gate(x) * filtered, self.sizes.heads)


class Aft(Form):
    """Of kind local: e^w - 1 within a window, added to sums over all tokens."""

    window = 32

    def __init__(self, sizes):
        super().__init__(sizes)
        self.biases = nn.Parameter(0.01 * torch.randn(sizes.length, 2 * self.window - 1))

    def forward(self, q, k, v, x):
        w, width = self.window, self.sizes.width
        weights = torch.exp(k - k.amax(-2, keepdim=True).detach())
        terms = merged(torch.cat([weights * v, weights], -1)).unsqueeze(1)  # (B, 1, N, 2 H E)
        near = self.in_blocks(torch.expm1(self.biases)) @ with_neighbours(blocks(terms, w))
        sums = terms.sum(-2, keepdim=True) + near.flatten(2, 3)
        value, total = by_head(sums.squeeze(1), self.sizes.heads).split(width, -1)
        return torch.sigmoid(q) * value / total

    def in_blocks(self, band):
        """Row i of the band (N, 2 w - 1), i positions to the right: (N / w, w, 3 w)."""
        w = self.window
        rows = F.pad(band.view(-1, w, 2 * w - 1), (1, w + 1))  # a row is one number too long
        return rows.flatten(1)[:, :3 * w * w].view(-1, w, 3 * w)


# Products of two thin matrices.


class Linformer(Form):
    options = [f"k={FEATURES}"]

    def __init__(self, sizes):
        super().__init__(sizes)
        n = sizes.length
        self.E = nn.Parameter(torch.randn(FEATURES, n) / math.sqrt(n))
        self.F = nn.Parameter(torch.randn(FEATURES, n) / math.sqrt(n))

    def forward(self, q, k, v, x):
        scores = q @ (self.E @ k).transpose(-1, -2) / math.sqrt(self.sizes.width)
        return self.drop(torch.softmax(scores, -1)) @ (self.F @ v)


class Lowrank(Form):
    reads, rank = "v", 8

    def __init__(self, sizes):
        super().__init__(sizes)
        heads, n = sizes.heads, sizes.length
        self.u = nn.Parameter(torch.randn(heads, n, self.rank) / math.sqrt(self.rank))
        self.v = nn.Parameter(torch.randn(heads, n, self.rank) / math.sqrt(n))

    def forward(self, q, k, v, x):
        return torch.einsum("hir,bhre->bhie", self.u, torch.einsum("hjr,bhje->bhre", self.v, v))


class Efficient(Form):
    def forward(self, q, k, v, x):
        return torch.softmax(q, -1) @ (torch.softmax(k, -2).transpose(-1, -2) @ v)


class Latent(Form):
    options = [f"latents={LANDMARKS}"]

    def __init__(self, sizes):
        super().__init__(sizes)
        self.latents = nn.Parameter(torch.randn(sizes.heads, LANDMARKS, sizes.width))

    def forward(self, q, k, v, x):
        latents = self.latents.expand(len(q), -1, -1, -1)
        collected = F.scaled_dot_product_attention(latents, k, v)
        return F.scaled_dot_product_attention(q, latents, collected)


class Linear(Form):
    masks = (False, True)

    def forward(self, q, k, v, x):
        return kernel_attention(F.elu(q) + 1, F.elu(k) + 1, v, self.sizes.causal)


class RandomFeatures(Form):
    options = [f"features={FEATURES}"]

    def __init__(self, sizes):
        super().__init__(sizes)
        width = sizes.width
        square = torch.randn(math.ceil(FEATURES / width), width, width)
        rows = torch.linalg.qr(square)[0].mT.reshape(-1, width)[:FEATURES]
        norms = torch.randn(FEATURES, width).norm(dim=1, keepdim=True)
        self.register_buffer("W", rows * norms)

    def project(self, x):
        """W x̂ and |x̂|² / 2."""
        x = x * self.sizes.width**-0.25
        return x @ self.W.T, (x * x).sum(-1, keepdim=True) / 2


class Performer(RandomFeatures):
    """FAVOR+ with the features exp(w x - |x|^2 / 2), stabilised by maxima and an eps."""

    masks = (False, True)

    def features(self, x, dims):
        u, half_square = self.project(x)
        most = u.amax(dims, keepdim=True).detach()
        return FEATURES**-0.5 * (torch.exp(u - half_square - most) + 1e-4)

    def forward(self, q, k, v, x):
        return kernel_attention(self.features(q, -1), self.features(k, (-1, -2)), v,
                                self.sizes.causal)


class Rff(RandomFeatures):
    """Sines and cosines. e^(|q|² / 2) cancels."""

    def forward(self, q, k, v, x):
        waves = lambda u: torch.cat([torch.cos(u), torch.sin(u)], -1)
        (uq, _), (uk, half_square) = self.project(q), self.project(k)
        factor = torch.exp(half_square - half_square.amax(-2, keepdim=True).detach())
        return kernel_attention(waves(uq), waves(uk) * factor, v)


class Scatterbrain(RandomFeatures):
    """All pairs by positive features, which exact weights replace where |i - j| < 64."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.register_buffer("near", band(sizes.length // BLOCK, BLOCK - 1), persistent=False)

    def forward(self, q, k, v, x):
        (uq, q_square), (uk, k_square) = self.project(q), self.project(k)
        tq, tk = uq.amax(-1, keepdim=True).detach(), (uk - k_square).amax((-1, -2), True).detach()
        fq, fk = torch.exp(uq - tq), torch.exp(uk - k_square - tk)
        log_scale = blocks(tq - q_square + tk - math.log(FEATURES), BLOCK)
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
        all_pairs = blocks(fq @ (fk.mT @ v), BLOCK)
        q, k, fq, fk = (blocks(y, BLOCK) for y in (q, k, fq, fk))

        scores = with_neighbours_scores(q, k) / math.sqrt(self.sizes.width)
        scores = scores.masked_fill(~self.near, -math.inf)
        top = torch.maximum(scores.amax(-1, keepdim=True), log_scale).detach()
        scale = torch.exp(log_scale - top)
        estimates = with_neighbours_scores(fq, fk).masked_fill(~self.near, 0)
        weights = torch.exp(scores - top) - scale * estimates
        sums = weights @ with_neighbours(blocks(v, BLOCK)) + scale * all_pairs
        return (sums[..., :-1] / sums[..., -1:]).flatten(2, 3)


class Nystrom(Form):
    taps, iterations = 35, 6
    options = [f"landmarks={LANDMARKS}", "conv_kernel=35", "pinv_iterations=6"]

    def __init__(self, sizes):
        super().__init__(sizes)
        self.conv = nn.Conv2d(sizes.heads, sizes.heads, (self.taps, 1),
                              padding=(self.taps // 2, 0), groups=sizes.heads, bias=False)

    def forward(self, q, k, v, x):
        q, k = q * self.sizes.width**-0.25, k * self.sizes.width**-0.25
        qm, km = segment_means(q), segment_means(k)
        first = torch.softmax(q @ km.mT, -1)
        middle = torch.softmax(qm @ km.mT, -1)
        last = torch.softmax(qm @ k.mT, -1)
        start = middle.mT / middle.sum(-2).amax(-1)[..., None, None]
        return first @ inverse(middle, start, self.iterations) @ (last @ v) + self.conv(v)


class Skyformer(Form):
    """The Gaussian kernel through rows of queries and keys that each step draws."""

    count, gamma, iterations = LANDMARKS, 0.1, 6

    def kernel(self, x, y):
        half = lambda z: (z * z).sum(-1, keepdim=True) / 2
        return torch.exp((x @ y.mT - half(x) - half(y).mT) * self.sizes.width**-0.5)

    def forward(self, q, k, v, x):
        drawn = lambda y: y[:, :, torch.randperm(y.shape[2])[:self.count // 2]]
        L = torch.cat([drawn(q), drawn(k)], 2)
        eye = torch.eye(L.shape[2], dtype=q.dtype)
        A = self.kernel(L, L) + self.gamma * eye
        S = A.sum(-1, keepdim=True) ** -0.5
        Z = inverse(S * A * S.mT, eye, self.iterations)
        return self.kernel(q, L) @ (S * (Z @ (S * (self.kernel(L, k) @ v))))


class Lara(Form):
    """One sample of the density of each segment; weights as they suit each query."""

    def forward(self, q, k, v, x):
        scale = self.sizes.width**-0.25
        half = lambda y: (y * y).sum(-1, keepdim=True) / 2
        q, k = q * scale, k * scale
        q_mean = segment_means(q)
        mu = q_mean + segment_means(k)  # (B, H, C, E)
        omega = mu + torch.randn_like(mu) if self.training else mu
        log_keys = omega @ k.mT - half(k).mT  # (B, H, C, N)
        of_samples = torch.softmax(log_keys, -1) @ v
        mixture = torch.logsumexp(omega @ mu.mT - half(mu).mT, -1, keepdim=True)
        own = (omega * mu).sum(-1, keepdim=True) - half(mu)
        suits = torch.softmax(q @ q_mean.mT, -1) - 1 / LANDMARKS  # (B, H, N, C)
        alpha = (torch.exp(own - mixture).mT + suits).clamp(min=1e-8)
        of_densities = torch.logsumexp(log_keys, -1, keepdim=True) - own
        weights = q @ omega.mT + torch.log(alpha) + of_densities.mT
        return torch.softmax(weights, -1) @ of_samples


# Weights of few keys.


class Window(Form):
    """Blocks of queries with the keys of the block and of its neighbours."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.register_buffer("near", band(sizes.length // BLOCK, BLOCK).unsqueeze(0),
                             persistent=False)

    def forward(self, q, k, v, x):
        # The heads of all sequences are one axis: the mask is the same for them.
        q, k, v = (blocks(y, BLOCK).flatten(0, 1) for y in (q, k, v))
        near = lambda y: with_neighbours(y.unsqueeze(0)).squeeze(0)
        out = self.exact(q, near(k), near(v), self.near)
        return out.view(-1, self.sizes.heads, self.sizes.length, self.sizes.width)


class Bigbird(Form):
    """The first block attends to all, and the others to it, to neighbours and to random ones."""

    def __init__(self, sizes, random=3):
        super().__init__(sizes)
        n = sizes.length // BLOCK
        keys = torch.zeros(sizes.heads, n - 1, 4 + random, dtype=torch.long)
        kept = torch.zeros(keys.shape, dtype=torch.bool)
        for head in range(sizes.heads):
            for a in range(1, n):
                near = [b for b in (a - 1, a, a + 1) if 0 < b < n]
                others = [b for b in range(1, n) if b not in near]
                drawn = torch.randperm(len(others))[:random].tolist()
                row = torch.tensor([0] + near + [others[i] for i in drawn])
                keys[head, a - 1, :len(row)] = row + head * n
                kept[head, a - 1, :len(row)] = True
        self.register_buffer("keys", keys.flatten(), persistent=False)
        kept = kept.view(1, -1, 1, 4 + random).repeat_interleave(BLOCK, -1)
        self.register_buffer("kept", kept, persistent=False)

    def forward(self, q, k, v, x):
        def listed(y):  # of all heads and blocks but the first: (B, H (n - 1), keys, E)
            rows = y.reshape(len(y), -1, BLOCK * y.shape[3]).index_select(1, self.keys)
            return rows.view(len(y), self.kept.shape[1], -1, y.shape[3])

        first = self.exact(q[:, :, :BLOCK], k, v)
        others = blocks(q[:, :, BLOCK:], BLOCK).flatten(1, 2)
        others = self.exact(others, listed(k), listed(v), self.kept)
        return torch.cat([first, others.reshape(*q.shape[:2], -1, q.shape[3])], 2)


class Moba(Form):
    """Exact in the block of a query. Pairs of queries and earlier blocks are sorted by block, in
    groups of one block each, the last of which has empty places."""

    masks, most = (True,), 2

    def forward(self, q, k, v, x):
        if self.sizes.length <= (self.most + 1) * BLOCK:
            return self.exact(q, k, v, causal=True)
        q, n, N = q * self.sizes.width**-0.5, self.sizes.length // BLOCK, self.sizes.length
        earlier = torch.arange(n) < (torch.arange(N) // BLOCK).unsqueeze(-1)
        scores = (q @ blocks(k, BLOCK).mean(-2).mT).detach().masked_fill(~earlier, -math.inf)
        chosen = scores.topk(self.most, -1)
        query, place, block = self.places(chosen.indices, n)
        of_groups = lambda y: in_order(blocks(y, BLOCK).flatten(3), block).unflatten(3, (BLOCK, -1))
        far = self.sums(blocks(in_order(q, query), BLOCK) @ of_groups(k).mT, of_groups(v))
        far = in_order(far.flatten(2, 3), place).unflatten(2, (N, -1))
        own = (blocks(q, BLOCK) @ blocks(k, BLOCK).mT).masked_fill(later(BLOCK), -math.inf)
        both = torch.cat([self.sums(own, blocks(v, BLOCK)).flatten(2, 3).unsqueeze(3), far], 3)
        none = F.pad(chosen.values == -math.inf, (1, 0)).unsqueeze(-1)
        return (both[..., :-1] * both[..., -1:].masked_fill(none, -math.inf).softmax(3)).sum(3)

    def sums(self, scores, v):
        log_sums = torch.logsumexp(scores, -1, keepdim=True)
        return torch.cat([torch.exp(scores - log_sums) @ v, log_sums], -1)

    def places(self, chosen, n):
        """The query of each place, the place of each pair, the block of each group."""
        pairs = chosen.flatten(2)
        of_block = pairs.unsqueeze(-1) == torch.arange(n)
        groups = (of_block.sum(2) + BLOCK - 1) // BLOCK
        ends = groups.cumsum(-1)
        places = of_block.cumsum(2) - 1 + ((ends - groups) * BLOCK).unsqueeze(2)
        place = places.gather(-1, pairs.unsqueeze(-1)).squeeze(-1)
        count = pairs.shape[2] // BLOCK + n  # of groups, at most
        query = pairs.new_zeros(*pairs.shape[:2], count * BLOCK)
        of_pairs = torch.arange(pairs.shape[2]) // chosen.shape[3]
        query.scatter_(-1, place, of_pairs.expand_as(place))
        block = (torch.arange(count).unsqueeze(-1) >= ends.unsqueeze(2)).sum(-1)
        return query, place, block.clamp(max=n - 1)


class Reformer(Form):
    """Chunks of tokens sorted by their hash, each with the chunk before it; rounds are joined by
    their normalisers, in which a key that two of them find counts twice."""

    reads = "qv"
    rounds, buckets = 2, 16

    def forward(self, q, k, v, x):
        heads, width = self.sizes.heads, self.sizes.width
        rotations = torch.randn(heads, self.rounds, width, self.buckets // 2, dtype=q.dtype)
        hashes = q.detach().unsqueeze(2) @ rotations
        bucket = torch.cat([hashes, -hashes], -1).argmax(-1)  # (B, H, R, N)
        bucket, order = bucket.sort(stable=True)
        keys = F.rms_norm(q, (width,), eps=1e-6)
        sort = lambda y: in_order(y.unsqueeze(2).expand(-1, -1, self.rounds, -1, -1), order)
        cut = lambda y: y.unflatten(3, (-1, BLOCK))
        two = lambda y: torch.cat([y.roll(1, 3), y], 4)  # after the chunk before
        Q, K, V = cut(sort(q)), two(cut(sort(keys))), two(cut(sort(v)))
        of, at = cut(bucket), cut(order)  # (B, H, R, n, C)

        scores = Q @ K.mT / math.sqrt(width)
        scores = scores.masked_fill(of.unsqueeze(-1) != two(of).unsqueeze(-2), -math.inf)
        # A token attends to itself if to nothing else.
        scores = scores.masked_fill(at.unsqueeze(-1) == two(at).unsqueeze(-2), -1e5)
        log_sums = torch.logsumexp(scores, -1, keepdim=True)
        out = torch.exp(scores - log_sums) @ V
        both = torch.cat([out, log_sums], -1).flatten(3, 4)
        both = in_order(both, order.argsort(-1))
        return (both[..., :-1] * torch.softmax(both[..., -1:], 2)).sum(2)


class Eva(Form):
    """Exact within blocks; outside, a mean key and a sampled mean of values for each chunk."""

    chunk = 16

    def __init__(self, sizes):
        super().__init__(sizes)
        block = torch.arange(sizes.length // BLOCK).view(-1, 1, 1)
        own = torch.arange(sizes.length // self.chunk) // (BLOCK // self.chunk) == block
        self.register_buffer("own", own, persistent=False)

    def forward(self, q, k, v, x):
        scale, c = self.sizes.width**-0.25, self.chunk
        keys, values = blocks(k * scale, c), blocks(v, c)  # (B, H, m, c, E)
        k_mean = blocks(k, c).mean(-2)
        omega = (blocks(q, c).mean(-2) + k_mean) * scale
        if self.training:
            omega = omega + torch.randn_like(omega)
        logits = keys @ omega.unsqueeze(-1) - (keys * keys).sum(-1, keepdim=True) / 2
        beta = (torch.softmax(logits, -2) * values).sum(-2)

        q = q * scale**2
        exact = blocks(q, BLOCK) @ blocks(k, BLOCK).mT  # (B, H, n, w, w)
        of_chunks = blocks(q @ k_mean.mT + math.log(c), BLOCK).masked_fill(self.own, -math.inf)
        p = torch.softmax(torch.cat([exact, of_chunks], -1), -1)
        within = p[..., :BLOCK] @ blocks(v, BLOCK)
        return within.flatten(2, 3) + p[..., BLOCK:].flatten(2, 3) @ beta


class Clustered(Form):
    """The means of clusters attend; at their best keys, each query does so itself."""

    clusters, steps, best = LANDMARKS, 3, 32

    def forward(self, q, k, v, x):
        members, weights = self.cluster(q.detach())
        scores = weights @ q @ k.mT / math.sqrt(self.sizes.width)  # (B, H, C, N)
        A, best = torch.softmax(scores, -1), scores.topk(self.best, -1).indices
        mass = A.gather(-1, best).sum(-1, keepdim=True)
        rest = A.scatter(-1, best, 0) @ v
        chosen = lambda y: in_order(y, best.flatten(2)).unflatten(2, best.shape[2:]).flatten(3)
        of_members = in_order(torch.cat([chosen(k), chosen(v), rest, mass], -1), members)
        keys, values, rest, mass = of_members.split(
            [self.best * self.sizes.width] * 2 + [self.sizes.width, 1], -1)
        own = F.scaled_dot_product_attention(
            q.unsqueeze(-2), *(y.unflatten(-1, (self.best, -1)) for y in (keys, values)))
        return rest + mass * own.squeeze(-2)

    @torch.no_grad()
    def cluster(self, q):
        """Lloyd's algorithm from segments: of each query its cluster, of each cluster the weights
        of its mean."""
        C = self.clusters
        members = (torch.arange(q.shape[2]) * C // q.shape[2]).expand(q.shape[:3])
        weights = torch.zeros(1, dtype=q.dtype)
        for step in range(self.steps + 1):
            if step > 0:
                means = weights @ q
                members = (q @ means.mT - (means * means).sum(-1).unsqueeze(-2) / 2).argmax(-1)
            each = F.one_hot(members, C).to(q.dtype).mT  # (B, H, C, N)
            count = each.sum(-1, keepdim=True)
            weights = torch.where(count > 0, each / count.clamp(min=1), weights)  # or as before
        return members, weights


# Recurrences, in the chunked forms of flash-linear-attention: everything inside the chunks at once,
# then one state after the other. g, the logarithms of the decays, has one number a head or channel.


class Retnet(Form):
    options, masks = BARE, (True,)

    def forward(self, q, k, v, x):
        heads = self.sizes.heads
        g = torch.log1p(-torch.exp2(-5.0 - torch.arange(heads))).view(1, heads, 1, 1)
        return gated_scan(q, k, v, g.expand(*q.shape[:3], 1))


class Mamba2(Form):
    options, masks = BARE, (True,)

    def __init__(self, sizes):
        super().__init__(sizes)
        heads = sizes.heads
        self.step = nn.Linear(sizes.d, heads, bias=False)
        self.step_bias = nn.Parameter(of_steps(heads))
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.skip = nn.Parameter(torch.ones(heads))

    def scan(self, q, k, v, g, x):
        return gated_scan(q, k, v, g)

    def forward(self, q, k, v, x):
        of_head = lambda y: y.view(-1, 1, 1)
        step = by_head(F.softplus(self.step(x) + self.step_bias), self.sizes.heads)
        scanned = self.scan(q, k, v * step, -step * of_head(self.log_rate.exp()), x)
        return scanned + of_head(self.skip) * v


def of_steps(heads):
    """Biases b with softplus(b) from 0.001 to 0.1."""
    steps = torch.exp(torch.empty(heads).uniform_(math.log(1e-3), math.log(1e-1)))
    return steps + torch.log(-torch.expm1(-steps))


class LogLinear(Mamba2):
    """Levels within chunks as factors of their pairs, and one product for each higher level."""

    def __init__(self, sizes):
        super().__init__(sizes)
        levels = 1 + (sizes.length - 1).bit_length()
        self.scales = nn.Linear(sizes.d, sizes.heads * levels)
        self.multiplier = nn.Parameter(torch.ones(sizes.heads * levels))
        i = torch.arange(CHUNK)
        highest_bit = torch.frexp((i.unsqueeze(-1) ^ i).double()).exponent
        self.register_buffer("level", highest_bit.long(), persistent=False)

    def scan(self, q, k, v, g, x):
        scales = by_head(F.softplus(self.scales(x) * self.multiplier), self.sizes.heads)
        q = q * self.sizes.width**-0.5
        Q, K, V, G, near = (blocks(y, CHUNK) for y in (q, k, v, g, scales))
        G = G.cumsum(-2)
        near = near.gather(-1, self.level.expand(*near.shape[:3], -1, -1))
        out = (pairs(Q, K, G) * near @ V).flatten(2, 3)
        states, level = (K * torch.exp(G[..., -1:, :] - G)).mT @ V, CHUNK.bit_length()
        while states.shape[2] > 1:
            # Of two blocks the second one reads the state of the first one.
            halves = (y.unflatten(2, (-1, 2)).unbind(3) for y in (G, states))
            (G, G_later), (state, later_state) = halves
            size = G.shape[3]
            second = lambda y: y.unflatten(2, (-1, 2, size))[:, :, :, 1]
            reads = second(q) * (torch.exp(G_later) * second(scales[..., level:level + 1]))
            out = out + F.pad((reads @ state).unsqueeze(3), (0, 0, 0, 0, 1, 0)).flatten(2, 4)
            states = torch.exp(G_later[..., -1:, :]) * state + later_state
            G, level = torch.cat([G, G[..., -1:, :] + G_later], 3), level + 1
        return out


class Mamba3(Form):
    """The scan with both shares of a token, less what its own query sees of the second one."""

    options, masks = ["gate=false"], (True,)

    def __init__(self, sizes):
        super().__init__(sizes)
        heads, width = sizes.heads, sizes.width
        self.step, self.rate, self.blend = (nn.Linear(sizes.d, heads, bias=False) for _ in range(3))
        self.angle = nn.Linear(sizes.d, (width // 2 + 1) // 2, bias=False)
        self.step_bias = nn.Parameter(of_steps(heads))
        self.skip = nn.Parameter(torch.ones(heads, 1, 1))
        self.norms = nn.Parameter(torch.ones(2, width))
        self.biases = nn.Parameter(torch.ones(2, heads, 1, width))

    def forward(self, q, k, v, x):
        heads, width = self.sizes.heads, self.sizes.width
        step = by_head(F.softplus(self.step(x) + self.step_bias), heads)
        g = -step * by_head(F.softplus(self.rate(x)).clamp(min=1e-4), heads)
        angles = (step * math.pi * torch.tanh(self.angle(x)).unsqueeze(1)).cumsum(2)
        m, cos, sin = angles.shape[-1], torch.cos(angles), torch.sin(angles)

        def turned(y, weight, bias):
            y = F.rms_norm(y, (width,), weight, 1e-5) + bias
            a, b, rest = y.split([m, m, width - 2 * m], -1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)

        q, k = (turned(*of) for of in zip((q, k), self.norms, self.biases))
        own = step * by_head(torch.sigmoid(self.blend(x)), heads)
        after = F.pad((step - own)[:, :, 1:], (0, 0, 0, 1))
        unseen = after * (q * k).sum(-1, keepdim=True) * width**-0.5
        return gated_scan(q, k, v * (own + after), g) + (self.skip - unseen) * v


class Gla(Form):
    options, masks = BARE, (True,)

    def __init__(self, sizes):
        super().__init__(sizes)
        self.decay = nn.Sequential(nn.Linear(sizes.d, 16, bias=False), nn.Linear(16, sizes.d))

    def forward(self, q, k, v, x):
        return gated_scan(q, k, v, by_head(F.logsigmoid(self.decay(x)) / 16, self.sizes.heads))


class DeltaNet(Form):
    options, masks = ["norm=false"], (True,)

    def __init__(self, sizes):
        super().__init__(sizes)
        self.beta = nn.Linear(sizes.d, sizes.heads, bias=False)

    def decay(self, x):
        return torch.zeros(len(x), self.sizes.heads, self.sizes.length, 1)

    def forward(self, q, k, v, x):
        beta = by_head(torch.sigmoid(self.beta(x)), self.sizes.heads)
        return delta_rule(q, k, v * beta, beta, self.decay(x))


class GatedDeltaNet(DeltaNet):
    options = BARE

    def __init__(self, sizes):
        super().__init__(sizes)
        self.step = nn.Linear(sizes.d, sizes.heads, bias=False)
        self.bias = nn.Parameter(torch.full((sizes.heads,), -4.0))
        self.rate = nn.Parameter(torch.zeros(sizes.heads))

    def decay(self, x):
        return by_head(-self.rate.exp() * F.softplus(self.step(x) + self.bias), self.sizes.heads)


class DeltaProduct(GatedDeltaNet):
    """Two steps for each token."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.keys, self.values, self.strengths = (
            nn.Linear(sizes.d, width, bias=False) for width in (sizes.d, sizes.d, sizes.heads))

    def forward(self, q, k, v, x):
        heads = self.sizes.heads
        steps = lambda first, second: torch.stack([first, by_head(second, heads)], 3).flatten(2, 3)
        k, v = steps(k, self.keys(x)), steps(v, self.values(x))
        beta = torch.sigmoid(steps(by_head(self.beta(x), heads), self.strengths(x)))
        g = steps(self.decay(x), x.new_zeros(*x.shape[:2], heads))
        return delta_rule(q, k, v * beta, beta, g)


class Kda(DeltaNet):
    options = BARE + ["rank=16"]

    def __init__(self, sizes):
        super().__init__(sizes)
        self.step = nn.Sequential(nn.Linear(sizes.d, 16, bias=False), nn.Linear(16, sizes.d))
        self.rate = nn.Parameter(torch.zeros(sizes.heads))

    def decay(self, x):
        # At least e^-1 a token: e^-G overflows below that in the published chunked form.
        steps = by_head(F.softplus(self.step(x) - 4), self.sizes.heads)
        return -steps * self.rate.exp().view(-1, 1, 1)


class Gdn2(Kda):
    def __init__(self, sizes):
        super().__init__(sizes)
        self.beta, self.write = (nn.Linear(sizes.d, sizes.d, bias=False) for _ in range(2))

    def forward(self, q, k, v, x):
        erased, written = (by_head(torch.sigmoid(gate(x)), self.sizes.heads)
                           for gate in (self.beta, self.write))
        return delta_rule(q, k, v * written, erased, self.decay(x))


class Mesa(DeltaNet):
    """Conjugate gradients for all tokens at once, with states that are computed once."""

    steps = 30

    def __init__(self, sizes):
        super().__init__(sizes)
        self.forget = nn.Linear(sizes.d, sizes.heads)
        start = math.log(math.expm1(0.75))
        self.ridge = nn.Parameter(torch.full((sizes.heads, 1, 1, sizes.width), start))

    def decay(self, x):
        return by_head(F.logsigmoid(self.forget(x)), self.sizes.heads)

    def forward(self, q, k, v, x):
        beta = by_head(torch.sigmoid(self.beta(x)), self.sizes.heads)
        q, k, v, beta, G = (blocks(y, CHUNK) for y in (unit(q), unit(k), v, beta, self.decay(x)))
        G, keys, ridge = G.cumsum(-2), (k * beta).mT, F.softplus(self.ridge) + 0.25
        near, far = pair_decays(G), torch.exp(G)
        writes = (keys * torch.exp(G[..., -1:, :] - G).mT) @ torch.cat([k, v], -1)
        A, B = states_before(writes, G).chunk(2, -1)
        read = lambda p, values, state: (p @ keys * near) @ values + (p * far) @ state
        product = lambda p: read(p, k, A) + ridge * p
        solve = lambda y: conjugate_gradients(product, y, self.steps)
        solution = solve(q)
        # Gradients by the implicit function theorem: of q - M x, which is 0, through M^-1.
        residual = q - product(solution)
        residual.register_hook(solve)
        return read(solution + residual, v, B).flatten(2, 3)


class Rwkv7(Form):
    options, masks = BARE, (True,)

    def __init__(self, sizes):
        super().__init__(sizes)
        d, rank = sizes.d, sizes.width
        low_rank = lambda middle: nn.Sequential(nn.Linear(d, rank, bias=False), middle,
                                                nn.Linear(rank, d, bias=False))
        self.decay, self.rate = low_rank(nn.Tanh()), low_rank(nn.Identity())
        self.decay_bias = nn.Parameter(-6.5 + 5 * torch.linspace(0, 1, d) ** 0.85)
        self.rate_bias, self.bonus = (nn.Parameter(torch.zeros(d)) for _ in range(2))
        self.removal = nn.Parameter(torch.full((d,), 0.85))
        self.replacement = nn.Parameter(torch.ones(d))

    def forward(self, q, k, v, x):
        heads = self.sizes.heads
        of_head = lambda y: y.view(heads, 1, -1)
        g = -math.exp(-0.5) * torch.sigmoid(by_head(self.decay(x) + self.decay_bias, heads))
        rate = torch.sigmoid(by_head(self.rate(x) + self.rate_bias, heads))
        removed = F.normalize(k * of_head(self.removal), dim=-1)
        replaced = k * (1 + (rate - 1) * of_head(self.replacement))
        out = generalised_delta_rule(q, replaced, v, removed, -rate * removed, g)
        return out + (q * replaced * of_head(self.bonus)).sum(-1, keepdim=True) * v


def later(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def pair_decays(G):
    """e^(G_i - G_j) for j <= i."""
    return torch.exp((G - G.mT).masked_fill(later(CHUNK), -math.inf))


def pairs(a, b, G):
    """a_i . b_j e^(G_i - G_j) for j <= i; with one decay for all channels also of the last ones of
    every few rows a_i."""
    if G.shape[-1] == 1:
        few = CHUNK // a.shape[-2]
        return (a @ b.mT) * pair_decays(G)[..., few - 1::few, :]
    return ((a * torch.exp(G)) @ (b * torch.exp(-G)).mT).tril()


def states_before(writes, G):
    """Of each chunk, for what the chunks write and sums of g within them."""
    states = [torch.zeros_like(writes[:, :, 0])]
    for decay, write in zip(torch.exp(G[:, :, :-1, -1]).unsqueeze(-1).unbind(2), writes.unbind(2)):
        states.append(decay * states[-1] + write)
    return torch.stack(states, 2)


def gated_scan(q, k, v, g):
    q, k, v, G = (blocks(y, CHUNK) for y in (q * q.shape[-1]**-0.5, k, v, g))
    G = G.cumsum(-2)
    inside = pairs(q, k, G) @ v
    writes = (k * torch.exp(G[..., -1:, :] - G)).mT @ v
    return (inside + (q * torch.exp(G)) @ states_before(writes, G)).flatten(2, 3)


@torch.no_grad()
def conjugate_gradients(product, y, steps):
    """M^-1 y of each row, until all have converged to rounding."""
    x, r, p, info = torch.zeros_like(y), y, y, torch.finfo(y.dtype)
    square = (r * r).sum(-1, keepdim=True)
    least = square * (info.eps / 8) ** 2
    for _ in range(steps):
        if not (square > least).any():
            break
        products = product(p)
        alpha = square / (p * products).sum(-1, keepdim=True).clamp(min=info.tiny)
        x, r = torch.addcmul(x, alpha, p), torch.addcmul(r, alpha, products, value=-1)
        before, square = square, (r * r).sum(-1, keepdim=True)
        p = torch.addcmul(r, square / before.clamp(min=info.tiny), p)
    return x


def solved(lower, right):
    """(I + lower)^-1 of each of two matrices."""
    x = torch.linalg.solve_triangular(lower, torch.cat(right, -1), upper=False, unitriangular=True)
    return x.split([y.shape[-1] for y in right], -1)


def unit(x):
    return F.normalize(F.silu(x), dim=-1)


def delta_rule(q, k, v, erased, g):
    """S_i = S'_i + k_i (v_i - S'_iᵀ (erased_i k_i))ᵀ, S'_i = diag(e^g_i) S_(i-1), with unit keys; k,
    v and g may have several steps for each query, after the last of which it reads."""
    steps = k.shape[2] // q.shape[2]
    q = blocks(unit(q) * q.shape[-1]**-0.5, CHUNK // steps)
    k, v, erased, G = (blocks(y, CHUNK) for y in (unit(k), v, erased, g))
    G = G.cumsum(-2)
    u, w = solved(pairs(k * erased, k, G).tril(-1), [v, k * erased * torch.exp(G)])
    inside = pairs(q, k, G)
    reads, ends = q * torch.exp(G[..., steps - 1::steps, :]), (k * torch.exp(G[..., -1:, :] - G)).mT
    decays = torch.exp(G[..., -1, :]).unsqueeze(-1)
    state, out = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for u, w, read, pair, decay, end in zip(*(y.unbind(2) for y in
                                              (u, w, reads, inside, decays, ends))):
        new = u - w @ state
        out.append(read @ state + pair @ new)
        state = decay * state + end @ new
    return torch.cat(out, 2)


def generalised_delta_rule(q, k, v, a, b, g):
    """S_i = diag(e^g_i) S_(i-1) + b_i (S_(i-1)ᵀ a_i)ᵀ + k_i v_iᵀ, of which q_i / sqrt(E) reads."""
    q, k, v, a, b, g = (blocks(y, CHUNK) for y in (q * q.shape[-1]**-0.5, k, v, a, b, g))
    G = g.cumsum(-2)
    back, rest = torch.exp(-G), torch.exp(G[..., -1:, :] - G)
    reads, before = q * torch.exp(G), a * torch.exp(G - g)
    k_back, b_back = k * back, b * back
    u, w = solved(-(before @ b_back.mT).tril(-1), [(before @ k_back.mT).tril(-1) @ v, before])
    inside, of_values = (reads @ b_back.mT).tril(), (reads @ k_back.mT).tril() @ v
    ends, writes = (b * rest).mT, (k * rest).mT @ v
    decays = torch.exp(G[..., -1, :]).unsqueeze(-1)
    state, out = torch.zeros_like(writes[:, :, 0]), []
    for u, w, read, pair, decay, end, write in zip(*(y.unbind(2) for y in (
            u, w, reads, inside, decays, ends, writes))):
        new = u + w @ state
        out.append(read @ state + pair @ new)
        state = decay * state + end @ new + write
    return torch.cat(out, 2) + of_values.flatten(2, 3)


# What they have in common.


def by_head(x, heads):
    """(B, N, H E) as (B, H, N, E)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merged(x):
    """(B, H, N, E) as (B, N, H E)."""
    return x.transpose(1, 2).flatten(2)


def blocks(x, size):
    """(B, H, N, E) as (B, H, N / size, size, E)."""
    return x.unflatten(2, (-1, size))


def with_neighbours(x):
    """Blocks (B, H, n, C, E) between the blocks before and after them, (B, H, n, 3 C, E)."""
    around = F.pad(x, (0, 0, 0, 0, 1, 1))
    return torch.cat([around[:, :, :-2], x, around[:, :, 2:]], 3)


def with_neighbours_scores(q, k):
    """q of each block times k of that block and its neighbours, (B, H, n, C, 3 C)."""
    before, after = q[:, :, 1:] @ k[:, :, :-1].mT, q[:, :, :-1] @ k[:, :, 1:].mT
    return torch.cat([F.pad(before, (0, 0, 0, 0, 1, 0)), q @ k.mT,
                      F.pad(after, (0, 0, 0, 0, 0, 1))], -1)


def band(n, reach):
    """Which of the keys of with_neighbours() are at most `reach` away, (n, C, 3 C)."""
    key = torch.arange(3 * BLOCK) - BLOCK
    near = (torch.arange(BLOCK).unsqueeze(-1) - key).abs() <= reach
    position = key + BLOCK * torch.arange(n).view(-1, 1, 1)
    return near & (position >= 0) & (position < n * BLOCK)


def in_order(x, order):
    """Rows of x (..., N, E) by their index (..., M)."""
    return x.gather(-2, order.unsqueeze(-1).expand(*order.shape, x.shape[-1]))


def segment_means(x):
    return x.unflatten(2, (LANDMARKS, -1)).mean(3)


def kernel_attention(q, k, v, causal=False):
    if causal:  # as all pairs, which suits sequences that are short beside the number of features
        weights = (q @ k.mT).tril()
        return weights @ v / weights.sum(-1, keepdim=True)
    normaliser = q @ k.sum(-2).unsqueeze(-1)
    return q @ (k.mT @ v) / normaliser


def inverse(a, z, iterations):
    """a^-1 by iteration from z."""
    eye = torch.eye(a.shape[-1], dtype=a.dtype)
    for _ in range(iterations):
        az = a @ z
        z = 0.25 * z @ (13 * eye - az @ (15 * eye - az @ (7 * eye - az)))
    return z


FORMS = dict(
    softmax=Softmax, linformer=Linformer, performer=Performer, nystrom=Nystrom, linear=Linear,
    none=Nothing, latent=Latent, topk=Topk, window=Window, bigbird=Bigbird,
    scatterbrain=Scatterbrain, reformer=Reformer, eva=Eva, clustered=Clustered, lara=Lara, rff=Rff,
    efficient=Efficient, skyformer=Skyformer, gaussian=Gaussian, synthesizer=Synthesizer,
    random=Random, lowrank=Lowrank, aft=Aft, fnet=Fnet, conv=Conv, mean=Mean, retnet=Retnet,
    mamba2=Mamba2, gla=Gla, deltanet=DeltaNet, gated_deltanet=GatedDeltaNet, kda=Kda, rwkv7=Rwkv7,
    forgetting=Forgetting, deltaproduct=DeltaProduct, mamba3=Mamba3, gdn2=Gdn2,
    log_linear=LogLinear, mesa=Mesa, path=Path, moba=Moba, differential=Differential,
    sigmoid=Sigmoid)


class Block(nn.Module):
    def __init__(self, sizes, mlp, form):
        super().__init__()
        d = sizes.d
        self.sizes = sizes
        self.norm1, self.mlp = nn.LayerNorm(d), mlp
        self.projections, self.out = nn.Linear(d, len(form.reads) * d), nn.Linear(d, d)
        if mlp:
            self.norm2, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, mlp), nn.Linear(mlp, d)
        self.form = form(sizes)

    def forward(self, x):
        drop = lambda y: F.dropout(y, self.sizes.dropout, self.training)
        y = self.norm1(x)
        projected = self.projections(y).unflatten(-1, (len(self.form.reads), self.sizes.heads, -1))
        read = dict(zip(self.form.reads, projected.permute(2, 0, 3, 1, 4)))
        o = self.form(*map(read.get, "qkv"), y)
        x = x + drop(self.out(merged(o)))
        if not self.mlp:
            return x
        return x + drop(self.fc2(drop(F.gelu(self.fc1(self.norm2(x))))))


class Model(nn.Module):
    """For the description of a measurement: see peers.py."""

    def __init__(self, cell):
        super().__init__()
        sizes = Sizes(cell["d"], cell["heads"], cell["length"], cell["dropout"], cell["causal"])
        form = FORMS[cell["attention"]]
        self.sizes = sizes
        self.token = nn.Embedding(VOCABULARY, sizes.d)
        self.position = nn.Embedding(sizes.length, sizes.d)
        self.blocks = nn.Sequential(*(Block(sizes, cell["mlp"], form)
                                      for _ in range(cell["layers"])))
        self.norm, self.head = nn.LayerNorm(sizes.d), nn.Linear(sizes.d, cell["classes"])

    def forward(self, tokens):
        x = F.dropout(self.token(tokens) + self.position.weight, self.sizes.dropout, self.training)
        x = self.norm(self.blocks(x))
        # A language model has logits for each token, the other one for the sequence.
        return self.head(x if self.sizes.causal else x.mean(1))
