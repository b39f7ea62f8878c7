"""The page in a real headless Chromium: what it shows is what the record says, and model text never runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import sample
from browser import Page, start_chromium

from orgthink.measure.columns import columns
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.summary import summarise
from orgthink.record.episode import (
    Edge,
    EdgeKind,
    Episode,
    FormatError,
    FormatFault,
    Grade,
    Origin,
    Problem,
    Span,
    Trace,
)
from orgthink.view import Part, render
from orgthink.view.layout import layout

pytestmark = pytest.mark.browser

EPISODES = sample.episodes()
NESTED = next(e for e in EPISODES if e.id.split("|")[0].endswith("#100"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    driver = start_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("view") / "view.html"
    path.write_text(render(EPISODES, title="countdown", notes={"budget": "400 tokens per agent"}), encoding="utf-8")
    return path


@pytest.fixture
def page(driver, file):
    """The page, opened; afterwards the console must be clean and nothing have been loaded or run."""
    page = Page(driver, file)
    page.open()
    yield page
    assert page.driver.get_log("browser") == []
    assert page.js("return performance.getEntriesByType('resource').length") == 0
    assert page.js("return window.pwned") is None


def test_overview_shows_the_summary(page):
    summary = summarise(EPISODES)
    found = columns(summary)
    heads = page.js("return [...document.querySelectorAll('#organizations th.number')].map(h => h.firstChild.data)")
    assert heads == ["graded / n", *(column.name for column in found)]
    for row, (name, numbers) in zip(page.all("#organizations tbody tr"), summary.items(), strict=True):
        assert row.find_element("css selector", "th").text == name
        shown = [cell.text for cell in row.find_elements("css selector", "td b")]
        graded = numbers["n"] - numbers["ungraded"]
        assert shown[0] == (str(numbers["n"]) if graded == numbers["n"] else f"{graded} / {numbers['n']}")
        means = [(column, column.value(numbers)["mean"]) for column in found]
        for text, (column, mean) in zip(shown[1:], means, strict=True):
            half = 0.5 * 10 ** -max(1, column.digits)
            assert float(text.replace(",", "")) == pytest.approx(column.factor * mean, abs=half + 1e-9)
        steps = numbers["critical_path_steps"]
        assert f"{steps['low']:.1f}–{steps['high']:.1f}" in row.text
    assert page.texts("#conditions dd")[-1] == "400 tokens per agent"


def test_the_best_value_of_a_column_has_a_star(page):
    """No column is without one, but those in which more is neither better nor worse, or all are equal."""
    means = {name: row["critical_path_steps"]["mean"] for name, row in summarise(EPISODES).items()}
    place = [column.key for column in columns(summarise(EPISODES))].index("critical_path_steps") + 2
    starred = page.texts(f"#organizations tr:has(td:nth-child({place + 1}) .star) th")
    assert starred == [min(means, key=means.__getitem__)]
    assert page.one("#organizations .star").get_attribute("aria-label") == "best"
    heads = page.js("return [...document.querySelectorAll('#organizations th.number')].map(h => h.firstChild.data)")
    neither = [heads.index(name) + 2 for name in ("graded / n", "replies", "η")]
    assert not any(page.all(f"#organizations td:nth-child({i}) .star") for i in neither)


@pytest.mark.parametrize("table", ["#organizations", "#usage", ".agents"])
def test_columns_are_explained_by_mouse_and_by_keys(page, table):
    from selenium.webdriver.common.keys import Keys

    heads = page.js(
        "return [...document.querySelectorAll(arguments[0] + ' th[title]')].map(h => [h.firstChild.data, h.title])",
        table,
    )
    count = page.js("return document.querySelectorAll(arguments[0] + ' thead th').length", table)
    assert len(heads) >= count - 2
    details = page.js(
        "return [...document.querySelectorAll('.meanings')].find(d =>"
        " d.compareDocumentPosition(document.querySelector(arguments[0])) & Node.DOCUMENT_POSITION_PRECEDING"
        " && d.previousElementSibling.matches(`${arguments[0]}, :has(${arguments[0]})`))",
        table,
    )
    summary = details.find_element("css selector", "summary")
    assert not details.find_element("css selector", "dl").is_displayed()
    summary.send_keys(Keys.ENTER)
    assert details.find_element("css selector", "dl").is_displayed()
    shown = [(node.text, text) for node, text in _pairs(details)]
    for name, meaning in heads:
        assert any(term == name and text.startswith(meaning) for term, text in shown)


def _pairs(details):
    for pair in details.find_elements("css selector", "dl div"):
        yield pair.find_element("css selector", "dt"), pair.find_element("css selector", "dd").text


def test_usage_tells_what_each_role_used(page):
    page.js("document.querySelector('#overview details').open = true")
    expected = [
        (name, role, used) for name, numbers in summarise(EPISODES).items() for role, used in numbers["usage"].items()
    ]
    for row, (name, role, used) in zip(page.all("#usage tbody tr"), expected, strict=True):
        assert row.find_element("css selector", "th").text == name
        shown = [cell.text for cell in row.find_elements("css selector", "td")]
        assert shown[0] == role
        assert float(shown[4].replace(",", "")) == pytest.approx(used["sampled_tokens"], rel=0.02, abs=0.5)


def test_plot_has_a_mark_with_whiskers_for_each_organization(page):
    names = list(summarise(EPISODES))
    labels = [mark.get_attribute("aria-label") for mark in page.all("#chart .point")]
    assert [label.split(":")[0] for label in labels] == names
    assert len(page.all("#chart .whisker")) == 2 * len(names)
    assert page.texts("#plot .legend li") == names
    page.choose("#plot-y", "at_least_1")
    at_least_one = [100 * numbers["at_least"][0]["mean"] for numbers in summarise(EPISODES).values()]
    labels = [mark.get_attribute("aria-label") for mark in page.all("#chart .point")]
    assert [float(label.split(":")[1].split("%")[0]) for label in labels] == pytest.approx(at_least_one, abs=0.051)
    assert page.hover(page.all("#chart .point path")[1]) == labels[1]


def test_marks_of_equal_values_are_seen(driver, tmp_path):
    """They have different shapes and are hollow: none covers another one."""
    same = [replace(e, organization=f"system {i}", id=f"{i}{e.id}") for i in range(8) for e in EPISODES[:1]]
    file = tmp_path / "same.html"
    file.write_text(render(same), encoding="utf-8")
    page = Page(driver, file)
    page.open()
    marks = page.js(
        "return [...document.querySelectorAll('#chart .point path')].map(p => [p.getAttribute('d'),"
        " getComputedStyle(p).fillOpacity, getComputedStyle(p).stroke, p.getAttribute('transform')])"
    )
    assert len({place for *_, place in marks}) == 1 and len({tuple(mark) for mark in marks}) == 8
    assert all(float(opacity) < 0.3 for _, opacity, _, _ in marks[:6])
    page.picture("equal-marks")


def test_parts_are_compared_each_by_itself(driver, tmp_path):
    names = list(summarise(EPISODES))
    parts = [Part("Part one", names[:2], "One came out."), Part("Part two", names[2:], "Two came out.")]
    file = tmp_path / "parts.html"
    file.write_text(render(EPISODES, parts=parts, introduction=["Terms are explained."]), encoding="utf-8")
    page = Page(driver, file)
    page.open(1000, 900)
    assert page.texts("#introduction p") == ["Terms are explained."]
    rows = page.texts("#organizations tbody tr > :first-child")
    assert rows == ["Part one", *names[:2], "One came out.", "Part two", *names[2:], "Two came out."]
    assert "within its part" in page.text("#note")
    assert page.texts("#plot .legend li") == names[:2] and len(page.all("#chart .point")) == 2
    page.choose("#plot-part", "1")
    assert page.texts("#plot .legend li") == names[2:] and len(page.all("#chart .point")) == len(names) - 2
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    assert driver.get_log("browser") == []
    page.picture("parts")


def test_learning_curves(driver, tmp_path):
    curves = {"reward": [(1, 0.1), (2, 0.4)], "entropy": [(1, 2.0), (2, 1.0)], "loss": [(1, 3.0), (2, 2.5)]}
    file = tmp_path / "curves.html"
    for episodes in (EPISODES, []):
        file.write_text(render(episodes, curves=curves), encoding="utf-8")
        page = Page(driver, file)
        page.open()
        assert page.texts("#charts figcaption:first-child span") == ["reward", "loss"]
        assert page.texts("#more-charts figcaption:first-child span") == ["entropy"]
        assert all(line.is_displayed() for line in page.all("#charts polyline"))
        assert page.one("main").is_displayed() is bool(episodes)
        assert driver.get_log("browser") == []
        page.picture(f"curves-{bool(episodes)}")


def test_filters_search_and_order(page):
    def count() -> int:
        return int(page.text("#count").split()[0])

    assert count() == len(EPISODES)
    page.choose("#by-organization", "asyncthink")
    asyncthink = [e for e in EPISODES if e.organization == "asyncthink"]
    assert count() == len(asyncthink)
    page.choose("#by-result", "wrong")
    assert count() == sum(e.grade is not None and not e.grade.all_correct for e in asyncthink)
    page.choose("#by-result", "format")
    assert count() == 1
    page.choose("#by-result", "failed")
    assert count() == 1
    assert "#102" in page.text(".row")
    page.choose("#by-result", "")
    page.choose("#order", "steps")
    slowest = sorted((critical_path(e) for e in asyncthink), reverse=True)
    shown = [int(text.split()[0]) for text in page.texts(".row .steps")]
    assert shown == slowest[: len(shown)]
    page.choose("#by-organization", "")
    page.search("RESET by peer")
    assert page.texts(".row .what") == [sample.errored().problem.id]
    page.search("no such words anywhere")
    assert (count(), page.all(".row")) == (0, [])


def test_lanes_are_the_layout(page):
    page.show(NESTED)
    drawn = layout(NESTED)
    assert page.texts(".lane-name") == ["organizer", "worker 1", "worker 1/1", "worker 1/2", "worker 1#2"]
    assert len(page.all("#lanes .bar")) == len(drawn.bars)
    assert len(page.all("#lanes .critical")) == len(drawn.critical)
    assert len(page.all("#lanes .wait")) == sum(wait.steps[0] < wait.steps[1] for wait in drawn.waits)
    assert len(page.all("#lanes .head.fork")) == sum(len(t.forks) for t in NESTED.traces) == 4
    assert len(page.all("#lanes .head.join")) == sum(len(t.joins) for t in NESTED.traces) == 4
    assert len(page.all("#lanes .head.hot")) == 6  # all but worker 1/1's, which nobody had to wait for
    assert len(page.all("#lanes .injected")) == 4
    assert len(page.all("#lanes .idle")) == 1
    facts = page.texts(".facts dd")
    assert facts[:3] == [
        "4 of 4 correct",
        f"{critical_path(NESTED)} steps",
        f"{sum(t.steps for t in NESTED.traces)} tokens",
    ]


@pytest.mark.parametrize("axis", ["steps", "seconds"])
def test_bars_lie_where_the_record_says(page, axis):
    page.show(sample_episode := sample.errored())
    page.one(f'[data-axis="{axis}"]').click()
    assert page.one(f'[data-axis="{axis}"]').get_attribute("aria-checked") == "true"
    places = page.js(
        "return [...document.querySelectorAll('#lanes .bar')].map(b => [b.x.baseVal.value, b.width.baseVal.value])"
    )
    drawn = [getattr(bar, axis) for bar in layout(sample_episode).bars]
    left = places[0][0]
    scale = (places[-1][0] - left) / drawn[-1][0]
    for (x, width), (start, end) in zip(places, drawn, strict=True):
        assert x == pytest.approx(left + scale * start, abs=0.5)
        assert width == pytest.approx(max(1, scale * (end - start)), abs=0.5)


def test_hover_tells_sampled_from_injected(page):
    page.show(NESTED)
    tip = page.hover(page.all("#lanes .bar")[0])
    assert tip.startswith("organizer · sampled · about step 1")
    assert " * " in tip
    assert page.all("#tip .sampled") and not page.all("#tip span.injected")
    tip = page.hover(page.all("#lanes .injected .reach")[0])
    assert tip.startswith("organizer · injected · 11 tokens from worker 1")
    injected = next(span for span in NESTED.root.spans if span.origin is Origin.INJECTED)
    assert page.texts("#tip span.injected") == [injected.text]
    tip = page.hover(page.all("#lanes .wait")[0])
    assert tip == "organizer waits for worker 1"


def test_what_a_worker_inherits_is_told_from_what_is_computed_for_it(driver, tmp_path):
    """As a pale bar before its own, in the table, and in its text."""
    shared, plain = sample.inheriting(), sample.asyncthink(77)
    path = tmp_path / "view.html"
    path.write_text(render([shared, plain]), encoding="utf-8")
    page = Page(driver, path)
    page.open()
    page.show(shared)
    worker = shared.traces[1]
    bars = page.all("#lanes .reused")
    assert len(bars) == 2 and "inherited context, reused" in page.texts(".legend li")
    reused, told = sum(span.tokens for span in worker.spans[:2]), worker.spans[2].tokens
    assert page.hover(bars[0]) == f"worker 1 inherits this: {reused} tokens reused, {told} computed"
    ranges = "return [...document.querySelectorAll(arguments[0])].map(b => [b.x, b.width].map(n => n.baseVal.value))"
    pale, own = page.js(ranges, "#lanes .reused"), page.js(ranges, "#lanes .bar:is([data-agent='1'], [data-agent='2'])")
    assert pale[0][0] == pale[1][0] == page.js(ranges, "#lanes .bar")[0][0], "it begins with the organizer"
    assert [x + width for x, width in pale] == pytest.approx([x for x, _ in own], abs=0.5), "and ends at its own"
    assert page.texts('.agents tr[data-agent="1"] td')[5] == f"{reused}{told} computed"
    assert page.texts('.agents tr[data-agent="0"] td')[5] == "–"
    page.all(".lane-name")[1].click()
    shown = page.js(
        "return [...document.querySelectorAll('.chosen [data-span]')].map(n => n.classList.contains('reused'))"
    )
    assert shown == [True, True, False, False]
    assert page.texts(".chosen .legend li")[-1] == f"reused {reused}"
    page.picture("inherited")
    page.show(plain)
    assert not page.all("#lanes .reused") and "inherited context, reused" not in page.texts(".legend li")
    assert page.driver.get_log("browser") == []


def test_context_of_every_agent_is_what_the_model_saw(page):
    page.show(NESTED)
    for i, trace in enumerate(NESTED.traces):
        page.one(f'.agents tr[data-agent="{i}"]').click()
        assert page.text(".column.chosen .context") == "".join(span.text for span in trace.spans)
        kinds = page.js("return [...document.querySelectorAll('.chosen [data-span]')].map(node => node.classList[0])")
        assert kinds == [str(span.origin) for span in trace.spans]
        cells = page.texts(f'.agents tr[data-agent="{i}"] td')
        assert cells[:2] == [str(trace.stop), str(trace.status)]
        assert int(cells[3]) == trace.steps
        assert float(cells[7]) == pytest.approx(trace.end - trace.start, abs=0.006)
    page.all(".lane-name")[0].click()
    tags = ["<FORK-1>", "</FORK-1>", "<JOIN-1>", "</JOIN-1>"]
    assert page.texts(".chosen .sampled .tag, .chosen .injected .tag")[:4] == tags


def test_the_page_opens_on_a_right_episode_of_several_agents(page):
    assert page.texts(".facts dd")[0] == "4 of 4 correct"
    assert len(page.all(".column .context")) > 1
    rivals = [e for e in EPISODES if len(e.traces) > 1 and e.grade and e.grade.all_correct and e.root.steps]
    assert page.texts(".facts dd")[1] == f"{min(map(critical_path, rivals))} steps"


def test_the_page_opens_on_agents_that_decode_at_once_rather_than_in_turns(driver, tmp_path):
    """Although those who take turns have a shorter critical path."""
    right, said = Grade(1, 1), (Span(Origin.SAMPLED, "…", 4),)
    edges = Edge(EdgeKind.FORK, "1", "worker", at=2), Edge(EdgeKind.JOIN, "1", "worker", at=2)
    traces = Trace("organizer", "organizer", None, said, edges), Trace("worker", "worker", "organizer", said)
    serial = Episode("e", Problem("p", "t", "in turns"), "in turns", 2, traces, grade=right)
    once = min((e for e in EPISODES if len(e.traces) > 2 and concurrency(e) > 1.2), key=critical_path)
    assert critical_path(serial) < critical_path(once) and concurrency(serial) == 1.0
    file = tmp_path / "turns.html"
    file.write_text(render([serial, replace(once, grade=right)]), encoding="utf-8")
    page = Page(driver, file)
    page.open()
    assert once.organization in page.text("h2")


def test_organizer_and_workers_stand_side_by_side(page):
    """In one line, as far as the window is wide, and each as wide as it must be to be read."""
    page.show(NESTED)
    page.js("document.querySelector('#columns').scrollIntoView()")
    assert page.texts(".column h4") == ["organizer", "worker 1", "worker 1/1", "worker 1/2", "worker 1#2"]
    places = page.js(
        "return [...document.querySelectorAll('.column')].map(c => c.getBoundingClientRect())"
        ".map(b => [b.left, b.top, b.width])"
    )
    assert len({top for _, top, _ in places}) == 1
    assert all(b[0] >= a[0] + a[2] for a, b in pairwise(places))
    assert all(width >= 320 for *_, width in places)
    for i, trace in enumerate(NESTED.traces):
        page.js("arguments[0].scrollIntoView({inline: 'center'})", page.all(".column")[i])
        page.wait(lambda i=i: page.all(f'.column[data-agent="{i}"] .context'))
        text = page.text(f'.column[data-agent="{i}"] .context')
        assert text == "".join(span.text for span in trace.spans)


def test_what_is_injected_names_the_worker_and_leads_to_it(page):
    page.show(NESTED)
    assert page.js("return [...document.querySelectorAll('.chosen .from')].map(f => f.dataset.from)") == [
        "from worker 1",
        "from worker 1#2",
    ]
    labels = page.js("return [...document.querySelectorAll('.chosen .from')].map(f => f.ariaLabel)")
    assert labels == ["from worker 1", "from worker 1#2"]
    assert page.js("return getComputedStyle(document.querySelector('.from'), '::before').content") == '"from worker 1"'
    page.all(".chosen .from")[1].click()
    assert page.text(".chosen h4") == "worker 1#2"
    assert page.js("return document.querySelector('.lane.chosen').dataset.agent") == "4"
    strip, column = page.js(
        "return [document.querySelector('#columns'), document.querySelector('.column.chosen')].map(n => {"
        " const b = n.getBoundingClientRect(); return [b.left, b.right]; })"
    )
    assert strip[0] <= column[0] + 1 and column[1] <= strip[1] + 1


def test_a_notice_of_the_runtime_is_nobodys_words(page):
    page.show(next(e for e in EPISODES if e.id.startswith(sample.faulty().problem.id)))
    senders = page.js("return [...document.querySelectorAll('.chosen .from')].map(f => f.dataset.from)")
    assert senders == ["from the runtime", "from the runtime", "from worker 1"]


def test_texts_of_many_agents_are_drawn_when_they_come_into_sight(driver, tmp_path):
    path = tmp_path / "many.html"
    path.write_text(render([many_workers(400)]), encoding="utf-8")
    page = Page(driver, path)
    page.open()
    assert len(page.all(".column")) == 401
    page.js("document.querySelector('#columns').scrollIntoView()")
    page.wait(lambda: 1 < len(page.all(".column .context")) < 40)
    page.js("document.querySelector('#columns').scrollLeft = 1e6")
    page.wait(lambda: page.all('.column[data-agent="400"] .context'))
    assert page.driver.get_log("browser") == []


def many_workers(count: int) -> Episode:
    """An organizer that forks and joins as many workers as wanted."""
    edges = [Edge(kind, str(i), f"o/{i}", at=1) for kind in EdgeKind for i in range(count)]
    injected = [Span(Origin.INJECTED, f"<JOIN-{i}>", 1, source=f"o/{i}") for i in range(count)]
    organizer = Trace("o", "organizer", None, (Span(Origin.SAMPLED, "x", 1), *injected), tuple(edges))
    workers = [Trace(f"o/{i}", "worker", "o", (Span(Origin.SAMPLED, f"text {i}", 2),)) for i in range(count)]
    return Episode("many", Problem("many", "task", "?"), "asyncthink", count + 1, (organizer, *workers))


def test_roles_stand_in_full_where_the_window_is_narrow(page, tmp_path):
    """A key that does not fit beside its role gets a line of its own."""
    page.open(390, 900)
    page.show(NESTED)
    assert page.texts(".lane-name") == ["organizer", "worker 1", "worker 1/1", "worker 1/2", "worker 1#2"]
    named = Trace("o/verification-1", "critical_reviewer", "o", (Span(Origin.SAMPLED, "fine", 1),))
    episode = many_workers(1)
    edges = tuple(Edge(kind, "verification-1", named.agent, at=1) for kind in EdgeKind)
    root = replace(episode.root, edges=edges, spans=episode.root.spans[:1])
    (tmp_path / "narrow.html").write_text(render([replace(episode, traces=(root, named))]), encoding="utf-8")
    page.driver.get((tmp_path / "narrow.html").as_uri())
    assert page.texts(".lane-name") == ["organizer", "critical_revie…"]
    assert page.texts(".lane-key") == ["verification-1"]
    assert page.texts(".lane title")[1] == "critical_reviewer verification-1"


def test_click_on_a_bar_opens_its_place(page):
    page.show(NESTED)
    page.all("#lanes .bar[data-agent='3']")[0].click()
    assert page.text(".chosen h4") == "worker 1/2"
    page.wait(lambda: page.all(".chosen .sampled.found"))


def test_a_controller_and_a_truncated_thinker(page):
    page.show(episode := next(e for e in EPISODES if e.organization == "parallel"))
    assert page.texts(".lane-name") == ["controller", "thinker 1", "thinker 2", "thinker 3"]
    assert page.text(".chosen h4") == "thinker 1"
    assert page.texts(".alarm") == ["TRUNCATED: thinker 3, after 140 steps"]
    assert page.texts(".agents td:nth-child(2)") == [str(trace.stop) for trace in episode.traces]
    page.all("#lanes .wait")[0].click()
    assert "this agent is code" in page.text(".column.chosen")


def test_format_faults_are_marked(page):
    page.show(faulty := next(e for e in EPISODES if e.id.startswith(sample.faulty().problem.id)))
    kinds = [str(fault.kind) for fault in faulty.format_faults]
    assert kinds == ["POOL_OVERFLOW", "UNKNOWN_JOIN"]
    assert len(page.all("#lanes .fault")) == 2
    assert page.texts(".chosen mark.fault") == kinds
    assert [text.split()[0] for text in page.texts(".alarm")] == kinds
    before = page.js("return document.querySelector('#context mark').previousSibling.textContent")
    assert before == "</FORK-2>"


def test_arrows_walk_through_the_filtered_list(page):
    page.choose("#by-organization", "parallel")
    page.all(".row")[0].click()
    seen = [page.text("h2")]
    page.press("ARROW_RIGHT")
    page.press("ARROW_RIGHT")
    seen.append(page.text("h2"))
    page.press("ARROW_LEFT")
    seen.append(page.text("h2"))
    ids = [e.problem.id for e in EPISODES if e.organization == "parallel"]
    assert seen == [f"parallel {ids[i]}" for i in (0, 2, 1)]
    assert "2 of 8" in page.text("#heading")
    assert page.text('.row[aria-selected="true"] .what') == ids[1]
    page.search("24")
    page.one("#search").send_keys("\ue014")  # an arrow in the search box moves its cursor, nothing else
    assert page.text("h2") == seen[-1]


def test_model_text_is_never_markup(page):
    page.show(hostile := EPISODES[-1])
    for i, trace in enumerate(hostile.traces):
        page.one(f'.agents tr[data-agent="{i}"]').click()
        assert page.text(".column.chosen .context") == "".join(span.text for span in trace.spans)
    page.hover(page.all("#lanes .bar")[0])
    page.hover(page.all("#lanes .injected .reach")[0])
    assert sample.HOSTILE.strip() == page.text("#answer")
    assert page.all("img, iframe, object, svg script, #episode script") == []
    assert len(page.all("script")) == 2
    assert page.js("return window.pwned") is None


def test_only_the_pages_own_script_may_run(driver, file):
    """Even markup that did get in would be inert: the policy names the page's script by its hash."""
    page = Page(driver, file)
    page.open()
    page.js("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned=1\">')")
    page.js("const s = document.createElement('script'); s.textContent = 'window.pwned=1'; document.body.append(s)")
    page.wait(lambda: len(page.driver.get_log("browser")) > 0)
    assert page.js("return window.pwned") is None


def test_thousands_of_episodes_keep_few_rows(driver, tmp_path):
    path = tmp_path / "many.html"
    path.write_text(render([e for _ in range(80) for e in EPISODES]), encoding="utf-8")
    page = Page(driver, path)
    page.open()
    assert page.text("#count") == f"{80 * len(EPISODES):,} episodes"
    assert len(page.all(".row")) < 60
    page.js("document.querySelector('#list').scrollTop = 1e6")
    page.wait(lambda: page.all(f"#row-{80 * len(EPISODES) - 1}"))
    assert page.driver.get_log("browser") == []


@pytest.mark.parametrize("address", ["#%", "#%FF"])
def test_an_address_that_is_none_opens_the_page(driver, file, address):
    driver.get("about:blank")
    driver.get(file.as_uri() + address)
    assert Page(driver, file).all("#heading")
    assert driver.get_log("browser") == []


LONG = "unbroken" * 40


@pytest.mark.parametrize("width", [320, 390])
def test_a_narrow_window_is_never_scrolled_sideways(driver, tmp_path, width):
    """Whatever is in it. What is wide scrolls in its own box."""
    long = many_workers(3)
    root = replace(long.root, model=LONG, error=LONG, spans=(Span(Origin.PROMPT, LONG, 1), *long.root.spans))
    problem = replace(long.problem, id=LONG, text=LONG, task=LONG)
    fault = FormatFault(FormatError.UNKNOWN_JOIN, root.agent, 1, LONG)
    long = replace(long, problem=problem, organization=LONG, answer=LONG, error=LONG, traces=(root, *long.traces[1:]))
    path = tmp_path / "narrow.html"
    path.write_text(render([replace(long, format_faults=(fault,)), *EPISODES], title=LONG), encoding="utf-8")
    page = Page(driver, path)
    page.open(width, 900)
    page.js("document.querySelectorAll('details').forEach(details => details.open = true)")
    page.js("document.querySelector('.row').click()")
    assert LONG in page.text("h2")
    for _ in EPISODES:
        assert page.js("return document.documentElement.scrollWidth") <= width
        page.press("ARROW_RIGHT")
    page.show(NESTED)
    for box in ("#columns", "#organizations"):
        wide, parts = page.js(
            "const n = document.querySelector(arguments[0]); const s = n.closest('.scroll, #columns');"
            " return [s.scrollWidth > s.clientWidth, getComputedStyle(s).overflowX]",
            box,
        )
        assert (wide, parts) == (True, "auto")


def test_no_episodes(driver, tmp_path):
    path = tmp_path / "empty.html"
    path.write_text(render([]), encoding="utf-8")
    page = Page(driver, path)
    page.open()
    assert page.text("#episode") == "No episode."
    assert page.driver.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1440, 1500), (420, 2600)])
def test_pictures(page, scheme, width, height):
    page.open(width, height, scheme)
    page.show(NESTED)
    assert len(page.picture(f"{scheme}-{width}")) > 20_000
    assert page.js("return document.documentElement.scrollWidth") <= width
    colour = page.js("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, colour[4:-1].split(","))) > 384) == (scheme == "light")
