"""The search of the documentation site finds the page that a reader looks for."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import start_chromium

ROOT = Path(__file__).parent.parent
SOUGHT = {"install": "install", "checkpoint": "train", "resume training": "train", "majority vote": "organizations"}
"""Words typed into the search → page that must come first."""
GUIDES = {
    "docker": "install",
    "gsm8k": "tasks",
    "budget": "endpoint",
    "own data": "tasks",
    "multiple gpus": "your_gpus",
}
"""The same for words that stand in no heading: guides come before the generated reference, the arena and the papers."""


@pytest.mark.parametrize("words", SOUGHT)
def test_the_page_has_a_heading_with_the_words(words):
    """The search ranks titles first."""
    headings = re.findall(r"^#+ (.*)", (ROOT / "docs" / f"{SOUGHT[words]}.md").read_text(), re.MULTILINE)
    assert any(words in heading.lower() for heading in headings), headings


def test_all_pages_are_in_the_navigation():
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)) == pages


@contextmanager
def served(folder: Path):
    """The URL of a folder on loopback."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.browser
def test_the_right_page_comes_first_in_the_browser(tmp_path):
    from selenium.webdriver.support.ui import WebDriverWait

    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", site], cwd=ROOT, check=True)
    driver = start_chromium(tmp_path / "profile")
    try:
        with served(site) as url:
            for words, page in (SOUGHT | GUIDES).items():
                driver.get(f"{url}/index.html?q={words}")
                result = "return document.querySelector('.md-search-result__link')?.href"
                found = WebDriverWait(driver, 30).until(lambda _: driver.execute_script(result))  # noqa: B023
                assert found.split("?")[0].split("#")[0] == f"{url}/{page}.html", words
            driver.get("about:blank")
    finally:
        driver.quit()
