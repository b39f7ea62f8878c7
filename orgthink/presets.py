"""Presets of a model from the orgthink.json in its folder. Options of the user take precedence."""

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
    """A model for another role, with which a model was trained."""

    model: str
    """A shipped model, a folder, or a server's name for one."""
    max_tokens: int
    """Most tokens that each of its agents samples."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How a model is used by default."""

    prompts: str = "paper"
    """Prompt style."""
    organizations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings by organization."""
    roles: dict[str, Partner] = field(default_factory=dict)
    """Models of other roles, for organizations with these roles."""


def preset_of(spec: EngineSpec) -> Preset:
    """The preset of a model; the default without an orgthink.json. UserError if the file is invalid."""
    preset = typed(Preset, spec.preset_values, f"orgthink.json of {spec.model}")
    try:
        style_named(preset.prompts)
        for name, settings in preset.organizations.items():
            for one in fields(OrganizationSpec(name, settings).named(name)):  # type: ignore[arg-type]  # a dataclass
                if one.name in settings and "runs commands" in one.metadata:
                    raise UserError(f"{one.name} of {name} runs commands: only who starts a run may name them")
    except UserError as error:
        raise UserError(f"orgthink.json of {spec.model}: {error}") from error
    return preset


def organization_settings(
    name: str, spec: EngineSpec, settings: Mapping[str, Any] | None = None, prompts: str | None = None
) -> dict[str, Any]:
    """Settings of an organization on a model: the given ones, then those of the model's preset.

    The prompt style is `prompts`, else the model's. UserError for an unknown organization or style.
    """
    preset = preset_of(spec)
    preset_settings = preset.organizations.get(name, {})
    style = prompts or preset_settings.get("prompts", preset.prompts)
    style_named(style)
    known = {field.name for field in fields(pick("organization", name, ORGANIZATIONS))}  # type: ignore[arg-type]
    return {**preset_settings, **({"prompts": style} if "prompts" in known else {}), **(settings or {})}


def partner_models(
    organizations: Mapping[str, OrganizationSpec], default: EngineSpec, named: Container[str]
) -> dict[str, Partner]:
    """Partner models of the organizations' models, for the roles of these organizations.

    UserError if two presets name different models for a role that is not in `named`.
    """
    found: dict[str, Partner] = {}
    for label, how in organizations.items():
        presets = preset_of(how.engine or default).roles
        for role in (role for role in how.named(label).roles if role in presets):
            if found.setdefault(role, presets[role]) != presets[role] and role not in named:
                raise UserError(f"the models here were made for different models of {role}: say --roles {role}=MODEL")
    return found
