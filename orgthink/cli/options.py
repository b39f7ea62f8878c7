"""Options that several verbs share: whose tokens, how many, and how the organizations are set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from orgthink.engines import STREAMS, EngineSpec, engine_spec, served_spec
from orgthink.evaluate.compatibility import require_depth, require_roles, require_sampling
from orgthink.evaluate.evaluation import OrganizationSpec, RoleSpec
from orgthink.evaluate.presets import Allowance, Attempts, allowance, organization_settings, partner_models
from orgthink.organizations import ORGANIZATIONS
from orgthink.record.episode import Sampling
from orgthink.runtime.budget import Limits
from orgthink.training.recipes.adjust import put
from orgthink.util.errors import UserError, pick, user_input
from orgthink.util.validation import plain, typed

SAMPLING = ("max_tokens", "temperature", "top_p")
"""Settings of the sampling that a role may have to itself."""
"""A model, and the server that has it."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Whose tokens, how many, and how the organizations are set."""

    model: str | None = None
    """A model folder, a model of an installed package, `vllm:` and one of these, `person:` and a name for somebody at
    this terminal, or a server's name for a model; without it the default of an installed package, or the only model of
    the server."""
    url: str | None = None
    """Base URL of an OpenAI-compatible server; without it OPENAI_BASE_URL serves models that do not lie here.
    OPENAI_API_KEY is sent along."""
    tokenizer: str | None = None
    """Model folder whose tokenizer lets token ids go to the server and come back."""
    streams: int = STREAMS
    """Most requests that each server gets at once, fewer while it takes no more; others wait, and their deadlines with
    them."""
    cache: Path | None = None
    """Folder for answers of servers. A request with temperature 0 or a seed that was answered before is not sent."""
    capacity: int | None = None
    """c: agents that may be at work at once, the organizer included; without it what the model was trained with, or
    2."""
    max_tokens: int | None = None
    """Tokens that each agent may sample; without it what the model was trained with, or 512."""
    renew: bool = False
    """Each Join renews --max-tokens, as in the paper; an episode then ends after 1,000 turns. A model that was trained
    so renews them by default."""
    max_episode_tokens: int | None = None
    """Tokens that all agents of an episode may sample."""
    temperature: float | None = None
    """0 is greedy; without it 1, and of `eval` what is a benchmark's convention."""
    seed: int = 0
    """Of the problems and of the sampling."""
    prompts: str | None = None
    """Prompt style: `paper`, one of an installed package, or a TOML file; without it the style that the model was made
    for."""
    set: Annotated[tuple[str, ...], arg(metavar="[LABEL.]SETTING=VALUE")] = ()
    """Settings of the organizations, such as overflow=queue, suite.corpus=FOLDER or asyncthink.tolerant=true; without a
    label of all that have it."""
    roles: Annotated[tuple[str, ...], arg(metavar="ROLE=MODEL[@URL]")] = ()
    """Other models for some roles, such as worker=FOLDER or coder=NAME@https://SERVER/v1; those of the server of --url,
    if they name none."""
    role_sampling: Annotated[tuple[str, ...], arg(name="sampling", metavar="ROLE.SETTING=VALUE")] = ()
    """Max_tokens, temperature and top_p of some roles, such as verifier.temperature=0.6; a role that --roles does not
    name has the model of its organization."""
    depth: int = 1
    """Levels of forks: 2 lets workers have workers."""
    deadline: float | None = None
    """Seconds after which an episode is ended."""
    answer_seconds: float | None = None
    """Seconds that a person has for an answer or an approval; without it as many as they need."""

    def spec(self) -> EngineSpec:
        spec = engine_spec(self.model, self.url, self.tokenizer, self.streams, self.cache)
        if self.cache is not None and spec.url is None:
            raise UserError("--cache goes with a server's --url: it holds answers of servers")
        return spec

    def served(self, model: str) -> EngineSpec:
        """Of `MODEL` or `MODEL@URL`; those without a server of their own have that of the options."""
        return served_spec(model, self.url, self.streams, self.cache)

    def allowance(self, organizations: Mapping[str, OrganizationSpec]) -> Allowance:
        """Capacity and tokens: those of the options, else what the models were trained with."""
        return allowance(
            organizations,
            self.spec(),
            capacity=self.capacity,
            max_tokens=self.max_tokens,
            renew=self.renew,
        )

    def sampling(self, organizations: Mapping[str, OrganizationSpec]) -> Sampling:
        temperature = Attempts.temperature if self.temperature is None else self.temperature
        sampling = Sampling(self.allowance(organizations).max_tokens, temperature, seed=self.seed)
        with user_input():
            require_sampling(sampling)
        return sampling

    def backed(self, organizations: Mapping[str, OrganizationSpec]) -> dict[str, RoleSpec]:
        """The roles that have a model or a sampling of their own, by the options or else by the models' presets."""
        engines: dict[str, EngineSpec] = {}
        for given in self.roles:
            role, model = pair(given, "--roles", "ROLE=MODEL[@URL]")
            if role in engines:
                raise UserError(
                    f"--roles {given}: {role} has the model {engines[role].model} already; name a role once"
                )
            engines[role] = self.served(model)
        settings: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for given in self.role_sampling:
            place, value = pair(given, "--sampling", "ROLE.SETTING=VALUE")
            role, _, setting = place.rpartition(".")
            if not role:
                raise UserError(f"--sampling {given}: write ROLE.SETTING=VALUE")
            pick("setting of the sampling", setting, dict.fromkeys(SAMPLING))
            if setting in settings[role]:
                raise UserError(f"--sampling {given}: {place} is {settings[role][setting]} already; give it once")
            settings[role][setting] = value
        for role, partner in partner_models(organizations, self.spec(), engines).items():
            if role not in engines:
                engines[role] = engine_spec(partner.model)
            settings[role] = {"max_tokens": partner.max_tokens} | settings[role]
        roles, shared = dict.fromkeys((*engines, *settings)), self.sampling(organizations)
        return {
            role: RoleSpec(
                engines.get(role) or self._engine_of(role, organizations), _drawn(role, shared, settings[role])
            )
            for role in roles
        }

    def _engine_of(self, role: str, organizations: Mapping[str, OrganizationSpec]) -> EngineSpec:
        """Engine of a role that has only a sampling of its own: that of the organizations that have the role.

        UserError if these are several.
        """
        having = (how for label, how in organizations.items() if role in how.named(label).roles)
        found = list(dict.fromkeys(how.engine or self.spec() for how in having))
        if len(found) > 1:
            models = ", ".join(str(engine.model) for engine in found)
            raise UserError(
                f"--sampling {role}: a role has one model, and the organizations with a {role} have {models}: "
                f"evaluate them one after the other, or name its model with --roles"
            )
        return found[0] if found else self.spec()

    def limits(self, organizations: Mapping[str, OrganizationSpec]) -> Limits:
        if self.deadline == 0:
            raise UserError("--deadline 0: an episode needs some seconds; without the option it has no deadline")
        allowance = self.allowance(organizations)
        require_depth((how.named(label) for label, how in organizations.items()), self.depth)
        with user_input():
            return Limits(
                allowance.capacity,
                allowance.limit,
                self.max_episode_tokens,
                depth=self.depth,
                episode_seconds=self.deadline,
                answer_seconds=self.answer_seconds,
            )

    def organize(
        self, named: tuple[str, ...], own: Mapping[str, EngineSpec] | None = None
    ) -> dict[str, OrganizationSpec]:
        """Organizations by label, from `NAME` or `LABEL=NAME`, as these options set them, with all their settings.

        `own` are engines that some have to themselves. Settings that no option names are those of the model's preset.
        """
        own = own or {}
        classes: dict[str, str] = {}
        for given in named:
            if "=" in given:
                label, name = pair(given, "--organizations", "LABEL=NAME")
            else:
                label, name = OrganizationSpec(given).label, given
            if label in classes:
                raise UserError(f"organization {label} is named twice: give one another label, as in again={name}")
            pick("organization", name, ORGANIZATIONS)
            classes[label] = name
        for label in own:
            pick("organization", label, classes)
        settings = {
            label: organization_settings(name, own.get(label) or self.spec(), prompts=self.prompts)
            for label, name in classes.items()
        }
        for given in self.set:
            self._set(given, classes, settings)
        specs = {label: OrganizationSpec(name, settings[label], own.get(label)) for label, name in classes.items()}
        organizations = {label: how.named(label) for label, how in specs.items()}
        require_roles(organizations.values(), self.backed(specs))
        return {label: replace(specs[label], settings=plain(one)) for label, one in organizations.items()}

    def _set(self, given: str, classes: dict[str, str], settings: dict[str, dict[str, Any]]) -> None:
        place, value = pair(given, "--set", "[LABEL.]SETTING=VALUE")
        named = sorted((label for label in classes if place.startswith(f"{label}.")), key=len)[-1:]  # `v1` and `v1.5`
        path = place.removeprefix(f"{named[0]}.") if named else place
        known = {name: None for one in named or classes for name in _known(classes[one])}
        setting, dot, _ = path.partition(".")
        if dot and setting not in known and not named:
            pick("organization", place.rpartition(".")[0], classes)
        pick("setting", setting, known)
        for one in named or classes:
            if setting in _known(classes[one]):
                try:
                    put(settings[one], ORGANIZATIONS[classes[one]], f"{path}={value}")
                except UserError as error:
                    raise UserError(f"--set {given}: {error}") from None


def _drawn(role: str, shared: Sampling, settings: Mapping[str, Any]) -> Sampling:
    """The sampling of a role: everybody's, but for its own settings."""
    sampling = typed(Sampling, {**asdict(shared), **settings}, f"--sampling {role}")
    with user_input():
        require_sampling(sampling)
    return sampling


def _known(name: str) -> list[str]:
    """Settings of an organization in the registry."""
    cls = ORGANIZATIONS[name]
    return [field.name for field in fields(cls) if field.name != "name"]  # type: ignore[arg-type]  # all are dataclasses


def pair(given: str, option: str, form: str) -> tuple[str, str]:
    """The two sides of an `=`; UserError without them."""
    left, equals, right = given.partition("=")
    if not (left and equals and right):
        raise UserError(f"{option} {given}: write {form}")
    return left, right
