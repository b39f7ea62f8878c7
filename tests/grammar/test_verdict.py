"""Reports of verifiers: their verdicts, and the findings that a corrector gets."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from terse import STYLE

from orgthink.grammar.verdict import MARKDOWN, Verdict, VerdictForm, read_report

TERSE = STYLE.verdicts
PASSES = [
    "**Correctness**: Correct",
    "**Correctness:** Correct",
    "**Correctness: Correct**",
    "Correctness: correct.",
    "__Correctness__: _Correct_",
    "`Correctness`: Correct",
    "* **Correctness**: “Correct”",
    "3. **Correctness**: Correct",
    "**3) Correctness**: Correct",
    '"Correctness": "Correct"',
    "| **Correctness** | Correct |",
    "**Correctness**：Correct。",
    "\ufeff**Correctness**: \u200bCorrect\u200b\r\n\n",
    "### Correctness\n\nCorrect",
    "**Correctness**:\n- **Correct**",
    "**Correctness**: Correct\n\nI hope this helps.",
    "**Correctness**: Wrong\nNo, I misread.\n**Correctness**: Correct",
    "**Correctness**: [Correct|Wrong]\n**Correctness**: Correct",
    "```\n**Correctness**: Wrong\n```\n**Correctness**: Correct",
    "<think>**Correctness**: Wrong</think>\n**Correctness**: Correct",
    "**Correctness**: Wrong?\n</think>\n**Correctness**: Correct",
]
NEITHER = [
    "",
    "The solution is correct.",
    "**Incorrectness**: Correct",
    "So **Correctness**: Correct",
    "Correctness of step 2: Correct",
    "**Correctness**: Incorrect",
    "**Correctness**: not correct",
    "**Correctness**: ~~Correct~~",
    "**Correctness** != Correct",
    "**Correctness**: Correct, but step 2 lacks a proof",
    "**Correctness**: Correct?",
    "**Correctness**: Correct/Wrong",
    "**Correctness**: [Correct|Wrong]",
    "**Correctness**: Correct Correct",
    "**Correctness**:",
    "**Correctness**: Correct\n**Correctness**: unclear",
    "### Correctness\nThe solution is mostly correct.",
    "<think>\n**Correctness**: Correct\n</think>\nNothing to say.",
    "<think>\n**Correctness**: Correct",
    "```\n**Correctness**: Correct\n```",
    "~~~\n```\n**Correctness**: Correct",
    "**Correctness**:\n```\nCorrect\n```",
    "> **Correctness**: Correct",
    "**Correctness**:\n> Correct",
    "**Correctness**: \u0421orrect",
]


@pytest.mark.parametrize("text", PASSES)
def test_a_pass(text: str) -> None:
    assert read_report(text, MARKDOWN).verdict is Verdict.CORRECT


@pytest.mark.parametrize("text", PASSES)
def test_a_fail_is_read_like_a_pass(text: str) -> None:
    other = {"Correct": "Wrong", "correct": "wrong", "Wrong": "Correct"}
    for word in ("Correct", "correct", "Wrong"):
        text = text.replace(f"{word}ness", "\0").replace(word, f"\1{other[word][1:]}").replace("\0", f"{word}ness")
    text = text.replace("\1rong", "Wrong").replace("\1orrect", "Correct")
    assert read_report(text, MARKDOWN).verdict is Verdict.WRONG


@pytest.mark.parametrize("text", NEITHER)
def test_neither_pass_nor_fail(text: str) -> None:
    assert read_report(text, MARKDOWN).verdict is Verdict.UNPARSED


@pytest.mark.parametrize(
    ("text", "verdict", "findings"),
    [
        ("7 36 bad </think> finding 7 * 5 = 35 correctness : wrong", Verdict.WRONG, "finding 7 * 5 = 35"),
        ("finding none correctness:correct", Verdict.CORRECT, "finding none"),
        ("finding 7 correctness : correct correctness : wrong", Verdict.WRONG, "finding 7"),
        ("finding correctness 7 correct", Verdict.UNPARSED, "finding correctness 7 correct"),
        ("correctness : correct 7", Verdict.UNPARSED, "correctness : correct 7"),
    ],
)
def test_a_report_on_one_line(text: str, verdict: Verdict, findings: str) -> None:
    report = read_report(text, TERSE)
    assert (report.verdict, report.findings) == (verdict, findings)


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ("hm </think>\nStep 2 fails.\n\n**Correctness**: Wrong", "Step 2 fails."),
        ("Step 2 fails.", "Step 2 fails."),
        ("a\n**Correctness**:\nWrong\nb\n\nc", "a\nb\n\nc"),
        ("**Correctness**: Wrong", ""),
        ("a\n**Correctness**: Wrong\nb\n**Correctness**: Wrong\nc", "a\nb\nc"),
        ("**Correctness** of step 2: doubtful\n**Correctness**: Wrong", "**Correctness** of step 2: doubtful"),
        ("Step 2:\n```\nx = 1\n```\n> so\n**Correctness**: Wrong", "Step 2:\n```\nx = 1\n```\n> so"),
        ("<think>\nStep 2 fails.", ""),
    ],
)
def test_the_findings_are_the_report_without_its_verdict(text: str, findings: str) -> None:
    assert read_report(text, MARKDOWN).findings == findings


def test_another_spelling_is_another_form() -> None:
    form = VerdictForm("Judgement", ("valid", "sound"), ("invalid",))
    assert read_report("### Judgement: *Sound*", form).verdict is Verdict.CORRECT
    assert read_report("judgement: invalid.", form).verdict is Verdict.WRONG
    assert read_report("**Correctness**: Wrong", form).verdict is Verdict.UNPARSED


@pytest.mark.parametrize("form", [MARKDOWN, TERSE])
@pytest.mark.parametrize("piece", ["*", " ", "\n", "1.", "```\n", "**Correctness**", "\nCorrectness:"])
def test_a_long_report_is_read_in_linear_time(form: VerdictForm, piece: str) -> None:
    assert read_report(piece * (200_000 // len(piece)), form).verdict is Verdict.UNPARSED


@given(st.text(), st.sampled_from(["Correct", "Wrong", "Incorrect", "Correctly"]), st.sampled_from([MARKDOWN, TERSE]))
def test_text_before_the_field_does_not_change_the_verdict(text: str, value: str, form: VerdictForm) -> None:
    assume("```" not in text and "~~~" not in text and "<think>" not in text.rpartition("</think>")[2])
    field = f"{form.field}: {value}"
    assert read_report(f"{text}\n{field}", form).verdict == form.verdict(value.lower())
