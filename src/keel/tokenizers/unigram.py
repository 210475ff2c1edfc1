"""Unigram tokenizers of sentencepiece, as in ALBERT, XLM-R and DeBERTa v2 and v3: read, not trained.

In: ALBERT's `spiece.model`, XLM-R's `sentencepiece.bpe.model`, DeBERTa's `spm.model`, or a tokenizer.json with a
Unigram model. Out: ids equal to those of the sentencepiece library itself; for XLM-R one higher, because its special
tokens have other places in its file. A tokenizer.json is used as it is.

Versions of `transformers` differ from sentencepiece on symbols that a model defines, and on "9,"; version 5 also leaves
out the normalisation of a DeBERTa model (of full-width characters, for instance), also where it is in a tokenizer.json.

Notable choice: a spiece.model is a protocol buffer of which only three fields matter (pieces, their scores, the
normalisation table), so its wire format is parsed here in a few lines instead of with two more dependencies.

Papers: Kudo 2018 (arXiv:1804.10959); Lan et al. 2019 (arXiv:1909.11942).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from keel.errors import UserError
from keel.files.folders import read_json
from keel.tokenizers.library import LibraryTokenizer, check_table, frame_as_bert, frame_as_roberta, no_panic

MODEL_FILES = ("spiece.model", "sentencepiece.bpe.model", "spm.model")
ALBERT = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
DEBERTA = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
XLM_R = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
FAIRSEQ = ["<unk>", "<s>", "</s>"]  # the first pieces of XLM-R's file, which get other ids
SPACE = "▁"


class Unigram(LibraryTokenizer):
    kind = "unigram"

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        roles = XLM_R if ALBERT["cls"] not in vocabulary else DEBERTA if DEBERTA["pad"] in vocabulary else ALBERT
        missing = [token for token in roles.values() if token not in vocabulary]
        if missing:
            raise UserError(
                f"the vocabulary lacks {', '.join(missing)}; Keel reads sentencepiece models like ALBERT's, "
                "XLM-R's and DeBERTa's"
            )
        super().__init__(tokenizer, roles)
        steps: bytes = tokenizer.normalizer.__getstate__() if tokenizer.normalizer else b""
        self.lowercase, self.strips_accents = b'"Lowercase"' in steps, b'"StripAccents"' in steps
        self.between = 2 if roles is XLM_R else 1

    @staticmethod
    def read(path: Path) -> Unigram:
        try:
            pieces, table = _parse(path.read_bytes())
        except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError):
            raise UserError(f"{path}: not a sentencepiece model, or cut off; restore it from a copy") from None
        spellings = [piece for piece, _ in pieces]
        if not pieces or not {ALBERT["unk"], DEBERTA["unk"]} & set(spellings):
            raise UserError(f"{path}: holds no pieces with {ALBERT['unk']}; is this a sentencepiece model?")
        check_table(table, path)
        with no_panic(str(path)):
            if DEBERTA["unk"] in spellings:
                return Unigram(_assemble_deberta(pieces, table, _lowers(path.parent / "tokenizer_config.json")))
            return Unigram(_assemble_xlm_r(pieces, table) if spellings[:3] == FAIRSEQ else _assemble(pieces, table))

    def shown(self, id: int) -> str:
        return self.vocabulary[id].replace(SPACE, " ")

    def knows(self, character: str) -> bool:
        return self.unk not in self._tokenizer.encode(character, add_special_tokens=False).ids


def _assemble(pieces: list[tuple[str, float]], table: bytes) -> Tokenizer:
    """ALBERT's normalisation and pre-tokenization around its pieces."""
    spellings = [piece for piece, _ in pieces]
    tokenizer = Tokenizer(models.Unigram(pieces, spellings.index(ALBERT["unk"]), False))
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    steps += [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    if table:
        steps.append(normalizers.Precompiled(table))
    tokenizer.normalizer = normalizers.Sequence(steps)
    _split_at_spaces(tokenizer)
    frame_as_bert(tokenizer, ALBERT.values())
    return tokenizer


def _assemble_xlm_r(pieces: list[tuple[str, float]], table: bytes) -> Tokenizer:
    """XLM-R's ids: its special tokens, the pieces of the file without its first three, and the mask."""
    first, mask = list(XLM_R.values())[:-1], XLM_R["mask"]
    vocabulary = [*((token, 0.0) for token in first), *pieces[len(FAIRSEQ) :], (mask, 0.0)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, first.index(XLM_R["unk"]), False))
    if table:
        tokenizer.normalizer = normalizers.Precompiled(table)
    _split_at_spaces(tokenizer)
    frame_as_roberta(tokenizer, XLM_R)
    return tokenizer


def _assemble_deberta(pieces: list[tuple[str, float]], table: bytes, lowercase: bool) -> Tokenizer:
    """The ids of the file; the mask, which is not in it, comes last."""
    tokenizer = Tokenizer(models.Unigram(pieces, [piece for piece, _ in pieces].index(DEBERTA["unk"]), False))
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if lowercase else []
    steps += [normalizers.Precompiled(table)] if table else []
    steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" +"), " ")]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    frame_as_bert(tokenizer, DEBERTA.values())
    return tokenizer


def _lowers(path: Path) -> bool:
    """Whether a DeBERTa's texts are lower-cased, as its tokenizer_config.json says."""
    config = read_json(path) if path.is_file() else {}
    config = config if isinstance(config, dict) else {}
    if config.get("split_by_punct"):
        raise UserError(
            f"{path}: split_by_punct is true, which Keel does not compute from a sentencepiece model; open the folder "
            "with transformers and save it, to get a tokenizer.json"
        )
    if not isinstance(config.get("do_lower_case"), bool | None):
        raise UserError(f"{path}: do_lower_case is neither true, false nor null; restore it from a copy")
    return bool(config.get("do_lower_case"))


def _split_at_spaces(tokenizer: Tokenizer) -> None:
    spaces = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")


def _parse(data: bytes) -> tuple[list[tuple[str, float]], bytes]:
    """The pieces with their scores, and the compiled normalisation table."""
    pieces, table = [], b""
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):  # a piece: field 1 its spelling, 2 its score
            inner = dict(_fields(value))
            pieces.append((_bytes(inner[1]).decode(), struct.unpack("<f", _bytes(inner.get(2, bytes(4))))[0]))
        elif field == 3 and isinstance(value, bytes):  # normalisation: field 2 its table
            table = _bytes(dict(_fields(value)).get(2, b""))
    return pieces, table


def _bytes(value: bytes | int) -> bytes:
    """Not `bytes(value)`, which makes as many zeros as a damaged file says."""
    if isinstance(value, int):
        raise TypeError("a number where bytes belong")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protocol buffer message: varints as ints, everything else as bytes."""
    place = 0
    while place < len(data):
        tag, place = _number(data, place)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _number(data, place)
            yield field, value
            continue
        if wire == 2:
            size, place = _number(data, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise IndexError(f"wire type {wire}")
        if place + size > len(data):
            raise IndexError("cut off")
        yield field, data[place : place + size]
        place += size


def _number(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        if shift > 63:
            raise IndexError("a number of more than 64 bits")
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
