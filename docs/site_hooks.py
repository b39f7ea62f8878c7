"""Hooks of the documentation site: pages from beside docs/, links to source files, and no resource from elsewhere.

The pages read the same in the repository. There, links to source files work and the experiments have their own READMEs.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = r"experiments/(?:CLAIMS\.md|\w+/(?:arena/|evidence/(?:\w+/)?)?(?:README\.md|[\w.-]+\.(?:svg|sh|toml)))"
"""Files beside docs/ that are part of the site."""
OUTWARD = re.compile(r"\[([^\]]*)\]\((?:\.\./)*(?:orgthink|pocket|experiments|benchmarks|tests|examples)/[^)]*\)")
"""A link to a file of the repository that is not part of the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the READMEs and figures of the experiments."""
    for path in sorted((ROOT / "experiments").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if re.fullmatch(PAGES, name):
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between docs/ and experiments/ lose the folder that the site does not have; links to code become text."""
    inside = re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)
    depth = page.file.src_uri.count("/")
    inside = re.sub(rf"\]\((?:\.\./){{{depth + 1}}}({PAGES})", rf"]({'../' * depth}\1", inside)
    return re.sub(rf"(?!\[[^\]]*\]\((?:\.\./)*{PAGES}){OUTWARD.pattern}", r"\1", inside)


def on_post_build(config: MkDocsConfig) -> None:
    """PluginError if a page loads anything from another server."""
    found = [f"{file}: {url}" for file in sorted(Path(config.site_dir).rglob("*.html")) for url in loaded(file)]
    if found:
        raise PluginError("the site must work offline, but pages load " + "; ".join(found))


def loaded(page: Path) -> list[str]:
    """Addresses of other servers that a page loads something from; plain links are none of them."""
    reader = _Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader.found


class _Reader(HTMLParser):
    """Collects what scripts, styles, images and frames are loaded from."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        url = known.get("src") or (known.get("href") if tag == "link" and known.get("rel") != "canonical" else None)
        if url and re.match(r"(https?:)?//", url):
            self.found.append(url)
