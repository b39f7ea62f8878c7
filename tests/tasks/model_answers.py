"""Two hundred answers of each kind as models write them: thoughts with other numbers and letters, then an answer in the
form that was asked for; some are wrong, some were cut off, and some refuse."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

RESULTS = {
    "204": ("204", "204.0", "x = 204"), "033": ("33", "033", "33"), "70": ("070", "70", "70."), "1": ("1", "1", "1"),
    "809": ("809", "809", "809"), "-3": ("-3", "-3", "-3.0"), "1000": ("1000", "1,000", "1000"),
    "27": ("27.0", "27", "27"),
    "142": ("142", "n = 142", "142"), "588": ("588", "588", "588"), "0": ("0", "0", "0"), "16": ("16", "16", "2^4"),
    r"\frac{3}{4}": (r"\frac{3}{4}", r"\frac34", "0.75"), r"-\frac{2}{3}": (r"-\frac{2}{3}", r"\frac{-2}{3}", "-2/3"),
    r"\frac{7}{2}": ("3.5", r"\dfrac{7}{2}", "7/2"), r"\sqrt{2}": (r"\sqrt{2}", r"\sqrt2", r"\sqrt{2}"),
    r"\frac{\sqrt{3}}{3}": (r"\frac{1}{\sqrt{3}}", r"\frac{\sqrt3}{3}", r"\dfrac{\sqrt{3}}{3}"),
    r"3\sqrt{5}": (r"3\sqrt{5}", r"\sqrt{45}", r"3 \sqrt5"),
    r"2+\sqrt{3}": (r"2+\sqrt{3}", r"\sqrt{3}+2", r"2 + \sqrt3"),
    r"9\pi": (r"9\pi", r"9 \pi", r"9\cdot\pi"), r"\frac{\pi}{6}": (r"\frac{\pi}{6}", r"\pi/6", r"\dfrac{\pi}{6}"),
    r"4\pi-8": (r"4\pi - 8", r"-8+4\pi", r"4(\pi-2)"), "2^{100}": ("2^{100}", "4^{50}", "2^{100}"),
    "x^2+2x+1": ("x^2+2x+1", "(x+1)^2", "1+2x+x^2"), "2x-5": ("2x-5", "-5+2x", "2x - 5"),
    r"\frac{n(n+1)}{2}": (r"\frac{n^2+n}{2}", r"\frac{n(n+1)}{2}", r"\frac{1}{2}n(n+1)"),
    "(3,9)": ("(3,9)", "(3, 9)", r"\left(3,9\right)"), r"(\frac{1}{2},-1)": ("(0.5,-1)", r"(\frac12, -1)", "(1/2,-1)"),
    r"[2,5)": ("[2,5)", "[2, 5)", r"\left[2,5\right)"),
    r"(-\infty,3)": (r"(-\infty,3)", r"(-\infty, 3)", r"(-\infty,3)"),
    r"\{1,2,3\}": (r"\{1,2,3\}", r"\{3,2,1\}", r"\{1, 2, 3\}"), "3+4i": ("3+4i", "4i+3", "3 + 4i"),
    r"\ln 2": (r"\ln 2", r"\ln(2)", r"\ln{2}"), r"e^{2}": ("e^2", "e^{2}", "e^{2}"), "x=4": ("x=4", "4", "x = 4"),
    r"\frac{1}{1024}": (r"\frac{1}{1024}", "2^{-10}", "1/1024"), "0.125": ("0.125", r"\frac18", "1/8"),
    r"90^\circ": (r"90^\circ", "90", r"90^{\circ}"), r"25\%": (r"25\%", "25%", r"25\%"),
    "10!": ("10!", "10!", "3628800"),
}  # fmt: skip
"""A result → three spellings of it."""
ALMOST = [
    "204.5",
    "34",
    "7",
    "-1",
    "89",
    "3",
    "999",
    "28",
    "124",
    "585",
    "1",
    "8",
    r"\frac{4}{3}",
    r"\frac{2}{3}",
    "2.5",
]
ALMOST += [
    r"\sqrt{3}",
    r"\frac{\sqrt{3}}{2}",
    r"5\sqrt{3}",
    r"2-\sqrt{3}",
    r"3\pi",
    r"\frac{\pi}{3}",
    r"4\pi+8",
    "2^{99}",
]
ALMOST += ["x^2+2x-1", "5x-2", r"\frac{n(n-1)}{2}", "(9,3)", "(1,-1)", "(2,5)", r"(-\infty,4)", r"\{1,2,4\}", "3-4i"]
ALMOST += [r"\ln 3", "e^{3}", "x=5", r"\frac{1}{512}", "0.25", r"45^\circ", r"75\%", "9!"]
"""For each of them a wrong one."""
THOUGHTS = (
    "Let me set this up. There are $12$ cases, and by symmetry we may take $a \\le b$, so $a+b=17$.",
    "We first try $n=5$, which gives $\\frac{5}{8}$; that is too small. Next, $n=6$.",
    "Recall that $\\sin^2 x + \\cos^2 x = 1$. Substituting, the left side becomes $3t^2-7t+2=0$.",
    "**Step 1.** Draw the altitude.\n\n**Step 2.** By Pythagoras its length is $\\sqrt{7}$.\n\n**Step 3.** Conclude.",
    "Hmm, wait. I made a mistake: it is $k=3$ and not $k=4$. Let me start again, with $k=3$.",
)
ENDINGS = (
    "So the result is $\\boxed{%s}$.",
    "\\boxed{%s}",
    "**Final Answer**\n\\[\n\\boxed{%s}\n\\]",
    "Therefore, the final answer is: $\\boxed{%s}$. I hope it is correct.",
    "Hence $\\boxed{%s}$ is what we were looking for.",
)
"""As our template asks for it."""
LINES = ("ANSWER: %s", "ANSWER: $%s$")
"""As Inspect asks for it."""
UNFINISHED = (
    "So we get",
    "I could not solve this problem, sorry.",
    "Let me check once more whether",
    "It is undecidable.",
)


class ModelAnswer(NamedTuple):
    """An answer to a question."""

    right: str
    """The right result, or the letter of the right option."""
    text: str
    """What the model wrote."""


def mathematics(endings: tuple[str, ...]) -> Iterator[ModelAnswer]:
    """Five answers to each of forty questions: three right, one wrong, one either wrong or without any result."""
    rng = random.Random("model answers")
    for i, (right, (spellings, wrong)) in enumerate(
        zip(RESULTS, zip(RESULTS.values(), ALMOST, strict=True), strict=True)
    ):
        for spelling in spellings:
            yield ModelAnswer(right, _written(rng, rng.choice(endings) % spelling))
        yield ModelAnswer(right, _written(rng, rng.choice(endings) % wrong))
        last = UNFINISHED[i // 2 % 4] if i % 2 else endings[i % len(endings)] % ALMOST[i - 1]
        yield ModelAnswer(right, _written(rng, last))


def _written(rng: random.Random, ending: str) -> str:
    return "\n\n".join([*rng.sample(THOUGHTS, rng.randint(0, 2)), ending])


OPTIONS = ("1.2 eV", "3.4 eV", "12 eV", "A photon of any energy")
CONSIDERED = (
    "Option A looks tempting, but the work function is larger.",
    "Let us compare. (A) is too small, and (C) is above the threshold.",
    "I think about each option. A: no. D: it ignores the threshold.",
    "A photon carries $h\\nu$; the electron keeps what is left. C would need $15$ eV.",
    "By elimination, B and C remain.",
)
LETTER_LINES = ("ANSWER: %s", "ANSWER: %s.", "**ANSWER: %s**", "ANSWER: $%s$", "Answer: %s", "ANSWER: (%s)")
"""As Inspect asks for it."""
LETTER_SENTENCES = (
    "The answer is (%s).", "Therefore, the answer is %s.", "So the correct answer is (%s)", "the answer is (%s)",
    "Hence the answer is (%s), as computed above.",
)  # fmt: skip
"""As lm-eval asks for it in MMLU-Pro."""
UNDECIDED = ("I cannot decide between them.", "None of the options fits.", "So the energy that is left is", "")


def letters(forms: tuple[str, ...]) -> Iterator[ModelAnswer]:
    """A hundred answers: about half are right, a third is wrong, the others give no letter."""
    rng = random.Random(f"letters {len(forms)}")
    for i in range(100):
        right = "ABCD"[i % 4]
        wrong = rng.choice([letter for letter in "ABCD" if letter != right])
        ending = UNDECIDED[i // 8 % 4] if i % 8 == 7 else rng.choice(forms) % (wrong if i % 3 == 2 else right)
        yield ModelAnswer(right, "\n".join([*rng.sample(CONSIDERED, rng.randint(0, 2)), ending]))
