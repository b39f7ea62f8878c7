"""Searches and trainings before the comparison, each in a run folder that can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason, show
from orgthink_arena.contest.config import MODEL, Arena, Method, Preparation, Run
from orgthink_arena.searches import costs
from orgthink_arena.searches.costs import Costs

if TYPE_CHECKING:  # else an arena of models behind a URL would need torch
    from orgthink.training.recipes.registry import Training

DONE = "prepared.json"
"""File of a run folder whose job is done: where its result is."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A preparation that is done."""

    folder: Path
    """Its run folder."""
    result: Path
    """What it made: a model folder of a training, else what its job returned."""
    costs: Costs
    """Its tokens, replies and seconds."""


def folder_of(out: Path, arena: Arena, name: str, seed: int) -> Path:
    """The run folder of a preparation."""
    return out / "preparations" / (f"{name}-seed{seed}" if arena.preparations[name].seeded else name)


def prepare_all(out: Path, arena: Arena, methods: Iterable[str]) -> dict[Run, Prepared | str]:
    """Every preparation that the methods need, by name and seed: its result, or why it failed.

    A preparation after a failed one does not run, and fails for the same reason. KeyboardInterrupt at Ctrl-C.
    """
    names = dict.fromkeys(each for method in methods for each in arena.needed(method))
    made: dict[Run, Prepared | str] = {}
    for name in names:
        for seed in arena.seeds:
            after = arena.preparations[name].after
            before = None if after is None else made[after, seed]
            made[name, seed] = before if isinstance(before, str) else _prepared_or_reason(out, arena, name, seed)
    return made


def prepare(out: Path, arena: Arena, name: str, seed: int) -> Prepared:
    """Run a preparation unless it is done. At Ctrl-C its job saves its state, and KeyboardInterrupt is raised.

    UserError if the folder holds a run of another recipe or of other settings, and the errors of the job.
    """
    from orgthink.training.recipes.registry import held, start

    path, preparation = folder_of(out, arena, name, seed), arena.preparations[name]
    after = None if preparation.after is None else prepare(out, arena, preparation.after, seed).result
    wanted = training(preparation, seed, after)
    folder = held(wanted, path) or start(wanted, path)
    if not (path / DONE).is_file():
        show(f"{path.name}: {wanted.recipe}, steps: {wanted.job.settings.steps} …")
        result = wanted.job.run(folder, lambda line: None)
        model = result / "model"
        made = model if model.is_dir() else result
        folder.write_json(DONE, {"result": str(made.resolve().relative_to(path.resolve()))})
    return done(path)


def _prepared_or_reason(out: Path, arena: Arena, name: str, seed: int) -> Prepared | str:
    try:
        return prepare(out, arena, name, seed)
    except Exception as error:  # a job of a plug-in may raise anything; the others go on
        show(f"orgthink: the preparation {name} with seed {seed} failed: {reason(error)}", error=True)
        return reason(error)


def done(path: Path) -> Prepared:
    """A preparation that is done, from its folder."""
    return Prepared(path, path / str(json_object(path / DONE)["result"]), costs_in(path))


def training(preparation: Preparation, seed: int, after: Path | None = None) -> Training:
    """The recipe with the preparation's settings and seed, from the model of the preparation before it.

    UserError for settings that it does not have.
    """
    from orgthink.training.recipes.registry import Training, adjusted, recipe_named

    model = preparation.model if after is None else str(after)
    settings = [f"{place}={_text(value)}" for place, value in preparation.settings.items()]
    options = {} if model is None else {"model": model}
    seeded = [f"seed={seed}"] if preparation.seeded else []
    return Training(preparation.recipe, adjusted(recipe_named(preparation.recipe), options, [*seeded, *settings]))


def _text(value: Any) -> str:
    """A value as `--set` takes it."""
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value)


def given_settings(method: Method, prepared: dict[str, Prepared]) -> dict[str, str]:
    """Setting → path of the result, of the preparations by name. UserError for a file that none has made."""
    found: dict[str, str] = {}
    for place, source in method.prepared.items():
        name, _, file = source.partition("/")
        path = prepared[name].folder / file if file else prepared[name].result
        if not path.exists():
            raise UserError(f"{prepared[name].folder} has made no {path.name}, which {place} needs")
        if place == MODEL and not (path / "config.json").is_file():
            raise UserError(f"{path} is not a model folder: it has no config.json")
        found[place] = str(path.resolve())
    return found


def costs_in(path: Path) -> Costs:
    """What a run folder has spent: by its own account, or by the metrics of a training, which do not count replies."""
    if (path / costs.FILE).is_file():
        return costs.read(path)
    from orgthink.training.recipes.registry import training_of

    folder = RunFolder.open(path)
    rollout = getattr(training_of(folder).job.settings, "rollout", None)
    steps = (_costs_of_step(line, getattr(rollout, "group", 0)) for line in folder.metrics())
    return reduce(Costs.plus, steps, Costs())


def _costs_of_step(line: Mapping[str, Any], group: int) -> Costs:
    """What a step of a training used. With `drawn_groups`, groups of so many episodes, tokens are those of an episode
    on average; otherwise they are those of the whole step."""
    seconds, tokens, units = line.get("seconds", 0.0), line.get("sampled_tokens") or 0.0, line.get("cost_units")
    episodes = int(line.get("drawn_groups", 0)) * group
    return Costs(
        episodes,
        round(tokens * (episodes or 1)),
        0,
        None if units is None else units * episodes,
        sum(seconds.values()) if isinstance(seconds, dict) else float(seconds),
    )


def described(prepared: Prepared) -> dict[str, Any]:
    """A preparation for results.json: its recipe, how long it is, and what it used."""
    from orgthink.training.recipes.registry import training_of

    run = training_of(RunFolder.open(prepared.folder))
    return {
        "run": prepared.folder.name,
        "recipe": run.recipe,
        "steps": run.job.settings.steps,
        **asdict(prepared.costs),
        **({} if (prepared.folder / costs.FILE).is_file() else {"replies": None}),
    }
