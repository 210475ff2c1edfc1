"""Fine-tuned descendants open in transformers with the head of their task, and give the same answers there.

And the other way: whole folders as transformers saves them, model and tokenizer, open here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keel import catalog
from keel.errors import UserError
from keel.hugging_face.folder import load_model, save_model
from keel.hugging_face.known import family_of
from keel.inference.model import Model
from keel.learner.build import assemble
from keel.learner.frozen_encoder import EncoderSettings
from keel.learner.task_setup import TaskSetup
from keel.text.labelled import LabelledData
from keel.tokenizers.byte_bpe import ByteBpe
from keel.tokenizers.wordpiece import WordPiece
from keel.values import Batch, Rows

SIZE = 70
SMALL = {"vocabulary": SIZE, "layers": 2, "width": 16, "heads": 2, "feed_forward": 24, "positions": 32}
SMALL |= {"embedding_width": 8, "local_window": 8, "padding": 0}
LABELS: dict[str, dict[str, Any]] = {"classify": {"labels": ["a", "b", "c"]}, "tag": {"labels": ["O", "B-X", "I-X"]}}
POOLED = ("classify", "regress", "choose")
CASES = [(b, kind) for b in catalog.names("backbones") for kind in family_of(catalog.find("backbones", b)).heads]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WordPiece:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(SIZE - 5))]))
    return WordPiece.load(path)


@pytest.mark.parametrize("backbone, kind", CASES)
def test_the_head_gives_the_same_answers_in_transformers(
    backbone: str, kind: str, tokenizer: WordPiece, tmp_path: Path
) -> None:
    import transformers

    family, task = catalog.find("backbones", backbone), catalog.find("tasks", kind)
    known = {k: v for k, v in (SMALL | {"pooler": kind in POOLED}).items() if k in family.Config.model_fields}
    setup = TaskSetup(task(task.Config(**LABELS.get(kind, {})), LabelledData(length=32)), EncoderSettings())
    learner = setup.make_learner(family(family.Config(**known))).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    save_model(tmp_path, learner, tokenizer, "", setup)
    config = json.loads((tmp_path / "config.json").read_text())
    theirs, account = getattr(transformers, config["architectures"][0]).from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(account.values()), account
    ids = np.random.default_rng(1).integers(5, SIZE, 20)
    plain = np.zeros(20, bool)
    answers = {"classify": np.array([0]), "regress": np.array([0.5]), "answer": np.array([[1, 2]])}
    answers |= {f"choose.{name}": np.array([0]) for name in ("example", "place", "right")}
    rows = Rows(ids, (20,), np.zeros(20, np.int64), plain, ~plain, np.zeros(1, np.uint64), answers, {"tag": plain * 0})
    for model in (learner, load_model(tmp_path).learner):
        batch = model.prepare(rows, tokenizer)
        with torch.no_grad():
            (objective,) = model.objectives.values()
            vectors = model.backbone(Batch.of(rows, {})).vectors
            given = torch.tensor(ids)[None]
            if kind == "choose":
                answer = theirs.eval()(given[None]).logits.flatten()
                ours = objective.out(model.backbone.pool(vectors, batch)).flatten()  # type: ignore[operator,union-attr]
            elif kind in ("classify", "regress"):
                answer = theirs.eval()(given).logits[0]
                ours = objective.predict(model.encoder(), batch)[0].flatten()
            elif kind == "answer":
                found = theirs.eval()(given)
                answer = torch.stack([found.start_logits[0], found.end_logits[0]], 1)
                ours = objective.out(vectors)  # type: ignore[operator]
            else:
                answer = theirs.eval()(given).logits[0]
                ours = objective.out(vectors)  # type: ignore[operator]
        assert float((answer - ours).abs().max()) <= 1e-5


TEXTS = ["the old captain watches the keel at dawn", "a young sailor remembers seven lanterns"] * 20


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """vocab.json and merges.txt in RoBERTa's form."""
    folder = tmp_path_factory.mktemp("pieces")
    model = json.loads(ByteBpe.train(TEXTS, 340)._tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    return str(folder / "vocab.json"), str(folder / "merges.txt")


def test_a_roberta_folder_of_transformers(pieces: tuple[str, str], tmp_path: Path) -> None:
    import transformers

    theirs = transformers.RobertaTokenizer(vocab=pieces[0], merges=pieces[1])
    config = transformers.RobertaConfig(
        vocab_size=len(theirs),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=42,
        pad_token_id=theirs.pad_token_id,
        type_vocab_size=1,
    )
    model = transformers.RobertaForMaskedLM(config).eval()
    model.save_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    ours = Model.load(tmp_path)
    text = "the old <mask> watches the keel"
    with torch.no_grad():
        given = theirs(text, return_tensors="pt")
        place = int((given["input_ids"][0] == theirs.mask_token_id).nonzero())
        chances = model(**given).logits[0, place].softmax(0)
    (guesses,) = ours.fill(text)
    best = chances.topk(5)
    assert [guess["id"] for guess in guesses] == best.indices.tolist()
    np.testing.assert_allclose([g["probability"] for g in guesses], best.values.numpy(), atol=1e-6)


def test_a_gpt_folder_of_transformers(pieces: tuple[str, str], tmp_path: Path) -> None:
    import transformers

    vocabulary = json.loads(Path(pieces[0]).read_text())
    for special in ("<s>", "<pad>", "</s>", "<unk>", "<mask>"):
        vocabulary[f"{special[:-1]}gone>"] = vocabulary.pop(special)
    vocabulary["<|endoftext|>"] = len(vocabulary)
    (tmp_path / "v.json").write_text(json.dumps(vocabulary))
    theirs = transformers.GPT2Tokenizer(vocab=str(tmp_path / "v.json"), merges=pieces[1])
    config = transformers.GPT2Config(
        vocab_size=len(theirs),
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=40,
        bos_token_id=theirs.bos_token_id,
        eos_token_id=theirs.eos_token_id,
    )
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config).eval()
    folder = tmp_path / "m"
    model.save_pretrained(folder)
    theirs.save_pretrained(folder)
    ours = Model.load(folder)
    start = [theirs.bos_token_id, *theirs("the old captain")["input_ids"]]
    answer = model.generate(
        torch.tensor([start]), max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=theirs.eos_token_id
    )[0].tolist()
    (found,) = ours.generate("the old captain", tokens=8, temperature=0)
    stop = answer.index(theirs.eos_token_id, 1) if theirs.eos_token_id in answer[1:] else len(answer)
    assert found["text"] == theirs.decode(answer[1:stop]).strip()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"keel": {"objectives": {"masked_lm": {"mask_prob": "much"}}}}, "invalid options for an objective"),
        ({"keel": {"objectives": {"masked_lm": 3}}}, "invalid options for an objective"),
        ({"keel": {"backbone": {"attention": {"causal": "up"}}}}, "not a configuration Keel can use"),
        ({"keel": {"backbone": 7}}, "not a configuration Keel can use"),
        ({"hidden_size": "wide"}, "not a configuration Keel can use"),
        ({"num_hidden_layers": 3}, "is missing"),
        ({"model_type": "robberta"}, "'robberta' is not supported"),
    ],
)
def test_an_impossible_config_is_one_line(
    change: dict[str, Any], message: str, tokenizer: WordPiece, tmp_path: Path
) -> None:
    family = catalog.find("backbones", "roberta")
    known = {k: v for k, v in SMALL.items() if k in family.Config.model_fields}
    save_model(tmp_path, assemble(family(family.Config(**known)), {"masked_lm": {}}), tokenizer, "")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message) as told:
        load_model(tmp_path)
    assert "\n" not in str(told.value)
