"""Opens whatever tokenizer a path holds.

In: a tokenizer or model folder, a vocab.txt or a tokenizer.json. Out: the tokenizer of the kind that its files tell.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from keel.errors import UserError
from keel.tokenizers.byte_bpe import PAIRS_OF_FILES, ByteBpe
from keel.tokenizers.byte_fallback import ByteFallback
from keel.tokenizers.library import LibraryTokenizer, verify_tokenizer_folder
from keel.tokenizers.unigram import MODEL_FILE, Unigram
from keel.tokenizers.wordpiece import NO_PIECES, WordPiece
from keel.tokenizers.words import Words


def open_tokenizer(path: str | Path) -> LibraryTokenizer:
    path = Path(path)
    if path.is_dir():
        verify_tokenizer_folder(path)
        if (path / "tokenizer.json").is_file():
            return _open_json(path / "tokenizer.json")
        if any((path / vocabulary).is_file() for vocabulary, _ in PAIRS_OF_FILES):
            return ByteBpe.read(path)
        if (path / MODEL_FILE).is_file():
            return Unigram.read(path / MODEL_FILE)
    elif path.suffix == ".json" and path.is_file():
        return _open_json(path)
    elif path.name == MODEL_FILE and path.is_file():
        return Unigram.read(path)
    return WordPiece.load(path)


def _open_json(path: Path) -> LibraryTokenizer:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        model: Any = content["model"]
        kind, fallback = model["type"], model.get("byte_fallback")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: not the JSON of the tokenizers library; restore it from a copy") from None
    if kind == "WordPiece":
        found = WordPiece.load(path)
        return Words.of(found) if model.get("continuing_subword_prefix") == NO_PIECES else found
    if kind not in ("BPE", "Unigram"):
        raise UserError(f"{path}: its model is {kind}; Keel reads WordPiece, BPE and Unigram")
    try:
        tokenizer = Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises bare Exception for whatever it dislikes
        raise UserError(f"{path}: the tokenizers library refuses it ({error}); restore it from a copy") from None
    family = Unigram if kind == "Unigram" else ByteFallback if fallback else ByteBpe
    opened: LibraryTokenizer = family(tokenizer)
    if sorted(tokenizer.get_vocab(with_added_tokens=True).values()) != list(range(opened.size)):
        raise UserError(f"{path}: its ids are not 0 to {opened.size - 1} without gaps; the file is damaged")
    return opened
