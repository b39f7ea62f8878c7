"""What graders of other projects say about `tests/data/graded_answers.jsonl`: `python tests/other_graders.py`.

It prints a table: by kind, the wrong answers that each grader accepts, and the right ones that it refuses. Ours grades
now; the verdicts of the others are in the file. With `--write` they are computed again and written, where the packages
are installed: math-verify 0.9.0, lm-eval 0.4.13, inspect-ai 0.3.285, antlr4-python3-runtime 4.11 (lm-eval needs it).

Each grader reads the answer as it is. An answer that is nothing but a result is first put into the form that its own
prompt asks for.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from graded_answers import FILE, OTHERS, GradedAnswer, graded_answers, lines

from orgthink.record.episode import Status
from orgthink.tools.sandbox import Bubblewrap

SECONDS = 60
"""Most seconds for an answer: those of the graders themselves are too few on a busy machine."""
Grader = Callable[[GradedAnswer], bool]
"""Whether a grader accepts an answer."""


def is_bare(text: str) -> bool:
    """Whether an answer is nothing but a result."""
    return not re.search(r"boxed|\n|answer|result|####|\*\*", text, re.IGNORECASE) and len(text.split()) < 12


def boxed(one: GradedAnswer) -> str:
    """The answer in the form that math-verify and Inspect ask for."""
    return rf"\boxed{{{one.text}}}" if is_bare(one.text) and "$" not in one.text else one.text


def target(one: GradedAnswer) -> str:
    """The right answer as text."""
    return str(one.stated.get("target", one.stated["right"]))


def math_verify(one: GradedAnswer) -> bool:
    from math_verify import parse, verify

    right, offered = (parse(text, parsing_timeout=SECONDS) for text in (f"${target(one)}$", boxed(one)))
    return verify(right, offered, timeout_seconds=SECONDS)


def lm_eval_folder() -> Path:
    """Where lm-eval is installed."""
    (folder,) = find_spec("lm_eval").submodule_search_locations  # type: ignore[union-attr]
    return Path(folder)


def module(task: str) -> Any:
    """The module of one of lm-eval's tasks, without the imports of its package."""
    spec = spec_from_file_location(task, lm_eval_folder() / "tasks" / task / "utils.py")
    found = module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(found)  # type: ignore[union-attr]
    return found


@cache
def minerva_math() -> Any:
    found = module("minerva_math")
    alarm = found.timeout
    found.timeout = lambda seconds: alarm(SECONDS)
    return found


def lm_eval_minerva(one: GradedAnswer) -> bool:
    """`exact_match`; its other metric is math-verify's."""
    minerva = minerva_math()
    form = "Final Answer: The final answer is ${}$. I hope it is correct."
    text = form.format(one.text.strip("$")) if is_bare(one.text) else one.text
    found = minerva.normalize_final_answer(minerva.get_unnormalized_answer(text))
    return minerva.is_equiv(found, minerva.normalize_final_answer(target(one)))


def extracted(text: str, pattern: str, group: int) -> str:
    """What lm-eval's filter takes out of an answer."""
    from lm_eval.filters.extraction import RegexFilter

    return RegexFilter(pattern, group).apply([[text]], [{}])[0][0]  # type: ignore[index]


def lm_eval_gsm8k(one: GradedAnswer) -> bool:
    """`flexible-extract` with `exact_match`, as in `gsm8k.yaml`."""
    found, right = extracted(one.text, r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1), target(one)
    for ignored in (",", r"\$", r"(?s).*#### ", r"\.$"):
        found, right = re.sub(ignored, "", found), re.sub(ignored, "", right)
    return found.lower() == right.lower()


def lm_eval_mmlu_pro(one: GradedAnswer) -> bool:
    text = f"The answer is ({one.text})." if re.fullmatch("[A-J]", one.text) else one.text
    return extracted(text, r"answer is \(?([ABCDEFGHIJ])\)?", 0) == one.stated["right"]


def lm_eval_mmlu_flan(one: GradedAnswer) -> bool:
    """`flexible-extract`."""
    from lm_eval.filters.extraction import MultiChoiceRegexFilter

    taken = MultiChoiceRegexFilter(r"(\([A-Z]\))", -1, ignore_case=True, ignore_punctuation=True)
    return taken.apply([[one.text]], [{"choices": one.stated["options"]}])[0][0] == f"({one.stated['right']})"


def state(one: GradedAnswer, text: str, choices: list[str] | None = None) -> Any:
    """An answer as Inspect keeps it."""
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import TaskState

    output = ModelOutput.from_content("none", text)
    name: Any = "none/none"
    return TaskState(name, 0, 1, one.stated.get("question", ""), [], choices=choices, output=output)


def inspected(scorer: Any, one: GradedAnswer, text: str) -> bool:
    """Whether a scorer of Inspect accepts an answer; one that cannot read the reference accepts none."""
    from inspect_ai.scorer import Target

    try:
        return asyncio.run(scorer(state(one, text), Target(target(one)))).value == "C"
    except ValueError:
        return False


def inspect_math(one: GradedAnswer) -> bool:
    from inspect_ai.scorer import math

    return inspected(math(timeout=SECONDS), one, boxed(one))


def inspect_match(one: GradedAnswer) -> bool:
    from inspect_ai.scorer import match

    return inspected(match(numeric=one.kind in ("mathematics", "countdown")), one, one.text)


def inspect_choice(one: GradedAnswer) -> bool:
    from inspect_ai.scorer import Target, choice
    from inspect_ai.solver._multiple_choice import parse_answers, set_choices_based_on_generated_response

    text = f"ANSWER: {one.text}" if re.fullmatch("[A-J]", one.text) else one.text
    answered = state(one, text, one.stated["options"])
    set_choices_based_on_generated_response(answered, parse_answers(answered, multiple_correct=False))
    return asyncio.run(choice()(answered, Target(one.stated["right"]))).value == "C"  # type: ignore[union-attr]


@cache
def code_blocks() -> Callable[[str], str]:
    """`extract_code_blocks` of lm-eval's MBPP. Its module downloads a metric when it is imported, which is left out."""
    sys.modules["evaluate"] = Mock()
    return module("mbpp").extract_code_blocks


def lm_eval_mbpp(one: GradedAnswer) -> bool:
    """The prompt of the task ends with the opening of the block, which the filter adds. The first line keeps the
    sandbox from taking indentation off, which lm-eval leaves."""
    stated = one.stated
    tests = "\n".join(stated.get("test_list", [])) or f"{stated['test']}\ncheck({stated['entry_point']})"
    text = one.text.removeprefix("```")
    program = f"pass\n{code_blocks()(text)}\n{tests}\nprint('reached the end')"
    done = asyncio.run(Bubblewrap(SECONDS).run(program))
    return done.status is Status.OK and done.text.endswith("reached the end\n")


GRADERS: dict[str, Grader] = {
    "math-verify": math_verify,
    "lm-eval minerva_math": lm_eval_minerva,
    "lm-eval gsm8k": lm_eval_gsm8k,
    "lm-eval mmlu_pro": lm_eval_mmlu_pro,
    "lm-eval mmlu_flan_cot": lm_eval_mmlu_flan,
    "lm-eval mbpp_instruct": lm_eval_mbpp,
    "Inspect math": inspect_math,
    "Inspect match": inspect_match,
    "Inspect choice": inspect_choice,
}


def verdicts(one: GradedAnswer) -> str:
    """What the other graders say, in their order."""
    return "".join(str(int(GRADERS[name](one))) for name in OTHERS[one.kind])


def write() -> None:
    """Compute the verdicts again."""
    answers = graded_answers()
    found = [[*line[:3], verdicts(next(answers))] if isinstance(line, list) else line for line in lines()]
    FILE.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in found), encoding="utf-8")


def table() -> str:
    """Answers of each kind, and the wrong ones that each grader accepts and the right ones that it refuses."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in graded_answers():
        counts[one.kind, "", "right" if one.right else "wrong"] += 1
        for name, accepts in {"orgthink": one.grade().correct >= one.required, **one.verdicts()}.items():
            counts[one.kind, name, "right" if one.right else "wrong"] += accepts != one.right
    rows = ["| kind | grader | wrong accepted | right refused |", "|---|---|--:|--:|"]
    for kind, others in OTHERS.items():
        wrong, right = counts[kind, "", "wrong"], counts[kind, "", "right"]
        for name in ("orgthink", *others):
            accepted, refused = counts[kind, name, "wrong"], counts[kind, name, "right"]
            rows.append(f"| {kind} | {name} | {accepted} of {wrong} | {refused} of {right} |")
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    print(table())
