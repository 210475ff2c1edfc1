"""A kind that does not open is told apart by what it is: what the message says of it is checked with transformers, and
a conversion that it gives is followed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch

from keel.errors import UserError
from keel.hugging_face.folder import load_model
from keel.hugging_face.known import kinds_that_open
from keel.hugging_face.other_kinds import DECODER, OTHER_KINDS, SEQ2SEQ
from keel.inference.model import Model
from keel.values import Batch, Rows

SMALL = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SMALL |= {"max_position_embeddings": 64, "initializer_range": 0.2}


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as told:
        load_model(folder)
    message = str(told.value)
    assert "\n" not in message and str(folder / "config.json") in message
    return message


def told_of(config: dict[str, Any], folder: Path) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return refusal(folder)


def test_what_is_said_of_a_kind_is_so_in_transformers() -> None:
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    known = kinds_that_open()
    for name, kind in OTHER_KINDS.items():
        assert name in CONFIG_MAPPING, name
        assert name not in known and (kind.nearest is None or kind.nearest in known), name
        writes = name in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        translates = name in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
        encodes = name in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        if kind is DECODER:
            assert writes and not encodes, name
        elif kind is SEQ2SEQ:
            assert translates, name
        else:
            assert not translates, name
    encoders = set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES) - set(known)
    assert len(encoders & set(OTHER_KINDS)) >= 35, "nearly all encoders there are named here"


@pytest.mark.parametrize(
    "config, what",
    [
        (
            {"model_type": "bart"},
            "an encoder with a decoder that writes texts; the nearest kind that opens is transformer",
        ),
        ({"model_type": "t5"}, "It cannot be converted"),
        (
            {"model_type": "llama"},
            "a decoder that continues texts, not an encoder; the nearest kind that opens is gpt2",
        ),
        ({"model_type": "deberta"}, "the first DeBERTa.*nearest kind that opens is deberta-v2.*cannot be converted"),
        ({"model_type": "nomic_bert"}, "rotary positions.*nearest kind that opens is modernbert"),
        ({"model_type": "whisper"}, "a model of images or sound; no kind that opens is near"),
        ({"model_type": "olmo9", "architectures": ["Olmo9ForCausalLM"]}, "a decoder that continues texts"),
        (
            {"model_type": "ninebert", "architectures": ["NineBertForMaskedLM"]},
            "an encoder whose layers Keel does not have",
        ),
        ({"model_type": "robberta"}, "--plugin FILE"),
        ({"model_type": "keel-fnet"}, "--plugin FILE"),
        ({"model_type": ["bart"], "architectures": []}, "--plugin FILE"),
    ],
)
def test_a_kind_that_does_not_open_says_what_it_is(config: dict[str, Any], what: str, tmp_path: Path) -> None:
    message = told_of(config, tmp_path)
    assert re.search(what, message), message
    assert "Did you mean" not in message and "Kinds that open: albert, bert," in message


def test_no_kind_of_transformers_is_taken_for_another_by_its_spelling(tmp_path: Path) -> None:
    from transformers import CONFIG_MAPPING

    known = kinds_that_open()
    for name in set(CONFIG_MAPPING) - set(known) - set(OTHER_KINDS):
        assert "nearest" not in told_of({"model_type": name}, tmp_path), name


def changed(folder: Path, model_type: str, architectures: list[str] | None) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["model_type"] = model_type
    config.pop("architectures")
    config |= {"architectures": architectures} if architectures else {}
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    "family, to", [("Data2VecText", "roberta"), ("Ernie", "bert"), ("Splinter", "bert"), ("Camembert", "xlm-roberta")]
)
def test_a_folder_without_a_head_is_converted_as_its_message_says(family: str, to: str, tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(0)
    padding = {"pad_token_id": 1} if to != "bert" else {"question_token_id": 5} if family == "Splinter" else {}
    theirs = getattr(transformers, f"{family}Model")(
        getattr(transformers, f"{family}Config")(**SMALL, **padding)
    ).eval()
    theirs.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(92))]))
    assert f"change model_type to '{to}'" in refusal(tmp_path)
    changed(tmp_path, to, None)
    ids, none = np.arange(5, 45), np.zeros(40, bool)
    rows = Rows(ids, (40,), np.zeros(40, np.int64), none, ~none, np.zeros(1, np.uint64))
    with torch.no_grad():
        ours = load_model(tmp_path).learner.backbone(Batch.of(rows, {})).vectors
        answer = theirs(torch.from_numpy(ids)[None]).last_hidden_state[0]
    assert float((ours - answer).abs().max()) <= 1e-5


@pytest.fixture(scope="module")
def camembert_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """From a sentencepiece model with CamemBERT's first pieces."""
    import transformers

    folder = tmp_path_factory.mktemp("camembert")
    texts = ["le vieux capitaine regarde la quille à l'aube", "une jeune mouette suit le grand navire"] * 40
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(folder / "m"), vocab_size=36, minloglevel=2
    )
    (folder / "m.model").rename(folder / "sentencepiece.bpe.model")
    return transformers.CamembertTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("kind", ["ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"])
def test_a_camembert_is_converted_as_its_message_says(kind: str, camembert_tokenizer: Any, tmp_path: Path) -> None:
    import transformers

    theirs = camembert_tokenizer
    config = transformers.CamembertConfig(
        **SMALL | {"vocab_size": len(theirs)}, pad_token_id=theirs.pad_token_id, num_labels=3
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"Camembert{kind}")(config).eval()
    model.save_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    message = refusal(tmp_path)
    assert (
        "RoBERTa's architecture with a sentencepiece tokenizer; the nearest kind that opens is xlm-roberta" in message
    )
    assert "'xlm-roberta' and Camembert to XLMRoberta in architectures" in message
    changed(tmp_path, "xlm-roberta", [f"XLMRoberta{kind}"])
    ours = Model.load(tmp_path)
    texts = ["le vieux capitaine", "la mouette suit le navire, à l'aube", f"une {theirs.mask_token} mouette"]
    expected = theirs(texts)["input_ids"]
    found = [[ours.tokenizer.cls, *ids.tolist(), ours.tokenizer.sep] for ids in ours.tokenizer.encode(texts)]
    assert found == expected
    with torch.no_grad():
        if kind == "ForMaskedLM":
            (guesses,) = ours.fill(texts[2])
            place = expected[2].index(theirs.mask_token_id)
            best = model(torch.tensor([expected[2]])).logits[0, place].softmax(0).topk(5)
            assert [guess["id"] for guess in guesses] == best.indices.tolist()
        elif kind == "ForSequenceClassification":
            (answer,) = ours.predict([texts[0]])
            chances = model(torch.tensor([expected[0]])).logits[0].softmax(0)
            labels = [answer["probabilities"][f"LABEL_{number}"] for number in range(3)]
            assert labels == pytest.approx(chances.tolist(), abs=1e-5)
        else:
            vectors = model.base_model(torch.tensor([expected[0]])).last_hidden_state[0]
            np.testing.assert_allclose(ours.encode([texts[0]])[0], vectors.numpy(), atol=1e-5)
