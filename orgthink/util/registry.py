"""Names → objects of this package, of an installed plug-in, of a module or of a file.

Everything that can be named on the command line, in a run folder or in a recipe is looked up here:

    countdown                   an object of this package
    my-task                     an entry point of the group `orgthink.tasks` in an installed package
    package.module:Name         an attribute of any module that can be imported
    path/to/file.py:Name        an attribute of a Python file

A module is imported when its name is looked up. The last two are references: they name code. Untrusted files, such as
a model or a run folder from somebody else, may not contain references (`registered_only`, `references`).
"""

from __future__ import annotations

import ast
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
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from orgthink.util.errors import UserError, pick

T = TypeVar("T")

_REFERENCE = re.compile(r"(?P<module>.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+):(?P<name>[A-Za-z_]\w*)")
"""`file.py:Name` or `package.module:Name`. A module without a dot would look like the file of a task."""

_FAMILY = re.compile(r"[a-z][a-z-]*:(?=(?:.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+):[A-Za-z_])")
"""What stands before a reference in the name of a task of a kind, such as `bench:`."""

_KIND = re.compile(r"[a-z][a-z-]*:(?:[a-z][a-z0-9.-]*:)?")
"""What stands before a file of problems."""
_PROBLEMS = re.compile(rf"(?P<kind>{_KIND.pattern})(?P<file>[^:?@]+)(?P<which>[?@].*)?")
"""A task with a file of problems, such as `math:FILE`, `bench:aime25:FILE` or `math:FILE@1/2`."""

_CODE = re.compile(r"\.[A-Za-z_]\w*:[A-Za-z_]")
"""What every reference holds, wherever it is cut out of a text: `.py:N`, `.module:N`."""

_PARTS = re.compile(r"[^+#]+")
"""Parts of a task's name, which may combine several tasks and a grader."""

_REGISTERED_ONLY: ContextVar[bool] = ContextVar("registered only", default=False)


def is_reference(name: str) -> bool:
    """Whether a name has the form `package.module:Name` or `file.py:Name`."""
    return _REFERENCE.fullmatch(name) is not None


def split_reference(name: str) -> tuple[str, str] | None:
    """Split `file.py:Reader:rows.jsonl` into the reference and the rest; `None` without a reference."""
    found = _REFERENCE.match(name)
    if found is None or name[found.end() :][:1] not in ("", ":"):
        return None
    return found[0], name[found.end() + 1 :]


def references(value: Any) -> Iterator[str]:
    """All texts of JSON values that hold a reference, at whatever place: who looks a name up may cut it anywhere."""
    match value:
        case str():
            yield from [value] if _CODE.search(value) else []
        case Mapping():
            yield from (found for each in (*value, *value.values()) for found in references(each))
        case list() | tuple():
            yield from (found for each in value for found in references(each))


def absolute(value: Any) -> Any:
    """JSON values with absolute paths for Python files, prompt files and files of problems, so that they are valid in
    any folder."""
    match value:
        case str():
            whole = _with_file(value)  # whose name may hold what divides others
            return _PARTS.sub(lambda part: _absolute(part[0]), value) if whole is None else whole
        case Mapping():
            return {key: _absolute_at(key, each, value) for key, each in value.items()}
        case list() | tuple():
            return [absolute(each) for each in value]
    return value


def _absolute_at(key: str, each: Any, settings: Mapping[str, Any]) -> Any:
    if key == "corpus" and isinstance(each, str) and os.sep in each and os.path.isdir(each):
        return str(Path(each).resolve())
    return each if is_foreign(key, settings) else absolute(each)


def is_foreign(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether a setting is what a server calls its model: no path, no code and no secret, whatever it looks like."""
    return name == "model" and settings.get("url") is not None


def _with_file(name: str) -> str | None:
    """A task's name with the absolute path of the file that is all the rest of it; `None` without such a file."""
    kind = _KIND.match(name)
    file = name[kind.end() :] if kind else ""
    return f"{kind[0]}{Path(file).resolve()}" if kind and os.path.isfile(file) else None


def _absolute(name: str) -> str:
    if family := _FAMILY.match(name):
        return f"{family[0]}{_absolute(name[family.end() :])}"
    found = _REFERENCE.match(name)
    file = found["module"] if found is not None else name
    if file.endswith((".py", ".toml")) and os.path.isfile(file):  # False for an impossible path
        return f"{Path(file).resolve()}{name[len(file) :]}"
    problems = _PROBLEMS.fullmatch(name)
    if problems is not None and os.path.exists(problems["file"]):
        return f"{problems['kind']}{Path(problems['file']).resolve()}{problems['which'] or ''}"
    return name


def without_files(name: str) -> str:
    """A task's name with the objects of its references and without the files of its problems: `countdown+Dice`; of a
    named benchmark its name."""
    named = (_FAMILY.sub("", part, 1).removeprefix("bench:") for part in name.partition("#")[0].split("+"))
    parts = (_REFERENCE.match(part) or part for part in named)
    return "+".join(part.partition(":")[0] if isinstance(part, str) else part["name"] for part in parts)


class Untrusted(UserError):
    """Something would run code of an untrusted file."""


@contextmanager
def registered_only() -> Iterator[None]:
    """Refuse references and programs in answers, so that no code of untrusted files is run."""
    token = _REGISTERED_ONLY.set(True)
    try:
        yield
    finally:
        _REGISTERED_ONLY.reset(token)


def require_trust(what: str) -> None:
    """Untrusted, with what would be run, within `registered_only`."""
    if _REGISTERED_ONLY.get():
        raise Untrusted(f"{what} is run again only with --trust")


class Registration(NamedTuple):
    """Where a registered name points to."""

    target: str
    """`package.module:Name`."""
    package: str
    """The package that registers it."""


class Registry(Mapping[str, T], Generic[T]):
    """Objects of one kind by name. Iteration gives the registered names; a lookup also accepts references."""

    def __init__(
        self,
        kind: str,
        group: str,
        own: Mapping[str, str],
        form: str = "",
        fits: Callable[[Any], bool] = lambda thing: True,
    ) -> None:
        """`kind` is the word for an object in error messages, `group` the group of entry points, and `own` the names
        of this package: name → `package.module:Name`. `fits` checks an object; `form` describes what it requires."""
        self.kind, self.group = kind, group
        self._form, self._fits = form, fits
        self._own = dict(own)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _offered(self) -> dict[str, list[Registration]]:
        """Entry points of installed packages. They cannot replace names of this package."""
        found: defaultdict[str, list[Registration]] = defaultdict(list)
        for entry in _entries(self.group):
            source = Registration(f"{entry.module}:{entry.attr}", entry.dist.name if entry.dist else "a package")
            if entry.name not in self._own and source not in found[entry.name]:
                found[entry.name].append(source)
        return dict(found)

    def __getitem__(self, name: str) -> T:
        """The object of a name; KeyError if it is unknown, UserError if it cannot be loaded."""
        if name not in self:
            raise KeyError(name)
        if is_reference(name):
            if _REGISTERED_ONLY.get():
                raise Untrusted(f"{self.kind} {name} refers to code that is not installed: it is run only with --trust")
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
        """The object of a name; UserError, with the nearest name, if it is unknown or cannot be loaded."""
        return pick(self.kind, name, self)

    def name_of(self, thing: T) -> str:
        """A name of an object: the one it was looked up by, a registered one, or a reference."""
        for name, loaded in self._loaded.items():
            if loaded is thing:
                return name
        module, qualname = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
        for name, registration in self.registrations():
            if registration.target == f"{module}:{qualname}":
                return name
        file = None if "." in module else getattr(sys.modules.get(module), "__file__", None)
        return f"{module if file is None else Path(file).resolve()}:{qualname}"

    def registrations(self) -> Iterator[tuple[str, Registration]]:
        """All registered names and their targets. A name that several packages register appears several times."""
        yield from ((name, Registration(target, "orgthink")) for name, target in self._own.items())
        yield from ((name, source) for name, sources in self._offered.items() for source in sources)

    def _load(self, name: str) -> Any:
        module, _, attribute = self._target(name).rpartition(":")
        try:
            found = _of_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and name in self._own:
                raise  # an extra that is not installed: the caller names it
            why = f"{type(error).__name__}: {error}{_place(error)}"
            raise UserError(f"{self.kind} {name} cannot be loaded: {why}") from error
        if not hasattr(found, attribute):
            own = [each for each in _defined(found) if self._fits(getattr(found, each, None))]
            pick(f"{self.kind} in {module}", attribute, dict.fromkeys(own or _defined(found)))
        thing = getattr(found, attribute)
        if not self._fits(thing):
            raise UserError(f"{self.kind} {name} is none: it must be {self._form}")
        return thing

    def _target(self, name: str) -> str:
        """`package.module:Name` or `file.py:Name` of a name; UserError if several packages register it."""
        if name in self._own:
            return self._own[name]
        sources = self._offered.get(name, ())
        if len(sources) > 1:
            offers = " and ".join(f"{source.package} ({source.target})" for source in sources)
            raise UserError(f"several packages offer the {self.kind} {name}: {offers}; uninstall all but one")
        return sources[0].target if sources else name


def _entries(group: str) -> list[EntryPoint]:
    """Entry points of installed packages; UserError, with the package, if it wrote what cannot be read."""
    try:
        return [entry for entry in entry_points(group=group) if entry.module]
    except Exception as error:  # of any kind, as Python does not expect it
        why = "has entry points that cannot be read: install it anew, or uninstall it"
        raise UserError(f"the package {_unreadable(group)} {why}") from error


def _unreadable(group: str) -> str:
    """The first package whose entry points cannot be read."""
    for package in distributions():
        try:
            [entry.module for entry in package.entry_points.select(group=group)]
        except Exception:
            return package.name
    return "of unknown name"


def _place(error: BaseException) -> str:
    """File and line of the import that failed. The message of a SyntaxError already contains them."""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name == "<module>"]
    return f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines and not isinstance(error, SyntaxError) else ""


def _defined(module: ModuleType) -> list[str]:
    """Public names that the source of a module defines, not those that it imports; none without a source."""
    try:
        tree = ast.parse(Path(module.__file__ or os.devnull).read_bytes())
    except (OSError, ValueError, SyntaxError):  # it is compiled, or lies in an archive
        return []
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found += [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in found if name[0] != "_"]


@cache
def _of_file(file: Path) -> ModuleType:
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
        "export": "orgthink.cli.export:Export",
        "measure": "orgthink.cli.measure:Measure",
        "compare": "orgthink.cli.compare:Compare",
        "view": "orgthink.cli.view:View",
        "list": "orgthink.cli.names:List",
    },
    "a callable dataclass",
    callable,
)
"""Commands of `orgthink`, and those that installed packages add: callable dataclasses."""

DEFAULTS: Registry[str] = Registry("default", "orgthink.defaults", {})
"""Defaults of a plug-in: a `model`, a `task` and a `recipe`."""

DEMO = (
    "the demo models and tasks are a package of their own: pip install orgthink-pocket "
    "(in a checkout: pip install ./pocket)"
)
"""How to install the demo models."""


def default(what: str, option: str) -> str:
    """The default model, task or recipe of a plug-in; UserError, with the option to use, if there is none."""
    if what not in DEFAULTS:
        raise UserError(f"no {what} is named: give {option}; {DEMO}")
    return DEFAULTS[what]
