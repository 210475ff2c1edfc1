"""Why this label, this value, this span, this tag, this choice: models that Keel fine-tuned, opened by transformers,
and the number behind each answer written out with their outputs; ELMo, which transformers does not have, asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_reference import Row, integrated_gradients, slopes_by_differences, without_heads
from safetensors.numpy import load_file
from torch import Tensor

from keel.errors import UserError
from keel.explain.pictures import picture
from keel.inference.model import Model

TEXT = "the old captain watches the harbour at dawn"
QUESTION, CHOICES = "who watches the harbour?", ["the captain", "a young gull at dawn"]
KINDS = {
    "regress": "BertForSequenceClassification",
    "tag": "BertForTokenClassification",
    "answer": "BertForQuestionAnswering",
    "choose": "BertForMultipleChoice",
}
GIVEN: dict[str, tuple[Any, ...]] = {"regress": (TEXT, "a gull follows the keel"), "tag": (TEXT,)}
GIVEN |= {"answer": (QUESTION, TEXT), "choose": (TEXT, CHOICES)}
BERTS_PROJECTION = "attention.output.dense"


def score_of(kind: str, found: Any, config: Any) -> Callable[[Any], Tensor]:
    """The explained number in the output of transformers."""
    tokens = found.reading.tokens
    if kind == "regress":
        return lambda output: output.logits[0, 0]
    if kind == "choose":
        return lambda output: output.logits.flatten()[0]
    if kind == "tag":
        (place,) = (n for n, token in enumerate(tokens) if token.start == found.answer["start"])
        return lambda output: output.logits[0, place, config.label2id[found.answer["label"]]]
    of_text = [(n, token) for n, token in enumerate(tokens) if token.segment == 1 and not token.special]
    first = next((n for n, token in of_text if token.start == found.answer["start"]), 0)
    last = next((n for n, token in of_text if token.end == found.answer["end"]), 0)
    return lambda output: output.start_logits[0, first] + output.end_logits[0, last]


class ChoiceRow(Row):
    """A model that chooses reads (examples, choices, tokens)."""

    def output(self, ids: np.ndarray | None = None, **options: Any) -> Any:
        plain = super().inputs_for(ids)
        return self.model(**{name: value[:, None] for name, value in plain.items()}, **options)


def opened(model: Model, kind: str) -> Any:
    import transformers

    return getattr(transformers, KINDS[kind]).from_pretrained(model.path, attn_implementation="eager").eval()


def row_of(kind: str, theirs: Any, found: Any) -> Row:
    return (ChoiceRow if kind == "choose" else Row)(theirs, found.reading.ids, found.reading.window.segments)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answers_reasons_are_those_of_the_definitions(kind: str, tasks: Callable[[str], Model]) -> None:
    """Integrated gradients, their sum, their signs by finite differences, occlusion, and each head switched off."""
    model = tasks(kind)
    theirs, given = opened(model, kind), GIVEN[kind]
    found = model.explain(*given, method="attribution", steps=8)
    row, score = row_of(kind, theirs, found), score_of(kind, found, theirs.config)
    moving = np.array([not token.special for token in found.reading.tokens])
    pad, mask = model.tokenizer.pad, model.tokenizer.mask
    expected, first, last = integrated_gradients(row, score, pad, moving, 8)
    assert float(np.abs(found.scores - expected).max()) <= 1e-5 and np.abs(expected).max() > 1e-3
    assert found.value == pytest.approx(last, abs=1e-5) and found.baseline_value == pytest.approx(first, abs=1e-5)

    whole = model.explain(*given, method="attribution")
    assert float(whole.scores.sum()) == pytest.approx(last - first, rel=0.01), "completeness"

    hidden = model.explain(*given, method="attribution", by="occlusion")
    with torch.no_grad():
        for place in np.flatnonzero(moving):
            ids = found.reading.ids.copy()
            ids[place] = mask
            assert hidden.scores[place] == pytest.approx(last - float(score(row.output(ids))), abs=1e-5)

    layers = [module for name, module in theirs.named_modules() if name.endswith(BERTS_PROJECTION)]
    off = model.explain(*given, method="heads", scale="logit")
    changes = without_heads(row, layers, theirs.config.num_attention_heads, score) - last
    assert float(np.abs(off.changes - changes).max()) <= 1e-5 and np.abs(changes).max() > 1e-4

    theirs.double()
    slopes = slopes_by_differences(row, score, pad, moving, 8)
    clear = np.abs(slopes) > 1e-3 * np.abs(slopes).max()
    assert clear.sum() >= 5 and np.array_equal(np.sign(found.scores[clear]), np.sign(slopes[clear]))
    assert np.allclose(found.scores, slopes, atol=1e-4)


def test_the_picture_of_a_span_frames_it(tasks: Callable[[str], Model]) -> None:
    found = tasks("answer").explain(QUESTION, TEXT, "attribution")
    drawing = picture(found)
    framed = [part.hint.partition(":")[0] for part in drawing.parts if getattr(part, "outlined", False)]
    assert framed and " ".join(framed) == TEXT[found.answer["start"] : found.answer["end"]]


def test_the_similarity_of_a_pair_rests_on_what_the_definition_says(minilm: Model, minilm_theirs: Any) -> None:
    text, pair = "A sailor mends a sail.", "Somebody repairs a ship."
    found = minilm.explain(text, pair, "attribution", steps=8)
    row = Row(minilm_theirs, found.reading.ids, None)
    with torch.no_grad():
        other = Row(minilm_theirs, minilm.explain(pair).reading.ids, None).output().last_hidden_state[0].mean(0)

    def score(output: Any) -> Tensor:
        return torch.cosine_similarity(output.last_hidden_state[0].mean(0), other, 0)

    moving = np.array([not token.special for token in found.reading.tokens])
    expected, first, last = integrated_gradients(row, score, minilm.tokenizer.pad, moving, 8)
    assert float(np.abs(found.scores - expected).max()) <= 1e-5
    whole = minilm.explain(text, pair, "attribution")
    assert float(whole.scores.sum()) == pytest.approx(last - first, rel=0.01)


@pytest.fixture(scope="module")
def elmo_tagger(word_corpus: Path, labelled: Callable[[str, int, int], Path]) -> Model:
    from keel.stages.finetune import finetune
    from keel.stages.pretrain import pretrain

    folder = word_corpus.parent
    small = ["model.backbone.cells=24", "model.backbone.width=12", "model.backbone.max_characters=12"]
    small += ["model.backbone.filters=[[1, 8], [2, 8]]", "data.length=32", "training.steps=1"]
    small += ["training.batch_tokens=256", "training.evaluation_tokens=256", "training.precision=fp32"]
    pretrain("elmo-mini", corpus=str(word_corpus), out=str(folder / "elmo"), overrides=small, quiet=True)
    data, changes = str(labelled("tag", 1, 24)), ["encoder.frozen=true", "encoder.layers=mix", "training.steps=10"]
    changes += ["training.learning_rate=5e-2", "training.precision=fp32", "data.length=32"]
    finetune(str(folder / "elmo"), "tag", train=data, dev=data, out=str(folder / "t"), overrides=changes, quiet=True)
    return Model.load(folder / "t")


def test_elmos_shares_are_the_softmax_of_its_weights(elmo_tagger: Model) -> None:
    found = elmo_tagger.explain(TEXT)
    stored = {name: value for file in elmo_tagger.path.glob("*.safetensors") for name, value in load_file(file).items()}
    (weights,) = (value for name, value in stored.items() if name.endswith("read.weights"))
    (gamma,) = (value for name, value in stored.items() if name.endswith("read.gamma"))
    expected = np.exp(weights) / np.exp(weights).sum()
    assert len(expected) == 3 and np.ptp(expected) > 1e-3
    np.testing.assert_allclose(found.shares["read"], expected, atol=1e-6)
    assert found.gamma["read"] == pytest.approx(float(gamma)) and found.as_json()["mix"] == found.shares
    drawn = {part.text for part in picture(found).parts if hasattr(part, "text")}
    assert {"read", *(f"{share:.2f}" for share in expected)} <= drawn


def test_elmos_answers_rest_on_what_they_lose_without_a_word(elmo_tagger: Model) -> None:
    """A word's tag rests most on the word itself."""
    with pytest.raises(UserError, match=r"letter by letter.*choose occlusion"):
        elmo_tagger.explain(TEXT, method="attribution")
    found = elmo_tagger.explain(TEXT, method="attribution", by="occlusion", word="captain")
    scores = {word.text: float(score) for word, score in zip(found.reading.words, found.word_scores, strict=True)}
    assert max(scores, key=lambda word: abs(scores[word])) == "captain" and scores["captain"] != 0


@pytest.mark.parametrize("method", ["attention", "heads"])
def test_what_has_no_attention_says_so(method: str, word_corpus: Path, elmo_tagger: Model) -> None:
    from keel.stages.pretrain import save_untrained

    if not (word_corpus.parent / "vectors").exists():
        save_untrained("word2vec", str(word_corpus), str(word_corpus.parent / "vectors"))
    with pytest.raises(UserError, match="has no attention") as told:
        Model.load(word_corpus.parent / "vectors").explain(TEXT, method=method)
    assert "\n" not in str(told.value)
    if method == "heads":
        with pytest.raises(UserError, match="has no attention heads"):
            elmo_tagger.explain(TEXT, method=method)
