"""The contract of tasks: one check per rule, `check(backbone, name, config, examples)`.

In: the names of a backbone and a task, options of the task, and examples with their answers. Without such examples the
checks use the one in `usage.python`, which has no answer, and skip what needs answers. Out: nothing, or an
AssertionError that names the rule and what to do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from keel import catalog
from keel.configs import TaskConfig
from keel.files.folders import write_manifest
from keel.hugging_face.folder import load_model, save_model
from keel.interfaces import Objective, Task, Tokenizer
from keel.learner.build import task_learner
from keel.learner.frozen_encoder import EncoderSettings
from keel.learner.learner import Learner, answer_counts
from keel.learner.task_setup import TaskSetup
from keel.learner.windows import outputs, to_rows
from keel.report_tables import Plot, Table
from keel.testing.alike import alike, close
from keel.testing.small import (
    LENGTHS,
    TOKENIZER,
    small_backbone,
    small_examples,
    small_task,
    task_model,
    tokenizer_and_folder,
)
from keel.training.loop import weighted_sum
from keel.values import Batch, TaskNeeds, Usage, Window

Config = Mapping[str, Any]
Check = Callable[[str, str, Config, Sequence[Any]], None]


def task_is_declared(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    kind = catalog.find("tasks", name)
    assert issubclass(kind, Task), f"{name}: {kind.__name__} must extend keel.interfaces.Task"
    assert issubclass(kind.Config, TaskConfig), f"{name}: its Config must extend keel.configs.TaskConfig"
    called = kind.Config.model_fields["kind"].default
    assert catalog.name_of(str(called)) == catalog.name_of(name), (
        f"{name}: the `kind` of its Config is {called!r}: give it the default '{catalog.name_of(name)}', which "
        "recipes and model folders use to find the class"
    )
    task = small_task(name, config, max(LENGTHS))
    assert isinstance(task.needs, TaskNeeds), f"{name}: `needs` must be a TaskNeeds"
    assert isinstance(task.usage, Usage), f"{name}: `usage` must be a Usage"
    small_examples(task)  # raises if `usage.python` is not valid
    objective = task.objective(small_backbone(backbone))
    assert isinstance(objective, Objective), f"{name}: objective() must return a keel.interfaces.Objective"
    assert objective.name == task.config.kind, (
        f"{name}: the objective is called {objective.name!r}: give it the name of the task, '{task.config.kind}'"
    )
    again = task.replace(config={}, length=20)
    assert again.data.length == 20 and again.config == task.config, f"{name}: replace() loses its config or data"


def windows_are_rows_of_the_examples(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    task = small_task(name, config, small_backbone(backbone).max_length)
    given = list(examples) or small_examples(task)
    windows, truncation = task.windows(given, TOKENIZER)
    for window in windows:
        assert 0 < len(window.ids) == len(window.segments) == len(window.special), (
            f"{name}: a window has {len(window.ids)} ids, {len(window.segments)} segments and {len(window.special)} "
            "special: give one of each per token (`tokenizers.special_tokens.frame`)"
        )
        assert len(window.ids) <= task.data.length, (
            f"{name}: a window has {len(window.ids)} tokens, but data.length is {task.data.length}: truncate, or split "
            "into several windows"
        )
        lengths = {part: len(values) for part, values in window.token_answers.items()}
        assert set(lengths.values()) <= {len(window.ids)}, (
            f"{name}: token_answers {lengths} for {len(window.ids)} tokens"
        )
    numbers = [window.example for window in windows]
    assert numbers == sorted(numbers), f"{name}: windows are not in the order of their examples: {numbers}"
    assert set(numbers) == set(range(len(given))), (
        f"{name}: {len(given)} examples have windows for {sorted(set(numbers))}: give at least one for each, with its "
        "index, from 0, in `Window.example`"
    )
    assert 0 < truncation.texts >= truncation.truncated_texts and truncation.tokens >= truncation.truncated_tokens, (
        f"{name}: the truncation {truncation} does not add up: count all texts and tokens, and those that did not fit"
    )
    assert task.windows(given, TOKENIZER)[1] == truncation, f"{name}: windows() differs the second time"


def every_example_has_an_answer(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    setup, learner = task_model(backbone, name, config)
    given = list(examples) or small_examples(setup.task)
    windows, _ = setup.task.windows(given, TOKENIZER)
    batch = learner.prepare(to_rows(windows), TOKENIZER)
    with torch.no_grad():
        predicted = learner.objectives[setup.kind].predict(learner.encoder(), batch)
    counts = batch.targets.get(f"{setup.kind}.counts")
    wanted = len(windows) if counts is None else sum(counts)
    assert counts is None or (isinstance(counts, tuple) and len(counts) == len(windows)), (
        f"{name}: '{setup.kind}.counts' must be a tuple with one number per row"
    )
    assert len(predicted) == wanted, (
        f"{name}: predict gives {len(predicted)} outputs for {wanted}: return one per row, or as many as prepare lists "
        f"in '{setup.kind}.counts'"
    )
    answers = _answers(setup.task, learner, given)
    assert len(answers) == len(given) and all(isinstance(answer, dict) for answer in answers), (
        f"{name}: {len(answers)} answers for {len(given)} examples: return a dict for each, in order"
    )
    assert alike(answers, _answers(setup.task, learner, given)), f"{name}: the second time, answers are different"


def answers_do_not_depend_on_company(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    setup, learner = task_model(backbone, name, config)
    given = list(examples) or small_examples(setup.task)
    together = _answers(setup.task, learner, given)
    for number, example in enumerate(given):
        (alone,) = _answers(setup.task, learner, [example])
        assert alike(together[number], alone), (
            f"{name}: the answer to example {number} is {_short(together[number])} among others, but {_short(alone)} "
            "alone: combine only the outputs of its own windows (`Window.example`)"
        )


def vectors_it_does_not_read_may_be_left_out(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    setup, learner = task_model(backbone, name, config)
    windows, _ = setup.task.windows(list(examples) or small_examples(setup.task), TOKENIZER)
    batch = learner.prepare(to_rows(windows), TOKENIZER)
    objective = learner.objectives[setup.kind]
    with torch.no_grad():
        some, all_of_them = (
            objective.predict(learner.encoder(), replace(batch, selected=selected))
            for selected in (batch.selected, None)
        )
    assert close(some, all_of_them, 1e-4), (
        f"{name}: predictions change when the backbone skips the vectors that `needs.vectors` does not include: "
        "declare 'all', or list every token in '<name>.places'"
    )


def fresh_heads_depend_on_the_seed_alone(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    trained = small_backbone(backbone)
    setup = TaskSetup(small_task(name, config, trained.max_length), EncoderSettings())
    one, other = (task_learner(setup, trained, seed=1).named_tensors() for _ in range(2))
    drawn = [key for key in one if not torch.equal(one[key], other[key])]
    assert not drawn, (
        f"{name}: the initial weights of {drawn} do not depend on the seed alone: set them in the objective's "
        "init_weights using the given generator"
    )


def the_loss_teaches_the_head(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    """Gradients reach head and encoder, and the losses of several examples add up. Skipped for examples without answers
    if these have no valid targets."""
    setup, learner = task_model(backbone, name, config)
    windows, _ = setup.task.windows(list(examples) or small_examples(setup.task), TOKENIZER)
    batch = learner.prepare(to_rows(windows), TOKENIZER)
    if not examples and not _can_be_scored(batch, setup.kind):
        return
    scores, counts = learner(batch), answer_counts(batch)
    assert set(scores) == set(counts) == {setup.kind}, (
        f"{name}: scores {sorted(scores)} and answers for {sorted(counts)}: both must be named '{setup.kind}'"
    )
    score = scores[setup.kind]
    assert score.loss.shape == () and torch.isfinite(score.loss), (
        f"{name}: the loss is {score.loss.detach()}, not finite"
    )
    assert score.count == counts[setup.kind] > 0, f"{name}: the score counts {score.count} answers of {counts}"
    weighted_sum(scores, counts).backward()
    _gradients_arrive(name, learner)
    if not learner.objectives[setup.kind].needs.whole_batch:
        alone = sum(_loss(learner, part) for part in _by_example(windows))
        assert math.isclose(float(score.loss.detach()), alone, rel_tol=1e-4, abs_tol=1e-5), (
            f"{name}: the loss of all examples is {float(score.loss.detach())}, but their losses sum to {alone}: "
            "return sums, not means; if examples depend on each other, declare needs.whole_batch"
        )


def _can_be_scored(batch: Batch, name: str) -> bool:
    """A negative answer is an unknown one."""
    answers = batch.targets.get(f"{name}.answers")
    return answers is None or answers.is_floating_point() or bool((answers >= 0).all())


def _gradients_arrive(name: str, learner: Learner) -> None:
    heads = {key: p.grad for key, p in learner.objectives.named_parameters() if p.requires_grad}
    idle = [key for key, grad in heads.items() if grad is None or not torch.isfinite(grad).all()]
    assert not idle, f"{name}: {idle} get no finite gradient: use these parameters in forward, or leave them out"
    alive = {id(p) for p in learner.parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    for part, module in (("head", learner.objectives), ("encoder", learner.backbone)):
        mine = {id(p) for p in module.parameters()}
        assert not mine or mine & alive, f"{name}: no gradient reaches the {part}: do not detach vectors or losses"


def _by_example(windows: Sequence[Window]) -> list[list[Window]]:
    examples: dict[int, list[Window]] = {}
    for window in windows:
        examples.setdefault(window.example, []).append(window)
    return list(examples.values())


def _loss(learner: Learner, windows: Sequence[Window]) -> float:
    with torch.no_grad():
        (score,) = learner(learner.prepare(to_rows(windows), TOKENIZER)).values()
    return float(score.loss)


def answers_can_be_scored(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    """Only with examples that have answers."""
    if not examples:
        return
    setup, learner = task_model(backbone, name, config)
    answers = _answers(setup.task, learner, examples)
    scorer = setup.task.scorer()
    found = scorer.evaluate(examples, answers)
    assert found.primary in found.metrics, (
        f"{name}: the scorer computes the metrics {sorted(found.metrics)}, but the primary one is '{found.primary}'"
    )
    assert all(isinstance(value, float) for value in found.metrics.values()), f"{name}: metrics must be floats"
    json.dumps([scorer.gold(example) for example in examples])
    assert all(isinstance(part, Table | Plot) for part in found.details()), f"{name}: details must be Tables and Plots"


def groups_of_answers_are_scored_like_all_at_once(
    backbone: str, name: str, config: Config, examples: Sequence[Any]
) -> None:
    """Only with examples that have answers."""
    if not examples:
        return
    setup, learner = task_model(backbone, name, config)
    answers = _answers(setup.task, learner, examples)
    whole, parts = setup.task.scorer().evaluate(examples, answers), setup.task.scorer()
    for place in range(len(examples)):
        parts.update(examples[place : place + 1], answers[place : place + 1])
    found = parts.compute()
    assert alike(found.metrics, whole.metrics) and found.constant == whole.constant, (
        f"{name}: answers scored one by one give {found.metrics}, scored all at once {whole.metrics}: keep sums and "
        "counts in the scorer, and compute the metrics from them"
    )
    assert len(found.details()) == len(whole.details()), f"{name}: the report depends on how answers are grouped"


def saved_task_answers_the_same_when_loaded(backbone: str, name: str, config: Config, examples: Sequence[Any]) -> None:
    setup, learner = task_model(backbone, name, config)
    given = list(examples) or small_examples(setup.task)
    with tokenizer_and_folder() as (tokenizer, folder):
        learner.backbone.attach_tokenizer(tokenizer)
        save_model(folder, learner, tokenizer, "", setup)
        write_manifest(folder, {})
        loaded = load_model(folder)
    assert loaded.task is not None, f"{name}: a loaded model has no task"
    tensors, back = learner.named_tensors(), loaded.learner.named_tensors()
    lost = [key for key in tensors if key not in back or not torch.equal(back[key], tensors[key])]
    assert not lost, f"{name}: {lost} differs after saving and loading: build the head from the config alone"
    before = _answers(setup.task, learner, given, tokenizer)
    after = _answers(loaded.task, loaded.learner, given, tokenizer)
    assert alike(before, after), (
        f"{name}: a loaded model answers {_short(after)} instead of {_short(before)}: keep everything that answers "
        "need in the task's Config, as plain data"
    )


def _answers(
    task: Task, learner: Learner, examples: Sequence[Any], tokenizer: Tokenizer = TOKENIZER
) -> list[dict[str, Any]]:
    windows, _ = task.windows(examples, tokenizer)
    return task.answer(examples, windows, outputs(learner, windows, tokenizer))


def _short(answer: Any) -> str:
    text = str(answer)
    return text if len(text) < 200 else f"{text[:200]}..."


TASK_CHECKS: list[Check] = [
    task_is_declared,
    windows_are_rows_of_the_examples,
    every_example_has_an_answer,
    answers_do_not_depend_on_company,
    vectors_it_does_not_read_may_be_left_out,
    fresh_heads_depend_on_the_seed_alone,
    the_loss_teaches_the_head,
    answers_can_be_scored,
    groups_of_answers_are_scored_like_all_at_once,
    saved_task_answers_the_same_when_loaded,
]
