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
        steps = torch.exp(torch.empty(heads).uniform_(math.log(1e-3), math.log(1e-1)))
        self.step = nn.Linear(sizes.d, heads, bias=False)
        self.step_bias = nn.Parameter(steps + torch.log(-torch.expm1(-steps)))
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.skip = nn.Parameter(torch.ones(heads))

    def forward(self, q, k, v, x):
        of_head = lambda y: y.view(-1, 1, 1)
        step = by_head(F.softplus(self.step(x) + self.step_bias), self.sizes.heads)
        scanned = gated_scan(q, k, v * step, -step * of_head(self.log_rate.exp()))
        return scanned + of_head(self.skip) * v


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
        return delta_rule(q, k, v, beta, self.decay(x))


class GatedDeltaNet(DeltaNet):
    options = BARE

    def __init__(self, sizes):
        super().__init__(sizes)
        self.step = nn.Linear(sizes.d, sizes.heads, bias=False)
        self.bias = nn.Parameter(torch.full((sizes.heads,), -4.0))
        self.rate = nn.Parameter(torch.zeros(sizes.heads))

    def decay(self, x):
        return by_head(-self.rate.exp() * F.softplus(self.step(x) + self.bias), self.sizes.heads)


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


def pairs(a, b, G):
    """a_i . b_j e^(G_i - G_j) for j <= i."""
    if G.shape[-1] == 1:
        later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)
        return (a @ b.mT) * torch.exp((G - G.mT).masked_fill(later, -math.inf))
    return ((a * torch.exp(G)) @ (b * torch.exp(-G)).mT).tril()


def gated_scan(q, k, v, g):
    q, k, v, G = (blocks(y, CHUNK) for y in (q * q.shape[-1]**-0.5, k, v, g))
    G = G.cumsum(-2)
    inside = pairs(q, k, G) @ v
    writes = (k * torch.exp(G[..., -1:, :] - G)).mT @ v
    decays = torch.exp(G[..., -1, :]).unsqueeze(-1)
    state, states = torch.zeros_like(writes[:, :, 0]), []
    for decay, write in zip(decays.unbind(2), writes.unbind(2)):
        states.append(state)
        state = decay * state + write
    return (inside + (q * torch.exp(G)) @ torch.stack(states, 2)).flatten(2, 3)


def solved(lower, right):
    """(I + lower)^-1 of each of two matrices."""
    x = torch.linalg.solve_triangular(lower, torch.cat(right, -1), upper=False, unitriangular=True)
    return x.split([y.shape[-1] for y in right], -1)


def delta_rule(q, k, v, beta, g):
    unit = lambda x: F.normalize(F.silu(x), dim=-1)
    q, k, v, beta, G = (blocks(y, CHUNK) for y in
                        (unit(q) * q.shape[-1]**-0.5, unit(k), v, beta, g))
    G = G.cumsum(-2)
    u, w = solved(pairs(k * beta, k, G).tril(-1), [v * beta, k * beta * torch.exp(G)])
    inside = pairs(q, k, G)
    reads, ends = q * torch.exp(G), (k * torch.exp(G[..., -1:, :] - G)).mT
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
    forgetting=Forgetting)


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
