"""Names → things, wherever those come from: this package, an installed plug-in, a module or a file.

Everything that can be named on the command line, in a run folder or in a recipe is looked up here:

    countdown                   what this package has
    my-task                     what an installed package offers as an entry point of the group `orgthink.tasks`
    package.module:Name         an attribute of any module that can be imported
    path/to/file.py:Name        an attribute of a Python file

Nothing is imported before it is asked for. The last two are references: they name code, so what comes from a stranger,
a model or a run folder to look at, may not hold any (`registered_only`, `references`).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from orgthink.errors import UserError, pick

T = TypeVar("T")

_REFERENCE = re.compile(r"(?P<module>.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+):(?P<name>[A-Za-z_]\w*)")
"""`file.py:Name` or `package.module:Name`. A module without a dot would look like the file of a task."""

_PARTS = re.compile(r"[^+#]+")
"""Of the name of a task, which may be several tasks and a grader."""

_REGISTERED_ONLY: ContextVar[bool] = ContextVar("registered only", default=False)


def is_reference(name: str) -> bool:
    """Whether a name says where the thing is defined, `package.module:Name` or `file.py:Name`."""
    return _REFERENCE.fullmatch(name) is not None


def split_reference(name: str) -> tuple[str, str] | None:
    """The reference that a name begins with, and what stands behind it and a colon: `file.py:Reader:rows.jsonl`."""
    found = _REFERENCE.match(name)
    if found is None or name[found.end() :][:1] not in ("", ":"):
        return None
    return found[0], name[found.end() + 1 :]


def references(value: Any) -> Iterator[str]:
    """The references in JSON values, those in the names of tasks and engines included."""
    match value:
        case str():
            yield from (part for part in _PARTS.findall(value) if _REFERENCE.match(part))
        case Mapping():
            yield from (found for each in (*value, *value.values()) for found in references(each))
        case list() | tuple():
            yield from (found for each in value for found in references(each))


def absolute(value: Any) -> Any:
    """JSON values whose names of Python and prompt files have full paths, so that they mean the same everywhere."""
    match value:
        case str():
            return _PARTS.sub(lambda part: _absolute(part[0]), value)
        case Mapping():
            return {key: absolute(each) for key, each in value.items()}
        case list() | tuple():
            return [absolute(each) for each in value]
    return value


def _absolute(name: str) -> str:
    found = _REFERENCE.match(name)
    file = found["module"] if found is not None else name
    if file.endswith((".py", ".toml")) and os.path.isfile(file):  # False for what can be no path
        return f"{Path(file).resolve()}{name[len(file) :]}"
    return name


@contextmanager
def registered_only() -> Iterator[None]:
    """Within it references are refused: what a stranger wrote is looked at, and none of its code is run."""
    token = _REGISTERED_ONLY.set(True)
    try:
        yield
    finally:
        _REGISTERED_ONLY.reset(token)


class Source(NamedTuple):
    """Where a name leads."""

    target: str
    """`package.module:Name`."""
    package: str
    """What it was installed with."""


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind, by name. As a mapping it has the registered names; references can be looked up as well."""

    def __init__(
        self,
        kind: str,
        group: str,
        own: Mapping[str, str],
        form: str = "",
        fits: Callable[[Any], bool] = lambda thing: True,
    ) -> None:
        """`kind` is what errors call one of the things, `group` the group of entry points, and `own` what this package
        has: name → `package.module:Name`. `form` says what a thing must be, and `fits` whether it is."""
        self.kind, self.group = kind, group
        self._form, self._fits = form, fits
        self._own = dict(own)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _offered(self) -> dict[str, list[Source]]:
        """What installed packages offer. Names of this package cannot be taken over."""
        found: defaultdict[str, list[Source]] = defaultdict(list)
        for entry in entry_points(group=self.group):
            source = Source(f"{entry.module}:{entry.attr}", entry.dist.name if entry.dist else "a package")
            if entry.name not in self._own and source not in found[entry.name]:
                found[entry.name].append(source)
        return dict(found)

    def __getitem__(self, name: str) -> T:
        """What the name stands for; KeyError if it is not known, UserError if it cannot be loaded."""
        if name not in self:
            raise KeyError(name)
        if is_reference(name):
            if _REGISTERED_ONLY.get():
                raise UserError(f"{self.kind} {name} is code that is not installed, and none of that is run here")
            name = absolute(name)
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._own or name in self._offered or is_reference(name))

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *self._offered])

    def __len__(self) -> int:
        return len(self._own) + len(self._offered)

    def named(self, name: str) -> T:
        """What the name stands for; UserError with the nearest name if it is not known, or if it cannot be loaded."""
        return pick(self.kind, name, self)

    def name_of(self, thing: T) -> str:
        """The name that finds a thing again: the one it was looked up by, a registered one, or a reference."""
        for name, loaded in self._loaded.items():
            if loaded is thing:
                return name
        module, qualname = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
        for name, source in self.sources():
            if source.target == f"{module}:{qualname}":
                return name
        file = None if "." in module else getattr(sys.modules.get(module), "__file__", None)
        return f"{module if file is None else Path(file).resolve()}:{qualname}"

    def sources(self) -> Iterator[tuple[str, Source]]:
        """Where each registered name leads. A name that several packages offer comes several times."""
        yield from ((name, Source(target, "orgthink")) for name, target in self._own.items())
        yield from ((name, source) for name, sources in self._offered.items() for source in sources)

    def _load(self, name: str) -> Any:
        module, _, attribute = self._target(name).rpartition(":")
        try:
            found = _of_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and name in self._own:
                raise  # an extra that is not installed: who asked says which
            why = f"{type(error).__name__}: {error}{_place(error)}"
            raise UserError(f"{self.kind} {name} cannot be loaded: {why}") from error
        if not hasattr(found, attribute):
            pick(f"{self.kind} in {module}", attribute, {each: None for each in vars(found) if each[0] != "_"})
        thing = getattr(found, attribute)
        if not self._fits(thing):
            raise UserError(f"{self.kind} {name} is none: it must be {self._form}")
        return thing

    def _target(self, name: str) -> str:
        """`package.module:Name` or `file.py:Name` of a name; UserError if packages differ about it."""
        if name in self._own:
            return self._own[name]
        sources = self._offered.get(name, ())
        if len(sources) > 1:
            offers = " and ".join(f"{source.package} ({source.target})" for source in sources)
            raise UserError(f"several packages offer the {self.kind} {name}: {offers}; uninstall all but one")
        return sources[0].target if sources else name


def _place(error: BaseException) -> str:
    """Which line of which file was run last as modules were loaded. Bad syntax says so itself."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines and not isinstance(error, SyntaxError) else ""


@cache
def _of_file(file: Path) -> ModuleType:
    """The module that a Python file is. FileNotFoundError if there is none."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    name = f"orgthink_plugin_{file.stem}_{abs(hash(file)):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


COMMANDS: Registry[Any] = Registry("command", "orgthink.commands", {})
"""Commands that installed packages add to `orgthink`: dataclasses that are called."""

DEFAULTS: Registry[str] = Registry("default", "orgthink.defaults", {})
"""What is meant where nothing is named: a plug-in may offer a `model`, a `task` and a `recipe`."""

DEMO = (
    "the demo models and tasks are a package of their own: pip install orgthink-pocket "
    "(in a checkout: pip install ./pocket)"
)
"""How to get the models that the project trained itself."""


def default(what: str, option: str) -> str:
    """What a plug-in offers as the default model, task or recipe; UserError that names the option if none does."""
    if what not in DEFAULTS:
        raise UserError(f"no {what} is named: give {option}; {DEMO}")
    return DEFAULTS[what]
