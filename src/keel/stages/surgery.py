"""Changes a trained model's number of positions, or its vocabulary.

In: a model folder. Out: another model folder, with the weights of the first wherever they keep their meaning.

extend positions   rows of the position table are repeated, as in Beltagy et al. 2020: nearby tokens keep their offsets
vocab propose      proposes words of a domain as entries, ranked by the tokens they save
vocab extend       new entries start as the mean of the pieces they used to be split into
vocab shrink       removes entries that a text never uses

Notable choices
- All four are for learned tables and WordPiece; the rest of the model is kept, including its heads.
- Proposals are evaluated on lines that were not counted (one in HELD_OUT), so the reported saving is not biased.
- Single characters stay when a vocabulary shrinks: without them, new words would become [UNK] that did not before.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from keel import __version__
from keel.backbones.deberta import DebertaEmbeddings
from keel.backbones.gpt import Gpt
from keel.corpus.store import Corpus
from keel.errors import UserError
from keel.files.folders import check_free, write_folder
from keel.hugging_face.cache import find_folder
from keel.hugging_face.folder import LoadedModel, load_model, save_model
from keel.interfaces import Backbone
from keel.layers.compact_embedding import replace_token_embeddings
from keel.layers.embeddings import Embeddings
from keel.layers.position import Positions
from keel.layers.token_head import TokenHead
from keel.learner.learner import Learner
from keel.stages.tokenizer import Texts
from keel.tokenizers.folder import open_tokenizer
from keel.tokenizers.library import PART_CHARACTERS
from keel.tokenizers.wordpiece import CONTINUATION, WordPiece

HELD_OUT = 10  # one line in this many is not counted, but held out for evaluation


def _with_a_table(model: str, allow_pickle: bool) -> LoadedModel:
    loaded = load_model(model, pickle=allow_pickle)
    if loaded.learner.backbone.config.characters_read:
        raise UserError(f"{model}: this model composes words from characters; its vocabulary cannot be changed")
    return loaded


def extend_positions(model: str, to: int, out: str, allow_pickle: bool = False) -> dict[str, Any]:
    """The same model with `to` positions."""
    loaded = load_model(model, pickle=allow_pickle)
    backbone = loaded.learner.backbone
    before = backbone.max_length
    if to <= before:
        raise UserError(f"{model} already has {before} positions; --to must be larger")
    if "positions" not in type(backbone.config).model_fields:
        raise UserError(f"{model} has no positions to extend: it reads rows of any length")
    holder, name = _position_table(backbone)
    if holder is not None:
        table = holder.get_submodule(name).get_parameter("weight").detach()
        unused = len(table) - before  # RoBERTa's table starts with unused rows
        rows = unused + torch.arange(to) % before
        setattr(holder, name, _table(torch.cat([table[:unused], table[rows]])))
    backbone.config = backbone.config.model_copy(update={"positions": to})
    backbone.max_length = to
    _save(loaded, loaded.tokenizer, out, f"{model} with {to:,} positions instead of {before:,}")
    return {"out": out, "positions_before": before, "positions": to}


def propose(
    tokenizer: str,
    texts: Sequence[str],
    *,
    count: int = 500,
    min_frequency: int = 5,
    documents: str = "auto",
    column: str = "text",
    report: Callable[[Any], None] | None = None,
) -> dict[str, Any]:
    """The `count` words that would save the most tokens, and how many they save on held-out lines."""
    opened = _wordpiece(tokenizer)
    words: Counter[tuple[int, ...]] = Counter()
    held: list[str] = []
    for lines in _lines(Texts(texts, documents, column, report)):
        is_held_out = [zlib.crc32(line.encode(errors="replace")) % HELD_OUT == 0 for line in lines]
        held += [line for line, apart in zip(lines, is_held_out, strict=True) if apart]
        words.update(_long_words(opened, [line for line, apart in zip(lines, is_held_out, strict=True) if not apart]))
    saved = {word: (len(word) - 1) * n for word, n in words.items() if n >= min_frequency}
    best = sorted(saved, key=lambda word: (-saved[word], word))[:count]
    rows: list[dict[str, Any]] = [
        {
            "word": _spell(opened, word),
            "pieces": [opened.token(id) for id in word],
            "count": words[word],
            "tokens_saved": saved[word],
        }
        for word in best
    ]
    wider = opened.with_vocabulary([*opened.vocabulary, *(row["word"] for row in rows)])
    return {"tokenizer": tokenizer, "proposed": len(rows), "words": rows, "held_out": _shortened(opened, wider, held)}


def extend_vocabulary(model: str, words: Sequence[str], out: str, allow_pickle: bool = False) -> dict[str, Any]:
    """The same model with these words as vocabulary entries."""
    loaded = _with_a_table(model, allow_pickle)
    tokenizer = _wordpiece(model)
    fresh = [word for word in dict.fromkeys(words) if word not in set(tokenizer.vocabulary)]
    wider = tokenizer.with_vocabulary([*tokenizer.vocabulary, *fresh])
    # An entry is useful only if the tokenizer looks the word up unsplit, after lower-casing and pre-tokenization.
    reached = [word for word, ids in zip(fresh, wider.encode(fresh), strict=True) if ids.tolist() == [_id(wider, word)]]
    unreached = [word for word in fresh if word not in set(reached)]
    if not reached:
        raise UserError(
            "none of the words can be added: they are in the vocabulary already, or the tokenizer splits them"
        )
    wider = tokenizer.with_vocabulary([*tokenizer.vocabulary, *reached])
    pieces = tokenizer.encode(reached)
    size = tokenizer.size  # the model's table may have more rows than there are tokens
    _change_tables(
        loaded.learner,
        lambda table: torch.cat(
            [table[:size], torch.stack([table[torch.from_numpy(p).long()].mean(0) for p in pieces])]
        ),
    )
    _save(loaded, wider, out, f"{model} with {len(reached):,} more words")
    return {
        "out": out,
        "size_before": tokenizer.size,
        "size": wider.size,
        "added": len(reached),
        "known_before": len(set(words)) - len(fresh),
        "not_possible": unreached,
    }


def shrink_vocabulary(
    model: str,
    out: str,
    *,
    corpus: str | None = None,
    texts: Sequence[str] = (),
    documents: str = "auto",
    column: str = "text",
    allow_pickle: bool = False,
) -> dict[str, Any]:
    """The same model with only the entries that a corpus, or the given texts, use."""
    if (corpus is None) == (not texts):
        raise UserError("give --corpus DIR, or texts: the entries that they use are kept")
    loaded = _with_a_table(model, allow_pickle)
    tokenizer = _wordpiece(model)
    used = np.zeros(tokenizer.size, bool)
    if corpus is not None:
        opened = Corpus.open(Path(corpus))
        if open_tokenizer(opened.tokenizer_path).fingerprint() != tokenizer.fingerprint():
            raise UserError(f"{corpus} was built with another tokenizer than {model}")
        for document in range(opened.documents):
            bounds = opened.sentence_bounds(document)
            used[opened.ids(int(bounds[0]), int(bounds[-1]))] = True
    else:
        for lines in _lines(Texts(texts, documents, column, None)):
            for row in tokenizer.encode(lines):
                used[row] = True
    special = set(tokenizer.roles.values())
    used |= np.array([t in special or len(t.removeprefix(CONTINUATION)) == 1 for t in tokenizer.vocabulary])
    kept = np.flatnonzero(used)
    if len(kept) == tokenizer.size:
        raise UserError(f"{model}: all of its {tokenizer.size:,} entries are used; there is nothing to remove")
    narrower = tokenizer.with_vocabulary([tokenizer.vocabulary[id] for id in kept])
    before = sum(p.numel() for p in loaded.learner.parameters())
    _change_tables(loaded.learner, lambda table: table[torch.from_numpy(kept)])
    _save(loaded, narrower, out, f"{model} with {len(kept):,} of its {tokenizer.size:,} entries")
    after = sum(p.numel() for p in loaded.learner.parameters())
    return {
        "out": out,
        "size_before": tokenizer.size,
        "size": narrower.size,
        "parameters_before": before,
        "parameters": after,
    }


def _wordpiece(path: str) -> WordPiece:
    tokenizer = open_tokenizer(find_folder(path))
    if not isinstance(tokenizer, WordPiece):
        raise UserError(f"{path}: its tokenizer is {tokenizer.kind}; vocabularies are changed for wordpiece only")
    return tokenizer


def _id(tokenizer: WordPiece, word: str) -> int:
    return tokenizer.vocabulary.index(word) if word in tokenizer.vocabulary else -1


def _lines(texts: Texts) -> Iterator[list[str]]:
    """The texts' lines in large batches: a call to the tokenizer costs about the same for a line as for a page."""
    lines: list[str] = []
    size = 0
    for text in texts:
        lines += text.split("\n")
        size += len(text)
        if size >= PART_CHARACTERS:
            yield lines
            lines, size = [], 0
    yield lines


def _long_words(tokenizer: WordPiece, lines: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Words of more than one piece, as piece ids."""
    for row in tokenizer.encode(lines):
        firsts = np.flatnonzero(~tokenizer.continues[row])
        stops = np.append(firsts[1:], len(row))
        for start, stop in zip(firsts[stops - firsts > 1], stops[stops - firsts > 1], strict=True):
            yield tuple(row[start:stop].tolist())


def _spell(tokenizer: WordPiece, word: tuple[int, ...]) -> str:
    return "".join(tokenizer.token(id).removeprefix(CONTINUATION) for id in word)


def _shortened(before: WordPiece, after: WordPiece, lines: Sequence[str]) -> dict[str, Any]:
    counts = [sum(map(len, tokenizer.encode(lines))) for tokenizer in (before, after)]
    share = 1 - counts[1] / counts[0] if counts[0] else 0.0
    return {"tokens_before": counts[0], "tokens_after": counts[1], "shortened_by": share}


def _change_tables(learner: Learner, change: Callable[[Tensor], Tensor]) -> None:
    """Applies a change of rows to every tensor that has one row per vocabulary entry."""
    backbone = learner.backbone
    with torch.no_grad():
        replace_token_embeddings(backbone, _table(change(backbone.token_embeddings().detach())))
        for part in learner.modules():
            if isinstance(part, TokenHead):
                part.bias = nn.Parameter(change(part.bias.detach()))
    backbone.config = backbone.config.model_copy(update={"vocabulary": len(backbone.token_embeddings())})


def _position_table(backbone: Backbone) -> tuple[nn.Module | None, str]:
    """The module that holds the learned position table, and the attribute name; None: positions are computed."""
    for part in backbone.modules():
        if isinstance(part, Embeddings | Gpt | DebertaEmbeddings) and part.positions is not None:
            return part, "positions"
        if isinstance(part, Positions) and part.table is not None:
            return part, "table"
    return None, ""


def _table(rows: Tensor) -> nn.Embedding:
    return nn.Embedding.from_pretrained(rows.clone(), freeze=False)


def _save(loaded: LoadedModel, tokenizer: Any, out: str, what: str) -> None:
    target = Path(out)
    check_free(target)
    card = f"# {target.name}\n\nMade with Keel {__version__}: {what}.\n"
    with write_folder(target, {"keel": "surgery", "what": what}) as folder:
        save_model(folder, loaded.learner, tokenizer, card, loaded.setup)
