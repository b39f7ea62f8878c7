"""AsyncThink's protocol (section 2 of the paper): tags in a text stream ↔ actions, and its format errors.

    … <FORK-1> sub-query </FORK-1> … <JOIN-1> returned text </JOIN-1> … <ANSWER> answer </ANSWER>
    … <RETURN> takeaways </RETURN>

Where there is a pool, a Fork may name a member of it: `<FORK-1 model=small>`.

The organizer samples everything but ` returned text </JOIN-1>`, which is injected and never parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from orgthink.grammar.actions import (
    THINK,
    THOUGHT,
    Action,
    Answer,
    Cancel,
    Command,
    Deliver,
    Event,
    Fork,
    Join,
    Malformed,
    Poll,
    Return,
    Scanner,
    Tell,
    Think,
)
from orgthink.record.episode import FormatError
from orgthink.util.errors import UserError

ENGINE_KEYS = range(1, 17)
"""Keys whose Join tags are stop texts of the engine, and whose Forks it hands over at once. The runtime itself reads
every other key."""

_DIGITS = 9
"""Most digits of a key."""
_PLAIN = re.compile(r"<[^<>{}]+>")
_KEYED = re.compile(r"<[^<>{}]*\{\}[^<>{}]*>")
_NUMBER = re.compile(r"(-*([0-9]|\{\}))+")
_MODEL = r"(?:\s{1,2}model\s?=\s?[\"']?(?P<model>[^<>\"'\s][^<>\"']{0,63}?)[\"']?\s?)?>"
_MODEL_LENGTH = 77
"""Most characters of the name of a model in a tag, and of what stands around it."""


@dataclass(frozen=True)
class Dialect:
    """The tags: `<…>`, with `{}` for the key in the tags of Fork, Tell and Join. The scanner also accepts a keyed tag
    without its hyphen. Two tags of one role may not differ only in numbers."""

    fork: tuple[str, str] = ("<FORK-{}>", "</FORK-{}>")
    join: str = "<JOIN-{}>"
    joined: tuple[str, str] = ("", "</JOIN-{}>")
    """Text before (it may be empty) and after the text that a Join injects."""
    answer: tuple[str, str] = ("<ANSWER>", "</ANSWER>")
    returns: tuple[str, str] = ("<RETURN>", "</RETURN>")
    tell: tuple[str, str] = ("<TELL-{}>", "</TELL-{}>")
    """Read only where workers are persistent."""
    status: tuple[str, str] = ("<STATUS>", "</STATUS>")
    """Before and after the text that is injected at the first one. Read only where the budget is told in this way."""

    def __post_init__(self) -> None:
        keyed = (*self.fork, *self.tell, self.join, *filter(None, self.joined[:1]), self.joined[1])
        plain = (*self.answer, *self.returns, *self.status)
        for tags, form, written in ((keyed, _KEYED, "<NAME-{}>"), (plain, _PLAIN, "<NAME>")):
            for tag in tags:
                if not form.fullmatch(tag):
                    raise UserError(f"{tag!r} is not a valid tag: write it as {written}")
        for tags in ((*keyed, *self.status, *self.answer), (*keyed, *self.status, *self.returns)):
            if len({_NUMBER.sub("{}", tag) for tag in tags}) < len(tags):
                raise UserError(f"two of the tags are equal, or differ only in numbers: {' '.join(tags)}")

    @cached_property
    def patterns(self) -> dict[str, str]:
        """Regular expression of each tag, by the name of its role; keyed ones capture the key."""
        tags = {
            "fork": self.fork[0],
            "fork_end": self.fork[1],
            "tell": self.tell[0],
            "tell_end": self.tell[1],
            "join": self.join,
            **({"joined": self.joined[0]} if self.joined[0] else {}),
            "join_end": self.joined[1],
            "status": self.status[0],
            "status_end": self.status[1],
            "answer": self.answer[0],
            "answer_end": self.answer[1],
            "return": self.returns[0],
            "return_end": self.returns[1],
        }
        spelled = {name: re.escape(tag).replace(r"\-\{\}", r"-?\{\}") for name, tag in tags.items()}
        key = f"[0-9]{{1,{_DIGITS}}}"
        return {name: tag.replace(r"\{\}", f"(?P<{name}_key>{key})") for name, tag in spelled.items()}

    @cached_property
    def longest(self) -> int:
        """Characters of the longest tag. A `<` without `>` in so many characters does not begin a tag."""
        tags = (*self.fork, *self.tell, self.join, *self.joined, *self.status, *self.answer, *self.returns)
        return max(len(tag.replace("{}", "9" * _DIGITS)) for tag in tags)

    def compile(self, names: Iterable[str], *, models: bool = False) -> re.Pattern[str]:
        """One pattern for the named tags; `lastgroup` tells which matched. With `models` a Fork may name one."""
        patterns = self.patterns | ({"fork": self.patterns["fork"][:-1] + _MODEL} if models else {})
        return re.compile("|".join(f"(?P<{name}>{patterns[name]})" for name in names))

    def key(self, tag: re.Match[str]) -> str:
        """The key of a tag that was found: digits without leading zeros; empty for a tag without a key."""
        digits = tag.groupdict().get(f"{tag.lastgroup}_key")
        return str(int(digits)) if digits else ""

    def render(self, action: Action) -> str:
        """The canonical text of an action."""
        match action:
            case Think(text) | Malformed(text):
                return text
            case Fork(key, query, model):
                named = f" model={model}>" if model else ">"
                return f"{self.fork[0].format(key)[:-1]}{named}{query}{self.fork[1].format(key)}"
            case Tell(key, query):
                return f"{self.tell[0].format(key)}{query}{self.tell[1].format(key)}"
            case Join(key):
                return self.join.format(key)
            case Poll():
                return self.status[0]
            case Answer(text):
                return f"{self.answer[0]}{text}{self.answer[1]}"
            case Return(text):
                return f"{self.returns[0]}{text}{self.returns[1]}"

    def unwrapped(self, injection: str) -> tuple[str, tuple[str, str]]:
        """The result within a text that a Join injected, and what stands before and after it."""
        text, mark, after = injection.rpartition("<")
        before, end, rest = text.partition(">") if self.joined[0] else ("", "", text)
        space = " " if len(rest) > 1 and rest[0] == rest[-1] == " " else ""
        return rest[len(space) : len(rest) - len(space)], (before + end + space, space + mark + after)

    def injection(self, key: str, returned: str, text: str = "") -> str:
        """The text that a Join appends to what the organizer said."""
        return returned.join(self.around(key, text))

    def around_pushed(self, key: str, text: str) -> tuple[str, str]:
        """The same for a result that no Join in the text asks for: its tag is injected too, spelled as the Fork's."""
        fork = self.fork[0].replace("-{}", "{}").format(key)[:-1]
        bare = any(fork + end in text for end in "> ")
        join = (self.join.replace("-{}", "{}") if bare else self.join).format(key)
        before, after = self.around(key, join)
        return f" {join}{before}", after

    def around(self, key: str, text: str = "") -> tuple[str, str]:
        """What stands before and after the result in that text. Its tags lack the hyphen if the Join's does."""
        bare = "-{}" in self.join and text.rstrip().endswith(self.join.replace("-{}", "{}").format(key))
        before, after = (tag.replace("-{}", "{}") if bare else tag for tag in self.joined)
        return f"{before.format(key)} ", f" {after.format(key)}"


DIALECT = Dialect()

_CLOSES = {"fork": "fork_end", "tell": "tell_end", "answer": "answer_end", "return": "return_end"}


def _keyed(tag: str) -> tuple[str, ...]:
    """A tag with each of the usual keys, with and without its hyphen."""
    return tuple(
        spelling.format(key) for spelling in dict.fromkeys((tag, tag.replace("-{}", "{}"))) for key in ENGINE_KEYS
    )


Tag = re.Match[str]
"""A tag in a text; `lastgroup` is its name."""


class AsyncThinkScanner(Scanner):
    """Incremental reader of one role's stream. Think text is reported as a whole, before the next action.

    A tag starts with `<`. Within an element any tag except its own closing tag ends it: the element is `Malformed` and
    the tag is read by itself, so a Join within a sub-query is still seen. Within `<think>` a Fork and a Join act, and
    the tags of answers and returns are text.
    """

    def __init__(self, *names: str, dialect: Dialect = DIALECT, models: bool = False) -> None:
        """`names` are the elements of this role: fork, tell, join, status, answer, return. With `models` a Fork may
        name one of a pool."""
        ends = {"join": "join_end", "status": "status_end", **_CLOSES}
        self._dialect = dialect
        self._tags = dialect.compile([*names, *(ends[name] for name in names)], models=models)
        self._longest = dialect.longest + (_MODEL_LENGTH if models else 0)
        self._text: list[str] = []
        """Text that was read but is not part of an event yet: think text, or an open element's tag and body."""
        self._tail = ""
        """Text that was not read yet, because it may be the start of a tag."""
        self._end = 0
        """Characters read."""
        self._open: Tag | None = None
        self._thinking = self._before = False
        """Whether the text is within `<think>`, now and before the open element."""
        ends = {"answer": dialect.answer[1], "return": dialect.returns[1]}
        joins = _keyed(dialect.join) if "join" in names else ()
        polls = (dialect.status[0],) if "status" in names else ()
        self.stops = (*(end for name, end in ends.items() if name in names), *polls, *joins)
        ended = [tags[1] for name, tags in (("fork", dialect.fork), ("tell", dialect.tell)) if name in names]
        self.signals = tuple(tag for end in ended for tag in _keyed(end))

    @property
    def incomplete(self) -> bool:
        return self._open is not None or bool(self._tail)

    def feed(self, text: str) -> list[Event]:
        if not self._tail and "<" not in text:  # most of a text
            self._take(text)
            return []
        self._tail += text
        events: list[Event] = []
        position = 0
        if "<" in self._tail:
            for tag in self._tags.finditer(self._tail):
                self._take(self._tail[position : tag.start()])
                position = tag.end()
                self._tag(tag, events)
        rest = self._tail[position:]
        start = rest.rfind("<")
        begun = start >= 0 and ">" not in rest[start:] and len(rest) - start < self._longest
        cut = start if begun else len(rest)
        self._take(rest[:cut])
        self._tail = rest[cut:]
        return events

    def close(self) -> list[Event]:
        events: list[Event] = []
        self._take(self._tail)
        self._tail = ""
        self._flush(events)
        return events

    def _take(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._end += len(text)
            begun, ended = text.rfind(THINK), text.rfind(THOUGHT)
            self._thinking = self._thinking if begun == ended else begun > ended

    def _flush(self, events: list[Event]) -> None:
        """Report the pending text: think text, or an element that was cut off."""
        text = "".join(self._text)
        if text:
            events.append(Event(Malformed(text) if self._open else Think(text), self._end))
        self._text, self._open = [], None

    def _tag(self, tag: Tag, events: list[Event]) -> None:
        name, written, opened = tag.lastgroup or "", tag[0], self._open
        outside = opened is None or opened.lastgroup in ("fork", "tell")
        self.quoted = self._thinking and outside and name.startswith(("answer", "return"))
        if self.quoted:
            self._take(written)
            return
        if opened and name == _CLOSES[opened.lastgroup or ""] and self._key(tag) == self._key(opened):
            body = "".join(self._text)[len(opened[0]) :]
            self._text, self._open, self._thinking = [], None, self._before
            self._end += len(written)
            events.append(Event(self._element(opened, body), self._end))
            return
        self._flush(events)
        if name in _CLOSES:
            self._open, self._before = tag, self._thinking
            self._take(written)
            return
        self._end += len(written)
        pausing = {"join": Join(self._key(tag)), "status": Poll()}
        events.append(Event(pausing.get(name, Malformed(written)), self._end))

    def _key(self, tag: re.Match[str]) -> str:
        return self._dialect.key(tag)

    def _element(self, opened: re.Match[str], body: str) -> Action:
        match opened.lastgroup:
            case "fork":
                return Fork(self._key(opened), body, (opened.groupdict().get("model") or "").rstrip())
            case "tell":
                return Tell(self._key(opened), body)
            case "answer":
                return Answer(body)
            case _:
                return Return(body)


def organizer_scanner(
    dialect: Dialect = DIALECT, *, tells: bool = False, polls: bool = False, models: bool = False
) -> AsyncThinkScanner:
    """An organizer's scanner; `tells` where its workers are persistent, `polls` where it may ask for its status,
    `models` where there is a pool of them."""
    return AsyncThinkScanner(*_forking(tells, polls), "answer", dialect=dialect, models=models)


def worker_scanner(
    dialect: Dialect = DIALECT, *, forks: bool = False, tells: bool = False, polls: bool = False, models: bool = False
) -> AsyncThinkScanner:
    """A worker's scanner; `forks` for a worker that may fork other workers. For the others see `organizer_scanner`."""
    return AsyncThinkScanner(*(_forking(tells, polls) if forks else ()), "return", dialect=dialect, models=models)


def _forking(tells: bool, polls: bool) -> tuple[str, ...]:
    """Elements of agents that may fork."""
    return ("fork", *(("tell",) if tells else ()), "join", *(("status",) if polls else ()))


@dataclass(frozen=True, slots=True)
class Injected:
    """The text that a Join injected, its closing tag included."""

    text: str


def read(text: str, dialect: Dialect = DIALECT) -> list[Action | Injected]:
    """Parse an organizer's whole context, injected text included. The rendered parts together are the text again.

    The text up to the next closing tag with the key of a Join was injected by it. If the key is joined again before
    that tag, or if there is no such tag, the Join injected nothing. In a record the spans hold the injected text.
    """
    return list(reading(text, lambda key: None, dialect))


def reading(
    text: str, returned: Callable[[str], str | None], dialect: Dialect = DIALECT
) -> Iterator[Action | Injected]:
    """Parse the same, part by part, where the results of workers are known: they were injected, whatever they contain.

    `returned(key)` is called when everything before the result of a Join was taken; `None` if it is not known.
    """
    ends = _injection_ends(text, dialect)
    scanner, begin = organizer_scanner(dialect), 0
    for join in dialect.compile(["join"]).finditer(text):
        if join.start() < begin:
            continue
        yield from (event.action for event in scanner.feed(text[begin : join.end()]))
        begin = join.end()
        end = _known_end(text, join, returned(dialect.key(join)), dialect) or ends.get(join.end())
        if end is not None:
            yield from (event.action for event in scanner.close())
            yield Injected(text[begin:end])
            begin = end
    yield from (event.action for event in (*scanner.feed(text[begin:]), *scanner.close()))


def _known_end(text: str, join: Tag, result: str | None, dialect: Dialect) -> int | None:
    """The end of the closing tag, if this result follows a Join."""
    if result is None:
        return None
    before = f"(?:{dialect.patterns['joined']})?" if dialect.joined[0] else ""
    pattern = rf"{before}\s*{re.escape(result.strip())}\s*(?P<join_end>{dialect.patterns['join_end']})"
    found = re.compile(pattern).match(text, join.end())
    return found.end() if found and int(found["join_end_key"]) == int(dialect.key(join)) else None


def _injection_ends(text: str, dialect: Dialect) -> dict[int, int]:
    """Ends of the injected texts by the ends of the Joins' tags."""
    ends: dict[int, int] = {}
    following: dict[str, Tag] = {}
    for tag in reversed(list(dialect.compile(["join", "join_end"]).finditer(text))):
        key = dialect.key(tag)
        after = following.get(key)
        if tag.lastgroup == "join" and after is not None and after.lastgroup == "join_end":
            ends[tag.end()] = after.end()
        following[key] = tag
    return ends


class Keys:
    """Tracks the keys in use and finds actions that are format errors (section 3.2 of the paper).

    A key is in use from its Fork or Tell until its Join, or until it is cancelled. An invalid action changes nothing.
    """

    def __init__(
        self, capacity: int, *, queue: bool = False, persistent: bool = False, models: Container[str] = ()
    ) -> None:
        """`capacity` includes the organizer. With `queue` a Fork beyond the capacity waits and is no error. A joined
        worker that is `persistent` takes no place until it is told something. A Fork may name one of the `models`."""
        self._workers, self._queue, self._persistent, self._models = capacity - 1, queue, persistent, models
        self.taken: set[str] = set()
        self.known: set[str] = set()
        """Keys of persistent workers that were joined."""

    @property
    def free(self) -> int:
        """Workers that the capacity still allows; below 0 where some wait."""
        return self._workers - len(self.taken)

    def check(self, action: Command) -> FormatError | None:
        """Apply an action; return its format error instead if it has one."""
        match action:
            case Fork(key) | Tell(key):
                if isinstance(action, Tell) and (key in self.taken or key not in self.known):
                    return FormatError.UNKNOWN_TELL
                if key in self.taken:
                    return FormatError.DUPLICATE_FORK
                if isinstance(action, Fork) and action.model and action.model not in self._models:
                    return FormatError.UNKNOWN_MODEL
                if len(self.taken) >= self._workers and not self._queue:
                    return FormatError.POOL_OVERFLOW
                self.taken.add(key)
            case Join(key) | Cancel(key) | Deliver(key):
                if key not in self.taken:
                    return FormatError.UNKNOWN_JOIN
                self.taken.remove(key)
                self.known.discard(key)
                if self._persistent and not isinstance(action, Cancel):
                    self.known.add(key)
            case Malformed():
                return FormatError.MALFORMED_TAG
        return None
