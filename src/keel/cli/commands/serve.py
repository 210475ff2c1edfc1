"""`keel serve`: models behind HTTP, and a page."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keel.cli import common
from keel.errors import UserError

if TYPE_CHECKING:
    from keel.serving.settings import Settings

NEEDED = ("fastapi", "httptools", "orjson", "prometheus_client", "uvicorn")

DAY = 86_400.0  # seconds

ModelFolders = Annotated[
    list[str] | None, typer.Argument(metavar="MODEL", help="Model folders, or NAME=FOLDER to give them other names.")
]


def option(name: str, help: str, metavar: str = "N", **more: object) -> object:
    """An option that can be set by the environment too: `--max-queue` by KEEL_MAX_QUEUE."""
    variable = "KEEL_" + name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(name, help=help, metavar=metavar, envvar=variable, show_envvar=False, **more)  # type: ignore[arg-type]


def flag(name: str, help: str, *short: str) -> object:
    variable = "KEEL_" + name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(name, *short, help=help, envvar=variable, show_envvar=False)


MaxWait = Annotated[float, option("--max-wait-ms", "Wait this long for a batch to fill.", min=0, max=60_000)]
HeaderTimeout = Annotated[float, option("--header-timeout", "Seconds for header lines.", "S", min=0.1, max=DAY)]
AllowPickle = Annotated[bool, flag("--allow-pickle", "Also load pytorch_model.bin, a pickle.")]


def serve(
    models: ModelFolders = None,
    host: Annotated[str, option("--host", "Address to listen on; 0.0.0.0: all networks.", "ADDRESS")] = "127.0.0.1",
    port: Annotated[int, option("--port", "Port; 0: a free one.", "PORT")] = 8080,
    api_key: Annotated[str | None, option("--api-key", "Every route but /health needs this key.", "KEY")] = None,
    workers: Annotated[int, option("--workers", "Processes; they share the memory of the weights.", min=1)] = 1,
    threads: Annotated[int | None, option("--threads", "CPU threads of each worker.", min=1)] = None,
    runs: Annotated[str | None, option("--runs", "Show the training runs below this folder.", "DIR")] = None,
    max_batch_tokens: Annotated[int, option("--max-batch-tokens", "Tokens computed together.", min=1)] = 4096,
    max_wait_ms: MaxWait = 0.0,
    max_queue: Annotated[int, option("--max-queue", "Requests at once; more get 429.", min=1)] = 512,
    max_texts: Annotated[int, option("--max-texts", "Texts in a request.", min=1)] = 1024,
    max_characters: Annotated[int, option("--max-characters", "Characters in a request.", min=1)] = 1 << 19,
    max_body: Annotated[int, option("--max-body", "Bytes of a request's body.", min=1)] = 4 << 20,
    timeout: Annotated[float, option("--timeout", "Seconds for an answer.", "S", min=0.001, max=DAY)] = 60.0,
    header_timeout: HeaderTimeout = 10.0,
    body_timeout: Annotated[float, option("--body-timeout", "Seconds for a body.", "S", min=0.1, max=DAY)] = 25.0,
    drain: Annotated[float, option("--drain", "Seconds for open requests at the end.", "S", min=1, max=DAY)] = 25.0,
    cors: Annotated[list[str] | None, option("--cors", "Let pages of this origin ask; repeatable.", "ORIGIN")] = None,
    log_texts: Annotated[bool, flag("--log-texts", "Log the texts too.")] = False,
    device: Annotated[str, option("--device", "Device to run on.", "auto|cpu|cuda|mps")] = "auto",
    allow_pickle: AllowPickle = False,
    demo: Annotated[bool, flag("--demo", "Serve the models of keel demo; MODEL is its folder.")] = False,
    quiet: Annotated[bool, flag("--quiet", "Log no requests.", "-q")] = False,
) -> None:
    """Answers over HTTP, and shows a page in the browser. The answers are those of keel predict, embed and fill. Every
    option can be set by the environment: --max-queue by KEEL_MAX_QUEUE."""
    given = {name: value for name, value in locals().items() if name not in ("models", "demo", "cors", "runs")}
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise UserError(f"keel serve needs {missing[0]}: pip install 'keel-nlp[serve]'")
    from keel.serving.settings import Settings

    settings = Settings(**given, cors=tuple(cors or ()), runs=Path(runs) if runs else None)
    settings.check()
    if demo:
        models, settings = _of_demo(models or [], settings)
    if not models:
        raise UserError("serve needs MODEL, the folder of a model, or --demo. See keel serve --help.")
    _serve(models, settings)


def _of_demo(folders: list[str], settings: Settings) -> tuple[list[str], Settings]:
    """The models of a demo, which is run first if need be: by itself, for workers are forked from a process that has
    computed nothing."""
    from keel.demo.folders import DEFAULT, demo_models

    if len(folders) > 1:
        raise UserError("--demo: give one folder, that of the demo, or none")
    folder = Path(folders[0] if folders else DEFAULT)
    if not demo_models(folder):
        from keel.serving.server import listen

        listen(settings.host, settings.port).close()  # rather now than in some minutes
        typer.echo(f"{folder}: making the models of the demo, which takes some minutes")
        command = [sys.executable, "-c", "from keel.cli.main import main; main()", "demo", "--out", str(folder)]
        if code := subprocess.run(command).returncode:
            raise typer.Exit(code)
    named = [f"{name}={path}" for name, path in demo_models(folder).items()]
    return named, settings if settings.runs else replace(settings, runs=folder)


def _serve(folders: list[str], settings: Settings) -> None:
    from keel.serving.workers import SHARED_METRICS, check_workers, shared_metrics

    check_workers(settings.workers)
    os.environ.pop(SHARED_METRICS, None)
    with shared_metrics() if settings.workers > 1 else contextlib.nullcontext():
        _serve_here(folders, settings)


def _serve_here(folders: list[str], settings: Settings) -> None:
    common.use_threads(settings.threads)
    from keel.serving.models import load_models, parse_models
    from keel.serving.server import address, check_device, listen, serve

    named = parse_models(folders)
    listening = listen(settings.host, settings.port)
    check_device(settings)
    models = load_models(named, settings.device, settings.allow_pickle)
    for one in models:
        typer.echo(f"{one.name}: {', '.join(one.abilities)}")
    typer.echo(f"serving on {address(listening)} (Ctrl-C stops)")
    serve(models, settings, listening)


COMMAND = common.Command(
    serve,
    help="Serve models over HTTP, with a page.",
    order=155,
    examples=[
        "keel serve --demo",
        "keel serve my-classifier",
        "keel serve reviews=my-classifier encoder=my-model --port 9000",
        "keel serve my-model --host 0.0.0.0 --api-key $(openssl rand -hex 16) --workers 2",
    ],
)
