"""`parts:KIND`: small sums in parts, which need each other or do not. Where they do not, forks pay.

A part is a line such as `b = a + 3 * 7`: it starts with a digit, or with the result of another part, and takes its
steps from left to right. Only the last digit is kept. Every step can be undone, so the result of a part may be any
digit as long as the part that it starts with is not known.

`independent` parts start with digits. `chained` ones start with the part before. `mixed` ones lie in `depth` layers:
they start with a part of the layer before, and add the result of another one. Problems of the three kinds at one place
of a stream have the same operations, and texts of the same length: they differ in what can be done side by side.
"""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, fields
from string import ascii_lowercase

from orgthink.record.episode import Grade, Problem
from orgthink.tasks.task import Solution, Split, Task, in_split, member_name, read_member
from orgthink.util.errors import UserError, pick, user_input

_FACTORS = "379"
"""Multiplying by these can be undone, if only the last digit is kept."""
_RESULT = re.compile(r"(?<![\w.−-])\d(?!\w|\.\d)", re.ASCII)
_NUMBER = re.compile(r"\d+")
_INSTRUCTION = (
    "Each line is a part. A part starts with a digit, or with the result of the part whose letter stands there, and "
    "takes its steps from left to right, whatever they are. After every step only the last digit is kept. Write only "
    "the results of all parts in the answer, in the order of the lines, with spaces between them."
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a problem is, and what its parts need."""

    parts: int = 6
    """Parts of a problem, 1 to 26."""
    steps: int = 3
    """Operations of a part."""
    depth: int = 1
    """Parts of the longest chain: 1 if all are independent."""
    joins: bool = False
    """Whether parts that start with another one also add a third one's result."""

    def __post_init__(self) -> None:
        if not 1 <= self.parts <= len(ascii_lowercase):
            raise ValueError(f"parts is {self.parts}: there are 1 to {len(ascii_lowercase)} of them, a letter for each")
        if not 1 <= self.steps <= 100:
            raise ValueError(f"steps is {self.steps}: a part has 1 to 100")
        if not 1 <= self.depth <= self.parts:
            raise ValueError(f"depth is {self.depth}: {self.parts} parts have 1 to {self.parts} layers")

    def layer(self, part: int) -> int:
        """The layer of a part, from 0; layers are as equal as possible."""
        return part * self.depth // self.parts


Line = list[str]
"""A part: what it starts with, then an operator and an operand for each step."""


class PartsTask(Task):
    """One kind of problems. A fifth of them, by a hash of their operations, is held out for `test` in all kinds."""

    def __init__(self, kind: str, shape: Shape, name: str) -> None:
        self.kind, self.shape, self.name = kind, shape, name

    def problems(self, split: Split, seed: int) -> Iterator[Problem]:
        """Problems whose operations depend on split, seed, parts and steps only, and their links on the kind, too."""
        size = f"{self.shape.parts} {self.shape.steps}"
        rng, links = (random.Random(f"parts {what} {split} {seed} {size}") for what in ("", f"{self.kind} links"))
        while True:
            lines = [_line(self.shape.steps, rng) for _ in range(self.shape.parts)]
            if in_split(_text(lines), split):
                yield self.problem(_linked(lines, self.shape, links))

    def problem(self, lines: list[Line]) -> Problem:
        text = _text(lines)
        return Problem(
            id=f"parts/{hashlib.sha256(text.encode()).hexdigest()[:12]}",
            task=self.name,
            text=f"{_INSTRUCTION}\n\n{text}",
            instruction=_INSTRUCTION,
            data={"answer": " ".join(map(str, results(lines))), "kind": self.kind, "depth": self.shape.depth},
        )

    def grade(self, problem: Problem, answer: str) -> Grade:
        """1 if the digits in the answer are the results in their order, and no other number stands there; else 0."""
        return Grade(int(_read(answer) == problem.data["answer"].split()), problem.required)

    def solutions(self, problem: Problem, answer: str) -> list[Solution]:
        found, text = _read(answer), answer.strip()
        return [Solution(text if found is None else tuple(found), text)] if text else []


def results(lines: list[Line]) -> list[int]:
    """The result of each part."""
    known: dict[str, int] = {}
    for name, line in zip(ascii_lowercase, lines, strict=False):
        start, *operands = (known[one] if one.isalpha() else int(one) for one in line[::2])
        for operator, operand in zip(line[1::2], operands, strict=True):
            start = (start + operand if operator == "+" else start * operand) % 10
        known[name] = start
    return list(known.values())


def _line(steps: int, rng: random.Random) -> Line:
    """An independent part. A sum comes first, whose operand a link may replace."""
    line = [rng.choice("0123456789"), "+", rng.choice("123456789")]
    for _ in range(steps - 1):
        operator = rng.choice("+*")
        line += [operator, rng.choice("123456789" if operator == "+" else _FACTORS)]
    return line


def _linked(lines: list[Line], shape: Shape, rng: random.Random) -> list[Line]:
    """The lines with letters in place of some digits."""
    layers = [shape.layer(part) for part in range(shape.parts)]
    linked = [list(line) for line in lines]
    for part, line in enumerate(linked):
        before = [other for other, layer in enumerate(layers) if layer == layers[part] - 1]
        if before:
            start = rng.choice(before)
            line[0] = ascii_lowercase[start]
            others = [other for other, layer in enumerate(layers) if layer < layers[part] and other != start]
            if shape.joins and others:
                line[2] = ascii_lowercase[rng.choice(others)]
    return linked


def _text(lines: list[Line]) -> str:
    return "\n".join(f"{name} = {' '.join(line)}" for name, line in zip(ascii_lowercase, lines, strict=False))


def _read(answer: str) -> list[str] | None:
    """The digits of an answer; `None` if another number stands there."""
    if any(unicodedata.numeric(sign, None) is not None and not sign.isdecimal() for sign in answer):
        return None  # `⑤`, `½`, `²`, `Ⅴ` and `五` are numbers, but no digits
    found = _RESULT.findall(answer)
    return found if len(found) == len(_NUMBER.findall(answer)) else None


_KINDS = {"independent": "parts steps", "chained": "parts steps", "mixed": "parts steps depth"}
"""Settings of each kind."""


class PartsTasks:
    """`parts:KIND`."""

    def __call__(self, member: str) -> PartsTask:
        """UserError for an unknown kind or setting."""
        kind, settings = read_member("parts", member)
        known = pick("kind of parts", kind, _KINDS).split()
        for setting, value in settings.items():
            pick(f"setting of parts:{kind}", setting, dict.fromkeys(known))
            if not isinstance(value, int) or isinstance(value, bool):
                raise UserError(f"{setting} of parts:{kind} is {value!r}: it must be a whole number")
        count = settings.get("parts", Shape().parts)
        depth = {"independent": 1, "chained": count}.get(kind, settings.get("depth", 2))
        with user_input():
            shape = Shape(count, settings.get("steps", Shape().steps), depth, kind == "mixed")
        return PartsTask(kind, shape, member_name("parts", kind, settings))

    def lines(self, member: str) -> Iterator[str]:
        """A line for each kind, and an example; of one kind its settings, too."""
        for kind in _KINDS if member in ("", "*") else [member]:
            task = self(kind)
            problem = next(task.problems("test", 0))
            settings = {field.name: getattr(task.shape, field.name) for field in fields(Shape)}
            yield f"{task.name}  {', '.join(f'{name} {settings[name]}' for name in _KINDS[task.kind].split())}"
            yield f"{problem.query}\n→ {problem.data['answer']}\n"


PARTS = PartsTasks()
"""Small sums in parts: `parts:independent`, `parts:chained`, `parts:mixed?parts=8&depth=3`."""
