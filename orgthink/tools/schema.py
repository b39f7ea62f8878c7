"""Parameters of a tool: a JSON Schema, made from type hints or sent by an MCP server, and its check by jsonschema.

Nothing is coerced: `"1"` is not a whole number. The check reports all errors on one line, so that a model can repair
its call. For an MCP server, only the names of parameters and the types of their values are checked here; the server
checks the rest.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, get_type_hints

import docstring_parser.google
from jsonschema import Draft202012Validator

from orgthink.util.errors import UserError, explained
from orgthink.util.redaction import redact

if TYPE_CHECKING:
    from pydantic import BaseModel

CHARACTERS = 100_000
"""Most characters of a foreign schema, as JSON."""
_VALUE_CHARACTERS = 60
"""Characters of a name or a value in a message."""
_MESSAGE_CHARACTERS = 240
"""Characters of a message about one value."""
_PROBLEMS = 5
"""Problems that are spelled out; the others are counted."""
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_OPENING = ("patternProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "$ref", "$dynamicRef")
"""Keywords by which a schema may allow names that its properties do not list."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a tool."""

    schema: dict[str, Any]
    """JSON Schema of the arguments, an object. Shared: must not be changed."""
    validator: Any
    """Checks arguments by the schema."""
    model: type[BaseModel] | None = None
    """Parameters of a function: it fills in defaults, and reads a tuple, a date or an enum from JSON."""

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with defaults; ValueError with one line that names all errors."""
        if not isinstance(arguments, Mapping):
            raise ValueError(f"the arguments must be an object, not {_quoted(arguments)}")
        try:
            found = list(islice(self.validator.iter_errors(dict(arguments)), 10 * _PROBLEMS))
        except RecursionError as error:
            raise ValueError("the arguments cannot be checked: they nest too deep") from error
        if found:
            wrong = [f"{_path(tuple(one.absolute_path))}: {_short(one.message)}" for one in found[:_PROBLEMS]]
            more = [f"and {len(found) - _PROBLEMS} more"] if len(found) > _PROBLEMS else []
            raise ValueError("; ".join([*wrong, *more]))
        return dict(arguments) if self.model is None else self._read(self.model, arguments)

    def _read(self, model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
        from pydantic import ValidationError

        try:
            read = model.model_validate(dict(arguments))
        except ValidationError as invalid:
            one = invalid.errors(include_url=False, include_context=False)[0]
            raise ValueError(f"{_path(one['loc'])}: {_short(one['msg'])}, got {_quoted(one['input'])}") from None
        return {info.alias or field: getattr(read, field) for field, info in model.model_fields.items()}

    @staticmethod
    def of(function: Callable[..., Any]) -> Parameters:
        """Parameters of a function: types and defaults from its signature, descriptions from `Args:` in its docstring.

        UserError if a parameter cannot be passed by name or its type has no JSON Schema.
        """
        return _of(function)

    @staticmethod
    def from_schema(schema: Mapping[str, Any]) -> Parameters:
        """Parameters by a foreign schema. A name that the schema does not list is unknown unless the schema says
        otherwise. UserError if the schema is not that of an object, or too large."""
        if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
            raise UserError('a tool\'s schema is that of an object: {"type": "object", "properties": {…}}')
        if not isinstance(schema.get("properties", {}), Mapping) or not isinstance(schema.get("required", []), list):
            raise UserError('a tool\'s schema has "properties" by name and a list "required"')
        try:
            size = len(json.dumps(schema, ensure_ascii=False))
        except RecursionError:
            raise UserError("a tool's schema nests too deep") from None
        if size > CHARACTERS:
            raise UserError(f"a tool's schema has {size} characters: at most {CHARACTERS} are supported")
        return Parameters(dict(schema), Draft202012Validator(_checked(schema)))


@lru_cache(maxsize=256)  # bounded: a function made in an episode must not outlive it
def _of(function: Callable[..., Any]) -> Parameters:
    from pydantic import ConfigDict, Field, PydanticUserError, create_model
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        """A schema without titles, which only repeat the names."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    described = {one.arg_name: one.description for one in docstring_parser.google.parse(function.__doc__ or "").params}
    fields: dict[str, Any] = {}
    for i, (parameter, hint) in enumerate(_typed(function)):
        default = ... if parameter.default is parameter.empty else parameter.default
        description = " ".join((described.get(parameter.name) or "").split())
        more: dict[str, Any] = {"description": description} if description else {}
        fields[f"p{i}"] = (hint, Field(default, alias=parameter.name, **more))  # any name can be an alias
    try:
        model = create_model("Arguments", __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **fields)
        schema = {"type": "object", "properties": {}, **model.model_json_schema(schema_generator=Untitled)}
    except PydanticUserError as error:
        raise UserError(f"tool {function.__name__}: {error.message.splitlines()[0]}") from error
    schema = {key: schema[key] for key in schema if key != "title"}
    return Parameters(schema, Draft202012Validator(schema), model)


def _typed(function: Callable[..., Any]) -> Iterator[tuple[inspect.Parameter, Any]]:
    """The parameters of a function and their types."""
    with explained(f"tool {function.__name__}: a type hint cannot be resolved", NameError):
        hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UserError(f"tool {function.__name__}: {parameter} cannot be passed by name")
        if parameter.name not in hints:
            raise UserError(f"tool {function.__name__}: give {parameter.name} a type hint")
        yield parameter, hints[parameter.name]


def json_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Checked arguments as JSON values. A value without a JSON form is given as text."""
    from pydantic_core import to_jsonable_python

    def as_json(value: Any) -> Any:
        try:
            return to_jsonable_python(value, fallback=str)
        except ValueError:  # bytes that are not text, or hundreds of levels
            return str(value)

    return {name: as_json(value) for name, value in arguments.items()}


def _checked(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a foreign schema that is checked here: names of parameters, and types of their values."""
    required = [name for name in schema.get("required", []) if isinstance(name, str)]
    others = "properties" not in schema or any(keyword in schema for keyword in _OPENING)
    others = schema.get("additionalProperties", others) is not False or "patternProperties" in schema
    properties = {name: _type(one) for name, one in schema.get("properties", {}).items()}
    return {"required": required, "additionalProperties": others, "properties": properties}


def _type(schema: Any) -> dict[str, Any]:
    """The types of a value, if they are those of JSON."""
    types = schema.get("type", []) if isinstance(schema, Mapping) and "$ref" not in schema else []
    types = types if isinstance(types, list) else [types]
    return {"type": types} if types and all(one in _TYPES for one in types) else {}


def _path(location: tuple[int | str, ...]) -> str:
    """`xs[2].name` in quotes."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return _quoted("".join(steps).removeprefix(".")) if steps else "the arguments"


def _quoted(value: Any) -> str:
    return _short(json.dumps(value, ensure_ascii=False, default=str), _VALUE_CHARACTERS)


def _short(text: str, limit: int = _MESSAGE_CHARACTERS) -> str:
    """On one line, without the middle if it is too long. Secrets are redacted first: half of one might be left."""
    line = " ".join(redact(text).split())
    return line if len(line) <= limit else f"{line[: limit // 2]} … {line[-limit // 2 :]}"
