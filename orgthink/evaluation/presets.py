"""Presets of a model: the orgthink.json in its folder. Options of the user take precedence."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from orgthink.engines import EngineSpec, names_engine, shipped
from orgthink.evaluation.compatibility import require_sampling
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.organizations import ORGANIZATIONS
from orgthink.organizations.prompts import STYLES, style_named
from orgthink.record.episode import Sampling
from orgthink.runtime.budget import Limits
from orgthink.util.errors import UserError, pick
from orgthink.util.settings import require_known, typed

CAPACITY, MAX_TOKENS = 2, 512
"""Defaults of a run whose models do not name their own."""

_INSTALLED: dict[str, Callable[[Any], bool]] = {
    # An unknown name is an error elsewhere.
    "prompts": lambda style: style in tuple(STYLES) or not (":" in style or style.endswith(".toml"))
}
"""Whether a value of a setting that all organizations share is installed. Other settings have a marker of their own."""


def _is_installed(model: str) -> bool:
    """Whether a model is shipped, or only a name by which a server may know it."""
    return shipped(model) is not None or not (names_engine(model) or Path(model).is_dir())


@dataclass(frozen=True, slots=True)
class Partner:
    """A model of another role, with which a model was trained."""

    model: str = field(metadata={"installed": _is_installed})
    """A shipped model, or a server's name for one."""
    max_tokens: int
    """Tokens that each of its agents may sample."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How a model is used by default."""

    prompts: str = "paper"
    """Prompt style."""
    tasks: tuple[str, ...] = ()
    """The only tasks that it knows; empty: it reads any text."""
    capacity: int | None = None
    """c that it was trained with, if known."""
    max_tokens: int | None = None
    """Tokens of each agent that it was trained with, if known."""
    renew: bool = False
    """Whether each Join renews `max_tokens`."""
    organizations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings by organization."""
    roles: dict[str, Partner] = field(default_factory=dict)
    """Models of other roles, for organizations with these roles."""


def preset_of(spec: EngineSpec) -> Preset:
    """The preset of a model; the default without an orgthink.json. UserError if the file is invalid."""
    preset = typed(Preset, spec.preset_values, f"orgthink.json of {spec.model}")
    try:
        require_known(Preset, spec.preset_values)
        Limits(CAPACITY if preset.capacity is None else preset.capacity)
        require_sampling(Sampling(MAX_TOKENS if preset.max_tokens is None else preset.max_tokens))
        _require_installed(preset, "the model")
        style_named(preset.prompts)
        for role, partner in preset.roles.items():
            _require_installed(partner, role)
        for name, settings in preset.organizations.items():
            organization = OrganizationSpec(name, settings).named(name)
            for one in fields(organization):  # type: ignore[arg-type]  # a dataclass
                if one.name in settings and "runs commands" in one.metadata:
                    raise UserError(f"{one.name} of {name} runs commands: only the user of a run may set it")
            _require_installed(organization, name)
    except ValueError as error:
        raise UserError(f"orgthink.json of {spec.model}: {error}") from error
    return preset


def _require_installed(settings: Any, name: str) -> None:
    """UserError for a setting that sends questions to a server, or reads a file or folder of this machine."""
    for one in fields(settings):
        value, installed = getattr(settings, one.name), one.metadata.get("installed", _INSTALLED.get(one.name))
        if installed is not None and not installed(value):
            raise UserError(f"{one.name} of {name} is {value!r}: a model may name what is installed, and nothing else")
        if is_dataclass(value):
            _require_installed(value, name)


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


def capacity_of(models: Iterable[EngineSpec]) -> int:
    """The capacity that the models were trained with, or the default. UserError if they differ."""
    found = _agreed("--capacity", {spec.model: preset_of(spec).capacity for spec in models})
    return CAPACITY if found is None else found


def tokens_of(models: Iterable[EngineSpec]) -> tuple[int, bool]:
    """The tokens of an agent that the models were trained with, or the default, and whether each Join renews them."""
    known = {spec.model: preset for spec in models if (preset := preset_of(spec)).max_tokens is not None}
    found = _agreed("--max-tokens", {name: preset.max_tokens for name, preset in known.items()})
    return MAX_TOKENS if found is None else found, any(preset.renew for preset in known.values())


def _agreed(option: str, trained: Mapping[str | None, int | None]) -> int | None:
    """The value that all models with one were trained with; UserError if they differ."""
    known = {name: value for name, value in trained.items() if value is not None}
    if len(set(known.values())) > 1:
        each = ", ".join(f"{name} with {value}" for name, value in known.items())
        raise UserError(f"the models were trained with different values of {option} ({each}): set {option}")
    return next(iter(known.values()), None)


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
                raise UserError(f"the models were made for different models of {role}: set --roles {role}=MODEL")
    return found
