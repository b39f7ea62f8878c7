"""The Python API: solve a problem, evaluate organizations, train one; each in one line.

`solve`, `evaluate` and `train` work in scripts and in notebooks; `asolve`, `aevaluate` and `atrain` are their
coroutines. Names and defaults are those of the command line.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from orgthink.engines import Engines, EngineSpec, engine_spec, served_spec
from orgthink.engines.engine import Engine
from orgthink.evaluate.compatibility import require_roles, require_sampling, require_sampling_noise
from orgthink.evaluate.evaluation import Evaluation, OrganizationSpec, RoleSpec, resolve
from orgthink.evaluate.evaluation import evaluate as evaluate_plan
from orgthink.evaluate.grading import grade_or_keep
from orgthink.evaluate.presets import Allowance, allowance, attempts, organization_settings, partner_models
from orgthink.evaluate.spending import Bounds
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.record.folder import RunFolder, dated
from orgthink.runtime.agent import Backing, Watcher
from orgthink.runtime.approval import Approve
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_main
from orgthink.runtime.organization import Organization
from orgthink.tasks import task_of
from orgthink.tasks.task import Split
from orgthink.util.errors import UserError, pick, required, user_input
from orgthink.util.validation import plain

T = TypeVar("T")

QUESTION = "asked"
"""Task and id of a problem that is given as text: it has no grader."""

Roles = Mapping[str, "str | EngineSpec"]
"""Models by role: `MODEL` or `MODEL@URL` as on the command line, or specifications. A name without a URL is of the
server of `url`, if that is given."""

OpenRoles = Mapping[str, "str | EngineSpec | Engine"]
"""The same, or open engines, which stay open."""


@dataclass(frozen=True, slots=True)
class Run:
    """The result of an evaluation."""

    path: Path
    """The run folder: `orgthink view PATH` shows it, `orgthink eval --resume PATH` resumes it."""
    episodes: list[Episode]
    """Every attempt, in the order of problems, organizations and samples."""

    @property
    def summary(self) -> dict[str, Any]:
        """Measures with 95 % intervals, by organization: the content of summary.json."""
        return json.loads((self.path / "summary.json").read_bytes())


def solve(problem: str | Problem, organization: str | Organization = "asyncthink", **settings: Any) -> Episode:
    """`asolve` as a plain function; it also works in a notebook."""
    return _run(asolve(problem, organization, **settings))


def evaluate(task: str | None = None, organizations: Sequence[str] = ("asyncthink",), **settings: Any) -> Run:
    """`aevaluate` as a plain function; it also works in a notebook."""
    return _run(aevaluate(task, organizations, **settings))


async def atrain(recipe: str | None = None, **settings: Any) -> Path:
    """`train` in a thread, for use in an event loop. If it is cancelled, the step ends and a checkpoint is saved first,
    as with Ctrl-C; a second cancellation does not wait for that."""
    from orgthink.training.interrupt import beside_the_loop

    return await beside_the_loop(partial(train, recipe, **settings))


async def asolve(
    problem: str | Problem,
    organization: str | Organization = "asyncthink",
    *,
    model: str | EngineSpec | Engine | None = None,
    url: str | None = None,
    tokenizer: str | None = None,
    roles: OpenRoles | None = None,
    settings: Mapping[str, Any] | None = None,
    prompts: str | None = None,
    capacity: int | None = None,
    max_tokens: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    limits: Limits | None = None,
    watch: Watcher | None = None,
    approve: Approve | None = None,
) -> Episode:
    """One attempt of an organization at a problem; graded if the problem belongs to a task.

    `model`, `url` and `tokenizer` are the options of `orgthink run`; an open engine is used and stays open. `settings`
    are fields of the organization. Without `capacity` and `max_tokens` they are what the model was trained with, or 2
    and 512; `limits` replace the capacity and the budget. `approve` decides about every fork before it begins.
    UserError for bad input; EngineUnavailable without a server. A later failure is recorded in the episode.
    """
    if isinstance(problem, str):
        problem = Problem(id=QUESTION, task=QUESTION, text=problem)
    given: dict[EngineSpec, Engine] = {}
    if model is None or isinstance(model, str | EngineSpec):
        spec = _spec(model, url, tokenizer)
    else:
        given[spec := EngineSpec()] = model
    if isinstance(organization, str):
        named = OrganizationSpec(organization, organization_settings(organization, spec, settings, prompts))
        specs, organization = {named.label: named}, named.named(named.label)
    else:
        specs = {}
    require_roles([organization], roles or ())
    found = allowance(specs, spec, capacity=capacity, max_tokens=max_tokens)
    sampling = Sampling(found.max_tokens, temperature, seed=seed)
    with user_input():
        require_sampling(sampling)
    others = _roles(specs, spec, _named(roles or {}, given), sampling)
    limits = limits or _limits(found)
    require_sampling_noise(organization, sampling, limits.capacity, others)
    async with Engines(given) as engines:
        own = Backing(await engines.get(spec), sampling)
        backings = {name: Backing(await engines.get(role.engine), role.sampling) for name, role in others.items()}
        how = {"roles": backings, "limits": limits, "watch": watch, "approve": approve}
        episode = await attempt(organization, problem, own, **how)
    task = task_of(problem)
    return episode if task is None else grade_or_keep(episode, task)


async def aevaluate(
    task: str | None = None,
    organizations: Sequence[str] = ("asyncthink",),
    *,
    model: str | EngineSpec | None = None,
    url: str | None = None,
    tokenizer: str | None = None,
    roles: Roles | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    prompts: str | None = None,
    n: int | None = None,
    samples: int | None = None,
    split: Split = "test",
    capacity: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    concurrency: int = 64,
    prices: Mapping[str, Price] | None = None,
    bounds: Bounds | None = None,
    out: str | Path | None = None,
    progress: Callable[[Episode, int], None] = lambda episode, done: None,
) -> Run:
    """Evaluate organizations on `n` problems of a task, `samples` times each, and store a run folder.

    Without `n`, `samples` and `temperature` they are 100, 1 and 1.0, or what is the convention of a benchmark.
    `settings` are fields of the organizations, by name. `prices` of the models, by name, put dollars into the summary;
    `bounds` are what all episodes together may cost. `out` is a new folder, by default one under runs/. `progress`
    gets every episode that ends and the number of ended ones. UserError for bad input.
    """
    name, spec = required(task, "task", "a task"), _spec(model, url, tokenizer)
    specs = _organizations(organizations, spec, settings or {}, prompts)
    found = allowance(specs, spec, capacity=capacity, max_tokens=max_tokens)
    tried = attempts(name, split, seed, n, samples, temperature)
    sampling = Sampling(found.max_tokens, tried.temperature, seed=seed)
    with user_input():
        plan = Evaluation(
            task=name,
            organizations=specs,
            n=tried.n,
            engine=spec,
            sampling=sampling,
            roles=_roles(specs, spec, roles, sampling),
            limits=limits or _limits(found),
            split=split,
            seed=seed,
            samples=tried.samples,
            concurrency=concurrency,
            prices=dict(prices or {}),
            bounds=bounds or Bounds(),
        )
    resolved = resolve(plan)  # errors appear before an engine is opened
    async with Engines() as engines:
        resolved = await resolved.opened(engines)
        folder = RunFolder.create(Path(out) if out is not None else dated(name), "eval", resolved.plan)
        return Run(folder.path, await evaluate_plan(resolved, engines, folder, progress=progress))


def train(
    recipe: str | None = None,
    *,
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    report: Callable[[dict[str, Any]], None] = lambda line: None,
    **options: Any,
) -> Path:
    """Train with a recipe; returns the folder of the trained model. Needs the extra `local`.

    `settings` are settings of the recipe by their path, such as `{"rollout.group": 16}`; `options` are fields of its
    job, such as `pairs=FILE` or `lora=LoraSettings(8)`. `out` is a new run folder, by default runs/RECIPE. `report`
    gets the metrics of each step. At Ctrl-C the step ends and a checkpoint is saved. In a notebook a thread trains, and
    calls `report`. UserError for bad input.
    """
    from orgthink.training.interrupt import wherever
    from orgthink.training.recipes.registry import (
        Training,
        adjusted,
        folder_of,
        go_on,
        recipe_named,
        start,
        with_whole_paths,
    )

    name = required(recipe, "recipe", "a recipe")
    changes = [f"{path}={_text(value)}" for path, value in (settings or {}).items()]
    named = {**options, **({} if model is None else {"model": model})}

    def trained() -> Path:
        with user_input():
            job = adjusted(recipe_named(name), with_whole_paths(named), changes)
            folder = start(Training(name, job), Path(out) if out is not None else folder_of(name))
            return go_on(folder, report)

    return wherever(trained)


def _organizations(
    names: Sequence[str], spec: EngineSpec, settings: Mapping[str, Mapping[str, Any]], prompts: str | None
) -> dict[str, OrganizationSpec]:
    """The organizations by their labels. UserError for settings of another one, and for one that is named twice."""
    for name in settings:
        pick("organization", name, dict.fromkeys(names))
    found = [OrganizationSpec(name, organization_settings(name, spec, settings.get(name), prompts)) for name in names]
    for label, times in Counter(one.label for one in found).items():
        if times > 1:
            raise UserError(f"organization {label} is named twice: evaluate each once")
    return {one.label: replace(one, settings=plain(one.named(one.label))) for one in found}


def _limits(found: Allowance) -> Limits:
    """Limits of an episode by a capacity and a budget. UserError for a capacity that is none."""
    with user_input():
        return Limits(found.capacity, found.limit)


def _spec(model: str | EngineSpec | None, url: str | None, tokenizer: str | None) -> EngineSpec:
    return model if isinstance(model, EngineSpec) else engine_spec(model, url, tokenizer)


def _named(roles: OpenRoles, given: dict[EngineSpec, Engine]) -> Roles:
    """The same roles by names. Open engines get one, under which they join the given ones."""
    found: dict[str, str | EngineSpec] = {}
    for role, engine in roles.items():
        if not isinstance(engine, str | EngineSpec):
            spec = EngineSpec(f"the open engine of {role}")
            given[spec], engine = engine, spec
        found[role] = engine
    return found


def _roles(
    organizations: Mapping[str, OrganizationSpec], spec: EngineSpec, roles: Roles | None, sampling: Sampling
) -> dict[str, RoleSpec]:
    """Engine and sampling of each role: the given ones, and the partner models of the organizations' models."""
    given = {
        role: model if isinstance(model, EngineSpec) else served_spec(model, spec.url)
        for role, model in (roles or {}).items()
    }
    found = {role: RoleSpec(engine, sampling) for role, engine in given.items()}
    for role, partner in partner_models(organizations, spec, given).items():
        engine = given[role] if role in given else engine_spec(partner.model)
        found[role] = RoleSpec(engine, replace(sampling, max_tokens=partner.max_tokens))
    return found


def _text(value: Any) -> str:
    """A setting as written on the command line."""
    if value is None:
        return "none"
    return json.dumps(plain(value)) if isinstance(value, list | tuple | dict) else str(value)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. If an event loop is running already, as in a notebook, a new thread runs it, and what ends the
    wait for it, such as Ctrl-C, cancels it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_main(work)
    begun = Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]]()

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(run_main, main()).result()
        except BaseException:
            begun.add_done_callback(_cancel)
            raise


def _cancel(begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]]) -> None:
    loop, task = begun.result()
    with suppress(RuntimeError):  # the loop is closed: the work has ended
        loop.call_soon_threadsafe(task.cancel)
