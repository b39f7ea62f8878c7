"""Lessons in calls: managers with pools of nameless members, users of tools, and the agents of a manager.

Members are m1, m2, … in a fixed order and without descriptions; the simulated skill of each changes from batch to batch
and the lessons ask any of them at random. What a member is good at is left to experience.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.tool_use import ToolUse
from orgthink.record.episode import Problem, Trace
from orgthink.tasks import TASKS
from orgthink.tools.faults import Faults
from orgthink_pocket.base.style import REFERENCE
from orgthink_pocket.lessons import rehearsals
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_FOUR, CountdownSeveral
from orgthink_pocket.tool_model import MODELS, USING

MANAGED = {"arithmetic-mini": 0.2, "countdown-mini-single": 0.2, "countdown-mini-four": 0.4, "ledger-mini": 0.2}
"""Share of each task in the lessons of managers."""
SKILLS = ("arithmetic", "countdown", "code", "review")
"""What a simulated member may be good at."""
BATCH = 16
"""Episodes that run together."""
PARTS = (2, 6)
"""Fewest and most parts of several countdowns."""


def managers(rng: random.Random, tokenizer: Tokenizer, serial: float = rehearsals.SERIAL) -> Iterator[Trace]:
    """An endless stream of managers' episodes; a share of `serial` has one call a round."""
    problems = _problems(rng, MANAGED)
    while True:
        count = rng.randint(1, len(MODELS))
        members = {f"p{i}": " ".join(word for word in SKILLS if rng.random() < 0.6) for i in range(count)}
        organization = rehearsals.Rehearsal(
            prompts=REFERENCE,
            pool=members,
            aliases="fixed",
            rounds=rng.randint(*rehearsals.ROUNDS),
            calls=1 if rng.random() < serial else rehearsals.CALLS,
            faults=_faults(rng),
        )
        selected = [rehearsals.made_up(problem, rng) for problem in _drawn(rng, problems, MANAGED)]
        yield from _rehearsed(selected, organization, tokenizer, rng)


def users(rng: random.Random, tokenizer: Tokenizer) -> Iterator[Trace]:
    """An endless stream of episodes of models that use tools alone."""
    problems = _problems(rng, rehearsals.ALONE)
    while True:
        organization = rehearsals.Rehearsal(
            prompts=REFERENCE, tools=ToolUse.tools, rounds=USING["rounds"], faults=_faults(rng)
        )
        yield from _rehearsed(_drawn(rng, problems, rehearsals.ALONE), organization, tokenizer, rng)


def _faults(rng: random.Random) -> Faults:
    return Faults(rehearsals.FAULTS, rng.getrandbits(31), marked=True)


def _problems(rng: random.Random, shares: dict[str, float]) -> dict[str, Iterator[Problem]]:
    return {name: TASKS[name].problems("train", rng.getrandbits(30)) for name in shares}


def _drawn(rng: random.Random, problems: dict[str, Iterator[Problem]], shares: dict[str, float]) -> list[Problem]:
    """A batch of problems; several countdowns have any number of parts."""
    names = rng.choices(list(shares), list(shares.values()), k=BATCH)
    return [several(rng) if name == COUNTDOWN_MINI_FOUR.name else next(problems[name]) for name in names]


def several(rng: random.Random, parts: tuple[int, int] = PARTS, name: str = COUNTDOWN_MINI_FOUR.name) -> Problem:
    """Countdowns with the fewest and the most parts, as a problem of the task of this name."""
    single = COUNTDOWN_MINI_FOUR.single
    task = CountdownSeveral(name, single, rng.randint(*parts))
    return next(task.problems("train", rng.getrandbits(30)))


def _rehearsed(
    problems: list[Problem], organization: rehearsals.Rehearsal, tokenizer: Tokenizer, rng: random.Random
) -> Iterator[Trace]:
    """The traces that fit the context."""
    traces = rehearsals.rehearsed(problems, organization, tokenizer, rng.getrandbits(31), matched=0.0)
    yield from (trace for trace in traces if sum(span.tokens for span in trace.spans) <= rehearsals.LONGEST)
