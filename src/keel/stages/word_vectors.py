"""`keel words`: neighbours and analogies from static word vectors, and their agreement with human similarity ratings.

In: a model folder, or vectors in word2vec's text or binary format. Out: words with similarities; scores on published
lists; the other formats, for use in other programs.

Notable choices
- Similarity is the cosine. An analogy "a is to b as c is to ?" is the word nearest to b - a + c that is none of the
  three (3CosAdd), as published.
- Pairs and questions with a word that has no vector are skipped and counted; case is ignored there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keel import __version__
from keel.backbones.elmo import Elmo
from keel.backbones.fasttext import FastText
from keel.backbones.word2vec import Word2Vec, Word2VecConfig
from keel.errors import UserError, suggest
from keel.files.folders import check_absent, check_free, creating, write_folder
from keel.hugging_face.folder import load_model, save_model
from keel.learner.learner import Learner
from keel.metrics.correlation import spearman
from keel.text.tables import unicode_lines
from keel.text.vector_files import read_vectors, write_vectors
from keel.tokenizers.whole_words import from_list

QUESTIONS_AT_ONCE = 512
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
MOST_FREQUENT = 300_000  # words that are candidates for an analogy's answer


@dataclass(frozen=True)
class WordVectors:
    """V words, the most frequent first, with a vector each."""

    words: list[str]
    vectors: np.ndarray  # (V, W) float32
    spelt: Callable[[str], np.ndarray] | None = None  # vector of an out-of-vocabulary word, if the model has one

    @staticmethod
    def open(path: str) -> WordVectors:
        if not Path(path).is_file():
            return _of_model(path)
        found = read_vectors(Path(path))
        return WordVectors(found.words, found.vectors)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: id for id, word in enumerate(self.words)}

    @cached_property
    def folded(self) -> dict[str, int]:
        """Ids by lower-cased word; the most frequent one if several words share it."""
        return {word.lower(): id for id, word in reversed(list(enumerate(self.words)))}

    @cached_property
    def directions(self) -> np.ndarray:
        """(V, W): the vectors, normalised to length 1."""
        return self.vectors / np.maximum(np.linalg.norm(self.vectors, axis=1, keepdims=True), 1e-12)

    def id(self, word: str) -> int:
        found = self.ids.get(word, self.folded.get(word.lower()))
        if found is None:
            raise UserError(f"'{word}' has no vector.{suggest(word, self.words[:20_000])}")
        return found

    def knows(self, word: str) -> bool:
        return word in self.ids or word.lower() in self.folded

    def direction(self, word: str) -> np.ndarray:
        """(W,): normalised to length 1; an out-of-vocabulary word is composed from its spelling if the model can."""
        if not word.strip():
            raise UserError("an empty word has no vector")
        if self.spelt is None or self.knows(word):
            found: np.ndarray = self.directions[self.id(word)]
            return found
        vector = self.spelt(word)
        if not vector.any():
            raise UserError(f"'{word}' has no vector: it is too short for the n-grams of this model")
        return vector / float(np.linalg.norm(vector))

    def similar(self, word: str, count: int = 10) -> list[dict[str, Any]]:
        return self._nearest(self.direction(word), [word], count)

    def analogy(self, a: str, b: str, c: str, count: int = 10) -> list[dict[str, Any]]:
        """`a` is to `b` as `c` is to ...?"""
        first, second, third = (self.direction(word) for word in (a, b, c))
        return self._nearest(second - first + third, [a, b, c], count)

    def _nearest(self, wanted: np.ndarray, but: Sequence[str], count: int) -> list[dict[str, Any]]:
        scores = self.directions @ (wanted / max(1e-12, float(np.linalg.norm(wanted))))
        barred = {self.id(word) for word in but if self.knows(word)}
        scores[list(barred)] = -np.inf
        best = np.argsort(-scores, kind="stable")[: min(count, len(scores) - len(barred))]
        return [{"word": self.words[id], "similarity": float(scores[id])} for id in best]


def evaluate_words(model: str, similarities: Sequence[str] = (), analogies: Sequence[str] = ()) -> dict[str, Any]:
    """Spearman's correlation with human similarity ratings, and the accuracy on analogies."""
    if not similarities and not analogies:
        raise UserError(
            "nothing to evaluate on; give --similarity FILE (word word score) or --analogies FILE (a b c d)"
        )
    found = WordVectors.open(model)
    result: dict[str, Any] = {"model": model, "words": len(found.words)}
    judges = [(path, _judge_pairs) for path in similarities] + [(path, _judge_analogies) for path in analogies]
    for path, judge in judges:
        name = Path(path).stem
        result[path if name in result else name] = judge(found, Path(path))
    return result


def _judge_pairs(found: WordVectors, path: Path) -> dict[str, Any]:
    """Each line holds two words and then a score, the first number after them; a first line without one is a header."""
    ours, theirs, left_out = [], [], 0
    for number, line in _lines(path):
        separator = next((mark for mark in "\t," if mark in line), None)
        parts = [part.strip() for part in line.split(separator)]
        score = next((float(part) for part in parts[2:] if NUMBER.fullmatch(part)), None)
        if score is None:
            if number == 1 and len(parts) > 2:
                continue
            raise UserError(f"{path}, line {number}: expected two words and a score")
        a, b = (found.folded.get(word.lower()) for word in parts[:2])
        if a is None or b is None:
            left_out += 1
            continue
        ours.append(float(found.directions[a] @ found.directions[b]))
        theirs.append(score)
    if len(ours) < 2:
        raise UserError(f"{path}: fewer than two of its pairs have vectors for both words")
    if len(set(ours)) < 2 or len(set(theirs)) < 2:
        raise UserError(
            f"{path}: all of its pairs have the same score, or the same similarity; there is no ranking to compare"
        )
    return {"spearman": spearman(np.array(ours), np.array(theirs)), "pairs": len(ours), "left_out": left_out}


def _judge_analogies(found: WordVectors, path: Path) -> dict[str, Any]:
    questions, left_out = [], 0
    for number, line in _lines(path):
        if line.startswith(":"):
            continue
        parts = line.lower().split()
        if len(parts) != 4:
            raise UserError(f"{path}, line {number}: expected four words, or a heading that begins with ':'")
        ids = [found.folded.get(word, MOST_FREQUENT) for word in parts]
        if max(ids) >= MOST_FREQUENT:
            left_out += 1
        else:
            questions.append(ids)
    if not questions:
        raise UserError(f"{path}: no question has vectors for all four words")
    table, right = found.directions[:MOST_FREQUENT], 0
    for part in np.array_split(np.array(questions), -(-len(questions) // QUESTIONS_AT_ONCE)):
        wanted = table[part[:, 1]] - table[part[:, 0]] + table[part[:, 2]]
        scores = wanted @ table.T
        np.put_along_axis(scores, part[:, :3], -np.inf, axis=1)
        best = scores.argmax(1)
        right += sum(found.words[a].lower() == found.words[b].lower() for a, b in zip(best, part[:, 3], strict=True))
    return {"accuracy": right / len(questions), "questions": len(questions), "left_out": left_out}


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(unicode_lines(path), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line.strip()


def _of_model(path: str) -> WordVectors:
    """The input embeddings of any model, for the tokens that are words."""
    loaded = load_model(path)
    tokenizer = loaded.tokenizer
    special = set(tokenizer.roles.values())
    starts = [bool(row[-1]) for row in tokenizer.word_starts([np.array([id]) for id in range(tokenizer.size)])]
    kept = [id for id in range(tokenizer.size) if starts[id] and tokenizer.token(id) not in special]
    backbone = loaded.learner.backbone
    if isinstance(backbone, Elmo):
        raise UserError(f"{path}: this model composes words from characters and has no static word vectors")
    table = backbone.token_embeddings().detach().float().cpu().numpy()

    words = [tokenizer.shown(id).strip() for id in kept]
    if not isinstance(backbone, FastText):
        return WordVectors(words, table[kept], None)

    def spelt(word: str) -> np.ndarray:
        normaliser: Any = tokenizer._tokenizer.normalizer
        word = str(normaliser.normalize_str(word)).strip() if normaliser else word
        vector: np.ndarray = backbone.vector_of(word).detach().float().cpu().numpy()
        return vector

    return WordVectors(words, table[kept], spelt)


def export_words(model: str, out: str, binary: bool = False) -> dict[str, Any]:
    """Writes word2vec's text or binary format."""
    path = Path(out)
    check_absent(path)
    found = WordVectors.open(model)
    broken = next((word for word in found.words if not word or any(c.isspace() for c in word)), None)
    if broken is not None:
        raise UserError(f"{model}: the word {broken!r} contains white space, which the format does not allow")
    with creating(path) as file:
        write_vectors(file, found.words, found.vectors, binary, packed=path.suffix == ".gz")
    return {"out": out, "words": len(found.words), "width": int(found.vectors.shape[1])}


def import_words(vectors: str, out: str, lowercase: bool | None = None) -> dict[str, Any]:
    """Makes a model folder from the vectors of another program. `lowercase=None`: lower-case if no word has a capital.

    Words that the tokenizer splits or lower-cases (`new_york`, `don't`) never occur in a text: they are counted."""
    target = Path(out)
    check_free(target)
    found = read_vectors(Path(vectors))
    lowercase = all(word == word.lower() for word in found.words) if lowercase is None else lowercase
    try:
        tokenizer = from_list(found.words, lowercase)
    except UserError as error:
        raise UserError(f"{vectors}: {error}") from None
    first = tokenizer.size - len(found.words)
    unreachable = [
        word
        for n, (word, ids) in enumerate(zip(found.words, tokenizer.encode(found.words), strict=True))
        if ids.tolist() != [first + n]
    ]
    backbone = Word2Vec(Word2VecConfig(vocabulary=tokenizer.size, width=found.vectors.shape[1]))
    with torch.no_grad():
        backbone.tokens.weight.zero_()
        backbone.tokens.weight[first:] = torch.from_numpy(found.vectors)
    card = f"# {target.name}\n\nMade with Keel {__version__} from the word vectors {Path(vectors).name}.\n"
    with write_folder(target, {"keel": "words import", "vectors": vectors}) as folder:
        save_model(folder, Learner(backbone, {}), tokenizer, card)
    size = {"words": len(found.words), "width": int(found.vectors.shape[1])}
    result = {"out": out, **size, "doubled": found.doubled, "lowercase": lowercase}
    return result | {"cut_in_texts": len(unreachable), "such_as": " ".join(unreachable[:5])}
