"""RoBERTa, ALBERT, ELECTRA, a GPT-2-style model and ModernBERT give the logits of transformers', at random weights.

Folders written there open here with every tensor; each logit of every head is compared, row by row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keel.hugging_face.folder import load_model
from keel.interfaces import CachedEncoder
from keel.values import Batch, Rows

LENGTHS = (40, 17, 17, 9, 4)
SMALL = {"num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 100}
WIDE = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
NARROW = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 24}
THIN = {"n_layers": 2, "dim": 48, "n_heads": 4, "hidden_dim": 100}
DEEP = {"n_layers": 5, "dim": 32, "n_heads": 1, "hidden_dim": 40, "activation": "relu"}
OLD = {"max_position_embeddings": 48, "initializer_range": 0.2}

CASES: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
    *(("Roberta", "ForMaskedLM", shape | OLD, {"masked_lm": "logits"}) for shape in (SMALL, WIDE, NARROW)),
    ("Roberta", "ForMaskedLM", SMALL | OLD | {"pad_token_id": 4}, {"masked_lm": "logits"}),
    ("Roberta", "ForCausalLM", SMALL | OLD | {"is_decoder": True}, {"causal_lm": "logits"}),
    *(("XLMRoberta", "ForMaskedLM", shape | OLD, {"masked_lm": "logits"}) for shape in (SMALL, WIDE, NARROW)),
    *(("DistilBert", "ForMaskedLM", shape | OLD, {"masked_lm": "logits"}) for shape in (THIN, DEEP)),
    ("Bert", "LMHeadModel", WIDE | OLD | {"is_decoder": True}, {"causal_lm": "logits"}),
    *(
        (
            "Albert",
            "ForPreTraining",
            shape | OLD | {"embedding_size": size, "num_hidden_groups": groups, "pad_token_id": 0},
            {"masked_lm": "prediction_logits", "sentence_order": "sop_logits"},
        )
        for shape, size, groups in ((SMALL, 16, 1), (WIDE, 64, 1), (WIDE, 24, 4), (NARROW, 32, 1))
    ),
    ("Albert", "ForMaskedLM", SMALL | OLD | {"embedding_size": 16}, {"masked_lm": "logits"}),
    *(
        ("Electra", kind, shape | OLD | {"embedding_size": size}, {objective: "logits"})
        for shape, size in ((SMALL, 16), (WIDE, 64), (NARROW, 12))
        for kind, objective in (("ForPreTraining", "replaced_token"), ("ForMaskedLM", "masked_lm"))
    ),
    *(
        (
            "GPT2",
            "LMHeadModel",
            {"n_layer": layers, "n_embd": width, "n_head": heads, "n_inner": inner, "n_positions": 48},
            {"causal_lm": "logits"},
        )
        for layers, width, heads, inner in ((2, 48, 4, None), (3, 32, 1, 40))
    ),
    *(
        (
            "ModernBert",
            "ForMaskedLM",
            shape | {"max_position_embeddings": 64, "local_attention": local, "pad_token_id": 0},
            {"masked_lm": "logits"},
        )
        for shape, local in ((SMALL, 8), (WIDE, 4), (WIDE | {"num_hidden_layers": 6}, 16))
    ),
]


def published(folder: Path, family: str, kind: str, shape: dict[str, Any]) -> Any:
    import transformers

    torch.manual_seed(0)
    odd = {"bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    config = getattr(transformers, f"{family}Config")(**({"vocab_size": 97} | odd | shape))
    model = getattr(transformers, f"{family}{kind}")(config).eval()
    for parameter in model.parameters():  # biases and norms that start at 0 and 1 would hide mistakes
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(92)]
    (folder / "vocab.txt").write_text("\n".join(words))
    return model


def random_rows(seed: int = 0) -> Rows:
    random = np.random.default_rng(seed)
    total = sum(LENGTHS)
    ids, segments = random.integers(5, 97, total), random.integers(0, 2, total)
    plain = np.zeros(total, bool)
    return Rows(ids, LENGTHS, segments, plain, ~plain, np.arange(len(LENGTHS), dtype=np.uint64))


@pytest.mark.parametrize(
    "family, kind, shape, heads", CASES, ids=lambda v: v if isinstance(v, str) else f"{len(v)}" if v else ""
)
def test_every_logit_is_the_same(
    tmp_path: Path, family: str, kind: str, shape: dict[str, Any], heads: dict[str, str]
) -> None:
    theirs = published(tmp_path, family, kind, shape)
    ours = load_model(tmp_path).learner
    assert set(ours.objectives) == set(heads) or set(ours.objectives) > set(heads)
    rows = random_rows()
    everywhere = np.arange(len(rows.ids))
    batch = Batch.of(rows, {f"{name}.places": everywhere for name in heads})
    with torch.no_grad():
        found = {name: ours.objectives[name].predict(CachedEncoder(ours.backbone), batch) for name in heads}
        for row, start in enumerate(rows.starts):
            part = slice(start, start + rows.lengths[row])
            given = {"input_ids": torch.tensor(rows.ids[part])[None]}
            if family in ("Bert", "Albert", "Electra"):
                given["token_type_ids"] = torch.tensor(rows.segments[part])[None]
            answer = theirs(**given)
            for name, key in heads.items():
                mine = found[name][row] if name == "sentence_order" else found[name][part]
                if name == "replaced_token":
                    mine = mine[:, 1]
                difference = float((answer[key][0] - mine).abs().max())
                assert difference <= 1e-5 * max(1, float(answer[key].abs().max())), (name, difference)


@pytest.mark.parametrize("shared", ["attention", "feed-forward"])
def test_halves_that_albert_shares_are_repeated_in_the_folder(tmp_path: Path, shared: str) -> None:
    import transformers

    from keel.backbones.albert import Albert, AlbertConfig
    from keel.hugging_face.folder import save_model
    from keel.learner.build import assemble
    from keel.tokenizers.wordpiece import WordPiece

    shape = {"vocabulary": 97, "layers": 3, "width": 32, "heads": 2, "feed_forward": 48, "positions": 48}
    config = AlbertConfig(**shape, embedding_width=8, share_parameters=shared)
    backbone = Albert(config)
    backbone.init_weights(torch.Generator().manual_seed(1))
    learner = assemble(backbone, {"masked_lm": {}}).eval()
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(92))]))
    save_model(tmp_path, learner, WordPiece.load(tmp_path), "")
    theirs = transformers.AlbertForMaskedLM.from_pretrained(tmp_path).eval()
    back = load_model(tmp_path).learner
    assert back.backbone.config.share_parameters == shared
    assert sum(p.numel() for p in back.parameters()) == sum(p.numel() for p in learner.parameters())
    rows = random_rows().pick([0])
    with torch.no_grad():
        answer = theirs(torch.tensor(rows.ids)[None], token_type_ids=torch.tensor(rows.segments)[None]).logits[0]
        for model in (learner, back):
            batch = Batch.of(rows, {"masked_lm.places": np.arange(len(rows.ids))})
            mine = model.objectives["masked_lm"].predict(model.encoder(), batch)
            assert float((answer - mine).abs().max()) <= 1e-5
