"""WordPiece, as in BERT and MPNet: text <-> ids, trained and applied by the same file.

In: texts to learn a vocabulary from; or a folder with `tokenizer.json` or `vocab.txt`, or a `vocab.txt` alone.
Out: ids (numpy, without [CLS] and [SEP]: rows are packed later), and a folder that `transformers` opens with the same
ids: tokenizer.json, vocab.txt, tokenizer_config.json, special_tokens_map.json.

Notable choices
- The `tokenizers` library computes every id, as it does in `transformers`, so the ids are equal. Keel adds the opening
  and checking of user files, and a cache, so that the library encodes each distinct word only once (word_cache.py).
- Where tokenizer.json and tokenizer_config.json disagree on lower-casing, the latter wins, as in `transformers`.
- Special tokens written in a text ("[MASK]") become the special ids, also as in `transformers`.
- Special tokens must have BERT's names, or MPNet's if the vocabulary has all of them, but may have any ids.

Papers: Wu et al. 2016 (arXiv:1609.08144), section 4.1; Devlin et al. 2018 (arXiv:1810.04805).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from keel.errors import UserError
from keel.files.folders import read_json, system_errors
from keel.tokenizers.alphabet import Alphabet, find
from keel.tokenizers.library import (
    MADE_BY,
    LibraryTokenizer,
    check_ids,
    frame_as_bert,
    frame_as_roberta,
    in_brief,
    parse_tokenizer,
    tokenizer_files,
)
from keel.tokenizers.long_words import check_size, cut_words
from keel.tokenizers.word_cache import WordCache

ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
MPNET = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "[UNK]", "mask": "<mask>"}
SPECIAL = tuple(ROLES.values())
CONTINUATION = "##"
NO_PIECES = "[no pieces]"  # continuation prefix of whole-word vocabularies (whole_words.py): no entry begins with it
BLANKS = " \t\r"
SWITCHES = {  # in tokenizer_config.json, and in the normalizer of tokenizer.json
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
LONGEST_WORD = 100  # characters; a longer word is [UNK], as in BERT
MOST_WORD = 1000  # the longest that a tokenizer.json may ask for: time grows with the cube of a word's length
CHARACTERS = 20000  # maximum alphabet of training; enough for all Chinese characters in use


class WordPiece(LibraryTokenizer):
    """Implements `interfaces.Tokenizer`. Create one with `load` or `train`."""

    kind = "wordpiece"

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, _roles_of(tokenizer.get_vocab(with_added_tokens=True)))
        self.between = 2 if self.roles == MPNET else 1
        self.normalisation: dict[str, bool | None] = json.loads(tokenizer.normalizer.__getstate__())
        self.lowercase = bool(self.normalisation["lowercase"])
        strips = self.normalisation["strip_accents"]
        self.strips_accents = self.lowercase if strips is None else bool(strips)
        self.continues = np.array([token.startswith(CONTINUATION) for token in self.vocabulary], dtype=bool)
        self._words = WordCache(tokenizer, self.continues)

    @staticmethod
    def load(path: str | Path) -> WordPiece:
        """Opens a folder with tokenizer.json, a folder with vocab.txt, or a vocab.txt."""
        path = Path(path)
        if path.is_dir():
            files = tokenizer_files(path)
            if content := files.find("tokenizer.json"):
                return WordPiece(_read_json(content))
            if vocabulary := files.find("vocab.txt"):
                return WordPiece(_read_vocabulary(vocabulary))
            raise UserError(
                f"{path}: holds neither tokenizer.json nor vocab.txt; give a folder made by `tokenizer train`"
            )
        if not path.is_file():
            raise UserError(f"{path}: no such file or folder; give a tokenizer folder or a vocab.txt")
        return WordPiece(_read_json(path) if path.suffix == ".json" else _read_vocabulary(path))

    @staticmethod
    def train(
        texts: Iterable[str],
        size: int = 30522,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        min_frequency: int = 2,
        characters: int = CHARACTERS,
    ) -> WordPiece:
        """Learns a vocabulary; see `learn`, which also returns the alphabet."""
        return learn(texts, size, lowercase, strip_accents, min_frequency, characters)[0]

    def with_vocabulary(self, vocabulary: Sequence[str]) -> WordPiece:
        """A tokenizer with the same normalisation and splitting, and with these entries in this order."""
        content = json.loads(self._tokenizer.to_str())
        ids = {token: id for id, token in enumerate(vocabulary)}
        added = [token for token in content["added_tokens"] if token["content"] in ids]
        content["added_tokens"] = [token | {"id": ids[token["content"]]} for token in added]
        content["model"]["vocab"] = ids
        content["post_processor"] = None  # it contains ids; `_finish` makes a new one
        tokenizer = Tokenizer.from_str(json.dumps(content))
        _finish(tokenizer)
        return type(self)(tokenizer)

    def save(self, folder: str | Path) -> None:
        """Writes the four files that `transformers` and Keel open."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = {f"{role}_token": spelling for role, spelling in self.roles.items()}
        config: dict[str, Any] = {
            "tokenizer_class": "MPNetTokenizer" if self.roles == MPNET else "BertTokenizer",
            "do_lower_case": self.lowercase,
            "tokenize_chinese_chars": self.normalisation["handle_chinese_chars"],
            "strip_accents": self.normalisation["strip_accents"],
            "model_max_length": 512,
            **MADE_BY,
        }
        with system_errors(folder / "tokenizer.json"):
            self._tokenizer.save(str(folder / "tokenizer.json"), pretty=True)
        (folder / "vocab.txt").write_bytes("".join(f"{token}\n" for token in self.vocabulary).encode())
        (folder / "tokenizer_config.json").write_text(json.dumps(config | names, indent=2), encoding="utf-8")
        (folder / "special_tokens_map.json").write_text(json.dumps(names, indent=2), encoding="utf-8")

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return self._words.encode(texts)

    def word_starts(self, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Every token without `##`."""
        return [~self.continues[row] for row in rows]

    def knows(self, character: str) -> bool:
        """Whether a character has an entry after normalisation. One that normalisation deletes needs none."""
        normalised = str(self._tokenizer.normalizer.normalize_str(character)).strip()
        ids = self._tokenizer.token_to_id
        return all(ids(c) is not None or ids(f"{CONTINUATION}{c}") is not None for c in normalised)

    def fingerprint(self) -> str:
        """A hash of the vocabulary and of what normalisation does, with an implied `strip_accents` resolved."""
        settings = self.normalisation | {"strip_accents": self.strips_accents}
        content = json.dumps([self.vocabulary, settings], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def learn(
    texts: Iterable[str],
    size: int = 30522,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    min_frequency: int = 2,
    characters: int = CHARACTERS,
) -> tuple[WordPiece, Alphabet]:
    """Learns a vocabulary of at most `size` entries. `texts` is read twice; for that, an iterator is kept in memory.

    `strip_accents=None` strips accents when lower-casing, as BERT does. Characters and pieces that occur fewer than
    `min_frequency` times are left out.
    """
    check_size(size, len(SPECIAL), f"the {len(SPECIAL)} special tokens")
    if isinstance(texts, Iterator):
        texts = list(texts)
    tokenizer = assemble({}, lowercase, strip_accents)
    alphabet = find(texts, tokenizer, size - len(SPECIAL), min_frequency, characters)
    if not alphabet.characters:
        raise UserError(f"no character occurs {min_frequency} times in the texts; give more text")
    continuations = [f"{CONTINUATION}{character}" for character in alphabet.inside]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        initial_alphabet=alphabet.characters,
        limit_alphabet=len(alphabet.characters),
        # "Special" only because that gives them the first ids, in this order: see alphabet.py.
        special_tokens=[*SPECIAL, *alphabet.characters, *continuations],
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    tokenizer.train_from_iterator(cut_words(texts), trainer)
    return WordPiece(assemble(tokenizer.get_vocab(), lowercase, strip_accents)), alphabet


def assemble(
    vocabulary: dict[str, int],
    lowercase: bool,
    strip_accents: bool | None = None,
    chinese: bool = True,
    continuation: str = CONTINUATION,
) -> Tokenizer:
    """The BERT pipeline with this vocabulary. `chinese`: whether each Chinese character is a word by itself."""
    model = models.WordPiece(
        vocabulary,
        unk_token="[UNK]",
        max_input_chars_per_word=LONGEST_WORD,
        continuing_subword_prefix=continuation,
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if vocabulary:
        _finish(tokenizer)
    return tokenizer


def _finish(tokenizer: Tokenizer) -> None:
    """Adds what needs the vocabulary: the special tokens around texts, and the decoder."""
    if _roles_of(tokenizer.get_vocab(with_added_tokens=True)) == MPNET:
        frame_as_roberta(tokenizer, MPNET)
    else:
        frame_as_bert(tokenizer, SPECIAL)
    tokenizer.decoder = decoders.WordPiece(prefix=CONTINUATION)


def _roles_of(vocabulary: Mapping[str, int]) -> dict[str, str]:
    """MPNet's vocabulary has all of BERT's special tokens too, and does not use them."""
    return MPNET if vocabulary.keys() >= set(MPNET.values()) else ROLES


def _check_special_tokens(vocabulary: dict[str, int], path: Path) -> None:
    missing = [token for token in _roles_of(vocabulary).values() if token not in vocabulary]
    if missing:
        raise UserError(
            f"{path}: the vocabulary lacks {', '.join(missing)}; add them, or use the model's own vocabulary"
        )


def _read_vocabulary(path: Path) -> Tokenizer:
    """Opens a vocab.txt: one token per line; the number of the line, from 0, is the id."""
    try:
        # Not splitlines(): vocabularies contain U+2028 and other characters that it treats as line ends.
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8; is this a vocab.txt (one token a line)?") from None
    if "\0" in lines[0]:
        raise UserError(f"{path}: a binary file; give a vocab.txt (one token a line)")
    while lines and not lines[-1].rstrip(BLANKS):
        lines.pop()
    if not lines:
        raise UserError(f"{path}: empty; a vocab.txt holds one token a line")
    vocabulary: dict[str, int] = {}
    for id, line in enumerate(lines):
        token = line.rstrip(BLANKS)
        if token in vocabulary:
            raise UserError(f"{path}, line {id + 1}: '{token}' is also on line {vocabulary[token] + 1}; remove one")
        vocabulary[token] = id
    _check_special_tokens(vocabulary, path)
    config = _read_config(path.parent)
    lowercase = config.get("do_lower_case")
    if lowercase is None:
        lowercase = not any(_cased(token) for token in vocabulary)
    chinese = config.get("tokenize_chinese_chars")
    return assemble(vocabulary, lowercase, config.get("strip_accents"), chinese is not False)


def _cased(token: str) -> bool:
    """Whether lower-casing changes this token. Names such as [unused1] and <S> do not count."""
    return token != token.lower() and (token[0], token[-1]) not in {("[", "]"), ("<", ">")}


def _read_config(folder: Path) -> dict[str, Any]:
    """The content of tokenizer_config.json; empty if there is none."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    config = read_json(path)
    if not isinstance(config, dict):
        raise UserError(f"{path}: not a JSON object; restore it, or remove it to use the vocabulary alone")
    for key in SWITCHES:
        if not isinstance(config.get(key), bool | None):
            raise UserError(f"{path}: {key} is neither true, false nor null; restore it from a copy")
    return config


def _read_json(path: Path) -> Tokenizer:
    """Opens a tokenizer.json that contains BERT's pipeline."""
    content = read_json(path)
    try:
        kinds = {part: (content.get(part) or {}).get("type") for part in ("model", "normalizer", "pre_tokenizer")}
    except AttributeError:
        raise UserError(f"{path}: not the JSON of the tokenizers library; restore it from a copy") from None
    wanted = {"model": "WordPiece", "normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
    for part, kind in wanted.items():
        if kinds[part] != kind:
            raise UserError(
                f"{path}: its {part} is {in_brief(kinds[part])}, not {kind}; Keel reads BERT's WordPiece tokenizers"
            )
    longest = content["model"].get("max_input_chars_per_word", LONGEST_WORD)
    if not isinstance(longest, int) or not 0 < longest <= MOST_WORD:
        raise UserError(f"{path}: max_input_chars_per_word must be a number from 1 to {MOST_WORD}; BERT's is 100")
    config = _read_config(path.parent)
    switches = {name: config[key] for key, name in SWITCHES.items() if key in config}
    # In the file, only strip_accents may be null.
    content["normalizer"] |= {k: v for k, v in switches.items() if v is not None or k == "strip_accents"}
    tokenizer = parse_tokenizer(content, path)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    _check_special_tokens(vocabulary, path)
    check_ids(vocabulary, path)
    _finish(tokenizer)
    return tokenizer
