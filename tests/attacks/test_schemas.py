"""Hostile JSON Schemas: their cost, and what they may refer to."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within

from orgthink.tools import schema as module
from orgthink.tools.schema import Parameters
from orgthink.util.errors import UserError

BOUNDED = "A check of arguments takes bounded time, whatever the schema and the arguments are."
LOOP = "A check by a stranger's schema stops no other episode, and no deadline."
REFUSED = "A schema that cannot be checked within bounds is refused when its server is opened, on one line."
SERVERS = "A keyword with a regular expression is left to the server: it neither runs here nor refuses a right call."

pytestmark = pytest.mark.thorough

EVIL = "^(a+)+$"
BAIT = "a" * 40 + "!"
"""It takes `EVIL` hours."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is reached sooner."""
    monkeypatch.setattr(module, "SECONDS", 0.2)


def checked(schema: dict[str, Any], arguments: dict[str, Any]) -> str:
    """What is wrong with the arguments, on one line; empty if nothing is."""
    parameters = within(60, lambda: Parameters.from_schema(schema))
    try:
        within(60, lambda: parameters.check(arguments))
    except ValueError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 2_000
        return str(error)
    return ""


def doubling(levels: int, keyword: str = "allOf") -> dict[str, Any]:
    """Each definition uses the one before twice."""
    definitions: dict[str, Any] = {"a0": {"type": "string"}}
    for i in range(1, levels):
        definitions[f"a{i}"] = {keyword: [{"$ref": f"#/$defs/a{i - 1}"}] * 2}
    return {"$defs": definitions, "properties": {"x": {"$ref": f"#/$defs/a{levels - 1}"}}}


@each(
    Attack("a `$ref` that doubles the work thirty times", BOUNDED, "the call is refused after a second",
           (doubling(30), {"x": "1"})),
    Attack("a doubling `$ref` below `anyOf`, all of whose branches fail", BOUNDED, "the call is refused after a second",
           (doubling(30, "anyOf"), {"x": 1})),
    Attack("a `$ref` to itself", BOUNDED, "the call is refused",
           ({"properties": {"x": {"$ref": "#/properties/x"}}}, {"x": 1})),
    Attack("two `$ref` that point to each other", BOUNDED, "the call is refused",
           ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
             "properties": {"x": {"$ref": "#/$defs/a"}}}, {"x": 1})),
    Attack("an `enum` of 8,000 arrays for an array of 20,000", BOUNDED, "the call is refused after a second",
           ({"properties": {"x": {"items": {"enum": [[i] for i in range(8_000)]}}}}, {"x": list(range(20_000))})),
    Attack("a `$ref` that leads nowhere", BOUNDED, "the call is refused",
           ({"properties": {"x": {"$ref": "#/$defs/none"}}}, {"x": 1})),
)  # fmt: skip
def test_what_takes_too_long_is_refused(attack: Attack) -> None:
    assert "cannot be" in checked(*attack.given)


@each(
    Attack("an argument of a megabyte that is wrong in 150 ways", BOUNDED, "five are named, each shortened",
           ({"properties": {"x": {"allOf": [{"type": "integer"}] * 150}}}, {"x": "x" * 1_000_000})),
    Attack("an argument of a megabyte that is wrong in all of 150 branches", BOUNDED, "one is named, shortened",
           ({"properties": {"x": {"anyOf": [{"type": "integer"}] * 150}}}, {"x": "x" * 1_000_000})),
)  # fmt: skip
def test_errors_do_not_repeat_a_large_argument(attack: Attack) -> None:
    tracemalloc.start()
    try:
        assert checked(*attack.given)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@each(
    Attack("`patternProperties` with `^(a+)+$`", SERVERS, "the call is made",
           ({"patternProperties": {EVIL: {}}}, {BAIT: 1})),
    Attack("`patternProperties` with `^(a+)+$` beside `additionalProperties`", SERVERS, "the call is made",
           ({"properties": {}, "patternProperties": {EVIL: {}}, "additionalProperties": False}, {BAIT: 1})),
    Attack("`pattern` with `^(a+)+$`", SERVERS, "the call is made",
           ({"properties": {"x": {"pattern": EVIL}}}, {"x": BAIT})),
    Attack("a `pattern` below a `$schema` of its own", SERVERS, "the call is made",
           ({"properties": {"x": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EVIL}}},
            {"x": BAIT})),
    Attack("a `pattern` that a `$ref` to the whole schema leads to", SERVERS, "the call is made",
           ({"$schema": "http://json-schema.org/draft-07/schema#",
             "properties": {"x": {"$ref": "#"}, "y": {"pattern": EVIL}}}, {"x": {"y": BAIT}})),
    Attack("a `pattern` for names, in `propertyNames`", SERVERS, "the call is made",
           ({"propertyNames": {"pattern": EVIL}}, {BAIT: 1})),
    Attack("`unevaluatedProperties` behind `patternProperties`", SERVERS, "the call is made",
           ({"allOf": [{"patternProperties": {EVIL: {}}}], "unevaluatedProperties": False}, {BAIT: 1})),
    Attack("`unevaluatedItems` behind a doubling `$ref`", SERVERS, "the call is made",
           ({"$defs": {"a0": {}, **{f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i - 1}"}]} for i in range(1, 9)}},
             "properties": {"x": {"allOf": [{"$ref": "#/$defs/a8"}], "unevaluatedItems": False}}}, {"x": [1]})),
    Attack("a `pattern` within `not`, which would refuse every call", SERVERS, "the call is made",
           ({"properties": {"x": {"not": {"pattern": EVIL}}}}, {"x": BAIT})),
    Attack("a `pattern` in each branch of `oneOf`", SERVERS, "the call is made",
           ({"properties": {"x": {"oneOf": [{"pattern": EVIL}, {"pattern": "^b"}]}}}, {"x": BAIT})),
    Attack("a `pattern` that takes minutes to compile", SERVERS, "the call is made",
           ({"properties": {"x": {"pattern": "(?i)" + "[\\x00-\\U0010ffff]" * 2_000}}}, {"x": "a"})),
)  # fmt: skip
def test_no_regular_expression_runs_here(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    import jsonschema._keywords as keywords
    import jsonschema._utils as utils

    class Forbidden:
        """Fails at once where a regular expression of a stranger would run for hours."""

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"re.{name} was called")

    for part in (keywords, utils):
        monkeypatch.setattr(part, "re", Forbidden(), raising=False)
    assert checked(*attack.given) == ""


def nested(levels: int, keyword: str) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {keyword: schema}
    return {"properties": {"x": schema}}


@each(
    Attack("a schema of 30,000 parts", REFUSED, "exit code 2: most characters that are supported",
           {"allOf": [{}] * 30_000}),
    Attack("a description of 10 MB within a schema", REFUSED, "exit code 2: most characters that are supported",
           {"properties": {"x": {"description": "x" * 10_000_000}}}),
    Attack("a schema of 400 levels", REFUSED, "exit code 2", nested(400, "not")),
    Attack("a schema of 5,000 levels", REFUSED, "exit code 2: it nests too deep", nested(5_000, "items")),
    Attack("a list `required` of 10,000 objects, to be compared with each other", REFUSED, "exit code 2",
           {"properties": {"x": {"required": [{"a": i} for i in range(5_000)]}}}),
    Attack("a `$ref` to a file", REFUSED, "exit code 2, and nothing is read",
           {"properties": {"x": {"$ref": "file:///etc/passwd"}}}),
    Attack("a `$ref` to a server in the local network", REFUSED, "exit code 2, and nothing is sent",
           {"properties": {"x": {"$ref": "http://169.254.169.254/latest/meta-data"}}}),
    Attack("a `$ref` to the schema of schemas, which comes back by `$dynamicRef`", REFUSED, "exit code 2",
           {"$dynamicAnchor": "meta", "pattern": EVIL,
            "properties": {"x": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}}),
    Attack("`properties` that are a list", REFUSED, "exit code 2", {"properties": [["x", {}]]}),
    Attack("`required` that is a text", REFUSED, "exit code 2", {"required": "x"}),
    Attack("a type that there is not", REFUSED, "exit code 2", {"properties": {"x": {"type": "text"}}}),
    Attack("a part that is a number", REFUSED, "exit code 2", {"properties": {"x": {"allOf": [7]}}}),
    Attack("a `$schema` that is a list", REFUSED, "exit code 2", {"$schema": []}),
    Attack("a `$schema` that is an object", REFUSED, "exit code 2", {"$schema": {}}),
    Attack("a `$schema` that is a number", REFUSED, "exit code 2", {"$schema": 7}),
    Attack("a schema of a text, not of an object", REFUSED, "exit code 2", {"type": "string"}),
)  # fmt: skip
def test_a_schema_that_is_refused(attack: Attack) -> None:
    with pytest.raises(UserError, match=r"^a tool's schema ") as refused:
        within(60, lambda: Parameters.from_schema(attack.given))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


@each(
    Attack("10,000 unknown parameters where 2,000 are known", BOUNDED, "five are named, the others are counted",
           ({f"name_of_parameter_{i}": {} for i in range(2_000)}, {f"nam_of_param_{i}": 1 for i in range(10_000)})),
    Attack("a parameter's name of a million characters", BOUNDED, "it is shown shortened",
           ({f"x{i}": {} for i in range(2_000)}, {"x" * 1_000_000: 1})),
    Attack("an unknown parameter where 2,000 long ones are known", BOUNDED, "the list of these is shortened",
           ({f"{i}" + "x" * 30: {} for i in range(2_000)}, {"?": 1})),
)  # fmt: skip
def test_what_is_wrong_with_names_is_short(attack: Attack) -> None:
    properties, arguments = attack.given
    assert "unknown parameter" in checked({"properties": properties}, arguments)


@each(
    Attack("a check that takes its full second, beside other episodes", LOOP, "the other episodes go on",
           (doubling(30), {"x": "1"})),
    Attack("four such checks at once", LOOP, "the other episodes go on", (doubling(30), {"x": "1"}, 4)),
)  # fmt: skip
async def test_the_loop_goes_on(attack: Attack) -> None:
    schema, arguments, *times = attack.given
    parameters = Parameters.from_schema(schema)
    checks = [asyncio.create_task(parameters.judge(arguments)) for _ in range(*times or (1,))]
    turns = 0
    while not all(check.done() for check in checks):
        await asyncio.sleep(0)
        turns += 1
    assert all("too long" in str(check.exception()) for check in checks)
    assert turns > 20, "the loop stood still"


@each(
    Attack("arguments that nest as deep as Python's stack", BOUNDED, "the call is refused",
           ({"properties": {"x": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": {"items": {"$ref": "#/$defs/tree"}}}},
            sys.getrecursionlimit())),
)  # fmt: skip
def test_deep_arguments(attack: Attack) -> None:
    schema, levels = attack.given
    value: Any = []
    for _ in range(levels):
        value = [value]
    assert "cannot be" in checked(schema, {"x": value})
