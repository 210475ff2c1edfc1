"""Base class of all tokenizers: wraps one of the `tokenizers` library and maps roles to special tokens.

In: the library's tokenizer and the special token of each role. Out: `interfaces.Tokenizer`, and which tokens start a
word.

Notable choices
- The library computes every id, as it does in `transformers`, so the ids are equal.
- Outside Chinese, a token starts a word if it begins with white space, or with another kind of character (letter,
  digit, other) than the one the previous token ended with: byte-level tokenizers split there before they merge.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, processors

from keel.batching import groups
from keel.errors import UserError
from keel.files.folders import SealedFiles, system_errors

PART_CHARACTERS = 1_000_000  # encoded at once, to bound memory
ERROR_CHARACTERS = 160  # shown of an error of the library
ABSENT = -1  # the id of a role that a vocabulary does not have
MADE_BY = {"made_by": "keel"}  # in tokenizer_config.json: a folder that should have a manifest
NOTHING, LETTER, DIGIT, OTHER = range(4)  # kinds of characters


class LibraryTokenizer:
    """`roles`: the special tokens for cls, sep, mask, pad and unk."""

    kind: str
    between = 1  # separators between two texts
    lowercase = False
    strips_accents = False
    whole_words = False  # whether every token is a word
    open = False  # whether out-of-vocabulary words get ids, for a model that reads spellings (whole_words.py)

    def __init__(self, tokenizer: Tokenizer, roles: Mapping[str, str]) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        entries = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda entry: entry[1])
        self._tokenizer = tokenizer
        self.roles = dict(roles)
        self.vocabulary = [token for token, _ in entries]
        self.size = len(entries)
        ids = dict(entries)
        self.pad, self.unk, self.cls, self.sep, self.mask = (
            ids.get(roles.get(role, ""), ABSENT) for role in ("pad", "unk", "cls", "sep", "mask")
        )

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text as int32, without [CLS] and [SEP]."""
        try:
            with no_panic("the texts"):
                return self._encode_parts(texts)
        except (UnicodeEncodeError, TypeError):
            raise _not_text(texts) from None

    def _encode_parts(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [row for part in groups(texts, len, PART_CHARACTERS) for row in self._encode(part)]

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of one text, and the character span [start, end) of each."""
        try:
            with no_panic("the text"):
                encoding = self._tokenizer.encode(text, add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            raise _not_text([text]) from None
        # The space before a word may be part of its token, but not of its span.
        return encoding.ids, [(a + 1, b) if b - a > 1 and text[a] == " " else (a, b) for a, b in encoding.offsets]

    def decode(self, ids: Sequence[int]) -> str:
        with no_panic("the ids"):
            return str(self._tokenizer.decode([int(id) for id in ids], skip_special_tokens=False))

    def join(self, tokens: Sequence[str]) -> str:
        """Tokens as text."""
        decoder = self._tokenizer.decoder
        return " ".join(tokens) if decoder is None else str(decoder.decode(list(tokens)))

    def token(self, id: int) -> str:
        if id < 0:
            raise UserError("this tokenizer has no such special token")
        return self.vocabulary[id]

    def with_masks(self, text: str) -> str:
        """The text with [MASK] replaced by this tokenizer's mask token."""
        return text.replace("[MASK]", self.token(self.mask))

    def shown(self, id: int) -> str:
        """The token as readable text."""
        return self.vocabulary[id]

    def knows(self, character: str) -> bool:
        """Whether the vocabulary can represent a character."""
        return True

    def word_starts(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Which tokens start a word, as far as the tokens alone can tell."""
        if not rows:
            return []
        led, first, last = self._edges()
        ids = np.concatenate(rows).astype(np.int64)
        starts = led[ids]
        before = last[ids[:-1]]  # a token of white space belongs to the word after it
        starts[1:] |= (first[ids[1:]] != before) & (before != NOTHING)
        stops = np.cumsum([len(row) for row in rows])
        starts[[stop - len(row) for stop, row in zip(stops, rows, strict=True) if len(row)]] = True
        return np.split(starts, stops[:-1])

    def _edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(V,) each: whether a token begins with white space, and the kinds of its first and last other characters."""
        if not hasattr(self, "_edge_table"):
            texts = [self.shown(id) for id in range(self.size)]
            bare = [text.strip() for text in texts]
            led = np.array([text[:1].isspace() for text in texts])
            ends = np.array([(_kind(b[:1]), _kind(b[-1:])) for b in bare])
            self._edge_table = led, ends[:, 0], ends[:, 1]
        return self._edge_table

    def fingerprint(self) -> str:
        """A hash of the vocabulary and of every setting that affects ids."""
        # Rounded, because the library does not restore the last digits of the scores it writes.
        settings = json.loads(self._tokenizer.to_str(), parse_float=lambda digits: f"{float(digits):.6g}")
        content = json.dumps([self.vocabulary, settings], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def save(self, folder: str | Path) -> None:
        """Writes the files that `transformers` and Keel open."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with system_errors(folder / "tokenizer.json"):
            self._tokenizer.save(str(folder / "tokenizer.json"), pretty=True)
        names = {f"{role}_token": spelling for role, spelling in self.roles.items()}
        config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}
        config |= MADE_BY | names
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        (folder / "special_tokens_map.json").write_text(json.dumps(names, indent=2), encoding="utf-8")


def tokenizer_files(path: Path) -> SealedFiles:
    """The files of a folder, verified except for the weights, which are large and verified when they are loaded."""
    return SealedFiles(path, lambda name: not name.endswith(".safetensors"))


def _kind(character: str) -> int:
    if not character:
        return NOTHING
    category = unicodedata.category(character)[0]
    return LETTER if category in "LM" or character == "\ufffd" else DIGIT if category == "N" else OTHER


def parse_tokenizer(content: dict[str, Any], path: Path) -> Tokenizer:
    """A tokenizer of the library from the content of its tokenizer.json; `path` is for the error."""
    _check_tables(content, path)
    with no_panic(str(path)):
        return Tokenizer.from_str(json.dumps(content))


@contextlib.contextmanager
def no_panic(what: str) -> Iterator[None]:
    """Turns a panic of the library, which is no Exception and would end the program, and its bare Exceptions into an
    error about `what`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException" and type(error) is not Exception:
            raise
        raise UserError(
            f"{what}: the tokenizers library rejects it ({in_brief(error)}); restore the tokenizer from a copy"
        ) from None


def in_brief(error: object) -> str:
    return " ".join(str(error).split())[:ERROR_CHARACTERS]


def _check_tables(content: Any, path: Path) -> None:
    """Checks the normalisation tables of a tokenizer.json, wherever they are nested."""
    parts = [content.get("normalizer")]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        if not isinstance(part, dict):
            continue
        parts += [value for value in part.values() if isinstance(value, (dict, list))]
        if part.get("type") == "Precompiled":
            try:
                table = base64.b64decode(part.get("precompiled_charsmap") or "", validate=True)
            except (TypeError, ValueError, binascii.Error):
                raise UserError(f"{path}: its precompiled_charsmap is not base64; restore it from a copy") from None
            check_table(table, path)


def check_table(table: bytes, path: Path) -> None:
    """Raises unless a compiled normalisation table has the size it declares, for which the library reserves memory."""
    size = int.from_bytes(table[:4], "little")
    if table and (len(table) < 8 or size % 4 or size > len(table) - 4):
        raise UserError(f"{path}: its normalisation table is cut off or damaged; restore it from a copy")


def check_ids(vocabulary: Mapping[str, int], path: Path) -> None:
    """Raises unless the ids are 0, 1, 2, ... without gaps; `path` is for the error."""
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise UserError(f"{path}: its ids are not 0 to {len(vocabulary) - 1} without gaps; the file is damaged")


def frame_as_bert(tokenizer: Tokenizer, special: Iterable[str]) -> None:
    """Registers the special tokens, and makes the library add [CLS] and [SEP] around texts as BERT does."""
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )


def frame_as_roberta(tokenizer: Tokenizer, roles: Mapping[str, str]) -> None:
    """The same as RoBERTa does: two separators between two texts, and a mask that takes the space before it."""
    special = {token: token == roles["mask"] for token in roles.values()}
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False, lstrip=m) for t, m in special.items()])
    begin, end = roles["cls"], roles["sep"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (begin, end)],
    )


def _not_text(texts: Sequence[str]) -> UserError:
    for number, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return UserError(
                f"text {number + 1}: character {error.start} is half a surrogate pair; the text is not Unicode"
            )
        except AttributeError:
            return UserError(f"text {number + 1}: expected a string, found {type(text).__name__}")
    return UserError("the texts cannot be tokenised; give strings")
