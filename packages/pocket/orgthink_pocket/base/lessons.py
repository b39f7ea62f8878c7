"""The lessons of the base: all skills, and the form of all roles, in one stream.

Skills are taught as well as teachers can. How to organize is random: structures, routing, calls. Nothing is planted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Problem, Trace
from orgthink.tasks.sudoku import SUDOKU as SUDOKU_TASK
from orgthink.training.coldstart.structures import random_structure
from orgthink.training.rows import Row, row_of
from orgthink_pocket.base import arithmetic, calling, drills, review
from orgthink_pocket.base.countdown import CountdownFamily, LinkedFamily, NamedFamily, SeveralFamily, SingleFamily
from orgthink_pocket.base.family import CAPACITIES, Family, Structures, organizer, sequential
from orgthink_pocket.base.review_countdown import SeveralReviews, SingleReviews
from orgthink_pocket.base.review_sudoku import SudokuAnew, SudokuReviews
from orgthink_pocket.base.review_sums import SumReviews
from orgthink_pocket.base.style import REFERENCE
from orgthink_pocket.base.sudoku import SudokuFamily
from orgthink_pocket.lessons import rehearsals
from orgthink_pocket.lessons import tools as tool_lessons
from orgthink_pocket.tasks.arithmetic import ARITHMETIC_MINI
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE
from orgthink_pocket.tasks.countdown_linked import COUNTDOWN_MINI_LINKED
from orgthink_pocket.tasks.ledger import LEDGER_MINI
from orgthink_pocket.tasks.parts import PARTS_MINI
from orgthink_pocket.tasks.sums import SUMS_MINI

COUNTDOWN, SINGLE, SEVERAL = "countdown-mini", "countdown-mini-single", "countdown-mini-four"
NAMED = "countdown-mini-six"
WHOLE = "countdown-mini-six, whole"
"""The same with as many countdowns as the task has."""
LINKED, LOOKUPS = COUNTDOWN_MINI_LINKED.name, "lookups"
ARITHMETIC, LEDGER, SUDOKU = "arithmetic-mini", "ledger-mini", "sudoku"
SUMS, PARTS = SUMS_MINI.name, PARTS_MINI.name
ANEW = "sudoku, begun anew"
"""Reviews of sudoku grids in which nothing is worth keeping."""

FAMILIES: Mapping[str, Family] = {
    COUNTDOWN: CountdownFamily(),
    SINGLE: SingleFamily(),
    SEVERAL: SeveralFamily(),
    NAMED: NamedFamily(),
    WHOLE: NamedFamily(),
    LINKED: LinkedFamily(),
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
    ANEW: SudokuAnew(),
}
"""Task → how its solutions are reviewed."""
STREAMS = (COUNTDOWN_MINI, COUNTDOWN_MINI_SINGLE, ARITHMETIC_MINI, LEDGER_MINI, SUMS_MINI, PARTS_MINI, SUDOKU_TASK)
"""Tasks of one problem each."""
HARD = 0.12
"""Share of countdowns without a solution of three numbers. Their targets are any, held-out ones too: no such problem is
in a split."""
PARTS_OF_NAMED = (2, 6)
"""Fewest and most countdowns with words as names. A lesson that does not fit the context is left out."""
PARTS_OF_WHOLE = (6, 6)
"""The same where there are as many as in the task."""
PARTS_OF_LINKED = (2, 3, 4, 5, 6, 6, 6, 6)
"""Countdowns that may be linked."""
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
    """`relations`, `operations` and `lookups`."""
    serial: float = rehearsals.SERIAL
    """Share of managers with one call a round."""


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
REVIEWING = Mixture(
    alone={SUDOKU: 1}, organizing={}, verifying={SUDOKU: 1}, correcting={SUDOKU: 1}, calls={}, drills={}
)
"""Shares of fine-tuning for what MarsRL trains: solver, verifier and corrector."""
RENEWING = replace(REVIEWING, correcting={SUDOKU: 1, ANEW: 1})
"""The same, with correctors that mend or begin anew."""
RENEWED = replace(RENEWING, verifying={SUDOKU: 0.5, ANEW: 0.5}, correcting={SUDOKU: 0.5, ANEW: 0.5})
"""The same, and verifiers see grids that break their clues, too."""
DIVIDING = Mixture(
    alone={NAMED: 2, SINGLE: 1},
    organizing={NAMED: 2},
    verifying={},
    correcting={},
    calls={},
    drills={"relations": 0.5, "operations": 0.5},
)
"""Shares of fine-tuning for several countdowns: thinkers, organizers and workers."""
DIVIDING_WHOLE = replace(
    DIVIDING, alone={WHOLE: 1, SINGLE: 0.2}, organizing={WHOLE: 3}, drills={"relations": 0.2, "operations": 0.2}
)
"""The same for problems of six: `DIVIDING` has a sixth countdown in one lesson of five, and errors gather there."""
DIVIDING_DRILLED = replace(DIVIDING_WHOLE, drills={"relations": 2, "operations": 1})
"""The same with as many drills as the base had, 18 % of the tokens: with 2 %, arithmetic with held-out targets is
forgotten."""
LINKED_ONES = replace(
    DIVIDING,
    alone={LINKED: 0.5, SINGLE: 0.1},
    organizing={LINKED: 4},
    drills={"relations": 1, "operations": 0.3, LOOKUPS: 1},
)
"""Shares of fine-tuning for countdowns that may need each other."""
MIXED = replace(
    DIVIDING,
    alone={WHOLE: 0.5, PARTS: 0.5},
    organizing={WHOLE: 1, PARTS: 4},
    drills={"relations": 1, "operations": 0.5},
)
"""Shares of fine-tuning for what can be divided and what often cannot: six countdowns, and named values, half of them
chains."""
MANAGERS = Mixture(alone={}, organizing={}, verifying={}, correcting={}, calls={"manager": 1}, drills={})
"""Shares of ParaManager's supervised fine-tuning."""
MANAGERS_SERIAL = replace(MANAGERS, serial=1.0)
"""The same for its serial form: every manager has one call a round."""
MIXTURES = {
    "even": MIXTURE,
    "late": LATE,
    "reviews": REVIEWING,
    "renewing": RENEWING,
    "renewed": RENEWED,
    "dividing": DIVIDING,
    "dividing-whole": DIVIDING_WHOLE,
    "dividing-drilled": DIVIDING_DRILLED,
    "mixed": MIXED,
    "linked": LINKED_ONES,
    "manager": MANAGERS,
    "manager-serial": MANAGERS_SERIAL,
}
"""Mixtures by name."""


class Lessons:
    """One endless stream of lessons."""

    def __init__(
        self,
        rng: random.Random,
        tokenizer: Tokenizer,
        mixture: Mixture = MIXTURE,
        structures: Structures = random_structure,
        capacities: Sequence[int] = CAPACITIES,
    ) -> None:
        self._rng = rng
        self._problems = {task.name: task.problems("train", rng.getrandbits(30)) for task in STREAMS}
        self._managers = calling.managers(random.Random(rng.getrandbits(30)), tokenizer, mixture.serial)
        self._users = calling.users(random.Random(rng.getrandbits(30)), tokenizer)
        makers: dict[str, Callable[[str], list[Trace]]] = {
            "alone": lambda name: [sequential(FAMILIES[name], self.problem(name))],
            "organizing": lambda name: organizer(
                FAMILIES[name], self.problem(name), rng.choice(capacities), rng, structures
            ),
            "verifying": lambda name: [review.verifier(REVIEWED[name], self.problem(name, solvable=True), rng)],
            "correcting": lambda name: [review.corrector(REVIEWED[name], self.problem(name, solvable=True), rng)],
            "calls": self._call,
            "drills": self._drill,
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
            return calling.several(rng, PARTS_OF_SEVERAL)
        if name in (NAMED, WHOLE):
            return calling.several(rng, PARTS_OF_NAMED if name == NAMED else PARTS_OF_WHOLE, NAMED)
        if name == LINKED:
            return self._linked()
        if name in (COUNTDOWN, SINGLE) and not solvable and rng.random() < HARD:
            task = COUNTDOWN_MINI if name == COUNTDOWN else COUNTDOWN_MINI_SINGLE
            target = rng.randint(*task.size.targets)
            return task.problem(rehearsals.missing(target, rng), target)
        return next(self._problems[SUDOKU if name == ANEW else name])

    def _linked(self) -> Problem:
        """Countdowns in any number of chains, half of them in as many as there are: else few lessons have many forks at
        a time. Some can be solved without what they need, unlike those of the task.
        """
        rng, task = self._rng, COUNTDOWN_MINI_LINKED
        count = rng.choice(PARTS_OF_LINKED)
        chains = rng.choice((count, rng.randint(1, count)))
        while (found := task.drawn(rng, task.targets("train"), count, chains, binding=False)) is None:
            pass
        return found

    def _drill(self, name: str) -> list[Trace]:
        return [drills.lookups(self._linked(), self._rng) if name == LOOKUPS else getattr(drills, name)(self._rng)]

    def _call(self, name: str) -> list[Trace]:
        if name in ("manager", "user"):
            return [next(self._managers if name == "manager" else self._users)]
        rng = self._rng
        problem = self.problem(
            LEDGER if name == "searcher" else rng.choice((ARITHMETIC, SINGLE, LEDGER)), solvable=True
        )
        return [tool_lessons.lesson(name, problem, rng, style=REFERENCE)]


def rows(
    seed: int,
    pool: int,
    tokenizer: Tokenizer,
    mixture: Mixture = MIXTURE,
    structures: Structures = random_structure,
    capacities: Sequence[int] = CAPACITIES,
) -> Iterator[Row]:
    """An endless stream of rows; the same for the same pool."""
    for traces in Lessons(random.Random(f"base {seed}/{pool}"), tokenizer, mixture, structures, capacities):
        yield from _fitting(traces, tokenizer)


def by_kind(seed: int, tokenizer: Tokenizer, n: int) -> dict[str, list[Row]]:
    """At least `n` rows of each kind of lesson, by its name."""
    found: dict[str, list[Row]] = {}
    for role, make, name, _ in Lessons(random.Random(f"by kind {seed}"), tokenizer).kinds:
        kind = found[f"{role} {name}"] = []
        while len(kind) < n:
            kind += _fitting(make(name), tokenizer)
    return found


def _fitting(traces: list[Trace], tokenizer: Tokenizer) -> list[Row]:
    """The rows that fit the context. Managers' traces have their own end of text."""
    (eos,) = tokenizer.eos_ids
    made = (row_of(trace, tokenizer.encode, eos if trace.spans[-1].token_ids is None else None) for trace in traces)
    return [row for row in made if len(row) <= rehearsals.LONGEST]
