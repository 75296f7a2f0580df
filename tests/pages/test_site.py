"""The documentation site: it builds without a warning, and what must not be on it is noticed."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pages.test_reference import MODULES, ROOT

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def public_members(kind: type) -> set[str]:
    """What a class has beyond what it takes from Python's own and from frameworks."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("anyrecord")]
    called_by_beam = {"display_data", "expand"}
    return {name for base in own for name in vars(base) if not name.startswith("_")} - called_by_beam


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_and_member_is_in_the_reference(name: str, site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    shown = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    module = importlib.import_module(name)
    for public in module.__all__:
        kind = getattr(module, public)
        assert f"{name}.{public}" in shown
        if inspect.isclass(kind) and not issubclass(kind, Exception):
            assert {f"{name}.{public}.{member}" for member in public_members(kind)} - shown == set()


def test_nothing_in_the_reference_lacks_a_docstring(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(
            r'<h[34] id="([\w.]+)".*?<div class="doc doc-contents[^"]*">(.{200})', text, re.DOTALL
        ):
            assert "<p>" in found[2], found[1]


def test_the_site_is_readable_without_a_web_server(site: Path) -> None:
    assert 'href="quickstart.html"' in (site / "index.html").read_text(encoding="utf-8")
    assert not list(site.rglob("_site"))


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_site"))
    return importlib.import_module("hooks")


def page(name: str) -> Any:
    return SimpleNamespace(file=SimpleNamespace(src_uri=name), meta={})


def test_links_of_the_repository_become_links_of_the_site(hooks: ModuleType) -> None:
    def in_site(markdown: str, name: str) -> str:
        found: str = hooks.on_page_markdown(markdown, page(name), None, None)
        return found

    assert in_site("[a](docs/order.md#views) ![b](docs/images/curve.svg)", "index.md") == (
        "[a](order.md#views) ![b](images/curve.svg)"
    )
    assert in_site("[`c`](../README.md)", "order.md") == "[`c`](index.md)"
    assert in_site("[d](../errors.md) [e](https://example.com/#x)", "reference/errors.md") == (
        "[d](../errors.md) [e](https://example.com/#x)"
    )
    assert in_site("[f](../examples/demo.py)", "order.md") == "[f](examples/demo.md)"
    assert in_site("```\n[g](nowhere.md)\n```", "order.md") == "```\n[g](nowhere.md)\n```"


def test_what_must_not_be_on_the_site_is_a_warning(
    hooks: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    hooks.on_page_markdown("[a](nowhere.md)", page("order.md"), None, None)
    hooks.on_page_content("<p>such as:\n- one</p>", page("order.md"), None, None)
    (tmp_path / "page.html").write_text('<script src="https://example.com/a.js"></script><a href="https://b">fine</a>')
    (tmp_path / "page.css").write_text("@import url(//example.com/c.css)")
    hooks.on_post_build(SimpleNamespace(site_dir=tmp_path))
    text = caplog.text
    assert "'nowhere.md' leads to no page" in text
    assert "a list needs an empty line" in text
    assert "loads https://example.com/a.js" in text
    assert "loads //example.com/c.css" in text
    assert len(caplog.records) == 4
