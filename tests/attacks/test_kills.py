"""Processes that are killed while they write: what the next one finds, and what it makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, FINE, evaluated, planned
from loopback import answers

from orgthink.evaluation.run import spending
from orgthink.measure.usage import Price
from orgthink.record.episode import StopReason
from orgthink.record.folder import RunFolder

pytestmark = pytest.mark.thorough

GOES_ON = "A run that was killed in the middle of a line goes on; what was whole is read, and counts once."


@each(
    Attack("a kill in the middle of a line of failed.jsonl", GOES_ON, "the line is written anew", "failed"),
    Attack("a kill between failed.jsonl and episodes.jsonl", GOES_ON, "the episode is charged once", "both"),
    Attack("a kill in the middle of a line of metrics.jsonl", GOES_ON, "the line is left out", "metrics"),
)
async def test_a_kill_in_a_line(attack: Attack, tmp_path: Path) -> None:
    what = planned(prices={"tiny": Price(1.0, 1.0)}, max_dollars=1000.0)
    run = tmp_path / "run"
    await evaluated(run, (ATTACKED, answers(400)), *[FINE] * 2, what=what)
    (failed,) = [line for line in (run / "episodes.jsonl").read_bytes().splitlines(True) if b'"stop":"error"' in line]
    match attack.given:
        case "failed":
            (run / "failed.jsonl").write_bytes(failed[:100])
        case "both":
            (run / "failed.jsonl").write_bytes(failed)
        case _:
            with (run / "metrics.jsonl").open("ab") as file:
                file.write(b'{"elapsed": 1')
    for plays in ([FINE], []):  # a resume, and one of what it has left
        episodes = await evaluated(run, *plays, what=what)
        assert [each.stop for each in episodes.values()] == [StopReason.DONE] * 3
    folder = RunFolder.open(run)
    assert [each.stop for each in folder.failed()] == [StopReason.ERROR]
    assert len(list(folder.metrics())) == 4
    assert spending(what, folder, folder.episodes()).reached is None
