"""The lessons of the base: all skills, and the form of all roles, in one stream.

Skills are taught as well as teachers can. How to organize is random: structures, routing, calls. Nothing is planted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Problem, Trace
from orgthink.tasks.sudoku import SUDOKU as SUDOKU_TASK
from orgthink.training.rows import Row, row_of
from orgthink_pocket.base import agents, arithmetic, drills, rehearsals, review
from orgthink_pocket.base.countdown import CountdownFamily, SeveralFamily, SingleFamily
from orgthink_pocket.base.family import CAPACITIES, Family, organizer, sequential
from orgthink_pocket.base.review_countdown import SeveralReviews, SingleReviews
from orgthink_pocket.base.review_sudoku import SudokuReviews
from orgthink_pocket.base.review_sums import SumReviews
from orgthink_pocket.base.sudoku import SudokuFamily
from orgthink_pocket.tasks.arithmetic import ARITHMETIC_MINI
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE
from orgthink_pocket.tasks.ledger import LEDGER_MINI
from orgthink_pocket.tasks.parts import PARTS_MINI
from orgthink_pocket.tasks.sums import SUMS_MINI

COUNTDOWN, SINGLE, SEVERAL = "countdown-mini", "countdown-mini-single", "countdown-mini-four"
ARITHMETIC, LEDGER, SUDOKU = "arithmetic-mini", "ledger-mini", "sudoku"
SUMS, PARTS = SUMS_MINI.name, PARTS_MINI.name

FAMILIES: Mapping[str, Family] = {
    COUNTDOWN: CountdownFamily(),
    SINGLE: SingleFamily(),
    SEVERAL: SeveralFamily(),
    ARITHMETIC: arithmetic.ShortFamily(),
    SUMS: arithmetic.SumsFamily(),
    PARTS: arithmetic.PartsFamily(),
    SUDOKU: SudokuFamily(),
}
"""Task → how it is worked on."""
REVIEWED: Mapping[str, review.Reviews] = {
    ARITHMETIC: SumReviews(),
    SUMS: SumReviews(),
    SINGLE: SingleReviews(),
    SEVERAL: SeveralReviews(),
    SUDOKU: SudokuReviews(),
}
"""Task → how its solutions are reviewed."""
STREAMS = (COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE, ARITHMETIC_MINI, LEDGER_MINI, SUMS_MINI, PARTS_MINI, SUDOKU_TASK)
"""Tasks of one problem each."""
HARD = 0.12
"""Share of countdowns without a solution of three numbers. Their targets are any, held-out ones too: no such problem is
in a split."""
PARTS_OF_SEVERAL = (2, 4)
"""Fewest and most countdowns of a thinker, so that its text fits the context."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """How often each lesson is drawn, by role and task. An organizer's lesson brings those of its workers."""

    alone: Mapping[str, float]
    """Thinkers, which are solvers too."""
    organizing: Mapping[str, float]
    """Organizers with their workers."""
    verifying: Mapping[str, float]
    """Verifiers."""
    correcting: Mapping[str, float]
    """Correctors."""
    calls: Mapping[str, float]
    """`manager`, `user`, and agents of a manager: `coder`, `searcher`, `reviewer`."""
    drills: Mapping[str, float]
    """`relations` and `operations`."""


MIXTURE = Mixture(
    alone={COUNTDOWN: 6, SINGLE: 3, SEVERAL: 2, ARITHMETIC: 8, SUMS: 4, PARTS: 5, SUDOKU: 8},
    organizing={COUNTDOWN: 6, SEVERAL: 2, SUMS: 3, PARTS: 3, SUDOKU: 4},
    verifying={ARITHMETIC: 4, SUMS: 2, SINGLE: 3, SEVERAL: 2, SUDOKU: 3},
    correcting={ARITHMETIC: 2.5, SUMS: 1.5, SINGLE: 1, SEVERAL: 2, SUDOKU: 2},
    calls={"manager": 7, "user": 2, "coder": 1.5, "searcher": 3, "reviewer": 2.5},
    drills={"relations": 9, "operations": 10},
)
"""Shares of a training's first phase."""
LATE = Mixture(
    alone={COUNTDOWN: 4, SINGLE: 2, SEVERAL: 3, ARITHMETIC: 4, SUMS: 4, PARTS: 4, SUDOKU: 5},
    organizing={COUNTDOWN: 18, SEVERAL: 7, SUMS: 8, PARTS: 9, SUDOKU: 7},
    verifying={ARITHMETIC: 5, SUMS: 4, SINGLE: 2, SEVERAL: 3, SUDOKU: 2},
    correcting={ARITHMETIC: 2, SUMS: 2, SINGLE: 1, SEVERAL: 4, SUDOKU: 3},
    calls={"manager": 8, "user": 3, "coder": 1, "searcher": 1.5, "reviewer": 3},
    drills={"relations": 4, "operations": 4},
)
"""Shares of its second phase: more of what takes longest to learn, which is to bring together what others return."""
MANAGERS = Mixture(alone={}, organizing={}, verifying={}, correcting={}, calls={"manager": 1}, drills={})
"""Shares of ParaManager's supervised fine-tuning."""
MIXTURES = {"even": MIXTURE, "late": LATE, "manager": MANAGERS}
"""Mixtures by name."""


class Lessons:
    """One endless stream of lessons."""

    def __init__(self, rng: random.Random, tokenizer: Tokenizer, mixture: Mixture = MIXTURE) -> None:
        self._rng = rng
        self._problems = {task.name: task.problems("train", rng.getrandbits(30)) for task in STREAMS}
        self._managers = rehearsals.managers(random.Random(rng.getrandbits(30)), tokenizer)
        self._users = rehearsals.users(random.Random(rng.getrandbits(30)), tokenizer)
        makers: dict[str, Callable[[str], list[Trace]]] = {
            "alone": lambda name: [sequential(FAMILIES[name], self.problem(name))],
            "organizing": lambda name: organizer(FAMILIES[name], self.problem(name), rng.choice(CAPACITIES), rng),
            "verifying": lambda name: [review.verifier(REVIEWED[name], self.problem(name, solvable=True), rng)],
            "correcting": lambda name: [review.corrector(REVIEWED[name], self.problem(name, solvable=True), rng)],
            "calls": self._call,
            "drills": lambda name: [getattr(drills, name)(rng)],
        }
        self.kinds = [
            (role, maker, name, share)
            for role, maker in makers.items()
            for name, share in getattr(mixture, role).items()
        ]

    def __iter__(self) -> Iterator[list[Trace]]:
        shares = [share for *_, share in self.kinds]
        while True:
            ((_, make, name, _),) = self._rng.choices(self.kinds, shares)
            yield make(name)

    def problem(self, name: str, *, solvable: bool = False) -> Problem:
        """The next problem of a task. Unless it must be `solvable`, a countdown may have no solution."""
        rng = self._rng
        if name == SEVERAL:
            return rehearsals.several(rng, PARTS_OF_SEVERAL)
        if name in (COUNTDOWN, SINGLE) and not solvable and rng.random() < HARD:
            task = COUNTDOWN_MINI if name == COUNTDOWN else COUNTDOWN_MINI_SINGLE
            target = rng.randint(*task.size.targets)
            return task.problem(rehearsals.missing(target, rng), target)
        return next(self._problems[name])

    def _call(self, name: str) -> list[Trace]:
        if name in ("manager", "user"):
            return [next(self._managers if name == "manager" else self._users)]
        rng = self._rng
        problem = self.problem(
            LEDGER if name == "searcher" else rng.choice((ARITHMETIC, SINGLE, LEDGER)), solvable=True
        )
        return [agents.lesson(name, problem, rng)]


def rows(seed: int, epoch: int, tokenizer: Tokenizer, mixture: Mixture = MIXTURE) -> Iterator[Row]:
    """An endless stream of rows; the same for the same epoch."""
    for traces in Lessons(random.Random(f"base {seed}/{epoch}"), tokenizer, mixture):
        yield from fitting(traces, tokenizer)


def fitting(traces: list[Trace], tokenizer: Tokenizer) -> list[Row]:
    """The rows that fit the context."""
    return [row for trace in traces if len(row := _row(trace, tokenizer)) <= rehearsals.LONGEST]


def _row(trace: Trace, tokenizer: Tokenizer) -> Row:
    """The row of a trace. Each span without ids is encoded by itself. Managers' traces have their own end of text."""
    ids = [tokenizer.encode(span.text) if span.token_ids is None else span.token_ids for span in trace.spans]
    spans = [replace(span, tokens=len(own), token_ids=own) for span, own in zip(trace.spans, ids, strict=True)]
    row = row_of(replace(trace, spans=tuple(spans)))
    if trace.spans[-1].token_ids is not None:
        return row
    return Row((*row.token_ids, *tokenizer.eos_ids), (*row.trained, True))
