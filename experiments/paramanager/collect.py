"""The SFT data of the pocket manager: trajectories of the rehearsed manager on training problems.

It uses the real pool and the real tools, and some calls fail. Half of the training problems are for these data, the
other half for reinforcement learning.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.paramanager import runs
from experiments.paramanager.plan import AGENT_TOKENS, CAPACITY, CONCURRENCY, TASK, TOKENS, Setting, sampled
from experiments.shared.runs import is_last, model_folder, run_orgthink
from orgthink.engines import EngineSpec, engine_spec
from orgthink.errors import UserError
from orgthink.evaluation import Evaluation, OrganizationSpec, RoleSpec
from orgthink.failures import engine_failed
from orgthink.runtime.budget import Limits
from orgthink.store import RunFolder
from orgthink.validation import plain

FAULTS = 0.12
"""Share of calls that fail, so the data contain recoveries from failures."""
TEMPERATURE = 0.5
"""Temperature of the manager; its agents have 1. Data from a low temperature are more certain, and the manager that is
trained on them copies more exactly."""


def plan(model: EngineSpec) -> Evaluation:
    """The collection as an evaluation: eight trajectories of each problem by the manager `model`."""
    name = "paramanager"
    organization = Setting(runs.REHEARSED, faults=FAULTS).organized()
    return Evaluation(
        task=f"{TASK}@0/2",
        organizations={name: _with_all_settings(name, organization)},
        n=192,
        engine=model,
        sampling=replace(sampled(TOKENS[name]), temperature=TEMPERATURE),
        roles={role: RoleSpec(engine_spec(role), sampled(AGENT_TOKENS)) for role in runs.SEEN},
        limits=Limits(CAPACITY),
        split="train",
        samples=8,
        concurrency=CONCURRENCY,
    )


def collect_missing(folder: Path) -> None:
    """Collect missing trajectories. UserError if the folder of runs has another collection, or if collecting fails."""
    path = folder / runs.COLLECTED
    wanted = plan(engine_spec(str(model_folder(folder, runs.REHEARSED))))
    if (path / "config.json").is_file():
        found = RunFolder.open(path)
        if _decisive(found.settings("eval", Evaluation)) != _decisive(wanted):
            raise UserError(f"{path} was collected with other settings than the recipe has: move it away")
    else:
        found = RunFolder.create(path, "eval", wanted)
    if sum(not engine_failed(episode) for episode in found.episodes()) < wanted.n * wanted.samples:
        run_orgthink("eval", "--resume", str(path))


def retained(folder: Path) -> dict[str, Any]:
    """Number of trajectories that SFT was trained on, and the reasons for leaving out the others."""
    selection = json.loads((folder / runs.SFT / "trajectories.json").read_text())
    return {"retained": len(selection["ids"]), "left_out": selection["left_out"]}


def _decisive(collection: Evaluation) -> Evaluation:
    """The collection without the path of its model, and with all settings of its organization."""
    rehearsed = is_last(Path(collection.engine.model or ""), runs.REHEARSED)
    return replace(
        collection,
        engine=EngineSpec(runs.REHEARSED) if rehearsed else collection.engine,
        organizations={label: _with_all_settings(label, spec) for label, spec in collection.organizations.items()},
        concurrency=1,
    )


def _with_all_settings(label: str, spec: OrganizationSpec) -> OrganizationSpec:
    """The organization with all its settings, as `orgthink eval` records them."""
    return replace(spec, settings=plain(spec.named(label)))
