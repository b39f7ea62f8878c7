"""The pool of an organizer: models and organizations that a Fork may name, as a manager's calls do (ParaManager)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orgthink.organizations.request import CALL
from orgthink.runtime.organization import Organization
from orgthink.tools.agents import OrganizationTool
from orgthink.tools.toolbox import pool_text
from orgthink.util.errors import pick

_NAME = re.compile(r"[\w.:/@-]{1,64}")


@dataclass(frozen=True, slots=True)
class Pool:
    """The members by name; a pool without any is falsy."""

    models: Mapping[str, str]
    """Model → its description for agents that fork."""
    organizations: Mapping[str, Organization]
    """Organizations, which describe themselves."""
    prices: Mapping[str, float]
    """Cost units of a fork, where they are not the usual ones."""

    def __post_init__(self) -> None:
        for name in self.names:
            if not _NAME.fullmatch(name):
                raise ValueError(f"a Fork cannot name {name!r}: use up to 64 letters, digits and . _ : / @ -")
            if name in ("organizer", "worker") or (name in self.models and name in self.organizations):
                raise ValueError(f"there is a role, model or organization {name!r} already: choose another name")
        for name, price in self.prices.items():
            pick("member of the pool", name, dict.fromkeys(self.names))
            if not price >= 0:
                raise ValueError(f"the price of {name} is {price}: it must be a number from 0 on")

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """All members. The first is the default."""
        return (*self.models, *self.organizations)

    def price(self, name: str) -> float:
        """Cost units of a fork: usually one call; an organization costs what its agents cost."""
        return self.prices.get(name, 0.0 if name in self.organizations else CALL)

    @property
    def text(self) -> str:
        """The members, one a line, with their prices."""
        of_organizations = {name: OrganizationTool(name, one).description for name, one in self.organizations.items()}
        described = {**self.models, **of_organizations}
        return pool_text([(n, f"{text} (price {self.price(n):g})".strip()) for n, text in described.items()])
