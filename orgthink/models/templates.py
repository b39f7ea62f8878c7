"""Chat templates as transformers renders them: its filters, functions and tags, in a sandbox.

A template is a stranger's program: it is read and rendered in a separate process, with limits of time and memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, meta
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from orgthink.models.context import RESERVED
from orgthink.util.errors import ToolError, UserError, explained
from orgthink.util.files import read_whole
from orgthink.util.isolated import IsolatedProcess, processor_seconds, serve
from orgthink.util.settings import lacks
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason

SECONDS, PROMPT_SECONDS = 10.0, 1.0
"""Processor seconds for reading a template, and for a prompt: the event loop waits for short ones."""
LONGEST = 1 << 24
"""Characters of a prompt."""
PROCESS = IsolatedProcess(__name__)
"""Its request is `[seconds, source, values]`. Its answer is the prompt, or without values the names that the template
reads; then the error."""


def chat_template(folder: Path, arguments: Iterable[str] = ()) -> Any:
    """Makes a prompt of values by `chat_template.jinja` or `tokenizer_config.json`; `None` without a template.
    ValueError, in one line, or ToolError if it fails or exceeds a limit.

    ValueError for a template that is damaged, and for several without a default. UserError if it does not read one of
    the `arguments`.
    """
    file, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    with explained(f"the chat template of {folder} cannot be read", ValueError, ToolError, UserError, by=ValueError):
        source = read_whole(file).decode() if file.is_file() else _configured(config)
        read = set() if source is None else {*_ask(source)} - RESERVED
    for name in arguments:
        if name not in read:
            raise UserError(f"the chat template of {folder} {lacks(name, sorted(read))}")
    return None if source is None else partial(_ask, source)


def _ask(source: str, values: Any = None) -> Any:
    seconds = SECONDS if values is None else PROMPT_SECONDS
    found, error = PROCESS.ask([seconds, source, values]) or (None, f"it takes more than {seconds:g} s")
    if error:
        raise ValueError(error)
    return found


def _serve() -> None:
    environment = _environment()
    compiled, known = lru_cache(maxsize=16)(environment.from_string), environment.globals.keys()

    def answer(question: tuple[float, str, dict[str, Any] | None]) -> tuple[Any, str]:
        seconds, source, values = question
        try:
            with processor_seconds(seconds):
                template = compiled(source)
                if values is None:
                    return sorted(meta.find_undeclared_variables(environment.parse(source)) - known), ""
                text = template.render(**values)
        except Exception as error:
            return None, reason(error)
        return (text, "") if len(text) <= LONGEST else (None, f"its prompt has {len(text):,} characters")

    serve(answer)


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
    # Jinja's own filter writes it for HTML.
    environment.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, **how: json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, **how
    )
    functions: dict[str, Any] = {"raise_exception": _refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
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


if __name__ == "__main__":
    _serve()
