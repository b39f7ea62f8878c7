"""The view of a pocket manager when it writes a reply, and its possible calls."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orgthink.grammar.toolcall import CallStatus, Response, ToolCall

COUNTDOWNS = ("countdown", "single", "several")
"""Words that begin the question of a countdown."""
CALCULATORS = ("standard_reasoner", "code_reasoner", "python", "ensemble_solver")
"""Tools that return an answer."""
WANTED = {
    "standard_reasoner": "",
    "critical_reviewer": "review",
    "code_reasoner": "code",
    "knowledge_searcher": "code",
}
"""Tool → required skill of its model; reasoners need the kind of the problem."""
MATCHED = 0.9
"""Share of calls to a model with the required skill; the others use a random model. At 0 the lessons do not say whom to
ask."""

Round = tuple[tuple[ToolCall, ...], tuple[Response, ...]]
"""Readable calls and their responses, in the same order."""
Move = tuple[str, list[ToolCall]]
"""A thought and its calls; no calls end the rounds."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The view of a manager when it writes its next reply."""

    question: str
    """The problem in the words of the pocket models."""
    models: dict[str, str]
    """Model id → description of its skills."""
    tools: frozenset[str]
    """Available tools."""
    rounds: tuple[Round, ...]
    """Rounds so far."""
    left: int
    """Rounds left, this one included."""
    most: int
    """Most calls of a round."""
    matched: float = MATCHED
    """Share of calls to a model with the required skill."""

    @property
    def kind(self) -> str:
        """`countdown`, or `arithmetic` with or without names."""
        return "countdown" if self.question.partition(" ")[0] in COUNTDOWNS else "arithmetic"

    @property
    def part_kind(self) -> str:
        """Word of the question about one of several countdowns."""
        return "single" if self.question.startswith("several") else "countdown"

    @property
    def rest(self) -> str:
        """The question without its kind."""
        return self.question.partition(" ")[2]

    @property
    def ok(self) -> list[tuple[ToolCall, str]]:
        """Successful calls and their values, in order."""
        return returned(self.rounds)


def returned(rounds: Sequence[Round]) -> list[tuple[ToolCall, str]]:
    """Successful calls of some rounds and their values, in order."""
    return [
        (call, response.value)
        for calls, responses in rounds
        for call, response in zip(calls, responses, strict=False)
        if response.status is CallStatus.OK
    ]


def call(seen: Seen, tool: str, rng: random.Random, subtask: str | None) -> ToolCall:
    """A call of an agent with a suitable or a random model; subtask `None` is the whole problem."""
    skilled = [i for i, skills in seen.models.items() if (WANTED[tool] or seen.kind) in skills.split()]
    ids = skilled if skilled and rng.random() < seen.matched else list(seen.models)
    arguments: dict[str, Any] = {"model_id": rng.choice(ids)} if ids else {}
    return ToolCall(tool, arguments | ({} if subtask is None else {"subtask": f" {subtask}"}))


def python(expressions: Sequence[str]) -> ToolCall:
    """A program that prints the values of expressions."""
    return ToolCall("python", {"code": f"print( {' , '.join(expressions)})"})


def printed(program: ToolCall) -> list[str]:
    """The expressions that a program `print( a , b)` prints."""
    inside = str(program.arguments["code"]).strip().removeprefix("print(").strip()
    return [part.strip() for part in inside[:-1].split(",")] if inside.endswith(")") else []
