"""Secrets of this process: no message and no file repeats them, whoever wrote the text.

A server knows the key that it got and may repeat it anywhere: in an error, a header, the text of its model. Secrets of
a process are few and hold for all of it, so they are remembered here and not handed from place to place.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

SHORTEST = 8
"""Characters of the shortest text that counts as a secret. Shorter ones are placeholders, such as EMPTY, or words."""

MARK = "…"
"""Stands where a secret stood."""

_LOGIN = re.compile(r"://([^\s/?#]*)@")
_SECRET = re.compile(r"key|token|secret|passw|auth|bearer|cookie|cred|login|sig", re.IGNORECASE)
_QUERY = re.compile(r"\?([^\s#]+)")

_WORD = re.compile(r"[a-z_]+|[0-9]+")
"""A name that may be one of ours, such as `settings`, or a number."""

_forms: tuple[str, ...] = ()
"""What is hidden, the longest first: one form may hold another."""


def conceal(*secrets: str) -> None:
    """Hide these texts from now on, also as URLs, JSON, Python and Basic authentication write them.

    Other encodings, parts of a secret, and secrets with fewer than `SHORTEST` characters are not recognised.
    """
    global _forms
    found = {form for secret in secrets for form in _written(secret) if len(form) >= SHORTEST}
    _forms = tuple(sorted({*_forms, *found}, key=len, reverse=True))


def conceal_url(url: str) -> None:
    """Hide the login of a URL: its password, or its user where it has none; and the values of its query."""
    for login in _LOGIN.findall(url):
        user, _, password = login.partition(":")
        conceal(login, unquote(f"{user}:{password}"), unquote(password or user))
    for query in _QUERY.findall(url):
        for part in query.split("&"):
            name, equals, value = part.partition("=")
            conceal_named(name, value) if equals else conceal_named("key", name)


def conceal_named(name: str, value: str) -> None:
    """Hide a value if it is a secret."""
    if is_secret(name, value):
        conceal(value)


def is_secret(name: str, value: str) -> bool:
    """Whether a value's name says that it is a secret, or it is long and no path. Other values, such as the version of
    an API, are words that any text may hold."""
    return _SECRET.search(name) is not None or (len(value) >= 2 * SHORTEST and "/" not in value)


def redact(text: str) -> str:
    """The text with `MARK` in place of every secret."""
    for form in _forms:
        text = text.replace(form, MARK)
    return text


def redact_json(text: str) -> str:
    """JSON text without secrets in its strings and in the names that are no words of ours. Numbers stay."""
    return text if redact(text) == text else json.dumps(redact_values(json.loads(text)), ensure_ascii=False)


def redact_values(value: Any) -> Any:
    """JSON values without secrets in their strings, and in the names that are no words of ours."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {_name(name): redact_values(each) for name, each in value.items()}
        case list() | tuple():
            return [redact_values(each) for each in value]
    return value


def _name(name: Any) -> Any:
    """A name without secrets, unless it is a word."""
    return name if not isinstance(name, str) or _WORD.fullmatch(name) else redact(name)


def _written(secret: str) -> set[str]:
    basic = b64encode(secret.encode(errors="replace")).decode().rstrip("=")
    encoded = {quote(secret, safe="", errors="replace"), unquote(secret), basic}
    return {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], *encoded}
