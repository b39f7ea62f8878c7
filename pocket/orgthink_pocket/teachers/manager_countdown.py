"""How the teacher of managers goes about countdown, one part or several: ask for solutions, let python compare what was
offered with the target, ask again for what is still open, end.

What a program said of the offers is written down first, and so is the answer: a small manager decides by what it has
just written, not by what it would have to put together. Of one part these are the words `17 ok ; final 17 = ( 4 + 9 ) +
4`; of several it is what stands of each, in their order, `17 = ( 4 + 9 ) + 4 ; 31 bad ; ask 31`, so that the next list,
and at last the answer, are copies of the list before with what is new. It finds things by what stands before them, so a
target always comes before what belongs to it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from orgthink.grammar.toolcall import ToolCall
from orgthink_pocket.style import NAMED, SEPARATOR
from orgthink_pocket.teachers.countdown import OPERATORS, first_hit
from orgthink_pocket.teachers.countdown_review import NO_SOLUTION
from orgthink_pocket.teachers.seen import CALCULATORS, Move, Round, Seen, call, printed, python, returned

TRUSTING = 0.02
"""Share of the moments at which offers are taken unchecked."""


@dataclass(slots=True)
class _Part:
    """One of the countdowns of a problem."""

    question: str
    """`2 4 6 9 13 = 17`."""
    offers: dict[str, int] = field(default_factory=dict)
    """Solutions that were offered, and their places among all that was offered."""
    verdicts: dict[str, bool] = field(default_factory=dict)
    """Whether they are worth the target, of those that were checked."""

    @property
    def target(self) -> str:
        return self.question.split()[-1]

    @property
    def good(self) -> str | None:
        """The first that was found right."""
        return next((offer for offer in self.offers if self.verdicts.get(offer)), None)

    @property
    def fresh(self) -> list[str]:
        """Not checked yet."""
        return [offer for offer in self.offers if offer not in self.verdicts]

    @property
    def best(self) -> str:
        """What it would end with."""
        return next(iter([*filter(None, [self.good]), *self.fresh, *self.offers]), NO_SOLUTION)

    @property
    def told(self) -> str:
        """What it would end with, as it writes it down."""
        return f"{self.target} = {self.best}"


def move(seen: Seen, rng: random.Random) -> Move:
    """The next move."""
    parts = _parts(seen)
    unsolved = [part for part in parts if part.good is None]
    # One offer of each: where a target has two verdicts, a small manager takes the wrong one.
    offered = ((part, part.fresh[0]) for part in unsolved if part.fresh)
    fresh = sorted(offered, key=lambda one: one[0].offers[one[1]])
    none_asked = [part for part in unsolved if not part.fresh]
    trusting = bool(fresh) and not none_asked and rng.random() < TRUSTING
    ended = not unsolved or seen.left <= 1 or trusting
    noted = _noted(seen, parts, ended)
    if ended:
        return f"{noted}final{f' {parts[0].told}' if len(parts) == 1 else ''}", []
    if "standard_reasoner" not in seen.tools:
        return _tried(unsolved[0], rng)
    if fresh and (not none_asked or rng.random() < 0.5):
        calls = _check(seen, fresh, len(parts), rng)
        more = none_asked if seen.most > len(calls) and rng.random() < 0.7 else []
        asked = _ask(seen, more, len(parts), seen.most - len(calls), rng)
        return f"{noted}check{_named(more)}", [*calls, *asked]
    return f"{noted}ask{_named(none_asked)}", _ask(seen, none_asked, len(parts), seen.most, rng)


def answer(seen: Seen) -> str:
    """The solutions that it would end with, in the order of the parts."""
    return SEPARATOR.join(part.best for part in _parts(seen))


def _noted(seen: Seen, parts: Sequence[_Part], ended: bool) -> str:
    """What a program has just said of one part; of several, what stands of each, or at the end would be answered."""
    verdicts = _verdicts(seen.rounds[-1:])
    if len(parts) == 1:
        notes = [f"{target} {'ok' if right else 'bad'}" for target, _, right in verdicts]
    elif verdicts or ended:
        notes = [part.told if part.good or ended else f"{part.target} bad" for part in parts]
    else:
        notes = []
    return "".join(f"{note} ; " for note in notes)


def _named(parts: Sequence[_Part]) -> str:
    """Targets of parts, as thoughts name them."""
    return "".join(f" {part.target}" for part in parts)


def _parts(seen: Seen) -> list[_Part]:
    """What is known of each part. Agents offer solutions, of which the first counts; one without agents offers what it
    lets python check."""
    named = [named.rpartition(NAMED)[2] for named in seen.rest.split(SEPARATOR)]
    parts = {part.target: part for part in map(_Part, named)}
    places = count()
    for asked, value in seen.ok:
        subtask = str(asked.arguments.get("subtask", "")).split()
        part = parts.get(subtask[-1] if subtask else next(iter(parts)))
        offer = value.partition(";")[0].strip()
        if asked.name in CALCULATORS and asked.name != "python" and part and offer not in ("", NO_SOLUTION):
            part.offers.setdefault(offer, next(places))
        elif asked.name == "critical_reviewer" and part:
            for judged, _, word in (one.strip().rpartition(" ") for one in value.split(";")):
                part.verdicts.setdefault(judged, word == "ok")
    for target, offer, right in _verdicts(seen.rounds):
        if target in parts:
            parts[target].offers.setdefault(offer, next(places))
            parts[target].verdicts[offer] = right
    return list(parts.values())


def _verdicts(rounds: Sequence[Round]) -> list[tuple[str, str, bool]]:
    """Targets, offers and whether they are the same, by the programs of some rounds."""
    return [
        (target.strip(), offer.strip(), said == "True")
        for asked, value in returned(rounds)
        if asked.name == "python"
        for test, said in zip(printed(asked), value.split(), strict=False)
        for target, compared, offer in [test.partition("==")]
        if compared
    ]


def _tried(part: _Part, rng: random.Random) -> Move:
    """Of one who has nobody to ask: it scans for a solution itself, and lets python compare it with the target."""
    *numbers, _, target = part.question.split()
    lines, hit = first_hit([int(number) for number in numbers], int(target), rng.sample(OPERATORS, len(OPERATORS)))
    return (lines, [_test([(part, hit)], 1)]) if hit else ("final", [])


def _check(seen: Seen, fresh: Sequence[tuple[_Part, str]], parts: int, rng: random.Random) -> list[ToolCall]:
    """Let python look at what was offered, or a reviewer, who can only be asked about a problem of one part."""
    draw = rng.random()
    calls: list[ToolCall] = []
    reviewing = parts == 1 and "critical_reviewer" in seen.tools
    if draw < 0.85 or not reviewing:
        calls.append(_test(fresh, parts))
    if draw > 0.7 and reviewing:
        calls.append(call(seen, "critical_reviewer", rng, None))
    return calls[: seen.most]


def _test(offers: Sequence[tuple[_Part, str]], parts: int) -> ToolCall:
    """A program that compares targets with what was offered, and of several parts prints which is which: `46 True 60
    False`. `==` is a token without a space before it."""
    named = [f"{part.target} , " if parts > 1 else "" for part, _ in offers]
    return python([f"{name}{part.target}== {offer}" for name, (part, offer) in zip(named, offers, strict=True)])


def _ask(seen: Seen, open_parts: Sequence[_Part], parts: int, room: int, rng: random.Random) -> list[ToolCall]:
    """Ask for solutions of open parts, as far as there is room. One part is asked for once or twice, of the same model
    perhaps, which samples: more would take as long as the slowest of them."""
    if not open_parts:
        return []
    if parts == 1 and rng.random() < 0.1:
        return [ToolCall("ensemble_solver", {})]
    if parts == 1:
        return [call(seen, "standard_reasoner", rng, None) for _ in range(rng.randint(1, min(room, 2)))]
    return [call(seen, "standard_reasoner", rng, f"countdown {part.question}") for part in open_parts[:room]]
