"""Writes the files beside it: tiny models in PyTorch under the names of other programs, with their logits.

    python make.py

Each NAME.npz has `state.TENSOR` of the state_dict() in f32, `tokens`, and `logits` of these tokens, computed
by PyTorch in f64. All numbers are from a seed. Layer norms and biases are random, too: at their initial
values, 1 and 0, they would hide mistakes.
"""
import math
import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 11, 8, 2, 2, 6


class Conv1D(nn.Module):
    """x W + b, with W of shape (in, out), as GPT-2 has in transformers."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


def attend(q, k, v, causal):
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        n = scores.shape[-1]
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


class GPT(nn.Module):
    """The names of nanoGPT and of GPT-2: the head is the token embedding."""

    def __init__(self, linear, gelu, bias=True):
        super().__init__()
        norm = lambda: nn.LayerNorm(WIDTH, bias=bias)
        self.gelu = gelu
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(VOCABULARY, WIDTH), "wpe": nn.Embedding(LENGTH, WIDTH),
            "h": nn.ModuleList([nn.ModuleDict({
                "ln_1": norm(), "ln_2": norm(),
                "attn": nn.ModuleDict({"c_attn": linear(WIDTH, 3 * WIDTH), "c_proj": linear(WIDTH, WIDTH)}),
                "mlp": nn.ModuleDict({"c_fc": linear(WIDTH, 4 * WIDTH), "c_proj": linear(4 * WIDTH, WIDTH)}),
            }) for _ in range(LAYERS)]),
            "ln_f": norm()})
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(LENGTH))
        for block in t["h"]:
            x = x + block["attn"]["c_proj"](
                attend(*block["attn"]["c_attn"](block["ln_1"](x)).chunk(3, -1), True))
            x = x + block["mlp"]["c_proj"](self.gelu(block["mlp"]["c_fc"](block["ln_2"](x))))
        return self.lm_head(t["ln_f"](x))


class Encoder(nn.Module):
    """torch.nn.TransformerEncoder between an embedding and a head."""

    def __init__(self, norm_first, activation):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 12, 0.0, activation, batch_first=True,
                                           norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False,
                                             norm=nn.LayerNorm(WIDTH) if norm_first else None)
        self.fc = nn.Linear(WIDTH, 3)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(LENGTH))
        return self.fc(self.encoder(x).mean(1))


class BERT(nn.Module):
    """The names of BertForTokenClassification in transformers; all tokens are of segment 0."""

    def __init__(self):
        super().__init__()
        norm = lambda: nn.LayerNorm(WIDTH, eps=1e-12)
        dense = lambda inputs, outputs: nn.ModuleDict({"dense": nn.Linear(inputs, outputs)})
        output = lambda inputs: nn.ModuleDict({"dense": nn.Linear(inputs, WIDTH), "LayerNorm": norm()})
        self.bert = nn.ModuleDict({
            "embeddings": nn.ModuleDict({
                "word_embeddings": nn.Embedding(VOCABULARY, WIDTH),
                "position_embeddings": nn.Embedding(LENGTH, WIDTH),
                "token_type_embeddings": nn.Embedding(2, WIDTH), "LayerNorm": norm()}),
            "encoder": nn.ModuleDict({"layer": nn.ModuleList([nn.ModuleDict({
                "attention": nn.ModuleDict({
                    "self": nn.ModuleDict({n: nn.Linear(WIDTH, WIDTH) for n in ("query", "key", "value")}),
                    "output": output(WIDTH)}),
                "intermediate": dense(WIDTH, 12), "output": output(12),
            }) for _ in range(LAYERS)])})})
        self.classifier = nn.Linear(WIDTH, 5)

    def forward(self, tokens):
        e = self.bert["embeddings"]
        x = e["LayerNorm"](e["word_embeddings"](tokens) + e["position_embeddings"](torch.arange(LENGTH)) +
                           e["token_type_embeddings"](torch.zeros_like(tokens)))
        for block in self.bert["encoder"]["layer"]:
            s, o = block["attention"]["self"], block["attention"]["output"]
            x = o["LayerNorm"](o["dense"](attend(*(s[n](x) for n in ("query", "key", "value")), False)) + x)
            h = F.gelu(block["intermediate"]["dense"](x))
            x = block["output"]["LayerNorm"](block["output"]["dense"](h) + x)
        return self.classifier(x)


torch.manual_seed(7)
without_bias = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
models = {"nanogpt": GPT(nn.Linear, F.gelu), "nanogpt_without_bias": GPT(without_bias, F.gelu, bias=False),
          "gpt2": GPT(Conv1D, lambda x: F.gelu(x, approximate="tanh")),
          "torch_pre": Encoder(True, "gelu"), "torch_post": Encoder(False, "relu"), "bert": BERT()}
for name, model in models.items():
    with torch.no_grad():
        for key, p in model.named_parameters():
            near = 1 if p.dim() == 1 and key.endswith("weight") else 0
            p.copy_(near + 0.5 * torch.randn_like(p))
    state = {"state." + key: value.numpy() for key, value in model.state_dict().items()}
    tokens = torch.randint(VOCABULARY, (3, LENGTH))
    with torch.no_grad():
        logits = model.double().eval()(tokens)
    path = pathlib.Path(__file__).parent / f"{name}.npz"
    np.savez(path, tokens=tokens.int().numpy(), logits=logits.numpy(), **state)
