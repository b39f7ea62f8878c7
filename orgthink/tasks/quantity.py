r"""A number or formula, and what it counts: `5 cm`, `\$5`, `50\%`, `90^\circ`, `101_2`.

math-verify leaves out what stands behind a number, so that 5 cm were 5 m. Here a unit is taken off, and compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNITS = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre", "km": "kilometer kilometre",
    "in": "inch inche", "ft": "foot feet", "yd": "yard", "mi": "mile", "mg": "milligram", "g": "gram",
    "kg": "kilogram", "lb": "pound", "oz": "ounce", "s": "sec second", "min": "minute", "h": "hr hour", "day": "",
    "yr": "year", "l": "liter litre", "ml": "milliliter millilitre", "deg": "degree", "rad": "radian",
    "dollar": "usd buck", "cent": "", "percent": "percentage pct", "mph": "",
}  # fmt: skip
"""Units by their short names, and their other names without a plural's `s`."""
_SHORT = {name: short for short, names in _UNITS.items() for name in (short, *names.split())}
_ATTACHED = {name for name in _SHORT if len(name) > 1}
"""May stand at a number without a space between: `5cm`. Of `5m` nobody knows whether it is five meters or 5·m."""
_LENGTHS = {"mm", "cm", "km", "in", "ft", "yd"}
"""May stand behind π without a mark; of `\\pi mg` nobody knows whether it is a product."""
_SIGNS = {"\\$": "dollar", "€": "euro", "£": "pound sterling", "¥": "yen"}
_POWERS = {"square": "2", "sq": "2", "squared": "2", "cubic": "3", "cu": "3", "cubed": "3"}
_SPEAKS = frozenset(
    ("or", "and", "not", "no", "maybe", "perhaps", "either", "neither", "nor", "if", "but", "about", "roughly", "less",
     "approximately", "more", "than", "except", "unless", "plus", "minus", "times", "over", "wrong", "increase",
     "decrease", "gain", "loss", "profit", "negative", "positive", "point", "below", "above", "to", "mod",
     "modulo", "otherwise", "versus", "vs", "alternatively", "possibly", "probably", "false", "incorrect", "invalid",
     "untrue", "imaginary", "infinite", "undefined", "binary", "octal", "hexadecimal")
)  # fmt: skip
"""Words that say something of the number; with one of them it is no unit."""
_MULTIPLIES = re.compile(
    r"zero|one|(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)t(?:y|ie)|hundred|thousand|[a-z]*illion|lakh|crore|googol(?:plex)?"
    r"|dozen|score|gross|fif|eigh|nin|twelf|thir|third|quarter|halve)(?:s|ths?)?|thirds?|half|twice|thrice|double|triple"
    r"|(?:a(?:rc|r)?)?(?:sin|cos|tan|cot|csc|sec)h?|log|ln|lg|exp|sqrt|root|cbrt|factorial|det|gcd|lcm|max|lim|sup|inf"
    r"|abs|ceil|floor|sum|prod|int|frac|over|cdot|div|pi|tau|phi|theta|alpha|beta|gamma|delta|epsilon|zeta|eta|kappa"
    r"|lambda|mu|nu|xi|rho|sigma|chi|psi|omega|infinity|infty"
    r"|[a-z]*fold|[a-z]*mille|basis|kilo|mega|giga|tera|milli|micro|nano|pico|doubled|halved|tripled|neg(?:ated)?"
)
"""Words that multiply the number, or take it for something else: numerals, functions, constants, prefixes."""
_BRIEF = frozenset(
    ("N", "J", "W", "V", "A", "K", "C", "F", "L", "Hz", "kHz", "Pa", "kPa", "kV", "kW", "MW", "eV", "mA", "kJ", "kN",
     "dB", "GB", "MB", "KB", "kB", "TB", "AM", "PM", "am", "pm", "nm", "dm", "dl", "dL", "mL", "cl", "kl", "ms", "ns",
     "ha", "pt", "qt", "rpm", "bpm", "kph", "kmh", "kWh", "US", "CD", "TV", "amp", "egg", "ant", "ace", "ape", "owl",
     "oil", "art", "ear", "eye", "arm", "age", "ash", "oak", "elk", "inn")
)  # fmt: skip
"""May be counted, though they look like products of letters."""
_LINKS = frozenset(("a", "an", "of", "per", "the", "in", "at", "on", "by", "for", "each", "sq", "cu"))
"""Words within a unit that are none."""
_NOUN = re.compile(r"(?=.*[aeiou])[a-z]{4,}|[b-df-hj-np-tv-z][aeiou][a-z]")
"""May be a noun; other letters are a product."""
_PLURAL = re.compile(
    r".*[a-z]{2}(?<!s)s|.*ices|.*people|.*(?:wo)?men|.*children|feet|teeth|geese|mice|fish|sheep|dice|data|radii"
)
"""May be what several are called. An unknown word in another form is a unit only of what the question speaks of."""
_COUNTABLE = re.compile(r"\d|\\(?!text|math|mbox|operatorname)[A-Za-z]|(?<![A-Za-z])[a-z](?![A-Za-z])")
"""Stands in a number or formula, and not in a word, of which nothing can be counted."""

_PERCENT = re.compile(r"\s*(?:\\?%|\\text\s*\{\s*\\?%\s*\})$")
_DEGREES = re.compile(r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|\\degree|°)$")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th|\^\{?(?:\\text\{)?th\}{0,2})$")
_BASE = re.compile(
    r"(?P<value>\(?\d[0-9A-Z]*\)?)(?:_\s*\{?(?:\\text\s*\{)?\(?|\s*[,(]?\s*(?:\\text\s*\{)?\s*\(?(?:in )?base[\s-]*)"
    r"(?P<base>\d{1,2}|[a-z]+)\s*\)?\}*\)?"
)
_NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"]
_NUMBERS += ["fourteen", "fifteen", "sixteen"]
_TAIL = re.compile(
    r"(?P<value>.*(?:[\d})\].π]|\\pi|[A-Za-z](?=(?:\s|~|\\[ ,;:])*\\[a-z]+\s*\{)))(?P<space>(?:\s|~|\\[ ,;:])*)"
    r"(?:\\(?:text|textrm|textbf|textit|mathrm|mathbf|mbox|operatorname)\s*\{(?P<marked>(?:[^{}]|\{[23]\})*)\}"
    r"|(?P<bare>[A-Za-z][A-Za-z ./]*?))"
    r"(?P<power>\^\s*\{?\s*[23]\s*\}?)?",
    re.DOTALL,
)
"""A letter before a unit may be a variable where the unit is marked as text."""
_COMMAND = re.compile(r"\\(?!pi$)[A-Za-z]+$")
_LETTER = re.compile(r"(?:π|\\pi|(?P<variable>[A-Za-z]))$")
_WORDS = re.compile(r"[A-Za-z .,/°-]*(?:\^\{?[23]\}?)?")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A result in two parts."""

    value: str
    """The text without its unit."""
    unit: str = ""
    """In one of its spellings; empty without one."""
    base: str = ""
    """Of its digits, where it is said; empty otherwise."""
    factor: str = ""
    """Words that multiply it, in lower case, such as `dozen`; empty without them."""


def quantity(text: str, spoken: str = "") -> Quantity:
    """The parts of a result. What is no unit stays in the value. `spoken` is what the question speaks of."""
    text = text.strip()
    if found := _BASE.fullmatch(text):
        base = found["base"]
        if base.isdigit() or base in _NUMBERS:
            return Quantity(found["value"].strip("()"), base=base if base.isdigit() else str(_NUMBERS.index(base) + 2))
    for sign, unit in _SIGNS.items():
        if text.lstrip("-+").startswith(sign):
            return Quantity(text.replace(sign, "", 1).strip(), unit)
    for mark, unit in ((_PERCENT, "percent"), (_DEGREES, "deg")):
        if found := mark.search(text):
            return Quantity(text[: found.start()], unit)
    if found := _ORDINAL.search(text):
        return Quantity(text[: found.start()])
    return _with_words(text, spoken)


def _with_words(text: str, spoken: str) -> Quantity:
    """The parts of a result whose unit is a word."""
    found = _TAIL.fullmatch(text)
    if found is None or not _COUNTABLE.search(found["value"]) or _COMMAND.search(found["value"]):
        return Quantity(text)
    marked = found["marked"] is not None
    suffix = found["marked"] if marked else found["bare"]
    words = re.findall("[A-Za-z]+", suffix.replace(".", ""))
    if any(_MULTIPLIES.fullmatch(word.lower()) and word.lower() not in _SHORT for word in words):
        return Quantity(found["value"].strip(), factor=" ".join(words).lower())
    if _is_unit(found, words) and (found["value"].strip() == "1" or any(_is_spoken(word, spoken) for word in words)):
        return Quantity(found["value"].strip(), _spelled(suffix, found["power"] or ""))
    product = _LETTER.search(found["value"]) is None
    if (
        marked and product and len(suffix.strip()) < 3 and suffix.strip().isalpha()
    ):  # letters, of which their font says nothing
        return Quantity(f"{found['value']}{suffix.strip()}{found['power'] or ''}")
    return Quantity(text)


def _is_unit(found: re.Match[str], words: list[str]) -> bool:
    if _SPEAKS & {word.lower() for word in words} or words in (["squared"], ["cubed"]):  # said of the number
        return False
    letter = _LETTER.search(found["value"])
    if letter and letter["variable"] and not any(map(_is_counted, words)):
        return False
    if found["marked"] is not None:
        return _WORDS.fullmatch(found["marked"]) is not None and _are_unit(words)
    if letter:  # of `2\\pi h` nobody knows whether it is hours or a height
        return found["space"] != "" and (len(words[0]) > 2 or words[0] in _LENGTHS) and _are_unit(words)
    if not found["space"]:
        return len(words) == 1 and words[0].lower().removesuffix("s") in _ATTACHED
    return (words[0].lower() in _SHORT or len(words[0]) > 1) and _are_unit(words)


def _is_spoken(word: str, spoken: str) -> bool:
    """Whether a word that counts is known as a unit, a plural, or a word of the question."""
    return _is_counted(word) or word.lower() in spoken


def _is_counted(word: str) -> bool:
    """Whether a word is known as a unit or a plural. Other words may say what a variable is, as in `n even`."""
    return _is_known(word) or _PLURAL.fullmatch(word.lower()) is not None


def _are_unit(words: list[str]) -> bool:
    """Whether all words may be what a number counts, or stand within it."""
    return all(_counts(word) or (place > 0 and word.lower() in _LINKS) for place, word in enumerate(words))


def _counts(word: str) -> bool:
    """Whether a word may be what a number counts."""
    return _is_known(word) or _NOUN.fullmatch(word.lower()) is not None


def _is_known(word: str) -> bool:
    """Whether a word is one of the units here, in one or several."""
    name = word.lower()
    spellings = {word, word.removesuffix("s"), name, name.removesuffix("s")}
    return any(one in _SHORT or one in _POWERS or one in _BRIEF for one in spellings)


def _spelled(words: str, power: str) -> str:
    """A unit in one of its spellings: `square centimeters` and `cm^2` are `cm2`."""
    raised = "".join(re.findall("[23]", power + words))[:1]
    tokens: list[str] = []
    for word in re.findall(r"[A-Za-z°]+|/", words.replace(" per ", " / ").replace("°", "deg ")):
        name = word.lower()
        if name in _POWERS:
            raised = _POWERS[name]
        elif (singular := _SHORT.get(name) or _SHORT.get(name.removesuffix("s")) or name.removesuffix("s")) != "unit":
            tokens.append(singular)
    return " ".join(tokens).replace("mi / h", "mph") + raised if tokens else ""
