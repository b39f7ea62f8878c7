"""What a tool takes: one JSON Schema, from type hints and a docstring or written by somebody else, and its check.

Nothing is coerced: `"1"` is no whole number. A whole number is a number, though, and what JSON has no value of, such as
a tuple, a date or an enum, is read from what the schema says. What is wrong is said on one line, all of it at once, so
that a model can repair its call.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, get_type_hints

import docstring_parser.google

from orgthink.util.beside import Threads
from orgthink.util.errors import UserError, nearest
from orgthink.util.redaction import redact

if TYPE_CHECKING:
    from pydantic import BaseModel

_VALUE_CHARACTERS = 60
"""Characters of a name or a value that are shown."""
_MESSAGE_CHARACTERS = 240
"""Characters of what is said of one value."""
_PROBLEMS = 5
"""Problems that are spelled out; the others are counted."""

Read = Callable[[dict[str, Any]], tuple[dict[str, Any], list[str]]]
"""Arguments → the same with defaults filled in, and what is wrong with their values."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a tool takes."""

    schema: dict[str, Any]
    """JSON Schema of the arguments, an object. Shared: not to be changed."""
    read: Read
    """Looks at the values; the names are looked at here."""
    queue: Threads | None = None
    """Where checks wait for each other if somebody else wrote the schema: those by one server, not those by others."""

    async def judge(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`check`, in a thread if it is for a stranger to say how long it takes: the loop goes on meanwhile."""
        return self.check(arguments) if self.queue is None else await self.queue.run(self.check, arguments)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the defaults filled in; ValueError with one line that says all that is wrong."""
        if not isinstance(arguments, Mapping):
            raise ValueError(f"the arguments are an object by parameter, not {_quoted(arguments)}")
        try:
            filled, wrong = self.read(dict(arguments))
        except (ArithmeticError, RecursionError) as error:  # of a number or a nesting that no tool was meant for
            raise ValueError(f"the arguments cannot be checked: {_shortened(str(error))}") from error
        problems = [*_wrong_names(arguments, self.schema), *wrong]
        if problems:
            more = [f"and {len(problems) - _PROBLEMS} more"] if len(problems) > _PROBLEMS else []
            raise ValueError("; ".join([*problems[:_PROBLEMS], *more]))
        return filled

    @staticmethod
    def of(function: Callable[..., Any]) -> Parameters:
        """Those of a function: types and defaults from its signature, descriptions from `Args:` in its docstring.

        UserError if a parameter cannot be given by name or has no type that JSON can say.
        """
        return _of(function)

    @staticmethod
    def from_schema(schema: Mapping[str, Any], queue: Threads | None = None) -> Parameters:
        """Those of a schema that somebody else wrote, an MCP server for one, who fills in the defaults, too.

        Values are checked where `jsonschema` is installed. A name that the schema does not list is unknown unless it
        says otherwise. UserError if the schema is none, or none that can be checked within bounds. `queue` is that of
        its server; without one the schema has its own.
        """
        if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
            raise UserError('a tool\'s schema is that of an object: {"type": "object", "properties": {…}}')
        if not isinstance(schema.get("properties", {}), Mapping) or not isinstance(schema.get("required", []), list):
            raise UserError('a tool\'s schema has "properties" by name and a list "required"')
        return Parameters(dict(schema), _schema_reader(dict(schema)), queue or Threads(1))


@lru_cache(maxsize=256)  # bounded: a function made in an episode must not outlive it for ever
def _of(function: Callable[..., Any]) -> Parameters:
    from pydantic import ConfigDict, Field, PydanticUserError, create_model
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        """A schema without titles, which only repeat the names."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    descriptions = _descriptions(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    for i, (parameter, hint) in enumerate(_typed(function)):
        default = ... if parameter.default is parameter.empty else parameter.default
        # The name is an alias: one like `schema` or `_x` would be no field of a model.
        described: dict[str, Any] = (
            {"description": descriptions[parameter.name]} if parameter.name in descriptions else {}
        )
        fields[f"p{i}"] = (hint, Field(default, alias=parameter.name, **described))
    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    try:
        model = create_model("Arguments", __config__=config, **fields)
        schema = model.model_json_schema(schema_generator=Untitled)
    except PydanticUserError as error:
        raise UserError(f"tool {function.__name__}: {error.message.splitlines()[0]}") from error
    names = {field: info.alias or field for field, info in model.model_fields.items()}
    schema = {"type": "object", "properties": {}, **schema}
    return Parameters({key: schema[key] for key in schema if key != "title"}, _model_reader(model, names))


def _typed(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Any]]:
    """The parameters of a function and their types."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UserError(f"tool {function.__name__}: a type hint cannot be resolved: {error}") from error
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UserError(f"tool {function.__name__}: {parameter} cannot be given by name")
        if parameter.name not in hints:
            raise UserError(f"tool {function.__name__}: give {parameter.name} a type hint")
        yield parameter, hints[parameter.name]


def _descriptions(docstring: str) -> dict[str, str]:
    """What the section `Args:` says of each parameter, on one line."""
    found = docstring_parser.google.parse(docstring).params
    return {one.arg_name: " ".join((one.description or "").split()) for one in found}


def _model_reader(model: type[BaseModel], names: dict[str, str]) -> Read:
    """Checks with pydantic; `names` are the parameters by field."""
    from pydantic import ValidationError

    def read(arguments: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        known = {name: value for name, value in arguments.items() if name in names.values()}
        try:
            checked = _validated(model, known)
        except ValidationError as invalid:
            errors = invalid.errors(include_url=False, include_context=False)
            wrong = [e for e in errors if e["type"] != "missing" or len(e["loc"]) > 1]  # others: `_wrong_names`
            return {}, [f"{_path(e['loc'])}: {_shortened(e['msg'])}, got {_quoted(e['input'])}" for e in wrong]
        return {name: getattr(checked, field) for field, name in names.items()}, []

    return read


def _validated(model: type[BaseModel], known: dict[str, Any]) -> BaseModel:
    """The arguments by JSON's rules, in which a list is a tuple or a set, and a text a date: in Python's none is.

    Arguments that were checked before pass again. What JSON cannot hold is looked at as it is: half of a surrogate
    pair, thousands of digits, hundreds of levels.
    """
    from pydantic import ValidationError
    from pydantic_core import to_json

    try:
        return model.model_validate_json(to_json(known, inf_nan_mode="constants"))
    except ValidationError as invalid:
        if invalid.error_count() > 1 or invalid.errors()[0]["loc"]:
            raise
    except ValueError:
        pass
    return model.model_validate(known)


def json_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Checked arguments as JSON values, which pass the check again. A default that is none is shown as a text."""
    from pydantic_core import to_jsonable_python

    def as_json(value: Any) -> Any:
        try:
            return to_jsonable_python(value, fallback=str)
        except ValueError:  # of bytes that are no text, or of hundreds of levels
            return str(value)

    return {name: as_json(value) for name, value in arguments.items()}


def _schema_reader(schema: dict[str, Any]) -> Read:
    """Checks with `jsonschema`; without it everything passes."""
    if find_spec("jsonschema") is None:
        return lambda arguments: (arguments, [])
    from orgthink.tools.foreign_schema import checker

    errors = checker(schema)
    named = ("required", "additionalProperties") if _is_closed(schema) else ("required",)  # found by `_wrong_names`

    def read(arguments: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        try:
            found = errors(arguments)
        except ArithmeticError:  # of a number that no tool was meant for
            raise
        except Exception as error:  # the package raises many kinds, all of them about the schema
            return {}, [f"the tool's own schema cannot be used: {_shortened(str(error))}"]
        wrong = [e for e in found if len(e.absolute_schema_path) > 1 or e.validator not in named]
        return arguments, [f"{_path(tuple(e.absolute_path))}: {_shortened(e.message)}" for e in wrong]

    return read


_OPENING = ("patternProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "$ref", "$dynamicRef")
"""Keywords by which a schema may allow names that its properties do not list."""


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Whether a name that is not listed is unknown. Many a server leaves it open and then drops what is misspelt."""
    others = schema.get("additionalProperties", "properties" not in schema)
    return others is False and not any(keyword in schema for keyword in _OPENING)


def _wrong_names(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with the names. The nearest ones are looked for only as often as they are shown."""
    known = schema.get("properties", {})
    unknown = [name for name in arguments if name not in known] if _is_closed(schema) else []
    hints = [_hint(name, list(known)) for name in unknown[:_PROBLEMS]]
    missing = [f"missing parameter {_quoted(name)}" for name in schema.get("required", ()) if name not in arguments]
    return [*hints, *unknown[_PROBLEMS:], *missing]


def _hint(name: str, known: list[str]) -> str:
    near = nearest(name, known, cutoff=0.5)
    takes = f"there is {_shortened(', '.join(map(_quoted, known)))}" if known else "there are none"
    return f"unknown parameter {_quoted(name)}: {f'did you mean {_quoted(near)}?' if near else takes}"


def _path(location: tuple[int | str, ...]) -> str:
    """`xs[2].name` in quotes."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return _quoted("".join(steps).removeprefix(".")) if steps else "the arguments"


def _quoted(value: Any) -> str:
    return _short(json.dumps(value, ensure_ascii=False, default=str), _VALUE_CHARACTERS)


def _shortened(text: str) -> str:
    return _short(text, _MESSAGE_CHARACTERS)


def _short(text: str, limit: int) -> str:
    """On one line, without the middle if it is too long. Secrets are found before: half of one might be left."""
    line = " ".join(redact(text).split())
    if len(line) <= limit:
        return line
    return f"{line[: limit // 2]} … {line[-limit // 2 :]}"
