"""Skip-gram with negative sampling (Mikolov et al. 2013): distinguish a word's context from random words.

In: rows of words. Out: for each (word, context word) pair the loss -log s(v.o) - sum over k negatives of log s(-v.n): v
is the context word's input embedding, o and n are the output embeddings of the word and of the negatives, s is the
logistic function. Negatives are drawn by their frequency to the power 0.75; frequent words are subsampled (`sample`),
and a word's window has a random width up to `window`.

Notable choices
- It updates the weights itself, pair by pair, in compiled loops (`_word_vector_loops.py`): gradients of full embedding
  matrices would cost more than the step. `forward` computes the same loss for held-out rows, with full windows.
- A pair counts as correct if its word scores higher than its negatives.

Shapes: T tokens, P pairs, K negatives, V vocabulary, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from keel.backbones.fasttext import FastText
from keel.backbones.word2vec import Word2Vec
from keel.configs import ObjectiveConfig
from keel.errors import UserError
from keel.interfaces import Backbone, CachedEncoder, SelfUpdatingObjective, Tokenizer
from keel.objectives._masking import ordinary_tokens, special_ids
from keel.randomness import Draw, uniform
from keel.values import Batch, Rows, Score

NOISE_CELLS = 1 << 20


class SkipGramConfig(ObjectiveConfig):
    window: int = Field(5, ge=1, description="context words on either side, at most")
    negatives: int = Field(5, ge=1, description="negative samples per pair")
    power: float = Field(0.75, ge=0, description="negatives are drawn by their frequency to this power")
    sample: float = Field(1e-4, gt=0, description="words with a higher relative frequency than this are subsampled")


class SkipGram(SelfUpdatingObjective):
    name = "skip_gram"
    Config = SkipGramConfig

    def __init__(self, config: SkipGramConfig, backbone: Backbone) -> None:
        super().__init__()
        if not isinstance(backbone, Word2Vec | FastText):
            raise UserError(f"{self.name} needs a backbone with static vectors: kind word2vec or fasttext")
        self.config = config
        size, width = backbone.token_embeddings().shape
        self.out = nn.Parameter(torch.zeros(size, width))
        self.counts: Tensor
        self.register_buffer("counts", torch.ones(size, dtype=torch.int64))  # all equal until a corpus is attached
        self._tables: tuple[np.ndarray, np.ndarray] | None = None

    def attach_corpus(self, tokenizer: Tokenizer, count_tokens: Callable[[], np.ndarray]) -> None:
        words = count_tokens().copy()
        words[special_ids(tokenizer)] = 0
        if tokenizer.unk >= 0:
            words[tokenizer.unk] = 0
        if (words > 0).sum() < 2:
            raise UserError("the corpus has fewer than two different words of the vocabulary; give more text")
        self.counts.copy_(torch.from_numpy(words))
        self._tables = None

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, np.ndarray]]:
        """All pairs within the window, in both directions, and random numbers to draw negatives with."""
        word = ordinary_tokens(rows, tokenizer) & (rows.ids != tokenizer.unk)
        place, row = np.arange(len(rows.ids)), rows.row_of_token
        pairs = []
        for distance in range(1, self.config.window + 1):
            a, b = place[:-distance], place[distance:]
            both = (row[a] == row[b]) & word[a] & word[b]
            pairs += [np.stack([a[both], b[both]]), np.stack([b[both], a[both]])]
        near, places = np.concatenate(pairs, 1)
        each = np.arange(self.config.negatives)
        return rows, {
            f"{self.name}.near": near,
            f"{self.name}.places": places,
            f"{self.name}.words": rows.ids[places],
            f"{self.name}.answers": np.zeros_like(places),  # index of the word among itself and its negatives
            f"{self.name}.draws": uniform(
                rows.keys[row][:, None], Draw.NOISE_WORDS, rows.position_of_token[:, None], each
            ),
        }

    def update(self, backbone: Backbone, rows: Rows, learning_rate: float) -> dict[str, Score]:
        keep, noise = self._keep_and_noise()
        loops, threads = compiled()
        turns = np.argsort(np.arange(len(rows.keys)) % threads, kind="stable")  # round-robin over the threads
        given = rows.ids, np.concatenate([[0], np.cumsum(rows.lengths)]), turns, rows.keys
        how = keep, noise, self.config.window, self.config.negatives, np.float32(learning_rate)
        output = self.out.detach().numpy()
        if isinstance(backbone, FastText):  # a word is the mean of several rows
            inputs = backbone.rows.weight.detach().numpy()
            losses, counts = loops.LOOPS[f"{self.name}_of_parts"](*given, inputs, output, *how, backbone.parts.numpy())
        else:
            inputs = backbone.token_embeddings().detach().numpy()
            losses, counts = loops.LOOPS[self.name](*given, inputs, output, *how)
        return {self.name: Score(torch.tensor(losses.sum()), None, int(counts.sum()), self.config.weight)}

    def _keep(self) -> Tensor:
        """(V,): each word's probability of being kept."""
        ratio = self.config.sample * self.counts.sum() / self.counts.clamp(min=1)
        return torch.where(self.counts > 0, (ratio.sqrt() + ratio).clamp(max=1.0), 0.0)

    def _noise_sums(self) -> Tensor:
        """(V,): cumulative sum of the weights that negatives are drawn with."""
        return torch.where(self.counts > 0, self.counts.double() ** self.config.power, 0.0).cumsum(0)

    def _keep_and_noise(self) -> tuple[np.ndarray, np.ndarray]:
        """For the loops: keep probabilities, and a list of negatives, each repeated in proportion to its weight."""
        if self._tables is None:
            sums = self._noise_sums().numpy()
            ends = np.rint(sums / sums[-1] * NOISE_CELLS).astype(np.int64)
            noise = np.repeat(np.arange(len(sums), dtype=np.int32), np.diff(ends, prepend=0))
            self._tables = self._keep().numpy(), noise
        return self._tables

    def predict(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(P, 1 + K): the scores of each pair's word and of its negatives."""
        words, places = (batch.targets[f"{self.name}.{part}"] for part in ("words", "places"))
        chosen = torch.cat([words[:, None], self._noise(batch)[places]], 1)
        scores = torch.einsum("pw,pkw->pk", self._vectors(encoder, batch), self.out[chosen])
        itself = chosen[:, 1:] == words[:, None]  # negatives that equal the word are ignored
        return torch.cat([scores[:, :1], scores[:, 1:].masked_fill(itself, -torch.inf)], 1)

    def forward(self, encoder: CachedEncoder, batch: Batch) -> dict[str, Score]:
        """Weights each pair by its probability of being kept, relative to the corpus mean."""
        scores = self.predict(encoder, batch)
        losses = F.softplus(-scores[:, 0]) + F.softplus(scores[:, 1:]).sum(1)
        right = (scores.argmax(1) == batch.targets[f"{self.name}.answers"]).to(losses.dtype)
        chance = self._chances(batch)
        return {self.name: Score((chance * losses).sum(), (chance * right).sum(), len(scores), self.config.weight)}

    def _chances(self, batch: Batch) -> Tensor:
        """(P,): the weight of each pair."""
        words, near = (batch.targets[f"{self.name}.{part}"] for part in ("words", "near"))
        even = self._evenly()
        return even[words] * even[batch.ids[near]]

    def _evenly(self) -> Tensor:
        """(V,): each word's probability of being kept, relative to the corpus mean."""
        keep = self._keep()
        return keep / ((keep * self.counts).sum() / self.counts.sum())

    def _vectors(self, encoder: CachedEncoder, batch: Batch) -> Tensor:
        """(P, W): the vectors from which the words are predicted."""
        return encoder(batch).vectors[batch.targets[f"{self.name}.near"]]

    def _noise(self, batch: Batch) -> Tensor:
        """(T, K): negatives for each token, the same whenever the row is seen."""
        sums = self._noise_sums().float()
        drawn = torch.searchsorted(sums, batch.targets[f"{self.name}.draws"] * sums[-1], right=True)
        return drawn.clamp(max=len(sums) - 1)


def compiled() -> tuple[Any, int]:
    """The compiled loops, and their number of threads: as many as torch uses."""
    try:
        import numba

        from keel.objectives import _word_vector_loops
    except ImportError:
        raise UserError("word vectors are trained in compiled loops: pip install 'keel-nlp[fast]'") from None
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]  # numba sets it at run time
    numba.set_num_threads(threads)
    return _word_vector_loops, threads
