"""What the site needs beyond MkDocs: pages from outside of docs/, and checks of what was built.

Links in Markdown files are those of the repository, so that they work on a code host. They become links of the site.
"""

from __future__ import annotations

import html
import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LOG = logging.getLogger("mkdocs.hooks.site")
ROOT = Path(__file__).parent.parent.parent

# Pages of the site that are not in docs/, by their name there. Examples are shown as code.
ELSEWHERE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "notice.md": "NOTICE",
    "security.md": "SECURITY.md",
    **{f"examples/{path.stem}.md": f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.py"))},
}
PAGE_OF = {source: page for page, source in ELSEWHERE.items()}

LINK = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2`*$", re.MULTILINE | re.DOTALL)
OPTIONS = re.compile(r" *# doctest: .*$", re.MULTILINE)
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|link(?![^>]*rel="canonical"))\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]*)"|"""
    r"""(?:@import\s+|url\()["']?((?:https?:)?//[^"')]*)"""
)
LOST_LIST = re.compile(r"<p>(?:(?!</p>).)*\n(?:- |\* |\d+\. )", re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = [with_examples(entry) for entry in config.nav or []]
    return config


def with_examples(entry: Any) -> Any:
    """An entry of the navigation, with all examples where it says `examples`."""
    if isinstance(entry, str):
        return entry
    if entry == ["examples"]:
        return [name for name in ELSEWHERE if name.startswith("examples/")]
    if isinstance(entry, list):
        return [with_examples(below) for below in entry]
    return {title: with_examples(below) for title, below in entry.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".py"):
            text = f"# {source}\n\n```python\n{text}```\n"
        elif not source.endswith(".md"):
            text = f"# {source.capitalize()}\n\n```text\n{text}```\n"
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository become links of the site."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]  # there is nothing beside the tabs
    here = page.file.src_uri
    source = ELSEWHERE.get(here, f"docs/{here}")

    def in_site(link: re.Match[str]) -> str:
        text, target, anchor = link["text"], link["target"], link["anchor"] or ""
        if re.match(r"[a-z]+:|/", target):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        name = PAGE_OF.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if name is None or not (ROOT / path).exists():
            LOG.warning(f"{source}: the link {target!r} leads to no page of the site")
            return link[0]
        return f"{text}({posixpath.relpath(name, posixpath.dirname(here) or '.')}{anchor})"

    parts, at = [], 0
    for code in FENCED.finditer(markdown):
        parts += [LINK.sub(in_site, markdown[at : code.start()]), OPTIONS.sub("", code[0])]
        at = code.end()
    return "".join([*parts, LINK.sub(in_site, markdown[at:])])


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A list right after a line of text is a list on code hosts, but not here."""
    for lost in LOST_LIST.finditer(content):
        LOG.warning(f"{page.file.src_uri}: a list needs an empty line before it: {html.unescape(lost[0])[-60:]!r}")
    return content


def on_post_build(config: MkDocsConfig) -> None:
    """The site loads nothing from elsewhere."""
    for path in Path(config.site_dir).rglob("*"):
        if path.suffix in {".html", ".css", ".svg"}:
            for found in LOADED.finditer(path.read_text(encoding="utf-8")):
                LOG.warning(f"{path.name} loads {found[1] or found[2]} from elsewhere")
