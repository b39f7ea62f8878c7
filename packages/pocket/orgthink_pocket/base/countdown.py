"""Countdown lessons: scans that count their solutions and end with the last one that is needed.

    scan * 2 * 9 18 29 up 11 ! 1 ( 2 * 9 ) + 11 ; 2 * 11 22 29 up 7 ; …

A thinker alone scans the operators in the order in which a scan ends soonest.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial

from orgthink.grammar.actions import THOUGHT
from orgthink.record.episode import Problem
from orgthink.tasks.expression import parse
from orgthink.training.coldstart.teachers import Program
from orgthink_pocket.base.family import NOTHING, Family, Thinking, organizer
from orgthink_pocket.base.scan import scan

ORDER = ("*", "/", "+", "-")
"""Operators in the order of a thinker alone: 215 steps to the fourth solution on average, 298 for a whole scan."""
WANTED = 4
"""Solutions of `countdown-mini`."""

Key = tuple[tuple[int, ...], tuple[int, ...]]
"""What two equal solutions have in common."""

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
        for line in pairs(numbers, target, operator):
            text, found = marked(line, keys, len(known) + len(hits), wanted)
            hits += found
            lines.append(f"{text} ;")
            if len(known) + len(hits) == wanted:
                return " ".join(lines), hits
    return " ".join(lines), hits


def pairs(numbers: Sequence[int], target: int, operator: str) -> list[str]:
    """The lines of a scan of one operator, without their ends."""
    return scan(numbers, target, [operator]).text.removeprefix(f"scan {operator}").split(" ;")[:-1]


def marked(line: str, keys: set[Key], known: int, wanted: int) -> tuple[str, list[str]]:
    """A line with its new solutions counted from `known` on, up to the last one that is wanted; and these solutions.
    Their keys are added to `keys`."""
    written, end, hits = "", 0, list[str]()
    for found in _HIT.finditer(line):
        written, end = written + line[end : found.start()], found.end()
        if (key := parse(found[1]).key) not in keys:
            keys.add(key)
            hits.append(found[1])
            written += f" ! {known + len(hits)} {found[1]}"
        if known + len(hits) == wanted:
            return written.strip(), hits
    return (written + line[end:]).strip(), hits


class CountdownFamily(Family):
    """`countdown-mini`: the operators of a scan are its parts."""

    stays = THOUGHT

    def parts(self, problem: Problem) -> list[str]:
        return list(ORDER)

    def query(self, work: Thinking, parts: Sequence[str]) -> str:
        return f"scan {' '.join(parts)}"

    def think(self, work: Thinking, part: str) -> str:
        data, known = work.problem.data, [hit for _, hit in work.results]
        text, hits = counted(data["numbers"], data["target"], [part], known, work.problem.required)
        work.results += [(str(i), hit) for i, hit in enumerate(hits, len(known) + 1)]
        return text

    def joined(self, work: Thinking, results: Sequence[tuple[str, str]]) -> str:
        """How many solutions are known now."""
        keys = {parse(hit).key for _, hit in work.results}
        for _, hit in results:
            if (key := parse(hit).key) not in keys and len(work.results) < work.problem.required:
                keys.add(key)
                work.results.append((str(len(work.results) + 1), hit))
        return f"found {len(work.results)}"

    def done(self, work: Thinking) -> bool:
        return len(work.results) >= work.problem.required

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


PROGRAM = Program("pocket", partial(organizer, CountdownFamily()))
"""Teaches `orgthink synth --teacher program`."""
