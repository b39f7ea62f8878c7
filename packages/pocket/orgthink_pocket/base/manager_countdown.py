"""The teacher of managers for countdown, in one part or several: ask for solutions, compare offers with targets in
python, ask again for open parts, end.

A thought first repeats the results of the program, because a small manager decides by its last tokens. For one part
it reads `17 ok ; final 17 = ( 4 + 9 ) + 4`. For several parts it lists the state of each in order, such as
`17 = ( 4 + 9 ) + 4 ; 31 bad ; ask 31`, so that the next list and the answer are updated copies. A small manager finds
a token by the tokens before it, so a target always precedes its solution.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from orgthink.grammar.toolcall import ToolCall
from orgthink_pocket.base.manager_view import CALCULATORS, Move, Round, View, call, printed, python, returned
from orgthink_pocket.base.scan import NO_SOLUTION, OPERATORS, first_hit
from orgthink_pocket.style import NAMED, SEPARATOR

TRUSTING = 0.02
"""Share of decisions that accept offers unchecked."""


@dataclass(slots=True)
class _Part:
    """One of the countdowns of a problem."""

    question: str
    """`2 4 6 9 13 = 17`."""
    offers: dict[str, int] = field(default_factory=dict)
    """Offered solutions → position among all offers."""
    verdicts: dict[str, bool] = field(default_factory=dict)
    """Checked solutions → whether the value is the target."""

    @property
    def target(self) -> str:
        return self.question.split()[-1]

    @property
    def good(self) -> str | None:
        """The first solution that was found right."""
        return next((offer for offer in self.offers if self.verdicts.get(offer)), None)

    @property
    def fresh(self) -> list[str]:
        """Solutions not checked yet."""
        return [offer for offer in self.offers if offer not in self.verdicts]

    @property
    def best(self) -> str:
        """The solution of the final answer."""
        return next(iter([*filter(None, [self.good]), *self.fresh, *self.offers]), NO_SOLUTION)

    @property
    def equation(self) -> str:
        """Target and best solution, as in thoughts."""
        return f"{self.target} = {self.best}"


def move(view: View, rng: random.Random) -> Move:
    """The next move."""
    parts = _parts(view)
    unsolved = [part for part in parts if part.good is None]
    # One offer of each: with two verdicts for a target, a small manager takes the wrong one.
    offers = ((part, part.fresh[0]) for part in unsolved if part.fresh)
    fresh = sorted(offers, key=lambda offer: offer[0].offers[offer[1]])
    without_offer = [part for part in unsolved if not part.fresh]
    trusting = bool(fresh) and not without_offer and rng.random() < TRUSTING
    ended = not unsolved or view.left <= 1 or trusting
    noted = _noted(view, parts, ended)
    if ended:
        return f"{noted}final{f' {parts[0].equation}' if len(parts) == 1 else ''}", []
    if "standard_reasoner" not in view.tools:
        return _tried(unsolved[0], rng)
    if fresh and (not without_offer or rng.random() < 0.5):
        calls = _check(view, fresh, len(parts), rng)
        more = without_offer if view.most > len(calls) and rng.random() < 0.7 else []
        requests = _ask(view, more, len(parts), view.most - len(calls), rng)
        return f"{noted}check{_named(more)}", [*calls, *requests]
    return f"{noted}ask{_named(without_offer)}", _ask(view, without_offer, len(parts), view.most, rng)


def answer(view: View) -> str:
    """The best solutions, in the order of the parts."""
    return SEPARATOR.join(part.best for part in _parts(view))


def _noted(view: View, parts: Sequence[_Part], ended: bool) -> str:
    """The last verdicts, for one part; for several parts the state of each, at the end the best solutions."""
    verdicts = _verdicts(view.rounds[-1:])
    if len(parts) == 1:
        notes = [f"{target} {'ok' if right else 'bad'}" for target, _, right in verdicts]
    elif verdicts or ended:
        notes = [part.equation if part.good or ended else f"{part.target} bad" for part in parts]
    else:
        notes = []
    return "".join(f"{note} ; " for note in notes)


def _named(parts: Sequence[_Part]) -> str:
    """Targets of parts, as in thoughts."""
    return "".join(f" {part.target}" for part in parts)


def _parts(view: View) -> list[_Part]:
    """The state of each part. The first solution of an agent's answer is its offer. A manager without agents offers the
    solutions that it checks in python."""
    named = [named.rpartition(NAMED)[2] for named in view.rest.split(SEPARATOR)]
    parts = {part.target: part for part in map(_Part, named)}
    places = count()
    for request, value in view.ok:
        subtask = str(request.arguments.get("subtask", "")).split()
        part = parts.get(subtask[-1] if subtask else next(iter(parts)))
        offer = value.partition(";")[0].strip()
        if request.name in CALCULATORS and request.name != "python" and part and offer not in ("", NO_SOLUTION):
            part.offers.setdefault(offer, next(places))
        elif request.name == "critical_reviewer" and part:
            for judged, _, word in (one.strip().rpartition(" ") for one in value.split(";")):
                part.verdicts.setdefault(judged, word == "ok")
    for target, offer, right in _verdicts(view.rounds):
        if target in parts:
            parts[target].offers.setdefault(offer, next(places))
            parts[target].verdicts[offer] = right
    return list(parts.values())


def _verdicts(rounds: Sequence[Round]) -> list[tuple[str, str, bool]]:
    """(target, offer, whether they are equal) from the programs of some rounds."""
    return [
        (target.strip(), offer.strip(), verdict == "True")
        for request, value in returned(rounds)
        if request.name == "python"
        for test, verdict in zip(printed(request), value.split(), strict=False)
        for target, compared, offer in [test.partition("==")]
        if compared
    ]


def _tried(part: _Part, rng: random.Random) -> Move:
    """The move of a model without agents: it scans for a solution, and compares it with the target in python."""
    *numbers, _, target = part.question.split()
    lines, hit = first_hit([int(number) for number in numbers], int(target), rng.sample(OPERATORS, len(OPERATORS)))
    return (lines, [_test([(part, hit)], 1)]) if hit else ("final", [])


def _check(view: View, fresh: Sequence[tuple[_Part, str]], parts: int, rng: random.Random) -> list[ToolCall]:
    """Check offers in python, or by a reviewer if the problem has one part."""
    draw = rng.random()
    calls: list[ToolCall] = []
    reviewing = parts == 1 and "critical_reviewer" in view.tools
    if draw < 0.85 or not reviewing:
        calls.append(_test(fresh, parts))
    if draw > 0.7 and reviewing:
        calls.append(call(view, "critical_reviewer", rng, None))
    return calls[: view.most]


def _test(offers: Sequence[tuple[_Part, str]], parts: int) -> ToolCall:
    """A program that compares targets with offers; for several parts it prints the targets too, `46 True 60 False`.

    `==` is a token without a space before it.
    """
    named = [f"{part.target} , " if parts > 1 else "" for part, _ in offers]
    return python([f"{name}{part.target}== {offer}" for name, (part, offer) in zip(named, offers, strict=True)])


def _ask(view: View, open_parts: Sequence[_Part], parts: int, slots: int, rng: random.Random) -> list[ToolCall]:
    """At most `slots` calls for solutions of open parts. A single part gets one or two calls, perhaps to one model,
    which samples. More calls would take as long as the slowest of them."""
    if not open_parts:
        return []
    if parts == 1 and rng.random() < 0.1:
        return [ToolCall("ensemble_solver", {})]
    if parts == 1:
        return [call(view, "standard_reasoner", rng, None) for _ in range(rng.randint(1, min(slots, 2)))]
    return [call(view, "standard_reasoner", rng, f"single {part.question}") for part in open_parts[:slots]]
