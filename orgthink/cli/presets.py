"""What a model was made for, as the orgthink.json in its folder says; whatever an option says wins over it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orgthink.engines import EngineSpec
from orgthink.errors import UserError
from orgthink.evaluate import OrganizationSpec
from orgthink.organizations.prompts import style_named
from orgthink.store import typed


@dataclass(frozen=True, slots=True)
class Partner:
    """A model that a model was made to work with."""

    model: str
    """A shipped model, a folder, or a server's name for one."""
    max_tokens: int
    """Tokens that each of its agents may sample."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How a model is used unless the options say otherwise."""

    prompts: str = "paper"
    """Prompt style."""
    organizations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings, by the organization's name."""
    roles: dict[str, Partner] = field(default_factory=dict)
    """Models of other roles, in organizations that have them."""


def preset_of(spec: EngineSpec) -> Preset:
    """The preset of a model; one without a folder, or without that file in it, has none. UserError if it is broken."""
    preset = typed(Preset, spec.made_for, f"orgthink.json of {spec.model}")
    try:
        style_named(preset.prompts)
        for name, settings in preset.organizations.items():
            OrganizationSpec(name, settings).named(name)
    except UserError as error:
        raise UserError(f"orgthink.json of {spec.model}: {error}") from error
    return preset
