"""Evaluations on demand. Each is a run folder that is written once for each plan and each version of the weights."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from orgthink_pocket.shipped import MODELS

from experiments.shared.runs import fingerprint, metrics, model_folder
from orgthink.arena.on_demand import OnDemand
from orgthink.engines import EngineSpec, engine_spec
from orgthink.episode import Episode
from orgthink.errors import UserError
from orgthink.evaluation import Evaluation
from orgthink.validation import plain

Design = TypeVar("Design")
"""Size of the evaluations of a paper."""


class OfModel(Protocol):
    """One evaluation of a model."""

    @property
    def model(self) -> str:
        """Name of the trained run or shipped model."""
        ...


Setting = TypeVar("Setting", bound=OfModel)


@dataclass
class Laboratory(Generic[Design]):
    """Runs missing evaluations on demand. As a context manager it closes the engines that it opened."""

    runs: Path
    """Folder of the run folders."""
    design: Design
    """Size of the evaluations."""
    stand_in: str | None = None
    """Name of a model that replaces every trained one, to try the script."""
    seconds: dict[Path, float] = field(default_factory=dict)
    """Seconds of each requested evaluation, including earlier sessions, by folder."""
    _on_demand: OnDemand = field(default_factory=OnDemand)
    """Runs what is missing."""

    folder: ClassVar[str]
    """Name of the folder of all evaluations of a paper, inside the folder of runs."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._on_demand.__aexit__(*error)

    def model(self, name: str) -> str:
        """The name of a trained run or shipped model, or of its replacement."""
        return name if self.stand_in is None or (MODELS / name).is_dir() else self.stand_in

    def shipped(self, name: str) -> bool:
        """Whether the model needs no training."""
        return self.stand_in is not None or (MODELS / name).is_dir()

    def spec(self, name: str) -> EngineSpec:
        """The engine of a run or shipped model. UserError if the run is not finished."""
        return engine_spec(self.model(name) if self.shipped(name) else str(model_folder(self.runs, name)))

    async def evaluated(self, name: str, plan: Evaluation) -> list[Episode]:
        """The episodes of a plan. Missing ones are run. UserError if an episode failed with an engine error."""
        path = self._path(name, plan)
        found = await self._on_demand.episodes(path, plan)
        self.seconds[path] = took(path)
        return found

    def _path(self, name: str, plan: Evaluation) -> Path:
        """The folder for a plan and the weights of its models."""
        specs = dict.fromkeys((plan.engine, *(role.engine for role in plan.roles.values())))
        folders = [spec.folder for spec in specs if spec.folder is not None]
        decisive = json.dumps(plain(plan), sort_keys=True) + "".join(map(fingerprint, folders))
        digest = hashlib.sha256(decisive.encode()).hexdigest()[:8]
        return self.runs / self.folder / f"{name.replace('/', '-')}-{digest}"


def took(path: Path) -> float:
    """Seconds of an evaluation over all its sessions."""
    elapsed = [line["elapsed"] for line in metrics(path)]
    return sum(now for now, later in zip(elapsed, [*elapsed[1:], 0.0], strict=True) if later < now)


class Evaluating(Protocol[Setting]):
    """A laboratory that lists all settings of its tables."""

    def needed(self) -> list[Setting]:
        """All settings, each once. The list does not change while trainings proceed."""
        ...

    def ready(self, setting: Setting) -> bool:
        """Whether all models of a setting are trained."""
        ...

    async def attempts(self, setting: Setting) -> object:
        """Run the evaluation of a setting unless it is done."""
        ...


def share(text: str) -> tuple[int, int]:
    """I and N of a text `I/N`. UserError for any other text."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise UserError(f"--evaluate {text}: write I/N, where I counts from 0 to N - 1, such as 0/2")
    return int(found[1]), int(found[2])


async def evaluate_share(lab: Evaluating[Setting], i: int, n: int) -> None:
    """Run share `i` of `n` of the evaluations. Shares do not depend on finished trainings, so they never overlap."""
    for setting in lab.needed()[i::n]:
        if lab.ready(setting):
            await lab.attempts(setting)
        else:
            print(
                f"{setting.model} is not trained yet, or another model of the same evaluation is not: skipped",
                flush=True,
            )
