r"""Compares two final answers in mathematics: a guard against unfinished answers, then math-verify.

A model that is rewarded for `123 \cdot 456` where 56088 is right learns to repeat questions. So a number must be
written out. Any other result must have no open operation, must not be copied from the question, and must not be much
longer than the right one. Numbers are compared here, exactly; only formulas go to math-verify.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import NamedTuple

from orgthink.grammar.solution import final_result
from orgthink.tasks import math_verifier

LONGEST = 300
"""Most characters of a result; a longer text is wrong."""
_QUESTION = 5000
"""Characters of a question in which a copied formula is looked for."""

_SPELLED = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": r"\div ", "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ",
    "°": r"^\circ ", "≈": r"\approx ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ", "∅": r"\emptyset ",
    "²": "^2", "³": "^3", "∶": ":", "<=": r"\le ", ">=": r"\ge ", r"\leqslant": r"\le ", r"\geqslant": r"\ge ",
    r"\leq": r"\le ", r"\geq": r"\ge ", r"\neq": r"\ne ", r"\varnothing": r"\emptyset ", r"\dfrac": r"\frac",
    r"\tfrac": r"\frac", r"\cfrac": r"\frac", "{,}": ",", r",\!": ",", "{:}": ":", r"\colon": ":",
    r"+\infty": r"\infty", r"\degree": r"^\circ", r"\lor": " or ", r"\vee": " or ", r"\langle": "(",
    r"\rangle": ")", r"\bar": r"\overline",
}  # fmt: skip
_IGNORED = re.compile(r"\\(?:left|right|displaystyle|boldsymbol|mathbf|bm)(?![A-Za-z])|(?<!\\)\\[!()\[\]]|[`*]{2}")
_SPACE = re.compile(r"(?:(?<!\\)\\[,;: ]|\\q?quad(?![A-Za-z])|~|\s|(?<!\\)\$)+")
_LOOSE_SPACE = re.compile(r"(?<![\w%.)}]) | (?![\w%\\(])|(?<=\d) (?=\\(?:times|cdot|pi|frac|sqrt))|(?<=[a-z]) (?=\\)")
_WORDS = re.compile(r"\\(?:text|textrm|textbf|textit|mathrm|mbox|operatorname) ?\{([^{}]*)\}")
_WRAPPED = re.compile(r"\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_FRACTION = re.compile(r"\\frac ?(?:\{(?P<a>[^{}]+)\}|(?P<b>\w)) ?(?:\{(?P<c>[^{}]+)\}|(?P<d>\w))")
_SHORT = re.compile(r"(?:([\^_]) ?(-?\d+|[A-Za-z])|(\\sqrt(?:\[\d\])?|\\overline) ?(\w))(?![A-Za-z\d{])", re.ASCII)
_COLUMN = re.compile(r"\\begin\{([pb]matrix)\}((?:(?!\\begin|\\end)[^&])*\\\\(?:(?!\\begin|\\end)[^&])*)\\end\{\1\}")
"""A matrix of one column: a vector."""
_LABEL = re.compile(
    r"(?:the )?(?:final )?(?:answer|result) ?(?:is\b ?:?|[:=]) ?|\b[a-z] ?\\in ?(?=\\\{)", re.IGNORECASE
)

_THOUSANDS = re.compile(r"([+-]?\d{1,3})((?:,\d{3})+|(?: \d{3})+)(\.\d+)?(?=\D|$)", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d{1,60}\.?\d{0,60}|\.\d{1,60})", re.ASCII)
_RATIO = re.compile(r"([+-]?)(?:(\d{1,30}) ?)?\\frac\{(-?\d{1,30})\}\{(-?0{0,30}[1-9]\d{0,29})\}", re.ASCII)
_REPEATING = re.compile(r"([+-]?)(\d{0,30})\.(\d{0,30})\\overline\{(\d{1,30})\}", re.ASCII)
_POWER = re.compile(r"([+-]?)(?:(\d+(?:\.\d+)?)(?:\\times|\\cdot|\*) ?)?([1-9]\d{0,2})\^\{(-?\d{1,2})\}", re.ASCII)

_SCALES = {
    "dozen": 12, "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_SCALED = re.compile(rf"(.+?) ?({'|'.join(_SCALES)})", re.IGNORECASE)

_UNITS = {
    "millimeter": "mm", "centimeter": "cm", "meter": "m", "kilometer": "km", "inch": "in", "inche": "in", "foot": "ft",
    "feet": "ft", "yard": "yd", "mile": "mi", "gram": "g", "kilogram": "kg", "pound": "lb", "ounce": "oz",
    "second": "s", "sec": "s", "minute": "min", "hour": "h", "hr": "h", "day": "day", "week": "week", "month": "month",
    "year": "yr", "liter": "l", "milliliter": "ml", "degree": "deg", "radian": "rad", "dollar": "dollar",
    "cent": "cent",
    "unit": "", "way": "", "people": "", "time": "", "mph": "mph", "th": "", "st": "", "nd": "", "rd": "",
    "percent": "percent", "sq": "square", "2": "square", "3": "cubic",
}  # fmt: skip
"""Names of units without a plural's `s`, and their short forms; `2` and `3` are powers."""
_COUNTED = re.compile(
    rf"(?P<value>.*[\d)}}](?: (?:{'|'.join(_SCALES)})\b)?|.*\\pi|\d*[a-z](?= )) ?"
    r"(?P<unit>[A-Za-z][A-Za-z ./]+(?:\^\{[23]\})?|(?<=\d )[a-z])"
)
_MARKS = {r"(?:^|(?<=^-))\\\$": "dollar", r"\\?%$": "percent", r"\^(?:\\circ|\{\\circ\})$": "deg"}
"""Units that are signs."""
_NOT_COUNTED = re.compile(
    r"hundred|thousand|\w*illion|dozen|hal(?:f|ves)|third|quarter|point|squared|cubed|or|and|not|[a-z]*th|min?us|plus|less"
)

_OPEN = re.compile(
    r"\\(?:i+nt|oint|sum|prod|lim|[dt]?binom|choose|gcd|lcm|det|max|min|[bp]?mod|lfloor|lceil|partial)(?![A-Za-z])"
    r"|!|'|\\frac\{\\?d|\\end\{\w+\}[)\]]*\^|\\(?:approx\w*|to)(?![A-Za-z])"
    r"|(?P<function>\\(?:sin|cos|tan|cot|sec|csc|log|ln|lg)(?![A-Za-z]))"
)
"""Operations that must not be left to do, unless the right result has them; of functions, any one."""
_OPERATION = re.compile(r"[-+*/^<>]|\\(?:le|ge|frac|sqrt|cdot|times|div|pm)(?![A-Za-z])")
_FUNCTION = re.compile(r"(?<!\\)(?<!\\arc)(?:sin|cos|tan|cot|sec|csc|ln|log|exp)")
"""A function without its backslash: math-verify reads it as a product of letters."""
_VARIABLE = re.compile(
    r"[A-Za-z](?:_\{?\w+\}?|'|\([a-z\d]\))?|\\(?:theta|alpha|beta|lambda|angle [A-Z]+|angle)|[A-Z]{2,3}"
    r"|\([a-z\\]+(?:,[a-z\\]+)+\)"
)
"""What a result may be called in the right answer."""
_NAME = re.compile(
    r"(?:\\(?:angle|overline|vec|theta|alpha|beta|lambda|mu|phi)(?![A-Za-z])|[A-Za-z{}| ]|_(?:\w|\{\w+\})|\^\{-1\}"
    r"|'(?=\()|(?<=[\w}])\+(?=\w)|\((?:\w|[a-z\\]+(?:,[a-z\\]+)+)\))+"
)
"""What an offered result may be called, such as `m+n`, `|S|` or `Area of ABC`."""
_ORDERED = re.compile(r"ordered|coordinates|vector|\([a-z](?:_\{?\d\}?)?(?:, ?[a-z](?:_\{?\d\}?)?)+\)")
"""In a question: it asks for a tuple, and brackets may be missing."""
_REWRITES = re.compile(r"\b(?:factor|expand|simplif)", re.IGNORECASE)
"""In a question: it asks for another form of its own formula, so the form of the result matters."""
_PERCENT = re.compile(r"percent|per cent|%", re.IGNORECASE)
"""In a question: a plain reference may be a percentage."""
_ROUNDED = re.compile(r"(.*?)\\approx ?(-?\d*\.?\d+)( ?[A-Za-z][\w^{} /]*)?", re.ASCII)
_SEPARATOR = re.compile(r"[,;]| (?:and|or) ")


class Result(NamedTuple):
    """One value of an answer."""

    name: str
    value: str
    unit: str


def written(answer: str) -> str:
    """The final result of an answer; of a long text without one, such as a proof, the last line."""
    text = final_result(answer)
    return text if len(text) <= LONGEST else text.rpartition("\n")[2]


def extract(answer: str) -> str:
    """The written result in a plain spelling, without labels and Markdown."""
    text = written(answer)
    return text if len(text) > LONGEST else _LABEL.sub("", _plain(text), count=1).strip("`*. ").removeprefix("=")


def _plain(text: str) -> str:
    """One spelling of signs, spaces, braces, short fractions, thousands and vectors."""
    text = _COLUMN.sub(lambda found: f"({found[2].rstrip()})".replace("\\\\", ",").replace(",)", ")"), text)
    for sign, spelled in _SPELLED.items():
        text = text.replace(sign, spelled)
    text = _WORDS.sub(lambda found: f" {found[1]} " if len(found[1]) > 1 else found[1], _IGNORED.sub("", text))
    text = _SHORT.sub(r"\1\3{\2\4}", _LOOSE_SPACE.sub("", _SPACE.sub(" ", text))).strip()
    text = _FRACTION.sub(r"\\frac{\g<a>\g<b>}{\g<c>\g<d>}", text)
    text = re.sub(r"(?<![\w)}])(\d+)/(\d+)(?![\w(\\])", r"\\frac{\1}{\2}", text)
    while found := _WRAPPED.fullmatch(text):
        text = found[1]
    return text


def literal(text: str) -> Fraction | None:
    r"""The value of a written number: `-5`, `3/4`, `1\frac12`, `0.\overline{3}`, `3\times10^8`, `5 dozen`."""
    text = re.sub(r"^\(?(-?\d+)\)?$", r"\1", text)
    if found := _THOUSANDS.fullmatch(text):
        text = re.sub("[, ]", "", text)
    if _NUMBER.fullmatch(text):
        return Fraction(text)
    if found := _SCALED.fullmatch(text):
        return None if (value := literal(found[1])) is None else value * _SCALES[found[2].lower()]
    if found := _RATIO.fullmatch(text):
        value = int(found[2] or 0) + Fraction(int(found[3]), int(found[4]))
    elif found := _REPEATING.fullmatch(text):
        before, length = Fraction(f"{found[2] or 0}.{found[3] or 0}"), len(found[4])
        value = before + Fraction(int(found[4]), (10**length - 1) * 10 ** len(found[3]))
    elif found := _POWER.fullmatch(text):
        value = Fraction(found[2] or 1) * Fraction(int(found[3])) ** int(found[4])
    else:
        return None
    return -value if found[1] == "-" else value


def results(
    text: str, question: str, names: re.Pattern[str] = _NAME, equal: Callable[[str, str], bool] | None = None
) -> list[Result]:
    """The values of an extracted answer; none if brackets are not paired. `x=1, y=2` is one value, a tuple."""
    if literal((whole := _counted(text, question)).value) is not None:
        return [whole]
    if text.startswith("\\{") and text.endswith("\\}"):
        text = text[2:-2]
    if text.count("\\pm") == 1:
        text = ",".join(re.sub(r"\\pm ?", sign, text) for sign in "+-")
    found = [_result(part, question, names, equal or _equal) for part in _split(text)]
    coordinates = sorted({one.name for one in found} - {""})
    if len(coordinates) == len(found) > 1 and len({name.partition("_")[0] for name in coordinates}) > 1:
        return [_joined(sorted(found))._replace(name=f"({','.join(coordinates)})")]
    return found


def _joined(parts: list[Result]) -> Result:
    """Several parts as one tuple."""
    return Result("", f"({','.join(f'{part.value} {part.unit}'.strip() for part in parts)})", "")


def _split(text: str) -> list[str]:
    """The parts of a text between separators that no bracket encloses; none if brackets are not paired."""
    parts, depth, start = list[str](), 0, 0
    for found in re.finditer(rf"[(\[{{]|[)\]}}]|{_SEPARATOR.pattern}", text):
        depth += (found[0] in "([{") - (found[0] in ")]}")
        if depth < 0:
            return []
        if depth == 0 and _SEPARATOR.fullmatch(found[0]):
            parts.append(text[start : found.start()].strip())
            start = found.end()
    return [*parts, text[start:].strip()] if depth == 0 else []


def _result(text: str, question: str, names: re.Pattern[str], equal: Callable[[str, str], bool]) -> Result:
    """The value of a part. If all sides of `m+n = 110+3 = 113` but the name are equal, the last; else the whole."""
    sides = [side.strip() for side in re.split(r"(?<![<>!:])=(?!=)", text)]
    named = [side for side in sides if names.fullmatch(side) and not _FUNCTION.search(side)] if len(sides) > 1 else []
    values = [_counted(side, question) for side in sides if side not in named]
    used = any(len(side) == 1 and side in one.value for side in named for one in values)
    if used or not values or not all(sides) or not all(equal(one.value, values[-1].value) for one in values[:-1]):
        return Result("", text, "")
    return values[-1]._replace(name=named[0].replace("f(x)", "y") if named else "")


def _counted(text: str, question: str) -> Result:
    r"""Value and unit of `5 cm`, `\$5`, `50\%`, `90^\circ` or `12 apples`, if the question speaks of apples."""
    for sign, unit in _MARKS.items():
        if re.search(sign, text):
            return Result("", re.sub(sign, "", text).strip(), unit)
    if found := _COUNTED.fullmatch(text):
        words = re.findall("[a-z]+|[23]", found["unit"].lower())
        if all(_is_counted(word, question) for word in words):
            short = sorted(_UNITS.get(word.removesuffix("s"), word.removesuffix("s")) for word in words)
            return Result("", found["value"].strip(), " ".join(short).strip())
    return Result("", text, "")


def _is_counted(word: str, question: str) -> bool:
    """Whether a word may follow a number: a unit, a plural, or a word of the question."""
    name = word.removesuffix("s")
    if name in _UNITS or name in _UNITS.values():
        return True
    plural = (len(word) > 3 and word.endswith("s")) or word in ("of", "per")
    return not any(map(_NOT_COUNTED.fullmatch, (word, name))) and (
        plural or (len(word) > 2 and bool(re.search(rf"\b{word}", question, re.IGNORECASE)))
    )


def is_same(right: str, offered: str, question: str = "") -> bool:
    """Whether an offered result is finished and equals the right one. False if that is undecided."""
    right, offered, question = extract(right), extract(offered), question[:_QUESTION]
    if not offered or max(len(right), len(offered)) > LONGEST:
        return False
    if right in (offered, offered := _exact_value(right, offered)):
        return True
    ours = results(right, f"{question} {right}", _VARIABLE)
    theirs = results(offered, f"{question} {right}", _VARIABLE if any("=" in one.value for one in ours) else _NAME)
    if len(ours) != len(theirs) and _ORDERED.search(" ".join([question, *(one.name for one in ours + theirs)])):
        ours, theirs = ([_joined(parts)] if len(parts) > 1 else parts for parts in (ours, theirs))
    if not ours or len(ours) != len(theirs):
        return False
    for one in ours:  # each value as often as it is right
        if (like := next((other for other in theirs if _same(one, other, question)), None)) is None:
            return False
        theirs.remove(like)
    return True


def _exact_value(right: str, offered: str) -> str:
    r"""The exact value of `\frac23\approx0.667`, if that rounds it; but the decimal fraction where this is right."""
    if not (found := _ROUNDED.fullmatch(offered)):
        return offered
    exact, number = found[1].strip(), found[2]
    near = _NAME.fullmatch(f"x{exact}") or math_verifier.is_same(
        exact.rpartition("=")[2], number, 10.0 ** -len(number.partition(".")[2])
    )
    if near and literal(_counted(right, "").value) == literal(number):
        return number + (found[3] or "")
    return exact if near is True else offered


def _tuple(text: str, question: str) -> list[Result]:
    """The parts of a tuple or interval; none of another text."""
    parts = _split(text[1:-1]) if text[:1] in ("(", "[") and text[-1:] in (")", "]") else []
    return [_counted(part, question) for part in parts] if len(parts) > 1 else []


def _same(right: Result, offered: Result, question: str) -> bool:
    """Whether an offered value is finished and equals the right one, in name and unit too if both have them."""
    if right.name and offered.name not in ("", right.name):
        return False
    if right.unit and offered.unit and right.unit != offered.unit:
        return False
    ours, theirs = literal(right.value), literal(offered.value)
    mixed = "percent" in (right.unit, offered.unit) and right.unit != offered.unit
    if mixed and ours is not None and theirs is not None:  # of 50 % equal are 50 and 0.5, of 0.5 only 50 %
        plain, percent = (theirs, ours) if right.unit else (ours, theirs)
        allowed = right.unit == "percent" or (abs(plain) > 1 and _PERCENT.search(question))
        return 100 * plain == percent or bool(plain == percent and allowed)
    if mixed and right.unit != "percent" and not _PERCENT.search(question):
        return False
    inner, other = _tuple(right.value, question), _tuple(offered.value, question)
    if inner and other:
        brackets = {one.value[0] + one.value[-1] for one in (right, offered)}
        pairs = zip(inner, other, strict=False)
        return len(brackets) == 1 and len(inner) == len(other) and all(_same(*pair, question) for pair in pairs)
    if bool(inner) != bool(other) and not re.search(r"[<>]|\\[lg]e|\\in", right.value + offered.value):
        return False
    return _is_finished(right.value, offered.value, question) and _equal(right.value, offered.value)


def _equal(right: str, offered: str) -> bool:
    """Whether two values are equal: numbers exactly, words by their letters, formulas by math-verify."""
    ours, theirs = literal(right), literal(offered)
    if ours is not None and theirs is not None:
        return ours == theirs
    if right == offered or any(re.fullmatch(r"[A-Za-z][A-Za-z' .-]{2,}|no", text) for text in (right, offered)):
        return right.casefold() == offered.casefold()
    if any(
        _FUNCTION.search(re.sub(r"\\[A-Za-z]+", "", text)) or re.search(r":|[\d)]_", text) for text in (right, offered)
    ):
        return False
    if ("=" in right) != ("=" in offered):
        return False
    same = math_verifier.is_same(right, offered)
    return same and not ("=" in right and math_verifier.is_same(right, f"{offered}+1"))  # it says that of any equation


def _is_finished(right: str, offered: str, question: str) -> bool:
    """Whether a value that equals the right one is a result, and not the question again."""
    if literal(right) is not None and literal(offered) is None:
        return False
    left, had = ({found.lastgroup or found[0] for found in _OPEN.finditer(text)} for text in (offered, right))
    operations = len(_OPERATION.findall(offered))
    many = operations > 2 * len(_OPERATION.findall(right)) + 2 or offered.count("\\begin") > right.count("\\begin")
    if left - had or many:
        return False
    if "^" in offered and "^" not in right and "^" in question and literal(offered) and "10^" not in offered:
        return False
    form = _form(offered)
    if _REWRITES.search(question) and literal(right) is None:
        return [sign for sign in form if sign != "-"] == [sign for sign in _form(right) if sign != "-"]
    copied = any(form == _form(_plain(formula)) for formula in re.split(r"\$|[=,?]|\. |\\[()\[\]]", question))
    within = re.search(rf"(?<![\w.]){re.escape(offered)}(?![\w.])", _plain(question))
    return not operations or form == _form(right) or not (copied or within)


def _form(text: str) -> list[str]:
    """The numbers, letters and signs of a formula in no order, without brackets and factors of 1."""
    text = re.sub(r"\\(?:frac|div)|:", "/", re.sub(r"\\(?:cdot|times)", "", re.sub(r"\.0+(?!\d)", "", text)))
    parts = (part.lstrip("0") for part in re.findall(r"\d+|\\[A-Za-z]+|\S", text))
    return sorted(part for part in parts if part and part not in "+*^{}()[]1")


def normal_form(answer: str, question: str = "") -> Hashable:
    """What votes compare of an answer: values without names and units, numbers exactly, in no order."""
    text = extract(answer)
    spoken = _plain(question[:_QUESTION])
    found = results(text, spoken, equal=str.__eq__) if len(text) <= LONGEST else []  # votes never ask math-verify
    values = sorted((_exact(one.value, spoken) for one in found), key=str)
    return tuple(values) if len(values) > 1 else values[0] if values else text


def _exact(value: str, question: str) -> Hashable:
    """A number, the parts of a tuple with its brackets, or the text of a formula."""
    if inner := _tuple(value, question):
        return value[0], *(_exact(one.value, question) for one in inner), value[-1]
    number = literal(value)
    return value if number is None else number
