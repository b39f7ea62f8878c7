"""Texts with parallel paths: how other groups' models fork and join within one text, and the episode of such a text.

    … <Parallel> <Path> … </Path> <Path> … </Path> </Parallel> <Summary> … </Summary> …

Paths that follow each other are a block. Each was decoded from the text before the block, without the other paths; then
the model reads all of them and goes on. The tags are data: another format is another `PathDialect`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from orgthink.grammar.solution import boxed
from orgthink.record.episode import (
    Edge,
    EdgeKind,
    Episode,
    FormatError,
    FormatFault,
    Origin,
    Problem,
    Span,
    Status,
    StopReason,
    Trace,
    episode_id,
    likely_tokens,
)

MOST_LEVELS = 5
"""Most levels of paths within paths. A deeper path is text."""
MOST_PATHS = 256
"""Most paths of a text. A later one is text."""
_NUMBER = r"[0-9.]{1,20}"

Count = Callable[[str], int]
"""Counts the tokens of a text."""


@dataclass(slots=True)
class Path:
    """A path, or the whole text of a model."""

    opening: str
    """What the runtime wrote before it."""
    parts: list[str | Path] = field(default_factory=list)
    """The model's own text, its closing tag included, and the paths within. Neighbours are a block."""
    closed: bool = False
    """Whether it has its closing tag; otherwise it was cut off."""

    @property
    def text(self) -> str:
        return self.opening + "".join(part if isinstance(part, str) else part.text for part in self.parts)


@dataclass(frozen=True)
class PathDialect:
    """The tags of a format. In them `{}` stands for the number of a path. A reader does not need `{}:`."""

    path: tuple[str, str]
    """What the runtime writes before a path, and the tag with which the model ends it."""
    before: str = ""
    """Tag with which the model begins a block. Empty: the block follows the prompt, and paths hold no blocks."""
    after: str = ""
    """What the runtime writes after a block."""
    plan: str = ""
    """Tag of each path's plan before a block; empty: the runtime decides how many paths a block has."""

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Regular expressions of the two tags of a path, and of what follows a block."""
        opening, closing, after = map(_pattern, (*self.path, self.after))
        return re.compile(f"(?P<opening>{opening})|{closing}"), re.compile(rf"\s*{after}\s*")

    def read(self, text: str) -> Path:
        """The whole text with its paths; its `text` is the text again."""
        opened, end, paths = [Path("", closed=True)], 0, 0
        for tag in self.patterns[0].finditer(text):
            before = text[end : tag.start()]
            in_block = not before.strip() and isinstance((opened[-1].parts or [""])[-1], Path)
            within = len(opened) == 1 or in_block or (self.before != "" and self.before in before)
            deep = paths == MOST_PATHS or (within and len(opened) > MOST_LEVELS)
            if deep if tag["opening"] else len(opened) == 1:
                continue  # it is text
            own = before.rstrip() if tag["opening"] else before + tag[0]
            opened[-1].parts += [own] if own else []
            if not within or not tag["opening"]:
                opened.pop().closed = not tag["opening"]  # otherwise the next path cut it off
            if tag["opening"]:
                path = Path(before[len(own) :] + tag[0])
                opened[-1].parts.append(path)
                opened.append(path)
                paths += 1
            end = tag.end()
        opened[-1].parts += [text[end:]] if text[end:] else []
        return opened[0]

    def episode(self, text: str, problem: Problem, name: str, sample: int = 0, count: Count = likely_tokens) -> Episode:
        """The episode of a text, under the name of an organization. The answer is what the model boxed last outside of
        paths. Times are unknown."""
        traces = self._traces(self.read(text), name, count, problem.statement)
        own = "".join(span.text for span in traces[0].spans if span.origin is Origin.SAMPLED)
        cut = [trace for trace in traces if trace.status is not Status.OK]
        blocks = Counter((trace.agent, fork.at) for trace in traces for fork in trace.forks)
        return Episode(
            id=episode_id(problem, name, sample),
            problem=problem,
            organization=name,
            capacity=1 + max(blocks.values(), default=0),
            traces=tuple(traces),
            sample=sample,
            answer=next(reversed(boxed(own)), None),
            format_faults=tuple(FormatFault(FormatError.MALFORMED_TAG, trace.agent, trace.steps) for trace in cut),
        )

    def _traces(
        self, path: Path, model: str, count: Count, seen: str, agent: str = "thinker", parent: str | None = None
    ) -> list[Trace]:
        """The trace of a path, then those of the paths within. `seen` is what its model read before it."""
        spans = [_span(Origin.PROMPT, seen + path.opening, count)]
        edges, below, block, names = list[Edge](), list[Trace](), dict[str, Path](), Counter[str]()
        for part in [*path.parts, ""]:
            at = sum(span.tokens for span in spans if span.origin is Origin.SAMPLED)
            if isinstance(part, Path):
                key = str(len(block) + 1)
                names[key] += 1
                name = f"{agent}/{key}" if names[key] == 1 else f"{agent}/{key}#{names[key]}"
                edges.append(Edge(EdgeKind.FORK, key, name, at))
                block[name] = part
                below += self._traces(part, model, count, "".join(span.text for span in spans), name, agent)
                continue
            edges += [Edge(EdgeKind.JOIN, str(key), name, at) for key, name in enumerate(block, 1)]
            spans += [_span(Origin.INJECTED, child.text, count, name) for name, child in block.items()]
            written = self.patterns[1].match(part) if block else None
            end = written.end() if written else 0
            own = (_span(Origin.INJECTED, part[:end], count), _span(Origin.SAMPLED, part[end:], count))
            spans += [span for span in own if span.text]
            block = {}
        ends = (StopReason.DONE, Status.OK) if path.closed else (StopReason.LENGTH, Status.TRUNCATED)
        role, turns = "path" if parent else "thinker", sum(span.origin is Origin.SAMPLED for span in spans)
        returned = path.text if parent else None
        trace = Trace(agent, role, parent, tuple(spans), tuple(edges), *ends, returned, model=model, turns=turns)
        return [trace, *below]


def _span(origin: Origin, text: str, count: Count, source: str | None = None) -> Span:
    return Span(origin, text, count(text), source=source)


def _pattern(text: str) -> str:
    """A regular expression of a text of a dialect, with any white space for its own."""
    words = (re.escape(word).replace(r"\{\}:", f"(?:{_NUMBER}:)?") for word in text.split())
    return r"\s*".join(words).replace(r"\{\}", _NUMBER)
