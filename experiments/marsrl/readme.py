"""The tables of README.md, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.shared.readme import Column, circumstances, fill, number, percent, table, titled, trainings


def render(text: str, results: Mapping[str, Any]) -> str:
    """README.md with new tables between its markers. UserError if a marker is missing."""
    blocks = {
        "table1": f"{table(results['table1'], _TABLE1)}\n\n{table(results['error_reduction'], _REDUCTION)}",
        "table2": table(results["table2"], _TABLE2),
        "table3": table(results["table3"], _TABLE3),
        "figure4": f"{table(results['figure4'], _FIGURE4)}\n\n{table(results['sampling'], _SAMPLING)}"
        "\n\n![Figure 4](figure4.svg)",
        "figure5": "![Figure 5](figure5.svg)",
        "figure6": "![Figure 6](figure6.svg)",
        "conditions": _conditions(results["conditions"]),
    }
    return fill(text, blocks)


def _others(name: str) -> Column:
    """Means over the trainings with other seeds."""
    return f"{name}, other trainings", lambda row: ", ".join(_percent(one[name]) for one in row["seeds"]) or "–"


def _percent(estimate: Mapping[str, Any]) -> str:
    return "–" if estimate["mean"] is None else f"{100 * estimate['mean']:.1f}"


_METHOD: Column = ("", lambda row: row["method"])
_TASK: Column = ("task", lambda row: row["task"])
_SEED: Column = ("training seed", lambda row: str(row["seed"]))
_SOLVER = titled("solver %", percent("solver"))
_SYSTEM = titled("system %", percent("system"))
_GAIN = titled("system - solver", percent("gain"))
_TOKENS = (titled("tokens, solver", number("solver_tokens")), titled("system", number("tokens")))
_JUDGED = (
    titled("verifier accuracy %", percent("verifier_accuracy")),
    titled("recall %", percent("recall")),
    titled("false alarms %", percent("false_alarms")),
    titled("fixed %", percent("fix_rate")),
)

_TABLE1 = (_METHOD, _TASK, _SOLVER, _SYSTEM, _GAIN, *map(_others, ("solver", "system")), *_TOKENS)
_TRAINED: Column = ("trained tokens", lambda row: f"{row['trained_tokens']:,}" if row["trained_tokens"] else "–")
_TABLE2 = (_METHOD, _TRAINED, _SOLVER, _SYSTEM, _GAIN, *map(_others, ("solver", "system")), *_TOKENS)
_TABLE3 = (("solver", lambda row: f"`{row['solver_model']}`"), _SOLVER, _SYSTEM, _GAIN)
_REDUCTION = (
    ("errors that are gone", lambda row: row["task"]),
    titled("of the base's solver %", percent("of_base_solver")),
    titled("of its own solver %", percent("of_own_solver")),
)
_FIGURE4 = (
    _METHOD,
    _SEED,
    _SYSTEM,
    *_JUDGED,
    titled("own solver %", percent("own_solver")),
    titled("own system %", percent("own_system")),
)
_SAMPLING = (
    ("points more", lambda row: f"{row['first']} - {row['second']}"),
    _SYSTEM,
    *_JUDGED,
    ("system, each training", lambda row: ", ".join(_percent(one["system"]) for one in row["seeds"])),
)


def _conditions(facts: Mapping[str, Any]) -> str:
    budgets = ", ".join(f"{tokens} tokens an agent on `{task}`" for task, tokens in facts["budgets"].items())
    averaged = ", ".join(f"{min(n, facts['n'])} of `{task}`" for task, n in facts["averaged"].items())
    return (
        f"Held-out problems, table 1: {averaged}, {facts['samples']} samples each; the others: "
        f"{facts['n']} of `{facts['task']}`, {facts['seeds']} samples each. T = {facts['temperature']:g}, {budgets}, "
        f"{facts['passes']} pass accepts, {facts['rounds']} verifications at most. "
        f"{circumstances(facts)}{trainings(facts['models'])}"
    )
