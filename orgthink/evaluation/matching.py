"""Baselines at the same mean cost as the first organization, in tokens or in critical path: `orgthink eval --match`.

Each baseline gets another number of votes, or of tokens an agent, until its mean over development problems agrees with
that of the first organization. These problems follow those of the evaluation in the task's stream. No episode is cut
off at the mean: costs vary from problem to problem, as they do with the first organization.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal

from orgthink.engines import Engines, EngineSpec
from orgthink.engines.engine import Engine
from orgthink.evaluation.plan import Evaluation, resolve
from orgthink.evaluation.run import evaluate, open_plan
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.measure.accuracy import was_truncated
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.folder import RunFolder
from orgthink.record.guard import engine_failed
from orgthink.util.errors import UserError, pick

PROBLEMS, LEAST = 32, 4
"""Development problems, and the fewest that are accepted."""
ROUNDS = 5
"""Most settings of a baseline that are tried."""
COSTS = {"tokens": sampled_tokens, "path": critical_path}


async def matched(
    plan: Evaluation,
    by: Literal["tokens", "path"],
    folder: Path,
    given: Mapping[EngineSpec, Engine] | None = None,
) -> Evaluation:
    """The plan with a setting for each baseline, and in `matched` what was chosen and what remains of the difference.

    At equal tokens, organizations with `samples` get another number of votes; all others another `max_tokens`. The
    episodes are stored in `folder`. `given` engines are open already and stay open. UserError for a task without
    further problems.
    """
    (reference, first), *baselines = plan.organizations.items()
    found, lines = dict(plan.organizations), dict[str, str]()
    async with Engines(given) as engines:
        cost = partial(_cost, plan, by, folder, engines)
        target = await cost(reference, first, "max_tokens", plan.budget_of(reference)[0].max_tokens)
        for label, spec in baselines:
            votes = getattr(spec.named(label), "samples", None) if by == "tokens" else None
            setting, start = ("samples", votes) if votes else ("max_tokens", plan.budget_of(label)[0].max_tokens)
            number, mean = await closest(partial(cost, label, spec, setting), start, target)
            found[label] = _with(spec, setting, number)
            lines[label] = (
                f"{setting} = {number}: mean {by} {mean:.0f}, {reference} {target:.0f} ({mean / target - 1:+.0%}), "
                f"on other problems{_warning(setting, number, start, folder / f'{label}-{number}')}"
            )
    return replace(plan, organizations=found, matched=lines)


async def closest(cost: Callable[[int], Awaitable[float]], number: int, target: float) -> tuple[int, float]:
    """The setting whose mean cost is the closest to the target, and that cost. It starts at `number`, goes on in
    proportion to the costs, and ends where a setting is no closer than the one before."""
    best = number, await cost(number)
    number = min(number, round(best[1]))  # a limit that few agents reach is no measure of their cost
    for _ in range(ROUNDS - 1):
        number = max(1, round(number * target / best[1]))
        if number == best[0] or abs((mean := await cost(number)) - target) >= abs(best[1] - target):
            break
        best = number, mean
    return best


def _warning(setting: str, number: int, start: int, trial: Path) -> str:
    """Why a smaller setting makes no fair baseline, and what to do; empty if it may be one."""
    cut = setting == "max_tokens" and fmean(map(was_truncated, RunFolder.open(trial).episodes())) > 0.5
    why = (
        "most of these episodes are cut off"
        if cut
        else "one vote is no vote"
        if setting == "samples" and number == 1
        else ""
    )
    return f"; warning: {why}, so name the most expensive organization first" if why and number < start else ""


def _with(spec: OrganizationSpec, setting: str, number: int) -> OrganizationSpec:
    if setting == "max_tokens":
        return replace(spec, max_tokens=number)
    return replace(spec, settings={**spec.settings, setting: number})


async def _cost(
    plan: Evaluation,
    by: str,
    folder: Path,
    engines: Engines,
    label: str,
    spec: OrganizationSpec,
    setting: str,
    number: int,
) -> float:
    """The mean cost of an organization with a setting, over development problems."""
    measure = pick("cost to match", by, COSTS)
    whole = resolve(replace(plan, organizations={label: _with(spec, setting, number)}, n=plan.n + PROBLEMS, samples=1))
    others = dict(list(whole.planned.items())[plan.n :])
    if len(others) < LEAST:
        way = f"give --n {whole.plan.n - LEAST} or less" if whole.plan.n > LEAST else f"it needs at least {LEAST + 1}"
        raise UserError(f"--match needs {LEAST} other problems: {plan.task} has {whole.plan.n} in all, so {way}")
    opened = replace(whole, plan=await open_plan(whole.plan, engines), planned=others)
    run = RunFolder.create(folder / f"{label}-{number}", "eval", opened.plan, overwrite=True)
    costs = [measure(one) for one in await evaluate(opened, engines, run) if not engine_failed(one)]
    if not any(costs):
        raise UserError(f"--match: {label} sampled nothing on {len(others)} other problems: see {run.path}")
    return fmean(costs)
