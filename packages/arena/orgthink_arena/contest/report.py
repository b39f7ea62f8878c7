"""results.json of an arena, as a function of its outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from orgthink.record.folder import RunFolder
from orgthink.record.provenance import hardware
from orgthink.util.settings import plain
from orgthink_arena.contest.config import MODEL, Arena
from orgthink_arena.contest.contest import Contest, Outcomes
from orgthink_arena.contest.plans import UNCAPPED, Cap
from orgthink_arena.contest.preparations import Prepared, described
from orgthink_arena.contest.rows import Results, Row, failed_row, gap, row


def first_cap(arena: Arena, mean: Cap) -> Cap:
    """The cap of `table1`: the first one, or none. `mean` is the reference's mean budget."""
    return mean.of(arena.factors[0]) if arena.factors else UNCAPPED


def results_of(contest: Contest, mean: Cap, outcomes: Mapping[Cap, Outcomes], folder: RunFolder, command: str) -> Row:
    """The content of results.json. `table1` has the rows at the first cap."""
    arena = contest.arena
    folders = {made.folder: made for made in contest.prepared.values() if isinstance(made, Prepared)}  # each once
    tables = {
        cap.name: [_row(contest, cap, name, outcome) for name, outcome in found.items()]
        for cap, found in outcomes.items()
    }
    return {
        "table1": tables[first_cap(arena, mean).name],
        "tables": tables,
        "differences": {cap.name: _gaps(arena, found) for cap, found in outcomes.items() if len(found) > 1},
        "choices": [
            {
                "method": contender.method,
                "cap": contender.cap.name,
                "variant": plain(dict(contender.variant)),
                "tried": [*map(asdict, contender.trials)],
            }
            for contender in contest.contenders.values()
            if contender.trials
        ],
        "preparations": [described(made) for made in folders.values()],
        "conditions": conditions(_that_ran(arena, outcomes), mean, list(outcomes), folder, command),
    }


def _row(contest: Contest, cap: Cap, name: str, outcome: Results | str) -> Row:
    method = contest.arena.methods[name]
    contender = contest.contenders.get((name, cap.name))
    variant = {} if contender is None else dict(contender.variant)
    facts = {
        "group": method.group,
        "cap": cap.name,
        "organization": method.organization,
        MODEL: method.prepared.get(MODEL) or variant.get(MODEL) or method.model,
        "settings": plain({place: value for place, value in variant.items() if place != MODEL}),
        "trainings": len(contest.arena.seeds) if contest.trained(name) else 0,
        "note": method.note,
    }
    return failed_row(name, outcome, facts) if isinstance(outcome, str) else row(outcome, facts)


def _that_ran(arena: Arena, outcomes: Mapping[Cap, Outcomes]) -> Arena:
    """The arena with as many problems as ran: a file may have fewer than are wanted."""
    reference = outcomes[UNCAPPED][arena.reference]
    assert isinstance(reference, Results), "without its results there is no cap"
    ran = min(len(attempts) for attempts in reference.by_seed.values()) // arena.samples
    return replace(arena, n=min(arena.n, ran))


def _gaps(arena: Arena, outcomes: Outcomes) -> list[Row]:
    """Every method with results against the reference at the same cap."""
    reference = outcomes[arena.reference]
    if isinstance(reference, str):
        return []
    return [gap(each, reference) for each in outcomes.values() if isinstance(each, Results) and each is not reference]


def conditions(arena: Arena, mean: Cap, caps: list[Cap], folder: RunFolder, command: str) -> dict[str, Any]:
    """Everything that the numbers depend on."""
    return {
        "task": arena.task,
        "split": arena.split,
        "n": arena.n,
        "samples": arena.samples,
        "seeds": list(arena.seeds),
        "unit": arena.unit,
        "timed": min(arena.n, arena.timed),
        "reference": arena.reference,
        "mean_budget": {"tokens": mean.tokens, "replies": mean.replies},
        "caps": {cap.name: {"tokens": cap.tokens, "replies": cap.replies} for cap in caps if cap is not UNCAPPED},
        "pool": {
            name: {"model": member.model or name, "description": member.description}
            for name, member in arena.pool.items()
        },
        "capacity": arena.capacity,
        "temperature": arena.temperature,
        "max_tokens": arena.max_tokens,
        "shared": plain(arena.shared),
        "development": None if arena.development is None else asdict(arena.development),
        "hardware": hardware(),
        "commit": folder.config.get("commit"),
        "versions": folder.config.get("versions"),
        "command": command,
    }
