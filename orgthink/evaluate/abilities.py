"""What an organization may have besides `run`: measures of its own, calls, forks, a vote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from orgthink.grammar.toolcall import TAGS, CallTags
from orgthink.measure.summary import Measure, surviving
from orgthink.runtime.attempt import Organization


@runtime_checkable
class Measured(Protocol):
    """An organization with measures of its own, for the table, summary.json and the metrics of training."""

    @property
    def measures(self) -> Mapping[str, Measure]:
        """By their names. A measure is a pure function of an episode: a number, or `None` if it has none."""
        ...


@runtime_checkable
class Calling(Protocol):
    """An organization whose root calls agents in parallel and waits for them."""

    @property
    def max_parallel_calls(self) -> int:
        """Most agents that one round calls, without the root."""
        ...


@runtime_checkable
class Forking(Protocol):
    """An organization whose agents need places for their forks while they decode themselves."""

    @property
    def least_capacity(self) -> int:
        """c below which nothing could be forked."""
        ...


@runtime_checkable
class Voting(Protocol):
    """An organization that gives several agents the same prompt and compares their answers."""

    def identical_agents(self, capacity: int) -> Mapping[str, int]:
        """Number of agents with the same prompt, by role."""
        ...


def measures_of(organization: Organization) -> Mapping[str, Measure]:
    """The measures that the organization adds; empty if it adds none. A bug in one is no bug of the others."""
    own = organization.measures if isinstance(organization, Measured) else {}
    return {name: surviving(name, measure) for name, measure in own.items()}


def tags_of(organization: Organization) -> CallTags:
    """The tags of its calls: its attribute `tags`, or the default."""
    return getattr(organization, "tags", TAGS)
