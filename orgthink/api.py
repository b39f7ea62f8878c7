"""The Python API: solve a problem, evaluate organizations, train one; each in one line.

`solve`, `evaluate` and `train` work in scripts and in notebooks; `asolve`, `aevaluate` and `atrain` are their
coroutines. Names and defaults are those of the command line.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial, wraps
from inspect import signature
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from orgthink.engines import Engines, EngineSpec, engine_spec, served_spec
from orgthink.engines.engine import Engine
from orgthink.evaluation import run
from orgthink.evaluation.matching import matched
from orgthink.evaluation.plan import QUESTION, Evaluation, make_plan, resolve, up_to
from orgthink.evaluation.specs import OrganizationSpec, labelled, on_models
from orgthink.export.trackers import choose_tracker, require_tracker
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode, Grade, Message, Problem
from orgthink.record.folder import RunFolder, dated, require_vacant
from orgthink.results import Run, Training, load_run, load_training
from orgthink.runtime.agent import Agent, Watcher
from orgthink.runtime.approval import Approve
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_main
from orgthink.runtime.organization import Organization
from orgthink.runtime.session import Session
from orgthink.tasks import TASKS, Grader, task_named
from orgthink.tasks.task import Split, Task
from orgthink.util.errors import UserError, pick, required, user_input
from orgthink.util.registry import LOCAL
from orgthink.util.settings import plain
from orgthink.util.tabular import store_rows
from orgthink.util.terminal import Advance, tell
from orgthink.util.terminal import progress as progress_bar

__all__ = [
    "Agent", "Episode", "Grade", "Message", "Organization", "Problem", "Run", "Session", "Training", "aevaluate",
    "asolve", "atrain", "critical_path", "evaluate", "load_run", "load_training", "organization", "solve", "task",
    "train",
]  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")

AnyModel = str | PathLike[str] | EngineSpec | Engine
"""`MODEL` or `MODEL@URL` as on the command line, a folder, a training, a specification, or an open engine, which stays
open."""

Roles = Mapping[str, AnyModel]
"""Models by role. A name without a URL is a model of the server of `url`, if that is given."""

AnyTask = str | Task | type[Task] | Iterable[Any]
"""A name, a task or its class, or rows of problems: a list of mappings, a pandas DataFrame, a data set."""

AnyOrganization = str | Organization | type | Callable[..., Any]
"""A name, a class, an instance, a factory without parameters, or `async def run(problem, session)`."""

UNSEEN: AbstractContextManager[Advance] = nullcontext(lambda done, text: None)
"""Progress that is not shown."""
WITH_RESUME = {"resume", "progress", "report", "log", "max_dollars", "max_total_tokens"}
"""Arguments that may be given together with `resume`."""


def task(name: str) -> Task:
    """A task by its name, such as `countdown` or `math:FILE`: its problems, and its grader. UserError without it."""
    return task_named(name)


def organization(name: str, **settings: Any) -> Organization:
    """An organization by its name, with some of its settings. UserError without it, or for an unknown setting."""
    spec = OrganizationSpec(name, settings)
    return spec.named(spec.label)


def _checked(work: Callable[P, T]) -> Callable[P, T]:
    """A function that raises UserError for an argument that it lacks, for one that the folder of `resume` holds, and
    for a tracker that is not installed."""
    known = signature(work).parameters

    @wraps(work)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        for name in options:
            pick("argument", name, known)
        if options.get("resume") is not None and (args or options.keys() - WITH_RESUME):
            raise UserError("resume takes everything else from the folder: give it alone")
        require_tracker(options.get("log"))  # type: ignore[arg-type]  # a name, or None
        return work(*args, **options)

    return checked


@_checked
async def asolve(
    problem: str | Problem,
    organization: AnyOrganization = "asyncthink",
    *,
    model: AnyModel | None = None,
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
    spec = _engine(model, url, tokenizer, given)
    plan = make_plan(
        QUESTION,
        on_models(labelled([organization]), spec, settings=settings, prompts=prompts),
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


@_checked
async def aevaluate(
    task: AnyTask | None = None,
    organizations: AnyOrganization | Iterable[AnyOrganization] | Mapping[str, AnyOrganization] = "asyncthink",
    *,
    model: AnyModel | None = None,
    url: str | None = None,
    tokenizer: str | None = None,
    grader: str | Grader | None = None,
    models: Mapping[str, AnyModel] | None = None,
    roles: Roles | None = None,
    sampling: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
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
    match: Literal["tokens", "path"] | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    log: str | None = None,
    progress: bool | Callable[[Episode, int], None] = True,
) -> Run:
    """Evaluate organizations on `n` problems of a task, `samples` times each, and store a run folder.

    Problems may be rows with a `question` and an `answer` instead of a task; they are stored next to the run folder.
    `grader` replaces the task's grader: a name, such as `exact`, or a function of a problem and an answer.

    The label of an organization is its name or that of its class; `LABEL=NAME` and a mapping by label give others.
    `settings` are fields of the organizations, by label, or without one for all that have them. `models` are models of
    their own for some of them, by label.

    `n`, `samples` and `temperature` are by default 100 (or all rows), 1 and 1.0, or a benchmark's convention. `prices`
    of the models, by name, put dollars into the summary. `max_dollars` and `max_total_tokens` limit all episodes
    together. `match` chooses the votes or `max_tokens` of each further organization so that its mean tokens, or its
    mean critical path, agree with those of the first one, on other problems. `out` is a new folder, by default one
    under runs/.

    `resume` is a run folder to go on with: only missing and failed episodes run. All other arguments are read from it,
    except the limits on spending. Tasks, organizations and engines that only this process has cannot be resumed by
    another one.

    `log` names a tracker that gets the numbers too, such as `wandb`; a resumed run goes on there. `progress` shows a
    bar in a terminal or notebook; a function gets every episode that ends and the number of ended ones instead.
    UserError for bad input.
    """
    given: dict[EngineSpec, Engine] = {}
    target: RunFolder | Path
    if resume is not None:
        target = RunFolder.open(Path(resume))
        most: dict[str, Any] = {"max_dollars": max_dollars, "max_total_tokens": max_total_tokens}
        with user_input():
            higher = {name: limit for name, limit in most.items() if limit is not None}
            plan = replace(target.settings("eval", Evaluation), **higher)
    else:
        name, rows = _task_name(required(task, "task", "a task or rows"), grader, out)
        target = dated(name.rpartition(LOCAL)[2]) if out is None else Path(out)
        spec = _engine(model, url, tokenizer, given)
        own = {label: _engine(one, url, None, given) for label, one in (models or {}).items()}
        plan = make_plan(
            name,
            on_models(labelled(organizations), spec, models=own, settings=settings, prompts=prompts),
            spec,
            roles={role: _engine(one, url, None, given) for role, one in (roles or {}).items()},
            role_sampling=sampling,
            n=rows if n is None else n,
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
        if match is not None:
            require_vacant(target)
            plan = await matched(resolve(plan).plan, match, target.with_name(f"{target.name}-development"), given)
            tell("\n".join(f"{label}: {how}" for label, how in plan.matched.items()))
    async with run.opened(resolve(plan), target, given) as (resolved, engines, folder):
        choose_tracker(folder, log)
        with progress_bar(len(resolved.planned), unseen=False) if progress is True else UNSEEN as advance:
            watch = progress if callable(progress) else lambda episode, done: advance(done, run.described(episode))
            try:
                return Run(folder.path, await run.evaluate(resolved, engines, folder, progress=watch))
            finally:
                go_on = f"evaluate(resume={str(folder.path)!r}) goes on with what is missing"
                tell(f"the run is in {folder.path}; look at it: orgthink view {folder.path}; {go_on}")


@_checked
def train(
    recipe: str | None = None,
    *,
    model: str | PathLike[str] | None = None,
    task: str | None = None,
    pairs: str | Path | None = None,
    episodes: str | Path | Run | None = None,
    lora: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    template: Mapping[str, Any] | None = None,
    device: str | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    log: str | None = None,
    report: Callable[[dict[str, Any]], None] = lambda line: None,
    progress: bool = True,
) -> Training:
    """Train with a recipe. Needs the extra `local`.

    `model` is the model to start from, `task` the task of reinforcement learning. `pairs` is a file of query–response
    pairs to learn from, `episodes` a run with a manager's trajectories. `lora` trains an adapter of this rank. `steps`
    and `seed` are by default the recipe's. `settings` are settings of the recipe by their path, such as
    `{"rollout.group": 16}`, `template` arguments of the chat template, `device` is `cpu`, `cuda` or `auto`.

    `out` is a new run folder, by default runs/RECIPE; `resume` is one to go on with. `log` names a tracker that gets
    the metrics too, such as `wandb`. `report` gets the metrics of each step. `progress` shows a bar in a terminal or
    notebook.

    At Ctrl-C the step ends and a checkpoint is saved. In a notebook a thread trains, and calls `report`. UserError for
    bad input.
    """
    from orgthink.models.lora import LoraSettings
    from orgthink.training.interrupt import beside_the_loop
    from orgthink.training.recipes import registry as recipes

    options = {
        "model": None if model is None else fspath(model),
        "task": task,
        "pairs": pairs,
        "episodes": episodes.path if isinstance(episodes, Run) else episodes,
        "lora": None if lora is None else LoraSettings(lora),
        "device": device,
    }
    own = {"steps": steps, "seed": seed, **{f"template.{name}": each for name, each in (template or {}).items()}}
    changes = {**{name: value for name, value in own.items() if value is not None}, **(settings or {})}

    def begun() -> RunFolder:
        name = required(recipe, "recipe", "a recipe")
        given = recipes.with_whole_paths({name: value for name, value in options.items() if value is not None})
        job = recipes.adjusted(
            recipes.recipe_named(name), given, [f"{path}={_text(value)}" for path, value in changes.items()]
        )
        return recipes.start(recipes.Training(name, job), recipes.folder_of(name) if out is None else Path(out))

    def trained() -> Training:
        with user_input():
            folder = begun() if resume is None else RunFolder.open(Path(resume))
            choose_tracker(folder, log)
            how = recipes.training_of(folder).job.settings
            with progress_bar(how.steps, prefix="step ", unseen=False) if progress else UNSEEN as advance:

                def each(line: dict[str, Any]) -> None:
                    advance(int(line["step"]), how.progress_text(line))
                    report(line)

                try:
                    return Training(folder.path, recipes.go_on(folder, each))
                finally:
                    tell(f"the training is in {folder.path}; train(resume={str(folder.path)!r}) goes on with it")

    return _plain(beside_the_loop)(trained) if _in_loop() else trained()


@wraps(train)
async def atrain(*args: Any, **options: Any) -> Training:
    """`train` in a thread, for use in an event loop. If it is cancelled, the step ends and a checkpoint is saved first,
    as with Ctrl-C; a second cancellation does not wait for that."""
    from orgthink.training.interrupt import beside_the_loop

    return await beside_the_loop(partial(train, *args, **options))


def _task_name(given: AnyTask, grader: str | Grader | None, out: str | Path | None) -> tuple[str, int | None]:
    """The name of a task that is given as a name, an object or rows, and the number of rows. Rows are stored next to
    the run folder."""
    rows = None
    if isinstance(given, str):
        name = given
    elif callable(getattr(given, "grade", None)):  # columns of a data frame are attributes
        name = TASKS.add(given)
        up_to.cache_clear()  # a cell of a notebook may have changed the task
    else:
        name, rows = store_rows(given, Path("runs") if out is None else Path(out).parent)
    return name if grader is None else f"{name}#{grader if isinstance(grader, str) else TASKS.add(grader)}", rows


def _engine(
    model: AnyModel | None, url: str | None, tokenizer: str | None, given: dict[EngineSpec, Engine]
) -> EngineSpec:
    """The specification of a model. An open engine gets one, under which it joins the given ones."""
    if isinstance(model, EngineSpec):
        return model
    model = fspath(model) if isinstance(model, PathLike) else model
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
