"""The evaluations of an arena: each is a run folder that is made when it is first needed, and resumed."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from orgthink.engines import Engines
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.run import evaluate, open_plan
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.record.guard import engine_failed, failure_message
from orgthink.util.errors import UserError
from orgthink.util.references import absolute
from orgthink.util.settings import plain
from orgthink.util.terminal import show


class Stopped(Exception):
    """Ctrl-C stopped an incomplete evaluation."""


class Evaluations:
    """Runs missing evaluations. As a context manager it closes the engines that it opened."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        """Once `stop` is set, no more episodes begin."""
        self._stop = stop
        self._engines = Engines(threaded=True)
        """Engines that decode in a thread."""
        self._timed = Engines(threaded=False)
        """Engines that decode on the event loop, to time single episodes. With two threads, the waits for the
        interpreter would be measured as well."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._engines.__aexit__()
        await self._timed.__aexit__()

    async def episodes(self, path: Path, plan: Evaluation, name: str = "") -> list[Episode]:
        """The episodes of a plan, in its order; missing ones are run. `name` is for the line of progress.

        UserError if the folder holds another evaluation, or if an episode failed with an engine error. Stopped if some
        are missing because `stop` is set.
        """
        begun = (path / "config.json").is_file()  # a kill may have left a folder without it
        folder = RunFolder.open(path) if begun else RunFolder.create(path, "eval", plan)
        require_same(folder, plan)
        found = list(folder.episodes())
        resolved = resolve(plan)
        if len(found) < len(resolved.planned) or any(map(engine_failed, found)):
            missing = len(resolved.planned) - sum(not engine_failed(episode) for episode in found)
            show(f"{name or path.name}: {missing} episodes …", end=" ")
            engines = self._engines if plan.concurrency > 1 else self._timed
            resolved = replace(resolved, plan=await open_plan(resolved.plan, engines))
            began = time.perf_counter()
            found = await evaluate(resolved, engines, folder, stop=self._stop)
            show(f"{time.perf_counter() - began:.0f} s")
        failed = [episode for episode in found if engine_failed(episode)]
        if failed:
            raise UserError(
                f"{len(failed)} episodes of {path} failed ({failure_message(failed[0])}): run the command again"
            )
        if len(found) < len(resolved.planned):
            raise Stopped
        return resolved.in_order(found)


def require_same(folder: RunFolder, plan: Evaluation) -> None:
    """UserError if a folder holds the evaluation of another plan; the name of a server's only model may be new."""
    found, wanted = folder.settings("eval", Evaluation), absolute(plain(plan))
    if plan.engine.model is None:
        wanted["engine"]["model"] = found.engine.model
    if _decisive(plain(found)) != _decisive(wanted):
        raise UserError(f"{folder.path} holds an evaluation of other settings: move it away, or choose another folder")


def _decisive(plan: dict[str, Any]) -> dict[str, Any]:
    """The values that decide the result: how many episodes run at once does not, unless it is one."""
    return {**plan, "concurrency": plan["concurrency"] > 1, "n": plan["wanted"] or plan["n"], "wanted": None}
