"""Evaluations on demand: each a run folder that is made once, for every plan and every weights."""

from __future__ import annotations

import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from orgthink_pocket.shipped import MODELS

from experiments.shared.runs import fingerprint, metrics, model_folder
from orgthink.engines import EngineSpec, engine_spec
from orgthink.engines.opening import Engines
from orgthink.episode import Episode
from orgthink.errors import UserError
from orgthink.evaluation import Evaluation, engine_failed, evaluate, failure_message, resolve
from orgthink.store import RunFolder, plain

Design = TypeVar("Design")
"""How much a recipe evaluates."""


class OfModel(Protocol):
    """One thing to evaluate."""

    @property
    def model(self) -> str:
        """Name of the trained run or shipped model that it is about."""
        ...


Setting = TypeVar("Setting", bound=OfModel)


@dataclass
class Laboratory(Generic[Design]):
    """Evaluates on demand what is not evaluated yet. Used as a context: it closes the engines it opened."""

    runs: Path
    """Folder of the run folders."""
    design: Design
    """How much is evaluated."""
    stand_in: str | None = None
    """A model that stands in for every trained one, to try the script."""
    seconds: dict[Path, float] = field(default_factory=dict)
    """What each evaluation took that was asked for, whenever it was made."""
    _engines: Engines = field(default_factory=lambda: Engines(threaded=True))
    """That decode in a thread."""
    _timed: Engines = field(default_factory=lambda: Engines(threaded=False))
    """That decode on the event loop: one episode at a time is timed, and two threads that wait for one interpreter
    would be timed with it."""

    folder: ClassVar[str]
    """Of all evaluations of a recipe, beside the runs."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._engines.__aexit__()
        await self._timed.__aexit__()

    def model(self, name: str) -> str:
        """The name of a trained run or shipped model, or of what stands in for it."""
        return name if self.stand_in is None or (MODELS / name).is_dir() else self.stand_in

    def shipped(self, name: str) -> bool:
        """Whether nothing has to be trained for it."""
        return self.stand_in is not None or (MODELS / name).is_dir()

    def spec(self, name: str) -> EngineSpec:
        """Whose tokens a run's are; UserError if it is not finished."""
        return engine_spec(self.model(name) if self.shipped(name) else str(model_folder(self.runs, name)))

    async def evaluated(self, name: str, plan: Evaluation) -> list[Episode]:
        """The episodes of a plan; only those that are missing are made. UserError if the engine broke any."""
        path = self._path(name, plan)
        folder = RunFolder.open(path) if path.is_dir() else RunFolder.create(path, "eval", plan)
        found = list(folder.episodes())
        wanted = plan.n * plan.samples
        if len(found) < wanted or any(map(engine_failed, found)):
            print(f"{path.name}: {wanted - len(found)} episodes …", end=" ", flush=True)
            engines = self._engines if plan.concurrency > 1 else self._timed
            resolved, began = await resolve(plan).opened(engines), time.perf_counter()
            found = await evaluate(resolved, engines, folder)
            print(f"{time.perf_counter() - began:.0f} s", flush=True)
        failed = [episode for episode in found if engine_failed(episode)]
        if failed:
            raise UserError(
                f"{len(failed)} episodes of {path} failed ({failure_message(failed[0])}): run the command again"
            )
        self.seconds[path] = took(path)
        return found

    def _path(self, name: str, plan: Evaluation) -> Path:
        """A folder of its own for every plan and every weights."""
        specs = dict.fromkeys((plan.engine, *(role.engine for role in plan.roles.values())))
        folders = [spec.folder for spec in specs if spec.folder is not None]
        decisive = json.dumps(plain(plan), sort_keys=True) + "".join(map(fingerprint, folders))
        digest = hashlib.sha256(decisive.encode()).hexdigest()[:8]
        return self.runs / self.folder / f"{name.replace('/', '-')}-{digest}"


def took(path: Path) -> float:
    """Seconds that an evaluation took, over all its sessions."""
    elapsed = [line["elapsed"] for line in metrics(path)]
    return sum(now for now, later in zip(elapsed, [*elapsed[1:], 0.0], strict=True) if later < now)


class Evaluating(Protocol[Setting]):
    """A laboratory that knows everything that its tables need."""

    def needed(self) -> list[Setting]:
        """Each setting once: a list that does not change while trainings go on."""
        ...

    def ready(self, setting: Setting) -> bool:
        """Whether everything that it evaluates is trained."""
        ...

    async def attempts(self, setting: Setting) -> object:
        """Evaluate it, unless that is done."""
        ...


def share(text: str) -> tuple[int, int]:
    """I and N of `I/N`; UserError if it is none."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise UserError(f"--evaluate {text}: write I/N, where I counts from 0 to N - 1, such as 0/2")
    return int(found[1]), int(found[2])


async def evaluate_share(lab: Evaluating[Setting], i: int, n: int) -> None:
    """One process's share. The shares are the same whatever is evaluated or trained already, so they never meet."""
    for setting in lab.needed()[i::n]:
        if lab.ready(setting):
            await lab.attempts(setting)
        else:
            print(f"{setting.model} is not trained yet, or a model beside it: skipped", flush=True)
