"""Programs in fenced blocks: what stands between a line of at least three backticks and the next one of as many."""

from __future__ import annotations

import re

_OPENS = re.compile(r"[ \t]*(`{3,})[^`]*")
_LINE_ENDS = re.compile(r"\r\n?|\n")
"""Those of Python's source. Form feeds and the like belong to a program."""
_CLOSES = re.compile(r"[ \t]*(`{3,})[ \t]*")


def last_block(text: str) -> str | None:
    """The content of the last fenced block; `None` without one, and if the last one never ends: it was cut off."""
    fence, lines, found = "", list[str](), None
    for line in _LINE_ENDS.split(text):
        if not fence:
            if opens := _OPENS.fullmatch(line):
                fence, lines, found = opens[1], [], None
        elif (closes := _CLOSES.fullmatch(line)) and len(closes[1]) >= len(fence):
            fence, found = "", "\n".join(lines)
        else:
            lines.append(line)
    return found
