"""The contract of backbones: one check per rule, `check(name, **options)`, with options for its config.

In: the name of a backbone in the catalog. Out: nothing, or an AssertionError that names the rule and what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from keel import catalog
from keel.configs import BackboneConfig
from keel.errors import UserError
from keel.files.folders import write_manifest
from keel.hugging_face.folder import load_model, save_model
from keel.interfaces import Backbone
from keel.layers import padding
from keel.layers.compact_embedding import replace_token_embeddings
from keel.layers.dropout import seeded_dropout
from keel.learner.learner import answer_counts
from keel.testing.alike import close, gap
from keel.testing.small import (
    CPU,
    batch_of,
    fitting,
    fresh_backbone,
    prepared,
    rows_for,
    small_backbone,
    small_config,
    small_learner,
    tokenizer_and_folder,
    with_dropout,
)
from keel.testing.tokenizer import SIZE
from keel.training.loop import weighted_sum
from keel.values import Batch, Selected


def backbone_is_declared(name: str, **options: Any) -> None:
    kind = catalog.find("backbones", name)
    assert issubclass(kind, Backbone), f"{name}: {kind.__name__} must extend keel.interfaces.Backbone"
    assert issubclass(kind.Config, BackboneConfig), f"{name}: its Config must extend keel.configs.BackboneConfig"
    called = kind.Config.model_fields["kind"].default
    assert catalog.name_of(str(called)) == catalog.name_of(name), (
        f"{name}: the `kind` of its Config is {called!r}: give it the default '{catalog.name_of(name)}', which "
        "recipes and model folders use to find the class"
    )
    model = fresh_backbone(name, **options)
    assert isinstance(getattr(model, "blocks", None), nn.ModuleList), (
        f"{name}: `blocks` is not an nn.ModuleList: put the layers there, lowest first; it may be empty"
    )
    assert fitting(name), f"{name}: no objective accepts this backbone, so it cannot be trained"


def fresh_weights_depend_on_the_generator_alone(name: str, **options: Any) -> None:
    weights = []
    for seed in (1, 1, 2):
        model = fresh_backbone(name, seed, **options)
        weights.append({key: tensor.detach() for key, tensor in model.named_parameters()})
    other = [key for key in weights[0] if not torch.equal(weights[0][key], weights[1][key])]
    assert not other, f"{name}: init_weights does not set {other}: set every parameter using the given generator"
    assert any(not torch.equal(weights[0][key], weights[2][key]) for key in weights[0]), (
        f"{name}: init_weights gives the same weights for different generators: draw from the given one"
    )
    wild = [key for key, tensor in weights[0].items() if not torch.isfinite(tensor).all()]
    assert not wild, f"{name}: init_weights leaves values in {wild} that are not finite"


def vectors_do_not_depend_on_company(name: str, **options: Any) -> None:
    model = small_backbone(name, **options)
    rows = rows_for(model)
    with torch.no_grad():
        batch = batch_of(model, rows)
        together = model(batch).vectors
        parts = [batch_of(model, rows.pick([row])) for row in range(len(rows.lengths))]
        alone = [model(part).vectors for part in parts]
        assert together.shape == (len(rows.ids), model.width), (
            f"{name}: vectors have the shape {tuple(together.shape)}, not (tokens, width) = "
            f"{(len(rows.ids), model.width)}: return one vector of width `self.width` per token, in order"
        )
        assert close(together, torch.cat(alone)), (
            f"{name}: a row's vectors depend on the other rows ({gap(together, torch.cat(alone))}): mix tokens only "
            "within a row; `batch.lengths` are the lengths of the rows"
        )
        pooled = model.pool(together, batch)
        pooled_alone = torch.cat([model.pool(v, part) for v, part in zip(alone, parts, strict=True)])
    assert pooled.shape == (len(rows.lengths), model.width) and close(pooled, pooled_alone), (
        f"{name}: row_vectors and pooler must return (rows, width), independently per row ({gap(pooled, pooled_alone)})"
    )


def context_is_as_declared(name: str, **options: Any) -> None:
    """Changes a row's last token, then its first, and compares the vectors of the other tokens."""
    model = small_backbone(name, **options)
    rows = rows_for(model)
    row = rows.pick([len(rows.lengths) - 1])
    context = model.config.context

    def others_see(place: int, others: slice) -> bool:
        ids = row.ids.copy()
        ids[place] = (5 if ids[place] != 5 else 6) if place else 6
        with torch.no_grad():
            before, after = (model(batch_of(model, some)).vectors[others] for some in (row, replace(row, ids=ids)))
        return not close(before, after)

    sees_right, sees_left = others_see(-1, slice(0, -1)), others_see(0, slice(1, None))
    found = "both" if sees_right else "left" if sees_left else "none"
    reads = {"both": "tokens after it", "left": "tokens before it only", "none": "no other token"}[found]
    assert found == context, (
        f"{name}: config.context is '{context}', but a token's vector depends on {reads}: declare '{found}', or change "
        "forward"
    )


def layers_end_with_the_vectors(name: str, **options: Any) -> None:
    model = small_backbone(name, **options)
    batch = batch_of(model, rows_for(model))
    with torch.no_grad():
        plain, layered = model(batch), model(batch, all_layers=True)
    wanted = model.config.layers + 1
    assert plain.layers == (), f"{name}: forward returns layers without request: return them only with all_layers=True"
    assert len(layered.layers) == wanted, (
        f"{name}: all_layers gives {len(layered.layers)} layers, not {wanted}: the embeddings and each of config.layers"
    )
    assert all(layer.shape == plain.vectors.shape for layer in layered.layers), (
        f"{name}: a layer's shape differs from that of the vectors {tuple(plain.vectors.shape)}"
    )
    assert torch.equal(layered.layers[-1], layered.vectors), f"{name}: the last of all layers is not `vectors`"
    assert torch.equal(plain.vectors, layered.vectors), (
        f"{name}: all_layers changes the vectors; it must only add layers"
    )


def blocks_are_the_layers(name: str, **options: Any) -> None:
    """Counts how often blocks run, and changes the weights of each."""
    model = small_backbone(name, **options)
    batch = batch_of(model, rows_for(model))
    runs: list[int] = []
    hooks = [block.register_forward_hook(lambda *_: runs.append(1)) for block in model.blocks]
    with torch.no_grad():
        before = model(batch, all_layers=True).layers
    for hook in hooks:
        hook.remove()
    assert len(runs) == model.config.layers, (
        f"{name}: blocks were run {len(runs)} times for {model.config.layers} layers: put every layer into `blocks` "
        "and call it as a module, or it cannot be frozen, reinitialised or given a learning rate"
    )
    lowest = 0
    for number, block in enumerate(model.blocks):
        kept = {key: tensor.clone() for key, tensor in block.state_dict().items()}
        with torch.no_grad():
            for parameter in block.parameters():
                parameter.add_(0.3)
            after = model(batch, all_layers=True).layers
        block.load_state_dict(kept)
        changed = [n for n, (a, b) in enumerate(zip(before, after, strict=True)) if not torch.equal(a, b)]
        assert changed, f"{name}: blocks[{number}] is not used in forward: `blocks` must hold the layers that are used"
        assert changed[0] > lowest, (
            f"{name}: blocks[{number}] first affects layer {changed[0]}: `blocks` must hold the layers above the "
            "embeddings, lowest first"
        )
        lowest = changed[0]


def token_embeddings_can_be_used(name: str, **options: Any) -> None:
    """Output heads are tied to them; if they are an nn.Embedding, fine-tuning may replace it by another module."""
    model = small_backbone(name, **options)
    batch = batch_of(model, rows_for(model))
    try:
        table = model.token_embeddings()
    except UserError:
        return  # it has none, and raises the right error
    assert table.dim() == 2 and len(table) == SIZE, (
        f"{name}: token_embeddings has the shape {tuple(table.shape)}: it needs one row for each of the {SIZE} tokens"
    )
    with torch.no_grad():
        before = model(batch).vectors
        _token_head_works(name, model.token_head(), before, table, batch.ids)
        held = [part for part in model.modules() if isinstance(part, nn.Embedding) and part.weight is table]
        if not held:
            return
        replace_token_embeddings(model, nn.Embedding.from_pretrained(table.detach().clone()))
        assert torch.equal(model(batch).vectors, before), (
            f"{name}: vectors change when the token embeddings are replaced by a copy: embed tokens by calling the "
            "module that holds them, and keep no second reference to it"
        )


def _token_head_works(name: str, head: Any, vectors: Tensor, table: Tensor, answers: Tensor) -> None:
    logits = head(vectors, table)
    assert logits.shape == (len(vectors), SIZE), (
        f"{name}: token_head()(vectors, table) has the shape {tuple(logits.shape)}, not (vectors, vocabulary)"
    )
    loss, right = head.score(vectors, table, answers)
    same = close(loss, F.cross_entropy(logits, answers, reduction="sum"), 1e-4)
    assert same and int(right) == int((logits.argmax(1) == answers).sum()), (
        f"{name}: token_head().score is not the summed cross-entropy of its logits and the number of correct ones"
    )


def pooler_comes_and_goes(name: str, **options: Any) -> None:
    if "pooler" in options:
        return
    for wanted in (True, False):
        config = small_config(name).model_copy(update={"pooler": wanted})
        if type(config).model_fields["pooler"].annotation is bool:
            model = type(small_backbone(name))(config)
            assert (model.pooler is not None) == wanted, (
                f"{name}: with config.pooler={wanted} `pooler` is {model.pooler}: create one if config.pooler is true; "
                "a backbone without poolers declares `pooler: Literal[False] = False`"
            )


def dropout_works_in_training_only(name: str, **options: Any) -> None:
    rates = with_dropout(name, 0.3)
    model = small_backbone(name, **options | rates)
    batch = batch_of(model, rows_for(model))

    def vectors(seed: int) -> Tensor:
        torch.rand(1)  # the state of the global generator must not matter
        with torch.no_grad(), seeded_dropout(seed, CPU):
            encoded: Tensor = model(batch).vectors
        return encoded

    model.train()
    assert torch.equal(vectors(1), vectors(1)), (
        f"{name}: in training the same seed gives different vectors: use keel.layers.dropout, which draws from the "
        "generator of `seeded_dropout`"
    )
    assert not torch.equal(vectors(1), vectors(2)) or not rates, f"{name}: dropout of 0.3 drops nothing in training"
    assert torch.equal(vectors(1), vectors(2)) or rates, (
        f"{name}: vectors are random in training, but its Config has no dropout rate: name such fields `dropout` or "
        "`..._dropout`, as the fine-tuning recipes that set them do"
    )
    model.eval()
    assert torch.equal(vectors(1), vectors(2)), f"{name}: vectors are random in evaluation: disable dropout there"


def vectors_nobody_reads_may_be_left_out(name: str, **options: Any) -> None:
    """`batch.selected` does not change the selected vectors, nor the row vectors, for which the learner selects."""
    model = small_backbone(name, **options)
    rows = rows_for(model)
    batch = batch_of(model, rows)
    first_or_last = rows.ends if model.config.context == "left" else rows.starts
    scattered = np.union1d(first_or_last, np.arange(0, len(rows.ids), 3))
    with torch.no_grad():
        whole = model(batch).vectors
        for places in (scattered, first_or_last):
            chosen = torch.from_numpy(places)
            some = model(replace(batch, selected=Selected(chosen, rows.count(places)))).vectors
            assert some.shape == whole.shape and close(some[chosen], whole[chosen]), (
                f"{name}: `batch.selected` changes the vectors of selected tokens: they must be as without it; a "
                "backbone may also ignore it"
            )
        rows_read = model.row_vectors(whole, batch)
        same = model.config.context == "none" or close(model.row_vectors(some, batch), rows_read)
    assert same, (
        f"{name}: row_vectors reads more than each row's {'last' if model.config.context == 'left' else 'first'} "
        "token, the only one selected for it: ignore `batch.selected` in forward"
    )


def padding_takes_no_part(name: str, **options: Any) -> None:
    """Padding to a multiple of tokens (`layers/padding.py`) does not change scores, gradients and layers."""
    learner = small_learner(name, {one: {} for one in fitting(name)}, **options).eval()
    batch = prepared(learner)
    results = []
    for pays in (False, True):
        learner.zero_grad()
        with mock.patch.object(padding, "padding_pays", lambda x, pays=pays: pays):
            scores = learner(batch)
            _backward(weighted_sum(scores, answer_counts(batch)))
            with torch.no_grad():
                layers = learner.backbone(batch, all_layers=True).layers
        gradients = [None if p.grad is None else p.grad.clone() for p in learner.parameters()]
        results.append([*(score.loss.detach() for score in scores.values()), *gradients, *layers])
    assert all(close(one, other, 1e-4) for one, other in zip(*results, strict=True)), (
        f"{name}: the padding of pad_to_multiple changes results: attend only to the tokens of `batch.lengths`, and "
        "drop vectors beyond `len(batch.ids)` at the end (`Encoding.of`)"
    )


def spellings_only_add_words(name: str, **options: Any) -> None:
    """Words of the vocabulary have the same vectors with and without spellings in the batch."""
    model = small_backbone(name, **options)
    rows = rows_for(model)
    with torch.no_grad():
        spelt, plain = model(batch_of(model, rows)).vectors, model(Batch.of(rows, {})).vectors
    assert close(spelt, plain), (
        f"{name}: words of the vocabulary have different vectors with `batch.spellings` ({gap(spelt, plain)})"
    )


def all_objectives_together_use_all_of_it(name: str, **options: Any) -> None:
    learner = small_learner(name, {one: {} for one in fitting(name)}, **options).train()
    batch = prepared(learner)
    _backward(weighted_sum(learner(batch), answer_counts(batch)))
    idle = [
        key
        for key, p in learner.backbone.named_parameters()
        if p.requires_grad and (p.grad is None or not torch.isfinite(p.grad).all() or not p.grad.abs().sum() > 0)
    ]
    assert not idle, (
        f"{name}: no objective gives {idle} a finite, non-zero gradient: use these parameters in forward, or leave "
        "them out"
    )


def saved_model_is_the_same_when_loaded(name: str, **options: Any) -> None:
    learner = small_learner(name, {one: {} for one in fitting(name)}, **options).eval()
    rows = rows_for(learner.backbone)
    with tokenizer_and_folder() as (tokenizer, folder):
        learner.backbone.attach_tokenizer(tokenizer)
        save_model(folder, learner, tokenizer, "")
        write_manifest(folder, {})
        loaded = load_model(folder).learner
    tensors, back = learner.named_tensors(), loaded.named_tensors()
    lost = [key for key in tensors if key not in back or not torch.equal(back[key], tensors[key])]
    assert not lost and back.keys() == tensors.keys(), f"{name}: {lost or 'a head'} differs after saving and loading"
    with torch.no_grad():
        before, after = (one.backbone(one.batch(rows, tokenizer)).vectors for one in (learner, loaded))
    assert close(before, after), (
        f"{name}: a loaded model gives different vectors: keep everything that forward needs in the config, in "
        "parameters or in buffers, and build it in __init__"
    )


def _backward(loss: Tensor) -> None:
    if loss.requires_grad:
        loss.backward()


BACKBONE_CHECKS: list[Callable[..., None]] = [
    backbone_is_declared,
    fresh_weights_depend_on_the_generator_alone,
    dropout_works_in_training_only,  # before the checks that compare vectors
    vectors_do_not_depend_on_company,
    context_is_as_declared,
    layers_end_with_the_vectors,
    blocks_are_the_layers,
    token_embeddings_can_be_used,
    pooler_comes_and_goes,
    vectors_nobody_reads_may_be_left_out,
    padding_takes_no_part,
    spellings_only_add_words,
    all_objectives_together_use_all_of_it,
    saved_model_is_the_same_when_loaded,
]
