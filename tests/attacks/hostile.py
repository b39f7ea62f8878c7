"""An evaluation of three problems by a server that treats one of them badly."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from loopback import MODEL, Play, loopback, says
from small import TASK_OF_THREE
from terse import TERSE

from orgthink.engines import Engines
from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.run import evaluate
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.record.episode import Episode, Sampling, StopReason
from orgthink.record.folder import RunFolder
from orgthink.util.errors import ErrorKind
from orgthink.util.http import RetryPolicy

ATTACKED = "sum 1 + 1"
"""The problem that the server answers badly."""

FINE = says("so <ANSWER> 3 </ANSWER>")

for name in ("anyio", "h11", "httpcore2", "pydantic", "trio", "truststore"):
    with suppress(ImportError):  # the first request imports them, for longer than its patience where a machine is busy
        import_module(name)

PATIENCE = RetryPolicy(silence=3.0, attempts=3, first_delay=0.01)


def planned(*organizations: str, tokens: int = 50, **changes: Any) -> Evaluation:
    specs = {name: OrganizationSpec(name, {"prompts": TERSE}) for name in organizations or ("sequential",)}
    return Evaluation(TASK_OF_THREE, specs, n=3, sampling=Sampling(tokens), **changes)


async def evaluated(
    path: Path, *plays: Play | tuple[str, Play], what: Evaluation | None = None, **settings: Any
) -> dict[str, Episode]:
    """Episodes by the text of their problem, from a run folder that is made or resumed. It must not hang."""
    what = what or planned()
    folder = RunFolder.open(path) if path.exists() else RunFolder.create(path, "eval", what)
    async with loopback(*plays) as server, asyncio.timeout(60):
        engine = await EndpointEngine.open(server.url, MODEL, **{"retry_policy": PATIENCE, **settings})
        resolved = resolve(what)
        episodes = await evaluate(resolved, Engines(dict.fromkeys(resolved.plan.engines, engine)), folder)
        await engine.aclose()
    return {episode.problem.text: episode for episode in episodes}


async def answered_badly(path: Path, bad: Play) -> Episode:
    """The episode with the bad answer. The others are whole; a resume asks only for it again, and gets it."""
    attempts = [(ATTACKED, bad)] * PATIENCE.attempts
    episodes = await evaluated(path, *attempts, *[FINE] * 2)
    attacked = episodes.pop(ATTACKED)
    assert [(episode.stop, episode.answer) for episode in episodes.values()] == [(StopReason.DONE, "3")] * 2
    if attacked.stop is StopReason.ERROR:
        again = await evaluated(path, FINE)
        assert [episode.stop for episode in again.values()] == [StopReason.DONE] * 3
    return attacked


async def refused(path: Path, bad: Play) -> str:
    """The error of the episode with the bad answer: the engine's, in one short line."""
    episode = await answered_badly(path, bad)
    assert (episode.stop, episode.error_kind) == (StopReason.ERROR, ErrorKind.ENGINE), episode.error
    assert episode.error and "\n" not in episode.error and len(episode.error) < 600
    return episode.error
