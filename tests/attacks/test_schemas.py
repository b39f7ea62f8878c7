"""Hostile JSON Schemas of MCP servers: refused, or checked in time linear in the arguments."""

from __future__ import annotations

from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within

from orgthink.tools.schema import Parameters
from orgthink.util.errors import UserError

BOUNDED = "A check of arguments takes bounded time, for every schema and all arguments."
REFUSED = "A schema that is too large or too deep is refused when its server is opened, on one line."
SERVERS = "References, combinations and regular expressions are left to the server."

pytestmark = pytest.mark.thorough


def checked(schema: dict[str, Any], arguments: dict[str, Any]) -> str:
    """The errors of the arguments, on one line; empty without errors."""
    parameters = within(60, lambda: Parameters.from_schema(schema))
    try:
        within(60, lambda: parameters.check(arguments))
    except ValueError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 2_000
        return str(error)
    return ""


def doubling(levels: int) -> dict[str, Any]:
    """Each definition uses the one before twice."""
    definitions: dict[str, Any] = {"a0": {"type": "string"}}
    for i in range(1, levels):
        definitions[f"a{i}"] = {"allOf": [{"$ref": f"#/$defs/a{i - 1}"}] * 2}
    return {"$defs": definitions, "properties": {"x": {"$ref": f"#/$defs/a{levels - 1}"}}}


@each(
    Attack("a `$ref` that doubles the work thirty times", SERVERS, "the call is made", (doubling(30), {"x": "1"})),
    Attack("a `$ref` to itself", SERVERS, "the call is made",
           ({"properties": {"x": {"$ref": "#/properties/x"}}}, {"x": 1})),
    Attack("a `$ref` to a file", SERVERS, "the call is made, and nothing is read",
           ({"properties": {"x": {"$ref": "file:///etc/passwd"}}}, {"x": 1})),
    Attack("`patternProperties` with `^(a+)+$`", SERVERS, "the call is made",
           ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 40 + "!": 1})),
    Attack("`pattern` with `^(a+)+$`", SERVERS, "the call is made",
           ({"properties": {"x": {"pattern": "^(a+)+$"}}}, {"x": "a" * 40 + "!"})),
)  # fmt: skip
def test_left_to_the_server(attack: Attack) -> None:
    assert checked(*attack.given) == ""


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return {"properties": {"x": schema}}


@each(
    Attack("a schema of 100,000 characters", REFUSED, "exit code 2", {"allOf": [{}] * 30_000}),
    Attack("a schema of 5,000 levels", REFUSED, "exit code 2: it nests too deep", nested(5_000)),
    Attack("`properties` that are a list", REFUSED, "exit code 2", {"properties": [["x", {}]]}),
    Attack("a schema of a text, not of an object", REFUSED, "exit code 2", {"type": "string"}),
)  # fmt: skip
def test_a_schema_that_is_refused(attack: Attack) -> None:
    with pytest.raises(UserError, match=r"^a tool's schema ") as refused:
        within(60, lambda: Parameters.from_schema(attack.given))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


@each(
    Attack("10,000 unknown parameters where 2,000 are known", BOUNDED, "the message is shortened",
           ({f"name_of_parameter_{i}": {} for i in range(2_000)}, {f"nam_of_param_{i}": 1 for i in range(10_000)})),
    Attack("a parameter's name of a million characters", BOUNDED, "it is shown shortened",
           ({f"x{i}": {} for i in range(2_000)}, {"x" * 1_000_000: 1})),
    Attack("an unknown parameter where 2,000 long ones are known", BOUNDED, "the message is short",
           ({f"{i}" + "x" * 30: {} for i in range(2_000)}, {"?": 1})),
)  # fmt: skip
def test_what_is_wrong_with_names_is_short(attack: Attack) -> None:
    properties, arguments = attack.given
    assert "unexpected" in checked({"properties": properties}, arguments)
