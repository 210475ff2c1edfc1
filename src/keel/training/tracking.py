"""`--track NAME`: the entries of `metrics.jsonl`, also in the format of another program.

In: the entries that a run logs. Out: files in a folder of their own below the run's, which no stage of Keel reads.

Notable choices
- Keel writes the events of TensorBoard itself, one record for each entry. torch's `SummaryWriter` would add a thread,
  hold records back for two minutes, and import tensorflow where that is installed.
- Training and evaluation are two runs to TensorBoard, so that a metric's two curves are in one chart.
- A resumed run begins a file that discards the points which it will repeat, as `metrics.jsonl` does.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

from keel.errors import UserError, suggest
from keel.training.state import State

NOT_PLOTTED = ("kind", "step", "elapsed", "progress", "tokens", "held_out_share", "plateau")


class Tracker(Protocol):
    def log(self, entry: dict[str, Any]) -> None:
        """Writes an entry, at once."""

    def close(self) -> None: ...


class TensorBoard:
    """Event files in OUT/tensorboard/train and OUT/tensorboard/evaluation."""

    def __init__(self, out: Path, state: State) -> None:
        self.written = {"train": state.step, "evaluation": state.evaluated}  # the last steps before the resumed run
        self.files = {kind: _EventFile(out / "tensorboard" / kind, step + 1) for kind, step in self.written.items()}

    def log(self, entry: dict[str, Any]) -> None:
        kind, step = entry["kind"], entry["step"]
        if step > self.written[kind]:  # the end of a run that is resumed at its end is evaluated again
            self.files[kind].write(step, {name: figure for name, figure in entry.items() if name not in NOT_PLOTTED})

    def close(self) -> None:
        for file in self.files.values():
            file.close()


class _EventFile:
    """A new file after those of the folder; it discards their points from `first` on."""

    def __init__(self, folder: Path, first: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / f"events.out.tfevents.{time.time_ns():020d}").open("xb")
        self.records = RecordWriter(self.file)
        self._append(Event(file_version="brain.Event:2"))
        self._append(Event(step=first, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, figures: dict[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._append(Event(step=step, summary=Summary(value=values)))

    def _append(self, event: Any) -> None:
        event.wall_time = time.time()
        self.records.write(event.SerializeToString())
        self.file.flush()

    def close(self) -> None:
        self.file.close()


TRACKERS = {"tensorboard": TensorBoard}


def check_tracker(name: str) -> None:
    """Raises unless this tracker exists and its packages are installed."""
    if name not in TRACKERS:
        raise UserError(f"--track {name}: there is no tracker of this name.{suggest(name, TRACKERS)}")
    try:
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError:
        raise UserError("--track tensorboard writes TensorBoard's files: pip install 'keel-nlp[track]'") from None


def open_tracker(name: str, out: Path, state: State) -> Tracker:
    return TRACKERS[name](out, state)
