"""Countdown for the base: scans that count their solutions, and end with the last one that is wanted.

    scan * 2 * 9 18 29 up 11 ! 1 ( 2 * 9 ) + 11 ; 2 * 11 22 29 up 7 ; …

The lines are those of `orgthink_pocket.teachers.countdown`. A thinker alone scans the operators in the order in which a
scan ends soonest.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orgthink.grammar.solution import THOUGHT
from orgthink.record.episode import Problem
from orgthink.tasks.expression import parse
from orgthink.training.coldstart.structures import Step, random_structure
from orgthink_pocket.base.family import NOTHING, Family, Structures, Thinking
from orgthink_pocket.tasks.countdown_linked import as_given, needs_of
from orgthink_pocket.tasks.parts import NAMES
from orgthink_pocket.teachers.countdown import scan

ORDER = ("*", "/", "+", "-")
"""Operators in the order of a thinker alone: 215 steps to the fourth solution on average, 298 for a whole scan."""
WANTED = 4
"""Solutions of `countdown-mini`."""

_HIT = re.compile(r" ! (\( \d+ . \d+ \) . \d+|\d+ . \( \d+ . \d+ \))")


def counted(
    numbers: Sequence[int], target: int, operators: Sequence[str], known: Collection[str] = (), wanted: int = WANTED
) -> tuple[str, list[str]]:
    """A scan up to the solution that makes `wanted` with the known ones, and its solutions.

    A solution that equals an earlier one is not marked.
    """
    keys = {parse(hit).key for hit in known}
    lines: list[str] = []
    hits: list[str] = []
    for operator in operators:
        lines.append(f"scan {operator}")
        for line in scan(numbers, target, [operator]).text.removeprefix(f"scan {operator}").split(" ;")[:-1]:
            written, end = "", 0
            for found in _HIT.finditer(line):
                written, end = written + line[end : found.start()], found.end()
                if (key := parse(found[1]).key) not in keys:
                    keys.add(key)
                    hits.append(found[1])
                    written += f" ! {len(known) + len(hits)} {found[1]}"
                if len(known) + len(hits) == wanted:
                    return f"{''.join([' '.join(lines), written])} ;", hits
            lines.append(f"{(written + line[end:]).strip()} ;")
    return " ".join(lines), hits


class CountdownFamily(Family):
    """`countdown-mini`: the operators of a scan are its parts."""

    stays = THOUGHT

    def parts(self, problem: Problem) -> list[str]:
        return list(ORDER)

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        return f"scan {' '.join(parts)}"

    def think(self, work: Thinking, part: str) -> str:
        data, known = work.problem.data, [hit for _, hit in work.results]
        text, hits = counted(data["numbers"], data["target"], [part], known)
        work.results += [(str(i), hit) for i, hit in enumerate(hits, len(known) + 1)]
        return text

    def joined(self, work: Thinking, results: Sequence[tuple[str, str]]) -> str:
        """How many solutions are known now."""
        keys = {parse(hit).key for _, hit in work.results}
        for _, hit in results:
            if (key := parse(hit).key) not in keys and len(work.results) < WANTED:
                keys.add(key)
                work.results.append((str(len(work.results) + 1), hit))
        return f"found {len(work.results)}"

    def done(self, work: Thinking) -> bool:
        return len(work.results) >= WANTED

    def finish(self, work: Thinking) -> tuple[str, str]:
        return "", " ; ".join(hit for _, hit in work.results) or NOTHING


class SeveralFamily(Family):
    """`countdown-mini-four`: countdowns with one solution each, named by their targets."""

    stays = THOUGHT

    def parts(self, problem: Problem) -> list[str]:
        return [str(part["target"]) for part in problem.data["parts"]]

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        listed = (named(work.problem, part) for part in parts)
        return " ; ".join(
            f"{part} : {' '.join(map(str, data['numbers']))}" for part, data in zip(parts, listed, strict=True)
        )

    def think(self, work: Thinking, part: str) -> str:
        text, hit = first(named(work.problem, part), part)
        work.results.append((part, hit))
        return f"{part} : {text}"

    def finish(self, work: Thinking) -> tuple[str, str]:
        found = dict(work.results)
        return "", " ; ".join(f"{part} = {found[part]}" for part in self.parts(work.problem))


class NamedFamily(Family):
    """`countdown-mini-six`: countdowns with words as names. Sub-queries are names; the numbers are in the problem.

    Parts are taken in the order of the problem; which of them are forked, and with how many, is random.
    """

    stays = THOUGHT

    def parts(self, problem: Problem) -> list[str]:
        return list(NAMES[: len(problem.data["parts"])])

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        return " ; ".join(parts)

    def think(self, work: Thinking, part: str) -> str:
        text, hit = first(work.problem.data["parts"][NAMES.index(part)], part)
        work.results.append((part, hit))
        return f"{part} : {text}"

    def finish(self, work: Thinking) -> tuple[str, str]:
        return "", " ; ".join(hit for _, hit in work.results)

    def structure(
        self, rng: random.Random, problem: Problem, capacity: int, draw: Structures = random_structure
    ) -> list[Step]:
        return draw(rng, self.parts(problem), capacity, needs=self.needs(problem))


class LinkedFamily(Family):
    """`countdown-mini-linked`: countdowns that may need what another one leaves over.

        zinc : copper 1 3 8 13 14 = 29 ; scan * … ! zinc ( 3 * 14 ) - 13 left 1 ;

    What a name stands for is written after it: put in its place, it was looked up under a wrong name in one problem of
    three. A sub-query names parts, and what is known of what they need. The answer repeats the names, so that each
    solution is looked up by its own.
    """

    stays = THOUGHT

    def parts(self, problem: Problem) -> list[str]:
        return [part["name"] for part in problem.data["parts"]]

    def begin(self, problem: Problem) -> str:
        """Each part with the one that it needs: organizers that did not write it forked parts too early."""
        needs = self.needs(problem)
        return f"{' ; '.join(f'{part} {needs[part]}' if part in needs else part for part in self.parts(problem))} ;"

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        needs, known = self.needs(work.problem), dict(work.results)
        listed = [
            f"{part} ; {needs[part]} {_left(known[needs[part]])}" if needs.get(part) in known else part
            for part in parts
        ]
        return " ; ".join(listed)

    def think(self, work: Thinking, part: str) -> str:
        data = next(one for one in work.problem.data["parts"] if one["name"] == part)
        text, hit = first(data, part)
        work.results.append((part, f"{hit} left {data['left']}"))
        return f"{part} : {looked_up(work.problem, data)} ; {text.removesuffix(' ;')} left {data['left']} ;"

    def finish(self, work: Thinking) -> tuple[str, str]:
        return "", " ; ".join(f"{part} : {hit.partition(' left ')[0]}" for part, hit in work.results)

    def needs(self, problem: Problem) -> Mapping[str, str]:
        return needs_of(problem)


def _left(result: str) -> str:
    return result.partition(" left ")[2]


def looked_up(problem: Problem, part: Mapping[str, Any]) -> str:
    """The numbers and the target of a linked countdown; a name among them is followed by what it stands for."""
    given = zip(as_given(problem.data["parts"], part), part["numbers"], strict=True)
    listed = (written if written == str(number) else f"{written} {number}" for written, number in given)
    return f"{' '.join(listed)} = {part['target']}"


class SingleFamily(Family):
    """`countdown-mini-single`: one solution."""

    stays = THOUGHT

    def parts(self, problem: Problem) -> list[str]:
        return [str(problem.data["target"])]

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        raise NotImplementedError("it is not divided")

    def think(self, work: Thinking, part: str) -> str:
        text, hit = first(work.problem.data, "1")
        work.results.append((part, hit))
        return text

    def finish(self, work: Thinking) -> tuple[str, str]:
        return "", work.results[0][1]


def named(problem: Problem, target: str) -> dict[str, object]:
    """The countdown with this target."""
    return next(part for part in problem.data["parts"] if str(part["target"]) == target)


def first(data: dict[str, object], name: str) -> tuple[str, str]:
    """A scan up to the first solution, which it names, and the solution."""
    text, hits = counted(data["numbers"], data["target"], ORDER, wanted=1)  # type: ignore[arg-type]
    return text.replace("! 1 ", f"! {name} "), hits[0] if hits else NOTHING
