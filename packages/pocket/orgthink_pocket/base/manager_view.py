"""What a manager knows when it writes a reply, and the calls that it can make."""

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
Round = tuple[tuple[ToolCall, ...], tuple[Response, ...]]
"""Readable calls and their responses, in the same order."""
Move = tuple[str, list[ToolCall]]
"""A thought and its calls; no calls end the rounds."""


@dataclass(frozen=True, slots=True)
class View:
    """The view of a manager when it writes its next reply."""

    question: str
    """The problem in the words of the pocket models."""
    models: tuple[str, ...]
    """Ids of the models in its pool."""
    tools: frozenset[str]
    """Available tools."""
    rounds: tuple[Round, ...]
    """Rounds so far."""
    left: int
    """Rounds left, this one included."""
    most: int
    """Most calls of a round."""

    @property
    def kind(self) -> str:
        """`countdown`, or `arithmetic` with or without names."""
        return "countdown" if self.question.partition(" ")[0] in COUNTDOWNS else "arithmetic"

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


def call(view: View, tool: str, rng: random.Random, subtask: str | None) -> ToolCall:
    """A call of an agent with a random model; subtask `None` is the whole problem."""
    arguments: dict[str, Any] = {"model_id": rng.choice(view.models)} if view.models else {}
    return ToolCall(tool, arguments | ({} if subtask is None else {"subtask": f" {subtask}"}))


def python(expressions: Sequence[str]) -> ToolCall:
    """A program that prints the values of expressions."""
    return ToolCall("python", {"code": f"print( {' , '.join(expressions)})"})


def printed(program: ToolCall) -> list[str]:
    """The expressions that a program `print( a , b)` prints."""
    inside = str(program.arguments["code"]).strip().removeprefix("print(").strip()
    return [part.strip() for part in inside[:-1].split(",")] if inside.endswith(")") else []
