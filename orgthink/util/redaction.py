"""Redact the secrets of this process in all messages and files.

A server may repeat its key anywhere: in an error, a header, the text of its model.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote
from urllib.request import getproxies

SHORTEST = 8
"""Characters of the shortest secret. Shorter values are words or placeholders, such as EMPTY."""

MARK = "…"
"""Replaces a secret."""

WEB = ("http", "https", "ws", "wss")
"""Schemes of URLs whose login may be a key without a user. In others, such as postgresql, it is a user."""

_LOGIN = re.compile(r"(\w*)://([^\s/?#]*)@")
"""Scheme and login of a URL."""

_PARAMETER = re.compile(r"[?&;#]([\w.-]+)=([^\s&;#]+)")
"""Name and value of a parameter of a URL."""

_SECRET = re.compile(
    r"key(?!board|word)|token(?!iz)|secret|passw|passphrase|passcode|auth(?!or(?!i))|bearer|cookie|cred|login|sig|"
    r"session.?id",
    re.IGNORECASE,
)
"""Parts of names of secrets, but not of keyboard, tokenizer and author."""

_LAST = ("pass", "pwd", "pw", "pat", "jwt", "otp", "pin", "session")
"""Last words of names of secrets; they are also parts of compass, path and spin."""

_ABOUT = ("file", "path", "dir", "folder", "type", "mode", "size", "limit")
"""Last words of names that only describe a secret, as in key-file and AUTH_MODE."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
"""The words of MYSQL_PWD, db-pass and userPin."""

_CREDENTIALS = re.compile(r"[A-Za-z]+\s+(\S+)")
"""Value of an authorization header: a scheme, such as Bearer, and a secret."""

_WORD = re.compile(r"[a-z_]+|[0-9]+")
"""A name of a field, such as `settings`, or a number."""

_UNENCODED = (
    "",
    "!$%&'()*+,/:;=?@[\\]^`{|}",
    "!$%&'()*+,/:;=@[\\]^|",
    "!$%&'()*+,",
    "!#$%&'()*+,/:;=?@[]",
    "!$&'()*+,/:;=?@",
    "/",
)
"""Characters that libraries (httpx2, requests, urllib3, Python) do not percent-encode in parts of a URL."""

_forms: tuple[str, ...] = ()
"""Hidden texts, the longest first: one may contain another."""


def conceal(*secrets: str) -> None:
    """Hide these texts from now on, also in the encodings of URLs, JSON, Python and Basic authentication, and the key
    in `Bearer KEY`. Other encodings, parts of a secret, and texts below `SHORTEST` characters are not recognised.
    """
    global _forms
    secrets += tuple(found[1] for found in map(_CREDENTIALS.fullmatch, secrets) if found)
    found = {form for secret in secrets for form in _written(secret) if len(form) >= SHORTEST}
    _forms = tuple(sorted({*_forms, *found}, key=len, reverse=True))


def conceal_url(text: str) -> None:
    """Hide the logins and the secret parameters of all URLs in a text."""
    conceal(*(unquote(login) for _, login in _LOGIN.findall(text)), *(secret for _, secret in literals(text)))


def literals(text: str) -> Iterator[tuple[str, str]]:
    """Secrets in the URLs of a text, each after its kind: the password of a login, or its user if that may be a key,
    and parameters with the name of a secret."""
    for scheme, login in _LOGIN.findall(text):
        user, _, password = login.partition(":")
        if secret := password or (user if scheme.lower() in WEB else ""):
            yield "password", secret
    yield from (("secret", value) for name, value in _PARAMETER.findall(text) if names_secret(name, value))


def conceal_proxies() -> None:
    """Hide the logins of the proxies in the environment."""
    for proxy in getproxies().values():
        conceal_url(proxy if "://" in proxy else f"http://{proxy}")


def names_secret(name: str, value: str) -> bool:
    """Whether a value is a secret by its name."""
    last = [word.lower() for word in _WORDS.findall(name)][-1:]
    if len(value) < SHORTEST or not last or last[0] in _ABOUT:
        return False
    return _SECRET.search(name) is not None or last[0] in _LAST


def redact(text: str) -> str:
    """The text with `MARK` in place of every secret."""
    for form in _forms:
        text = text.replace(form, MARK)
    return text


def unsplit(text: str) -> tuple[str, str]:
    """A text that goes on, in two parts: what no more text can make a part of a secret, without secrets; and its end,
    which may be the beginning of a secret."""
    text = redact(text)
    at = next(
        (
            at
            for at in range(max(0, len(text) - longest() + 1), len(text))
            if any(form.startswith(text[at:]) for form in _forms)
        ),
        len(text),
    )
    return text[:at], text[at:]


def longest() -> int:
    """Characters of the longest secret: the end of a text may contain a part of it."""
    return len(_forms[0]) if _forms else 0


def redact_foreign(value: Any) -> Any:
    """JSON values from a tool server without secrets. Call it before a text is cut or joined. Values that nest too deep
    become empty."""
    try:
        return redact_values(value)
    except RecursionError:
        return {}


def redact_json(text: str) -> str:
    """JSON text without secrets in its strings and in foreign names."""
    return text if redact(text) == text else json.dumps(redact_values(json.loads(text)), ensure_ascii=False)


def redact_values(value: Any) -> Any:
    """JSON values without secrets in their strings and in foreign names."""
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {_name(name): redact_values(each) for name, each in value.items()}
        case list() | tuple():
            return [redact_values(each) for each in value]
    return value


def _name(name: Any) -> Any:
    """A name without secrets, unless it is a plain word."""
    return name if not isinstance(name, str) or _WORD.fullmatch(name) else redact(name)


def _written(secret: str) -> set[str]:
    basic = b64encode(secret.encode(errors="replace")).decode().rstrip("=")
    encoded = {*(quote(secret, safe=left, errors="replace") for left in _UNENCODED), unquote(secret), basic}
    texts = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    return {secret, *texts, *(text.replace("/", "\\/") for text in texts), repr(secret)[1:-1], *encoded}
