"""Shared options: a file of options, the model, the budgets."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from orgthink.engines import STREAMS, EngineSpec, engine_spec, served_spec
from orgthink.evaluation.plan import Evaluation, make_plan
from orgthink.evaluation.specs import OrganizationSpec, known_settings, labelled, on_models
from orgthink.measure.usage import Price
from orgthink.organizations import ORGANIZATIONS
from orgthink.training.recipes.adjust import put
from orgthink.util.errors import UserError, explained, pick
from orgthink.util.redaction import redact_values
from orgthink.util.references import absolute
from orgthink.util.settings import plain, require_known, typed
from orgthink.util.tabular import json_object, toml_tables

REPEATS = "run.toml"
"""File of a run folder with the options that repeat the run."""


@dataclass(frozen=True, kw_only=True)
class FromFile:
    """The options of a command, which may stand in a file."""

    config: Path | None = None
    """TOML file with options by their names, such as max-tokens = 512; options of the command line win. Each folder
    of run, eval and train has one that repeats it, DIR/run.toml."""

    def repeating(self, command: str) -> str:
        """The text of a file that repeats this command in any working directory."""
        lines = [
            f"{name.replace('_', '-')} = {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in redact_values(absolute(plain(self))).items()
            if name not in ("config", "out", "resume", "json", "dry_run", "go_on")
            and (value or value == 0)
            and value is not False
        ]
        return f"# Repeats this run: orgthink {command} --config {REPEATS}\n{''.join(lines)}"


def options_in(file: Path, command: type) -> dict[str, Any]:
    """The options of a command in a TOML file, by the name of their field. UserError, with the file, for an unknown
    name or a value that does not fit."""
    values = {name.replace("-", "_"): value for name, value in toml_tables(file).items()}
    require_known(command, values, [str(file)])
    made = typed(command, values, file)
    return {name: getattr(made, name) for name in values}


@dataclass(frozen=True, kw_only=True)
class Options(FromFile):
    """The model, the budgets, and the settings of the organizations."""

    model: str | None = None
    """A model folder, a GGUF file, a name of `orgthink models`, ORGANIZATION/NAME of the Hugging Face hub, `vllm:` and
    one of these, or a server's name for a model; without it the only model of the server."""
    url: str | None = None
    """Base URL of an OpenAI-compatible server; without it OPENAI_BASE_URL serves models that are not on this machine.
    OPENAI_API_KEY is sent along."""
    tokenizer: str | None = None
    """Model folder whose tokenizer is used to exchange token ids with the server."""
    streams: int = STREAMS
    """Most requests that each server gets at once."""
    capacity: int | None = None
    """c: agents that may decode at once, the organizer included; without it what the model was trained with, or 2."""
    max_tokens: int | None = None
    """Tokens that each agent may sample; without it what the model was trained with, or 512."""
    renew: bool = False
    """Each Join renews --max-tokens, as in the paper; an episode then ends after 1,000 turns. A model that was trained
    so renews them by default."""
    max_episode_tokens: int | None = None
    """Tokens that all agents of an episode may sample."""
    temperature: float | None = None
    """0 is greedy; without it 1, or a benchmark's convention."""
    seed: int = 0
    """Seed for problem generation and sampling."""
    prompts: str | None = None
    """Prompt style: `paper`, one of an installed package, or a TOML file; without it the model's."""
    set: Annotated[tuple[str, ...], arg(metavar="[LABEL.]SETTING=VALUE")] = ()
    """Settings of the organizations, such as overflow=queue, suite.corpus=FOLDER or asyncthink.tolerant=true; without a
    label for all that have the setting."""
    roles: Annotated[tuple[str, ...], arg(metavar="ROLE=MODEL[@URL]")] = ()
    """Other models for some roles, such as worker=FOLDER or coder=NAME@https://SERVER/v1; the server is that of --url
    by default."""
    sampling: Annotated[tuple[str, ...], arg(metavar="ROLE.SETTING=VALUE")] = ()
    """Settings max_tokens, temperature and top_p of some roles, such as verifier.temperature=0.6."""
    template: Annotated[tuple[str, ...], arg(metavar="[ROLE.]NAME=VALUE")] = ()
    """Arguments of the model's chat template, such as enable_thinking=false; with a role or label, of the model that
    --roles or --models gives it. A server gets them as `chat_template_kwargs`."""
    depth: int = 1
    """Levels of forks: 2 lets workers have workers."""
    deadline: float | None = None
    """Seconds after which an episode is ended."""

    def plan_of(self, task: str, named: Sequence[str], models: Sequence[str] = (), **others: Any) -> Evaluation:
        """The plan of these options for organizations `NAME` or `LABEL=NAME`. `models` are `LABEL=MODEL[@URL]`."""
        if self.deadline == 0:
            raise UserError("--deadline 0: an episode needs some seconds; without the option it has no deadline")
        samplings = by_role(self.sampling, "--sampling", "ROLE.SETTING=VALUE")
        for name in samplings.get("", ()):
            raise UserError(f"--sampling {name}=…: write ROLE.SETTING=VALUE")
        templates = by_role(self.template, "--template", "[ROLE.]NAME=VALUE")
        engine = engine_spec(self.model, self.url, self.tokenizer, self.streams, template=templates.pop("", None))
        own = self._models(models, "--models", "LABEL=MODEL", templates)
        roles = self._models(self.roles, "--roles", "ROLE=MODEL[@URL]", templates)
        for name in templates.keys() - own.keys() - roles.keys():
            raise UserError(f"--template {name}.…: neither --roles nor --models gives {name} a model of its own")
        return make_plan(
            task,
            self._organizations(named, engine, own),
            engine,
            roles=roles,
            role_sampling=samplings,
            temperature=self.temperature,
            seed=self.seed,
            capacity=self.capacity,
            max_tokens=self.max_tokens,
            renew=self.renew,
            max_episode_tokens=self.max_episode_tokens,
            depth=self.depth,
            deadline=self.deadline,
            **others,
        )

    def _models(
        self, given: Sequence[str], option: str, form: str, templates: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, EngineSpec]:
        """Engines by role or label. Those without a server of their own have that of the options."""
        named = by_name(given, option, form)
        return {name: served_spec(model, self.url, self.streams, templates.get(name)) for name, model in named.items()}

    def _organizations(
        self, named: Sequence[str], engine: EngineSpec, own: Mapping[str, EngineSpec]
    ) -> dict[str, OrganizationSpec]:
        """Organizations by label, set by these options and by the presets of their models."""
        found = on_models(labelled(list(named)), engine, models=own, prompts=self.prompts)
        for given in self.set:
            self._set(given, found)
        return found

    def _set(self, given: str, organizations: Mapping[str, OrganizationSpec]) -> None:
        ((place, value),) = by_name([given], "--set", "[LABEL.]SETTING=VALUE").items()
        named = sorted((one for one in organizations if place.startswith(f"{one}.")), key=len)[-1:]  # `v1` and `v1.5`
        path = place.removeprefix(f"{named[0]}.") if named else place
        meant = [organizations[one] for one in named or organizations]
        known = {name: None for how in meant for name in known_settings(how.organization)}
        setting, dot, _ = path.partition(".")
        if dot and setting not in known and not named:
            pick("organization", place.rpartition(".")[0], organizations)
        pick("setting", setting, known)
        for how in meant:
            if setting in known_settings(how.organization):
                with explained(f"--set {given}", UserError):
                    put(how.settings, ORGANIZATIONS[how.organization], f"{path}={value}")


def by_name(given: Sequence[str], option: str, form: str) -> dict[str, str]:
    """The values by what stands before the `=`; UserError without it, and for a name that is given twice."""
    found: dict[str, str] = {}
    for one in given:
        left, equals, right = one.partition("=")
        if not (left and equals and right):
            raise UserError(f"{option} {one}: write {form}")
        if left in found:
            raise UserError(f"{option} {one}: {left} is {found[left]} already; give it once")
        found[left] = right
    return found


def by_role(given: Sequence[str], option: str, form: str) -> dict[str, dict[str, Any]]:
    """The values by role and name; those without a role under an empty one."""
    found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for place, value in by_name(given, option, form).items():
        role, _, name = place.rpartition(".")
        put(found[role], dict[str, Any], f"{name}={value}")
    return dict(found)


def read_prices(file: Path | None) -> dict[str, Price]:
    """The prices in a TOML or JSON file, by model; empty without a file. UserError that names the file."""
    if file is None:
        return {}
    values = json_object(file) if file.suffix == ".json" else toml_tables(file)
    prices = typed(dict[str, Price], values, file)
    require_known(dict[str, Price], values, [f"{file}:"])
    if not prices:
        raise UserError(f"{file} names no model")
    return prices
