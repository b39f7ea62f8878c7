"""Answers within the bounds of bytes that would take long, or much memory, to read; and a user's end that is gone."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import pytest
from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, FINE, evaluated, planned
from loopback import Exchange, says

from orgthink.record import episode_json
from orgthink.record import folder as store
from orgthink.record.episode import StopReason
from orgthink.runtime import session
from orgthink.runtime.budget import Limits
from orgthink.util import files

pytestmark = pytest.mark.thorough


FORKING = "".join(f"<FORK-{i}> q </FORK-{i}> " for i in range(1, 401)) + "<JOIN-1> "
"""An answer of 400 forks, in one event."""


def forks(exchange: Exchange) -> Awaitable[None]:
    return says(FORKING.replace(" ", "\xa0"))(exchange)


WIDE = "Deadlines and a most number of agents end an episode that forks for ever."


@each(
    Attack("every answer has 400 forks, three levels deep, and a deadline of half a second", WIDE, "deadline",
           (Limits(1000, depth=3, episode_seconds=0.5), StopReason.DEADLINE)),
    Attack("every answer has 400 forks, three levels deep, and no deadline", WIDE, "all agents but 10,000 are refused",
           (Limits(1000, depth=3), StopReason.BUDGET)),
)  # fmt: skip
async def test_forks_for_ever(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, stop = attack.given
    monkeypatch.setattr(session, "FORKS", 1_000)  # none of which takes long
    what = replace(planned("asyncthink", tokens=2_000, limits=limits), n=1)
    episodes = await evaluated(tmp_path / "run", *[forks] * 2_000, what=what)
    (episode,) = episodes.values()
    assert episode.stop is stop and len(episode.traces) <= 1_001 and episode.seconds < 30


STORED = "An episode that is too long to be read again ends with an error, and its folder stays readable."


@each(Attack("an episode longer than a line may be (here 16 KiB)", STORED, "the others go on", "so " * 6_000))
async def test_an_episode_that_is_too_long(attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (episode_json, files):  # who writes, and who reads
        monkeypatch.setattr(module, "LONGEST_LINE", 1 << 14)
    plays = (ATTACKED, says(attack.given + "<ANSWER> 3 </ANSWER>")), *[FINE] * 2
    episodes = await evaluated(tmp_path / "run", *plays, what=planned(tokens=20_000))
    long = episodes.pop(ATTACKED)
    assert long.stop is StopReason.ERROR and "longer than" in (long.error or "")
    assert [episode.answer for episode in episodes.values()] == ["3", "3"]
    assert len(list(store.RunFolder.open(tmp_path / "run").episodes())) == 3
