"""Options that are given several times: options with several values collect them, of others the last one counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any, get_origin

from orgthink.util.settings import alternatives, field_types, marks


def gathered(argv: Sequence[str], command: Any) -> list[str]:
    """Arguments of a command with all values of an option after its first occurrence. tyro takes only the last ones."""
    several = set(_several(command))
    groups: list[list[str]] = [[]]
    group = groups[0]
    for argument in argv:
        name, equals, value = argument.partition("=")
        option = name.replace("_", "-")
        if option in several:
            group = next((each for each in groups if each[:1] == [option]), [])
            if not group:
                group.append(option)
                groups.append(group)
            group += [value] if equals else []
        elif argument.startswith("--"):
            groups.append(group := [argument])
        else:
            group.append(argument)
    return [argument for group in groups for argument in group]


def _several(command: Any) -> Iterator[str]:
    """Options with several values, of a command and of its subcommands."""
    for field, hint in field_types(command).items() if is_dataclass(command) else ():
        name = next((mark.name for mark in marks(hint) if getattr(mark, "name", None)), field)
        for one in alternatives(hint):
            if get_origin(one) is tuple:
                yield f"--{name.replace('_', '-')}"
            yield from _several(one)
