"""What a base can do: each skill and each role by itself, on training problems (to develop) or held-out ones.

    python -m orgthink_pocket.base.skills MODEL --n 50 --temperature 0 1 --split train
    python -m orgthink_pocket.base.skills MODEL --forced

Problems of `train` are of seeds that no lesson has. `--forced` needs no sampling: the share of a teacher's tokens that
the model would have written too, for each kind of lesson, and the share of lessons without any other token.
"""

from __future__ import annotations

import asyncio
import random
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch

from orgthink.engines.engine import Context
from orgthink.engines.local.engine import LocalEngine
from orgthink.grammar.solution import read_proposal
from orgthink.grammar.verdict import read_report
from orgthink.measure.estimate import proportion
from orgthink.measure.latency import critical_path
from orgthink.models.qwen3 import Qwen3
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Message, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import Episode, attempt
from orgthink.runtime.budget import Limits
from orgthink.tasks.task import Split
from orgthink.training.batches import collate
from orgthink.util.concurrency import run_all
from orgthink.util.errors import UserError, require_at_least, user_input
from orgthink.util.terminal import show
from orgthink_pocket.base import lessons, review
from orgthink_pocket.base.family import question
from orgthink_pocket.base.style import REFERENCE
from orgthink_pocket.model import PAD
from orgthink_pocket.style import VERDICTS
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_FOUR, CountdownSeveral

TOKENS = 640
"""Most tokens of an agent: enough for every lesson but a few."""
CAPACITY = 4
"""Pool of an organizer."""
SEED = 990_017
"""Of problems. The streams of lessons have other seeds."""
FORCED = 24
"""Lessons of each kind with `--forced`."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """One attempt at a skill."""

    problem: str
    """Id of the problem."""
    right: bool
    """Whether it is all right."""
    tokens: int
    """Sampled tokens of all agents."""
    steps: int
    """Decoding steps on the critical path."""


@dataclass(frozen=True, slots=True)
class Examiner:
    """Asks a model for each skill."""

    engine: LocalEngine
    """The model."""
    temperature: float
    """0 is greedy."""
    split: Split
    """Training problems, or held-out ones."""

    def problems(self, name: str, n: int) -> list[Problem]:
        """Different problems of a task; several countdowns have three parts."""
        single = COUNTDOWN_MINI_FOUR.single
        tasks = {task.name: task for task in lessons.STREAMS}
        task = CountdownSeveral(name, single, 3) if name == lessons.SEVERAL else tasks[name]
        stream, found = task.problems(self.split, SEED), dict[str, Problem]()
        while len(found) < n:
            problem = next(stream)
            found[problem.id] = problem
        return list(found.values())

    async def text(self, prompt: str, seed: int) -> tuple[str, int]:
        """What the model writes, and how many tokens that is."""
        messages = (Message("user", prompt),)
        context = Context(messages, [self.engine.prompt(messages)])
        sampling = Sampling(TOKENS, self.temperature, seed=seed)
        pieces: list[str] = []
        async for chunk in self.engine.stream(context, sampling):
            pieces += chunk.pieces
        return "".join(pieces), len(pieces)

    async def alone(self, problem: Problem) -> Attempted:
        """A thinker alone."""
        return await self._answered(problem, question("sequential", problem))

    async def verifying(self, problem: Problem) -> Attempted:
        """A verdict on a solution that is right or wrong."""
        rng = random.Random(problem.id)
        draft = lessons.REVIEWED[problem.task].draft(problem, rng.random() < review.WRONG, rng)
        text, tokens = await self.text(question("verifier", problem, solution=draft.text), 0)
        return Attempted(problem.id, read_report(text, VERDICTS).verdict.agrees(draft.right), tokens, tokens)

    async def correcting(self, problem: Problem) -> Attempted:
        """A correction of a wrong solution with a true finding."""
        reviews = lessons.REVIEWED[problem.task]
        draft = reviews.draft(problem, True, random.Random(problem.id))
        findings = read_report(reviews.report(problem, draft.text), VERDICTS).findings
        return await self._answered(problem, question("corrector", problem, solution=draft.text, report=findings))

    async def organizing(self, problem: Problem) -> Attempted:
        """AsyncThink, the workers included."""
        organization = AsyncThink(prompts=REFERENCE, malformed="error")
        backing = Backing(self.engine, Sampling(TOKENS, self.temperature, seed=0))
        episode: Episode = await attempt(organization, problem, backing, limits=Limits(capacity=CAPACITY))
        tokens = sum(span.tokens for trace in episode.traces for span in trace.spans if span.origin.own)
        return Attempted(problem.id, _right(problem, episode.answer), tokens, critical_path(episode))

    async def _answered(self, problem: Problem, prompt: str) -> Attempted:
        text, tokens = await self.text(prompt, 0)
        return Attempted(problem.id, _right(problem, read_proposal(text, ended=True).answer), tokens, tokens)


def _right(problem: Problem, answer: str | None) -> bool:
    graders = {**{task.name: task for task in lessons.STREAMS}, COUNTDOWN_MINI_FOUR.name: COUNTDOWN_MINI_FOUR}
    return answer is not None and graders[problem.task].grade(problem, answer).all_correct


async def examined(folder: Path, temperature: float, split: Split, n: int) -> list[str]:
    """One line for each skill: share that is right, tokens, steps."""
    with user_input():
        engine = LocalEngine.open(folder)
    examiner = Examiner(engine, temperature, split)
    lines: list[str] = []
    try:
        for role in ("alone", "organizing", "verifying", "correcting"):
            for name in getattr(lessons.MIXTURE, role):
                found = await run_all(getattr(examiner, role), examiner.problems(name, n))
                share = proportion((one.problem, float(one.right)) for one in found)
                tokens, steps = (sum(getattr(one, key) for one in found) / n for key in ("tokens", "steps"))
                lines.append(
                    f"| {split} | {temperature:g} | {role} | {name} | {_percent(share.mean)} "
                    f"[{_percent(share.low)}, {_percent(share.high)}] | {tokens:.0f} | {steps:.0f} |"
                )
    finally:
        await engine.aclose()
    return lines


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


@torch.no_grad()
def forced(folder: Path) -> list[str]:
    """One line for each kind of lesson: wrong tokens, and lessons without any, where the teacher's text is forced."""
    model, tokenizer = Qwen3.load(folder), Tokenizer(folder)
    (pad,) = tokenizer.encode(PAD)
    lines: list[str] = []
    for kind, rows in lessons.by_kind(SEED, tokenizer, FORCED).items():
        ids, trained = collate(rows, pad)
        mask = trained[:, 1:]
        wrong = model.logits(model.hidden(ids[:, :-1])[mask]).argmax(-1) != ids[:, 1:][mask]
        failed = set(mask.nonzero()[:, 0][wrong].tolist())
        lines.append(f"| {kind} | {100 * wrong.float().mean():.2f} | {100 * (1 - len(failed) / len(rows)):.0f} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Returns the exit code: 2 for an error of the user."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--n", type=int, default=50, help="problems of each skill")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0])
    parser.add_argument("--split", choices=("train", "test"), default="train")
    parser.add_argument("--forced", action="store_true", help="teachers' texts instead of the model's own")
    options: Any = parser.parse_args(arguments)
    try:
        _print_table(options)
    except UserError as error:
        show(f"skills: {error}", error=True)
        return 2
    return 0


def _print_table(options: Any) -> None:
    with user_input():
        require_at_least(1, options, "n")
        for temperature in options.temperature:
            if not 0 <= temperature < inf:
                raise ValueError(f"temperature is {temperature}: it must be a number from 0 on")
    if options.forced:
        show("| lessons | wrong tokens % | without any % |\n|---|--:|--:|")
        show("\n".join(forced(options.model)))
        return
    show("| split | T | role | task | right % | tokens | critical path |\n|---|--:|---|---|--:|--:|--:|")
    for temperature in options.temperature:
        for line in asyncio.run(examined(options.model, temperature, options.split, options.n)):
            show(line)


if __name__ == "__main__":
    sys.exit(main())
