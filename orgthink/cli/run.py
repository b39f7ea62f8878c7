"""`orgthink run`: one problem, watched."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.cli.approval import Approved, approver
from orgthink.cli.lanes import lanes
from orgthink.cli.notes import ignored_server, never_returned, note, only_its_tasks, pools, unlike_its_style
from orgthink.cli.options import Options
from orgthink.cli.prices import read_prices, unpriced
from orgthink.engines import Engines
from orgthink.engines.person import ask_at_terminal
from orgthink.evaluate.compatibility import require_sampling_noise
from orgthink.evaluate.evaluation import distinct
from orgthink.evaluate.grading import grade_or_keep
from orgthink.measure.accuracy import all_correct
from orgthink.measure.concurrency import concurrency
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import Prices, dollars, sampled_tokens, spent
from orgthink.record.episode import Episode, Problem
from orgthink.record.episode_json import dump
from orgthink.record.failures import engine_failed, failure_message
from orgthink.runtime import Approve
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import WrongReturn, attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_main
from orgthink.runtime.organization import Organization
from orgthink.tasks import task_of
from orgthink.util.errors import UserError, required
from orgthink.util.terminal import show

MOST_FAULTS = 20
"""Format errors that are named."""

FREE = "free"
"""Task of a problem that the user typed: nobody can grade it."""


@dataclass(frozen=True, kw_only=True)
class RunCommand(Options):
    """Let an organization solve one problem, and watch its agents fork and join."""

    problem: Annotated[Positional[str | None], arg(metavar="[PROBLEM]")] = None
    """The problem, in your words; without it one of a task."""
    task: str | None = None
    """Task to draw a problem from, by --seed."""
    organization: str = "asyncthink"
    """Who solves it."""
    approve: Approved | None = None
    """Calls that begin only when you allow them at the terminal: those of `tools`, `forks` of agents, or `all`."""
    json: bool = False
    """Print nothing but one JSON object: the answer, its grade and measures, and the whole episode as it is stored."""
    prices: Path | None = None
    """TOML or JSON file with dollars for a million tokens of each model, as for `orgthink eval`."""

    def __call__(self) -> int:
        return run_main(self._run())

    async def _run(self) -> int:
        spec, prices = self.spec(), read_prices(self.prices)
        organized = self.organize((self.organization,))
        ((label, how),) = organized.items()
        organization, problem = how.named(label), self.find()
        sampling, limits = self.sampling(organized), self.limits(organized)
        others = self.backed(organized)
        require_sampling_noise(organization, sampling, limits.capacity, others)
        hook = None if self.approve is None else approver(self.approve, ask_at_terminal())
        note(ignored_server(spec, self.model), *pools([organization], limits.capacity))
        note(only_its_tasks(spec) if problem.task == FREE else None)
        async with Engines() as engines:
            own = Backing(await engines.get(spec), sampling)
            if spec.model is None:
                note(unlike_its_style(await engines.named(spec), [organization]))
            roles = {name: Backing(await engines.get(role.engine), role.sampling) for name, role in others.items()}
            note(unpriced([backing.engine.model for backing in (own, *roles.values())], prices))
            try:
                episode = await watched(organization, problem, own, roles, limits, silent=self.json, approve=hook)
            except WrongReturn as error:
                raise UserError(str(error)) from error
            code = tell_json(episode, prices) if self.json else tell(episode, prices)
            note(*never_returned([episode]))
            return code

    def find(self) -> Problem:
        """What is to be solved."""
        if self.problem is None:
            return distinct(required(self.task, "task", "--task TASK, or the problem itself"), "test", self.seed, 1)[0]
        if not self.problem.strip():
            raise UserError("the problem is empty")
        return Problem(id=FREE, task=FREE, text=self.problem)


async def watched(
    organization: Organization,
    problem: Problem,
    default: Backing,
    roles: dict[str, Backing],
    limits: Limits,
    *,
    silent: bool = False,
    approve: Approve | None = None,
) -> Episode:
    """An attempt, shown while it happens unless it is `silent`, with its grade if the problem is a task's."""
    if not silent:
        show(problem.text)
    people = approve is not None or any(one.engine.person for one in (default, *roles.values()))
    with nullcontext() if silent else lanes(live=not people) as watch:
        how = {"roles": roles, "limits": limits, "watch": watch, "approve": approve}
        episode = await attempt(organization, problem, default, **how)
    task = task_of(problem)
    return episode if task is None else grade_or_keep(episode, task)


def tell(episode: Episode, prices: Prices) -> int:
    """Print what came of it; return the exit code."""
    show(f"\nanswer:\n{episode.answer}" if episode.answer is not None else "\nno answer")
    facts = [
        f"{critical_path(episode)} steps on the critical path",
        f"{sampled_tokens(episode)} tokens",
        f"{episode.seconds:.2f} s",
    ]
    if prices and (paid := dollars(episode.traces, prices)) is not None:
        how = f", ${paid.estimated:.4g} of them by our own counts" if paid.estimated else ""
        facts.append(f"${paid.total:.4g}{how}")
    if episode.grade is not None:
        facts.insert(0, f"{episode.grade.correct} of {episode.grade.required} right")
    faults = episode.format_faults
    facts += [f"{fault.kind} by {fault.agent}" for fault in faults[:MOST_FAULTS]]
    facts += [f"{len(faults) - MOST_FAULTS} more format errors"] if len(faults) > MOST_FAULTS else []
    show(", ".join(facts))
    return complain_of(episode)


def tell_json(episode: Episode, prices: Prices) -> int:
    """Print it as JSON; return the exit code."""
    found = {
        "answer": episode.answer,
        "all_correct": all_correct(episode),
        "critical_path_steps": critical_path(episode),
        "sampled_tokens": sampled_tokens(episode),
        "concurrency": concurrency(episode),
        "seconds": episode.seconds,
        "dollars": spent(episode, prices),
        "episode": json.loads(dump(episode)),
    }
    show(json.dumps(found))
    return complain_of(episode)


def complain_of(episode: Episode) -> int:
    """Say so if an engine failed; the exit code."""
    if engine_failed(episode):
        show(f"orgthink: {failure_message(episode)}", error=True)
    return int(engine_failed(episode))
