"""The contract of objectives: one check per rule, `check(backbone, objectives)`.

In: the name of a backbone, and one or more objectives by name with their options, as for `assemble`. Out: nothing, or
an AssertionError that names the rule and what to do.

Notable choice: the rules about gradients also apply to a self-updating objective, if its `forward` has gradients.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from keel import catalog
from keel.errors import UserError
from keel.files.folders import write_manifest
from keel.hugging_face.folder import load_model, save_model
from keel.interfaces import Objective, SelfUpdatingObjective
from keel.layers.dropout import seeded_dropout
from keel.learner.build import fresh_learner
from keel.learner.learner import Learner, answer_counts
from keel.testing.alike import close
from keel.testing.small import (
    CPU,
    prepared,
    rows_for,
    small_config,
    small_learner,
    small_rows,
    tokenizer_and_folder,
    with_dropout,
)
from keel.training.loop import weighted_sum
from keel.training.micro_batches import add_gradients
from keel.training.precision import autocast, choose_precision
from keel.values import Batch, ObjectiveNeeds, Rows

Objectives = Mapping[str, Any]
Check = Callable[[str, Objectives], None]
WEIGHT = 2.5
UPDATES = 20


def objective_is_declared(backbone: str, objectives: Objectives) -> None:
    for name in objectives:
        kind = catalog.find("objectives", name)
        assert issubclass(kind, Objective), f"{name}: {kind.__name__} must extend keel.interfaces.Objective"
        assert kind.name == catalog.name_of(name), (
            f"{name}: its class has `name = {kind.name!r}`: write '{catalog.name_of(name)}', as in the catalog"
        )
        assert kind.Config().weight > 0, f"{name}: the default weight of its Config must be positive"
        assert isinstance(kind.needs, ObjectiveNeeds), f"{name}: `needs` must be an ObjectiveNeeds"
        known = kind.needs.packing is None or catalog.known("packers", kind.needs.packing)
        assert known, f"{name}: needs.packing is '{kind.needs.packing}', which is not a packer of the catalog"


def fresh_weights_depend_on_the_seed_alone(backbone: str, objectives: Objectives) -> None:
    config = small_config(backbone)
    one, other = (fresh_learner(config, objectives, seed=1).named_tensors() for _ in range(2))
    drawn = [key for key in one if not torch.equal(one[key], other[key])]
    assert not drawn, (
        f"{_names(objectives)}: the initial weights of {drawn} do not depend on the seed alone: set them in "
        "init_weights using the given generator"
    )


def preparing_is_repeatable(backbone: str, objectives: Objectives) -> None:
    learner = small_learner(backbone, objectives)
    rows = rows_for(learner.backbone)
    kept = copy.deepcopy(rows)
    one, two = prepared(learner, rows), prepared(learner, rows)  # global generators may advance in between
    who = _names(objectives)
    assert _equal(rows, kept), f"{who}: prepare changes the rows it is given: copy the arrays that it changes"
    same = one.targets.keys() == two.targets.keys() and all(_equal(one.targets[k], two.targets[k]) for k in one.targets)
    assert torch.equal(one.ids, two.ids) and same, (
        f"{who}: prepare gives a different result the second time: draw with keel.randomness.uniform from `rows.keys`, "
        "never from a generator of numpy or torch"
    )
    assert one.lengths == rows.lengths, f"{who}: prepare changes the lengths of rows: it may only change their tokens"
    foreign = [key for key in one.targets if not any(key.startswith(f"{name}.") for name in objectives)]
    assert not foreign, f"{who}: the targets {foreign} are not named after the objective: name them '<name>.<part>'"
    for name in objectives:
        assert f"{name}.answers" in one.targets, (
            f"{name}: prepare returns no '{name}.answers': it needs one entry per scored prediction"
        )
        read = learner.objectives[name].needs.vectors
        assert read != "places" or f"{name}.places" in one.targets, (
            f"{name}: needs.vectors is 'places', but prepare returns no '{name}.places'"
        )


def scores_are_sums_over_the_answers(backbone: str, objectives: Objectives) -> None:
    learner = small_learner(backbone, objectives).train()
    batch = prepared(learner)
    scores, counts = learner(batch), answer_counts(batch)
    assert set(scores) == set(counts) >= set(objectives), (
        f"{_names(objectives)}: there are scores {sorted(scores)}, but answers for {sorted(counts)}: each score needs "
        "its '<name>.answers' among the targets"
    )
    for name, score in scores.items():
        assert score.loss.shape == () and torch.isfinite(score.loss) and score.loss != 0, (
            f"{name}: the loss is {score.loss.detach()}: return the sum over the answers, finite and not 0"
        )
        assert score.count == counts[name] > 0, (
            f"{name}: the score counts {score.count} answers, but '{name}.answers' has {counts[name]} entries"
        )
        right = 0 if score.correct is None else float(score.correct)
        assert 0 <= right <= score.count * (1 + 1e-6), f"{name}: `correct` is {right} of {score.count} answers"


def gradients_reach_every_parameter(backbone: str, objectives: Objectives) -> None:
    learner = small_learner(backbone, objectives).train()
    batch = prepared(learner)
    loss = weighted_sum(learner(batch), answer_counts(batch))
    if not _has_gradients(learner, loss):
        return
    loss.backward()
    idle = [key for key, p in learner.named_parameters() if p.requires_grad and not _is_alive(p.grad)]
    heads = [key for key in idle if key.startswith("objectives.")]
    assert not heads, (
        f"{_names(objectives)}: {heads} get no finite, non-zero gradient: use these parameters in forward, or leave "
        "them out"
    )
    rest = [key for key in idle if not key.startswith("backbone.pooler.")]
    assert not rest, (
        f"{_names(objectives)}: no gradient reaches {rest}: do not detach the encoder's vectors or its token embeddings"
    )


def the_weight_of_the_recipe_counts(backbone: str, objectives: Objectives) -> None:
    learner = small_learner(backbone, {name: {**dict(given), "weight": WEIGHT} for name, given in objectives.items()})
    scores = learner(prepared(learner))
    for name in objectives:
        assert scores[name].weight == WEIGHT, (
            f"{name}: with weight={WEIGHT} in its config the score has weight {scores[name].weight}: pass "
            "`self.config.weight` to Score"
        )


def rows_together_score_as_each_row_alone(backbone: str, objectives: Objectives) -> None:
    learner = small_learner(backbone, objectives).eval()
    if any(objective.needs.whole_batch for objective in learner.objectives.values()):
        return
    rows = rows_for(learner.backbone)
    with torch.no_grad():
        together = learner(prepared(learner, rows))
        alone = [learner(prepared(learner, rows.pick([row]))) for row in range(len(rows.lengths))]
    for name, score in together.items():
        parts = [part[name] for part in alone]
        sums = (sum(float(p.loss) for p in parts), sum(_right(p) for p in parts), sum(p.count for p in parts))
        batched = (float(score.loss), _right(score), score.count)
        assert all(math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-5) for a, b in zip(batched, sums, strict=True)), (
            f"{name}: seven rows together have (loss, correct, count) = {batched}, one by one {sums}: return sums, not "
            "means, and score each row independently; if rows depend on each other, declare needs.whole_batch"
        )


def predictions_are_what_is_scored(backbone: str, objectives: Objectives) -> None:
    learner = small_learner(backbone, objectives).eval()
    batch = prepared(learner)
    with torch.no_grad():
        scores, encoder = learner(batch), learner.encoder()
        batch, _ = learner.corrupt(encoder, batch)
        for name in objectives:
            outputs, score = learner.objectives[name].predict(encoder, batch), scores[name]
            assert len(outputs) == score.count, (
                f"{name}: predict gives {len(outputs)} outputs for {score.count} answers: return one for each"
            )
            if score.correct is None:
                continue
            right = int((outputs.argmax(-1) == batch.targets[f"{name}.answers"]).sum())
            assert math.isclose(right, float(score.correct), rel_tol=1e-5), (
                f"{name}: the largest output of predict is correct {right} times, but score.correct is "
                f"{float(score.correct)}: score what predict gives"
            )


def vectors_it_does_not_read_may_be_left_out(backbone: str, objectives: Objectives) -> None:
    learner = small_learner(backbone, objectives).eval()
    batch = prepared(learner)
    results: list[list[Tensor | None]] = []
    for selected in (batch.selected, None):
        learner.zero_grad()
        scores = learner(replace(batch, selected=selected))
        loss = weighted_sum(scores, answer_counts(batch))
        if loss.requires_grad:
            loss.backward()
        gradients = [None if p.grad is None else p.grad.clone() for p in learner.parameters()]
        results.append([*(score.loss.detach() for score in scores.values()), *gradients])
    assert all(close(one, other, 1e-4) for one, other in zip(*results, strict=True)), (
        f"{_names(objectives)}: losses or gradients change when the backbone skips the vectors that `needs.vectors` "
        "does not include: declare 'all', or list every token in '<name>.places'"
    )


def dropout_is_all_that_is_random(backbone: str, objectives: Objectives) -> None:
    """The same seed gives the same losses, even if an objective encodes twice; evaluation is deterministic."""
    learner = small_learner(backbone, objectives, **with_dropout(backbone, 0.2)).train()
    batch = prepared(learner)

    def losses() -> list[Tensor]:
        torch.rand(1), np.random.rand(1)  # the states of the global generators must not matter
        with torch.no_grad(), seeded_dropout(1, CPU):
            return [score.loss for score in learner(batch).values()]

    for mode in ("training", "evaluation"):
        learner.train(mode == "training")
        assert all(torch.equal(one, other) for one, other in zip(losses(), losses(), strict=True)), (
            f"{_names(objectives)}: in {mode} the same seed gives another loss: use keel.layers.dropout, and draw "
            "everything else in prepare from `rows.keys`"
        )


def micro_batches_in_parallel_are_as_in_turn(backbone: str, objectives: Objectives) -> None:
    """Threads share no state that a model keeps between calls, and no dropout generator."""
    made = small_learner(backbone, objectives, **with_dropout(backbone, 0.2)).train()
    batch = prepared(made)
    if not _has_gradients(made, weighted_sum(made(batch), answer_counts(batch))):
        return
    for precision in _precisions():
        one, other = (_gradients(copy.deepcopy(made), precision, threads) for threads in (1, 2))
        same = one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
        assert one and same, (
            f"{_names(objectives)}: in {precision}, micro-batches in parallel give different gradients from one after "
            "the other: store nothing in `self` during forward, and use keel.layers.dropout"
        )


def _gradients(learner: Learner, precision: str, threads: int) -> dict[str, Tensor]:
    rows = rows_for(learner.backbone)
    parts = [prepared(learner, rows.pick(part)) for part in ((0, 3, 5), (1, 2, 4, 6))]

    def loss_of(number: int) -> tuple[Tensor, None]:
        with seeded_dropout(number, CPU), autocast(CPU, precision, parallel=2):
            scores = learner(parts[number])
        return weighted_sum(scores, answer_counts(parts[number])), None

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        list(add_gradients(learner, loss_of, len(parts), 2, CPU))
    finally:
        torch.set_num_threads(before)
    return {name: p.grad for name, p in learner.named_parameters() if p.grad is not None}


def _precisions() -> list[str]:
    try:
        return ["fp32", choose_precision("bf16", CPU)]
    except UserError:  # a processor that crashes at bf16 products
        return ["fp32"]


def updates_change_the_weights(backbone: str, objectives: Objectives) -> None:
    """For self-updating objectives; on one thread, equal rows give equal weights."""
    for name, options in objectives.items():
        learner = small_learner(backbone, {name: options})
        if not isinstance(learner.objectives[name], SelfUpdatingObjective):
            continue
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            one, other = (_updated(copy.deepcopy(learner), name) for _ in range(2))
        finally:
            torch.set_num_threads(before)
        start = learner.named_tensors()
        for room in ("backbone.", f"objectives.{name}."):
            mine = [key for key in start if key.startswith(room)]
            moved = any(not torch.equal(start[key], one[key]) for key in mine)
            assert moved or not mine, f"{name}: {UPDATES} updates leave all weights of {room}* unchanged"
        assert all(torch.equal(one[key], other[key]) for key in one), (
            f"{name}: on one thread, update gives different weights the second time: draw only from `rows.keys`"
        )


def _updated(learner: Learner, name: str) -> dict[str, Tensor]:
    for seed in range(UPDATES):
        for part, score in learner.update(small_rows(seed=seed), 0.05).items():
            finite = torch.isfinite(score.loss)
            assert finite and score.count >= 0, f"{name}: an update gives {part} the loss {score.loss} of {score.count}"
    return learner.named_tensors()


def saved_heads_are_the_same_when_loaded(backbone: str, objectives: Objectives) -> None:
    learner = small_learner(backbone, objectives).eval()
    with tokenizer_and_folder() as (tokenizer, folder):
        save_model(folder, learner, tokenizer, "")
        write_manifest(folder, {})
        loaded = load_model(folder).learner
    tensors, back = learner.named_tensors(), loaded.named_tensors()
    lost = [key for key in tensors if key not in back or not torch.equal(back[key], tensors[key])]
    assert not lost and back.keys() == tensors.keys(), (
        f"{_names(objectives)}: {lost or sorted(set(back) - set(tensors))} differs after saving and loading: build the "
        "head from the config alone"
    )


def _names(objectives: Iterable[str]) -> str:
    return ", ".join(objectives)


def _right(score: Any) -> float:
    return 0.0 if score.correct is None else float(score.correct)


def _is_alive(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(torch.isfinite(gradient).all()) and bool(gradient.abs().sum() > 0)


def _has_gradients(learner: Learner, loss: Tensor) -> bool:
    """Only a self-updating objective may have none."""
    assert loss.requires_grad or learner.updates_itself, (
        f"{_names(learner.objectives)}: the loss has no gradient: compute it from the encoder's vectors without "
        "torch.no_grad, or extend SelfUpdatingObjective"
    )
    return loss.requires_grad


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Rows | Batch):
        pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)]
        return all(_equal(a, b) for a, b in pairs)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


OBJECTIVE_CHECKS: list[Check] = [
    objective_is_declared,
    fresh_weights_depend_on_the_seed_alone,
    preparing_is_repeatable,
    dropout_is_all_that_is_random,  # before the checks that compare losses
    scores_are_sums_over_the_answers,
    gradients_reach_every_parameter,
    the_weight_of_the_recipe_counts,
    rows_together_score_as_each_row_alone,
    predictions_are_what_is_scored,
    vectors_it_does_not_read_may_be_left_out,
    micro_batches_in_parallel_are_as_in_turn,
    updates_change_the_weights,
    saved_heads_are_the_same_when_loaded,
]
