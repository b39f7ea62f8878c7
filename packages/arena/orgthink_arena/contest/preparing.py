"""What comes before the table: searches and trainings, each a run folder that is gone on with until it is done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import recipe_named
from orgthink.util.errors import UserError
from orgthink.util.files import Busy, locked
from orgthink.util.pace import Pace
from orgthink.util.references import absolute
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason, show
from orgthink.util.validation import plain
from orgthink_arena.contest.config import MODEL, Arena, Method, Preparation
from orgthink_arena.contest.moved import same
from orgthink_arena.searches import spent as ledger
from orgthink_arena.searches.spent import Spent

if TYPE_CHECKING:  # else an arena of models behind a URL would need torch
    from orgthink.training.recipes.registry import Training

DONE = "prepared.json"
"""File of a run folder whose job is done: where its result is."""
POLL = 1.0
"""Seconds between two looks at a folder that another process writes."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A preparation that is done."""

    folder: Path
    """Its run folder."""
    result: Path
    """What it made: a model folder of a training, else what its job returned."""
    spent: Spent
    """What it used."""


def made_in(out: Path, arena: Arena) -> Path:
    """The folder of all preparations."""
    return out / "preparations" if arena.prepared_in is None else out.resolve().parent / arena.prepared_in


def folder_of(out: Path, arena: Arena, name: str, seed: int) -> Path:
    """The run folder of a preparation."""
    return made_in(out, arena) / (f"{name}-seed{seed}" if arena.preparations[name].seeded else name)


def prepare(out: Path, arena: Arena, name: str, seed: int) -> Prepared:
    """Run a preparation unless it is done, or another process does. At Ctrl-C its job saves what it has, and
    KeyboardInterrupt is raised.

    UserError if the folder holds a run of another recipe or of other settings, and the errors of the job.
    """
    from orgthink.training.recipes.registry import start, training_of

    path, preparation = folder_of(out, arena, name, seed), arena.preparations[name]
    before = {prepare(out, arena, *run).result.resolve(): each for run, each in arena.runs_before(name, seed).items()}
    wanted = training(preparation, seed, before)
    folder = RunFolder.open(path) if (path / "config.json").is_file() else start(wanted, path)
    if not same(_anywhere(training_of(folder)), _anywhere(wanted), made_in(out, arena).resolve()):
        raise UserError(f"{path} holds a run of other settings: move it away, or choose another folder")
    if not (path / DONE).is_file():
        _wait_for_others(path)
    if not (path / DONE).is_file():
        steps = "1 step" if wanted.job.steps == 1 else f"{wanted.job.steps} steps"
        show(f"{path.name}: {wanted.recipe}, {steps} …")
        result = wanted.job.run(folder, _reporter(path.name, wanted))
        model = result / "model"
        made = model if model.is_dir() else result
        folder.write_json(DONE, {"result": str(made.resolve().relative_to(path.resolve()))})
    return done(path)


def _wait_for_others(path: Path) -> None:
    """Return when no other process writes the folder: arenas that share their preparations may run side by side."""
    waiting = False
    while True:
        try:
            with locked(path):
                return
        except Busy:
            if not waiting:
                show(f"{path.name}: another process prepares it; this one waits for that (Ctrl-C stops)")
            waiting = True
        time.sleep(POLL)


def _anywhere(wanted: Any) -> Any:
    """A training's values with absolute paths: they are the same wherever the command is called, and a folder that was
    begun under a relative path is gone on with under its whole one."""
    settings = absolute(plain(wanted))
    model = settings["job"].get("model")
    if isinstance(model, str) and Path(model).is_dir():
        settings["job"]["model"] = str(Path(model).resolve())
    return settings


def prepare_or_reason(out: Path, arena: Arena, name: str, seed: int) -> Prepared | str:
    """Run a preparation unless it is done: what it made, or why it failed. KeyboardInterrupt at Ctrl-C."""
    try:
        return prepare(out, arena, name, seed)
    except Exception as error:  # a job of somebody's may raise anything; the others go on
        show(f"orgthink: the preparation {name} with seed {seed} failed: {reason(error)}", error=True)
        return reason(error)


def done(path: Path) -> Prepared:
    """A preparation that is done, from its folder."""
    return Prepared(path, path / str(json_object(path / DONE)["result"]), spent_in(path))


def training(preparation: Preparation, seed: int, before: Mapping[Path, float] | None = None) -> Training:
    """The recipe with the preparation's settings and seed, from the models of those `before` it, with their weights.

    UserError for what it does not have.
    """
    from orgthink.training.recipes.registry import Training, adjusted

    given = {**preparation.settings}
    models = [str(path) for path in before or ()]
    model = preparation.model
    if preparation.mean_of:
        given |= {"models": models, "weights": [*(before or {}).values()]}
    elif models:
        [model] = models
    settings = [f"{place}={_text(value)}" for place, value in given.items()]
    options = {} if model is None else {"model": model}
    seeded = [f"seed={seed}"] if preparation.seeded and not preparation.mean_of else []  # a mean draws nothing
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


def spent_in(path: Path) -> Spent:
    """What a run folder has spent: by its own account, or by the metrics of a training, which do not count replies."""
    if (path / ledger.FILE).is_file():
        return ledger.read(path)
    from orgthink.training.recipes.registry import training_of

    folder = RunFolder.open(path)
    rollout = getattr(training_of(folder).job.settings, "rollout", None)
    return sum_of(_spent_in_step(line, getattr(rollout, "group", 0)) for line in folder.metrics())


def sum_of(parts: Iterable[Spent]) -> Spent:
    """What all of them used together."""
    return reduce(Spent.plus, parts, Spent())


def _spent_in_step(line: Mapping[str, Any], group: int) -> Spent:
    """What a step of a training used. With `drawn_groups`, groups of so many episodes, tokens are those of an episode
    on average; otherwise they are those of the whole step."""
    seconds, tokens, units = line.get("seconds", 0.0), line.get("sampled_tokens") or 0.0, line.get("cost_units")
    episodes = int(line.get("drawn_groups", 0)) * group
    return Spent(
        episodes,
        round(tokens * (episodes or 1)),
        0,
        None if units is None else units * episodes,
        sum(seconds.values()) if isinstance(seconds, dict) else float(seconds),
    )


def _reporter(name: str, wanted: Training) -> Callable[[dict[str, Any]], None]:
    """Prints a line of progress now and then, with the time that is left."""
    settings, steps = wanted.job.settings, wanted.job.steps
    pace: Pace | None = None

    def report(line: dict[str, Any]) -> None:
        nonlocal pace
        step = int(line["step"])
        pace = pace or Pace(steps, done=step)  # what comes before the first step may take longer than all of them
        pace.advance(step)
        every = getattr(settings, "report_every", 1)
        if step % every == 0 or step == steps:
            text = settings.progress_text(line) if hasattr(settings, "progress_text") else ""
            show(f"  {name}: {step}/{steps}  {text}".rstrip() + pace.left)

    return report


def described(prepared: Prepared) -> dict[str, Any]:
    """A preparation for results.json: its recipe, how long it is, and what it used."""
    from orgthink.training.recipes.registry import training_of

    run = training_of(RunFolder.open(prepared.folder))
    return {
        "run": prepared.folder.name,
        "recipe": run.recipe,
        "steps": run.job.steps,
        **asdict(prepared.spent),
        **({} if (prepared.folder / ledger.FILE).is_file() else {"replies": None}),
    }
