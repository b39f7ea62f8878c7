"""Parameters of tools: schemas of functions and of servers, and wrong arguments."""

from __future__ import annotations

import json
import weakref
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from orgthink.tools.schema import Parameters, json_values
from orgthink.util.errors import UserError


async def search(
    queries: list[str],
    depth: int = 3,
    share: float = 0.5,
    order: Literal["new", "best"] = "best",
    model: str | None = None,
    exact: bool = False,
    schema: list[int] = [],  # noqa: B006  # both the name and the default are meant
) -> str:
    """Looks things up.

    In a corpus.

    Args:
        queries (list of str): What to look for,
            one text a question: short
            ones are best.
        depth: Passages a query.

        model: Who reads them
          (`None`: the default).
    Returns:
        order: This is no parameter.
    """
    return ""


def bare() -> str:
    return ""


def problem(parameters: Parameters, arguments: Any) -> str:
    with pytest.raises(ValueError) as caught:
        parameters.check(arguments)
    assert not isinstance(caught.value, UserError)
    text = str(caught.value)
    assert len(text.splitlines()) == 1 and len(text) < 1500
    return text


def test_the_schema_of_a_function():
    assert Parameters.of(search).schema == {
        "type": "object",
        "properties": {
            "queries": {
                "description": "What to look for, one text a question: short ones are best.",
                "items": {"type": "string"},
                "type": "array",
            },
            "depth": {"default": 3, "description": "Passages a query.", "type": "integer"},
            "share": {"default": 0.5, "type": "number"},
            "order": {"default": "best", "enum": ["new", "best"], "type": "string"},
            "model": {
                "anyOf": [{"type": "string"}, {"type": "null"}],
                "default": None,
                "description": "Who reads them (`None`: the default).",
            },
            "exact": {"default": False, "type": "boolean"},
            "schema": {"default": [], "items": {"type": "integer"}, "type": "array"},
        },
        "required": ["queries"],
        "additionalProperties": False,
    }
    assert Parameters.of(bare).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_defaults_are_filled_in_and_not_shared():
    first = Parameters.of(search).check({"queries": ["a"]})
    assert first == {
        "queries": ["a"], "depth": 3, "share": 0.5, "order": "best", "model": None, "exact": False, "schema": [],
    }  # fmt: skip
    first["schema"].append(1)
    assert Parameters.of(search).check({"queries": ["a"]})["schema"] == []
    assert Parameters.of(bare).check({}) == {}


def test_a_whole_number_is_a_number():
    assert Parameters.of(search).check({"queries": [], "share": 1, "model": "m", "order": "new"})["share"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, ["'queries' is a required property"]),
        ({"querys": ["a"]}, ["'querys' was unexpected", "'queries' is a required property"]),
        ({"queries": [], "zzz": 1}, ["the arguments: ", "'zzz' was unexpected"]),
        ({"queries": "a"}, ['"queries"', "'a' is not of type 'array'"]),
        ({"queries": ["a", 1]}, ['"queries[1]"', "1 is not of type 'string'"]),
        ({"queries": [], "depth": "1"}, ['"depth"', "'1' is not of type 'integer'"]),
        ({"queries": [], "depth": True}, ['"depth"', "True is not of type 'integer'"]),
        ({"queries": [], "share": float("nan")}, ['"share"', "finite"]),
        ({"queries": [], "order": "old"}, ['"order"', "['new', 'best']"]),
        ({"queries": [], "model": 4}, ['"model"', "4 is not valid"]),
        ({"queries": [], "p0": 1}, ["'p0' was unexpected"]),
        ({"queries": 1, "depth": "x", "share": [], "deep": 0}, ["'deep'", '"queries"', '"depth"', '"share"']),
        ({"queries": list(range(9))}, ['"queries[0]"', '"queries[4]"', "and 4 more"]),
        ({"queries": [], "depth": "x\n" * 9999}, ['"depth"', " … "]),
        ({"queries": [], "q" * 99999: 1}, ["was unexpected", " … "]),
        ({"queries": [], "a\nb\u2028c": 1}, ["was unexpected"]),
        ([["queries", []]], ["must be an object"]),
        ("{}", ["must be an object", '"{}"']),
    ],
)
def test_errors_are_one_line(arguments, says):
    said = problem(Parameters.of(search), arguments)
    assert not [word for word in says if word not in said]


def test_a_function_without_parameters_takes_none():
    assert "'x' was unexpected" in problem(Parameters.of(bare), {"x": 1})


def test_limits_in_hints_and_methods():
    class Shelf:
        def take(
            self, count: Annotated[int, Field(ge=1, le=4, description="How many.")], _of: dict[str, int]
        ) -> None: ...

    parameters = Parameters.of(Shelf().take)
    assert parameters.schema["properties"]["count"] == {
        "description": "How many.", "minimum": 1, "maximum": 4, "type": "integer",
    }  # fmt: skip
    assert parameters.check({"count": 4, "_of": {"a": 1}}) == {"count": 4, "_of": {"a": 1}}
    said = problem(parameters, {"count": 5, "_of": {"a": "1"}})
    assert '"count": 5 is greater than the maximum of 4' in said and '"_of.a"' in said


def untyped(x): ...
def starred(*args: int): ...
def keywords(**options: int): ...
def positional(x: int, /): ...
def unresolved(x: Nowhere): ...  # noqa: F821
def opaque(x: weakref.ref): ...


@pytest.mark.parametrize("function", [untyped, starred, keywords, positional, unresolved, opaque])
def test_functions_that_cannot_be_tools(function):
    with pytest.raises(UserError, match=f"^tool {function.__name__}: .+$"):
        Parameters.of(function)


SERVER = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "pattern": "^(a+)+$"},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}, "default": []},
        "mode": {"enum": ["r", "w"]},
        "options": {"type": "object", "required": ["n"], "additionalProperties": False, "properties": {"n": {}}},
    },
    "required": ["path"],
}


def test_a_foreign_schema():
    """Defaults, patterns and parts of values are the server's: one pattern of a stranger can take for ever."""
    parameters = Parameters.from_schema(SERVER)
    assert parameters.schema == SERVER
    assert parameters.check({"path": "a" * 200 + "!"}) == {"path": "a" * 200 + "!"}
    assert parameters.check({"path": "x", "lines": [1], "mode": "a", "options": {"n": None}})["lines"] == [1]
    assert parameters.check({"path": "x", "lines": ["0"], "options": {"m": 2}})["lines"] == ["0"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pth": "x"}, ["'pth' was unexpected", "'path' is a required property"]),
        ({"path": 1}, ['"path": 1 is not of type']),
        ({"path": "x", "lines": "0"}, ["\"lines\": '0' is not of type"]),
        ({"path": ["x" * 9999]}, ['"path"', " … ", "is not of type 'string'"]),
        ([], ["must be an object"]),
    ],
)
def test_a_foreign_schema_refuses(arguments, says):
    said = problem(Parameters.from_schema(SERVER), arguments)
    assert not [word for word in says if word not in said]
    assert said.count("required property") <= 1


@pytest.mark.parametrize(
    ("schema", "arguments", "taken"),
    [
        ({}, {"x": 1}, True),
        ({"type": "object"}, {"x": 1}, True),
        ({"properties": {}}, {"x": 1}, False),
        ({"properties": {"y": {}}}, {"x": 1}, False),
        ({"additionalProperties": False}, {"x": 1}, False),
        ({"properties": {"y": {}}, "additionalProperties": True}, {"x": 1}, True),
        ({"properties": {"y": {}}, "additionalProperties": {"type": "integer"}}, {"x": 1}, True),
        ({"properties": {"y": {}}, "additionalProperties": {"type": "integer"}}, {"x": "1"}, True),
        ({"properties": {"y": {}}, "allOf": [{"properties": {"x": {}}}]}, {"x": 1}, True),
        ({"properties": {"y": {}}, "additionalProperties": False, "allOf": [{}]}, {"x": 1}, False),
        ({"properties": {"y": {}}, "$defs": {"n": {"type": "integer"}}}, {"y": "any"}, True),
        ({"properties": {"y": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}, {"y": "1"}, True),
        ({"properties": {"y": {"$ref": "http://127.0.0.1:9/schema"}}}, {"y": 1}, True),
        ({"properties": {"y": {"type": "text", "pattern": "^(a+)+$"}}}, {"y": "a" * 99 + "!"}, True),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"y": {"type": "null"}}},
            {"y": None},
            True,
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"y": {"type": "null"}}},
            {"y": 1},
            False,
        ),
    ],
)
def test_keywords_of_foreign_schemas(schema, arguments, taken):
    parameters = Parameters.from_schema(schema)
    if taken:
        assert parameters.check(arguments) == arguments
    else:
        problem(parameters, arguments)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"type": "string"},
        {"type": "object", "properties": []},
        {"required": "x"},
    ],
)
def test_an_invalid_schema_is_refused(schema):
    with pytest.raises(UserError, match=r"^a tool's schema .+$"):
        Parameters.from_schema(schema)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    row: int


@dataclass
class Spot:
    row: int


KINDS: list[tuple[Any, Any, Any]] = [
    (tuple[int, int], [1, 2], (1, 2)),
    (tuple[str, ...], ["a"], ("a",)),
    (set[str], ["a", "b"], {"a", "b"}),
    (frozenset[int], [], frozenset()),
    (Colour, "red", Colour.RED),
    (list[Colour], ["red", "blue"], [Colour.RED, Colour.BLUE]),
    (date, "2024-02-29", date(2024, 2, 29)),
    (datetime, "2024-02-29T12:00:00", datetime(2024, 2, 29, 12)),
    (timedelta, "P1D", timedelta(days=1)),
    (Decimal, "1.50", Decimal("1.50")),
    (Decimal, 1.5, Decimal("1.5")),
    (Path, "/tmp", Path("/tmp")),
    (bytes, "ab", b"ab"),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (Place, {"row": 1}, Place(row=1)),
    (Spot, {"row": 1}, Spot(1)),
    (str | date, "2024-02-29", "2024-02-29"),
]
"""A type hint that JSON has no value of, what a model writes, and what the function gets."""


def taking(hint: Any) -> Parameters:
    """Those of a function with one parameter."""

    def take(x): ...

    take.__annotations__ = {"x": hint}
    return Parameters.of(take)


@pytest.mark.parametrize(("hint", "written", "value"), KINDS)
def test_values_without_a_json_form_are_read(hint: Any, written: Any, value: Any):
    parameters = taking(hint)
    assert Draft202012Validator(parameters.schema).is_valid({"x": written})
    checked = parameters.check({"x": written})
    assert checked == {"x": value} and type(checked["x"]) is type(value)
    shown = json_values(checked)  # what an approver sees, and may leave unchanged
    assert json.loads(json.dumps(shown)) == shown and parameters.check(shown) == checked
