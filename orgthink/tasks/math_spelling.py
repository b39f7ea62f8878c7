r"""One spelling for spellings of a result that nobody reads in two ways.

$17$ cm     {17}     \boldsymbol{17}     (-3)     6.02e23     x²     \frac{1}2     √12     \sqrt[3]2     \sin(x)     ∅
2x+1 = y    x < 5    x < 2 or x > 3     9{:}30
"""

from __future__ import annotations

import re

_DOLLAR = re.compile(r"(?<!\\)\$")
_MARK = r"(?:(?<!\\)(?:\$|\\[()\[\]]))+"
_MARKS = re.compile(
    rf"(?P<stays>\d(?:[\s$]|\\[()\[\]])+(?=\d))|(?P<parts>(?<=[A-Za-z]){_MARK}(?=[A-Za-z])|(?<=,){_MARK}(?=\d))"
    rf"|{_MARK}",
    re.ASCII,
)
"""Begin and end formulas. Between two digits they say that there are two numbers: `6 $5$` is not 65. Others part a
command from a word, as in `$\\pi$r`, and two numbers that are none of thousands, as in `$1$,$234$`."""
_STYLE = re.compile(r"(?:\\(?:boldsymbol|mathbf|bm|fbox)(?![A-Za-z])\s*)?(?=\{)")
"""What may stand before braces around a whole result without a meaning."""
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED = re.compile(r"[⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_SIGNS = str.maketrans(
    {
        "∞": "\\infty ", "∪": "\\cup ", "∩": "\\cap ", "⋅": "·", "∙": "·", "⁄": "/", "∕": "/", "½": "\\frac{1}{2}",
        "⅓": "\\frac{1}{3}", "⅔": "\\frac{2}{3}", "¼": "\\frac{1}{4}", "¾": "\\frac{3}{4}",
        **dict.fromkeys("−–‐‑﹣－", "-"), **dict.fromkeys("∶：", ":"), **dict.fromkeys("\u00a0\u2009\u202f", " "),
        **dict.fromkeys("\u200b\u2060\ufeff", ""),
    }
)  # fmt: skip
"""Signs that LaTeX writes otherwise, and those that nobody sees."""
_ARGUMENT = r"(\d|\{(?:[^{}]|\{[^{}]*\})*\})"
_FRACTION = re.compile(rf"\\[cdt]?frac\s*{_ARGUMENT}\s*{_ARGUMENT}(?!\d)")
"""With braces, or without them around a digit."""
_PLAIN_ROOT = re.compile(r"√\s*(?:(\d+(?:\.\d+)?|[A-Za-z])|\(([^()]*)\))")
_SQUARE_ROOT = re.compile(r"\\sqrt\s*\[\s*2\s*\]")
_HALF_POWER = re.compile(r"(?<![\w.)}\]])(\d+)\^(?:\{(?:1/2|0?\.5|\\frac\{1\}\{2\})\}|\(1/2\)|0\.5)")
_INDEXED_ROOT = re.compile(r"(\\sqrt\s*\[\s*\w+\s*\])\s*([0-9A-Za-z])(?![0-9A-Za-z.])")
"""Of `\\sqrt[3]12` LaTeX would take the 1, and people mean 12."""
FUNCTIONS = "sin|cos|tan|cot|sec|csc|arcsin|arccos|arctan|sinh|cosh|tanh|ln|lg|log"
"""Names of functions, as a part of a regular expression."""
_APPLIED = re.compile(
    rf"\\({FUNCTIONS})\s*(?:\\left\s*)?"
    r"\(\s*(\d*\s*(?:[A-Za-z]|\\[A-Za-z]+)|\d+)\s*(?:\\right\s*)?\)\s*(?=$|[-+=,;)}\]$<>])"
)
"""A function of one sign, behind which nothing stands that might belong to it, as in `\\sin(x)y`."""
_THOUSANDS = re.compile(r"(?<=\d),\s*\\!\s*(?=\d{3})", re.ASCII)
_SCIENTIFIC = re.compile(
    r"(?<![\w.}\\])(\d+\.\d+(?=[eE]-)|1(?=[eE]-)|\d+(?=[eE]-0\d)|\d+(?:\.\d+)?(?=[eE]\d))[eE](-?\d{1,3})(?![\w.^!])",
    re.ASCII,
)
"""A number in one of the spellings of programs. Not `2e-3`, which is less than twice Euler's number; but nobody writes
that as `1e`, nor what is subtracted from it as `03`."""
_ENCLOSED = re.compile(
    r"(?:\\left)?\(\s*(?P<inner>-\s*)?(?P<number>\d+(?:\.\d+)?|\d+/\d+|\\[dt]?frac\s*\{\d+\}\s*\{\d+\})\s*(?:\\right)?\)",
    re.ASCII,
)
"""A number in brackets, which says no more than without them."""
_OR = re.compile(r"\s*,?\s*(?:\\text\s*\{\s*or\s*\}|\\(?:lor|vee)(?![A-Za-z])|(?<![A-Za-z\\])or(?![A-Za-z]))\s*")
_COLON = re.compile(r"(?<![A-Za-z])\{:\}|\\colon(?![A-Za-z])")
_EMPTY = re.compile(r"\\varnothing(?![A-Za-z])|∅")
_INFINITY = re.compile(r"\+\s*\\infty(?![A-Za-z])")
_BEHIND = re.compile(r"(?P<value>[^=<>]+?)\s*(?<![<>!:=])=\s*(?P<name>[A-Za-z])\s*")
"""A value before its variable."""

_AT_MOST = re.compile(r"\\(?:leqslant|leq)(?![A-Za-z])|<=|≤")
_AT_LEAST = re.compile(r"\\(?:geqslant|geq)(?![A-Za-z])|>=|≥")
_UNEQUAL = re.compile(r"\\(?:neq|not\s*=)(?![A-Za-z])|≠")
_RELATION = re.compile(r"\\(?:le|lt|ge|gt)(?![A-Za-z])|[<>]")
_RELATIONS = {"\\le": "≤", "\\lt": "<", "\\ge": "≥", "\\gt": ">", "<": "<", ">": ">"}
_TURNED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}


def unmarked(text: str) -> str:
    r"""`42 cm` of `$42$ cm` and `\(42\) cm`. Of an odd number of dollars one is money: such a text stays as it is."""
    if len(_DOLLAR.findall(text)) % 2:
        return text
    return _MARKS.sub(lambda found: found["stays"] or (" " if found["parts"] else ""), text)


def respelled(text: str) -> str:
    """A text in the spelling that results are compared in."""
    text = _RAISED.sub(lambda found: f"^{{{found[0].translate(_SUPERSCRIPTS)}}}", text).translate(_SIGNS)
    text = _SCIENTIFIC.sub(r"\1\\times 10^{\2}", _THOUSANDS.sub(",", text))
    text = _INDEXED_ROOT.sub(r"\1{\2}", text)
    text = _COLON.sub(":", _APPLIED.sub(r"\\\1 \2", text))
    text = _UNEQUAL.sub(r"\\ne ", _AT_LEAST.sub(r"\\ge ", _AT_MOST.sub(r"\\le ", text)))
    return _EMPTY.sub(r"\\emptyset", _INFINITY.sub(r"\\infty", text))


def braced_fractions(text: str) -> str:
    r"""`\frac{1}{2}` of `\frac12`, `\frac{1}2` and `\cfrac 1 2`."""

    def braced(found: re.Match[str]) -> str:
        return "\\frac" + "".join(f"{{{part}}}" if len(part) == 1 else part for part in found.groups())

    return _FRACTION.sub(braced, text)


def braced_roots(text: str) -> str:
    r"""`\sqrt{12}` of `√12`, `\sqrt[2]{12}` and `12^{1/2}`."""
    text = _PLAIN_ROOT.sub(lambda found: f"\\sqrt{{{found[1] or found[2]}}}", _SQUARE_ROOT.sub(r"\\sqrt", text))
    return _HALF_POWER.sub(r"\\sqrt{\1}", text)


def unwrapped(text: str) -> str:
    """A result without braces around all of it, without bold print, and a number without brackets."""
    closed = _closed(text)
    start, end = _stripped(text, 0, len(text))
    while style := _STYLE.match(text, start, end):
        opened, last = style.end(), end - 1
        if closed.get(opened) != last or last == opened + 1:  # an empty pair is no wrapping
            break
        start, end = _stripped(text, opened + 1, last)
    text = text[start:end]
    sign = "-" if text.startswith("-") else ""
    enclosed = _ENCLOSED.fullmatch(text.removeprefix("-").lstrip())
    if enclosed is None or (sign and enclosed["inner"]):
        return text
    return f"{sign or (enclosed['inner'] or '').strip()}{enclosed['number']}"


def _closed(text: str) -> dict[int, int]:
    """Where each brace of a text that is closed is closed. A backslash takes a brace's meaning."""
    opened, closed = list[int](), dict[int, int]()
    for i, mark in enumerate(text):
        escaped = i > 0 and text[i - 1] == "\\"
        if mark == "{" and not escaped:
            opened.append(i)
        elif mark == "}" and not escaped and opened:
            closed[opened.pop()] = i
    return closed


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Bounds of a part of a text without the white space around it."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def named_first(text: str) -> str:
    """`y = 2x + 1` of `2x + 1 = y`; any other text as it is. Where the variable is on both sides, it has no value."""
    found = _BEHIND.fullmatch(text)
    if found is None or found["name"] in re.sub(r"\\[A-Za-z]+", "", found["value"]):
        return text
    return text if re.fullmatch(r"\s*[A-Za-z]\s*", found["value"]) else f"{found['name']}={found['value']}"


def interval_of(text: str) -> str | None:
    r"""`(-\infty,5)` of `x < 5` and `[2,5)` of `2 \le x < 5`: the values of one variable, from a respelled
    text; `None` of anything else."""
    sides = [side.strip() for side in _RELATION.split(text)]
    signs = [_RELATIONS[sign] for sign in _RELATION.findall(text)]
    if not all(sides) or "=" in text or "," in text:
        return None
    if len(sides) == 2 and _is_variable(sides[0], sides[1]):
        sign, end = signs[0], sides[1]
    elif len(sides) == 2 and _is_variable(sides[1], sides[0]):
        sign, end = _TURNED[signs[0]], sides[0]
    elif len(sides) == 3 and _is_variable(sides[1], sides[0] + sides[2]) and len({sign in "<≤" for sign in signs}) == 1:
        if signs[0] in ">≥":
            sides, signs = sides[::-1], [_TURNED[sign] for sign in signs[::-1]]
        return f"{'[' if signs[0] == '≤' else '('}{sides[0]},{sides[2]}{']' if signs[1] == '≤' else ')'}"
    else:
        return None
    closed = sign in "≤≥"
    return f"(-\\infty,{end}{']' if closed else ')'}" if sign in "<≤" else f"{'[' if closed else '('}{end},\\infty)"


def union_of(text: str) -> str | None:
    r"""`(-\infty,-2]\cup[2,\infty)` of `x \le -2 or x \ge 2`; `None` of anything else."""
    parts = _OR.split(text)
    intervals = [interval_of(part) for part in parts]
    variables = set(re.findall("[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", "".join(parts))))
    if len(parts) < 2 or len(variables) != 1 or None in intervals:
        return None
    return r"\cup".join(filter(None, intervals))


def _is_variable(side: str, other: str) -> bool:
    """Whether a side is a variable that the other one lacks."""
    return re.fullmatch(r"[A-Za-z]", side) is not None and side not in re.sub(r"\\[A-Za-z]+", "", other)
