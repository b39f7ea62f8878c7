"""Names → things, wherever those come from: this package, an installed plug-in, a module or a file.

Everything that can be named on the command line, in a run folder or in a recipe is looked up here:

    countdown                   what this package has
    my-task                     what an installed package offers as an entry point of the group `orgthink.tasks`
    package.module:Name         an attribute of any module that can be imported
    path/to/file.py:Name        an attribute of a Python file

Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from orgthink.errors import UserError, pick

T = TypeVar("T")

_REFERENCE = re.compile(r"(?P<module>.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+):(?P<name>[A-Za-z_]\w*)")
"""`file.py:Name` or `package.module:Name`. A module without a dot would look like the file of a task."""


def is_reference(name: str) -> bool:
    """Whether a name says where the thing is defined, `package.module:Name` or `file.py:Name`."""
    return _REFERENCE.fullmatch(name) is not None


def absolute(name: str) -> str:
    """The same name with the full path of its file, so that it means the same in every working directory."""
    found = _REFERENCE.fullmatch(name)
    if found is None or not found["module"].endswith(".py"):
        return name
    return f"{Path(found['module']).resolve()}:{found['name']}"


class Registry(Mapping[str, T], Generic[T]):
    """Things of one kind, by name. As a mapping it has the registered names; references can be looked up as well."""

    def __init__(self, kind: str, group: str, own: Mapping[str, str]) -> None:
        """`kind` is what errors call one of the things, `group` the group of entry points, and `own` what this package
        has: name → `package.module:Name`."""
        self.kind, self.group = kind, group
        self._own = dict(own)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        """What installed packages offer. Names of this package cannot be taken over."""
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if entry.name in self._own:
                continue
            if entry.name in found and found[entry.name].value != entry.value:
                raise UserError(
                    f"two packages offer the {self.kind} {entry.name}: {found[entry.name].value} and {entry.value}; "
                    "name one of these in its place"
                )
            found[entry.name] = entry
        return found

    def __getitem__(self, name: str) -> T:
        """What the name stands for; KeyError if it is not known, UserError if it cannot be loaded."""
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
        """The name that finds a thing again: the one it was looked up by, that of this package, or a reference."""
        for name, loaded in self._loaded.items():
            if loaded is thing:
                return name
        where = f"{getattr(thing, '__module__', '')}:{getattr(thing, '__qualname__', '')}"
        targets = {target: name for name, target in self._own.items()}
        targets |= {entry.value: name for name, entry in self._offered.items()}
        return targets.get(where, where)

    def _load(self, name: str) -> Any:
        if name in self._own:
            return _resolve(*self._own[name].split(":"))
        target = self._offered[name].value if name in self._offered else name
        found = _REFERENCE.fullmatch(target.replace(" ", "")) or re.fullmatch(r"(?P<module>\w+):(?P<name>\w+)", target)
        if found is None:
            raise KeyError(name)
        try:
            return _resolve(found["module"], found["name"])
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{self.kind} {name} cannot be loaded: {type(error).__name__}: {error}") from error


def _resolve(module: str, name: str) -> Any:
    """An attribute of a module or a file; AttributeError without it."""
    return getattr(
        _of_file(Path(module).resolve()) if module.endswith(".py") else importlib.import_module(module), name
    )


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
