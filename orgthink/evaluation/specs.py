"""Organizations and models of roles, as config.json and the recipes name them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from orgthink.engines import EngineSpec
from orgthink.organizations import ORGANIZATIONS
from orgthink.record.episode import Sampling
from orgthink.runtime.organization import Organization
from orgthink.util.errors import UserError, pick
from orgthink.util.settings import require_known, typed


@dataclass(frozen=True, slots=True)
class OrganizationSpec:
    """An organization and its settings, as stored in a run folder."""

    organization: str
    """Its name in the registry."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Its fields. A missing field has its default."""
    engine: EngineSpec | None = None
    """Engine of its agents; `None`: the evaluation's."""

    @property
    def label(self) -> str:
        """Its default label: its name, or the class name of a reference."""
        return self.organization.rpartition(":")[2]

    def named(self, label: str) -> Organization:
        """The organization with this label as its name. UserError for an unknown organization or setting."""
        cls = pick("organization", self.organization, ORGANIZATIONS)
        known = {setting.name: None for setting in fields(cls)}  # type: ignore[arg-type]  # organizations are dataclasses
        for setting in self.settings:
            pick(f"setting of {label}", setting, known)
        try:
            require_known(cls, self.settings)
        except UserError as error:
            raise UserError(f"settings of {label}: {error}") from None
        made = typed(cls, {**self.settings, **({"name": label} if "name" in known else {})}, f"settings of {label}")
        vars(made)["name"] = label
        return made


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """Engine and sampling of a role, as stored in a run folder."""

    engine: EngineSpec
    """Engine of the role's agents."""
    sampling: Sampling
    """Sampling settings."""
