r"""The parts of a result: several values, with or without names, a set, a tuple.

1, 2     x = 1 or x = 2     \{1, 2\}     x = 1, y = 2     (1, 2)
"""

from __future__ import annotations

import re
from typing import NamedTuple

from orgthink.tasks.math_spelling import named_first, unwrapped

_NAMED = re.compile(r"\s*(?P<name>[A-Za-z]'{0,3}(?:_\w|_\{\w+\}|\([A-Za-z]\))?)\s*=(?!=)(?P<text>.*)", re.DOTALL)
_POINT = re.compile(r"(?P<names>\([^()=]*\))\s*=(?!=)\s*(?P<values>\(.*\))", re.DOTALL)
_MEMBER = re.compile(r"\s*[A-Za-z]\s*\\in(?![A-Za-z])\s*")
_SEPARATOR = re.compile(
    r"\s*,?\s*(?:\\(?:text|mathrm|mbox)\s*\{\s*,?\s*(?:or|and)\s*\}|\\(?:lor|vee|land)(?![A-Za-z])|(?<![A-Za-z\\])(?:or|and)"
    r"(?![A-Za-z])|;)\s*"
)
_THOUSANDS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?!,?\d)", re.ASCII)
_SIGNS = re.compile(r"\\pm(?![A-Za-z])|±")
_CLOCK = re.compile(r"\d:[0-5]\d(?!\d)", re.ASCII)
_INTEGERS = re.compile(r"\d+:\d+", re.ASCII)
_RATIO = re.compile(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)[:/](\d+)", re.ASCII)
_OPENS, _CLOSES = "([{", ")]}"


class NamedValue(NamedTuple):
    """One value of a result."""

    name: str
    """Of the variable, without spaces and braces; empty without one."""
    text: str
    """The value as it is written."""

    def differs_in_name(self, other: NamedValue) -> bool:
        """Whether both are values of a variable, and not of the same; `y` and `f(x)` may be."""
        names = {self.name, other.name} - {""}
        return len(names) > 1 and not any("(" in name for name in names)


def parts_of(text: str) -> list[NamedValue]:
    """The values of a result: one, several, or those of a set."""
    text = _tidy(text)
    if member := _MEMBER.match(text):
        text = text[member.end() :]
    parts = _split(text)
    if len(parts) == 1 and (inner := _inside(_named(parts[0]).text, r"\{", r"\}")) is not None:
        parts = _split(inner) if inner else parts
    named = [_named(part) for part in parts]
    names = {part.name for part in named}
    return [NamedValue("", part.text) for part in named] if len(parts) > 1 and len(names) == 1 else named


def is_system(parts: list[NamedValue]) -> bool:
    """Whether the parts are values of several variables."""
    return len(parts) > 1 and all(part.name for part in parts) and len({part.name for part in parts}) == len(parts)


def by_coordinate(text: str) -> str:
    """`x=1, y=2` of `(x,y)=(1,2)`; any other text as it is."""
    if (found := _POINT.fullmatch(_tidy(text))) is None:
        return text
    names, values = tuple_parts(re.sub(r"\\[,;: ]", "", found["names"])), tuple_parts(found["values"])
    if len(names) != len(values):
        return text
    system = ", ".join(f"{name.text}={value.text}" for name, value in zip(names, values, strict=True))
    return system if is_system(parts_of(system)) else text


def tuple_parts(text: str) -> list[NamedValue]:
    """The parts of a tuple or an interval; none of anything else."""
    text = _tidy(text)
    inner = _inside(text, "(", ")")
    for opening, closing in (("[", "]"), ("[", ")"), ("(", "]")):
        inner = _inside(text, opening, closing) if inner is None else inner
    parts = _split(inner) if inner else []
    return [NamedValue("", part) for part in parts] if len(parts) > 1 else []


def same_ratio(right: str, offered: str) -> bool | None:
    r"""Whether two texts without spaces are one ratio of integers, `9:16` or `\frac{9}{16}`; `None` where neither has a
    colon between two integers.

    `6:4` is `3:2`. But what may be a clock time, `h:mm` with mm from 00 to 59, is never reduced, even where a ratio is
    meant: `10:30` is neither `5:15` nor `1:3`. No such colon divides: `3:2` is not 1.5.
    """
    if not any(_CLOCK.search(text) or _INTEGERS.fullmatch(text) for text in (right, offered)):
        return None
    one, other = _RATIO.fullmatch(right), _RATIO.fullmatch(offered)
    if one is None or other is None:
        return right == offered
    (a, b), (c, d) = ((int(found[1] or found[3]), int(found[2] or found[4])) for found in (one, other))
    if _CLOCK.search(right) or _CLOCK.search(offered):
        return (a, b) == (c, d) and (right == offered or not (":" in right and ":" in offered))
    return b > 0 < d and a * d == b * c


def _tidy(text: str) -> str:
    """Without the marks that do not change where a part ends."""
    text = re.sub(r"\\left|\\right(?![A-Za-z])|\\!", "", text.replace("{,}", ","))
    text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text) if not _bracketed(text) else text
    return _SEPARATOR.sub(", ", text).strip()


def _bracketed(text: str) -> bool:
    """Whether a comma may separate the parts of a tuple: of `(1,234)` it does."""
    return text.strip()[:1] in ("(", "[")


def _named(part: str) -> NamedValue:
    found = _NAMED.fullmatch(named_first(part.strip()))
    if found is None:
        return NamedValue("", unwrapped(part))
    return NamedValue(re.sub(r"[\s{}]", "", found["name"]), unwrapped(found["text"]))


def _inside(text: str, opening: str, closing: str) -> str | None:
    """The text between two brackets that belong together and stand around everything."""
    text = text.strip()
    if not (text.startswith(opening) and text.endswith(closing)) or len(text) < len(opening) + len(closing):
        return None
    inner = text[len(opening) : -len(closing)]
    depth = 0
    for mark in inner:
        depth += (mark in _OPENS) - (mark in _CLOSES)
        if depth < 0:
            return None
    return inner.strip() if depth == 0 else None


def _split(text: str) -> list[str]:
    """The texts between the commas that stand outside of all brackets."""
    parts, depth = [""], 0
    for mark in text:
        depth += (mark in _OPENS) - (mark in _CLOSES)
        if mark == "," and depth == 0 and not parts[-1].endswith("\\"):
            parts.append("")
        else:
            parts[-1] += mark
    return [sign.strip() for part in parts for sign in _both_signs(part)]


def _both_signs(part: str) -> list[str]:
    r"""The two values of `2 \pm \sqrt3`."""
    if len(_SIGNS.findall(part)) != 1:
        return [part]
    return [_SIGNS.sub(sign, part) for sign in ("+", "-")]
