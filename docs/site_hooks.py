"""Hooks of the documentation site: links to files of the repository, the order of search results, and no resource from
other servers."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError

BACKGROUND = ("api", "arena", "gpu_facts", "lessons", "papers/", "security", "speed")
"""Pages that the search finds after the guides."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files of the repository become text: the site does not have them."""
    if page.file.src_uri.startswith(BACKGROUND):
        page.meta["search"] = {"boost": 0.2}
    depth = page.file.src_uri.count("/") + 1
    return re.sub(rf"\[([^\]]*)\]\((?:\.\./){{{depth}}}[^)]*\)", r"\1", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """PluginError if a page loads anything from another server."""
    found = [f"{file}: {url}" for file in sorted(Path(config.site_dir).rglob("*.html")) for url in loaded(file)]
    if found:
        raise PluginError("the site must work offline, but pages load " + "; ".join(found))


def loaded(page: Path) -> list[str]:
    """Addresses of other servers from which a page loads something; plain links are allowed."""
    reader = _Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader.found


class _Reader(HTMLParser):
    """Collects the addresses of scripts, styles, images and frames."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        url = known.get("src") or (known.get("href") if tag == "link" and known.get("rel") != "canonical" else None)
        if url and re.match(r"(https?:)?//", url):
            self.found.append(url)
