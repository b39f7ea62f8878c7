"""Programs of agents, in tokens: what an agent reads and decodes, when it forks and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Decode(NamedTuple):
    """Sample tokens. Decoding goes on across forks, as in AsyncThink."""

    tokens: int
    """Number of tokens."""


class Read(NamedTuple):
    """Take in injected tokens. The agent's request ends; the next `Decode` sends another one."""

    tokens: int
    """Number of tokens."""


class Fork(NamedTuple):
    """Start a child. It takes no time of the parent."""

    child: Program
    """What the child does."""


class Join(NamedTuple):
    """Wait until a child has ended."""

    fork: int
    """Which one: 0 is the agent's first fork."""


class Wait(NamedTuple):
    """Wait for something that is not decoded, such as a tool."""

    seconds: float
    """How long."""


Operation = Decode | Read | Fork | Join | Wait


@dataclass(frozen=True, slots=True)
class Program:
    """What an agent does from its start to its end. Children that it has not joined by then end with it."""

    prompt: int
    """Tokens of its prompt; 0 for code without a model."""
    operations: tuple[Operation, ...]
    """In order."""
    cached: int = 0
    """First tokens of the prompt that the engine has in its cache already."""

    def __iter__(self) -> Iterator[Program]:
        """This program and those of all children, each as often as it is forked."""
        yield self
        for operation in self.operations:
            if isinstance(operation, Fork):
                yield from operation.child

    @property
    def decoded(self) -> int:
        """Tokens that this agent samples, without its children's."""
        return sum(operation.tokens for operation in self.operations if isinstance(operation, Decode))

    @property
    def context(self) -> int:
        """Tokens of this agent's context at its end."""
        return self.prompt + sum(step.tokens for step in self.operations if isinstance(step, Decode | Read))


def critical_path(program: Program) -> int:
    """Sequential decoding steps from the start to the end, as in Eq. 4 of AsyncThink. Prompts and waiting take none."""
    now, ends = 0, []
    for operation in program.operations:
        match operation:
            case Decode(tokens):
                now += tokens
            case Fork(child):
                ends.append(now + critical_path(child))
            case Join(fork):
                now = max(now, ends[fork])
    return now
