"""Registries: names → objects of this package, of an installed plug-in, of a module or of a file.

    countdown                   an object of this package
    my-task                     an entry point of the group `orgthink.tasks` in an installed package
    package.module:Name         an attribute of any module that can be imported
    path/to/file.py:Name        an attribute of a Python file

A module is imported when its name is looked up. The last two are references. Untrusted files, such as a model or a run
folder of another person, may not contain references (`registered_only`, `references`).

A class, an instance or a factory without parameters is accepted wherever a name is: see `made` and `settings_class`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, get_type_hints

from orgthink.util.errors import UserError, pick
from orgthink.util.references import absolute, is_reference

T = TypeVar("T")

LOCAL = ".<locals>."
"""Part of the name of an object that is no attribute of a module."""

_REGISTERED_ONLY: ContextVar[bool] = ContextVar("registered only", default=False)


class Untrusted(UserError):
    """An untrusted file names code."""


@contextmanager
def registered_only() -> Iterator[None]:
    """Refuse references, and programs in answers: no code of untrusted files runs."""
    token = _REGISTERED_ONLY.set(True)
    try:
        yield
    finally:
        _REGISTERED_ONLY.reset(token)


def require_trust(code: str) -> None:
    """Raises Untrusted, naming the code, within `registered_only`."""
    if _REGISTERED_ONLY.get():
        raise Untrusted(f"{code} is run again only with --trust")


def made(thing: Any) -> Any:
    """The result of a class or a synchronous function without required parameters; any other object unchanged."""
    if not (isinstance(thing, type) or inspect.isfunction(thing)) or inspect.iscoroutinefunction(thing):
        return thing
    required = (
        parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in inspect.signature(thing).parameters.values()
    )
    return thing if any(required) else thing()


def settings_class(thing: Any) -> type | None:
    """The dataclass of settings of a class, an instance or a factory; `None` if it has none.

    The values of an instance are the defaults of its class.
    """
    if isinstance(thing, type):
        return thing if is_dataclass(thing) else None
    found = made(thing)
    if not is_dataclass(found):
        return None
    cls: Any = type(found)
    hints = get_type_hints(cls, include_extras=True)
    defaults = [(f.name, hints[f.name], _default(getattr(found, f.name))) for f in fields(cls) if f.init]
    frozen = cls.__dataclass_params__.frozen
    return make_dataclass(cls.__name__, defaults, bases=(cls,), frozen=frozen, namespace={"__module__": cls.__module__})


def _default(value: Any) -> Any:
    return field(default_factory=lambda: value)  # a list is not accepted as a default


class Registry(Mapping[str, T], Generic[T]):
    """Objects of one kind by name. Iteration gives the registered names; a lookup also accepts references."""

    def __init__(
        self,
        kind: str,
        group: str,
        own: Mapping[str, str],
        form: str = "",
        accept: Callable[[Any], T | None] = lambda thing: thing,
    ) -> None:
        """`kind` is the word for an object in error messages, `group` the group of entry points, and `own` the names
        of this package: name → `package.module:Name`. `accept` converts an object that was found, or returns `None` if
        it is not of the required `form`."""
        self.kind, self.group = kind, group
        self.form, self._accept = form, accept
        self._own = dict(own)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        """Entry points of installed packages. They cannot replace a name of this package, or of an earlier one."""
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            found.setdefault(entry.name, entry)
        return {name: entry for name, entry in found.items() if name not in self._own}

    def __getitem__(self, name: str) -> T:
        """The object of a name; KeyError if it is unknown, UserError if it cannot be loaded."""
        if name not in self:
            raise KeyError(name)
        name = self.spelling(name) or name
        if is_reference(name):
            if _REGISTERED_ONLY.get():
                raise Untrusted(f"{self.kind} {name} refers to code that is not installed: it is run only with --trust")
            name = absolute(name)
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self.spelling(name) is not None or is_reference(name))

    def spelling(self, name: str) -> str | None:
        """The registered form of a name: `verifier-corrector` was `verifier_corrector` before. `None` without one."""
        forms = (name, name.replace("_", "-"))
        return next((one for one in forms if one in self._own or one in self._offered or one in self._loaded), None)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *self._offered])

    def __len__(self) -> int:
        return len(self._own) + len(self._offered)

    def named(self, name: str) -> T:
        """The object of a name; UserError, with the nearest name, if it is unknown or cannot be loaded."""
        if name not in self and name.endswith(".py") and Path(name).is_file():
            classes = re.findall(r"^class (\w+)", Path(name).read_text("utf-8", "replace"), re.MULTILINE) or ["MyClass"]
            raise UserError(f"{name} is a file: name the class in it, such as {name}:{classes[-1]}")
        if name not in self and (name.startswith("__main__:") or LOCAL in name):
            raise UserError(
                f"{self.kind} {name.rpartition(':')[2].rpartition(LOCAL)[2]} was made in a notebook or in a function, "
                "and only that process has it: write its class into a file, such as my_file.py:MyClass"
            )
        return pick(self.kind, name, self)

    def add(self, thing: Any) -> str:
        """Register an object that is given in Python. Returns the name by which this process finds it; another process
        finds it if the name is a reference. UserError if it is not of the required form."""
        found, name = self._accepted(repr(thing), thing), self.name_of(thing)
        self._loaded[name] = found
        return name

    def name_of(self, thing: T) -> str:
        """A name of an object: the one it was looked up by, a registered one, or a reference."""
        for name, loaded in self._loaded.items():
            if loaded is thing:
                return name
        of_instance = f"{id(thing)}{LOCAL}{type(thing).__qualname__}"
        module, qualname = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", of_instance)
        for name, entry in self.registrations().items():
            if entry.value == f"{module}:{qualname}":
                return name
        file = "" if "." in module else getattr(sys.modules.get(module), "__file__", None) or ""
        name = f"{Path(file).resolve() if file.endswith('.py') else module}:{qualname}"  # it may be `<stdin>`
        if module == "__main__" or LOCAL in name:  # it cannot be imported, or its script would run again
            self._loaded.setdefault(name, self._accept(thing) or thing)
        return name

    def registrations(self) -> dict[str, EntryPoint]:
        """All registered names with their targets. Those of this package are entry points without a distribution."""
        return {**{name: EntryPoint(name, target, self.group) for name, target in self._own.items()}, **self._offered}

    def _load(self, name: str) -> T:
        known = self.registrations()
        module, _, attribute = (known[name].value if name in known else name).rpartition(":")
        try:
            loaded = _module_of_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
            if not hasattr(loaded, attribute):
                pick(f"{self.kind} in {module}", attribute, dict.fromkeys(_defined(loaded)))
            return self._accepted(name, getattr(loaded, attribute))
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and name in self._own:
                raise  # an extra that is not installed: the caller names it
            why = f"{type(error).__name__}: {error}{_place(error)}"
            raise UserError(f"{self.kind} {name} cannot be loaded: {why}") from error

    def _accepted(self, name: str, thing: Any) -> T:
        found = self._accept(thing)
        if found is None:
            article = "an" if self.kind[0] in "aeiou" else "a"
            raise UserError(f"{name} is not {article} {self.kind}: it must be {self.form}")
        return found


def _place(error: BaseException) -> str:
    """File and line of the import that failed. The message of a SyntaxError already contains them."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines and not isinstance(error, SyntaxError) else ""


def _defined(module: ModuleType) -> list[str]:
    """Public names of a module, without imported ones."""
    own = module.__name__
    found = ((name, getattr(each, "__module__", own)) for name, each in vars(module).items())
    return [name for name, where in found if name[0] != "_" and where == own]


@cache
def _module_of_file(file: Path) -> ModuleType:
    """Import a Python file as a module. Raises FileNotFoundError."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    name = f"orgthink_plugin_{file.stem}_{abs(hash(file)):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


COMMANDS: Registry[Any] = Registry(
    "command",
    "orgthink.commands",
    {
        "run": "orgthink.cli.run:RunCommand",
        "eval": "orgthink.cli.eval:Eval",
        "synth": "orgthink.cli.synth:Synth",
        "train": "orgthink.cli.train:Train",
        "size": "orgthink.cli.size:Size",
        "serve": "orgthink.cli.serve:Serve",
        "mcp": "orgthink.cli.serve:Mcp",
        "export": "orgthink.cli.export:Export",
        "measure": "orgthink.cli.measure:Measure",
        "compare": "orgthink.cli.measure:Compare",
        "view": "orgthink.cli.view:View",
        "list": "orgthink.cli.names:List",
        "models": "orgthink.cli.models:Models",
    },
    "a callable dataclass",
    lambda command: command if callable(command) else None,
)
"""Commands of `orgthink`, and those of installed packages: callable dataclasses."""
