"""The page of a growing run in a real headless Chromium: new rows appear, and text never becomes markup."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import sample
from browser import Page, start_chromium
from test_growing import EPISODES, following, grow, training

from orgthink.record.folder import RunFolder

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    driver = start_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


def folder_of(path: Path) -> RunFolder:
    return RunFolder.create(path / "run", "eval", PLAN)


PLAN = {
    "task": "countdown",
    "organizations": {"sequential": {"organization": "sequential"}, "asyncthink": {"organization": "asyncthink"}},
    "n": 2,
    "samples": 1,
    "engine": {"model": "m"},
    "sampling": {"max_tokens": 9},
}


def test_new_episodes_appear_without_a_reload(driver, tmp_path):
    folder = folder_of(tmp_path)
    grow(folder, EPISODES[0])
    with following(folder) as server:
        page = Page(driver, server.url)
        page.open(1200, 1000)
        page.wait(lambda: page.texts("#totals dd")[:1] == ["1 of 4"] and page.all("#lanes .bar"))
        page.js("window.mine = 1")
        grow(folder, EPISODES[2])
        page.wait(lambda: page.texts("#totals dd")[:1] == ["2 of 4"])
        assert page.js("return [document.querySelector('#bar').value, document.querySelector('#bar').max]") == [2, 4]
        assert page.texts("#by-organization option")[1:] == ["sequential", "asyncthink"]
        assert page.js("return window.mine") == 1
        page.one(".row").click()
        page.wait(lambda: page.texts(".column h4") == ["organizer", "worker 1", "worker 2"])
        page.choose("#by-organization", "sequential")
        page.wait(lambda: len(page.all(".row")) == 1)
        assert page.one("#whole").get_attribute("href").endswith("/all")
        driver.get("about:blank")
        assert driver.get_log("browser") == []


def test_curves_of_a_training(driver, tmp_path):
    lines = [{"step": i, "reward": i / 10, "kl": 0.0, sample.HOSTILE: i} for i in range(1, 6)]
    folder = training(tmp_path / "run", *map(json.dumps, lines))
    with following(folder) as server:
        page = Page(driver, server.url)
        page.open(1200, 1000)
        page.wait(lambda: page.texts("#totals dd")[:1] == ["5 of 50"])
        labels = page.js("return [...document.querySelectorAll('.charts svg')].map(svg => svg.ariaLabel)")
        assert len(labels) == 2 and page.texts("#more-charts figcaption span")[0] == sample.HOSTILE.replace("_", " ")
        assert labels[0] == "reward: 0.500 at step 5, between 0.100 and 0.500"
        points = page.js("return [...document.querySelector('#charts polyline').points].map(p => [p.x, p.y])")
        assert [y for _, y in points] == sorted((y for _, y in points), reverse=True) and len(points) == 5
        assert page.text("#constant") == "The same at every step: kl 0."
        with (folder.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 6, "reward": 0.6}) + "\n")
        page.wait(lambda: page.texts("#charts figcaption b")[:1] == ["0.600"])
        assert page.js("return window.pwned") is None and page.all("#progress :is(img, script)") == []
        driver.get("about:blank")
        assert driver.get_log("browser") == []


def test_names_of_a_run_are_no_markup_and_fit(driver, tmp_path, width=320):
    folder = folder_of(tmp_path)
    hostile = sample.HOSTILE + "unbroken" * 40
    made = EPISODES[-1]
    named = replace(made, id=hostile, organization=hostile, error=hostile, problem=replace(made.problem, id=hostile))
    grow(folder, named, EPISODES[0])
    (folder.path / "episodes.jsonl").open("a").write(f'"{sample.HOSTILE}"\n')
    with following(folder) as server:
        page = Page(driver, server.url)
        page.open(width, 1000)
        page.wait(lambda: len(page.all(".row")) == 2 and page.all("#lanes"))
        assert page.text("#trouble").startswith("episodes.jsonl, byte")
        page.all(".row")[1].click()
        page.wait(lambda: hostile in page.text("h2"))
        assert page.js("return document.documentElement.scrollWidth") <= width
        assert page.js("return window.pwned") is None and page.all("img, iframe") == []
        driver.get("about:blank")
        assert driver.get_log("browser") == []


def test_a_server_that_ends_is_reported_and_found_again(driver, tmp_path):
    folder = folder_of(tmp_path)
    with following(folder) as server:
        page = Page(driver, server.url)
        page.open(1200, 1000)
        page.wait(lambda: page.texts("#totals dd")[:1] == ["0 of 4"])
    page.wait(lambda: "does not answer" in page.text("#trouble"))
    grow(folder, EPISODES[0])
    with following(folder, server.server_port):
        page.wait(lambda: page.texts("#totals dd")[:1] == ["1 of 4"] and page.text("#trouble") == "")
    driver.get("about:blank")
    driver.get_log("browser")
