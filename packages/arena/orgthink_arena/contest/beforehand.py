"""What is wrong with an arena's methods and preparations, found before hours are spent on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from orgthink.evaluate.plan import resolve
from orgthink.util.errors import UserError, user_input
from orgthink_arena.contest.config import MODEL, ROLES, Arena
from orgthink_arena.contest.plans import UNCAPPED, development_work, evaluation, table_work
from orgthink_arena.contest.preparing import training


def require_plans(arena: Arena, methods: Iterable[str]) -> None:
    """UserError for a method that cannot run with any of its choices, or a preparation of one that cannot be planned.

    The first model of the pool stands in for models that are not made yet. A method that needs another file of a
    preparation is not planned.
    """
    for name in methods:
        for preparation in arena.needed(name):
            with _named("preparation", preparation):
                training(arena.preparations[preparation], arena.seeds[0])
        _require_plan(arena, name)


def _require_plan(arena: Arena, name: str) -> None:
    method = arena.methods[name]
    if any(place != MODEL and not place.startswith(f"{ROLES}.") for place in method.prepared):
        return
    work = development_work(arena) if method.grid else table_work(arena)
    model = arena.engine(arena.first).model
    made = {} if model is None else dict.fromkeys(method.prepared, model)
    for variant in method.variants:
        with _named("method", name):
            resolve(evaluation(arena, name, UNCAPPED, arena.seeds[0], work, variant, made))


@contextmanager
def _named(kind: str, name: str) -> Iterator[None]:
    try:
        with user_input():
            yield
    except UserError as error:
        raise UserError(f"the {kind} {name}: {error}") from error
