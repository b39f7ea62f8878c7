"""What a tool takes: the schema that a function gives, and every way to miss it."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from orgthink.tools import schema as module
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
          (`None`: nobody).
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
                "description": "Who reads them (`None`: nobody).",
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
        ({}, ['missing parameter "queries"']),
        ({"querys": ["a"]}, ['unknown parameter "querys": did you mean "queries"?', 'missing parameter "queries"']),
        ({"queries": [], "zzz": 1}, ['unknown parameter "zzz": there is "queries", "depth"']),
        ({"queries": "a"}, ['"queries"', "valid array", 'got "a"']),
        ({"queries": None}, ['"queries"', "valid array", "got null"]),
        ({"queries": ["a", 1]}, ['"queries[1]"', "string", "got 1"]),
        ({"queries": [], "depth": "1"}, ['"depth"', "integer", 'got "1"']),
        ({"queries": [], "depth": 1.0}, ['"depth"', "integer", "got 1.0"]),
        ({"queries": [], "depth": True}, ['"depth"', "integer", "got true"]),
        ({"queries": [], "depth": None}, ['"depth"', "integer", "got null"]),
        ({"queries": [], "share": "0.5"}, ['"share"', "number", 'got "0.5"']),
        ({"queries": [], "share": True}, ['"share"', "number", "got true"]),
        ({"queries": [], "share": float("nan")}, ['"share"', "finite"]),
        ({"queries": [], "order": "old"}, ['"order"', "'new' or 'best'", 'got "old"']),
        ({"queries": [], "model": 4}, ['"model"', "string", "got 4"]),
        ({"queries": [], "exact": 1}, ['"exact"', "boolean", "got 1"]),
        ({"queries": [], "exact": "true"}, ['"exact"', "boolean", 'got "true"']),
        ({"queries": [], "schema": [1, "2"]}, ['"schema[1]"', "integer", 'got "2"']),
        ({"queries": [], "p0": 1}, ['unknown parameter "p0"']),
        ({"queries": 1, "depth": "x", "share": [], "deep": 0}, ['"deep"', '"queries"', '"depth"', '"share"']),
        ({"queries": list(range(9))}, ['"queries[0]"', '"queries[4]"', "and 4 more"]),
        ({"queries": [], "depth": "x\n" * 9999}, ['"depth"', " … "]),
        ({"queries": [], "q" * 99999: 1}, ["unknown parameter", " … "]),
        ({"queries": [], "a\nb\u2028c": 1}, ["unknown parameter"]),
        ([["queries", []]], ["object by parameter"]),
        ("{}", ["object by parameter", '"{}"']),
    ],
)
def test_what_is_wrong_is_said_on_one_line(arguments, says):
    said = problem(Parameters.of(search), arguments)
    assert not [word for word in says if word not in said]


def test_a_function_without_parameters_takes_none():
    assert problem(Parameters.of(bare), {"x": 1}) == 'unknown parameter "x": there are none'


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
    assert '"count": Input should be less than or equal to 4, got 5' in said and '"_of.a"' in said


def untyped(x): ...
def starred(*args: int): ...
def keywords(**options: int): ...
def positional(x: int, /): ...
def unresolved(x: Nowhere): ...  # noqa: F821
def opaque(x: weakref.ref): ...


@pytest.mark.parametrize("function", [untyped, starred, keywords, positional, unresolved, opaque])
def test_functions_that_are_no_tools(function):
    with pytest.raises(UserError, match=f"^tool {function.__name__}: .+$"):
        Parameters.of(function)


def test_a_function_is_looked_at_once_and_not_kept_for_ever():
    assert Parameters.of(search) is Parameters.of(search)
    assert Parameters.of(search).schema is Parameters.of(search).schema

    def passing(x: int) -> None: ...

    kept = weakref.ref(passing)
    Parameters.of(passing)
    del passing
    for i in range(300):
        exec(f"def other(x: int = {i}): ...", names := {})
        Parameters.of(names["other"])
    gc.collect()
    assert kept() is None


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(list(Parameters.of(search).schema["properties"])) | st.text(max_size=5)
NEAR = st.fixed_dictionaries(
    {"queries": st.lists(st.text(max_size=3), max_size=2)},
    optional={
        "depth": st.integers() | VALUES,
        "share": st.floats(0, 1) | VALUES,
        "model": st.none() | st.text() | VALUES,
    },
)


@given(NEAR | st.dictionaries(NAMES, VALUES, max_size=4))
def test_the_check_is_that_of_the_schema(arguments):
    """Against the reference implementation, which takes 1.0 for a whole number."""
    parameters = Parameters.of(search)
    valid = Draft202012Validator(parameters.schema).is_valid(arguments)
    whole = [
        v for name in ("depth", "schema") for v in [arguments.get(name)] for v in (v if isinstance(v, list) else [v])
    ]
    valid = valid and not any(isinstance(value, float) for value in whole)
    if valid:
        checked = parameters.check(arguments)
        assert {name: checked[name] for name in arguments} == arguments
        assert set(checked) == set(parameters.schema["properties"])
        assert parameters.check(checked) == checked
    else:
        problem(parameters, arguments)


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


def test_a_schema_of_somebody_else():
    """Defaults and patterns are the server's: one pattern of a stranger can take for ever."""
    parameters = Parameters.from_schema(SERVER)
    assert parameters.schema == SERVER
    assert parameters.check({"path": "a" * 200 + "!"}) == {"path": "a" * 200 + "!"}
    assert parameters.check({"path": "x", "lines": [1], "mode": "r", "options": {"n": None}})["lines"] == [1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pth": "x"}, ['unknown parameter "pth": did you mean "path"?', 'missing parameter "path"']),
        ({"path": 1}, ['"path": 1 is not of type']),
        ({"path": "x", "lines": [1, 0]}, ['"lines[1]": 0 is less than the minimum of 1']),
        ({"path": "x", "mode": "a"}, ['"mode"', "['r', 'w']"]),
        ({"path": "x", "options": {}}, ['"options"', "'n' is a required property"]),
        ({"path": "x", "options": {"n": 1, "m": 2}}, ['"options"', "'m' was unexpected"]),
        ({"path": ["x" * 9999]}, ['"path"', " … ", "is not of type 'string'"]),
        ([], ["object by parameter"]),
    ],
)
def test_what_somebody_elses_schema_refuses(arguments, says):
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
        ({"properties": {"y": {}}, "additionalProperties": {"type": "integer"}}, {"x": "1"}, False),
        ({"properties": {"y": {}}, "allOf": [{"properties": {"x": {}}}]}, {"x": 1}, True),
        ({"properties": {"y": {}}, "allOf": [{"required": ["x"]}]}, {"y": 1}, False),
        ({"properties": {"y": {}}, "additionalProperties": False, "allOf": [{}]}, {"x": 1}, False),
        ({"properties": {"y": {}}, "$defs": {"n": {"type": "integer"}}}, {"y": "any"}, True),
        ({"properties": {"y": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}, {"y": "1"}, False),
        ({"properties": {"y": {"$ref": "#/$defs/m"}}}, {"y": 1}, False),
        ({"$ref": "#"}, {"y": 1}, False),
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
def test_what_other_schemas_say(schema, arguments, taken):
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
        {"properties": {"x": {"type": "text"}}},
    ],
)
def test_what_is_no_schema(schema):
    with pytest.raises(UserError, match=r"^a tool's schema .+$"):
        Parameters.from_schema(schema)


def test_numbers_that_a_check_cannot_take_are_the_models_problem():
    halves = Parameters.from_schema({"properties": {"x": {"multipleOf": 0.5}}})
    assert halves.check({"x": 1.5}) == {"x": 1.5}
    assert "cannot be checked" in problem(halves, {"x": 10**400})


def test_names_are_checked_without_the_package(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    parameters = Parameters.from_schema(SERVER)
    assert parameters.check({"path": 1}) == {"path": 1}
    said = problem(parameters, {"pth": 1})
    assert 'did you mean "path"?' in said and 'missing parameter "path"' in said
    problem(parameters, [])


@given(st.dictionaries(st.sampled_from(list(SERVER["properties"])) | st.text(max_size=3), VALUES, max_size=4))
def test_any_arguments_are_judged_by_a_schema_of_somebody_else(arguments):
    closed = {
        **SERVER,
        "additionalProperties": False,
        "properties": {**SERVER["properties"], "path": {"type": "string"}},
    }
    if Draft202012Validator(closed).is_valid(arguments):
        assert Parameters.from_schema(SERVER).check(arguments) == arguments
    else:
        problem(Parameters.from_schema(SERVER), arguments)


@pytest.mark.parametrize("target", ["http://127.0.0.1:9/schema", "file:///etc/hostname"])
def test_a_schema_that_lies_elsewhere_is_not_fetched(target):
    with pytest.raises(UserError, match="points elsewhere"):
        Parameters.from_schema({"properties": {"y": {"$ref": target}}})


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
def test_what_json_has_no_value_of_is_read_from_what_the_schema_says(hint: Any, written: Any, value: Any):
    parameters = taking(hint)
    assert Draft202012Validator(parameters.schema).is_valid({"x": written})
    checked = parameters.check({"x": written})
    assert checked == {"x": value} and type(checked["x"]) is type(value)
    assert parameters.check(checked) == checked


@pytest.mark.parametrize(("hint", "written", "value"), KINDS)
def test_an_approver_sees_json_and_what_it_leaves_alone_still_fits(hint: Any, written: Any, value: Any):
    parameters = taking(hint)
    shown = json_values(parameters.check({"x": written}))
    assert json.loads(json.dumps(shown)) == shown
    assert parameters.check(shown) == {"x": value}


def test_what_is_no_json_is_shown_as_a_text():
    shown = json_values({"object": object, "bytes": b"\xff", "half": "\ud800", "number": 10**400})
    assert shown == {"object": str(object), "bytes": str(b"\xff"), "half": "\ud800", "number": 10**400}


@pytest.mark.parametrize(
    ("hint", "written", "says"),
    [
        (tuple[int, int], [1, "2"], '"x[1]": Input should be a valid integer, got "2"'),
        (tuple[int, int], "12", '"x": Input should be a valid array, got "12"'),
        (tuple[int, int], [1, 2, 3], '"x": Tuple should have at most 2 items'),
        (tuple[int, int], [1], '"x[1]": Field required'),
        (set[str], {"a": 1}, '"x": Input should be a valid array'),
        (set[str], ["a", 1], '"x[1]": Input should be a valid string, got 1'),
        (Colour, "green", """"x": Input should be 'red' or 'blue', got "green\""""),
        (date, "tomorrow", '"x": Input should be a valid date'),
        (date, 20240229, '"x": Input should be a valid date'),
        (Decimal, "much", '"x": Input should be a valid decimal, got "much"'),
        (Decimal, "NaN", '"x": Input should be a finite number'),
        (Path, 1, '"x": Input should be a valid string, got 1'),
        (bytes, 1, '"x": Input should be a valid bytes, got 1'),
        (dict[int, str], {"a": "a"}, '"x.a.[key]": Input should be a valid integer'),
        (Spot, {"row": "1"}, '"x.row": Input should be a valid integer, got "1"'),
        (Place, [1], '"x": Input should be an object'),
        (float, float("inf"), '"x": Input should be a finite number'),
        (float, 10**400, '"x": Input should be a finite number'),
        (int, "\ud800", '"x": Input should be a valid integer'),
    ],
)
def test_what_is_none_of_these_is_said_on_one_line(hint: Any, written: Any, says: str):
    assert problem(taking(hint), {"x": written}).startswith(says)


DEEP = json.loads("[" * 300 + "]" * 300)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (str, "\ud800"),
        (list[str], ["\ud83d\ude00 \udfff"]),
        (Any, DEEP),
        (int, 10**400),
        (Any, 0.1 + 0.2),
        (str, "\x00\u2028"),
    ],
)
def test_what_json_cannot_write_is_taken_as_it_is(hint: Any, value: Any):
    assert taking(hint).check({"x": value}) == {"x": value}


def test_a_number_of_more_digits_than_python_writes_is_taken():
    assert taking(int).check({"x": 10**5000})["x"] == 10**5000


def test_what_json_cannot_write_is_refused_by_its_type_and_not_as_json():
    for hint, value in ((str, DEEP), (int, DEEP)):
        assert problem(taking(hint), {"x": value}).startswith('"x": Input should be a valid')


def test_what_is_missing_deeper_down():
    def put(place: Place) -> None: ...

    assert '"place.row": Field required' in problem(Parameters.of(put), {"place": {}})
