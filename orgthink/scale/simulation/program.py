"""Programs of agents, in tokens: what an agent reads and decodes, when it forks and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class DecodeTokens(NamedTuple):
    """Sample tokens. Decoding goes on across forks, as in AsyncThink."""

    tokens: int
    """Number of tokens."""


class ReadTokens(NamedTuple):
    """Take in injected tokens. The agent's request ends; the next `DecodeTokens` sends another one."""

    tokens: int
    """Number of tokens."""


class ForkChild(NamedTuple):
    """Start a child. It takes no time of the parent."""

    child: AgentProgram
    """What the child does."""


class JoinChild(NamedTuple):
    """Wait until a child has ended."""

    fork: int
    """Which one: 0 is the agent's first fork."""


class WaitSeconds(NamedTuple):
    """Wait for something that is not decoded, such as a tool."""

    seconds: float
    """How long."""


Operation = DecodeTokens | ReadTokens | ForkChild | JoinChild | WaitSeconds


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """What an agent does from its start to its end. Children that it has not joined by then end with it."""

    prompt: int
    """Tokens of its prompt; 0 for code without a model."""
    operations: tuple[Operation, ...]
    """In order."""
    cached: int = 0
    """First tokens of the prompt that the engine has in its cache already."""

    def __iter__(self) -> Iterator[AgentProgram]:
        """This program and those of all children, each as often as it is forked."""
        yield self
        for operation in self.operations:
            if isinstance(operation, ForkChild):
                yield from operation.child

    @property
    def decoded(self) -> int:
        """Tokens that this agent samples, without its children's."""
        return sum(operation.tokens for operation in self.operations if isinstance(operation, DecodeTokens))

    @property
    def context(self) -> int:
        """Tokens of this agent's context at its end."""
        return self.prompt + sum(step.tokens for step in self.operations if isinstance(step, DecodeTokens | ReadTokens))
