"""Organizations and models of roles, as config.json and the recipes name them, and the presets of their models.

A preset is the orgthink.json in a model's folder. Options of the user take precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from itertools import chain
from typing import Any

from orgthink.engines import EngineSpec, is_local, shipped
from orgthink.evaluation.compatibility import require_sampling
from orgthink.organizations import ORGANIZATIONS
from orgthink.organizations.prompts import STYLES, style_named
from orgthink.record.episode import Sampling
from orgthink.runtime.budget import Limits
from orgthink.runtime.organization import Organization
from orgthink.util.errors import UserError, explained, pick
from orgthink.util.registry import LOCAL
from orgthink.util.settings import plain, require_known, typed

CAPACITY, MAX_TOKENS = 2, 512
"""Defaults of a run whose models do not name their own."""


@dataclass(frozen=True, slots=True)
class OrganizationSpec:
    """An organization and its settings, as stored in a run folder."""

    organization: str
    """Its name in the registry."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Its fields. A missing field has its default."""
    engine: EngineSpec | None = None
    """Engine of its agents; `None`: the evaluation's."""
    max_tokens: int | None = None
    """Tokens that each of its agents may sample; `None`: as in the evaluation."""

    @property
    def label(self) -> str:
        """Its default label: its name, or the class name of a reference."""
        return self.organization.rpartition(":")[2].rpartition(LOCAL)[2]

    def named(self, label: str) -> Organization:
        """The organization with this label as its name. UserError for an unknown organization or setting."""
        cls = ORGANIZATIONS.named(self.organization)
        require_known(cls, self.settings, [label])
        made = typed(cls, {**self.settings, "name": label}, f"settings of {label}")
        vars(made)["name"] = label
        return made

    def stored(self, organization: Organization) -> OrganizationSpec:
        """With all settings of its organization, as JSON values. UserError for another value."""
        with explained(f"settings of {organization.name} are stored as JSON values", ValueError):
            return replace(self, settings=plain(organization))


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """Engine and sampling of a role, as stored in a run folder."""

    engine: EngineSpec
    """Engine of the role's agents."""
    sampling: Sampling
    """Sampling settings."""


_INSTALLED: dict[str, Callable[[Any], bool]] = {
    # An unknown name is an error elsewhere.
    "prompts": lambda style: style in tuple(STYLES) or not (":" in style or style.endswith(".toml"))
}
"""Whether a value of a setting that all organizations share is installed. Other settings have a marker of their own."""


@dataclass(frozen=True, slots=True)
class Partner:
    """A model of another role, with which a model was trained."""

    model: str = field(metadata={"installed": lambda model: shipped(model) is not None or not is_local(model)})
    """A shipped model, or a server's name for one."""
    max_tokens: int
    """Tokens that each of its agents may sample."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How a model is used by default."""

    prompts: str = "paper"
    """Prompt style; that of a model without an orgthink.json is `demonstrated`."""
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
    adapters: dict[str, str] = field(default_factory=dict)
    """Names of the adapters of roles, which lie in the folder `adapter`: see `models.adapters`."""


def preset_of(spec: EngineSpec) -> Preset:
    """The preset of a model; the default without an orgthink.json. UserError if the file is invalid."""
    preset = typed(Preset, spec.preset_values, f"orgthink.json of {spec.model}")
    with explained(f"orgthink.json of {spec.model}", ValueError, UserError):
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

    The prompt style is `prompts`, else the model's. A model without a preset was not trained here: an organization that
    can be tolerant is. UserError for an unknown organization or style.
    """
    preset_settings = preset_of(spec).organizations.get(name, {})
    style = prompts or preset_settings.get("prompts", spec.prompts)
    style_named(style)
    own = {"prompts": style} if spec.preset_values else {"prompts": style, "tolerant": True}
    known = {setting: own[setting] for setting in known_settings(name) if setting in own}
    return {**preset_settings, **known, **(settings or {})}


def known_settings(organization: str) -> list[str]:
    """All settings of an organization. UserError for an unknown one."""
    cls: Any = ORGANIZATIONS.named(organization)
    return [field.name for field in fields(cls) if field.name != "name"]


def labelled(given: Any) -> dict[str, OrganizationSpec]:
    """Organizations by label: one or several names, `LABEL=NAME`, classes, instances, factories or functions; or a
    mapping of them by label. UserError for a label that is given twice."""
    several = isinstance(given, Iterable) and not isinstance(given, str | type) and not hasattr(given, "run")
    each = [one.split("=", 1) if isinstance(one, str) else [one] for one in (given if several else [given])]
    found: dict[str, OrganizationSpec] = {}
    for *label, thing in given.items() if isinstance(given, Mapping) else each:
        if "" in (*label, thing):
            raise UserError(f"organization {'='.join(map(str, (*label, thing)))}: write NAME or LABEL=NAME")
        spec = _spec_of(thing)
        name = label[0] if label else spec.settings.get("name", spec.label)
        if name in found:
            raise UserError(f"organization {name} is named twice: give each a label of its own, as LABEL=NAME")
        found[name] = spec
    return found


def _spec_of(thing: Any) -> OrganizationSpec:
    """The settings of an instance are the fields that differ from their defaults."""
    instance = is_dataclass(thing) and not isinstance(thing, type)
    kind = type(thing) if instance else thing
    name = (ORGANIZATIONS.spelling(thing) or thing) if isinstance(thing, str) else ORGANIZATIONS.add(kind)
    usual = {
        one.name: one.default if one.default_factory is MISSING else one.default_factory()
        for one in (fields(thing) if instance else ())
        if one.init
    }
    return OrganizationSpec(name, {one: getattr(thing, one) for one in usual if getattr(thing, one) != usual[one]})


def on_models(
    organizations: Mapping[str, OrganizationSpec],
    engine: EngineSpec,
    *,
    models: Mapping[str, EngineSpec] | None = None,
    settings: Mapping[str, Any] | None = None,
    prompts: str | None = None,
) -> dict[str, OrganizationSpec]:
    """Organizations with the settings for their models. `models` are by label, and so are `settings`, or they hold for
    all that have them. Settings take precedence over `prompts`, then come those of an instance and of the model's
    preset. UserError for an unknown label or setting, and for prompts that no organization has."""
    models, settings = models or {}, settings or {}
    own = {label: known_settings(how.organization) for label, how in organizations.items()}
    for label in models:
        pick("organization", label, organizations)
    for name in settings:
        pick("organization or setting", name, dict.fromkeys(chain(organizations, *own.values())))
    found = {}
    for label, how in organizations.items():
        given = {name: value for name, value in how.settings.items() if name != "prompts" or prompts is None}
        shared = {name: settings[name] for name in own[label] if name in settings and name not in organizations}
        given |= shared | typed(dict[str, Any], settings.get(label, {}), f"settings of {label}")
        found[label] = OrganizationSpec(
            how.organization,
            organization_settings(how.organization, models.get(label, engine), given, prompts),
            models.get(label),
        )
    if prompts is not None and found and not any("prompts" in how.settings for how in found.values()):
        raise UserError(f"prompts {prompts}: {', '.join(found)} has no setting `prompts`")
    return found


def trained_with(models: Iterable[EngineSpec], name: str, default: int) -> int:
    """The value of a field of the presets that all models with one were trained with. UserError if they differ."""
    known = {spec.model: value for spec in models if (value := getattr(preset_of(spec), name)) is not None}
    if len(set(known.values())) > 1:
        each = ", ".join(f"{model} with {value}" for model, value in known.items())
        option = f"--{name.replace('_', '-')}"
        raise UserError(f"the models were trained with different values of {option} ({each}): set {option}")
    return next(iter(known.values()), default)


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
