"""A member of a pool on the local engine, with another tokenizer than the organizer's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from longest_path import longest_path
from models import tiny_model
from rules import PROBLEM

from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.measure.latency import critical_path
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Origin, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.training.rows import policy_row

LEADS = (" a <FORK-1 model=small> one </FORK-1> <JOIN-1>", " <ANSWER> 5 </ANSWER>")


@pytest.mark.parametrize("context", ["instruction", "inherit"])
async def test_a_local_model_reads_and_samples_its_own_tokens(tmp_path: Path, context: str) -> None:
    engine = LocalEngine.open(tiny_model(tmp_path, "bytes", context=4096), threaded=False, dtype=torch.float32)
    organizer = Backing(ScriptedEngine([Turn(text, seconds=0.0) for text in LEADS]), Sampling(50))
    how = {"roles": {"small": Backing(engine, Sampling(20, seed=0))}, "limits": Limits(2)}
    organization = AsyncThink(pool={"small": "quick"}, worker_context=context, tolerant=True)  # type: ignore[arg-type]
    episode = await attempt(organization, PROBLEM, organizer, **how)  # type: ignore[arg-type]
    worker = episode.traces[1]
    told = worker.spans[0].text
    assert (episode.answer, worker.role, worker.model, worker.steps) == ("5", "small", engine.model, 20)
    assert [span.origin for span in worker.spans] == [Origin.PROMPT, Origin.SAMPLED]
    assert (" a <FORK-1 model=small> one </FORK-1>" in told) == (context == "inherit") and "one" in told
    assert engine._tokenizer.decode(worker.spans[0].token_ids or ()) == told
    row = policy_row(worker, episode="e", group="g", advantage=1.0)
    assert sum(row.trained) == worker.steps and critical_path(episode) == longest_path(episode)
    await engine.aclose()
