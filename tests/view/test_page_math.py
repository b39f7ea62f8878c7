"""Mathematics on the page, in a real browser: what is known is typeset, everything else stays as it was written."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import sample
from browser import Page, start_chromium

from orgthink.record.episode import Episode, Origin, Problem, Span, Trace
from orgthink.view import render

pytestmark = pytest.mark.browser

TYPESET = {
    r"$\frac{1}{2}$": "<mfrac><mn>1</mn><mn>2</mn></mfrac>",
    r"\(\frac 1 2\)": "<mfrac><mn>1</mn><mn>2</mn></mfrac>",
    r"$x^2_i$": "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>",
    r"$x_{i}^{2}$": "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup>",
    r"$f''$": "<msup><mi>f</mi><mo>′′</mo></msup>",
    r"\boxed{-42}": '<mrow class="boxed"><mrow><mo>−</mo><mn>42</mn></mrow></mrow>',
    r"$\sqrt[3]{2}$": "<mroot><mn>2</mn><mn>3</mn></mroot>",
    r"$3 \times \alpha$": "<mn>3</mn><mo>×</mo><mi>α</mi>",
    r"$\sin\theta \le 1.5$": "<mi>sin</mi><mi>θ</mi><mo>≤</mo><mn>1.5</mn>",
    r"$\text{two words}$": "<mtext>two words</mtext>",
    r"$\left(x\right)$": '<mrow><mo fence="true">(</mo><mi>x</mi><mo fence="true">)</mo></mrow>',
    r"$\overline{AB}$": '<mover><mrow><mi>A</mi><mi>B</mi></mrow><mo stretchy="true">‾</mo></mover>',
    r"$\mathbb{R}$": "<mi>ℝ</mi>",
    r"$50\%$": "<mn>50</mn><mo>%</mo>",
    r"$$\sum_{i=1}^n i$$": "<mrow><munderover>"
    '<mo movablelimits="true">∑</mo>'
    "<mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi></mrow>",
    r"\[\begin{cases} x & y \\ z \end{cases}\]": "<mrow>"
    '<mo fence="true">{</mo><mtable><mtr><mtd><mi>x</mi></mtd><mtd><mi>y</mi></mtd></mtr>'
    "<mtr><mtd><mi>z</mi></mtd></mtr></mtable></mrow>",
}
"""Sources, and what each must contain as MathML."""

SOURCE = (
    "it costs $5 and $6",
    "from $HOME/bin to $PATH",
    "a dollar $ alone",
    r"an escaped \$x\$",
    r"$\unknowncommand{2}$",
    r"$\constructor{2}$",
    r"$\frac{1}$",
    r"$x^$",
    r"$x^1^2$",
    r"$}{$",
    r"\(never closed",
    r"\boxed{never closed",
    r"$\begin{tabular} x \end{tabular}$",
    r"$\left( x$",
    r"$x \href{javascript:alert(1)}{y}$ and $\html{<b>}$ and $\style{color:red}{x}$ and $\class{a}{x}$",
    "$" + "{" * 50 + "x" + "}" * 50 + "$",
    "$" + "x" * 2_001 + "$",
    "$a$b",
    "",
)
"""What is no formula, is not closed, is too long or too deep, or is unknown."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    driver = start_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


def episode(problem: str, answer: str, context: str = "x") -> Episode:
    trace = Trace("solver", "solver", None, (Span(Origin.SAMPLED, context, 1),), model="small")
    return Episode("e", Problem("p", "task", problem), "alone", 1, (trace,), answer=answer)


def opened(driver, path: Path, *episodes: Episode) -> Page:
    path.write_text(render(episodes), encoding="utf-8")
    page = Page(driver, path)
    page.open()
    return page


def formulas(page: Page, where: str) -> list[str]:
    """The MathML of all formulas, without the namespace."""
    return page.js(
        "return [...document.querySelectorAll(arguments[0] + ' math')].map(node => "
        'new XMLSerializer().serializeToString(node).replaceAll(/ xmlns="[^"]*"/g, \'\'))',
        where,
    )


def test_formulas_are_typeset(driver, tmp_path):
    page = opened(driver, tmp_path / "page.html", episode("\n".join(f"so {source}, ok" for source in TYPESET), "4"))
    found = formulas(page, ".quote")
    assert len(found) == len(TYPESET)
    for (source, expected), shown in zip(TYPESET.items(), found, strict=True):
        assert expected in shown
        (written,) = re.findall('alttext="([^"]*)"', shown)
        assert unescape(written) in source
    assert page.js("return [...document.querySelectorAll('math[display=block]')].length") == 2
    heights = page.js("return [...document.querySelectorAll('mfrac')].map(n => n.getBoundingClientRect().height)")
    line = page.js("return document.querySelector('mn').getBoundingClientRect().height")
    assert min(heights) > 1.3 * line  # the browser stacks them
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("text", SOURCE)
def test_what_is_unknown_stays_as_it_is_written(driver, tmp_path, text):
    page = opened(driver, tmp_path / "page.html", episode(text, text))
    assert page.text(".quote") == text
    assert page.text("#answer") == text
    known = page.js("return [...document.querySelectorAll('math *')].map(node => node.localName)")
    assert set(known) <= {"mrow", "mi"}
    assert driver.get_log("browser") == []


def test_an_answer_may_be_a_formula_without_signs(driver, tmp_path):
    page = opened(driver, tmp_path / "page.html", episode(r"\frac{1}{2} is no formula here", r"\frac{1}{2}"))
    assert formulas(page, "#answer") and len(formulas(page, ".quote")) == 1


def test_contexts_are_shown_as_they_were_seen_until_mathematics_is_wanted(driver, tmp_path):
    text = r"I find $x^2$ <ANSWER>\boxed{4}</ANSWER>"
    plain = replace(episode("?", "4"), id="plain")
    page = opened(driver, tmp_path / "page.html", episode("?", "4", text), plain)
    assert page.text(".context") == text and not formulas(page, ".context")
    page.one('[data-typeset="true"]').click()
    assert len(formulas(page, ".context")) == 2
    assert page.texts(".context .tag") == ["<ANSWER>", "</ANSWER>"]
    page.one('[data-typeset="false"]').click()
    assert page.text(".context") == text
    page.press("ARROW_RIGHT")
    assert not page.all("[data-typeset]")  # nothing to typeset


def test_prompts_and_empty_boxes_stay_as_they_were_written(driver, tmp_path):
    question = r"What is $x^2$? Answer in \boxed{}."
    one = episode(question, "4", r"$x^2$ is \boxed{4}, not \boxed{ }")
    spans = (Span(Origin.PROMPT, question, 1), *one.traces[0].spans)
    page = opened(driver, tmp_path / "page.html", replace(one, traces=(replace(one.traces[0], spans=spans),)))
    assert "\\boxed{}" in page.text(".quote") and len(formulas(page, ".quote")) == 1
    page.one('[data-typeset="true"]').click()
    assert page.text(".context .prompt") == question
    assert len(formulas(page, ".context")) == 2 and "\\boxed{ }" in page.text(".context .sampled")


def test_hostile_text_in_formulas_is_no_markup(driver, tmp_path):
    wrapped = [f"${sample.HOSTILE}$", rf"\boxed{{{sample.HOSTILE}}}", rf"$\text{{{sample.HOSTILE}}}$"]
    text = "\n".join(wrapped)
    page = opened(driver, tmp_path / "page.html", episode(text, text, text))
    page.one('[data-typeset="true"]').click()
    assert page.all(".quote :is(img, script), .context :is(img, script), math :is(img, script, svg, a)") == []
    assert page.js("return window.pwned") is None
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("unit", [r"\(", "$", "$$", r"\boxed{", "x$ ", "{", r"\\", r"$\sqrt{"])
def test_a_flood_of_signs_is_shown_as_it_is(driver, tmp_path, unit):
    page = opened(driver, tmp_path / "page.html", episode(unit * (190_000 // len(unit)), "x"))
    assert page.text(".quote") == unit * (190_000 // len(unit))
    assert driver.get_log("browser") == []
