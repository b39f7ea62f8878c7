"""The type of settings that hold an organization: its name, or its `kind` and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from orgthink.organizations import ORGANIZATIONS
from orgthink.runtime.attempt import Organization
from orgthink.util.settings import class_by_kind

if TYPE_CHECKING:
    AnyOrganization = Organization
else:
    AnyOrganization = class_by_kind(ORGANIZATIONS, object)


def identical_below(organizations: Iterable[Organization], capacity: int) -> dict[str, int]:
    """How many agents of organizations below get the same prompt, by role."""
    return most(one.identical_agents(capacity) for one in organizations)


def most(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The largest count of each role: one that is alone in one place may vote with others in another."""
    found: dict[str, int] = {}
    for role, count in (item for each in counts for item in each.items()):
        found[role] = max(count, found.get(role, 0))
    return found
