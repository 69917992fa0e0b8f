"""Attention functions of others, checked by longhand.check(): some pass, some have a planted mistake.

    PYTHONPATH=build/release/python /usr/bin/python3 attention/python/check_functions.py

Arrays are (batch, tokens, heads, head_dim). A function of torch tensors is checked in the same way:

    longhand.check(lambda q, k, v: kernel(*map(torch.from_numpy, (q, k, v))).numpy(), "softmax", dtype="float32")
"""

import numpy as np


def softmax(q, k, v, mask, causal, keep=None, diagonal=1, hidden=-np.inf):
    """Exact attention. mask (batch, tokens): True at real tokens; keep broadcasts to (batch, heads, queries, keys):
    which keys a query may attend to; diagonal: the first that is hidden."""
    N, M = q.shape[1], k.shape[1]
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[3]).astype(q.dtype)
    visible = np.broadcast_to(mask[:, None, None, :], scores.shape)
    if keep is not None:
        visible = visible & keep
    if causal:
        visible = visible & ~np.triu(np.ones((N, M), bool), diagonal)
    scores = np.where(visible, scores, q.dtype.type(hidden))
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bhij,bjhd->bihd", weights / np.where(total > 0, total, 1), v)


def softmax_off_by_one(q, k, v, mask, causal, keep):
    """The causal mask is one token too wide: j <= i + 1."""
    return softmax(q, k, v, mask, causal, keep, diagonal=2)


def softmax_minus_10000(q, k, v, mask, causal, keep):
    """Hidden scores are -10000 instead of minus infinity: a query that may attend to nothing attends to all."""
    return softmax(q, k, v, mask, causal, keep, hidden=-10000.0)


def softmax_nan(q, k, v, mask, causal):
    """0 / 0 where a sequence has no tokens."""
    with np.errstate(invalid="ignore"):
        empty = np.where(mask.any(1), 1, np.nan)[:, None, None, None]
        return (softmax(q, k, v, mask, causal) * empty).astype(q.dtype)


def gla(q, k, v, x, parameters, decay_rank, temperature):
    """Gated linear attention, token by token: S_i = diag(e^g_i) S_(i-1) + k_i v_i^T, o_i = S_i^T q_i / sqrt(D)."""
    B, N, H, D = q.shape
    logits = x @ parameters["decay.weight_in"].T @ parameters["decay.weight_out"].T + parameters["decay.bias"]
    decay = np.exp(-np.logaddexp(0, -logits) / temperature).astype(q.dtype).reshape(q.shape)
    state = np.zeros((B, H, D, D), q.dtype)
    out = np.empty_like(v)
    for i in range(N):
        state = decay[:, i, :, :, None] * state + k[:, i, :, :, None] * v[:, i, :, None, :]
        out[:, i] = np.einsum("bhd,bhde->bhe", q[:, i], state) / np.sqrt(D)
    return out


def performer(q, k, v, mask, parameters, eps, axes=(1, 3)):
    """Positive random features with a maximum that is subtracted and an eps, as in common kernels.
    axes: of the maximum over keys; (1, 3) is that of a sequence and a head."""
    W = parameters["features"]

    def exponents(x):
        x = x * q.shape[3] ** -0.25
        return x @ W.T, (x * x).sum(-1, keepdims=True) / 2

    of_queries, norms = exponents(q)
    phi_q = np.exp(of_queries - norms - of_queries.max(-1, keepdims=True)) + eps
    of_keys, norms = exponents(k)
    of_keys = np.where(mask[:, :, None, None], of_keys, -np.inf)
    top = of_keys.max(axes, keepdims=True)
    phi_k = np.exp(of_keys - norms - np.where(np.isfinite(top), top, 0)) + eps
    phi_k = phi_k * mask[:, :, None, None]
    total = np.einsum("bihm,bhm->bih", phi_q, phi_k.sum(1))[..., None]
    sums = np.einsum("bihm,bhme->bihe", phi_q, np.einsum("bjhm,bjhe->bhme", phi_k, v))
    return (sums / np.where(total > 0, total, 1)).astype(q.dtype)


def performer_of_batch(q, k, v, mask, parameters, eps):
    """One maximum over the keys of the whole batch: samples depend on each other."""
    return performer(q, k, v, mask, parameters, eps, axes=(0, 1, 2, 3))


def performer_with_eps(q, k, v, mask, parameters):
    """An eps where the formula has none."""
    return performer(q, k, v, mask, parameters, 1e-4)


if __name__ == "__main__":
    import longhand

    gated = {"norm": False, "gate": False}
    print(longhand.check(softmax, "softmax"))
    print(longhand.check(gla, "gla", **gated))
    print(longhand.check(performer, "performer", eps=1e-4, features=20))
    # Each of these fails, by the name of what it violates.
    print(longhand.check(softmax_off_by_one, "softmax"))
    print(longhand.check(softmax_minus_10000, "softmax"))
    print(longhand.check(softmax_nan, "softmax"))
    print(longhand.check(performer_of_batch, "performer", eps=1e-4, features=20))
    print(longhand.check(performer_with_eps, "performer", features=20))
    # A function that is no variant: what every attention must fulfil.
    print(longhand.check(lambda q, k, v: np.cumsum(v, 1) / np.arange(1, v.shape[1] + 1)[:, None, None].astype(v.dtype), causal=True))
