"""The runner itself: each kind of block runs, and one that fails is a failed test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

PASSES = [
    "```python\n>>> 1 + 1\n2\n\n```\n",
    "```python\nprint('plain blocks may print')\nfound = 1\n```\n\n```python\n>>> found\n1\n\n```\n",
    "<!-- run: number = 1 -->\n\n```python\nassert number == 1\n```\n",
    "<!-- run:\nfor number in range(3):\n    pass\n-->\n\n```python\nassert number == 2\n```\n",
    "- a list:\n\n  ```python\n  assert True\n  ```\n",
    "```console\n$ echo one two\none ...\n$ touch made  # no output\n```\n\n```python\nopen('made').close()\n```\n",
    "```console\n$ false\n$ echo $?\n1\n```\n",
    "```console\n$ echo one \\\n>   two\none two\n$ pip install anyrecord\n```\n",
    "```console\n$ python -c 'import anyrecord; print(len(anyrecord.__all__) > 9)'\nTrue\n```\n",
    "```sh\ncd .\ntest -d .programs\n```\n",
    "<!-- not run: needs the moon -->\n```python\nraise SystemExit\n```\n",
    "```text\nnot code\n```\n\n```python\n1\n```\n",
]
FAILS = {
    "```python\n>>> 1 + 1\n3\n\n```\n": "Expected",
    "```python\n1 / 0\n```\n": "page1.md:2",
    "<!-- run: 1 / 0 -->\n": "ZeroDivisionError",
    "```console\n$ echo one\ntwo\n```\n": "Got:\n    one",
    "```console\n$ false\n```\n": "exit status 1",
    "```console\n$ echo one\n```\n": "one",
    "```console\n$ echo one\n$ exit 3\n$ echo two\n```\n": "the shell ended with status 3",
    "```sh\nfalse\n```\n": "status 1",
    "```console\nanyrecord info\n```\n": "a console block begins with",
    "```python\n1\n": "has no end",
    "<!-- not run: why -->\ntext\n": "between the mark",
}


def run(tmp_path: Path, pages: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs pytest on pages, which are `page0.md` and so on."""
    for number, page in enumerate(pages):
        (tmp_path / f"page{number}.md").write_text(page)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    command += ["-c", str(ROOT / "pyproject.toml"), "--confcutdir", str(ROOT), "--basetemp", str(tmp_path / "base")]
    command += ["--continue-on-collection-errors", *(f"page{number}.md" for number in range(len(pages)))]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)


def test_blocks_of_every_kind_run(tmp_path: Path) -> None:
    done = run(tmp_path, ["\n".join(PASSES)])
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_block_that_fails_is_a_failed_test_with_the_reason(tmp_path: Path) -> None:
    done = run(tmp_path, list(FAILS))
    assert "passed" not in done.stdout
    sections = re.split(r"^_{3,} .*?(page\d+\.md).*_{3,}$", done.stdout, flags=re.MULTILINE)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    for number, reason in enumerate(FAILS.values()):
        assert reason in found[f"page{number}.md"]


@pytest.mark.parametrize("name", ["README.md", "docs/formats.md"])
def test_pages_are_collected(name: str, pytestconfig: pytest.Config) -> None:
    found = pytestconfig.getini("testpaths")
    assert any((ROOT / name).is_relative_to(ROOT / place) for place in found)
