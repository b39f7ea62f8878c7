"""Secrets in settings: settings hold names of environment variables, the environment holds the values.

`${NAME}` in a URL or in the command of an MCP server is replaced when the program connects. A literal secret in
settings is refused. A secret is recognised by its name (`password`, `api-key`) or as the login of a URL.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from orgthink.util.errors import UserError
from orgthink.util.redaction import conceal, conceal_url, literals, names_secret
from orgthink.util.references import is_server_model

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)

_SHELL_VARIABLE = re.compile(r"\$[\w{(]")

_NAMED = re.compile(r"""([A-Za-z][\w.-]*)["']?(?:=|:(?!//)\s*|\s+)["']?(?=((?:Bearer\s+|Basic\s+)?[^\s"',}\]]+))""")
"""Name and value in a command: `NAME=VALUE`, `--name VALUE`, `Name: value` and `"name": "value"`."""

_EXPANDED = ("model", "servers", "url")
"""Settings that may contain white space and nevertheless refer to variables."""


def expand(text: str) -> str:
    """Text with the values of its `${NAME}`, which no later message repeats. UserError if a variable is not set."""
    names = _VARIABLE.findall(text)
    if missing := [name for name in names if name not in os.environ]:
        raise UserError(
            f"set {' and '.join(missing)} in the environment: the settings hold only the name of the secret"
        )
    conceal(*(value for value in map(os.environ.__getitem__, names) if not os.path.exists(value)))  # not HOME
    found = _VARIABLE.sub(lambda name: os.environ[name[1]], text)
    conceal_url(found)
    return found


def command_words(command: str) -> list[str]:
    """The words of a server's command, with the values of their `${NAME}`.

    ValueError for an open quotation mark, UserError for a literal secret.
    """
    require_no_secrets(command, "servers")
    return [expand(word) for word in shlex.split(command)]


def referred(values: Any, key: str = "") -> str | None:
    """The first environment variable that JSON values refer to; `None` without one. `key` is the name of the values.

    A text with white space is prose and refers to nothing, unless it names a model, a URL or a command.
    """
    match values:
        case str():
            found = _VARIABLE.search(values)
            is_prose = key not in _EXPANDED and any(map(str.isspace, values))
            return None if found is None or is_prose else found[1]
        case Mapping():
            names = [found for name, each in values.items() for found in (referred(name), referred(each, name))]
        case list() | tuple():
            names = [referred(each, key) for each in values]
        case _:
            return None
    return next((name for name in names if name is not None), None)


def require_no_secrets(settings: Any, key: str = "") -> None:
    """UserError, with the name of the setting, for a literal secret in JSON values. `key` is the name of the values."""
    match settings:
        case str():
            for kind, secret in _literals(settings, is_command=key == "servers"):
                conceal(secret)
                raise UserError(
                    f"{key or 'a setting'} contains a {kind}: put the {kind} into an environment variable and write "
                    "its name, as in ${NAME}"
                )
        case Mapping():
            for name, each in settings.items():
                if not is_server_model(name, settings):
                    require_no_secrets(each, name)
        case list() | tuple():
            for each in settings:
                require_no_secrets(each, key)


def _literals(text: str, *, is_command: bool) -> Iterator[tuple[str, str]]:
    """Secrets in a text that are not variables, each after the kind of secret."""
    yield from (found for found in literals(text) if not _VARIABLE.search(found[1]))
    for name, value in _NAMED.findall(text) if is_command else ():
        if names_secret(name, value) and not _SHELL_VARIABLE.search(value):
            yield "secret", value
