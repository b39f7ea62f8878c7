"""The table of a run: one row an organization, every number with its 95 % interval."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from orgthink.evaluation.plan import Evaluation
from orgthink.measure.columns import cells
from orgthink.record.folder import RunFolder
from orgthink.util.terminal import excerpt, show


def print_table(summary: Mapping[str, Mapping[str, Any]], conditions: Mapping[str, str]) -> None:
    """Print the table to standard output, as wide as the terminal, or 120 columns."""
    header, rows = cells(summary)
    settings = "; ".join(value if name == "problems" else f"{name} {value}" for name, value in conditions.items())
    unit = "; cost in units" if "cost" in header else ""
    caption = f"{settings}. [95 % interval]. Critical path and tokens in decoding steps{unit}.{_bill(summary)}"
    width = shutil.get_terminal_size((120, 24)).columns
    for line in (*lay_out(header, rows, width), "", *textwrap.wrap(caption, width, break_on_hyphens=False)):
        show(line)


def lay_out(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines of a table that are no longer than `width`, if possible. No cell is ever cut.

    A table that is too wide is turned: a row for each measure, a column for each organization.
    """
    lines = aligned([header, *rows])
    if max(map(len, lines)) <= width:
        return lines
    return aligned([list(line) for line in zip(header, *rows, strict=True)])


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns two spaces apart: the first is flush left, the others flush right. A rule stands below the first line."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in lines
    ]
    return [text[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *text[1:]]


def conditions(folder: RunFolder) -> dict[str, str]:
    """The conditions of a run's numbers, as its config.json has them."""
    made = {"orgthink": f"{folder.config['orgthink']} {folder.config.get('commit') or ''}".rstrip()}
    if folder.config["kind"] == "train":
        return _training(folder.config["settings"]) | made
    if folder.config["kind"] != "eval":
        return made
    plan = folder.settings("eval", Evaluation)
    total, budget = plan.limits.max_tokens, "an agent"
    if total is None or total > plan.sampling.max_tokens:
        budget = "a segment, renewed at each join" + ("" if total is None else f", and {total} an agent")
    every = "" if plan.wanted is None else f" (all of them; {plan.wanted} were requested)"
    found = {
        "problems": f"{plan.n} {plan.split} problems of {plan.task}{every}",
        "seed": str(plan.seed),
        "samples": str(plan.samples),
        **({"model": str(plan.engine.model)} if any(not spec.engine for spec in plan.organizations.values()) else {}),
        "temperature": f"{plan.sampling.temperature:g}" if plan.sampling.temperature else "0 (greedy)",
        "budget": f"{plan.sampling.max_tokens} tokens {budget}",
        "capacity": str(plan.limits.capacity),
        "concurrency": f"{plan.concurrency} episodes at once",
    }
    if plan.template is not None:
        found |= {"score": f"avg@{plan.samples}", "template": plan.template}
    roles = {f"model of {name}": str(role.engine.model) for name, role in plan.roles.items()}
    own = {f"{label}'s model": str(spec.engine.model) for label, spec in plan.organizations.items() if spec.engine}
    return found | roles | own | {f"{label} with": how for label, how in plan.matched.items()} | made


def _training(settings: Any) -> dict[str, str]:
    """Conditions of a training, as far as its settings have them: they may be those of an unknown recipe."""
    found: dict[str, Any] = {}
    with suppress(KeyError, TypeError, AttributeError):
        job, own = settings["job"], settings["job"]["settings"]
        found = {"recipe": settings.get("recipe"), "model": job.get("model"), "steps": own.get("steps")}
        found["task"] = own.get("rollout", job).get("task")
    return {name: excerpt(str(value)) for name, value in found.items() if value is not None}


def _bill(summary: Mapping[str, Mapping[str, Any]]) -> str:
    """The sum of the dollars, and the share that no server has reported; empty without prices."""
    rows = [row for row in summary.values() if row.get("dollars_total") is not None]
    if not rows:
        return ""
    total, estimated = (sum(row[name] for row in rows) for name in ("dollars_total", "dollars_estimated"))
    share = 100 * estimated / total if total else 0
    return f" Dollars of an episode; ${total:.4g} in all, {share:.0f} % by our own counts."
