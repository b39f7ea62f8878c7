"""Secrets in settings: config.json holds their names, the environment their values.

`${NAME}` in the URL of a server or in the command of an MCP server is replaced when it is connected. Values that were
typed instead are stored under a name of their own: the login of a URL as HOST_LOGIN, a value of its parameters and of
`NAME=VALUE`, options, headers and JSON in a command under its name.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from itertools import count
from typing import Any

from orgthink.errors import UserError
from orgthink.redaction import SHORTEST, WEB, conceal, conceal_named, conceal_url, ends_as_secret, is_secret
from orgthink.registry import is_foreign

_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)
_URL = re.compile(r"(?P<before>\S*?\w://)((?P<login>[^\s/?#]*)@)?(?P<host>[^\s/?#;]*)(?P<path>[^\s?#]*)"
                  r"(\?(?P<query>[^\s#]*))?(#(?P<fragment>\S*))?")  # fmt: skip
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.+)", re.DOTALL)
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(=(?P<value>.+))?", re.DOTALL)
"""An option of a command, whose value stands in the same word or in the next."""

_SECRET_OPTION = re.compile(
    r"[\w-]*(key|token|secret|password|passwd|passphrase|auth|authorization|bearer|credentials?|cookie)", re.IGNORECASE
)
"""The name of an option whose value is a secret. Those of `--max-tokens` and `--key-file` are none."""

_SHORT_OPTIONS = {"p": "password", "k": "key"}
"""Options whose value is a secret if it looks like one, and the name of that."""

_USER_OPTION = re.compile(r"[uU]|[\w-]*user")
"""The name of an option whose value may be `USER:PASSWORD`."""

_NO_PASSWORD = re.compile(r"[\d.:]*|.*[/\s].*", re.DOTALL)
"""A version, a port, a path or prose."""

_HEADER = re.compile(r"(?P<name>[\w-]*(key|token|secret|auth|cookie)[\w-]*):\s*(?P<value>.+)", re.IGNORECASE)
"""A header of HTTP whose value is a secret by its name."""

_MEMBER = re.compile(r'"(?P<name>(?:[^"\\]|\\.)*)"(?P<colon>\s*:\s*)"(?P<value>(?:[^"\\]|\\.)+)"')
"""A member of a JSON object whose value is a text."""

_SCRIPT_OPTION = re.compile("-[a-z]*c")
"""The option of a shell before its script."""

_SCRIPT_WORD = re.compile(r"""(?:[^\s'"\\;&|()<>]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", re.DOTALL)
"""A word as it is written in a script, with its quotation marks."""

_LITERAL = re.compile(r"'[^']*'|\\.", re.DOTALL)
"""A part of a word in a script that stands for itself."""

_COMPUTED = re.compile(r"\$[\w({]|`")
"""What a shell replaces in a word."""

_EXPANDED = ("model", "servers", "url")
"""Settings whose values may have white space and references nevertheless."""

_given: dict[str, str] = {}
"""Values that were typed in this process, by the names that its settings have for them."""


def expand(text: str) -> str:
    """Text with the values of its `${NAME}`. UserError that names those that are not set."""
    missing = [name for name in _REFERENCE.findall(text) if _value(name) is None]
    if missing:
        raise UserError(
            f"set {' and '.join(missing)} in the environment: the settings hold only the name of the secret"
        )
    found = _REFERENCE.sub(lambda name: _value(name[1]) or "", text)
    for name in _REFERENCE.findall(text):
        conceal_named(name, _value(name) or "")
    conceal_url(found)
    return found


def referred(values: Any, key: str = "") -> str | None:
    """The first name that JSON values refer to: whoever wrote them would read the environment. `None` without one.

    `key` is the name of the values. A text with white space refers to nothing, unless it names a model or a command: it
    is prose, such as the description of a model.
    """
    match values:
        case str():
            found = _REFERENCE.search(values)
            is_prose = key not in _EXPANDED and any(map(str.isspace, values))
            return None if found is None or is_prose else found[1]
        case Mapping():
            names = [found for name, each in values.items() for found in (referred(name), referred(each, name))]
        case list() | tuple():
            names = [referred(each, key) for each in values]
        case _:
            return None
    return next((name for name in names if name is not None), None)


def words(command: str) -> list[str]:
    """The words of the command of a server, with the values of their `${NAME}`. ValueError for an open quotation."""
    by_name_of_command(command)  # conceals what stands there openly
    return [expand(word) for word in shlex.split(command)]


def by_name(value: Any, key: str = "") -> Any:
    """JSON values of settings with `${NAME}` in place of every secret. `key` is the name of the value."""
    match value:
        case str():
            return by_name_of_command(value) if key == "servers" else _url_by_name(value)
        case Mapping():
            return {name: each if is_foreign(name, value) else by_name(each, name) for name, each in value.items()}
        case list() | tuple():
            return [by_name(each, key) for each in value]
    return value


def by_name_of_command(command: str) -> str:
    """The command of an MCP server, or its URL, without secrets; a command that cannot be read without its words."""
    if "://" in command and not any(map(str.isspace, command)):
        return _url_by_name(command)
    try:
        given = shlex.split(command)
    except ValueError:
        return _word_by_name(command.partition(" ")[0], "")
    return shlex.join(map(_word_by_name, given, ["", *given]))


def _word_by_name(word: str, before: str) -> str:
    """A word of a command, behind another one."""
    if _SCRIPT_OPTION.fullmatch(before):
        return _script_by_name(word)
    if assigned := _ASSIGNED.fullmatch(word):
        name, value = assigned["name"], assigned["value"]
        return f"{name}={_named(name, value) if is_secret(name, value) else _word_by_name(value, '')}"
    if header := _HEADER.fullmatch(word):
        return f"{header['name']}: {_named(header['name'], header['value'])}"
    if (option := _OPTION.fullmatch(word)) and option["value"]:
        return word.removesuffix(option["value"]) + _value_by_name(option["name"], option["value"])
    if (option := _OPTION.fullmatch(before)) and not option["value"] and not word.startswith("-"):
        return _value_by_name(option["name"], word)
    if word[:1] in ("{", "["):
        return _MEMBER.sub(_member_by_name, word)
    return _url_by_name(word)


def _value_by_name(option: str, value: str) -> str:
    """The value of an option of a command."""
    if _SECRET_OPTION.fullmatch(option) or (ends_as_secret(option) and not any(map(str.isspace, value))):
        return _named(option, value)
    if option in _SHORT_OPTIONS and len(value) >= SHORTEST and not _NO_PASSWORD.fullmatch(value):
        return _named(_SHORT_OPTIONS[option], value)
    user, _, password = value.partition(":")
    if _USER_OPTION.fullmatch(option) and not _NO_PASSWORD.fullmatch(user) and not password.isdigit():
        return f"{user}:{_named('password', password)}" if password else value
    return _word_by_name(value, "")


def _member_by_name(member: re.Match[str]) -> str:
    """A member of a JSON object."""
    name, value = member["name"], member["value"]
    found = _named(name, value) if is_secret(name, value) else _url_by_name(value)
    return f'"{name}"{member["colon"]}"{found}"'


def _script_by_name(script: str) -> str:
    """The script of a shell: only its secrets change, for everything else in it may mean something."""
    found, end, before = "", 0, ""
    for word in _SCRIPT_WORD.finditer(script):
        found, end = f"{found}{script[end : word.start()]}{_written_by_name(word[0], before)}", word.end()
        before = word[0]
    return found + script[end:]


def _written_by_name(written: str, before: str) -> str:
    """A word of a script, as it is written. One that the shell computes is no secret."""
    if _COMPUTED.search(_LITERAL.sub("", written)):
        return written
    word = "".join(shlex.split(written))
    for name in _REFERENCE.findall(_word_by_name(word, before)):
        if f"${{{name}}}" not in word:
            secret = _value(name) or ""
            if secret not in written:  # another part of it is quoted
                return _named("word", written)
            written = written.replace(secret, f"${{{name}}}")
    return written


def _url_by_name(text: str) -> str:
    found = _URL.fullmatch(text)
    if found is None:
        return text
    login = f"{_login_by_name(found['login'], found['host'], found['before'])}@" if found["login"] else ""
    path = _parts_by_name(found["path"])
    query, fragment = (
        mark + "&".join(_parameter_by_name(each) for each in part.split("&")) if part else mark * (part is not None)
        for mark, part in (("?", found["query"]), ("#", found["fragment"]))
    )
    conceal_url(text)
    return f"{found['before']}{login}{found['host']}{path}{query}{fragment}"


def _login_by_name(login: str, host: str, before: str) -> str:
    """A login that is a secret and whose password is not given by name already."""
    user, _, password = login.partition(":")
    if not password and not before.lower().removesuffix("://").endswith(WEB):
        return login
    return login if _REFERENCE.search(password or user) else _named(f"{host}_login", expand(login))


def _parameter_by_name(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    if not equals:
        return _named("query", name)
    return f"{name}={_named(name, value)}" if is_secret(name, value) else _parts_by_name(parameter)


def _parts_by_name(text: str) -> str:
    """A path or a parameter with further parameters, each behind a `;`."""
    first, *others = text.split(";")
    return ";".join([first, *(_parameter_by_name(each) if "=" in each else each for each in others)])


def _named(name: str, secret: str) -> str:
    """A reference to a secret, by this name or, where the name has another value, by one with a number. Nothing is a
    secret that holds a reference already."""
    if not secret or _REFERENCE.search(secret):
        return secret
    stem = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").upper() or "SECRET"
    stem = f"_{stem}" if stem[0].isdigit() else stem
    names = (stem if number == 1 else f"{stem}_{number}" for number in count(1))
    free = next(name for name in names if _value(name) in (None, secret))
    _given[free] = secret
    conceal(secret)
    return f"${{{free}}}"


def _value(name: str) -> str | None:
    return _given.get(name, os.environ.get(name))
