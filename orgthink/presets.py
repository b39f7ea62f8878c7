"""What a model was made for, as the orgthink.json in its folder says; whatever the user says wins over it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from orgthink.engines import EngineSpec
from orgthink.errors import UserError, pick
from orgthink.evaluation import OrganizationSpec
from orgthink.organizations import ORGANIZATIONS
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
            for one in fields(OrganizationSpec(name, settings).named(name)):  # type: ignore[arg-type]  # a dataclass
                if one.name in settings and "runs commands" in one.metadata:
                    raise UserError(f"{one.name} of {name} runs commands: only who starts a run may name them")
    except UserError as error:
        raise UserError(f"orgthink.json of {spec.model}: {error}") from error
    return preset


def organized(
    name: str, spec: EngineSpec, settings: Mapping[str, Any] | None = None, prompts: str | None = None
) -> dict[str, Any]:
    """Settings of an organization on a model: those that are given, else those that the model was made for.

    The prompt style is `prompts`, else the model's. UserError for an unknown organization or style.
    """
    preset = preset_of(spec)
    made = preset.organizations.get(name, {})
    style = prompts or made.get("prompts", preset.prompts)
    style_named(style)
    known = {field.name for field in fields(pick("organization", name, ORGANIZATIONS))}  # type: ignore[arg-type]
    return {**made, **({"prompts": style} if "prompts" in known else {}), **(settings or {})}


def partners(
    organizations: Mapping[str, OrganizationSpec], default: EngineSpec, named: Container[str]
) -> dict[str, Partner]:
    """Models that the organizations' models were made to work with, by the roles that those organizations have.

    UserError if two want different ones for a role that `named` does not hold.
    """
    found: dict[str, Partner] = {}
    for label, how in organizations.items():
        made = preset_of(how.engine or default).roles
        for role in (role for role in how.named(label).roles if role in made):
            if found.setdefault(role, made[role]) != made[role] and role not in named:
                raise UserError(f"the models here were made for different models of {role}: say --roles {role}=MODEL")
    return found
