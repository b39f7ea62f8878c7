"""Chains as older checkpoints held them go on as if they had been episodes all along."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mars_words import Habits, WordEngine, problems_file
from terse import TERSE

from orgthink.record.episode import Episode, StopReason
from orgthink.training.marsrl.chain import OutputGroup, Rules, last_groups, outputs_of
from orgthink.training.marsrl.pipeline import Chains
from orgthink.training.marsrl.rollout import MarsRollout
from orgthink.training.marsrl.settings import MarsSettings
from orgthink.training.rl import Batch, Clock
from orgthink.util.validation import plain

HABITS = Habits(solves=0.3, accuses=0.7, rambles=0.1, spellings=50)
CLOCK = 1.7e9
"""Times were seconds of the wall clock."""


@pytest.fixture
def settings(tmp_path: Path) -> MarsSettings:
    plan = MarsRollout(problems_file(tmp_path, *range(7, 30)), TERSE, max_tokens=14, segment=5, problems=2, group=4)
    return MarsSettings(plan, steps=1, learning_rate=1e-3)


def ticked(chains: Chains, first: int, ticks: int) -> list[Batch]:
    async def go() -> list[Batch]:
        engine, batches = WordEngine(HABITS), []
        for tick in range(first, first + ticks):
            engine.version = str(tick)
            batches.append(await chains.collect(engine, tick, Clock()))
        return batches

    return asyncio.run(go())


def as_old(rules: Rules, episode: Episode) -> dict[str, Any]:
    """The JSON values that commit a46cad4 wrote for a chain."""
    last = last_groups(episode.traces)
    stage = last[0].places[0].count(".")
    groups = [_group(rules, episode, group) for group in last]
    return {"number": episode.sample, "problem": plain(episode.problem), "stage": stage, "groups": groups}


def _group(rules: Rules, episode: Episode, group: OutputGroup) -> dict[str, Any]:
    asked = rules.input(episode.problem, outputs_of(episode.traces), group.source)
    assert asked is not None
    name = rules.group_id(episode.problem, episode.sample, asked)
    shown = {"stream": asked.stream, "solution": asked.solution, "right": asked.right, "report": asked.report}
    members = []
    for i, (trace, seed) in enumerate(zip(group.outputs, rules.seeds(name), strict=True)):
        old: dict[str, Any] = plain(trace)
        spans = [s | {end: s[end] and s[end] + CLOCK for end in ("start", "end")} for s in old["spans"]]
        over = trace.stop is not StopReason.LENGTH
        old |= {
            "agent": f"{asked.stream}/{i}",
            "parent": None,
            "spans": spans if trace.turns else [],
            "returned": None,
            "start": 0.0,
            "end": old["end"] + CLOCK,
        }
        if trace.stop in (StopReason.BUDGET, StopReason.LENGTH):
            old |= {"stop": "length", "status": "truncated"}
        else:
            old |= {"status": "ok"}
        members.append({"trace": old, "seed": seed, "finished": over})
    return {"id": name, "asked": shown, "members": members, "trained": group.finished}


@pytest.mark.parametrize("ticks", [1, 2, 4, 6, 8, 11])
def test_old_chains_go_on_to_the_bit(settings, tmp_path, ticks):
    chains, again = Chains(settings), Chains(settings)
    ticked(chains, 0, ticks)
    chains.snapshot()(tmp_path)
    file = tmp_path / "chains.json"
    state = json.loads(file.read_text())
    under_way = [chain.episode for chain in chains._chains if chain.episode is not None]
    file.write_text(json.dumps(state | {"chains": [as_old(chains._rules, one) for one in under_way]}))
    again.load(tmp_path, ticks)
    one, other = (ticked(source, ticks, 6) for source in (chains, again))
    assert [timeless(batch.rows) for batch in one] == [timeless(batch.rows) for batch in other]
    assert [timeless(batch.metrics) for batch in one] == [timeless(batch.metrics) for batch in other]
    assert sum(len(batch.rows) for batch in one) > 0
    for batch in other:
        measured = settings.measure(batch.episodes)
        assert measured == {name: batch.metrics[name] for name in measured}, "the record tells what was trained"


def timeless(value: Any) -> Any:
    """Without names that tell the place in a tree, of which old chains knew only the end, and without seconds."""
    if isinstance(value, dict):
        return {name: one for name, one in value.items() if name != "wait"}
    return [plain(row) | {"agent": ""} for row in value]
