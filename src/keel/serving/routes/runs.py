"""The runs of `--runs DIR`, for the page: `/v1/runs`, a run's log as it grows, its report.

In: the id of a run, which is a hash: no path from a request reaches the file system. Out: what `keel runs` lists, the
entries of metrics.jsonl after a place in the file, the report page.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from keel.serving.routes._documents import OpenAIError, RunLog, Runs, errors, written
from keel.serving.service import Service, respond
from keel.stages.runs import list_runs

REPORT = "report.html"
MOST_BYTES = 4 << 20  # of a log, in one answer
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/runs", tags=["Runs"], responses=errors(OpenAIError))
    root = service.settings.runs

    folders = dict[str, Path]()  # of the runs that were listed, so that following one does not read all of them

    def list_again() -> list[dict[str, Any]]:
        found = _list(root)
        folders.update((run["id"], Path(run["folder"])) for run in found)
        return found

    def find(id: str) -> Path:
        if id not in folders:
            list_again()
        if id not in folders:
            raise HTTPException(404, "there is no such run")
        return folders[id]

    @routes.get("", response_model=Runs)
    async def runs() -> Response:
        """The training runs below the folder of --runs."""
        found = await asyncio.to_thread(list_again)
        shown = [{**run, "folder": os.path.relpath(run["folder"], root or ".")} for run in found]
        return respond({"enabled": root is not None, "runs": shown})

    @routes.get("/{id}/metrics", response_model=RunLog, responses=errors(OpenAIError, 404, 422))
    async def metrics(id: str, after: int = Query(0, ge=0, lt=1 << 62)) -> Response:
        """The log of a run from a place in its file on."""
        folder = await asyncio.to_thread(find, id)
        return respond(await asyncio.to_thread(_entries, folder / "metrics.jsonl", after))

    @routes.get("/{id}/report", response_class=Response, responses=errors(OpenAIError, 404, 422) | written("text/html"))
    async def report(id: str) -> Response:
        """The report page of a run."""
        path = await asyncio.to_thread(find, id) / REPORT
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except OSError:
            raise HTTPException(404, "this run has no report yet") from None
        return Response(content, 200, {"content-security-policy": REPORT_POLICY}, "text/html; charset=utf-8")

    return routes


def _list(root: Path | None) -> list[dict[str, Any]]:
    if root is None:
        return []
    return [
        {
            "id": hashlib.sha256(os.fsencode(run["folder"])).hexdigest()[:16],
            "report": (Path(run["folder"]) / REPORT).is_file(),
            **run,
        }
        for run in list_runs([str(root)])
    ]


def _entries(path: Path, after: int) -> dict[str, Any]:
    """The whole lines after a place in the file, and the place to continue at."""
    try:
        with path.open("rb") as file:
            if after > os.fstat(file.fileno()).st_size:  # the run began anew
                after = 0
            file.seek(after)
            content = file.read(MOST_BYTES)
    except OSError:
        return {"entries": [], "next": 0}
    whole = content[: content.rfind(b"\n") + 1]
    entries = []
    for line in whole.splitlines():
        try:
            entries.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue
    return {"entries": entries, "next": after + len(whole)}
