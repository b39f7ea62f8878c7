"""Programs under test: what runs one on the inputs of its tests, and what comes of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from orgthink.util.beside import given_up
from orgthink.util.errors import ToolError
from orgthink.util.registry import Registry


@dataclass(frozen=True, slots=True)
class Submission:
    """A program in Python, and how it is to be used."""

    source: str
    """Its text."""
    function: str | None = None
    """The function, or method of its class `Solution`, that a test calls; `None`: it reads from standard input."""


@dataclass(frozen=True, slots=True)
class JudgeLimits:
    """What a program may use in each test."""

    seconds: float = 6.0
    """Wall clock."""
    memory_mb: int = 1024
    """MiB of memory, for each process and for all of them."""
    output_mb: int = 16
    """MiB of output."""


@dataclass(frozen=True, slots=True)
class JudgedOutput:
    """What came of a test."""

    text: str
    """What the program printed on standard output; for a function what it returned, as `harness.plain` writes it."""
    failure: str | None = None
    """How it ended, if not well: one line."""


class Judge(Protocol):
    """Runs programs on the inputs of tests. It never learns which outputs are right: whoever asks compares them."""

    def outputs(self, program: Submission, inputs: Sequence[str]) -> AbstractContextManager[Iterator[JudgedOutput]]:
        """An output for each input, made when it is asked for; the first failure is the last. It blocks.

        ToolError if the program could not be run at all.
        """
        ...


JUDGES: Registry[Callable[[str, JudgeLimits], Judge]] = Registry(
    "sandbox",
    "orgthink.judges",
    {
        "bubblewrap": "orgthink_arena.judges.bubblewrap_judge:in_bubblewrap",
        "http": "orgthink_arena.judges.server_judge:at_server",
        "https": "orgthink_arena.judges.server_judge:at_server",
    },
    "a function of a name and limits",
    lambda judge: judge if callable(judge) else None,
)
"""Makers of judges by the name of a sandbox up to its first colon. UserError if it cannot work here."""


def judge_named(sandbox: str, limits: JudgeLimits) -> Judge:
    """The judge of a sandbox: `bubblewrap`, or the URL of a SandboxFusion server. UserError without it."""
    return JUDGES.named(sandbox.partition(":")[0])(sandbox, limits)


def up_to_failure(outputs: Iterator[JudgedOutput]) -> Iterator[JudgedOutput]:
    """The outputs to the first failure, while somebody waits for them."""
    for output in outputs:
        require_waiting()
        yield output
        if output.failure is not None:
            return


def require_waiting() -> None:
    """ToolError if nobody waits for the outputs any more."""
    if given_up():
        raise ToolError("the tests were given up")
