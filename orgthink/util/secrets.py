"""Secrets in settings: config.json holds their names, the environment their values.

`${NAME}` in the URL of a server or in the command of an MCP server is replaced when it is connected. Values that were
typed instead are stored under a name of their own: the login of a URL as HOST_LOGIN, a value of its parameters and of
`NAME=VALUE`, options, headers and JSON in a command under its name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from orgthink.util.errors import UserError
from orgthink.util.redaction import SHORTEST, WEB, conceal, conceal_url, is_secret, names_secret, urls
from orgthink.util.references import is_server_model

_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)
_URL = re.compile(r"(?P<before>\S*?\w://)((?P<login>[^\s/?#]*)@)?(?P<host>[^\s/?#;]*)(?P<path>[^\s?#]*)"
                  r"(\?(?P<query>[^\s#]*))?(#(?P<fragment>\S*))?")  # fmt: skip
_NAMED = re.compile(r"(?P<name>[^\s=:/{[\"']+)(?P<mark>=|:(?!//)\s*)(?P<value>\S.*)", re.DOTALL)
"""A word of a command that gives a name a value: `NAME=VALUE`, `--option=VALUE`, `NAME: VALUE` and `NAME:VALUE`."""

_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)")
"""An option of a command, whose value may stand in the next word."""

_SHORT_OPTIONS = {"p": "password", "k": "key"}
"""Options whose value is a secret if it looks like one, and the name of that."""

_USER_OPTION = re.compile(r"[uU]|[\w.-]*user")
"""The name of an option whose value may be `USER:PASSWORD`."""

_NO_PASSWORD = re.compile(r"[\d.:]*|.*[/\s].*", re.DOTALL)
"""A version, a port, a path or prose."""

_JSON_PART = re.compile(
    r"""(?P<name>"(?:[^"\\]|\\.)*"\s*:)|(?P<open>[{[])|(?P<close>[]}])|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<number>-?\d[\w.+-]*)"""
)
"""A part of JSON: the name of a member, the ends of an object or a list, and a value."""

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
        value = _value(name) or ""
        if is_secret(name, value) or not _is_place(value):
            conceal(value)
    conceal_url(found)
    return found


def _is_place(value: str) -> bool:
    """Whether a value is that of HOME and the like: where something is on this machine."""
    return value.startswith("/") and os.path.exists(value)


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
            return by_name_of_command(value) if key == "servers" else _urls_by_name(value)
        case Mapping():
            return {name: each if is_server_model(name, value) else by_name(each, name) for name, each in value.items()}
        case list() | tuple():
            return [by_name(each, key) for each in value]
    return value


def by_name_of_command(command: str) -> str:
    """The command of an MCP server, or its URL, without secrets; a command that cannot be read without its words."""
    if "://" in command and not any(map(str.isspace, command)):
        return _urls_by_name(command)
    try:
        given = shlex.split(command)
    except ValueError:
        return _word_by_name(command.partition(" ")[0])
    return shlex.join(_any_word_by_name(*each) for each in _in_place(given))


def _in_place(given: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    """Each word of a command, the word before it, and whether it is the script of a shell, which may have further
    options before that."""
    before, script = "", False
    for word in given:
        is_script = script and word[:1] not in ("-", "+")
        yield word, before, is_script
        before, script = word, not is_script and (script or _SCRIPT_OPTION.fullmatch(word) is not None)


def _any_word_by_name(word: str, before: str, is_script: bool) -> str:
    return _script_by_name(word) if is_script else _word_by_name(word, before)


def _word_by_name(word: str, before: str = "") -> str:
    """A word of a command, behind another one. Only its secrets change: the command stays the same once they are back.

    A word is the value of the option before it, or a name and a value, or JSON, or URLs. The value of a name that says
    nothing is read as a word is.
    """
    if (option := _OPTION.fullmatch(before)) and (found := _next_by_name(option["name"], word)) is not None:
        return found
    begun = ""
    while (named := _NAMED.fullmatch(word)) and word[0] not in ("{", "["):
        name, value = named["name"], named["value"]
        is_option = _OPTION.fullmatch(name)
        begun += word.removesuffix(value)
        if is_option and (found := _value_by_name(is_option["name"], value)) is not None:
            return begun + found
        if names_secret(name, value) or (not is_option and named["mark"] == "=" and is_secret(name, value)):
            return begun + _named(name, value)
        word = value
    return begun + (_json_by_name(word) if word[:1] in ("{", "[") else _urls_by_name(word))


def _next_by_name(option: str, word: str) -> str | None:
    """The word behind an option. With two dashes it is the next option; with one and many letters it may be either, so
    a name that says secret decides."""
    if word[:1] != "-":
        return _value_by_name(option, word)
    return _named(option, word) if word[:2] != "--" and len(word) >= SHORTEST and names_secret(option, word) else None


def _value_by_name(option: str, value: str) -> str | None:
    """The value of an option of a command, `None` if the name of the option does not say that it is a secret."""
    if names_secret(option, value):
        return _named(option, value)
    if option in _SHORT_OPTIONS and len(value) >= SHORTEST and not _NO_PASSWORD.fullmatch(value):
        return _named(_SHORT_OPTIONS[option], value)
    user, _, password = value.partition(":")
    if password and _USER_OPTION.fullmatch(option) and not _NO_PASSWORD.fullmatch(user) and not password.isdigit():
        return f"{user}:{_named('password', password)}"
    return None


def _json_by_name(text: str) -> str:
    """JSON as it is written, without the secrets among its values. What is in a list has the name of the list, and
    may be words of a command."""
    found, end, name, in_list, before = "", 0, "", False, ""
    outer = list[tuple[str, bool]]()
    for part in _JSON_PART.finditer(text):
        if part["name"]:
            name = part["name"][1:].rpartition('"')[0]
        elif part["open"]:
            outer.append((name, in_list))
            in_list, before = part["open"] == "[", ""
        elif part["close"]:
            name, in_list = outer.pop() if outer else ("", False)
        else:
            kind = "number" if part["number"] else "text"
            is_one = names_secret(name, part[kind]) or (kind == "text" and not in_list and is_secret(name, part[kind]))
            new = _text_by_name(name, part[kind]) if is_one else _word_by_name(part[kind], before)
            found, end, before = f"{found}{text[end : part.start(kind)]}{new}", part.end(kind), part[kind] * in_list
    return found + text[end:]


def _text_by_name(name: str, written: str) -> str:
    """A secret as JSON writes it. A server reads it first."""
    with suppress(ValueError):
        conceal(json.loads(f'"{written}"', strict=False))
    return _named(name, written)


def _script_by_name(script: str) -> str:
    """The script of a shell: only its secrets change, for everything else in it may mean something."""
    found, end = "", 0
    places = list(_SCRIPT_WORD.finditer(script))
    for place, (written, before, is_script) in zip(places, _in_place(place[0] for place in places), strict=True):
        new = _written_by_name(written, before, is_script)
        found, end = f"{found}{script[end : place.start()]}{new}", place.end()
    return found + script[end:]


def _written_by_name(written: str, before: str, is_script: bool) -> str:
    """A word of a script, as it is written. One that the shell computes is no secret."""
    if _COMPUTED.search(_LITERAL.sub("", written)):
        return written
    word = "".join(shlex.split(written))
    for name in _REFERENCE.findall(_any_word_by_name(word, before, is_script)):
        if f"${{{name}}}" not in word:
            secret = _value(name) or ""
            if secret not in written:  # another part of it is quoted
                return _named("word", written)
            written = written.replace(secret, f"${{{name}}}")
    return written


def _urls_by_name(text: str) -> str:
    return "".join(map(_url_by_name, urls(text)))


def _url_by_name(text: str) -> str:
    found = _URL.fullmatch(text)
    if found is None:
        return text
    login = "" if found["login"] is None else f"{_login_by_name(found['login'], found['host'], found['before'])}@"
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
    if is_secret(name, value):
        return f"{name}={_named(name, value)}"
    return f"{name}={_urls_by_name(value)}" if "://" in value else _parts_by_name(parameter)


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
