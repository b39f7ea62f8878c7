"""The live page in a real headless Chromium: it follows what runs, asks for the key, and text never becomes markup."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from browser import Page, start_chromium

pytest.importorskip("uvicorn")
from serve.test_serve import Server, organizer, serving

from orgthink.view import render

pytestmark = pytest.mark.browser


@contextmanager
def running(
    driver: Any, folder: Path, rule: Callable[[str], str] = organizer, **how: Any
) -> Iterator[tuple[Server, str, Callable[[], None]]]:
    """A server in a thread of its own, its address, and what ends it. The browser leaves before it ends."""
    begun: queue.Queue[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def main() -> None:
        async with serving(folder, rule, **how) as server:
            ended = asyncio.Event()
            begun.put((server, asyncio.get_running_loop(), ended))
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    server, loop, ended = begun.get(timeout=30)

    def end() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.set)
        thread.join(30)

    try:
        yield server, str(server.client.base_url), end
    finally:
        driver.get("about:blank")
        end()


def ask(url: str, text: str = "How many?", model: str = "asyncthink-rule", key: str | None = None) -> threading.Thread:
    """Ask a question in the background."""
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    how = {"json": body, "headers": headers, "timeout": 60}
    thread = threading.Thread(target=httpx2.post, args=[f"{url}/v1/chat/completions"], kwargs=how)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    driver = start_chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(autouse=True)
def clean(driver):
    """Afterwards the console must be clean, but for refused keys, and nothing have been run."""
    yield
    log = [line["message"] for line in driver.get_log("browser")]
    assert [line for line in log if "status of 401" not in line] == []
    assert driver.execute_script("return window.pwned") is None


def slow(text: str) -> str:
    return organizer(text) if "How many?" in text else "part " * 1_500 + "<RETURN> three </RETURN>"


def test_an_episode_grows_while_one_looks(driver, tmp_path):
    with running(driver, tmp_path, slow, seconds=0.002) as (_, url, _end):
        asking = ask(url)
        page = Page(driver, url)
        page.open()
        page.wait(lambda: page.texts(".lane-name") == ["organizer", "worker 1"])
        assert page.texts(".row .grade") == ["…"] and "not yet" in page.texts(".pair .quiet")
        assert "running" in page.texts(".facts dd") and page.texts("#totals dd")[0] == "1 of 8"
        assert page.text("#count") == "1 episodes"

        def width() -> float:
            return float(
                page.js(
                    "return Math.max(...[...document.querySelectorAll('#lanes .bar')].map(b => b.width.baseVal.value))"
                )
            )

        def sampled() -> int:
            return int(page.texts(".facts dd")[2].split()[0].replace(",", ""))

        before = sampled()
        page.js("document.querySelector('.lane[data-agent=\"1\"]').focus()")
        page.active().send_keys("\ue007")  # Enter
        page.wait(lambda: sampled() > before + 100)
        assert width() > 50
        assert page.text(".chosen h4") == "worker 1" and "part part" in page.text(".column.chosen .context")
        assert page.js("return document.activeElement.dataset.agent") == "1", "the focus stays where it was"
        assert page.js("return document.querySelector('.lane.chosen').dataset.agent") == "1"
        asking.join()
        page.wait(lambda: page.texts("#totals dd")[1:2] == ["1"])
        page.wait(lambda: page.texts("#answer") == ["three"])
        assert page.text(".chosen h4") == "worker 1" and "done" in page.texts(".facts dd")


def test_what_the_reader_does_goes_on_while_an_episode_grows(driver, tmp_path):
    """What is open stays open, what is scrolled stays where it is, and the focus too."""
    with running(driver, tmp_path, slow, seconds=0.002) as (_, url, _end):
        asking = ask(url)
        page = Page(driver, url)
        page.open(420, 900)
        page.wait(lambda: page.texts(".lane-name") == ["organizer", "worker 1"])
        page.js("document.querySelector('#columns').scrollIntoView()")
        page.js("document.querySelector('#episode .meanings').open = true")
        page.js("document.querySelector('#columns').scrollLeft = 1e6")
        page.wait(lambda: page.all('.column[data-agent="1"] .context'))
        page.js("document.querySelector('.column[data-agent=\"1\"] .context').focus()")
        left = page.js("return document.querySelector('#columns').scrollLeft")
        first = page.text('.column[data-agent="1"] .context')
        page.js("window.before = document.querySelector('#columns')")
        page.wait(lambda: page.text('.column[data-agent="1"] .context') != first)
        assert not page.js("return window.before.isConnected"), "the episode was drawn again"
        assert page.js("return document.querySelector('#episode .meanings').open")
        assert page.js("return document.querySelector('#columns').scrollLeft") == left > 0
        assert page.js("return document.activeElement.closest('.column').dataset.agent") == "1"
        asking.join()


def test_the_timeline_is_that_of_the_file(driver, tmp_path):
    """Same record, same picture: the lanes and the context of the live page are those of `orgthink view`."""
    with running(driver, tmp_path) as (server, url, _):
        ask(url).join()
        page = Page(driver, url)
        page.open()
        page.wait(lambda: page.all("#lanes .bar"))
        here = drawn(page)
        (episode,) = server.folder.episodes()
        file = tmp_path / "view.html"
        file.write_text(render([episode]))
        view = Page(driver, file)
        view.open()
        assert here == drawn(view)


def drawn(page: Page) -> list[str]:
    """What is drawn of an episode, when all its texts have come into sight."""
    page.js("document.querySelector('#columns').scrollIntoView()")
    page.wait(lambda: len(page.all(".column .context")) == len(page.all(".column")) > 0)
    return page.js("return [...document.querySelectorAll('#lanes, #context, .agents, .facts')].map(n => n.outerHTML)")


def test_the_key_is_asked_for_and_forgotten_with_the_tab(driver, tmp_path):
    with running(driver, tmp_path, key="sesame-open") as (_, url, _end):
        ask(url, key="sesame-open").join()
        page = Page(driver, url)
        page.open()
        assert page.one("#login").is_displayed() and not page.one("main").is_displayed()
        assert page.js("return document.activeElement.id") == "key"
        page.one("#key").send_keys("wrong\n")
        page.wait(lambda: "not valid" in page.text("#login-trouble"))
        assert page.js("return sessionStorage.length") == 0 and not page.one("main").is_displayed()
        page.one("#key").send_keys("schlüssel\n")
        page.wait(lambda: "no such characters" in page.text("#login-trouble"))
        page.one("#key").send_keys("sesame-open\n")
        page.wait(lambda: page.texts("#answer") == ["three"])
        assert not page.one("#login").is_displayed()
        places = (
            "return [location.href, document.cookie, document.documentElement.outerHTML, JSON.stringify(localStorage)]"
        )
        assert all("sesame" not in text for text in page.js(places))
        assert page.js("return performance.getEntriesByType('resource').every(r => !r.name.includes('sesame'))")
        driver.refresh()
        page.wait(lambda: page.texts("#answer") == ["three"])
        page.one("#forget").click()
        assert page.one("#login").is_displayed() and page.texts("#answer") == []
        assert page.js("return sessionStorage.length") == 0
        driver.refresh()
        page.wait(lambda: page.one("#login").is_displayed())


@pytest.mark.parametrize(
    ("width", "height", "scheme", "key"), [(1440, 1200, "light", None), (390, 2200, "dark", "sesame-open")]
)
def test_the_page_fits(driver, tmp_path, width, height, scheme, key):
    with running(driver, tmp_path, key=key) as (_, url, _end):
        ask(url, "w" * 500 + " How many?", key=key).join()
        page = Page(driver, url)
        page.open(width, height, scheme)
        if key is not None:
            page.wait(lambda: page.one("#login").is_displayed())
            page.picture(f"live-login-{scheme}-{width}")
            assert page.js("return document.documentElement.scrollWidth") <= width
            page.one("#key").send_keys(f"{key}\n")
        page.wait(lambda: page.all("#lanes .bar"))
        assert len(page.picture(f"live-{scheme}-{width}")) > 15_000
        assert page.js("return document.documentElement.scrollWidth") <= width
        colour = page.js("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, colour[4:-1].split(","))) > 384) == (scheme == "light")
