"""A headless Chromium with a page open, in short words.

`SCREENSHOTS=folder` keeps the pictures.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from orgthink.record.episode import Episode

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Page:
    """A browser with the page open, and short words for what the tests do."""

    def __init__(self, driver, place: Path | str) -> None:
        self.driver, self.address = driver, place if isinstance(place, str) else place.as_uri()

    def open(self, width: int = 1440, height: int = 1200, scheme: str = "light") -> None:
        """Load the page afresh in a window of this size and colour scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        self.driver.get("about:blank")
        self.driver.get(self.address)

    def all(self, selector: str):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str):
        return self.driver.find_element("css selector", selector)

    def active(self):
        """What has the focus."""
        return self.driver.switch_to.active_element

    def text(self, selector: str) -> str:
        """Text of the first element as it stands in the document, whatever is in sight."""
        return self.js("return document.querySelector(arguments[0]).textContent", selector)

    def texts(self, selector: str) -> list[str]:
        return self.js("return [...document.querySelectorAll(arguments[0])].map(node => node.textContent)", selector)

    def js(self, script: str, *arguments):
        return self.driver.execute_script(script, *arguments)

    def choose(self, select: str, value: str) -> None:
        self.one(f'{select} option[value="{value}"]').click()

    def search(self, text: str) -> None:
        box = self.one("#search")
        box.clear()
        box.send_keys(text or " \b")

    def press(self, key: str) -> None:
        from selenium.webdriver.common.keys import Keys

        self.one("body").send_keys(getattr(Keys, key))

    def hover(self, element) -> str:
        """What the tooltip says there."""
        from selenium.webdriver import ActionChains

        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        ActionChains(self.driver).move_to_element(element).perform()
        return self.one("#tip").text

    def show(self, episode: Episode) -> None:
        """Open an episode by its address."""
        self.js("location.hash = encodeURIComponent(arguments[0])", episode.id)
        self.wait(lambda: episode.problem.id in self.text("h2") and episode.organization in self.text("h2"))

    def wait(self, condition) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 5).until(lambda _: condition())

    def picture(self, name: str) -> bytes:
        data = self.driver.get_screenshot_as_png()
        if folder := os.environ.get("SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.png").write_bytes(data)
        return data


def start_chromium(profile: Path):
    """A driver of a fresh Chromium; fails the test where there is none."""
    from selenium import webdriver

    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.fail("needs chromium and chromedriver: see make test-browser")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
