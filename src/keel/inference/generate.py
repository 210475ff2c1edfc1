"""`keel generate`: a causal language model continues a text.

In: a model, a prompt, sampling settings. Out: texts that continue the prompt, until the model generates [SEP] or the
maximum length is reached.

Notable choices
- Keys and values are cached (`layers/attention/cache.py`), so each step computes only the new token.
- `temperature` divides the logits; 0 is greedy decoding. Then `top_k` keeps the k most probable tokens, and `top_p`
  the fewest whose probabilities sum to p (Holtzman et al. 2019).
- Sampling has its own random generator: the same seed gives the same texts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from keel.errors import UserError
from keel.layers.attention.generation import attention_layers, caching
from keel.learner.learner import Learner
from keel.tokenizers.library import LibraryTokenizer
from keel.values import Batch, Rows


class TextModel(Protocol):
    """The parts of a loaded model that generation needs."""

    learner: Learner
    tokenizer: LibraryTokenizer
    path: Path
    device: torch.device


def generate(
    model: TextModel,
    text: str = "",
    *,
    tokens: int = 60,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 1,
) -> list[dict[str, Any]]:
    """`samples` texts, each with its number of new tokens, and whether the model ended it."""
    _check(model, temperature, top_k, top_p)
    tokenizer, backbone = model.tokenizer, model.learner.backbone
    objective: Any = model.learner.objectives["causal_lm"]
    start = [tokenizer.cls, *tokenizer.encode([text])[0].tolist()]
    room = backbone.max_length - len(start)
    if room < 1:
        raise UserError(
            f"the text has {len(start)} tokens, but this model reads at most {backbone.max_length}; shorten it"
        )
    barred = [
        id for id in (tokenizer.pad, tokenizer.cls, tokenizer.mask, tokenizer.unk) if id not in (-1, tokenizer.sep)
    ]
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    written = np.tile(np.array(start), (samples, 1))
    ended = np.zeros(samples, bool)
    lengths = np.full(samples, len(start))
    new = written
    with torch.inference_mode(), caching(backbone):
        for _ in range(min(tokens, room)):
            vectors = backbone(_batch(new, written.shape[1] - new.shape[1], model.device)).vectors
            last = vectors.view(samples, -1, vectors.shape[1])[:, -1]
            logits = objective.head(last, backbone.token_embeddings())[:, : tokenizer.size].float().cpu()
            logits[:, barred] = -torch.inf
            chosen = choose(logits, temperature, top_k, top_p, generator).numpy()
            ended |= chosen == tokenizer.sep
            lengths += ~ended
            if ended.all():
                break
            new = chosen[:, None]
            written = np.concatenate([written, new], 1)
    found = []
    for row, length, end in zip(written, lengths, ended, strict=True):
        ids = row[1:length].tolist()
        found.append({"text": tokenizer.decode(ids).strip(), "tokens": len(ids) + 1 - len(start), "ended": bool(end)})
    return found


def choose(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator
) -> Tensor:
    """(R,): one token for each row of logits."""
    if temperature == 0:
        return logits.argmax(1)
    order = (logits / temperature).sort(1, descending=True)
    chances = order.values.softmax(1)
    if top_k:
        chances[:, top_k:] = 0
    if top_p is not None:
        chances[chances.cumsum(1) - chances >= top_p] = 0  # the token that reaches p is kept
    drawn = torch.multinomial(chances / chances.sum(1, keepdim=True), 1, generator=generator)
    return order.indices.gather(1, drawn).squeeze(1)


def _batch(new: np.ndarray, past: int, device: torch.device) -> Batch:
    """A batch of the new tokens of all rows, at their positions."""
    rows, count = new.shape
    flat = new.flatten()
    none = np.zeros(len(flat), bool)
    batch = Batch.of(
        Rows(flat, (count,) * rows, np.zeros_like(flat), none, none, np.zeros(rows, np.uint64)), {}, device
    )
    batch.positions.add_(past)
    return batch


def _check(model: TextModel, temperature: float, top_k: int | None, top_p: float | None) -> None:
    if "causal_lm" not in model.learner.objectives:
        raise UserError(f"{model.path}: this model has no causal language-model head, so it cannot continue a text")
    if len(attention_layers(model.learner.backbone)) != model.learner.backbone.config.layers:
        raise UserError(f"{model.path}: its layers share attention weights; Keel cannot generate with such a model")
    if temperature != 0 and not 1e-3 <= temperature <= 1e3:
        raise UserError(f"temperature {temperature} is out of range; 0 is greedy, 1 the model's own distribution")
    if top_k is not None and top_k < 1:
        raise UserError(f"top_k {top_k} would keep no token; give 1 or more")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError(f"top_p {top_p} is not a probability; give a number above 0, and at most 1")
