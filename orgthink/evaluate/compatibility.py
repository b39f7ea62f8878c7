"""Whether organizations, sampling and limits go together, and what to change where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from orgthink.record.episode import Sampling
from orgthink.runtime.organization import Organization
from orgthink.util.errors import UserError


def require_sampling(sampling: Sampling) -> None:
    """ValueError for settings that no engine accepts."""
    if sampling.max_tokens < 1:
        raise ValueError(f"the budget is {sampling.max_tokens} tokens: an agent needs at least 1")
    if not 0 <= sampling.temperature < float("inf"):
        raise ValueError(f"temperature is {sampling.temperature}: it must be a number from 0 on")
    if not 0 < sampling.top_p <= 1:
        raise ValueError(f"top_p is {sampling.top_p}: it must be a number above 0, and 1 at most")


def require_roles(organizations: Iterable[Organization], roles: Iterable[str]) -> None:
    """UserError for a role that none of the organizations has."""
    known = dict.fromkeys(role for organization in organizations for role in organization.roles)
    for role in roles:
        if role not in known:
            raise UserError(f"no organization here has a role {role!r}: their roles are {', '.join(known)}")


def require_places(organizations: Iterable[Organization], capacity: int) -> None:
    """UserError for an organization that could not fork at this capacity."""
    for organization in organizations:
        least = organization.least_capacity
        if 1 <= capacity < least:
            raise UserError(
                f"{organization.name} forks, and --capacity {capacity} has no place beside its organizer: "
                f"--capacity {least} or more"
            )


def require_depth(organizations: Iterable[Organization], depth: int) -> None:
    """UserError for an organization whose nested ones could not fork at this depth."""
    for organization in organizations:
        least = organization.least_depth
        if 1 <= depth < least:
            raise UserError(
                f"{organization.name} has organizations below it that fork, and --depth {depth} does not reach them: "
                f"--depth {least} or more"
            )


class Sampled(Protocol):
    """Whatever says how it is sampled: a role of a plan, or one whose engine is open."""

    @property
    def sampling(self) -> Sampling: ...


class GreedyVote(NamedTuple):
    """Agents with the same prompt that would all say the same."""

    role: str
    """Their role."""
    agents: int
    """How many they are."""


def greedy_vote(
    organization: Organization, sampling: Sampling, capacity: int, roles: Mapping[str, Sampled] | None = None
) -> GreedyVote | None:
    """The first identical agents that would be greedy; `None` without any."""
    votes = organization.identical_agents(capacity)
    for role, count in votes.items():
        of_role = roles[role].sampling if roles and role in roles else sampling
        if count > 1 and of_role.temperature == 0:
            return GreedyVote(role, count)
    return None


def require_sampling_noise(
    organization: Organization, sampling: Sampling, capacity: int, roles: Mapping[str, Sampled] | None = None
) -> None:
    """UserError if identical agents would be greedy: all their traces would be the same, and a vote useless."""
    if (greedy := greedy_vote(organization, sampling, capacity, roles)) is not None:
        raise UserError(
            f"{organization.name}: {greedy.agents} thinkers at temperature 0 all think the same; "
            f"give them a temperature, such as --sampling {greedy.role}.temperature=1, or do without the vote"
        )


def pool_warning(organization: Organization, capacity: int) -> str | None:
    """A warning if the agents of one round do not fit into the pool at the same time; `None` if they fit."""
    called = organization.max_parallel_calls
    if not called or capacity > called:
        return None
    return (
        f"{organization.name}: a round may call {called} agents, and --capacity {capacity} lets {max(1, capacity - 1)} "
        f"of them work at once; --capacity {called + 1} lets all"
    )
