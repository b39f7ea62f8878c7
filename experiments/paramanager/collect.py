"""The SFT data of the pocket manager: what the rehearsed one does on training problems, over the real pool, with the
real tools, and with calls that fail.

Half of the training problems are for this, the other half for reinforcement learning.
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
from orgthink.evaluation import Evaluation, OrganizationSpec, RoleSpec, engine_failed
from orgthink.runtime.budget import Limits
from orgthink.store import RunFolder, plain

FAULTS = 0.12
"""Share of calls that fail, so that there are failures to recover from."""
TEMPERATURE = 0.5
"""Of the manager alone. What it learns from is what it does when it is sure: it copies more exactly afterwards."""


def plan(model: EngineSpec) -> Evaluation:
    """What is collected: eight trajectories of each problem by this manager."""
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
    """Collect under the runs what is missing. UserError if another collection is there, or this one does not end."""
    path = folder / runs.COLLECTED
    wanted = plan(engine_spec(str(model_folder(folder, runs.REHEARSED))))
    if (path / "config.json").is_file():
        found = RunFolder.open(path)
        if _decisive(found.settings("eval", Evaluation)) != _decisive(wanted):
            raise UserError(f"{path} was collected otherwise than the recipe says: move it away")
    else:
        found = RunFolder.create(path, "eval", wanted)
    if sum(not engine_failed(episode) for episode in found.episodes()) < wanted.n * wanted.samples:
        run_orgthink("eval", "--resume", str(path))


def retained(folder: Path) -> dict[str, Any]:
    """How many trajectories SFT learned from, and why it left out the others."""
    selection = json.loads((folder / runs.SFT / "trajectories.json").read_text())
    return {"retained": len(selection["ids"]), "left_out": selection["left_out"]}


def _decisive(collection: Evaluation) -> Evaluation:
    """Without where the runs lay when it was made, and with all settings of its organization."""
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
