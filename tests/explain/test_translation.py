"""Cross-attention equals that of torch's own Transformer decoder with the same weights, on vectors of transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from keel.errors import UserError
from keel.explain.pictures import picture
from keel.inference.model import Model

TEXT = "the captain sails"


@pytest.fixture(scope="module")
def make(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    """`make("transformer")`: a translator with this decoder, trained for three steps."""
    folder = tmp_path_factory.mktemp("translators")
    pairs = folder / "pairs.tsv"
    lines = [f"the {who} sails\tder {who} segelt" for who in ("captain", "sailor", "gull", "keel")] * 4
    pairs.write_text("text\tlabel\n" + "\n".join(lines) + "\n")

    def translator(decoder: str) -> Model:
        from keel.stages.finetune import finetune

        out = folder / decoder
        settings = [f"task.decoder={decoder}", "task.max_length=12", "data.length=16", "training.steps=3"]
        if decoder == "transformer":
            settings.append("task.layers=3")
        given = {"train": str(pairs), "dev": str(pairs), "out": str(out), "quiet": True}
        finetune(str(finished_run), "translate", overrides=[*settings, "training.precision=fp32"], **given)  # type: ignore[arg-type]
        return Model.load(out)

    return translator


def plain_decoder(weights: dict[str, torch.Tensor], heads: int, activation: str, layers: int) -> nn.TransformerDecoder:
    """`torch.nn.TransformerDecoder` with the weights of Keel's, whose keys and values are one matrix."""
    width = weights["blocks.0.attention.out.weight"].shape[0]
    wide = weights["blocks.0.feed_forward.up.weight"].shape[0]
    layer = nn.TransformerDecoderLayer(width, heads, wide, 0.0, activation, 1e-12, batch_first=True)
    decoder = nn.TransformerDecoder(layer, layers).eval()
    names = {
        "self_attn.in_proj_": ["attention.qkv."],
        "self_attn.out_proj.": ["attention.out."],
        "multihead_attn.in_proj_": ["cross_attention.query.", "cross_attention.key_value."],
        "multihead_attn.out_proj.": ["cross_attention.out."],
        "linear1.": ["feed_forward.up."],
        "linear2.": ["feed_forward.down."],
        "norm1.": ["attention_norm."],
        "norm2.": ["cross_attention_norm."],
        "norm3.": ["feed_forward_norm."],
    }
    loaded = {
        f"layers.{number}.{theirs}{part}": torch.cat([weights[f"blocks.{number}.{name}{part}"] for name in ours])
        for number in range(layers)
        for theirs, ours in names.items()
        for part in ("weight", "bias")
    }
    decoder.load_state_dict(loaded)
    return decoder


def sinusoids(count: int, width: int) -> torch.Tensor:
    """Vaswani et al. 2017, section 3.5."""
    table = torch.zeros(count, width)
    for place in range(count):
        for column in range(0, width, 2):
            angle = place / 10000 ** (column / width)
            table[place, column], table[place, column + 1] = math.sin(angle), math.cos(angle)
    return table


@torch.no_grad()
def theirs_of(model: Model, theirs: Any, found: Any) -> tuple[np.ndarray, np.ndarray]:
    """The cross-attention of the decoder, and the attention of the encoder."""
    encoded = theirs(input_ids=torch.from_numpy(found.reading.ids)[None], output_attentions=True)
    table, width = theirs.embeddings.word_embeddings.weight, theirs.config.hidden_size
    weights = model.learner.objectives["translate"].decoder.state_dict()  # type: ignore[union-attr, operator]
    decoder = plain_decoder(weights, theirs.config.num_attention_heads, theirs.config.hidden_act, 3)
    tokenizer = model.tokenizer
    written = [tokenizer.cls, *tokenizer.encode([found.cross.translation])[0].tolist()]
    written = written[: len(found.cross.written)]
    target = (table[written] * width**0.5 + sinusoids(len(written), width))[None]
    seen: list[torch.Tensor] = []
    for layer in decoder.layers:

        def attend(*given: Any, across: Any = layer.multihead_attn, **options: Any) -> Any:
            output, shares = nn.MultiheadAttention.forward(
                across, *given, **options | {"need_weights": True, "average_attn_weights": False}
            )
            seen.append(shares[0])
            return output, shares

        layer.multihead_attn.forward = attend
    ahead = nn.Transformer.generate_square_subsequent_mask(len(written))
    decoder(target, encoded.last_hidden_state, tgt_mask=ahead)
    return torch.stack(seen).numpy(), torch.stack(encoded.attentions)[:, 0].numpy()


def test_cross_attention_is_that_of_torchs_decoder(make: Callable[[str], Model]) -> None:
    import transformers

    model = make("transformer")
    found = model.explain(TEXT)
    theirs: Any = transformers.BertModel.from_pretrained(model.path, attn_implementation="eager").eval()
    expected, layers = theirs_of(model, theirs, found)
    assert found.cross.weights.shape == expected.shape
    assert float(np.abs(found.cross.weights - expected).max()) <= 1e-5
    assert np.std(expected, axis=-1).max() > 0.05, "these heads look everywhere alike, so nothing was compared"
    assert found.cross.read == [token.token for token in found.tokens] and found.cross.written[-1] == "[SEP]"
    assert float(np.abs(found.weights - layers).max()) <= 1e-5
    drawn = {part.text for part in picture(found).parts if hasattr(part, "text")}
    assert {*found.cross.read, *found.cross.written} <= drawn


def test_what_a_translator_cannot_explain_is_said(make: Callable[[str], Model]) -> None:
    model = make("rnn")
    assert model.explain(TEXT).cross is None, "one vector for the source: only its encoder has attention"
    with pytest.raises(UserError, match="answers of translate cannot be explained"):
        model.explain(TEXT, method="attribution")
    model = make("rnn-attention")
    with pytest.raises(UserError, match="translates one text"):
        model.explain(TEXT, "another")
    with pytest.raises(UserError, match=r"a text of \d+ tokens is longer than the 16 that this model was trained"):
        model.explain("the captain sails " * 8)
