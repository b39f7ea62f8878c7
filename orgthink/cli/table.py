"""The table of a run: one row an organization, every number with its 95 % interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from orgthink.evaluate import Evaluation
from orgthink.store import RunFolder


def print_table(summary: Mapping[str, Mapping[str, Any]], conditions: Mapping[str, str]) -> None:
    """To standard output: framed on a terminal, aligned columns elsewhere."""
    header, rows = cells(summary)
    told = "; ".join(value if name == "problems" else f"{name} {value}" for name, value in conditions.items())
    unit = "; cost in units" if "cost" in header else ""
    caption = f"{told}. [95 % interval]. Critical path and tokens in decoding steps{unit}."
    console = Console()
    if console.is_terminal:
        table = Table(*header, box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
        return
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    for line in (header, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(caption)


def cells(summary: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table."""
    solver = ["solver %"] if any("solver_correct" in row for row in summary.values()) else []
    several = sorted({row["k"] for row in summary.values() if "k" in row})
    led = any("rounds" in row for row in summary.values())
    own = list(dict.fromkeys(name for row in summary.values() for name in row.get("measures", {})))
    most = max((len(row["at_least"]) for row in summary.values()), default=1)
    partly = [f"≥ {a}" for a in range(1, most)]
    header = [
        "organization",
        "n",
        "all correct %",
        *(f"pass@{k} %" for k in several),
        *solver,
        *partly,
        "critical path",
        "tokens",
        "seconds",
        "η",
        *(["rounds", "calls/round", "cost"] if led else []),
        *(name.replace("_", " ") for name in own),
        "format errors %",
        "cut off %",
    ]
    rows = []
    for name, row in summary.items():
        found = row["at_least"][: most - 1]
        found += [_NONE] * (most - 1 - len(found))
        passed = [row["pass_at_k"] if row.get("k") == k else _NONE for k in several]
        shares = [row["all_correct"], *passed, *(row.get("solver_correct", _NONE) for _ in solver), *found]
        quantities = (*_QUANTITIES, *(_OF_MANAGERS if led else ()))
        numbers = [_show(row.get(key, _NONE), 1, digits) for key, digits in quantities]
        numbers += [_show(row.get("measures", {}).get(name, _NONE), 1, 2) for name in own]
        rates = [_show(row[key], 100, 0) for key in ("format_error_rate", "truncated_rate")]
        rows.append([name, str(row["n"]), *(_show(share, 100, 0) for share in shares), *numbers, *rates])
    return header, rows


def conditions(folder: RunFolder) -> dict[str, str]:
    """Under which conditions the numbers of a run were measured, as far as its config.json tells."""
    made = {"orgthink": f"{folder.config['orgthink']} {folder.config['commit'] or ''}".rstrip()}
    if folder.config["kind"] != "eval":
        return made
    plan = folder.settings("eval", Evaluation)
    budget = "an agent" if plan.limits.agent_tokens is not None else "a segment, renewed at each join"
    found = {
        "problems": f"{plan.n} {plan.split} problems of {plan.task}",
        "seed": str(plan.seed),
        "samples": str(plan.samples),
        "model": str(plan.engine.model),
        "temperature": f"{plan.sampling.temperature:g}" if plan.sampling.temperature else "0 (greedy)",
        "budget": f"{plan.sampling.max_tokens} tokens {budget}",
        "capacity": str(plan.limits.capacity),
        "concurrency": f"{plan.concurrency} episodes at once",
    }
    roles = {f"model of {name}": str(role.engine.model) for name, role in plan.roles.items()}
    own = {f"{label}'s model": str(spec.engine.model) for label, spec in plan.organizations.items() if spec.engine}
    return found | roles | own | made


_QUANTITIES: Sequence[tuple[str, int]] = (
    ("critical_path_steps", 0),
    ("sampled_tokens", 0),
    ("seconds", 2),
    ("concurrency_pool", 2),
)

_OF_MANAGERS: Sequence[tuple[str, int]] = (("rounds", 1), ("calls_per_round", 2), ("cost_units", 1))
"""Beside a manager, those that know their cost show it too."""

_NONE: Mapping[str, Any] = {"mean": None}
"""Of an organization that has no such number."""


def _show(estimate: Mapping[str, Any], factor: float, digits: int) -> str:
    if estimate["mean"] is None:
        return "–"
    mean = f"{factor * estimate['mean']:.{digits}f}"
    if estimate["low"] is None or estimate["high"] is None:
        return mean
    return f"{mean} [{factor * estimate['low']:.{digits}f}, {factor * estimate['high']:.{digits}f}]"
