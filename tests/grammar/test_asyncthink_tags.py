"""The tags: how they are read, written, cut anywhere, and which uses of them are format errors."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orgthink.grammar.actions import Answer, Event, Fork, Join, Malformed, Return, Think
from orgthink.grammar.asyncthink import (
    DIALECT,
    Dialect,
    Injected,
    Keys,
    organizer_scanner,
    read,
    reading,
    worker_scanner,
)
from orgthink.record.episode import FormatError
from orgthink.util.errors import UserError

SUMMARY = Dialect(
    join="<JOIN-{}>",
    joined=("<RESULT-{}>", "</RESULT-{}>"),
    answer=("<FINISH>", "</FINISH>"),
    returns=("<DONE>", "</DONE>"),
)
"""The tags of a summary of the paper that goes round."""

BARE = Dialect(fork=("<SPAWN_{}>", "</SPAWN_{}>"), join="<AWAIT{}>", joined=("", "</AWAIT{}>"))
"""Keys without a hyphen."""

DIALECTS = pytest.mark.parametrize("dialect", [DIALECT, SUMMARY, BARE], ids=["paper", "summary", "bare"])
SCANNERS = {
    "organizer": organizer_scanner,
    "worker": worker_scanner,
    "organizing worker": lambda dialect=DIALECT: worker_scanner(dialect, forks=True),
}


def _tags(dialect: Dialect) -> list[str]:
    keyed = (*dialect.fork, dialect.join, *dialect.joined)
    spelled = [tag.format(key) for tag in keyed if tag for key in ("1", "2", "02", "12")]
    spelled += [tag.replace("-", "") for tag in spelled]
    return [*spelled, *dialect.answer, *dialect.returns]


@cache
def texts(dialect: Dialect = DIALECT) -> st.SearchStrategy[str]:
    """Rich in tags, partial tags and junk."""
    tags = _tags(dialect)
    partial = st.sampled_from(tags).flatmap(lambda tag: st.integers(1, len(tag)).map(lambda n: tag[:n]))
    junk = st.sampled_from(
        [
            "<",
            ">",
            "</",
            "<<",
            "-1>",
            "FORK",
            "\n",
            " ",
            "a < b",
            "<FORK-x>",
            "<FORK->",
            "<FORK-1234567890>",
            "<fork-1>",
        ]
    )
    word = st.text(alphabet="ab <>-/1é", max_size=6) | st.just("<" + "x" * 40)
    return st.lists(st.sampled_from(tags) | partial | junk | word, max_size=14).map("".join)


def _scan(scanner, pieces: list[str]) -> list[Event]:
    return [event for piece in pieces for event in scanner.feed(piece)] + scanner.close()


def _cut(text: str, at: list[int]) -> list[str]:
    borders = [0, *sorted(i % (len(text) + 1) for i in at), len(text)]
    return [text[i:j] for i, j in pairwise(borders)]


# Incremental equals batch.


@DIALECTS
@pytest.mark.parametrize("role", SCANNERS)
@given(data=st.data())
def test_however_the_text_is_cut_the_events_are_the_same(dialect, role, data):
    text = data.draw(texts(dialect))
    pieces = _cut(text, data.draw(st.lists(st.integers(0, 300), max_size=12)))
    whole = _scan(SCANNERS[role](dialect), [text])
    assert _scan(SCANNERS[role](dialect), pieces) == whole
    assert _scan(SCANNERS[role](dialect), list(text)) == whole


_LETTERS = st.text(alphabet="AB", min_size=1, max_size=2)
_NAMES = st.lists(
    st.sampled_from(["", "T2-", "A LONG NAME OF A TAG, LONGER THAN ANY - "]) | _LETTERS, min_size=2, max_size=2
).map("".join)


@st.composite
def dialects(draw: st.DrawFn) -> Dialect:
    """Other names, long ones, with numbers, with and without hyphens."""
    names = [f"{draw(_NAMES)}{i}" for i in "FJCXR"]
    hyphens = draw(st.lists(st.sampled_from(["", "-", "_"]), min_size=3, max_size=3))
    fork, join, close = (f"{name}{hyphen}{{}}" for name, hyphen in zip(names, hyphens, strict=False))
    answer, returns = names[3:]
    return Dialect(
        (f"<{fork}>", f"</{fork}>"),
        f"<{join}>",
        (draw(st.sampled_from(["", f"<{close}>"])), f"</{close}>"),
        (f"<{answer}>", f"</{answer}>"),
        (f"<{returns}>", f"</{returns}>"),
    )


@given(data=st.data())
def test_of_any_dialect_the_events_are_the_same_however_the_text_is_cut(data):
    dialect = data.draw(dialects())
    text = data.draw(texts(dialect))
    for scanner in SCANNERS.values():
        whole = _scan(scanner(dialect), [text])
        assert _scan(scanner(dialect), list(text)) == whole
        assert _scan(scanner(dialect), _cut(text, data.draw(st.lists(st.integers(0, 300), max_size=6)))) == whole


@given(dialects(), st.integers(0, 10**9 - 1).map(str), st.text(alphabet="ab 12-"))
def test_of_any_dialect_what_is_rendered_reads_back(dialect, key, text):
    for scanner, actions in (
        (organizer_scanner, [Fork(key, text), Join(key), Answer(text)]),
        (lambda dialect: worker_scanner(dialect, forks=True), [Fork(key, text), Join(key), Return(text)]),
    ):
        written = "".join(dialect.render(action) for action in actions)
        assert [event.action for event in _scan(scanner(dialect), list(written))] == actions


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ({"fork": ("[FORK-{}]", "[/FORK-{}]")}, "'[FORK-{}]' is not a valid tag: write it as <NAME-{}>"),
        ({"fork": ("<FORK>", "</FORK>")}, "'<FORK>' is not a valid tag"),
        ({"fork": ("<FORK-{}-{}>", "</FORK-{}>")}, "'<FORK-{}-{}>' is not a valid tag"),
        ({"join": "<JOIN-{key}>"}, "'<JOIN-{key}>' is not a valid tag"),
        ({"join": "JOIN-{}>"}, "'JOIN-{}>' is not a valid tag"),
        ({"joined": ("", "")}, "'' is not a valid tag"),
        ({"joined": ("returned: ", "</JOIN-{}>")}, "'returned: ' is not a valid tag"),
        (
            {"answer": ("<ANSWER-{}>", "</ANSWER>")},
            "'<ANSWER-{}>' is not a valid tag: write it as <NAME>",
        ),
        ({"returns": ("<RETURN>", "<<RETURN>>")}, "'<<RETURN>>' is not a valid tag"),
        ({"answer": ("<>", "</>")}, "'<>' is not a valid tag"),
        ({"returns": ("<RETURN>", "<RETURN>")}, "two of the tags are equal"),
        ({"join": "<FORK{}>"}, "two of the tags are equal"),
        ({"fork": ("<T-{}>", "</T-{}>"), "join": "<T2-{}>"}, "two of the tags are equal"),
        ({"fork": ("<T{}-F3>", "</T-{}>"), "join": "<T2-F{}>"}, "two of the tags are equal"),
        ({"fork": ("<T--{}>", "</T-{}>"), "join": "<T-{}>"}, "two of the tags are equal"),
        ({"answer": ("<FORK-7>", "</ANSWER>")}, "two of the tags are equal"),
    ],
)
def test_a_dialect_that_could_not_be_read_is_refused(tags, says):
    with pytest.raises(UserError, match=re.escape(says)) as refused:
        Dialect(**tags)
    assert "\n" not in str(refused.value)


def test_an_answer_and_a_return_may_be_spelled_alike():
    """Nobody reads both."""
    dialect = Dialect(answer=("<DONE>", "</DONE>"), returns=("<DONE>", "</DONE>"))
    assert organizer_scanner(dialect).feed("<DONE>3</DONE>")[0].action == Answer("3")
    assert worker_scanner(dialect).feed("<DONE>3</DONE>")[0].action == Return("3")


@pytest.mark.parametrize("at", range(1, 40))
def test_an_event_comes_with_the_last_character_of_its_tag(at):
    """Not a character later: the engine must stop there."""
    text = "so <FORK-1> q </FORK-1> on <JOIN-1>"[:at]
    actions = [event.action for event in organizer_scanner().feed(text) if not isinstance(event.action, Think)]
    assert actions == [Fork("1", " q ")] * (at >= 23) + [Join("1")] * (at >= 35)


@given(texts())
def test_events_cover_the_text(text):
    """Every character belongs to one event, and `end` says where it ends."""
    events = _scan(organizer_scanner(), list(text))
    ends = [event.end for event in events]
    assert ends == sorted(set(ends)) and (ends[-1:] or [0])[0] == len(text)
    for start, event in zip([0, *ends], events, strict=False):
        assert _canonical(text[start : event.end]) == _canonical(DIALECT.render(event.action))


# Render and parse.


def _canonical(text: str, dialect: Dialect = DIALECT) -> str:
    """Every keyed tag in its canonical spelling: with the dialect's hyphen and without leading zeros."""
    for tag in (*dialect.fork, dialect.join, dialect.joined[1]):
        before, after = (re.escape(part) for part in tag.replace("-{}", "{}").split("{}"))
        text = re.sub(f"{before}-?([0-9]{{1,9}}){after}" if "-{}" in tag else f"{before}([0-9]{{1,9}}){after}",
                      lambda m, tag=tag: tag.format(int(m[1])), text)  # fmt: skip
    return text


def _render(parts, dialect: Dialect = DIALECT) -> str:
    return "".join(part.text if isinstance(part, Injected) else dialect.render(part) for part in parts)


@DIALECTS
@given(data=st.data())
def test_rendering_what_was_read_gives_the_text_back(dialect, data):
    text = data.draw(texts(dialect))
    assert _canonical(_render(read(text, dialect), dialect), dialect) == _canonical(text, dialect)


@DIALECTS
@given(data=st.data())
def test_canonical_text_is_given_back_to_the_letter(dialect, data):
    text = _canonical(data.draw(texts(dialect)), dialect)
    assert _render(read(text, dialect), dialect) == text


_BODY = st.text(alphabet="ab 1+-*/()\n,é", max_size=12)
_KEY = st.integers(0, 999_999_999).map(str)
_ACTIONS = st.lists(
    st.builds(Think, _BODY.filter(bool))
    | st.builds(Fork, _KEY, _BODY)
    | st.builds(Join, _KEY)
    | st.builds(Answer, _BODY),
    max_size=9,
)


@DIALECTS
@given(_ACTIONS)
def test_scanning_what_was_rendered_gives_the_actions_back(dialect, actions):
    events = _scan(organizer_scanner(dialect), ["".join(map(dialect.render, actions))])
    assert [event.action for event in events] == _merged(actions)


@DIALECTS
@given(_BODY, _BODY)
def test_returns(dialect, before, returned):
    actions = _merged([Think(before), Return(returned)])
    events = _scan(worker_scanner(dialect), ["".join(map(dialect.render, actions))])
    assert [event.action for event in events] == actions


def _merged(actions) -> list:
    """Think text next to think text is one."""
    merged: list = []
    for action in actions:
        if isinstance(action, Think) and merged and isinstance(merged[-1], Think):
            merged[-1] = Think(merged[-1].text + action.text)
        elif action != Think(""):
            merged.append(action)
    return merged


# Spellings and edge cases.


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("<FORK-1>q</FORK-1>", [Fork("1", "q")]),
        ("<FORK1>q</FORK1>", [Fork("1", "q")]),
        ("<FORK-1>q</FORK1>", [Fork("1", "q")]),
        ("<FORK-01>q</FORK-1>", [Fork("1", "q")]),
        ("<FORK-1></FORK-1>", [Fork("1", "")]),
        ("<FORK-1>a < b > c</FORK-1>", [Fork("1", "a < b > c")]),
        ("<JOIN1><JOIN-12>", [Join("1"), Join("12")]),
        ("<ANSWER>\n3 + 5\n</ANSWER>", [Answer("\n3 + 5\n")]),
        ("a<FORK-1>b</FORK-2>c", [Think("a"), Malformed("<FORK-1>b"), Malformed("</FORK-2>"), Think("c")]),
        ("<FORK-1>a<FORK-2>b</FORK-2>", [Malformed("<FORK-1>a"), Fork("2", "b")]),
        ("<FORK-1>a<JOIN-1>", [Malformed("<FORK-1>a"), Join("1")]),
        ("<FORK-1>a<ANSWER>b</ANSWER>", [Malformed("<FORK-1>a"), Answer("b")]),
        ("<ANSWER>b", [Malformed("<ANSWER>b")]),
        ("<ANSWER>b</FORK-1>", [Malformed("<ANSWER>b"), Malformed("</FORK-1>")]),
        ("</JOIN-1>", [Malformed("</JOIN-1>")]),
        ("</ANSWER>", [Malformed("</ANSWER>")]),
        ("<FORK>q</FORK>", [Think("<FORK>q</FORK>")]),
        ("<fork-1>q</fork-1>", [Think("<fork-1>q</fork-1>")]),
        ("<FORK--1><FORK-1 ><FORK-1234567890>", [Think("<FORK--1><FORK-1 ><FORK-1234567890>")]),
        ("<FORK-１><JOIN-٢>", [Think("<FORK-１><JOIN-٢>")]),
        ("<RETURN>r</RETURN>", [Think("<RETURN>r</RETURN>")]),
        ("<<JOIN-1>", [Think("<"), Join("1")]),
        ("<JOIN-1", [Think("<JOIN-1")]),
        ("", []),
    ],
)
def test_what_an_organizer_says(text, actions):
    assert [event.action for event in _scan(organizer_scanner(), list(text))] == actions


@pytest.mark.parametrize(
    ("forks", "actions"),
    [(False, [Think("<FORK-1>q</FORK-1><ANSWER>3</ANSWER>"), Return("r")]),
     (True, [Fork("1", "q"), Think("<ANSWER>3</ANSWER>"), Return("r")])],
)  # fmt: skip
def test_what_a_worker_says(forks, actions):
    text = "<FORK-1>q</FORK-1><ANSWER>3</ANSWER><RETURN>r</RETURN>"
    assert [event.action for event in _scan(worker_scanner(forks=forks), [text])] == actions


@DIALECTS
def test_engines_are_told_where_to_stop(dialect):
    stops = organizer_scanner(dialect).stops
    assert dialect.answer[1] in stops and dialect.join.format(3) in stops
    assert dialect.join.replace("-", "").format(3) in stops and len(set(stops)) == len(stops)
    assert worker_scanner(dialect).stops == (dialect.returns[1],)
    for stop in stops:  # the runtime acts on each of them at once
        assert organizer_scanner(dialect).feed(stop)


def test_a_scanner_can_be_fed_on_after_a_join():
    scanner = organizer_scanner()
    assert [e.action for e in scanner.feed("a<JOIN-1>")] == [Think("a"), Join("1")]
    assert [e.action for e in scanner.feed("b<ANSWER>3</ANSWER>")] == [Think("b"), Answer("3")]


# Injected text.


@DIALECTS
@given(data=st.data())
def test_injected_text_is_never_parsed(dialect, data):
    returned = data.draw(texts(dialect).filter(lambda text: not re.search(dialect.patterns["join_end"], text)))
    injection = dialect.injection("7", returned)
    parts = read(f"a{dialect.join.format(7)}{injection}b", dialect)
    assert parts == [Think("a"), Join("7"), Injected(injection), Think("b")]


@DIALECTS
@given(data=st.data())
def test_an_injection_is_taken_apart_as_it_was_put_together(dialect, data):
    returned = data.draw(texts(dialect))
    around = dialect.around("7")
    assert dialect.unwrapped(dialect.injection("7", returned)) == (returned, around)


@DIALECTS
@given(data=st.data())
def test_a_known_result_is_found_whatever_it_contains(dialect, data):
    returned = data.draw(texts(dialect)).strip()
    injection = dialect.injection("7", returned)
    parts = list(reading(f"a{dialect.join.format(7)}{injection}b", lambda key: returned, dialect))
    assert parts == [Think("a"), Join("7"), Injected(injection), Think("b")]


def test_a_dialect_whose_join_has_no_hyphen_keeps_the_tags_of_its_results():
    dialect = replace(SUMMARY, join="<JOIN{}>")
    assert dialect.injection("1", "two", "so <JOIN1>") == "<RESULT-1> two </RESULT-1>"


def test_the_other_dialect_names_what_it_injects():
    assert SUMMARY.injection("1", "3 + 5") == "<RESULT-1> 3 + 5 </RESULT-1>"
    assert read("<JOIN-1><RESULT-1> <JOIN-2> </RESULT-1><FINISH>x</FINISH>", SUMMARY) == [
        Join("1"), Injected("<RESULT-1> <JOIN-2> </RESULT-1>"), Answer("x"),
    ]  # fmt: skip


@example("<JOIN-1>a</JOIN-2>b</JOIN1>c")
@given(texts())
def test_an_injection_ends_at_the_end_of_its_own_key(text):
    parts = read(text)
    for before, part in pairwise(parts):
        if isinstance(part, Injected):
            ends = re.findall(r"</JOIN-?([0-9]{1,9})>", part.text)
            assert isinstance(before, Join) and int(ends[-1]) == int(before.key)
            assert int(before.key) not in map(int, ends[:-1])


# Format errors that the text decides.


def _errors(text: str, capacity: int = 3, *, queue: bool = False) -> list[FormatError]:
    protocol = Keys(capacity, queue=queue)
    faults = (protocol.check(part) for part in read(text) if not isinstance(part, Injected))
    return [fault for fault in faults if fault is not None]


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("<FORK-1>a</FORK-1><FORK-2>b</FORK-2><JOIN-2> </JOIN-2><JOIN-1> </JOIN-1><ANSWER>x</ANSWER>", []),
        ("<FORK-1>a</FORK-1><FORK-1>b</FORK-1>", [FormatError.DUPLICATE_FORK]),
        ("<FORK-1>a</FORK-1><FORK01>b</FORK-1>", [FormatError.DUPLICATE_FORK]),
        ("<FORK-1>a</FORK-1><JOIN-1>r</JOIN-1><FORK-1>b</FORK-1>", []),
        ("<FORK-1>a</FORK-1><FORK-2>b</FORK-2><FORK-3>c</FORK-3>", [FormatError.POOL_OVERFLOW]),
        ("<FORK-1>a</FORK-1><FORK-2>b</FORK-2><JOIN-1>r</JOIN-1><FORK-3>c</FORK-3>", []),
        ("<FORK-1>a</FORK-1><FORK-2>b</FORK-2><FORK-1>c</FORK-1>", [FormatError.DUPLICATE_FORK]),
        ("<JOIN-1>", [FormatError.UNKNOWN_JOIN]),
        ("<FORK-1>a</FORK-1><JOIN-1>r</JOIN-1><JOIN-1>r</JOIN-1>", [FormatError.UNKNOWN_JOIN]),
        ("<FORK-1>a", [FormatError.MALFORMED_TAG]),
        ("a</FORK-1>", [FormatError.MALFORMED_TAG]),
        ("<FORK-1>a</FORK-1><FORK-2>b</FORK-2><FORK-3>c</FORK-3><JOIN-3>",
         [FormatError.POOL_OVERFLOW, FormatError.UNKNOWN_JOIN]),
    ],
)  # fmt: skip
def test_format_errors(text, errors):
    assert _errors(text) == errors


def test_a_pool_of_one_has_no_workers():
    assert _errors("<FORK-1>a</FORK-1>", 1) == [FormatError.POOL_OVERFLOW]


def test_with_a_queue_forks_may_wait():
    forks = "".join(f"<FORK-{i}>a</FORK-{i}>" for i in range(9))
    assert _errors(forks, 2, queue=True) == []
    assert _errors(forks + "<FORK-3>a</FORK-3>", 2, queue=True) == [FormatError.DUPLICATE_FORK]


@given(_ACTIONS, st.integers(1, 4))
def test_taken_keys_never_exceed_the_workers(actions, capacity):
    protocol = Keys(capacity)
    for action in actions:
        before = set(protocol.taken)
        if protocol.check(action) is not None:
            assert protocol.taken == before, "an action that is an error changes nothing"
        assert len(protocol.taken) <= capacity - 1


def test_a_join_without_an_end_brings_nothing() -> None:
    text = "<JOIN-1> a <FORK-1>q</FORK-1> b <JOIN-1>r</JOIN-1> <JOIN-2> c"
    parts = read(text)
    assert [part for part in parts if isinstance(part, Fork | Join | Injected)] == [
        Join("1"),
        Fork("1", "q"),
        Join("1"),
        Injected("r</JOIN-1>"),
        Join("2"),
    ]


def test_what_is_inside_an_injected_text_is_not_read() -> None:
    text = "<JOIN-1> <JOIN-2> <FORK-3> </JOIN-2> </JOIN-1> <JOIN-2>x</JOIN-2>"
    injected = [part.text for part in read(text) if isinstance(part, Injected)]
    assert injected == [" <JOIN-2> <FORK-3> </JOIN-2> </JOIN-1>", "x</JOIN-2>"]


def test_the_end_of_a_fork_is_a_signal_and_the_join_a_stop():
    scanner = organizer_scanner()
    assert {"</FORK-1>", "</FORK1>", "</FORK-16>"} <= set(scanner.signals) and not set(scanner.signals) & set(
        scanner.stops
    )
    assert {"<JOIN-1>", "</ANSWER>"} <= set(scanner.stops)
    assert worker_scanner().signals == () and "</FORK-1>" in worker_scanner(forks=True).signals
