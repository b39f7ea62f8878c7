"""What a manager of the pocket world sees when it writes a reply, and the calls that it can make of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orgthink.grammar.toolcall import CallStatus, Response, ToolCall

CALCULATORS = ("standard_reasoner", "code_reasoner", "python", "ensemble_solver")
"""Tools that return an answer."""
WANTED = {
    "standard_reasoner": "",
    "critical_reviewer": "review",
    "code_reasoner": "code",
    "knowledge_searcher": "code",
}
"""What a model should be good at for a tool; reasoners, at the kind of problem."""
MATCHED = 0.9
"""Share of calls whose model is chosen by what it is good at; the others ask any."""

Round = tuple[tuple[ToolCall, ...], tuple[Response, ...]]
"""Calls that could be read, and what came back, in the same order."""
Move = tuple[str, list[ToolCall]]
"""What it has in mind, and its calls; none ends the rounds."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a manager sees when it writes its next reply."""

    question: str
    """The problem in the words of the pocket models."""
    models: dict[str, str]
    """What the models that it may ask are good at, by their ids."""
    tools: frozenset[str]
    """Tools it may call."""
    rounds: tuple[Round, ...]
    """So far."""
    left: int
    """Rounds left, this one included."""
    most: int
    """Calls of a round at most."""

    @property
    def kind(self) -> str:
        """What the problem is: countdown, or else arithmetic, with or without names in it."""
        return "countdown" if self.question.startswith("countdown") else "arithmetic"

    @property
    def rest(self) -> str:
        """The question without its kind."""
        return self.question.partition(" ")[2]

    @property
    def ok(self) -> list[tuple[ToolCall, str]]:
        """Calls that went well and what they returned, in order."""
        return returned(self.rounds)


def returned(rounds: Sequence[Round]) -> list[tuple[ToolCall, str]]:
    """Calls of some rounds that went well and what they returned, in order."""
    return [
        (call, response.value)
        for calls, responses in rounds
        for call, response in zip(calls, responses, strict=False)
        if response.status is CallStatus.OK
    ]


def call(seen: Seen, tool: str, rng: random.Random, subtask: str | None) -> ToolCall:
    """An agent, with any of the models or one that is good at it; `None` is the whole problem."""
    fitting = [i for i, told in seen.models.items() if (WANTED[tool] or seen.kind) in told.split()]
    ids = fitting if fitting and rng.random() < MATCHED else list(seen.models)
    arguments: dict[str, Any] = {"model_id": rng.choice(ids)} if ids else {}
    return ToolCall(tool, arguments | ({} if subtask is None else {"subtask": f" {subtask}"}))


def python(expressions: Sequence[str]) -> ToolCall:
    """A program that prints what expressions are worth."""
    return ToolCall("python", {"code": f"print( {' , '.join(expressions)})"})


def printed(asked: ToolCall) -> list[str]:
    """The expressions of such a program, `print( a , b)`."""
    inside = str(asked.arguments["code"]).strip().removeprefix("print(").strip()
    return [part.strip() for part in inside[:-1].split(",")] if inside.endswith(")") else []
