"""What a text quotes, and what it says itself.

Two rules, so that neither has to know every form. A mask hides what is plainly quoted: a code fence as CommonMark opens
and closes it, an element such as `<pre>`, `<!--` or `\\begin{quote}`, which reach to the end if they are never closed,
lines behind `>` or four blanks, and curly quotation marks on several lines. And whatever stands between a mark that
may begin a quotation and one that may end it is in doubt, however the marks between them are read: whoever quotes a
text ends the quotation behind it, and the text cannot undo that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

_MARKS = r"(?:(?:[*+•-]|[0-9]{1,3}[.)])\s+)*"
"""Marks of lists."""
_FENCE = re.compile(rf"(?P<before>[\s>]*{_MARKS})(?P<mark>`{{3,}}|~{{3,}})")
"""Begins or ends a code fence, in a list or a quote as well."""
_QUOTED = re.compile(rf"\s*{_MARKS}>")
"""Begins a line of a quote."""
_INDENTED = re.compile(r" {4}| {0,3}\t")
"""Begins a line of code."""
_ENDS_PARAGRAPH = re.compile(r"\s*(?:$|#{1,6}\s|\0|([-*_])(?:\s*\1){2,}\s*$)")
"""Begins a line that is no text of a paragraph."""
_ITEM = re.compile(r"\s*(?:[*+-]|[0-9]{1,3}[.)])\s")
_ELEMENT = re.compile(
    r"<(?P<ends>/?)(?:(?P<name>pre|code|samp|kbd|tt|blockquote|cite|textarea)(?:\s[^<>]*)?"
    r"|(?P<q>q)\s*(?:\s[a-z-]+=[^<>]*)?)>|<!--|(?P<over>-->)"
    r"|\\(?:begin|(?P<end>end))\{(?P<environment>(?:quote|quotation|displayquote|verbatim|lstlisting)\*?)\}",
    re.IGNORECASE,
)
"""Begins or ends an element of HTML or LaTeX that quotes, or a comment. No attribute is searched for past the next
`<`, so that a text of many beginnings takes linear time."""
_ANY_ELEMENT = re.compile(
    r"<(?P<ends>/?)(?P<name>[a-z][a-z0-9-]*)|<!(?:--|\[CDATA\[)|(?P<over>--|\]\])>"
    r"|\\(?:begin|(?P<end>end))\{(?P<environment>[a-z]{1,40}\*?)\}",
    re.IGNORECASE,
)
"""Begins or ends any element, comment or environment, and may so begin or end a quotation."""
_COMMENT = ""
"""The name of comments, which have none and do not nest."""
_QUOTATION = re.compile(r"“[^“”]*”|«[^«»]*»|「[^「」]*」|『[^『』]*』")
"""A quotation whose marks tell where it begins and ends."""
_ON_A_LINE = re.compile(rf"{_QUOTATION.pattern}|„[^„“”]*[“”]|‹[^‹›]*›|\"[^\"]*\"|~~.*?~~")
"""A quotation, or what is crossed out, that ends on its line."""
_LEFT = {mark: family for family in ("“”„", "«»", "‹›", "「」", "『』", '"', "~") for mark in family}
"""The marks that may begin or end a quotation of several lines, by what may belong together."""
_MASK = "\0"
"""Stands for every character that is quoted: neither blank nor mark nor word."""


def without_quotes(text: str) -> str:
    """The text with a mask, as long as they are, in place of lines that are quoted. What is left is the text's own."""
    lines = _QUOTATION.sub(_masked_lines, text).splitlines(keepends=True)
    for quoted in (_fenced, _in_elements, _behind_marks):
        lines = [_masked(line) if hidden else line for line, hidden in zip(lines, quoted(lines), strict=True)]
    return "".join(lines)


def in_doubt(before: str, after: str) -> bool:
    """Whether what stands between two texts may be quoted: a quotation may begin in the first and end in the second."""
    begun = {mark for line in before.splitlines() for mark in _marks(line)[0]}
    return any(not begun.isdisjoint(_marks(line)[1]) for line in after.splitlines())


def begins_within(text: str) -> bool:
    """Whether a text may begin within a quotation: an element ends that never began, or as many fences as there are do
    not close one another. So it is where `</think>` was quoted, and what it seemed to end was left out."""
    lines = text.splitlines(keepends=True)
    *fenced, still = _fenced([*lines, "end"])
    depth = Counter[str]()
    for line in (line for line, hidden in zip(lines, fenced, strict=True) if not hidden):
        for element in _ANY_ELEMENT.finditer(_without_code(line)):
            depth[_name(element)] += -1 if _ends(element) else 1
            if depth[_name(element)] < 0:
                return True
    return still


def _marks(line: str) -> tuple[set[str], set[str]]:
    """What a line may begin, and what it may end."""
    fence = _FENCE.match(line)
    if fence is not None and _opens(fence):
        kind = {fence["mark"][:3]}
        return kind, set() if _rest(fence) else kind
    bare = _without_code(line)
    begun, ended = set[str](), set[str]()
    for element in _ANY_ELEMENT.finditer(bare):
        (ended if _ends(element) else begun).add(f"<{_name(element)}>")
    plain = _ON_A_LINE.sub("", bare)
    left = {_LEFT[mark] for mark in plain if mark in _LEFT and (mark != "~" or "~~" in plain)}
    left |= {"`"} & set(plain)
    return begun | left, ended | left


def _masked_lines(quotation: re.Match[str]) -> str:
    """A quotation of several lines with a mask in place of them; one on a line may be a value, as in “Correct”."""
    lines = quotation[0].splitlines(keepends=True)
    return quotation[0] if len(lines) == 1 else "".join(map(_masked, lines))


def _masked(line: str) -> str:
    end = len(line.rstrip())
    return _MASK * end + line[end:]


def _fenced(lines: Iterable[str]) -> Iterator[bool]:
    """Which lines belong to code fences."""
    opened: re.Match[str] | None = None
    listed = False
    for line in lines:
        if opened is not None and ">" in opened["before"] and not _QUOTED.match(line):
            opened = None  # its quote is over
        mark = _FENCE.match(line)
        if opened is None:
            listed = bool(_ITEM.match(line)) or (listed and (not line.strip() or line[0].isspace()))
            if mark and _opens(mark) and (listed or not _INDENTED.match(line)):
                opened = mark
            yield opened is not None
            continue
        yield True
        if mark and _closes(opened, mark):
            opened = None


def _opens(mark: re.Match[str]) -> bool:
    """Whether it may open a fence, and is no code span on its line."""
    return mark["mark"][0] == "~" or "`" not in _rest(mark)


def _rest(mark: re.Match[str]) -> str:
    return mark.string[mark.end() :].strip()


def _closes(opened: re.Match[str], mark: re.Match[str]) -> bool:
    """Whether a fence closes another one: with the same marks, as many at least and nothing after them, behind no mark
    of a list, behind no `>` that the other one lacks, and by no more than three blanks further right."""
    before = mark["before"].expandtabs(4)
    return (
        mark["mark"].startswith(opened["mark"])
        and not _rest(mark)
        and not before.replace(">", "").strip()
        and before.count(">") <= opened["before"].count(">")
        and len(before) <= len(opened["before"].expandtabs(4)) + 3
    )


def _in_elements(lines: Iterable[str]) -> Iterator[bool]:
    """Which lines belong to elements that quote. Within one only its own name counts: the rest is quoted."""
    inside, depth = "", 0
    for line in lines:
        hidden = depth > 0
        for element in _ELEMENT.finditer(_without_code(line)):
            name, ends = _name(element), _ends(element)
            if not depth and not ends:
                inside, depth, hidden = name, 1, True
            elif depth and name == inside and (ends or name != _COMMENT):
                depth += -1 if ends else 1
        yield hidden


def _name(element: re.Match[str]) -> str:
    found = element.groupdict()
    return (found["name"] or found.get("q") or found["environment"] or _COMMENT).lower()


def _ends(element: re.Match[str]) -> bool:
    return bool(element["ends"] or element["over"] or element["end"])


def _without_code(line: str) -> str:
    """A line without its code spans, each between two runs of as many backticks. Other backticks stay."""
    parts = re.split("(`+)", line)
    runs = range(1, len(parts), 2)
    following: dict[str, int] = {}
    closing: dict[int, int] = {}
    for run in reversed(runs):
        if parts[run] in following:
            closing[run] = following[parts[run]]
        following[parts[run]] = run
    left, at = [parts[0]], 1
    while at < len(parts):
        end = closing.get(at)
        left += [parts[at], parts[at + 1]] if end is None else [parts[end + 1]]
        at = (at if end is None else end) + 2
    return "".join(left)


def _behind_marks(lines: Iterable[str]) -> Iterator[bool]:
    """Which lines stand behind `>` or four blanks, or go on with a paragraph behind `>`."""
    quoted = False
    for line in lines:
        mark = _QUOTED.match(line)
        quoted = bool(mark) or (quoted and not _ITEM.match(line))
        quoted = quoted and not _ENDS_PARAGRAPH.match(line, mark.end() if mark else 0)
        yield bool(mark) or quoted or bool(_INDENTED.match(line))
