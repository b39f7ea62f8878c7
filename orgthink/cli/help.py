"""Help texts: the overview of the commands, and the options of a command, both in groups."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass, replace
from typing import Annotated, Any

from orgthink.util.registry import COMMANDS
from orgthink.util.settings import alternatives, marks

COMMAND_GROUPS = {
    "run": ("demo", "run", "eval", "serve", "mcp", "arena"),
    "train": ("train", "synth", "size"),
    "look": ("view", "measure", "compare"),
}
"""Commands by what they are for; the others are tools."""

OPTION_GROUPS = {
    "task": "task grader n samples split pairs episodes correct_only",
    "model": "model models url tokenizer streams template roles device lora",
    "method": "organization organizations set prompts depth match teacher steps backend cluster",
    "sampling": "temperature seed sampling",
    "budget": "capacity max_tokens renew max_episode_tokens max_total_tokens max_dollars prices deadline concurrency",
    "run": "config out resume go_on log json dry_run",
}
"""Options by what they are about."""


def overview() -> str:
    """The help of `orgthink`: all commands in groups, each with the first sentence of its docstring."""
    from orgthink.cli.names import summary

    known, width = COMMANDS.registrations(), max(40, shutil.get_terminal_size((100, 24)).columns - 12)
    groups = {**COMMAND_GROUPS, "tools": [name for name in known if name not in sum(COMMAND_GROUPS.values(), ())]}
    lines = ["usage: orgthink COMMAND [OPTIONS]"]
    for group, names in groups.items():
        texts = {
            name: textwrap.shorten(summary(known[name].value), width, placeholder=" …")
            for name in names
            if name in known
        }
        lines += ["", group, *(f"  {name:<8}  {text}" for name, text in texts.items())]
    return "\n".join(
        [*lines, "", "All options of a command: orgthink COMMAND --help. The version: orgthink --version."]
    )


def rules(commands: Iterable[Any], values: Mapping[str, Any]) -> Any:
    """tyro's rules for these commands: options in groups, with these values as defaults. An option with several values
    can be repeated: `--set A=1 --set B=2` is `--set A=1 B=2`. No help text has a default without content."""
    from tyro import MISSING_NONPROP
    from tyro.conf import Positional, UseAppendAction, arg
    from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

    found, specs = ConstructorRegistry(), dict[Any, StructConstructorSpec]()

    def adapt(usual: Any, text: str | None) -> StructConstructorSpec:
        several, within = dict[str, tuple[str, ...]](), dict[str, list[StructFieldSpec]]()
        for each in usual.fields:
            kind, default, hint = each.type, values.get(each.name, each.default), _hint
            named = isinstance(default, tuple) and alternatives(kind) == (tuple[str, ...],)
            if named and Positional not in marks(kind):
                several[each.name], hint = default, _hint(" ".join(default))
                kind, default = Annotated[(UseAppendAction[tuple[tuple[str, ...], ...]], arg(), *marks(kind))], ()
            known = OPTION_GROUPS.items() if len(usual.fields) > 9 else ()  # few need no groups
            group = next((group for group, names in known if each.name in names.split()), "")
            how = arg(prefix_name=not group, help_behavior_hint=hint)
            within.setdefault(group, []).append(
                replace(
                    each,
                    type=Annotated[kind, how],
                    default=default,
                    # tyro finds a text when it is shown; the line ends of its source mean nothing
                    helptext=lambda text=each.helptext: " ".join(
                        str((text() if callable(text) else text) or "").split()
                    ),
                )
            )
        top = within.pop("", [])
        for group in filter(within.__contains__, OPTION_GROUPS):
            specs[kind := type(group, (), {})] = StructConstructorSpec(lambda **given: given, tuple(within[group]))
            top.append(StructFieldSpec(group, kind, MISSING_NONPROP, ""))

        def made(**given: Any) -> Any:
            given |= {name: value for group in within for name, value in given.pop(group).items()}
            return usual.instantiate(**given | {n: sum(given[n], ()) if given[n] else several[n] for n in several})

        made.__doc__ = text
        return StructConstructorSpec(made, tuple(top))

    for command in filter(is_dataclass, commands):
        info = StructTypeInfo.make(command, MISSING_NONPROP, False)
        specs[command] = adapt(ConstructorRegistry.get_struct_spec(info), command.__doc__)
    found.struct_rule(lambda info: specs.get(info.type))
    return found


def _hint(default: str) -> str:
    return "" if default in ("None", "False", "") else f"(default: {default})"
