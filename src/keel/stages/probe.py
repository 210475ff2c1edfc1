"""`keel probe`: how well labels or word senses can be predicted from each layer of an encoder, by simple classifiers.

In: a model, and words with labels (CoNLL columns, spans) or with senses. Out: one score per layer.

tags    a linear classifier on the frozen vectors of one layer at a time (Tenney et al. 2019; Liu et al. 2019)
senses  nothing is trained: each sense of a word is the mean of its vectors in the training texts, and a word gets the
        sense with the nearest mean (Peters et al. 2018; Melamud et al. 2016)

Notable choices
- The layers are compared with a baseline that sees no context: each word's most frequent label, or sense. The
  margin over it shows how much information about context a layer contains.
- Vectors are standardised before the classifier, so that the scale of a layer's activations does not matter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from keel.errors import UserError, separate
from keel.files.folders import check_free
from keel.finetuning.labelled import read_file, say_oddities
from keel.hugging_face.folder import LoadedModel, load_model
from keel.learner.windows import batches, to_rows
from keel.machine import find_device, prepare_cpu
from keel.report_tables import Table
from keel.reporting.report import write_comparison
from keel.reporting.svg import Series
from keel.tasks.tag import Tag, TagConfig, TaggedText
from keel.text.labelled import LabelledData
from keel.text.senses import Occurrence, read_senses
from keel.tokenizers.special_tokens import frame
from keel.values import Window

EPOCHS, ROWS, RATE = 15, 512, 1e-2


def probe(
    model: str,
    *,
    train: str,
    dev: str,
    senses: bool = False,
    text: str | None = None,
    label: str | None = None,
    examples: int = 5000,
    seed: int = 1,
    out: str | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    report: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The score of each layer, lowest layer first; uses at most `examples` training texts."""
    say = report or (lambda _: None)
    if out:
        check_free(Path(out))
    prepare_cpu()
    loaded = load_model(model, pickle=allow_pickle)
    loaded.learner.to(find_device(device))
    run = _probe_senses if senses else _probe_tags
    found = run(loaded, train, dev, LabelledData(text=text, label=label), examples, seed, say)
    result = {"model": model, "train": train, "dev": dev, **found}
    if out:
        _write_page(Path(out), result)
    return result


def _probe_tags(
    loaded: LoadedModel, train: str, dev: str, data: LabelledData, most: int, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    task = Tag(TagConfig(), data.model_copy(update={"length": min(128, loaded.learner.backbone.max_length)}))
    read, evaluated = read_file(task, train), read_file(task, dev)
    try:
        task = task.fit_labels(read.examples)
    except UserError as error:  # the task cannot name the file
        raise UserError(f"{train}: {error}") from None
    rejected = [*read.rejected, *evaluated.rejected]
    say_oddities((*read.notes, *evaluated.notes), rejected, len(rejected), say)
    train_texts, dev_texts = read.examples[:most], evaluated.examples
    say(f"{len(train_texts):,} texts to train on, {len(dev_texts):,} to evaluate on")
    windows, _ = task.windows(train_texts, loaded.tokenizer)
    dev_windows, _ = task.windows(dev_texts, loaded.tokenizer)
    labels = np.concatenate([w.token_answers["tag"][w.token_answers["tag"] >= 0] for w in windows])
    counts = [int((w.token_answers["tag"] >= 0).sum()) for w in dev_windows]
    left, right = _layers(loaded, windows, _labelled), _layers(loaded, dev_windows, _labelled)
    scored = []
    for number, (x, y) in enumerate(zip(left, right, strict=True)):
        predicted = _linear(x, labels, y, len(task.config.labels or ()), seed)
        parts = np.split(np.stack([predicted, np.ones(len(predicted))], 1), np.cumsum(counts)[:-1])
        scored.append(task.scorer().evaluate(dev_texts, task.answer(dev_texts, dev_windows, parts)))
        say(f"layer {number}: {scored[-1].primary} {scored[-1].metrics[scored[-1].primary]:.4f}")
    baseline = task.scorer().evaluate(dev_texts, _by_word(task, train_texts, dev_texts))
    return {"figure": baseline.primary, "layers": [one.metrics for one in scored], "baseline": baseline.metrics}


def _by_word(task: Tag, train_texts: Sequence[TaggedText], dev_texts: Sequence[TaggedText]) -> list[dict[str, Any]]:
    """Each word's most frequent label, regardless of context; the most frequent label overall for an unseen word."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for example in train_texts:
        for (a, b), tag in zip(example.words, example.tags or (), strict=True):
            seen[example.text[a:b]][tag] += 1
    usual = sum(seen.values(), Counter()).most_common(1)[0][0]
    best = {word: counts.most_common(1)[0][0] for word, counts in seen.items()}
    answers = []
    for example in dev_texts:
        tags = [best.get(example.text[a:b], usual) for a, b in example.words]
        answers.append(task.format_answer(example, tags, [1.0] * len(tags)))
    return answers


def _linear(x: np.ndarray, labels: np.ndarray, dev_x: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The labels predicted by a softmax regression."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    inputs, answers = torch.from_numpy((x - mean) / spread), torch.from_numpy(labels)
    layer = torch.nn.Linear(x.shape[1], count)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.Adam(layer.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(EPOCHS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - epoch / EPOCHS)
        for places in torch.randperm(len(inputs), generator=generator).split(ROWS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(inputs[places]), answers[places]).backward()
            optimizer.step()
    with torch.no_grad():
        found: np.ndarray = layer(torch.from_numpy((dev_x - mean) / spread)).argmax(1).numpy()
    return found


def _probe_senses(
    loaded: LoadedModel, train: str, dev: str, data: LabelledData, most: int, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    (train_uses, rejected), (dev_uses, more) = (separate(read_senses(file)) for file in (train, dev))
    say_oddities((), [*rejected, *more], len(rejected) + len(more), say)
    train_uses = train_uses[:most]
    known: dict[str, Counter[str]] = defaultdict(Counter)
    for one in train_uses:
        known[one.word][one.sense] += 1
    kept = [one for one in dev_uses if len(known[one.word]) > 1]
    if not kept:
        raise UserError(f"{dev}: none of its words has two senses in {train}")
    say(f"{len(kept):,} of {len(dev_uses):,} words have more than one sense in the training texts; these are evaluated")
    left, right = (_layers(loaded, *_spans(loaded, part)) for part in (train_uses, kept))
    layers = []
    for x, y in zip(left, right, strict=True):
        x, y = (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (x, y))
        sums: dict[tuple[str, str], Any] = defaultdict(float)
        for one, vector in zip(train_uses, x, strict=True):
            sums[one.word, one.sense] = sums[one.word, one.sense] + vector
        means = {key: total / max(1e-12, float(np.linalg.norm(total))) for key, total in sums.items()}
        guesses = [max(known[o.word], key=lambda s: float(means[o.word, s] @ v)) for o, v in zip(kept, y, strict=True)]
        layers.append({"accuracy": float(np.mean([g == o.sense for g, o in zip(guesses, kept, strict=True)]))})
    usual = [known[one.word].most_common(1)[0][0] == one.sense for one in kept]
    return {"figure": "accuracy", "layers": layers, "baseline": {"accuracy": float(np.mean(usual))}}


def _spans(
    loaded: LoadedModel, occurrences: Sequence[Occurrence]
) -> tuple[list[Window], Callable[[Window, np.ndarray], np.ndarray]]:
    """A window around each occurrence, and how to reduce its vectors: the mean over the word's tokens."""
    room = min(510, loaded.learner.backbone.max_length - 2)
    windows = []
    for number, one in enumerate(occurrences):
        ids, offsets = loaded.tokenizer.encode_with_offsets(one.text)
        inside = [n for n, (a, b) in enumerate(offsets) if a < one.end and one.start < b]
        if not inside:
            raise UserError(f"the tokenizer drops the word '{one.text[one.start : one.end]}'; remove it from the file")
        first = max(0, min(inside[0] - room // 2, len(ids) - room))
        kept = np.asarray(ids[first : first + room])
        places = [n - first + 1 for n in inside if n - first < room]
        windows.append(Window(*frame(loaded.tokenizer, [kept]), number, place=places))
    return windows, lambda window, vectors: vectors[window.place].mean(0, keepdims=True)


def _labelled(window: Window, vectors: np.ndarray) -> np.ndarray:
    chosen: np.ndarray = vectors[window.token_answers["tag"] >= 0]
    return chosen


@torch.no_grad()
def _layers(
    loaded: LoadedModel, windows: Sequence[Window], take: Callable[[Window, np.ndarray], np.ndarray]
) -> list[np.ndarray]:
    """For each layer, the vectors that `take` returns for every window, in the given order."""
    backbone = loaded.learner.backbone.eval()
    device = next(backbone.parameters()).device
    found: list[list[np.ndarray]] = [[] for _ in windows]
    for group in batches([len(w.ids) for w in windows]):
        chosen = [windows[i] for i in group]
        batch = loaded.learner.batch(to_rows(chosen), loaded.tokenizer, device=device)
        layers = [layer.float().cpu().numpy() for layer in backbone(batch, all_layers=True).layers]
        stops = np.cumsum([len(w.ids) for w in chosen])[:-1]
        for layer in layers:
            for i, window, part in zip(group, chosen, np.split(layer, stops), strict=True):
                found[i].append(take(window, part))
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def _write_page(folder: Path, result: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    figure = result["figure"]
    points = [(float(number), layer[figure]) for number, layer in enumerate(result["layers"])]
    usual = result["baseline"][figure]
    series = [
        Series("layers", points, "marks"),
        Series("most frequent label of each word", [(points[0][0], usual), (points[-1][0], usual)], "line", 1),
    ]
    table = Table(
        "Layers", ("layer", figure), [(n, value) for n, value in points], "Layer 0 is the embeddings, without context."
    )
    facts = {key: result[key] for key in ("model", "train", "dev")} | {"without context": usual}
    title = f"Probes of the layers of {Path(result['model']).name}"
    write_comparison(folder, title, [(figure, series, "layer", figure)], [table], facts)
