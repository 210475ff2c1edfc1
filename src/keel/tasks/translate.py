"""Translation: a text in one language becomes a text in another (or any text becomes another).

In: two files line by line, or a table with the columns of source and translation. Learns: a decoder on top of any
encoder, by teacher forcing: all places of a translation at once, each from the words before it. Out: the translation
that beam search finds.

decoder  transformer    looks at what was written and at all that was read (Vaswani et al. 2017)
         rnn            one fixed vector stands for the text (Cho et al. 2014)
         rnn-attention  a recurrent decoder that looks at all that was read (Bahdanau et al. 2015)

Notable choices
- One vocabulary for both languages. Where the encoder's table of tokens learns and has the decoder's width, the decoder
  reads and writes with it too (Press and Wolf 2017); elsewhere it has a table of its own.
- BLEU and chrF are sacrebleu's (extra `translate`), on the texts as they are: cased, not tokenised.

Shapes: R rows, Q tokens of all translations, W width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from keel.errors import UserError
from keel.interfaces import Backbone, Batch, Cut, Objective, Plot, Rows, Score, Table, Task, Tokenizer, Window
from keel.layers.beam_search import search
from keel.layers.cross_entropy import tied_cross_entropy
from keel.layers.position import Positions
from keel.layers.rnn_decoder import RnnDecoder
from keel.layers.start import start_as_glorot
from keel.layers.transformer_decoder import TransformerDecoder
from keel.metrics.translation import bleu, chrf, need_sacrebleu, sentence_chrf
from keel.text.labelled import LabelledData, find_columns
from keel.text.parallel import Pair, read_pairs, two_files
from keel.text.tables import TABLES, Rejected, kind_of
from keel.tokenizers.frame import frame

NOTHING = -1  # fills up the answers of shorter texts
WORST = 20
MOST_PENALTY = 10.0


class TranslateConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["translate"] = "translate"
    decoder: Literal["transformer", "rnn", "rnn-attention"] = "transformer"
    layers: int | None = Field(None, ge=1, description="of a Transformer's decoder; null: as many as the encoder has")
    dropout: float = Field(0.1, ge=0, lt=1, description="in the decoder")
    smoothing: float = Field(0.1, ge=0, lt=1, description="share of an answer that is spread over all tokens")
    longest: int = Field(256, ge=2, description="tokens of a translation at the most")
    beam: int = Field(5, ge=1, description="candidates of the search; 1: always the likeliest token")
    length_penalty: float = Field(0.6, ge=0, le=MOST_PENALTY, description="0: likelier texts win, which are shorter")


class Translate(Task):
    Config = TranslateConfig
    headline = "bleu"
    gist = "translation"
    needs_table = True
    alike = True

    def __init__(self, config: TranslateConfig, data: LabelledData) -> None:
        self.config = config
        self.data = data

    def bind(self, path: str) -> Translate:
        need_sacrebleu()  # not after an hour of training
        if two_files(path) or kind_of(Path(path)) not in TABLES:
            return self
        return Translate(self.config, find_columns(path, self.data, ("text", "label")))

    def read(self, path: str, labelled: bool = True) -> tuple[list[Pair], list[Rejected]]:
        return read_pairs(path, self.data, labelled)

    def example(self, given: Any) -> Pair:
        if not isinstance(given, str):
            raise UserError(f"a {type(given).__name__} where a text to translate was expected")
        if not given.strip():
            raise UserError("an empty text cannot be translated; leave it out")
        return Pair(given, None)

    def settle(self, examples: Sequence[Pair]) -> Translate:
        return self

    def objective(self, backbone: Backbone) -> TranslateObjective:
        return TranslateObjective(self.config, backbone)

    def windows(self, examples: Sequence[Pair], tokenizer: Tokenizer) -> tuple[list[Window], Cut]:
        """A source that is too long is cut behind; so is a translation to learn from."""
        if min(tokenizer.cls, tokenizer.sep) < 0:
            raise UserError("the tokenizer has no tokens that begin and end a text; translation needs both")
        sources = tokenizer.encode([e.text for e in examples])
        listed = tokenizer.encode([e.answer or "" for e in examples])
        answers = [np.where(ids < tokenizer.size, ids, tokenizer.unk) for ids in listed]  # what can be written
        room, longest = self.data.length - 2, self.config.longest - 1
        windows, cut = [], Cut()
        for number, (ids, answer) in enumerate(zip(sources, answers, strict=True)):
            lost = max(0, len(ids) - room) + max(0, len(answer) - longest)
            cut += Cut(1, int(lost > 0), len(ids) + len(answer), lost)
            answer = np.concatenate([[tokenizer.cls], answer[:longest], [tokenizer.sep]]).astype(np.int64)
            windows.append(Window(*frame(tokenizer, [ids[:room]]), number, {"translate": answer}, place=tokenizer))
        return windows, cut

    def answer(
        self, examples: Sequence[Pair], windows: Sequence[Window], outputs: Sequence[np.ndarray]
    ) -> list[dict[str, Any]]:
        answers = []
        for window, output in zip(windows, outputs, strict=True):
            ids = output[1:][output[1:] >= 0].astype(int).tolist()
            answers.append({"translation": window.place.decode(ids).strip(), "score": float(output[0])})
        return answers

    def score(self, examples: Sequence[Pair], answers: Sequence[dict[str, Any]]) -> dict[str, float]:
        gold, said = [e.answer or "" for e in examples], [a["translation"] for a in answers]
        return {"bleu": bleu(said, gold), "chrf": chrf(said, gold)}

    def details(self, examples: Sequence[Pair], answers: Sequence[dict[str, Any]]) -> list[Table | Plot]:
        scored = [
            (sentence_chrf(a["translation"], e.answer or ""), e, a) for e, a in zip(examples, answers, strict=True)
        ]
        worst = sorted(scored, key=lambda one: one[0])[:WORST]
        rows = [(f"{score:.1f}", e.text, e.answer, a["translation"], e.where) for score, e, a in worst]
        return [Table("Worst translations", ("chrF", "source", "right", "said", "where"), rows)]


class TranslateObjective(Objective):
    name = "translate"
    searches = True

    def __init__(self, config: TranslateConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        given = backbone.config
        width = getattr(given, "width", backbone.width)
        self.width = width
        if config.decoder == "transformer":
            activation = getattr(given, "activation", "relu")
            fitting = next(h for h in range(max(1, width // 64), 0, -1) if width % h == 0)
            shape = SimpleNamespace(
                width=width,
                heads=getattr(given, "heads", fitting),
                feed_forward=getattr(given, "feed_forward", None) or 4 * width,
                activation=activation if activation in ("relu", "gelu") else "relu",
                dropout=config.dropout,
                attention_dropout=getattr(given, "attention_dropout", 0.0),
                norm_epsilon=getattr(given, "norm_epsilon", 1e-5),
            )
            place: Any = getattr(given, "position", "sinusoid")
            positions = Positions(place, width, shape.heads, config.longest)
            layers = config.layers or max(1, given.layers)
            self.decoder: Any = TransformerDecoder(shape, backbone.width, layers, positions)
        else:
            self.decoder = RnnDecoder(width, backbone.width, config.decoder == "rnn-attention", config.dropout)
        self.table = None if _shares_table(backbone, width) else nn.Embedding(given.vocabulary, width)
        self.aimed = config.decoder == "transformer" and self.table is None and getattr(backbone, "aimed", False)
        self.bias = nn.Parameter(torch.zeros(given.vocabulary))

    def prepare(self, rows: Rows, tokenizer: Tokenizer) -> tuple[Rows, dict[str, Any]]:
        """Translations end to end, longest first, and the row each belongs to; their last token is only a target."""
        targets = rows.answers["translate"]
        lengths = (targets != NOTHING).sum(1) - 1
        order = np.argsort(-lengths, kind="stable")
        inside = np.arange(targets.shape[1] - 1) < lengths[order, None]
        return rows, {
            "translate.order": order,
            "translate.lengths": tuple(lengths[order].tolist()),
            "translate.inputs": targets[order, :-1][inside],
            "translate.answers": targets[order, 1:][inside],
            "translate.positions": np.broadcast_to(np.arange(inside.shape[1]), inside.shape)[inside],
            "translate.marks": (tokenizer.cls, tokenizer.sep),
        }

    def begin(self, generator: torch.Generator) -> None:
        """As the encoder: where that one's heads are fresh and look at places, so do the decoder's."""
        start_as_glorot(self, generator)
        if self.aimed:
            self.decoder.aim()

    def forward(self, backbone: Backbone, batch: Batch) -> dict[str, Score]:
        found = self._written(backbone, batch)
        answers = batch.targets["translate.answers"]
        loss, right = tied_cross_entropy(found, self._table(backbone), self.bias, answers, self._smoothing)
        return {self.name: Score(loss, right, len(answers))}

    def logits(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(Q, V): at every place of the right translations, from what comes before it."""
        return torch.addmm(self.bias, self._written(backbone, batch), self._table(backbone).t())

    @property
    def _smoothing(self) -> float:
        return self.config.smoothing if self.training else 0.0

    def _written(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(Q, W): by teacher forcing."""
        inputs, positions, order = (batch.targets[f"translate.{part}"] for part in ("inputs", "positions", "order"))
        read = self._read(backbone, batch).pick(order)
        found: Tensor = self.decoder(self._embed(backbone, inputs), positions, batch.targets["translate.lengths"], read)
        return found

    def _read(self, backbone: Backbone, batch: Batch) -> Any:
        vectors = backbone(batch).vectors
        return self.decoder.read(vectors, batch.lengths, backbone.row_vectors(vectors, batch))

    def _table(self, backbone: Backbone) -> Tensor:
        return backbone.token_table() if self.table is None else self.table.weight

    def _embed(self, backbone: Backbone, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._table(backbone)) * self.width**0.5

    def look(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(layers, heads, written, read): where the decoder looks, for a batch of one text."""
        if self.config.decoder == "rnn":
            raise UserError("this translator reads a text as one vector; it has no attention to look at")
        inputs, positions = batch.targets["translate.inputs"], batch.targets["translate.positions"]
        given = self._embed(backbone, inputs), positions, batch.targets["translate.lengths"]
        return torch.stack([weights[0] for weights in self.decoder.look(*given, self._read(backbone, batch))])

    def predict(self, backbone: Backbone, batch: Batch) -> Tensor:
        """(R, 1 + longest): the score and the tokens of each translation, filled up with -1."""
        begin, end = batch.targets["translate.marks"]
        limits = [min(self.config.longest, 2 * length + 10) for length in batch.lengths]
        rows = torch.arange(len(batch.lengths), device=batch.ids.device).repeat_interleave(self.config.beam)
        with self.decoder.writing():
            writer = Writer(self, backbone, self._read(backbone, batch).pick(rows))
            found = search(
                writer.step, limits, begin, end, self.config.beam, self.config.length_penalty, batch.ids.device
            )
        table = torch.full((len(found), 1 + max(len(ids) for ids, _ in found)), float(NOTHING))
        for row, (ids, score) in zip(table, found, strict=True):
            row[: len(ids) + 1] = torch.tensor([score, *ids])
        return table


class Writer:
    """Tells beam search the chances of the next token. What was computed for the tokens before is kept."""

    def __init__(self, objective: TranslateObjective, backbone: Backbone, read: Any) -> None:
        self.objective, self.backbone, self.read = objective, backbone, read
        self.written = 0

    def step(self, tokens: Tensor, origin: Tensor | None, kept: Tensor | None) -> Tensor:
        objective, beam = self.objective, self.objective.config.beam
        if kept is not None:
            self.read = self.read.pick((kept[:, None] * beam + torch.arange(beam, device=kept.device)).flatten())
        if origin is not None:
            objective.decoder.pick(origin)
        embedded = objective._embed(self.backbone, tokens)
        vectors = objective.decoder(embedded, torch.full_like(tokens, self.written), (1,) * len(tokens), self.read)
        self.written += 1
        return torch.addmm(objective.bias, vectors, objective._table(self.backbone).t()).log_softmax(1)


def _shares_table(backbone: Backbone, width: int) -> bool:
    """Whether the encoder has a table that learns and fits. A frozen encoder shows none."""
    table = getattr(backbone, "tokens", None)
    return isinstance(table, nn.Embedding) and table.embedding_dim == width
