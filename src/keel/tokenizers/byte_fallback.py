"""A vocabulary of words and pieces like WordPiece's, plus the 256 bytes for all characters without an entry.

In: texts to learn from, or a tokenizer.json written here. Out: ids that decode to exactly the text: nothing is
lower-cased, cleaned or replaced by [UNK].

Notable choices
- A word includes the space before it, and a Chinese character is a word by itself, as in BERT. Pieces are merged by
  BPE, which needs no `##` marks and takes time linear in the length of a word.
- Characters that occur fewer than `min_frequency` times, or for which there is no room, are spelt in bytes (<0xE9>).
- Training gets the characters in a fixed order, because the library would take them in the order of a random hash.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from keel.errors import UserError
from keel.tokenizers.characters import CHINESE_BLOCKS
from keel.tokenizers.library import LibraryTokenizer, frame_as_bert
from keel.tokenizers.long_words import check_size, cut_words

ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
BYTES = [f"<0x{number:02X}>" for number in range(256)]
CHARACTERS_SHARE = 0.75  # maximum fraction of the vocabulary for single characters
CHINESE = "[" + "".join(f"\\x{{{first:X}}}-\\x{{{last:X}}}" for first, last in CHINESE_BLOCKS) + "]"
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]|\s"


class ByteFallback(LibraryTokenizer):
    kind = "byte-fallback"

    def __init__(self, tokenizer: Tokenizer) -> None:
        missing = [t for t in (*ROLES.values(), *BYTES) if t not in tokenizer.get_vocab(with_added_tokens=True)]
        if missing:
            raise UserError(f"the vocabulary lacks {missing[0]}; Keel reads the byte-fallback tokenizers it trained")
        super().__init__(tokenizer, ROLES)

    @staticmethod
    def train(texts: Iterable[str], size: int = 30522, min_frequency: int = 2) -> ByteFallback:
        fixed = [*ROLES.values(), *BYTES]
        check_size(size, len(fixed), f"256 bytes and {len(ROLES)} special tokens")
        if isinstance(texts, Iterator):
            texts = list(texts)
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        room = int(CHARACTERS_SHARE * (size - len(fixed)))
        frequent = [(-count, c) for c, count in counts.items() if count >= min_frequency]
        characters = sorted(c for _, c in sorted(frequent)[:room])
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = _splitter()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=min_frequency,
            special_tokens=[*fixed, *characters],  # "special" only because that gives them the first ids, in order
            limit_alphabet=len(characters),
            show_progress=False,
        )
        tokenizer.train_from_iterator(cut_words(texts), trainer)
        model = json.loads(tokenizer.to_str())["model"]
        known = set(characters)
        merges = [(a, b) for a, b in model["merges"] if known.issuperset(a + b) and a + b not in BYTES]
        kept = [*fixed, *characters, *dict.fromkeys(a + b for a, b in merges)]
        return ByteFallback(_assemble({token: id for id, token in enumerate(kept)}, merges))

    def with_masks(self, text: str) -> str:
        """The space before a word is part of its token, so a mask replaces it too."""
        return re.sub(r" ?\[MASK\]", "[MASK]", text)

    def shown(self, id: int) -> str:
        byte = re.fullmatch("<0x([0-9A-F]{2})>", self.vocabulary[id])
        return bytes.fromhex(byte[1]).decode(errors="replace") if byte else self.vocabulary[id]


def _splitter() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split
    return pre_tokenizers.Sequence([split(Regex(CHINESE), "isolated"), split(Regex(WORDS), "isolated")])


def _assemble(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token=ROLES["unk"]))
    tokenizer.pre_tokenizer = _splitter()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    frame_as_bert(tokenizer, ROLES.values())
    return tokenizer
