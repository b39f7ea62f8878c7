"""Chat templates as transformers renders them: its filters, functions and tags, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, meta
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orgthink.models.context import RESERVED
from orgthink.util.errors import UserError
from orgthink.util.files import read_whole
from orgthink.util.settings import lacks
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason


def chat_template(folder: Path, arguments: Iterable[str] = ()) -> Any:
    """The compiled template of `chat_template.jinja` or `tokenizer_config.json`; `None` without one. ValueError for one
    that is damaged, and for several without a default. UserError if it does not read one of the `arguments`."""
    file, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    try:
        source = read_whole(file).decode() if file.is_file() else _configured(config)
        environment = _environment()
        for name in arguments:
            read = meta.find_undeclared_variables(environment.parse(source or ""))
            if name not in (known := sorted(read - environment.globals.keys() - RESERVED)):
                raise UserError(f"the chat template of {folder} {lacks(name, known)}")
        return None if source is None else environment.from_string(source)
    except (TemplateError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"the chat template of {folder} cannot be read: {reason(error)}") from error


def _configured(file: Path) -> str | None:
    """The template of a configuration: a text, or of a list of named ones that for plain turns."""
    found = json_object(file).get("chat_template") if file.is_file() else None
    if found is None:
        return None
    if isinstance(found, list):
        defaults = [one for one in found if isinstance(one, dict) and one.get("name") == "default"]
        if not defaults:
            raise ValueError(f"{file}: its chat_template is a list in which none has the name default")
        found = defaults[0].get("template")
    if not isinstance(found, str):
        raise ValueError(f"{file}: its chat_template is neither a text nor a list of named ones")
    return found


def _environment() -> ImmutableSandboxedEnvironment:
    extensions: list[str | type[Extension]] = ["jinja2.ext.loopcontrols", _Generation]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _to_json
    functions: dict[str, Any] = {"raise_exception": _refuse, "strftime_now": _now}
    environment.globals.update(functions)
    return environment


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}`, which marks for a training what the model writes."""

    tags = {"generation"}  # noqa: RUF012  as Jinja wants it

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> NoReturn:
    """How a template refuses turns, such as those of a system where a model knows none."""
    raise TemplateError(message)


def _now(form: str) -> str:
    """The time of today, as some templates tell it to their model."""
    return datetime.now().strftime(form)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **how: Any) -> str:
    """JSON as it is; Jinja's own filter writes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **how)
