"""`keel fetch`: a published model, by its public name -> a model folder.

In: a name such as `google/electra-small-discriminator`, perhaps with a revision. Out: a folder with the files that Keel
reads, sealed by a manifest; what the model is, and what to do with it.

Notable choices
- What can be refused is refused before the weights come: an `--out` in use before anything is sent, then a kind of
  model that Keel does not have (config.json), a tokenizer that it cannot read, weights that are only a pickle.
- Files come through the cache of huggingface_hub: what any program has stored there is not fetched again, and the name
  alone then opens the model (`cache.py`). Weights are linked from there where the file system can, other files copied.
- A pickle (`--allow-pickle`) is written as safetensors, so that only this command reads it.
- The folder is opened as every reader will open it before it gets its name.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from keel.console import path_argument, shell_command
from keel.errors import UserError
from keel.files.folders import SealedFiles, check_free, link_or_copy, read_json, write_folder, write_manifest
from keel.files.tensors import read_tensors, write_tensors
from keel.hugging_face.cache import INDEX, PublicName, missing_file
from keel.hugging_face.download import MEGABYTE, Download, check_space
from keel.hugging_face.folder import LoadedModel, check_kind, load_model
from keel.hugging_face.hub import Hub, Listing
from keel.hugging_face.sentence_encoder import read_sentence_encoder
from keel.tokenizers.folder import open_tokenizer
from keel.training.run import parameters

CONFIG, WEIGHTS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
SMALL = (  # what Keel reads besides the weights, and what a person should read
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("vocab.json", "merges.txt", "encoder.json", "vocab.bpe", "spiece.model", "sentencepiece.bpe.model", "spm.model"),
    *("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("recipe.yaml", "README.md", "LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE"),
)
STEP = re.compile(r"\d+_[A-Za-z]+/config\.json")  # of sentence-transformers: 1_Pooling/config.json
SHARD = re.compile(r"[\w-][\w.-]*\.safetensors")
SHOWN = 6  # files in a message

Say = Callable[[Any], None]


def fetch(
    name: str,
    out: str | None = None,
    revision: str | None = None,
    *,
    allow_pickle: bool = False,
    report: Say | None = None,
) -> dict[str, Any]:
    """Fetches a model, verifies it and returns what it is. `out`: the last part of the name, unless given."""
    wanted = _parse(name, revision)
    target = Path(out or wanted.repository.rpartition("/")[2])
    check_free(target)
    hub = Hub()
    download = Download(hub, _list(hub, wanted), report)
    with download.alone():
        files = _get_files(download, allow_pickle)
        download.mark()
        result = _write(download, files, target, report or (lambda _: None))
    return {"out": str(target), **result}


def _parse(name: str, revision: str | None) -> PublicName:
    given = name if revision is None else f"{name}@{revision}"
    wanted = PublicName.parse(given)
    if wanted is None:
        raise UserError(
            f"{given}: not a public name, such as bert-base-uncased or google/electra-small-discriminator@main"
        )
    return wanted


def _list(hub: Hub, wanted: PublicName) -> Listing:
    try:
        return hub.listing(wanted)
    except UserError as error:
        snapshot = wanted.snapshot()
        if snapshot is None or missing_file(snapshot):
            raise
        raise UserError(f"{error}. The local cache has this model: give {wanted} to any other command") from None


def _get_files(download: Download, allow_pickle: bool) -> list[str]:
    """Gets the files that Keel reads, the small ones first, and returns their names."""
    name, listed = str(download.listing.name), download.listing.files
    if CONFIG not in listed:
        raise UserError(f"{name}: no model that Keel opens: it has no {CONFIG}, only {_some(listed)}")
    check_kind(download.get([CONFIG]), name)
    small = [file for file in listed if file in SMALL or STEP.fullmatch(file)]
    small += [INDEX] if INDEX in listed else []
    snapshot = download.get(small)
    open_tokenizer(snapshot)
    weights = _weights(snapshot, download.listing, allow_pickle)
    download.get(weights)
    if lacking := missing_file(snapshot):
        raise UserError(f"{name}: {lacking} is missing on the hub too; the model is not complete")
    return [CONFIG, *small, *weights]


def _weights(snapshot: Path, listing: Listing, allow_pickle: bool) -> list[str]:
    listed = listing.files
    own = [file for file in ("keel.safetensors",) if file in listed]
    if INDEX in listed:
        index = read_json(snapshot / INDEX)
        shards = index.get("weight_map") if isinstance(index, dict) else None
        names = sorted({str(shard) for shard in shards.values()}) if isinstance(shards, dict) else []
        strange = [shard for shard in names if shard not in listed or not SHARD.fullmatch(shard)]
        if strange or not names:
            raise UserError(f"{listing.name}: {INDEX} names {strange[0] if strange else 'no file'}, which is not there")
        return names + own
    if WEIGHTS in listed:
        return [WEIGHTS, *own]
    if PICKLE not in listed:
        raise UserError(f"{listing.name}: no weights that Keel reads ({WEIGHTS}), only {_some(listed)}")
    if not allow_pickle:
        raise UserError(
            f"{listing.name}: its weights are only there as a pickle ({PICKLE}), a format that can hold code: add "
            "--allow-pickle if you trust its owner; only tensors are read, and written as safetensors"
        )
    return [PICKLE]


def _some(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "") or "nothing"


def _write(download: Download, files: list[str], target: Path, say: Say) -> dict[str, Any]:
    """Writes the folder, after opening it, and says what it is."""
    listing = download.listing
    made_by = {"keel": "fetch", "name": listing.repository, "revision": listing.commit, "files": "unchanged"}
    if PICKLE in files:
        made_by["files"] = f"{WEIGHTS} has the tensors of {PICKLE}"
    size = sum(listing.files[file].size for file in files)
    if not _same_disk(download.snapshot, target):
        check_space(target, size, "choose an --out on another disk")
    with write_folder(target, made_by) as folder:
        for file in files:
            _place(download.snapshot, file, folder)
        write_manifest(folder, made_by)  # as a reader will find it
        try:
            loaded = load_model(folder)
        except UserError as error:
            raise UserError(str(error).replace(str(folder), str(listing.name))) from None
        try:
            read_sentence_encoder(folder)
        except UserError as error:
            say(f"`keel embed` will refuse this model: {str(error).replace(str(folder), str(target))}")
        return _describe(loaded, folder, target, listing, size)


def _same_disk(snapshot: Path, target: Path) -> bool:
    there = next(place for place in target.absolute().parents if place.exists())
    return snapshot.stat().st_dev == there.stat().st_dev


def _place(snapshot: Path, file: str, folder: Path) -> None:
    source, target = (snapshot / file).resolve(), folder / file
    if file == PICKLE:
        tensors = read_tensors(SealedFiles(snapshot), pickle=True)
        # Pickled tensors may share memory, which safetensors does not store.
        write_tensors(folder / WEIGHTS, {name: tensor.clone().contiguous() for name, tensor in tensors.items()})
    elif file.endswith(".safetensors"):
        link_or_copy(source, target)
    else:
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)


def _describe(loaded: LoadedModel, folder: Path, target: Path, listing: Listing, size: int) -> dict[str, Any]:
    learner, setup = loaded.learner, loaded.setup
    return {
        "name": listing.repository,
        "revision": listing.commit,
        "kind": check_kind(folder, str(target)),
        **({"task": setup.kind} if setup else {"objectives": sorted(learner.objectives)}),
        "parameters": parameters(learner),
        "megabytes": round(size / MEGABYTE, 1),
        "licence": listing.licence or "not stated; see its README.md",
        "next": _next(loaded, folder, path_argument(str(target))),
    }


def _next(loaded: LoadedModel, folder: Path, model: str) -> str:
    """A command that shows what the model does."""
    if loaded.setup and loaded.setup.kind in ("classify", "regress", "tag"):
        return shell_command(["keel", "predict", model, "What a lovely film."])
    if loaded.setup:
        return shell_command(["keel", "predict", model, "--help"])
    if (folder / "modules.json").exists():
        return shell_command(["keel", "embed", model, "--file", "texts.txt", "--out", "vectors.npy"])
    if "masked_lm" in loaded.learner.objectives:
        return shell_command(["keel", "fill", model, "Paris is the [MASK] of France."])
    if "causal_lm" in loaded.learner.objectives:
        return shell_command(["keel", "generate", model, "Once upon a time"])
    return shell_command(["keel", "finetune", model, "classify", "--train", "train.tsv", "--out", "my-classifier"])
