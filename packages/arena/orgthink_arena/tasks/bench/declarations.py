r"""Places in an answer to a multiple-choice question where a letter is said to be the answer.

The answer is (B).     Answer: B     Option B is correct.     Hence, (B) is the correct answer.

"Suppose the answer is A" says nothing. "If it is hot, the answer is A" counts only where no sentence says more, and
"(B) is the correct answer", which may be what others think, only where nothing else gives a letter.
"""

from __future__ import annotations

import re

_IS = r"(?:\s+(?:is|must\s+be|should\s+be)\b\s*:?|\s*[:=])\s*"
_ANSWER = r"\b(?:answer|(?:correct|right|best)\s+(?:option|choice|letter))"
_DECLARED = re.compile(rf"{_ANSWER}{_IS}", re.IGNORECASE)
"""Before a letter that is the answer."""
_CONFIRMED = re.compile(
    r"\b(?:option|choice|answer)\s+(?=\(?[A-J]\)?\s+is\s+(?:the\s+)?(?:correct|right|best)\b"
    r"(?!\s+(?!(?:answer|option|choice|letter|one|because|since|as|and|given|due)\b)[A-Za-z]))",
    re.IGNORECASE,
)
"""The same, of `Option B is correct`, and not of `Option B is correct only if` or `Option B is the best guess`."""
_LETTER_IS = re.compile(
    r"(?=(?:\([A-J]\)|(?<![\w'’)-])(?P<bare>[A-J]))\s+is\s+the\s+(?:only\s+)?(?:correct|right|best)\s+"
    r"(?:answer|option|choice|letter|one)\b(?!\s*\?)"
    r"(?!\s+(?!(?:because|since|as|and|given|due|here|to\s+th(?:e|is)\s+(?:question|problem))\b)[A-Za-z]))"
)
"""Before the B of `(B) is the correct answer`, without a noun before it."""
_IMAGINED = re.compile(rf"{_ANSWER}\s+would\s+be\b\s*:?\s*", re.IGNORECASE)
"""Before a letter that is the answer, or would be that of another question."""

_BEFORE, _SENTENCE = 40, 300
"""Characters before a declaration in which its words, and the beginning of its sentence, are looked for."""
_OF_OTHERS = re.compile(
    r"\b(?:wrong|incorrect|false|mistaken|other|another|alternative|common|frequent|popular|typical|usual|naive|tempting"
    r"|plausible|first|initial|previous|not\s+(?:the|an?))(?:\s+(?:correct|right|best))?\s+$",
    re.IGNORECASE,
)
"""Before an answer that is none: `a common wrong answer is A`."""
_IF = r"(?:if|suppose|supposing|assume|assuming|unless|whether)\b"
_SUPPOSED = re.compile(
    rf"\b{_IF}\s+(?:that\s+)?(?:(?:the|its|my|our|your|this)\s+)?(?:(?:final|only|true|correct|right|best)\s+)*$",
    re.IGNORECASE,
)
"""Before an answer that is only supposed: `if the answer is A`."""
_ENDED = re.compile(r"[.!?][\"'’)\]]*\s|;\s|[^,\s][^\S\n]*\n|\n[^\S\n]*\n")
"""The end of a sentence; a line that ends in a comma goes on."""
_CONDITION = re.compile(
    r"\W*(?:(?:so|but|and|now|then|however|also|even|only|note|let\s+us|let's|we|[A-Za-z]{1,20}:)[\s,]+){0,3}"
    rf"(?:{_IF}|had\b|were\b)(?!\s+(?:we|I)\b)",
    re.IGNORECASE,
)
"""The beginning of a sentence that holds only under a condition; with "if we take …" models compute, and conclude."""
_CONCLUDED = re.compile(
    r"\b(?:so|thus|hence|therefore)[\s,:]+(?:(?:the|my|correct|right|best|final)\s+)*$", re.IGNORECASE
)
"""Before an answer that a sentence concludes, whatever it begins with."""

_NOUN = re.compile(r"\b(?:option|choice|answer|letter)\s+$", re.IGNORECASE)
_CLAUSE = re.compile(
    r"(?:^|[.,:;!?\n(]|\b(?:so|thus|hence|therefore|then|and|but|that|because|clearly|indeed))\s*$", re.IGNORECASE
)
"""Before a letter that begins a clause: the B of `vitamin B` does not."""
_BESIDE = re.compile(r"\b[A-J]\)?[\s,]*(?:[,/&]|\b(?:and|or|nor)\b)\s*$")
"""Before the second one of two letters."""
_DOUBTED = re.compile(
    r"(?:\b(?:not|never|cannot|neither|nor|doubt|unlikely|wrong|incorrect)\b|n['’]t\b)"
    r"(?:(?!\b(?:so|thus|hence|therefore|then|but|because)\b)[^,;:])*$",
    re.IGNORECASE,
)
"""Earlier in the clause of a letter: `I do not think that (B) is the correct answer`."""


def declared_at(text: str) -> list[int]:
    """Where letters begin that are said to be the answer, in order."""
    return [place for start, place in _places(text) if not _is_conditional(text, start)]


def imagined_at(text: str) -> list[int]:
    """The same of letters that would be the answer, or are under a condition."""
    imagined = [found.end() for found in _IMAGINED.finditer(text) if not _is_supposed(text, found.start())]
    return sorted([*imagined, *(place for start, place in _places(text) if _is_conditional(text, start))])


def confirmed_at(text: str) -> list[int]:
    """The same of letters that are said to be correct, without a noun before them: the weakest word for an answer."""
    places = [found.start() for found in _LETTER_IS.finditer(text) if _is_meant(text, found)]
    return [place for place in places if not (_is_supposed(text, place) or _is_conditional(text, place))]


def _places(text: str) -> list[tuple[int, int]]:
    """Where each declaration begins, and its letter."""
    found = [
        (match.start(), match.end())
        for pattern in (_DECLARED, _CONFIRMED)
        for match in pattern.finditer(text)
        if not _OF_OTHERS.search(text[max(0, match.start() - _BEFORE) : match.start()])
    ]
    return sorted((place for place in found if not _is_supposed(text, place[0])), key=lambda place: place[1])


def _is_meant(text: str, found: re.Match[str]) -> bool:
    """Whether a letter without a noun is meant alone, and as an option."""
    sentence = _begun(text, found.start())
    before = sentence[-_BEFORE:]
    begins = not found["bare"] or _CLAUSE.search(before)
    return bool(begins) and not any(one.search(before) for one in (_NOUN, _BESIDE)) and not _DOUBTED.search(sentence)


def _is_supposed(text: str, start: int) -> bool:
    return _SUPPOSED.search(_begun(text, start)[-_BEFORE:]) is not None


def _is_conditional(text: str, start: int) -> bool:
    begun = _begun(text, start)
    return _CONDITION.match(begun) is not None and not _CONCLUDED.search(begun[-_BEFORE:])


def _begun(text: str, start: int) -> str:
    """The sentence up to here. Of a longer one its beginning is not looked for, but some words."""
    before = text[max(0, start - _SENTENCE) : start]
    ends = [found.end() for found in _ENDED.finditer(before)]
    if ends:
        return before[ends[-1] :]
    return before if start <= _SENTENCE else f"… {before}"
