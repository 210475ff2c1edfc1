"""Served answers mean what they mean in the clients' libraries: transformers' pipelines, sentence-transformers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

import keel
from served import near

Ask = Callable[..., Any]

STRATEGIES = ("none", "simple", "first", "average", "max")
TEXTS = [
    "The old captain remembers the unforgettable harbour.",
    "Seven lanterns, and a (young) sailor-carpenter at dawn!",
    "the keel",
    "Æther ☃ naïve 老船长看着龙骨 x" + "y" * 30,
    "U.S. and  two  spaces\tand a tab",
]


@pytest.fixture(scope="session")
def pipes(folders: dict[str, Path], taggers: dict[str, Path]) -> Callable[[str, str], Any]:
    """`pipes(task, name)`: transformers' pipeline of this model."""
    import transformers

    made = dict[tuple[str, str], Any]()

    def get(task: str, name: str) -> Any:
        if (task, name) not in made:
            made[task, name] = transformers.pipeline(task, model=str((folders | taggers)[name]), device="cpu")
        return made[task, name]

    return get


@pytest.fixture(scope="session")
def taggers(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of transformers for token classification, with random weights; RoBERTa's tokens are pieces of bytes."""
    import torch
    import transformers

    root, found = tmp_path_factory.mktemp("taggers"), dict[str, Path]()
    labels = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
    for name, kind, tokenizer, more in (
        ("bert-ner", "Bert", transformers.AutoTokenizer.from_pretrained(finished_run), {}),
        ("roberta-ner", "Roberta", byte_tokenizer(), special),
    ):
        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=len(tokenizer),
            max_position_embeddings=130,
            initializer_range=0.5,
            id2label=labels,
            label2id={label: number for number, label in labels.items()},
            **sizes,
            **more,
        )
        found[name] = root / name
        model = getattr(transformers, f"{kind}ForTokenClassification")(config)
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(5)  # tokens differ more than positions
        model.save_pretrained(found[name])
        tokenizer.save_pretrained(found[name])
    return found


def byte_tokenizer() -> Any:
    import transformers
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    texts = [f"The {who} sails past the harbour." for who in ("captain", "carpenter", "gull", "lantern")] * 20
    trained.train_from_iterator(texts, 320, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    return transformers.RobertaTokenizerFast(tokenizer_object=trained._tokenizer, add_prefix_space=False)


@pytest.fixture(scope="session")
def post_tagger(start_server: Any, taggers: dict[str, Path]) -> Iterator[Ask]:
    server = start_server(*(f"{name}={path}" for name, path in taggers.items()))
    with httpx2.Client(base_url=server.url) as client:

        def ask(name: str, text: str, **parameters: Any) -> Any:
            found = client.post(f"/models/{name}", json={"inputs": text, "parameters": parameters})
            assert found.status_code == 200, found.text
            return found.json()

        yield ask


@pytest.mark.parametrize("name", ["bert-ner", "roberta-ner"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tokens_are_aggregated_as_in_transformers(post_tagger: Ask, pipes: Ask, name: str, strategy: str) -> None:
    pipe, kinds = pipes("token-classification", name), set[str]()
    for text in TEXTS:
        served = post_tagger(name, text, aggregation_strategy=strategy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "does not support real words": of the byte-level tokenizer
            expected = pipe(text, aggregation_strategy=strategy)
        kinds |= {one.get("entity", one.get("entity_group")) for one in served}
        if name == "roberta-ner" and strategy not in ("none", "simple") and not text.isascii():
            for one in (*served, *expected):  # the pipeline decodes bytes twice, which leaves only ASCII as it was
                one["word"] = text[one["start"] : one["end"]]
        near(served, expected, 1e-5)
    assert {kind[-3:] for kind in kinds} == {"PER", "LOC"}


def test_ignored_labels(post_tagger: Ask, pipes: Ask) -> None:
    options, kinds = {"aggregation_strategy": "simple", "ignore_labels": ["PER"]}, set[str]()
    for text in TEXTS:
        expected = pipes("token-classification", "bert-ner")(text, **options)
        near(post_tagger("bert-ner", text, **options), expected, 1e-5)
        kinds |= {one["entity_group"] for one in expected}
    assert kinds == {"O", "LOC"}


def test_a_long_text_is_read_in_windows(post_tagger: Ask, taggers: dict[str, Path]) -> None:
    """Beyond the positions, where the pipeline would cut: every token has its label."""
    text = "the old captain watches the keel " * 60
    found = post_tagger("bert-ner", text, aggregation_strategy="none", ignore_labels=[])
    _, spans = keel.load(taggers["bert-ner"]).tokenizer.encode_with_offsets(text)
    assert [(one["start"], one["end"]) for one in found] == spans and len(spans) > 300


@pytest.mark.parametrize("inputs", ["the old [MASK] sails", "a [MASK] watches the [MASK] .", ["[MASK]", "the [MASK]"]])
def test_masks_are_filled_as_in_transformers(post: Ask, pipes: Ask, inputs: Any) -> None:
    near(post("/models/bert", {"inputs": inputs}), pipes("fill-mask", "bert")(inputs), 1e-5)
    options = {"targets": ["captain", "gull", "unforgettable", "captain"], "top_k": 2}
    near(
        post("/models/bert", {"inputs": inputs, "parameters": options}),
        pipes("fill-mask", "bert")(inputs, **options),
        1e-5,
    )


@pytest.mark.parametrize("function", [None, "softmax", "sigmoid", "none"])
def test_labels_are_scored_as_in_transformers(post: Ask, pipes: Ask, function: str | None) -> None:
    texts = ["the captain remembers", "a gull"]
    options = {"top_k": 3, **({"function_to_apply": function} if function else {})}
    served = post("/models/classifier", {"inputs": texts, "parameters": options})
    near(served, pipes("text-classification", "classifier")(texts, **options), 1e-5)


@pytest.mark.parametrize("function", [None, "sigmoid"])
def test_pairs_are_scored_as_in_transformers(post: Ask, pipes: Ask, function: str | None) -> None:
    pairs = [{"text": "the keel", "text_pair": "the mast is tall"}, {"text": "a gull", "text_pair": "a gull"}]
    options = {"top_k": None, **({"function_to_apply": function} if function else {})}
    served = post("/models/scorer", {"inputs": pairs, "parameters": options})
    near(served, pipes("text-classification", "scorer")(pairs, **options), 1e-5)


def test_token_vectors_are_those_of_transformers(post: Ask, pipes: Ask) -> None:
    served = post("/models/bert", {"inputs": TEXTS[:2]})
    for one, (expected,) in zip(served, pipes("feature-extraction", "bert")(TEXTS[:2]), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)


def test_sentences_are_embedded_as_by_their_library(post: Ask, minilm: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    expected = library.SentenceTransformer(str(minilm), device="cpu").encode(TEXTS)
    for path in ("/embed", "/models/minilm"):
        np.testing.assert_allclose(post(path, {"inputs": TEXTS}), expected, atol=2e-6)


def test_pairs_are_ranked_as_by_their_library(post: Ask, folders: dict[str, Path]) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = library.CrossEncoder(str(folders["scorer"]), device="cpu")
    pairs = [("the keel", text) for text in TEXTS[:3]]
    served = {one["index"]: one["score"] for one in post("/rerank", {"query": "the keel", "texts": TEXTS[:3]})}
    expected = encoder.predict(pairs)
    assert [served[place] for place in range(3)] == pytest.approx(expected.tolist(), rel=1e-5)
