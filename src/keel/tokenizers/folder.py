"""Opens a tokenizer of any kind.

In: a tokenizer or model folder, a vocab.txt, a tokenizer.json, or a sentencepiece model under one of its names
(spiece.model, sentencepiece.bpe.model, spm.model). Out: the tokenizer; its kind follows from the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keel.console import say
from keel.errors import UserError
from keel.files.folders import MANIFEST, SealedFiles, read_json
from keel.tokenizers.byte_bpe import PAIRS_OF_FILES, ByteBpe
from keel.tokenizers.byte_fallback import ByteFallback
from keel.tokenizers.library import MADE_BY, LibraryTokenizer, check_ids, in_brief, parse_tokenizer, tokenizer_files
from keel.tokenizers.unigram import MODEL_FILES, Unigram
from keel.tokenizers.whole_words import WholeWords
from keel.tokenizers.wordpiece import NO_PIECES, WordPiece


def open_tokenizer(path: str | Path) -> LibraryTokenizer:
    """The tokenizer at a path that a user has given."""
    if Path(path).is_dir():
        _note_missing_manifest(tokenizer_files(Path(path)))
    return read_tokenizer(path)


def read_tokenizer(path: str | Path) -> LibraryTokenizer:
    """The same without a note about a missing manifest: a corpus that is being built has none yet."""
    path = Path(path)
    if path.is_dir():
        files = tokenizer_files(path)
        if content := files.find("tokenizer.json"):
            return _open_json(content)
        if any(files.find(vocabulary) for vocabulary, _ in PAIRS_OF_FILES):
            return ByteBpe.read(path)
        for name in MODEL_FILES:
            if model := files.find(name):
                return Unigram.read(model)
    elif path.suffix == ".json" and path.is_file():
        return _open_json(path)
    elif path.name in MODEL_FILES and path.is_file():
        return Unigram.read(path)
    return WordPiece.load(path)


def _note_missing_manifest(files: SealedFiles) -> None:
    """Says so where Keel wrote a tokenizer folder; one in a model or a corpus is covered by the manifest there."""
    config = files.find("tokenizer_config.json")
    covered = files.names is not None or (files.folder.parent / MANIFEST).is_file()
    if covered or config is None or files.find("config.json"):
        return
    if f'"{next(iter(MADE_BY))}"' in config.read_text(encoding="utf-8", errors="replace"):
        say(f"keel: {files.folder}: its {MANIFEST} is missing, so its files cannot be verified")


def _open_json(path: Path) -> LibraryTokenizer:
    content = read_json(path)
    try:
        model: Any = content["model"]
        kind, fallback = model["type"], model.get("byte_fallback")
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: not the JSON of the tokenizers library; restore it from a copy") from None
    if kind == "WordPiece":
        wordpiece = WordPiece.load(path)
        return WholeWords.of(wordpiece) if model.get("continuing_subword_prefix") == NO_PIECES else wordpiece
    if kind not in ("BPE", "Unigram"):
        raise UserError(f"{path}: its model is {in_brief(kind)}; Keel reads WordPiece, BPE and Unigram")
    tokenizer = parse_tokenizer(content, path)
    check_ids(tokenizer.get_vocab(with_added_tokens=True), path)
    family = Unigram if kind == "Unigram" else ByteFallback if fallback else ByteBpe
    try:
        opened: LibraryTokenizer = family(tokenizer)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return opened
