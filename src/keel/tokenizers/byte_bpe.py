"""Byte-level BPE, as in GPT-2, RoBERTa and ModernBERT: no token is unknown and no text is lost.

In: texts to learn from; or a folder with tokenizer.json, or with vocabulary and merges (`vocab.json` and `merges.txt`,
or `encoder.json` and `vocab.bpe`). Out: ids, and a folder that `transformers` opens with the same ids.

Notable choices
- A tokenizer trained here adds a space before every text, so that a word has the same token at the start of a sentence
  as inside it; published tokenizers are used unchanged.
- Training gets the bytes in a fixed order, because the library would take them in the order of a random hash.
- Special tokens are recognised by their spelling: RoBERTa's, BERT's (as in ModernBERT), or GPT-2's single token for
  all roles.

Papers: Sennrich et al. 2016 (arXiv:1508.07909); Radford et al. 2019, section 2.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from keel.errors import UserError
from keel.files.folders import read_json
from keel.tokenizers.library import LibraryTokenizer, check_ids
from keel.tokenizers.long_words import check_size, cut_runs

ROBERTA = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
BERT = {"cls": "[CLS]", "pad": "[PAD]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
GPT = dict.fromkeys(("cls", "pad", "sep", "unk"), "<|endoftext|>")
PAIRS_OF_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))


class ByteBpe(LibraryTokenizer):
    kind = "byte-bpe"

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        roles = next((roles for roles in (ROBERTA, BERT, GPT) if roles["cls"] in vocabulary), None)
        if roles is None:
            raise UserError("the vocabulary has none of <s>, [CLS] and <|endoftext|>, one of which must begin a text")
        super().__init__(tokenizer, {role: token for role, token in roles.items() if token in vocabulary})
        self.between = 2 if roles is ROBERTA else 1
        self._decoder = decoders.ByteLevel()

    @staticmethod
    def read(folder: Path) -> ByteBpe:
        """Opens a folder with a vocabulary and merges."""
        for vocabulary, merges in PAIRS_OF_FILES:
            if (folder / vocabulary).is_file() and (folder / merges).is_file():
                return ByteBpe(_assemble(*_read(folder / vocabulary, folder / merges), leading_space=False))
        raise UserError(f"{folder}: holds no vocabulary with merges ({' + '.join(PAIRS_OF_FILES[0])})")

    @staticmethod
    def train(texts: Iterable[str], size: int = 30522, min_frequency: int = 2) -> ByteBpe:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        check_size(size, len(ROBERTA) + len(alphabet), f"256 bytes and {len(ROBERTA)} special tokens")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        # "Special" only because that gives them the first ids, in this order.
        special = [*ROBERTA.values(), *alphabet]
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=min_frequency, special_tokens=special, show_progress=False
        )
        tokenizer.train_from_iterator(cut_runs(texts), trainer)
        model = json.loads(tokenizer.to_str())["model"]
        merges = [tuple(merge) for merge in model["merges"]]
        return ByteBpe(_assemble(model["vocab"], merges, leading_space=True))

    def shown(self, id: int) -> str:
        token = self.vocabulary[id]
        return token if token in self.roles.values() else str(self._decoder.decode([token]))


def _read(vocabulary: Path, merges: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    ids: Any = read_json(vocabulary)
    if not isinstance(ids, dict) or not all(isinstance(id, int) for id in ids.values()):
        raise UserError(f"{vocabulary}: not a JSON object of tokens and ids; restore it from a copy")
    check_ids(ids, vocabulary)
    try:
        lines = merges.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{merges}: byte {error.start} is not UTF-8; restore it from a copy") from None
    pairs = []
    for number, line in enumerate(lines, 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or any(token not in ids for token in (*parts, "".join(parts))):
            raise UserError(f"{merges}, line {number}: not a pair of tokens whose merge is in {vocabulary.name}")
        pairs.append((parts[0], parts[1]))
    for token in ROBERTA.values():  # GPT-2's files have <|endoftext|> and need none of these
        if "<|endoftext|>" not in ids and token not in ids:
            raise UserError(f"{vocabulary}: lacks the special token {token}")
    return ids, pairs


def _assemble(vocabulary: dict[str, int], merges: list[tuple[str, str]], leading_space: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=leading_space)
    tokenizer.decoder = decoders.ByteLevel()
    if ROBERTA["cls"] in vocabulary:
        tokenizer.add_special_tokens(
            [AddedToken(t, special=True, normalized=False, lstrip=t == ROBERTA["mask"]) for t in ROBERTA.values()]
        )
        ends = (ROBERTA["sep"], vocabulary[ROBERTA["sep"]]), (ROBERTA["cls"], vocabulary[ROBERTA["cls"]])
        tokenizer.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=leading_space)
    else:
        tokenizer.add_special_tokens([AddedToken(GPT["cls"], special=True, normalized=False)])
    return tokenizer
