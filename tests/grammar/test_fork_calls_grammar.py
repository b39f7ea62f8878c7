"""Calls as commands: whatever a model calls is a command or says what is wrong with it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.grammar.actions import Cancel, Command, Fork, Join, Poll
from orgthink.grammar.fork_calls import CALL_NAMES, ForkCalls
from orgthink.grammar.toolcall import BadCall, ToolCall, read_reply, render_call

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMED = st.sampled_from(CALL_NAMES["fork"].calls) | st.text(min_size=1, max_size=5)
ARGUMENTS = st.dictionaries(st.sampled_from(["task", "id"]) | st.text(max_size=3), VALUES, max_size=2)


@given(st.builds(ToolCall, NAMED, ARGUMENTS) | st.builds(BadCall, st.text(), st.just("not JSON"), st.none() | NAMED))
def test_any_call_is_a_command_or_says_on_one_line_what_is_wrong(made: ToolCall | BadCall) -> None:
    try:
        command = ForkCalls().command(made, "3")
    except ValueError as error:
        assert str(error) and "\n" not in str(error)
    else:
        assert isinstance(made, ToolCall) and isinstance(command, Fork | Join | Cancel | Poll)


@pytest.mark.parametrize(
    ("made", "command"),
    [
        (("fork", {"task": " a\n"}), Fork("3", " a\n")),
        (("join", {"id": 2}), Join("2")),
        (("join", {"id": "02"}), Join("2")),
        (("cancel", {"id": " 2 "}), Cancel("2")),
        (("join", {"id": 2.0}), Join("2")),
        (("status", {}), Poll()),
    ],
)
def test_a_call_is_the_command_that_it_names(made: tuple[str, dict[str, Any]], command: Command) -> None:
    (read,) = read_reply(render_call(ToolCall(*made))).calls
    assert ForkCalls().command(read, "3") == command


@pytest.mark.parametrize(
    ("value", "said"),
    [(-1, "-1"), (1.5, "1.5"), (1e300, "1e+300"), ("one", '"one"'), ("", '""'), (True, "true"), (None, "null")],
)
def test_what_is_no_id_is_named(value: object, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        ForkCalls().command(ToolCall("join", {"id": value}), "3")
    assert str(refused.value) == f'"id" is the number that fork returned, not {said}'


def test_the_descriptions_ask_for_what_is_read() -> None:
    given = {"task": "a", "id": 1}
    for tool in ForkCalls().tools:
        schema = tool["parameters"]
        assert schema["required"] == list(schema["properties"]) and schema["additionalProperties"] is False
        ForkCalls().command(ToolCall(tool["name"], {name: given[name] for name in schema["required"]}), "1")
