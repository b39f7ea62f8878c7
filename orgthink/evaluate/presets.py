"""Presets of a model from the orgthink.json in its folder. Options of the user take precedence."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from orgthink.engines import EngineSpec, names_engine, shipped
from orgthink.evaluate.compatibility import require_places, require_sampling
from orgthink.evaluate.evaluation import OrganizationSpec, up_to
from orgthink.organizations import ORGANIZATIONS
from orgthink.organizations.prompts import STYLES, style_named
from orgthink.record.episode import Sampling
from orgthink.runtime.budget import Limits
from orgthink.tasks import task_named
from orgthink.tasks.task import Split
from orgthink.util.errors import UserError, pick
from orgthink.util.settings import require_known
from orgthink.util.validation import typed

EVERY = 1_000_000
"""More problems than any benchmark has."""
CAPACITY, MAX_TOKENS = 2, 512
"""Of a run whose models do not say what they were trained with."""


_INSTALLED: dict[str, Callable[[Any], bool]] = {
    "prompts": lambda style: (
        style in tuple(STYLES) or not (":" in style or style.endswith(".toml"))
    )  # an unknown name is an error
}
"""What is installed of the settings that organizations share, by their names; others say it themselves."""


def _is_installed(model: str) -> bool:
    """Whether a model is shipped, or is only a name by which a server of the user's may know it."""
    return shipped(model) is not None or not (names_engine(model) or Path(model).is_dir())


@dataclass(frozen=True, slots=True)
class Partner:
    """A model for another role, with which a model was trained."""

    model: str = field(metadata={"installed": _is_installed})
    """A shipped model, or a server's name for one."""
    max_tokens: int
    """Most tokens that each of its agents samples."""


@dataclass(frozen=True, slots=True)
class Preset:
    """How a model is used by default."""

    prompts: str = "paper"
    """Prompt style."""
    tasks: tuple[str, ...] = ()
    """The only tasks that it knows; none named: it reads any text."""
    capacity: int | None = None
    """c that it was trained with; `None` where that is not known."""
    max_tokens: int | None = None
    """Tokens of each agent that it was trained with; `None` where that is not known."""
    renew: bool = False
    """Whether these are the tokens of a segment, renewed at each Join."""
    organizations: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings by organization."""
    roles: dict[str, Partner] = field(default_factory=dict)
    """Models of other roles, for organizations with these roles."""


@dataclass(frozen=True)
class Attempts:
    """How often what is attempted, and how the tokens are drawn."""

    n: int = 100
    """Different problems."""
    samples: int = 1
    """Attempts at each."""
    temperature: float = 1.0
    """0 is greedy."""


def attempts(
    task: str, split: Split, seed: int, n: int | None, samples: int | None, temperature: float | None
) -> Attempts:
    """The given values, else those by which others measure the task, else those of `Attempts`. UserError without such a
    task."""
    convention = task_named(task).convention
    usual = Attempts()
    if convention is not None:
        every = len(up_to(task, split, seed, convention.problems or EVERY)) if n is None else n
        usual = Attempts(every, convention.samples, convention.temperature)
    return Attempts(
        usual.n if n is None else n,
        usual.samples if samples is None else samples,
        usual.temperature if temperature is None else temperature,
    )


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many agents may decode at once, and how many tokens each may sample."""

    capacity: int = CAPACITY
    """c, the organizer included."""
    max_tokens: int = MAX_TOKENS
    """Tokens of each agent, or of a segment of it if they `renew`."""
    renew: bool = False
    """Whether each Join renews the budget."""

    @property
    def limit(self) -> int | None:
        """Tokens of each agent over all its segments; `None` is no limit."""
        return None if self.renew else self.max_tokens


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
                    raise UserError(f"{one.name} of {name} runs commands: only who starts a run may name them")
            _require_installed(organization, name)
    except ValueError as error:
        raise UserError(f"orgthink.json of {spec.model}: {error}") from error
    return preset


def _require_installed(settings: Any, name: str) -> None:
    """UserError for a setting that sends questions to a server, or reads a file or folder of this machine for a
    model."""
    for one in fields(settings):
        value, installed = getattr(settings, one.name), one.metadata.get("installed", _INSTALLED.get(one.name))
        if installed is not None and not installed(value):
            raise UserError(f"{one.name} of {name} is {value!r}: a model may name what is installed, and nothing else")
        if is_dataclass(value):
            _require_installed(value, name)


def allowance(
    organizations: Mapping[str, OrganizationSpec],
    default: EngineSpec,
    *,
    capacity: int | None = None,
    max_tokens: int | None = None,
    renew: bool = False,
) -> Allowance:
    """The given values, else those that the organizations' models were trained with, else those of `Allowance`.

    All organizations of a table have the same, so UserError if two models were trained with different ones.
    """
    specs = [how.engine or default for how in organizations.values()] or [default]
    models = {spec.model: preset_of(spec) for spec in specs}
    if capacity is None:
        capacity = _agreed("--capacity", {name: preset.capacity for name, preset in models.items()})
    if max_tokens is None:
        known = {name: preset for name, preset in models.items() if preset.max_tokens is not None}
        max_tokens = _agreed("--max-tokens", {name: preset.max_tokens for name, preset in known.items()})
        renew = renew or any(preset.renew for preset in known.values())
    max_tokens = MAX_TOKENS if max_tokens is None else max_tokens
    found = Allowance(CAPACITY if capacity is None else capacity, max_tokens, renew)
    require_places((how.named(label) for label, how in organizations.items()), found.capacity)
    return found


def style_here(spec: EngineSpec) -> str | None:
    """The prompt style of the model here that a server's model is named after, an installed one or a folder; `None`
    without one, for the default style, and if a tokenizer's folder tells the style."""
    if spec.url is None or spec.tokenizer is not None or not spec.model:
        return None
    installed = spec.model.rstrip("/").rpartition("/")[2]
    style = EngineSpec(installed if shipped(installed) else spec.model).prompts
    return None if style == Preset().prompts else style


def organization_settings(
    name: str, spec: EngineSpec, settings: Mapping[str, Any] | None = None, prompts: str | None = None
) -> dict[str, Any]:
    """Settings of an organization on a model: the given ones, then those of the model's preset.

    The prompt style is `prompts`, else the model's. UserError for an unknown organization or style, and for a server's
    model whose style is not known.
    """
    if prompts is None and "prompts" not in (settings or {}) and (style := style_here(spec)) is not None:
        raise UserError(
            f"a server does not tell the prompt style of {spec.model}, and the model of that name here has {style}: "
            f"say --prompts {style}, or --tokenizer with its folder"
        )
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


def _agreed(option: str, trained: Mapping[str | None, int | None]) -> int | None:
    """What all models that say it were trained with; UserError if they differ."""
    known = {name: value for name, value in trained.items() if value is not None}
    if len(set(known.values())) > 1:
        each = ", ".join(f"{name} with {value}" for name, value in known.items())
        raise UserError(f"the models here were trained with different values of {option} ({each}): say {option}")
    return next(iter(known.values()), None)
