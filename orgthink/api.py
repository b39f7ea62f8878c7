"""The Python API: solve a problem, evaluate organizations, train one; each in one line.

`solve`, `evaluate` and `train` work in scripts and in notebooks; `asolve`, `aevaluate` and `atrain` are their
coroutines. Names and defaults are those of the command line.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from orgthink.engines import Engines, EngineSpec, engine_spec, served_spec
from orgthink.engines.engine import Engine
from orgthink.evaluation import run
from orgthink.evaluation.plan import QUESTION, make_plan, resolve
from orgthink.evaluation.specs import OrganizationSpec, labelled, on_models
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode, Grade, Message, Problem
from orgthink.record.folder import RunFolder, dated
from orgthink.runtime.agent import Agent, Watcher
from orgthink.runtime.approval import Approve
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_main
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks import task_named
from orgthink.tasks.task import Split, Task
from orgthink.util.errors import required, user_input
from orgthink.util.settings import plain
from orgthink.util.tabular import store_rows

__all__ = [
    "Agent", "Episode", "Grade", "Message", "Organization", "Problem", "Run", "Session", "aevaluate", "asolve",
    "atrain", "critical_path", "evaluate", "load_run", "organization", "solve", "task", "train",
]  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")

Roles = Mapping[str, "str | EngineSpec | Engine"]
"""Models by role: `MODEL` or `MODEL@URL` as on the command line, specifications, or open engines, which stay open. A
name without a URL is a model of the server of `url`, if that is given."""

AnyOrganization = str | Organization | type | Callable[..., Any]
"""A name, a class, an instance, a factory without parameters, or `async def run(problem, session)`."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder and its episodes."""

    path: Path
    """The run folder: `orgthink view PATH` shows it, `orgthink eval --resume PATH` resumes it."""
    episodes: list[Episode]
    """All episodes. Those of `evaluate` are in the order of problems, organizations and samples."""

    def __repr__(self) -> str:
        return f"<Run {self.path}: {len(self.episodes)} episodes>"

    @property
    def summary(self) -> dict[str, Any]:
        """Measures with 95 % intervals, by organization: the content of summary.json."""
        return json.loads((self.path / "summary.json").read_bytes())


def load_run(path: str | Path) -> Run:
    """A stored run. UserError if the path holds no run."""
    folder = RunFolder.open(Path(path))
    return Run(folder.path, list(folder.episodes()))


def task(name: str) -> Task:
    """A task by its name, such as `countdown` or `math:FILE`: its problems, and its grader. UserError without it."""
    return task_named(name)


def organization(name: str, **settings: Any) -> Organization:
    """An organization by its name, with some of its settings. UserError without it, or for an unknown setting."""
    spec = OrganizationSpec(name, settings)
    return spec.named(spec.label)


async def asolve(
    problem: str | Problem,
    organization: AnyOrganization = "asyncthink",
    *,
    model: str | EngineSpec | Engine | None = None,
    url: str | None = None,
    tokenizer: str | None = None,
    roles: Roles | None = None,
    sampling: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
    prompts: str | None = None,
    capacity: int | None = None,
    max_tokens: int | None = None,
    renew: bool = False,
    max_episode_tokens: int | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    depth: int = 1,
    deadline: float | None = None,
    limits: Limits | None = None,
    watch: Watcher | None = None,
    approve: Approve | None = None,
) -> Episode:
    """One attempt of an organization at a problem; graded if the problem belongs to a task.

    An open engine is used and stays open. `settings` are fields of the organization; a field that is not set, or that
    has its default in an instance, gets the value of the model's preset, such as its prompt style. `sampling` has
    `max_tokens`, `temperature` and `top_p` of some roles. `capacity` and `max_tokens` are by default those that the
    model was trained with, or 2 and 512; `limits` replace all limits of the other arguments. `approve` decides about
    every fork before it starts. UserError for bad input; EngineUnavailable without a server. A later failure is
    recorded in the episode.
    """
    if isinstance(problem, str):
        problem = Problem(id=QUESTION, task=QUESTION, text=problem)
    given: dict[EngineSpec, Engine] = {}
    spec, one = _engine(model, url, tokenizer, given), labelled([organization])
    plan = make_plan(
        QUESTION,
        on_models(one, spec, settings=dict.fromkeys(one, settings or {}), prompts=prompts),
        spec,
        roles={role: _engine(each, url, None, given) for role, each in (roles or {}).items()},
        role_sampling=sampling,
        n=1,
        temperature=temperature,
        seed=seed,
        capacity=capacity,
        max_tokens=max_tokens,
        renew=renew,
        max_episode_tokens=max_episode_tokens,
        depth=depth,
        deadline=deadline,
        limits=limits,
    )
    async with Engines(given) as engines:
        return await run.solve(plan, problem, engines, watch=watch, approve=approve)


async def aevaluate(
    task: str | Iterable[Any] | None = None,
    organizations: AnyOrganization | Iterable[AnyOrganization] | Mapping[str, AnyOrganization] = "asyncthink",
    *,
    model: str | EngineSpec | None = None,
    url: str | None = None,
    tokenizer: str | None = None,
    roles: Mapping[str, str | EngineSpec] | None = None,
    sampling: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    prompts: str | None = None,
    n: int | None = None,
    samples: int | None = None,
    split: Split = "test",
    capacity: int | None = None,
    max_tokens: int | None = None,
    renew: bool = False,
    max_episode_tokens: int | None = None,
    temperature: float | None = None,
    seed: int = 0,
    depth: int = 1,
    deadline: float | None = None,
    limits: Limits | None = None,
    concurrency: int = 64,
    prices: Mapping[str, Price] | None = None,
    max_dollars: float | None = None,
    max_total_tokens: int | None = None,
    out: str | Path | None = None,
    progress: Callable[[Episode, int], None] = lambda episode, done: None,
) -> Run:
    """Evaluate organizations on `n` problems of a task, `samples` times each, and store a run folder.

    Instead of a task there may be rows of problems with their answers: a list of mappings, a pandas DataFrame, or one
    split of a data set. They are stored next to the run folder, and `n` is by default their number.

    The label of an organization is its name or that of its class; `LABEL=NAME` and a mapping by label give others.
    `settings` are fields of the organizations, by label. Organizations from a file can be resumed from the run folder,
    those from a notebook cannot.

    `n`, `samples` and `temperature` are by default 100, 1 and 1.0, or a benchmark's convention. `prices` of the models,
    by name, put dollars into the summary. `max_dollars` and `max_total_tokens` limit all episodes together. `out` is a
    new folder, by default one under runs/. `progress` gets every episode that ends and the number of ended ones.
    UserError for bad input.
    """
    name, spec = required(task, "task", "a task or rows"), _engine(model, url, tokenizer, {})
    if not isinstance(name, str):
        name, count = store_rows(name, Path("runs") if out is None else Path(out).parent)
        n = count if n is None else n
    plan = make_plan(
        name,
        on_models(labelled(organizations), spec, settings=settings, prompts=prompts),
        spec,
        roles={role: _engine(one, url, None, {}) for role, one in (roles or {}).items()},
        role_sampling=sampling,
        n=n,
        samples=samples,
        temperature=temperature,
        split=split,
        seed=seed,
        capacity=capacity,
        max_tokens=max_tokens,
        renew=renew,
        max_episode_tokens=max_episode_tokens,
        depth=depth,
        deadline=deadline,
        limits=limits,
        concurrency=concurrency,
        prices=dict(prices or {}),
        max_dollars=max_dollars,
        max_total_tokens=max_total_tokens,
    )
    async with run.opened(resolve(plan), dated(name) if out is None else Path(out)) as (resolved, engines, folder):
        return Run(folder.path, await run.evaluate(resolved, engines, folder, progress=progress))


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
    from orgthink.training.interrupt import beside_the_loop
    from orgthink.training.recipes import registry as recipes

    name = required(recipe, "recipe", "a recipe")
    given = [f"{path}={_text(value)}" for path, value in (settings or {}).items()]
    named = {**options, **({} if model is None else {"model": model})}

    def trained() -> Path:
        with user_input():
            job = recipes.adjusted(recipes.recipe_named(name), recipes.with_whole_paths(named), given)
            target = Path(out) if out is not None else recipes.folder_of(name)
            return recipes.go_on(recipes.start(recipes.Training(name, job), target), report)

    return _plain(beside_the_loop)(trained) if _in_loop() else trained()


async def atrain(recipe: str | None = None, **settings: Any) -> Path:
    """`train` in a thread, for use in an event loop. If it is cancelled, the step ends and a checkpoint is saved first,
    as with Ctrl-C; a second cancellation does not wait for that."""
    from orgthink.training.interrupt import beside_the_loop

    return await beside_the_loop(partial(train, recipe, **settings))


def _engine(
    model: str | EngineSpec | Engine | None, url: str | None, tokenizer: str | None, given: dict[EngineSpec, Engine]
) -> EngineSpec:
    """The specification of a model. An open engine gets one, under which it joins the given ones."""
    if isinstance(model, EngineSpec):
        return model
    if isinstance(model, str | None):
        return served_spec(model, url) if model and "@" in model else engine_spec(model, url, tokenizer)
    spec = EngineSpec(f"open engine {len(given) + 1}")
    given[spec] = model
    return spec


def _text(value: Any) -> str:
    """A setting as written on the command line."""
    if value is None:
        return "none"
    return json.dumps(plain(value)) if isinstance(value, list | tuple | dict) else str(value)


def _in_loop() -> bool:
    """Whether an event loop runs in this thread, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _plain(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A coroutine function as a plain one. If an event loop is running already, as in a notebook, a new thread runs it,
    and an interrupted wait for it, such as by Ctrl-C, cancels it."""

    @wraps(work)
    def plainly(*args: P.args, **options: P.kwargs) -> T:
        if not _in_loop():
            return run_main(work(*args, **options))
        interrupted = Future[None]()

        async def main() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work(*args, **options))
            interrupted.add_done_callback(lambda _: loop.call_soon_threadsafe(task.cancel))
            return await task

        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(run_main, main()).result()
            except KeyboardInterrupt:
                interrupted.set_result(None)
                raise

    plainly.__name__ = plainly.__qualname__ = work.__name__.removeprefix("a")
    return plainly


solve = _plain(asolve)
evaluate = _plain(aevaluate)
