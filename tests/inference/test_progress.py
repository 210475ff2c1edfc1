"""The time left of a bulk prediction, as a log or a bar shows it."""

from __future__ import annotations

import pytest

from keel.cli import common
from keel.inference.progress import RowProgress, row_progress


def test_time_left_and_speed_are_those_of_this_run(capsys: pytest.CaptureFixture[str]) -> None:
    now, said = [0.0], list[RowProgress]()
    tell = row_progress(said.append, total=2000, rows_before=500, clock=lambda: now[0])
    for second in range(1, 6):
        now[0] = float(second)
        tell(500 + 100 * second, 1000 + 200 * second)  # a row has two lines
    assert said[-1].rows == 1000 and said[-1].rows_per_second == pytest.approx(100)
    assert (said[-1].done, said[-1].total, said[-1].left) == (2000, 2000, "0:00:00")
    assert [one.left for one in said] == ["0:00:04", "0:00:03", "0:00:02", "0:00:01", "0:00:00"]
    lines = common._Lines("predict", clock=lambda: 10.0 * len(said))
    lines(RowProgress(100, 400, 90, 12.5, "1:02:03"))
    said.append(said[0])
    lines(RowProgress(200, 400, 180, 12.5, "0:00:16"))
    assert capsys.readouterr().err.splitlines()[-1] == "predict: 50 % rows 180  rows_per_second 12.5  left 0:00:16"


def test_rows_count_where_lines_mean_nothing() -> None:
    now, said = [0.0], list[RowProgress]()
    tell = row_progress(said.append, total=0, rows_before=0, clock=lambda: now[0])
    now[0] = 2.0
    tell(50, 0)
    assert said == [RowProgress(50, 0, 50, 25.0, "?")]
