"""Parameters of a tool: a JSON Schema, made from type hints or sent by an MCP server, and its check by jsonschema.

Nothing is coerced: `"1"` is not a whole number. The check reports all errors on one line, so that a model can repair
its call. A foreign schema can be a program: a regular expression that backtracks for hours, a `$ref` that doubles the
work at each step. So its size and the time of a check are limited, it may not refer to other documents, and keywords
with regular expressions are left to the server.
"""

from __future__ import annotations

import inspect
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, get_type_hints

import docstring_parser.google

from orgthink.grammar.toolcall import cut_middle
from orgthink.util.errors import UserError, nearest
from orgthink.util.redaction import redact
from orgthink.util.threads import Threads

if TYPE_CHECKING:
    from pydantic import BaseModel

CHARACTERS = 100_000
"""Most characters of a foreign schema, as JSON."""
SECONDS = 1.0
"""Most processor seconds of a check."""
OPENING_SECONDS = 10.0
"""Most processor seconds to check a foreign schema itself."""
_VALUE_CHARACTERS = 60
"""Characters of a name or a value in a message."""
_MESSAGE_CHARACTERS = 240
"""Characters of a message about one value."""
_PROBLEMS = 5
"""Problems that are spelled out; the others are counted."""
_LEFT_OUT = ("pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties", "uniqueItems", "$schema")
"""Keywords that can take hours in one step. The server checks them itself."""
_DEPENDENT = ("contains", "if", "not", "oneOf")
"""Keywords that could refuse valid arguments where one of those is left out."""
_OPENING = ("patternProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "$ref", "$dynamicRef")
"""Keywords by which a schema may allow names that its properties do not list."""

_clock = threading.local()
"""`end`: processor seconds of this thread at which the current check is over."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a tool."""

    schema: dict[str, Any]
    """JSON Schema of the arguments, an object. Shared: must not be changed."""
    validator: Any
    """Checks arguments by the schema."""
    model: type[BaseModel] | None = None
    """Parameters of a function: it fills in defaults, and reads a tuple, a date or an enum from JSON."""
    queue: Threads | None = None
    """Where checks by the schemas of one server wait for each other; `None` for the schema of a function."""

    async def judge(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`check`; in a thread if the schema is foreign."""
        return self.check(arguments) if self.queue is None else await self.queue.run(self.check, arguments)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with defaults; ValueError with one line that names all errors."""
        if not isinstance(arguments, Mapping):
            raise ValueError(f"the arguments must be an object, not {_quoted(arguments)}")
        try:
            wrong = [*_wrong_names(arguments, self.schema), *self._wrong_values(dict(arguments))]
        except (ArithmeticError, RecursionError, TimeoutError) as error:
            raise ValueError(f"the arguments cannot be checked: {_shortened(str(error))}") from error
        except Exception as error:  # the library raises many kinds, all about the schema
            wrong = [f"the tool's own schema cannot be used: {_shortened(str(error))}"]
        if wrong:
            more = [f"and {len(wrong) - _PROBLEMS} more"] if len(wrong) > _PROBLEMS else []
            raise ValueError("; ".join([*wrong[:_PROBLEMS], *more]))
        return dict(arguments) if self.model is None else self._read(self.model, arguments)

    def _wrong_values(self, arguments: dict[str, Any]) -> list[str]:
        _clock.end = time.thread_time() + SECONDS
        named = ("required", "additionalProperties") if _is_closed(self.schema) else ("required",)
        found = list(islice(self.validator.iter_errors(arguments), 10 * _PROBLEMS))
        values = [one for one in found if len(one.absolute_schema_path) > 1 or one.validator not in named]
        return [f"{_path(tuple(one.absolute_path))}: {_shortened(one.message)}" for one in values]

    def _read(self, model: type[BaseModel], arguments: Mapping[str, Any]) -> dict[str, Any]:
        from pydantic import ValidationError

        try:
            read = model.model_validate(dict(arguments))
        except ValidationError as invalid:
            one = invalid.errors(include_url=False, include_context=False)[0]
            raise ValueError(f"{_path(one['loc'])}: {_shortened(one['msg'])}, got {_quoted(one['input'])}") from None
        return {info.alias or field: getattr(read, field) for field, info in model.model_fields.items()}

    @staticmethod
    def of(function: Callable[..., Any]) -> Parameters:
        """Parameters of a function: types and defaults from its signature, descriptions from `Args:` in its docstring.

        UserError if a parameter cannot be given by name or has no type that JSON can say.
        """
        return _of(function)

    @staticmethod
    def from_schema(schema: Mapping[str, Any], queue: Threads | None = None) -> Parameters:
        """Parameters by a foreign schema. A name that the schema does not list is unknown unless the schema says
        otherwise. UserError if the schema is invalid, too large, or refers to other documents."""
        if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
            raise UserError('a tool\'s schema is that of an object: {"type": "object", "properties": {…}}')
        if not isinstance(schema.get("properties", {}), Mapping) or not isinstance(schema.get("required", []), list):
            raise UserError('a tool\'s schema has "properties" by name and a list "required"')
        return Parameters(dict(schema), _foreign_validator(schema), queue=queue or Threads(1))


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
    return Parameters(schema, _timed_validator(schema), model)


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


def json_values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Checked arguments as JSON values. A value without a JSON form is given as text."""
    from pydantic_core import to_jsonable_python

    def as_json(value: Any) -> Any:
        try:
            return to_jsonable_python(value, fallback=str)
        except ValueError:  # bytes that are not text, or hundreds of levels
            return str(value)

    return {name: as_json(value) for name, value in arguments.items()}


def _foreign_validator(schema: Mapping[str, Any]) -> Any:
    """The validator of a foreign schema; UserError if the schema is invalid, too large, or refers elsewhere."""
    from jsonschema import validators

    try:
        text = json.dumps(schema, ensure_ascii=False)
        if len(text) > CHARACTERS:
            raise UserError(f"a tool's schema has {len(text)} characters: at most {CHARACTERS} are supported")
        left_out = (*_LEFT_OUT, *_DEPENDENT) if any(f'"{keyword}"' in text for keyword in _LEFT_OUT[:4]) else _LEFT_OUT
        kept = _without(schema, left_out)
        if not isinstance(schema.get("$schema", ""), str):
            raise UserError("a tool's schema is not valid: its $schema is not a text")
        base = validators.validator_for(schema, validators.Draft202012Validator)
        _clock.end = time.thread_time() + OPENING_SECONDS
        wrong = next((error.message for error in _timed_class(base)(base.META_SCHEMA).iter_errors(kept)), None)
    except (TimeoutError, RecursionError) as error:
        raise UserError(f"a tool's schema is not valid: it nests too deep, or is too complex ({error})") from None
    if wrong:
        raise UserError(f"a tool's schema is not valid: {_shortened(wrong)}")
    return _timed_validator(kept, base)


def _without(value: Any, keywords: tuple[str, ...]) -> Any:
    """A schema without some keywords. UserError if it refers to another document."""
    if isinstance(value, list):
        return [_without(one, keywords) for one in value]
    if not isinstance(value, Mapping):
        return value
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if isinstance(target := value.get(keyword), str) and not target.startswith("#"):
            raise UserError(f"a tool's schema points elsewhere, which is not supported: {keyword} {target[:60]!r}")
    more = ("additionalProperties",) if "patternProperties" in value else ()
    return {name: _without(one, keywords) for name, one in value.items() if name not in (*keywords, *more)}


def _timed_validator(schema: dict[str, Any], base: Any = None) -> Any:
    from jsonschema import Draft202012Validator
    from referencing import Registry

    return _timed_class(base or Draft202012Validator)(schema, registry=Registry())  # nothing is fetched


@lru_cache(maxsize=16)
def _timed_class(base: Any) -> Any:
    """A class of validators that raise TimeoutError when the clock of their thread has run out."""
    from jsonschema import validators

    def timed(check: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Iterator[Any]:
            _look_at_clock()
            for error in check(*arguments) or ():
                error.message, error.args = cut_middle(error.message, 1_000), ()  # they repeat the value
                yield error
                _look_at_clock()

        return step

    return validators.extend(base, {name: timed(check) for name, check in base.VALIDATORS.items()})


def _look_at_clock() -> None:
    if time.thread_time() > _clock.end:
        raise TimeoutError("the check takes too long")


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Whether a name that is not listed is unknown."""
    others = schema.get("additionalProperties", "properties" not in schema)
    return others is False and not any(keyword in schema for keyword in _OPENING)


def _wrong_names(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Errors of the names. Near names are looked for only as often as they are shown."""
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
    """On one line, without the middle if it is too long. Secrets are redacted first: half of one might be left."""
    line = " ".join(redact(text).split())
    return line if len(line) <= limit else f"{line[: limit // 2]} … {line[-limit // 2 :]}"
