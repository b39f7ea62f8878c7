"""`orgthink run`: one problem, printed while it is solved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.cli.options import REPEATS, Options
from orgthink.cli.running import note, return_notes
from orgthink.engines import Engines, EngineSpec
from orgthink.evaluation.compatibility import pool_warning
from orgthink.evaluation.plan import QUESTION, distinct
from orgthink.evaluation.run import solve
from orgthink.evaluation.specs import preset_of
from orgthink.measure.accuracy import all_correct
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode, Problem
from orgthink.record.episode_json import dump
from orgthink.record.folder import RunFolder, require_vacant
from orgthink.record.guard import engine_failed, failure_message, unanswered
from orgthink.runtime.agent import Agent
from orgthink.runtime.attempt import WrongReturn
from orgthink.runtime.clock import run_main
from orgthink.util.errors import UserError, required
from orgthink.util.terminal import show

MOST_FAULTS = 20
"""Format errors that are listed."""


@dataclass(frozen=True, kw_only=True)
class RunCommand(Options):
    """Let an organization solve one problem, and watch its agents fork and join."""

    problem: Annotated[Positional[str | None], arg(metavar="[PROBLEM]")] = None
    """The problem, in your words; without it one of a task."""
    task: str | None = None
    """Task to draw a problem from, by --seed."""
    organization: str = "asyncthink"
    """Organization that solves it."""
    json: bool = False
    """Print only one JSON object: the answer, its grade and measures, and the whole episode as it is stored."""
    out: Path | None = None
    """New run folder for the episode: `orgthink view DIR` makes its page. Without it nothing is stored."""

    def __call__(self) -> int:
        return run_main(self._run())

    async def _run(self) -> int:
        problem = self._problem()
        plan = self.plan_of(QUESTION, (self.organization,), n=1)
        note(*(pool_warning(each, plan.limits.capacity) for each in plan.made().values()))
        note(_question_note(plan.engine) if problem.task == QUESTION else None)
        if self.out is not None:
            require_vacant(self.out)
        if not self.json:
            show(problem.text)
        async with Engines() as engines:
            note(*[(await engines.get(spec)).notice for spec in plan.engines])
            try:
                episode = await solve(plan, problem, engines, watch=None if self.json else Story().watch)
            except WrongReturn as error:
                raise UserError(str(error)) from error
        if self.out is not None:
            folder = RunFolder.create(self.out, "run", plan)
            folder.write(REPEATS, self.repeating("run"))
            with folder.journal() as journal:
                journal.append(episode)
        show(json.dumps(as_json(episode)) if self.json else as_text(episode))
        lacking = None if episode.answer else f"no answer: {': '.join(unanswered(episode))}"
        note(*return_notes([episode]), failure_message(episode) if engine_failed(episode) else lacking)
        return int(engine_failed(episode) or not episode.answer)

    def _problem(self) -> Problem:
        if self.problem is None:
            return distinct(required(self.task, "task", "--task TASK, or the problem itself"), "test", self.seed, 1)[0]
        if not self.problem.strip():
            raise UserError("the problem is empty")
        return Problem(id=QUESTION, task=QUESTION, text=self.problem)


def _question_note(spec: EngineSpec) -> str | None:
    """That a model cannot read a question in the user's words."""
    tasks = preset_of(spec).tasks
    if not tasks:
        return None
    return (
        f"{spec.model} knows only its own tasks ({', '.join(tasks)}), no other question: name a real model with "
        f"--model FOLDER or a server's --url, or take a problem of a task, as in --task {tasks[0]}"
    )


def as_text(episode: Episode) -> str:
    """The answer and the measures of an episode."""
    facts = [
        f"{critical_path(episode)} steps on the critical path",
        f"{sampled_tokens(episode)} tokens",
        f"{episode.seconds:.2f} s",
    ]
    if episode.grade is not None:
        facts.insert(0, f"{episode.grade.correct} of {episode.grade.required} right")
    faults = episode.format_faults
    facts += [f"{fault.kind} by {fault.agent}" for fault in faults[:MOST_FAULTS]]
    facts += [f"{len(faults) - MOST_FAULTS} more format errors"] if len(faults) > MOST_FAULTS else []
    answer = "no answer" if episode.answer is None else f"answer:\n{episode.answer}"
    return f"\n{answer}\n{', '.join(facts)}"


def as_json(episode: Episode) -> dict[str, object]:
    """The same, with the whole episode."""
    return {
        "answer": episode.answer,
        "all_correct": all_correct(episode),
        "critical_path_steps": critical_path(episode),
        "sampled_tokens": sampled_tokens(episode),
        "concurrency": concurrency(episode),
        "seconds": episode.seconds,
        "episode": json.loads(dump(episode)),
    }


_WORDS = {"start": "starts", "fork": "forks", "join": "joins", "end": "ends:"}


class Story:
    """Prints events. The text of an agent (│) is printed before its next event, such as the text of a Join (◂)."""

    def __init__(self) -> None:
        self._pending: dict[str, str] = {}
        show("\nsteps  agent          (each agent counts its own decoding steps)")

    def watch(self, kind: str, agent: Agent, text: str) -> None:
        """The watcher of a session."""
        if kind == "text":
            self._pending[agent.id] = self._pending.get(agent.id, "") + text
            return
        self._lines(agent, "│", self._pending.pop(agent.id, ""))
        if kind == "inject":
            self._lines(agent, "◂", text)
        else:
            self._line(agent, f"{_WORDS[kind]} {text}".rstrip())

    def _lines(self, agent: Agent, mark: str, text: str) -> None:
        for line in text.strip().splitlines():
            self._line(agent, f"{mark} {line.strip()}")

    def _line(self, agent: Agent, text: str) -> None:
        show(f"{agent.steps:5d}  {agent.id:<14} {text}")
