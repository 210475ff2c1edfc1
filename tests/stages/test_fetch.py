"""`keel fetch` against a server on this machine that answers as the hub does: what comes is whole and checked, what
cannot be used is refused before its weights come, and the server is told nothing but names."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import keel as package
from hub_server import TOKEN, HubServer, Repository, hub_server
from keel.stages.finetune import finetune
from warm_keel import WarmKeel

Keel = Callable[..., subprocess.CompletedProcess[str]]
NAME = "sea/tiny-bert"
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def published(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as `transformers` writes it, with a card."""
    import transformers

    folder = tmp_path_factory.mktemp("published")
    transformers.AutoModelForPreTraining.from_pretrained(finished_run).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(finished_run).save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# A tiny BERT\n")
    return folder


@pytest.fixture
def hub(published: Path) -> Iterator[HubServer]:
    with hub_server() as server:
        server.repositories[NAME] = Repository.of(published, card={"license": "mit"})
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "hf-home"


def environment(hub: HubServer | None, home: Path, **more: str) -> dict[str, str]:
    """This process' variables without any of the hub's, but those that lead to the test's server and cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE", "TRANSF"))}
    address = hub.address if hub else "http://127.0.0.1:9"  # nobody listens there
    return {**kept, "HF_ENDPOINT": address, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1,localhost", **more}


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmKeel]:
    server = WarmKeel("keel.stages.fetch")
    yield server
    server.close()


@pytest.fixture
def fetch(hub: HubServer, home: Path, warm: WarmKeel, tmp_path: Path) -> Keel:
    def run(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
        return warm.run("fetch", *arguments, env=environment(hub, home, **more), cwd=tmp_path)

    return run


def weights_asked(hub: HubServer) -> list[str]:
    return [path for path in hub.asked() if path.endswith((".safetensors", ".bin", ".h5"))]


def test_a_fetched_model_is_whole_and_works(
    keel: Keel, hub: HubServer, home: Path, published: Path, tmp_path: Path
) -> None:
    hub.repositories[NAME].files |= {"tf_model.h5": b"other", "pytorch_model.bin": b"other", "onnx/model.onnx": b"x"}
    done = keel("fetch", NAME, "--json", env=environment(hub, home), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    out = tmp_path / "tiny-bert"
    assert (result["out"], result["name"], result["kind"], result["licence"]) == ("tiny-bert", NAME, "bert", "mit")
    assert result["revision"] == hub.repositories[NAME].commit
    ours, theirs = package.load(str(out)).learner.state_dict(), package.load(str(published)).learner.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert result["parameters"] == sum(p.numel() for p in package.load(str(published)).learner.parameters())
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {"config.json", WEIGHTS, "tokenizer.json", "README.md", "manifest.json"} <= names
    assert not names & {"tf_model.h5", "pytorch_model.bin", "onnx/model.onnx"}
    assert not any(path.is_symlink() for path in out.rglob("*"))
    assert not list(tmp_path.glob(".writing-*")) and not list(tmp_path.rglob("*.keel-partial"))
    assert result["next"].startswith("keel fill tiny-bert ")
    assert keel("fill", out, "the [MASK] keel", "--json").returncode == 0


def test_the_server_learns_names_and_nothing_else(fetch: Keel, hub: HubServer) -> None:
    assert fetch(NAME, AI_AGENT="somebody", AGENT="somebody").returncode == 0
    files = [path.partition("/resolve/")[2].partition("/")[2] for path in hub.asked() if "/resolve/" in path]
    rest = [path for path in hub.asked() if "/resolve/" not in path]
    assert rest == [f"/api/models/{NAME}", f"/cdn/{NAME.replace('/', '--')}/{WEIGHTS}"]
    assert len(files) == len(set(files)) and set(files) <= set(hub.repositories[NAME].files)
    allowed = {"host", "accept", "accept-encoding", "connection", "user-agent", "x-amzn-trace-id"}
    assert {name for request in hub.log for name in request.headers} <= allowed
    assert {request.headers["user-agent"] for request in hub.log} == {f"keel/{package.__version__}"}


def test_the_result_is_for_people_too(fetch: Keel) -> None:
    done = fetch(NAME, "--out", "here", "--quiet")
    assert done.stderr == "" and all(word in done.stdout for word in ("licence", "mit", "parameters", "keel fill here"))


def test_a_second_fetch_into_the_folder_is_refused_and_elsewhere_costs_nothing(
    fetch: Keel, hub: HubServer, one_line: Callable[[Any], str], tmp_path: Path
) -> None:
    assert fetch(NAME).returncode == 0
    hub.log.clear()
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.glob("tiny-bert/*"))
    assert "tiny-bert: already there" in one_line(fetch(NAME))
    assert hub.log == [], "the folder is looked at first"
    assert fetch(NAME, "--out", "other").returncode == 0
    assert hub.asked() == [f"/api/models/{NAME}"], "all files come from the cache"
    assert before == sorted((path, path.stat().st_mtime_ns) for path in tmp_path.glob("tiny-bert/*"))


def test_a_connection_that_breaks_is_continued(fetch: Keel, hub: HubServer, tmp_path: Path) -> None:
    size = len(hub.repositories[NAME].files[WEIGHTS])
    hub.break_after[WEIGHTS] = [size // 3, size // 3]
    done = fetch(NAME, "--quiet")
    assert done.returncode == 0, done.stderr
    ranges = [request.headers.get("range") for request in hub.asked_for("/cdn/")]
    assert ranges == [None, f"bytes={size // 3}-", f"bytes={2 * (size // 3)}-"]
    package.load(str(tmp_path / "tiny-bert"))


def test_a_fetch_that_was_killed_is_continued(
    hub: HubServer, home: Path, start_keel: Callable[..., Any], fetch: Keel, tmp_path: Path
) -> None:
    size = len(hub.repositories[NAME].files[WEIGHTS])
    hub.break_after[WEIGHTS] = [size // 2, *[0] * 50]
    process = start_keel("fetch", NAME, env=environment(hub, home), cwd=tmp_path)
    deadline = time.monotonic() + 60
    while len(hub.asked_for("/cdn/")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (partial,) = home.rglob("*.keel-partial")
    assert partial.stat().st_size == size // 2
    assert not (tmp_path / "tiny-bert").exists()
    hub.break_after.clear()
    hub.log.clear()
    assert fetch(NAME).returncode == 0
    assert [request.headers.get("range") for request in hub.asked_for("/cdn/")] == [f"bytes={size // 2}-"]
    package.load(str(tmp_path / "tiny-bert"))
    assert not list(home.rglob("*.keel-partial"))


def test_a_server_without_ranges_sends_all_again(fetch: Keel, hub: HubServer, tmp_path: Path) -> None:
    hub.break_after[WEIGHTS], hub.without_ranges = [1000], True
    assert fetch(NAME).returncode == 0
    package.load(str(tmp_path / "tiny-bert"))


def test_ctrl_c_keeps_what_has_come(hub: HubServer, home: Path, start_keel: Callable[..., Any], tmp_path: Path) -> None:
    hub.break_after[WEIGHTS] = [1000, *[0] * 50]
    process = start_keel("fetch", NAME, env=environment(hub, home), cwd=tmp_path)
    deadline = time.monotonic() + 60
    while len(hub.asked_for("/cdn/")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.log.read_text().splitlines()[-1] == "keel: stopped by Ctrl-C"
    (partial,) = home.rglob("*.keel-partial")
    assert partial.stat().st_size == 1000 and not (tmp_path / "tiny-bert").exists()


def test_a_server_that_stays_away_ends_with_what_was_received(
    hub: HubServer, home: Path, tmp_path: Path, one_line: Callable[[Any], str]
) -> None:
    hub.break_after[WEIGHTS] = [1000, *[0] * 50]
    code = "import sys, keel.hugging_face.hub as hub; hub.LONGEST_WAIT = 0.01; from keel.cli.main import main; main()"
    command = [sys.executable, "-c", code, "fetch", NAME, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(hub, home), cwd=tmp_path)
    line = one_line(done)
    assert f"1,000 of {len(hub.repositories[NAME].files[WEIGHTS]):,} bytes of {WEIGHTS}" in line
    assert "the same command goes on" in line and not (tmp_path / "tiny-bert").exists()


@pytest.mark.parametrize("file", [WEIGHTS, "config.json", "tokenizer.json"])
def test_bytes_that_are_not_the_hubs_are_refused(
    fetch: Keel, hub: HubServer, home: Path, one_line: Callable[[Any], str], tmp_path: Path, file: str
) -> None:
    hub.corrupt.add(file)
    line = one_line(fetch(NAME, "--quiet"))
    assert file in line and "checksum" in line
    assert not (tmp_path / "tiny-bert").exists() and not list(home.rglob("*.keel-partial"))
    hub.corrupt.clear()
    assert fetch(NAME).returncode == 0


def test_a_damaged_file_in_the_cache_is_named(fetch: Keel, home: Path, one_line: Callable[[Any], str]) -> None:
    assert fetch(NAME, "--out", "one").returncode == 0
    (blob,) = {path.resolve() for path in home.rglob("tokenizer.json")}
    blob.write_bytes(blob.read_bytes()[:-1] + b" ")
    line = one_line(fetch(NAME, "--out", "two", "--quiet"))
    assert str(blob) in line and "damaged" in line and "remove it" in line
    blob.unlink()
    assert fetch(NAME, "--out", "two").returncode == 0


def llama(files: dict[str, bytes]) -> None:
    files["config.json"] = json.dumps({"model_type": "llama", "vocab_size": 32000}).encode()


def relative(files: dict[str, bytes]) -> None:
    config = json.loads(files["config.json"]) | {"model_type": "modernbert", "mlp_bias": True}
    files["config.json"] = json.dumps(config).encode()


def other_tokenizer(files: dict[str, bytes]) -> None:
    content = json.loads(files["tokenizer.json"])
    content["model"]["type"] = "WordLevel"
    files["tokenizer.json"] = json.dumps(content).encode()


def no_config(files: dict[str, bytes]) -> None:
    del files["config.json"]


def only_pickle(files: dict[str, bytes]) -> None:
    files["pytorch_model.bin"] = files.pop(WEIGHTS)


def only_flax(files: dict[str, bytes]) -> None:
    files["flax_model.h5"] = files.pop(WEIGHTS)


def no_such_shard(files: dict[str, bytes]) -> None:
    files["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": "../secret.safetensors"}}).encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (llama, ("'llama'", "decoder", NAME)),
        (relative, ("mlp_bias",)),
        (other_tokenizer, ("WordLevel",)),
        (no_config, ("config.json", WEIGHTS)),
        (only_pickle, ("pickle", "--allow-pickle")),
        (only_flax, ("flax_model.h5",)),
        (no_such_shard, ("secret",)),
    ],
)
def test_what_cannot_be_used_costs_no_weights(
    fetch: Keel,
    hub: HubServer,
    one_line: Callable[[Any], str],
    tmp_path: Path,
    change: Callable[[dict[str, bytes]], None],
    said: tuple[str, ...],
) -> None:
    change(hub.repositories[NAME].files)
    line = one_line(fetch(NAME, "--quiet"))
    assert all(word in line for word in said), line
    assert weights_asked(hub) == [] and not (tmp_path / "tiny-bert").exists()


def test_a_pickle_is_written_as_safetensors(fetch: Keel, hub: HubServer, published: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    tensors = load_file(published / WEIGHTS)
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]  # shares its memory
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    files = hub.repositories[NAME].files
    del files[WEIGHTS]
    files["pytorch_model.bin"] = (tmp_path / "pytorch_model.bin").read_bytes()
    done = fetch(NAME, "--allow-pickle")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "tiny-bert" / "pytorch_model.bin").exists()
    ours = package.load(str(tmp_path / "tiny-bert")).learner.state_dict()
    theirs = package.load(str(published)).learner.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_shards_and_the_steps_of_a_sentence_encoder_come_too(
    fetch: Keel, hub: HubServer, published: Path, finished_run: Path, tmp_path: Path
) -> None:
    import transformers

    folder = tmp_path / "sharded"
    transformers.AutoModel.from_pretrained(finished_run).save_pretrained(folder, max_shard_size="20KB")
    shutil.copy(published / "tokenizer.json", folder)
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in steps]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    hub.repositories["sea/encoder"] = Repository.of(folder)
    done = fetch("sea/encoder", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["next"].startswith("keel embed encoder")
    assert len(list((tmp_path / "encoder").glob("model-*-of-*.safetensors"))) >= 2
    texts = ["the old keel", "a young sailor"]
    ours = package.load(str(tmp_path / "encoder")).embed(texts)
    assert (ours == package.load(str(folder)).embed(texts)).all()
    assert ((ours**2).sum(1) - 1 < 1e-5).all(), "normalised, as its modules say"


def test_a_model_of_keels_own_comes_with_its_head(
    fetch: Keel, hub: HubServer, finished_run: Path, labelled: Callable[..., Path], tmp_path: Path
) -> None:
    """`keel.safetensors` and the settings of its task."""
    data = labelled("tag", 1, 20)
    changes = ["training.epochs=1", "task.crf=true"]
    finetune(str(finished_run), "tag", train=str(data), overrides=changes, out=str(tmp_path / "tagger"), quiet=True)
    hub.repositories["sea/tagger"] = Repository.of(tmp_path / "tagger")
    done = fetch("sea/tagger", "--out", "got", "--json", "--quiet")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert json.loads(done.stdout)["task"] == "tag"
    texts = ["The captain remembers the mast."]
    there, here = (package.load(str(tmp_path / name)).predict(texts) for name in ("tagger", "got"))
    assert here == there


def test_an_unknown_name(fetch: Keel, one_line: Callable[[Any], str]) -> None:
    line = one_line(fetch("sea/tinny-bert", "--quiet"))
    assert "sea/tinny-bert" in line and "no public model" in line and "huggingface.co/models" in line
    for wrong in ("./folder", "a/b/c", "..", "a--b/c", "x@", "name with blanks"):
        assert "not a public name" in one_line(fetch(wrong))


def test_revisions(fetch: Keel, hub: HubServer, one_line: Callable[[Any], str]) -> None:
    hub.repositories[NAME].tags = ("v1",)
    assert fetch(f"{NAME}@v1", "--out", "a").returncode == 0
    assert fetch(NAME, "--revision", hub.repositories[NAME].commit, "--out", "b").returncode == 0
    line = one_line(fetch(NAME, "--revision", "v2", "--quiet"))
    assert "'v2'" in line and NAME in line


def test_an_old_name_leads_to_the_new_one(fetch: Keel, hub: HubServer, tmp_path: Path) -> None:
    hub.aliases["tiny-bert"] = NAME
    done = fetch("tiny-bert", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["name"] == NAME


def test_a_gated_model(fetch: Keel, hub: HubServer, one_line: Callable[[Any], str]) -> None:
    hub.repositories[NAME].gated = True
    line = one_line(fetch(NAME, "--quiet"))
    assert f"https://huggingface.co/{NAME}" in line and "HF_TOKEN" in line
    assert weights_asked(hub) == []
    assert "HF_TOKEN" in one_line(fetch(NAME, "--quiet", HF_TOKEN="hf_wrong"))
    assert fetch(NAME, HF_TOKEN=TOKEN).returncode == 0
    (stored,) = hub.asked_for("/cdn/")
    assert "authorization" not in stored.headers, "another host does not get the token"


def test_a_private_model(fetch: Keel, hub: HubServer, one_line: Callable[[Any], str], home: Path) -> None:
    hub.repositories[NAME].private = True
    assert "HF_TOKEN if it is private" in one_line(fetch(NAME, "--quiet"))
    home.mkdir(exist_ok=True)
    (home / "token").write_text(TOKEN)  # of `hf auth login`
    assert fetch(NAME).returncode == 0


def test_no_network(warm: WarmKeel, home: Path, one_line: Callable[[Any], str], tmp_path: Path) -> None:
    line = one_line(warm.run("fetch", NAME, "--quiet", env=environment(None, home), cwd=tmp_path))
    assert "http://127.0.0.1:9" in line and "no connection" in line and "HF_ENDPOINT" in line
    wrong = environment(None, home, HF_ENDPOINT="nonsense")
    assert "HF_ENDPOINT: 'nonsense'" in one_line(warm.run("fetch", NAME, "--quiet", env=wrong, cwd=tmp_path))


def test_a_hub_that_fails_and_what_is_no_hub(fetch: Keel, hub: HubServer, one_line: Callable[[Any], str]) -> None:
    for status, said in (
        (503, "it answers 503"),
        (429, "too many requests"),
        (403, "status 403"),
        (200, "HF_ENDPOINT"),
    ):
        hub.failing = status
        assert said in one_line(fetch(NAME, "--quiet"))


def test_offline_mode(fetch: Keel, hub: HubServer, one_line: Callable[[Any], str]) -> None:
    line = one_line(fetch(NAME, "--quiet", HF_HUB_OFFLINE="1"))
    assert "HF_HUB_OFFLINE" in line and "cache" not in line and hub.log == []
    assert fetch(NAME).returncode == 0
    assert f"give {NAME} to any other command" in one_line(fetch(NAME, "--out", "x", "--quiet", HF_HUB_OFFLINE="1"))


def test_without_the_extra(home: Path, tmp_path: Path, one_line: Callable[[Any], str]) -> None:
    blocked = "import sys; sys.modules['huggingface_hub'] = None; from keel.cli.main import main; main()"
    command = [sys.executable, "-c", blocked, "fetch", NAME, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(None, home), cwd=tmp_path)
    assert "pip install 'keel-nlp[hub]'" in one_line(done)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 40 kilobytes, in memory. Only root may mount one."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root and a mount command")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_one_line_and_loses_nothing(
    fetch: Keel, hub: HubServer, small_disk: Path, one_line: Callable[[Any], str], tmp_path: Path
) -> None:
    size = len(hub.repositories[NAME].files[WEIGHTS])
    (small_disk / "filler").write_bytes(bytes(200_000 - size // 2))
    line = one_line(fetch(NAME, "--quiet", HF_HOME=str(small_disk)))
    assert "MB are needed" in line and "HF_HOME" in line
    assert weights_asked(hub) == []
    line = one_line(fetch(NAME, "--quiet", "--out", small_disk / "model"))
    assert "MB are needed" in line and "--out" in line and str(small_disk / "model") in line
    assert not (small_disk / "model").exists()
    (small_disk / "filler").unlink()
    assert fetch(NAME, "--out", small_disk / "model").returncode == 0
    package.load(str(small_disk / "model"))


def test_a_disk_that_fills_up_on_the_way_is_one_line_with_its_file(
    hub: HubServer, small_disk: Path, one_line: Callable[[Any], str], tmp_path: Path
) -> None:
    (small_disk / "filler").write_bytes(bytes(200_000 - len(hub.repositories[NAME].files[WEIGHTS]) // 2))
    code = "import keel.hugging_face.download as d; d.check_space = lambda *given: None; "
    command = [sys.executable, "-c", code + "from keel.cli.main import main; main()", "fetch", NAME, "--quiet"]
    full = environment(hub, small_disk)
    line = one_line(subprocess.run(command, capture_output=True, text=True, env=full, cwd=tmp_path))
    assert "the disk is full" in line and str(small_disk) in line and ".keel-partial" in line
    (small_disk / "filler").unlink()
    assert subprocess.run(command, capture_output=True, text=True, env=full, cwd=tmp_path).returncode == 0
    assert hub.asked_for("/cdn/")[-1].headers["range"].startswith("bytes=")


def test_two_fetches_at_once_do_not_mix(
    hub: HubServer,
    home: Path,
    start_keel: Callable[..., Any],
    fetch: Keel,
    one_line: Callable[[Any], str],
    tmp_path: Path,
) -> None:
    hub.break_after[WEIGHTS] = [1000, *[0] * 50]
    process = start_keel("fetch", NAME, "--out", "one", env=environment(hub, home), cwd=tmp_path)
    deadline = time.monotonic() + 60
    while len(hub.asked_for("/cdn/")) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert f"process {process.pid}" in one_line(fetch(NAME, "--out", "two", "--quiet"))


def test_a_model_with_nan_is_refused(
    fetch: Keel, hub: HubServer, published: Path, one_line: Callable[[Any], str], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(published / WEIGHTS)
    tensors["bert.pooler.dense.weight"][3, 5] = float("nan")
    save_file(tensors, tmp_path / WEIGHTS, metadata={"format": "pt"})
    hub.repositories[NAME].files[WEIGHTS] = (tmp_path / WEIGHTS).read_bytes()
    line = one_line(fetch(NAME, "--quiet"))
    assert "NaN" in line and line.startswith(f"keel: {NAME}:") and not (tmp_path / "tiny-bert").exists()


def test_what_huggingface_hub_has_stored_is_used_and_the_other_way_round(
    fetch: Keel, hub: HubServer, home: Path, tmp_path: Path
) -> None:
    """The cache is one: the same layout, the same names of blobs."""
    theirs = (
        "import huggingface_hub, sys; name, *files = sys.argv[1:]; "
        "print(*(huggingface_hub.hf_hub_download(name, file) for file in files))"
    )
    given = environment(hub, home, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

    def stored(**more: str) -> list[str]:
        command = [sys.executable, "-c", theirs, NAME, *hub.repositories[NAME].files]
        done = subprocess.run(command, capture_output=True, text=True, env=given | more)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first = stored()
    hub.log.clear()
    assert fetch(NAME).returncode == 0
    assert hub.asked() == [f"/api/models/{NAME}"]
    shutil.rmtree(home)
    assert fetch(NAME, "--out", "again").returncode == 0
    hub.log.clear()
    assert stored(HF_HUB_OFFLINE="1") == first and hub.log == []


def test_editing_the_folder_leaves_the_cache_as_it_is(fetch: Keel, home: Path, tmp_path: Path) -> None:
    assert fetch(NAME).returncode == 0
    blobs = {path: path.read_bytes() for path in home.rglob("blobs/*")}
    for path in (tmp_path / "tiny-bert").rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":
            path.write_text("edited in place")
    assert {path: path.read_bytes() for path in home.rglob("blobs/*")} == blobs
