"""Checks that organizations, sampling and limits go together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orgthink.record.episode import Sampling
from orgthink.runtime.organization import Organization
from orgthink.util.errors import UserError


def require_sampling(sampling: Sampling) -> None:
    """ValueError for settings that no engine accepts."""
    if sampling.max_tokens < 1:
        raise ValueError(f"max_tokens is {sampling.max_tokens}: an agent needs at least 1")
    if not 0 <= sampling.temperature < float("inf"):
        raise ValueError(f"temperature is {sampling.temperature}: it must be a number from 0 on")
    if not 0 < sampling.top_p <= 1:
        raise ValueError(f"top_p is {sampling.top_p}: it must be a number above 0, and 1 at most")


def require_roles(organizations: Iterable[Organization], roles: Iterable[str]) -> None:
    """UserError for a role that no organization has."""
    known = dict.fromkeys(role for organization in organizations for role in organization.roles)
    for role in roles:
        if role not in known:
            raise UserError(f"no organization here has a role {role!r}: their roles are {', '.join(known)}")


def require_forks(organization: Organization, capacity: int, depth: int) -> None:
    """UserError for an organization whose agents could not fork."""
    if capacity < (least := organization.least_capacity):
        raise UserError(f"{organization.name} forks: --capacity {capacity} is too small, set {least} or more")
    if 1 <= depth < (levels := organization.least_depth):
        raise UserError(f"{organization.name} contains organizations that fork: set --depth {levels} or more")


def greedy_vote(
    organization: Organization, sampling: Sampling, capacity: int, roles: Mapping[str, Any] | None = None
) -> tuple[str, int] | None:
    """Role and number of identical agents that would all sample the same text; `None` without such agents.

    `roles` have a `sampling`: roles of a plan, or roles whose engines are open.
    """
    for role, agents in organization.identical_agents(capacity).items():
        of_role = roles[role].sampling if roles and role in roles else sampling
        if agents > 1 and of_role.temperature == 0:
            return role, agents
    return None


def require_sampling_noise(
    organization: Organization, sampling: Sampling, capacity: int, roles: Mapping[str, Any] | None = None
) -> None:
    """UserError if identical agents would be greedy: all their traces would be the same, and a vote useless."""
    if (greedy := greedy_vote(organization, sampling, capacity, roles)) is not None:
        role, agents = greedy
        raise UserError(
            f"{organization.name}: {agents} agents at temperature 0 would all write the same; give them a "
            f"temperature, such as --sampling {role}.temperature=1"
        )


def pool_warning(organization: Organization, capacity: int) -> str | None:
    """A warning if the agents of one round do not fit into the pool at once; `None` if they fit."""
    called = organization.max_parallel_calls
    if not called or capacity > called:
        return None
    return (
        f"{organization.name}: a round may call {called} agents, and --capacity {capacity} lets {max(1, capacity - 1)} "
        f"of them work at once; --capacity {called + 1} lets all"
    )
