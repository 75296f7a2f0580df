"""Collects Markdown pages for pytest: each is one test, a doctest that has all blocks of the page in it."""

from __future__ import annotations

import contextlib
import doctest
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from _pytest import doctest as pytest_doctest

from pages import console
from pages.blocks import RUN, Block, blocks
from pages.fixtures import ray_cluster, redis_url, s3_bucket

__all__ = ["pytest_collect_file", "ray_cluster", "redis_url", "s3_bucket"]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".md":
        return None
    page: pytest.Collector = Page.from_parent(parent, path=file_path)
    return page


class Page(pytest_doctest.DoctestTextfile):
    """One page. pytest's own class finds the doctests only; this one finds all blocks."""

    def collect(self) -> Iterable[pytest_doctest.DoctestItem]:
        text = self.path.read_text(encoding="utf-8")
        examples: list[doctest.Example] = []
        found = list(blocks(text))
        for number, block in enumerate(found):
            if block.reason is None and block.language in {*RUN, "hidden"}:
                examples += in_doctest(number, block)
        if not examples:
            return
        runner = pytest_doctest._get_runner(
            verbose=False,
            optionflags=pytest_doctest.get_optionflags(self.config),
            checker=pytest_doctest._get_checker(),
            continue_on_failure=pytest_doctest._get_continue_on_failure(self.config),
        )
        test = doctest.DocTest(examples, {"__name__": "__main__"}, self.path.name, str(self.path), 0, text)
        test.globs["__run"] = lambda number: run_plain(found[number], self.path, test.globs)
        yield pytest_doctest.DoctestItem.from_parent(self, name=test.name, runner=runner, dtest=test)


def in_doctest(number: int, block: Block) -> Iterable[doctest.Example]:
    """A block as examples of a doctest."""
    if block.is_doctest:
        for example in doctest.DocTestParser().get_examples(block.code):
            example.lineno += block.line - 1
            yield example
    elif block.language == "console":
        for command in console.commands(block.code):
            if console.is_run(command.text):
                # The shell of the block has run all of its commands when its first one is asked for.
                source = f"__run({number})({command.line})\n"
                exact = {doctest.NORMALIZE_WHITESPACE: False}
                line = block.line - 1 + command.line
                yield doctest.Example(source, command.output, lineno=line, options=exact)
    else:
        yield doctest.Example(f"__run({number})\n", "", lineno=block.line - 1)


def run_plain(block: Block, path: Path, globs: dict[str, Any]) -> Any:
    """Runs a block that is not a doctest."""
    if block.language in {"python", "hidden"}:
        # Lines of tracebacks are those of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(path), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, globs)
        return None
    if block.language == "sh":
        (output, status), *_ = console.run([block.code])
        assert status == 0, f"status {status}: {output}"
        return None
    return Transcript(block, globs)


class Transcript:
    """The output of the commands of a `console` block. They run together, because they share a shell."""

    def __init__(self, block: Block, globs: dict[str, Any]) -> None:
        self._block = block
        self._outputs: dict[int, dict[int, str]] = globs.setdefault("__outputs", {})

    def __call__(self, line: int) -> None:
        if self._block.line not in self._outputs:
            self._outputs[self._block.line] = self._run()
        print(self._outputs[self._block.line][line], end="")

    def _run(self) -> dict[int, str]:
        found = [command for command in console.commands(self._block.code) if console.is_run(command.text)]
        outputs = {}
        results = console.run([command.text for command in found])
        for number, (command, (output, status)) in enumerate(zip(found, results, strict=True)):
            shows_status = number + 1 < len(found) and "$?" in found[number + 1].text
            if status and not command.output and not shows_status:
                output += f"\nexit status {status}; if that is right, show it: $ echo $?\n"
            outputs[command.line] = output + "\n" if output and not output.endswith("\n") else output
        return outputs
