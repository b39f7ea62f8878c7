"""Six countdowns, of which some need what others leave over: which parts need each other is not listed.

    copper : 1 5 7 8 9 = 10 ; zinc : 3 copper 8 13 14 = 29 ; iron : 2 4 6 11 15 = 31

A name among the numbers stands for the smallest number that the solution of that countdown does not use. Countdowns
are chosen so that all their solutions leave the same one, and use what they need. They make chains: countdowns of one
chain have to be solved in turn, chains can be divided among agents. All kinds of problems look alike but for the names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, permutations
from typing import Any

from orgthink.record.episode import Problem
from orgthink.tasks.countdown import Countdown, CountdownSize, all_solutions
from orgthink.tasks.task import Split
from orgthink_pocket.tasks.countdown_several import CountdownSeveral
from orgthink_pocket.tasks.parts import NAMES

COUNT = 6
"""Countdowns of a problem."""
USED = 3
"""Numbers of a solution, no more and no less."""
SINGLE = Countdown(
    "countdown-mini-linked, one",
    CountdownSize(
        largest=15, given=5, targets=(10, 60), held_out=10, required=1, used=(USED, USED), guaranteed=USED, offered=1
    ),
    like="countdown-mini",
)
"""One of the countdowns, with the held-out targets of `countdown-mini`."""

Left = tuple[tuple[int, ...], int]
"""Numbers of a countdown, sorted, and the smallest that every solution leaves over."""


class CountdownLinked(CountdownSeveral):
    """Countdowns in chains of the same length; their targets are those of the split."""

    def __init__(self, name: str, chains: Sequence[int]) -> None:
        """`chains` are the numbers of chains that a problem may have, each as often."""
        super().__init__(name, SINGLE, COUNT)
        self.chains = tuple(chains)

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        rng = random.Random(f"{self.name} {split} {seed}")
        targets = self.targets(split)
        while True:
            chains = rng.choice(self.chains)
            while (found := self.drawn(rng, targets, self.count, chains)) is None:
                pass
            yield found

    def targets(self, split: Split) -> list[int]:
        """Targets of a split."""
        low, high = SINGLE.size.targets
        return [target for target in range(low, high + 1) if (target in SINGLE.test_targets) == (split == "test")]

    def drawn(
        self, rng: random.Random, targets: Sequence[int], count: int, chains: int, *, binding: bool = True
    ) -> Problem | None:
        """A problem of so many countdowns in so many chains; `None` if no countdown has what the one before leaves.
        Unless links are `binding`, a countdown may have a solution without the number that it needs.
        """
        owners = [i % chains for i in range(count)]
        rng.shuffle(owners)
        last: dict[int, dict[str, Any]] = {}
        parts: list[dict[str, Any]] = []
        for name, owner in zip(NAMES, owners, strict=False):
            before = last.get(owner)
            target = rng.choice(targets)
            fitting = _fitting(target, None if before is None else before["left"], binding)
            if not fitting:
                return None
            numbers, left = rng.choice(fitting)
            link = None if before is None else before["name"]
            last[owner] = {"name": name, "numbers": list(numbers), "target": target, "needs": link, "left": left}
            parts.append(last[owner])
        return self.linked(parts, chains)

    def linked(self, parts: list[dict[str, Any]], chains: int) -> Problem:
        """`parts` have a name, the numbers, the target, the name of what is needed, and what is left over."""
        listed = "\n".join(
            f"{part['name']}: {', '.join(as_given(parts, part))}. Target: {part['target']}." for part in parts
        )
        return Problem(
            id=f"{self.name}/{'+'.join('-'.join(as_given(parts, part)) + '=' + str(part['target']) for part in parts)}",
            task=self.name,
            text=f"Solve {len(parts)} problems. {_INSTRUCTION}\n{listed}",
            instruction=_INSTRUCTION,
            required=len(parts),
            data={"parts": parts, "chains": chains},
        )


_INSTRUCTION = (
    f"For each, find one expression over + - * / and parentheses that equals the target, using exactly {USED} of the "
    "numbers, each number at most once. A name among the numbers stands for the smallest number that the solution of "
    "the problem with that name leaves over. Write one expression per line in the answer, with numbers only."
)


def as_given(parts: Sequence[dict[str, Any]], part: dict[str, Any]) -> list[str]:
    """The numbers of a countdown as the problem has them: a name for what another one leaves over."""
    left = {one["name"]: one["left"] for one in parts}.get(part["needs"])
    return [part["needs"] if number == left else str(number) for number in part["numbers"]]


def needs_of(problem: Problem) -> dict[str, str]:
    """Name of a countdown → name of the one that it needs, for those that need one."""
    return {part["name"]: part["needs"] for part in problem.data["parts"] if part["needs"]}


def chains_of(problem: Problem) -> list[list[str]]:
    """The names of each chain, in turn."""
    needs = needs_of(problem)
    chains: list[list[str]] = []
    for part in problem.data["parts"]:
        chain = next((chain for chain in chains if chain[-1] == needs.get(part["name"])), None)
        if chain is None:
            chains.append(chain := [])
        chain.append(part["name"])
    return chains


@cache
def _fitting(target: int, number: int | None, binding: bool) -> list[Left]:
    """Countdowns of a target whose solutions all leave the same number; with this number among theirs, or if links are
    binding, in every solution."""
    found: list[Left] = []
    for numbers in combinations(range(1, SINGLE.size.largest + 1), SINGLE.size.given):
        triples = _solved(numbers, target)
        needed = numbers if number is None or not binding else set(numbers).intersection(*triples)
        left = {min(set(numbers).difference(triple)) for triple in triples}
        if len(left) == 1 and (number is None or number in needed):
            found.append((numbers, left.pop()))
    return found


def _solved(numbers: tuple[int, ...], target: int) -> list[tuple[int, ...]]:
    """The numbers of each solution; none if the target is among the numbers, or has no solution with positive whole
    numbers on the way.
    """
    triples = [triple for triple in combinations(numbers, USED) if target in _values(triple)]
    return triples if target not in numbers and any(target in _plain(triple) for triple in triples) else []


@cache
def _plain(numbers: tuple[int, ...]) -> frozenset[int]:
    """Values of all three with positive whole numbers on the way, as `all_solutions` has them."""
    return frozenset(all_solutions(list(numbers), USED)[(1 << USED) - 1])


@cache
def _values(numbers: tuple[int, ...]) -> frozenset[Fraction]:
    """All values that an expression of all three can have."""
    return frozenset(
        value
        for a, b, c in permutations(map(Fraction, numbers))
        for pair in _results(a, b)
        for value in (*_results(pair, c), *_results(c, pair))
    )


def _results(a: Fraction, b: Fraction) -> list[Fraction]:
    return [a + b, a - b, a * b, *([a / b] if b else [])]


COUNTDOWN_MINI_LINKED = CountdownLinked("countdown-mini-linked", (1, 2, 3, 6))
"""Six countdowns in one, two, three or six chains."""
COUNTDOWN_MINI_LINKED_CHAINED = CountdownLinked("countdown-mini-linked-chained", (1,))
"""In one chain: nothing can be divided."""
