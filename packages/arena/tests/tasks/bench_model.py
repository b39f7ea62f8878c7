"""A model that answers the fixtures of benchmarks in one manner: right, wrong, in prose, or not at all.

`--model bench_model.py:open_manner:MANNER` opens it.
"""

from __future__ import annotations

from bench_rows import FIXTURES
from orgthink_arena.tasks.bench import BENCHMARKS
from orgthink_arena.tasks.bench.choices import read_gpqa, read_mmlu_pro
from orgthink_arena.tasks.bench.rows import renamed
from rule_engine import RuleEngine


def answers(text: str, manner: str) -> str:
    """What is written between the tags; empty for nothing."""
    for name, fixture in FIXTURES.items():
        if manner == "right" or name in READERS:
            found = next((answer for part, answer in lettered(name, manner).items() if part in text), None)
        else:
            known = any(part in text for part in fixture.right)
            found = {"wrong": fixture.wrong, "prose": fixture.prose}[manner] if known else None
        if found is not None:
            return found
    raise AssertionError(text)


READERS = {"gpqa-diamond": read_gpqa, "mmlu-pro": read_mmlu_pro}


def lettered(name: str, manner: str) -> dict[str, str]:
    """Part of a question → the answer to it."""
    if name not in READERS:
        return FIXTURES[name].right
    found = {}
    for i, values in enumerate(FIXTURES[name].rows):
        row = READERS[name](renamed(values, BENCHMARKS[name].columns))
        right = row.data["answer"]
        wrong = "B" if right == "A" else "A"
        option = row.data["options"]["ABCDEFGHIJ".index(right)]
        forms = (f"\\boxed{{{right}}}", f"The answer is ({right}).", f"**{right})** {option}")
        by_manner = {"right": forms[i % 3], "wrong": f"\\boxed{{{wrong}}}", "prose": FIXTURES[name].prose}
        found[row.question.partition("\n")[0]] = by_manner[manner]
    return found


async def open_manner(manner: str, *, threaded: bool = True) -> RuleEngine:
    def rule(text: str) -> str:
        if manner == "nothing":
            return " I give up."
        return f" Let me think. <ANSWER>\n{answers(text, manner)}\n</ANSWER>"

    return RuleEngine(rule, model=manner)
