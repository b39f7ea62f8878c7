"""AsyncThink by calls is trained by the paper's recipe: the same reward and credit, on the rows of what it sampled."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from dictated import Dictated
from random_model import write_random_model
from terse import TERSE
from test_dry_run import SMALL

from orgthink.grammar.toolcall import ToolCall, render_call
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import FormatError, Origin
from orgthink.record.folder import RunFolder
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.recipes.registry import RECIPES, Training, adjusted
from orgthink.training.rl import train_policy


def organizing(seen: str, luck: Random) -> str:
    """Two workers at most, now and then a wrong id, and an answer that is right by luck."""
    answer = int(re.findall(r"\d+", seen.partition("caller 4 ")[2] or seen)[0])
    forks = len(re.findall(r'"fork", "status": "OK"', seen))
    if "subtask" in seen:
        return f" it is {answer}"
    if not forks:
        return "".join(render_call(ToolCall("fork", {"task": f"part {i}"})) for i in range(luck.randint(1, 2)))
    if '"join"' not in seen:
        return "".join(render_call(ToolCall("join", {"id": i + 1})) for i in range(forks + (luck.random() < 0.2)))
    return f" so <ANSWER> {answer + luck.randrange(2)} </ANSWER>"


@pytest.mark.thorough
def test_steps_of_the_recipe_by_calls(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text("".join(json.dumps({"problem": n, "answer": n}) + "\n" for n in (7, 12, 5)))
    folder = write_random_model(tmp_path / "model", SMALL, layers=2, dtype="float32")
    organization = (f"organization.settings.prompts={TERSE}", "organization.settings.protocol=tools")
    small = (f"task=math:{problems}", "problems=2", "group=8", *organization)
    given = (*(f"rollout.{one}" for one in small), "steps=3", "drift=1e-4", "learning_rate=1e-3")
    job = adjusted(RECIPES["asyncthink-qwen3-math"], {"model": str(folder)}, given)
    sampler = Dictated(folder, tmp_path / "copy", organizing)
    backend = EmbeddedBackend(open_trainable(folder), sampler, folder, pack_tokens=job.pack_tokens)
    source, lines, batches = job.source(), [], []
    collect = source.collect

    async def noted(*place: Any) -> Any:
        batches.append(await collect(*place))
        return batches[-1]

    source.collect = noted  # type: ignore[method-assign]
    run = RunFolder.create(tmp_path / "run", "train", Training("asyncthink-qwen3-math", job))
    train_policy(backend, source, job.settings, run, lines.append)
    episodes = list(run.episodes())
    assert any((line["gradient_norm"] or 0) > 0 for line in lines)
    assert {len(episode.traces) for episode in episodes} == {2, 3}
    faults = [fault.kind for episode in episodes for fault in episode.format_faults]
    assert faults and set(faults) == {FormatError.UNKNOWN_JOIN}
    rewards = {AsyncThinkReward(accuracy="all")(episode).total for episode in episodes}
    assert -0.5 in rewards and max(rewards) > 1.0, "a format error, and a right answer with workers side by side"
    spans = {(e.id, t.agent): t.spans for e in episodes for t in e.traces}
    for row in (row for batch in batches for row in batch.rows):
        own = spans[row.episode, row.agent]
        trained = [i for i, mask in zip(row.token_ids, row.trained, strict=True) if mask]
        assert trained == [i for span in own if span.origin is Origin.SAMPLED for i in span.token_ids or ()]
    assert {row.role for batch in batches for row in batch.rows} == {"organizer", "worker"}
