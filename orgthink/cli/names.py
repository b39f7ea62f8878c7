"""`orgthink list`: registered names, by kind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from orgthink.tasks import TASKS
from orgthink.tasks.task import TaskFamily
from orgthink.tools import MORE_TOOLS
from orgthink.tools.toolbox import TOOLS
from orgthink.util.errors import pick
from orgthink.util.install import needing
from orgthink.util.registry import Registry
from orgthink.util.terminal import show

KINDS = {
    "organizations": "orgthink.organizations:ORGANIZATIONS",
    "prompts": "orgthink.organizations.prompts:STYLES",
    "tasks": "orgthink.tasks:TASKS",
    "models": "orgthink.engines:MODELS",
    "tools": "orgthink.tools:MORE_TOOLS",
    "rewards": "orgthink.rewards:REWARDS",
    "trackers": "orgthink.export.trackers:TRACKERS",
    "recipes": "orgthink.training.recipes.registry:RECIPES",
    "commands": "orgthink.util.registry:COMMANDS",
}
"""Registries; a package extends one by entry points of its group, `orgthink.organizations` and so on."""


@dataclass(frozen=True)
class List:
    """List registered names and their packages. `package.module:Name` and `file.py:Name` can be used as names, too."""

    kind: Annotated[Positional[str | None], arg(metavar="[KIND]")] = None
    """Kind, such as organizations; without it all. A family of tasks, such as gym, lists its tasks, and `gym:NAME` the
    settings of one."""
    all: bool = False
    """Also kinds of training, which recipes configure and which are not run themselves."""

    def __call__(self) -> int:
        family, _, member = (self.kind or "").partition(":")
        if family in TASKS and isinstance(found := TASKS[family], TaskFamily):
            show(*found.lines(member))
            return 0
        kinds = KINDS if self.kind is None else {self.kind: pick("kind", self.kind, KINDS)}
        for kind, where in kinds.items():
            module, _, name = where.partition(":")
            with needing("local"):
                registry: Registry[object] = getattr(import_module(module), name)
            show(f"{kind} ({registry.group})")
            found = [
                (name, text) for name, target, text in _summaries(registry) if self.all or not _is_kind(kind, target)
            ]
            width = max((len(name) for name, _ in found), default=0)
            for name, text in found:
                show(f"  {name:<{width}}  {text}")
        return 0


def _is_kind(registry: str, target: str) -> bool:
    """Whether this is a class of trainings, and no recipe: the spelling tells it without an import."""
    return registry == "recipes" and (name := target.rpartition(":")[2])[:1].isupper() and not name.isupper()


def _summaries(registry: Registry[object]) -> Iterator[tuple[str, str, str]]:
    """Names, their targets and one-line descriptions."""
    if registry is MORE_TOOLS:
        yield from ((name, "", "A tool of ParaManager's suite (Table 7).  [orgthink]") for name in TOOLS)
    for name, entry in registry.registrations().items():
        package = entry.dist.name if entry.dist else "orgthink"
        yield name, entry.value, f"{summary(entry.value) or entry.value}  [{package}]"


def summary(target: str) -> str:
    """The first sentence of the documentation of `package.module:Name`. The module is not imported, so that a broken
    one is listed as well."""
    module, _, name = target.partition(":")
    try:
        spec = find_spec(module)
        text = Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""
        documented = _docstring(ast.parse(text), name)
    except Exception as error:  # importing its package may raise anything
        return f"cannot be read: {type(error).__name__}: {error}"
    return " ".join(documented.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")


def _docstring(tree: ast.Module, name: str) -> str:
    """The docstring of a definition; for a value the string after it, or else that of its class or function."""
    for node, after in pairwise([*tree.body, ast.Pass()]):
        if getattr(node, "name", None) == name:
            return ast.get_docstring(node) or ""  # type: ignore[arg-type]  # a class or a function
        if isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(node).split(":")[0].split(" ")[0] == name:
            match after, node.value:
                case ast.Expr(ast.Constant(text)), _:
                    return str(text)
                case _, ast.Call(ast.Name(made)) if made != name:
                    return _docstring(tree, made)
    return ""
