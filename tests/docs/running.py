"""Runs the blocks of a page, in order, as a reader would who types them in one after the other.

Python blocks share one namespace and may `await` at top level. What a statement shows stands in
comments in it or below it, with `...` for what differs from run to run:

    store.stream_version("account-1")  # -> 0
    for message in store.read_stream("account-1"):
        print(message.type)
    # -> Opened
    # -> Deposited
    store.write_message("account-1", "Opened", expected_version=9)
    # raises WrongExpectedVersion: stream account-1 is at version 1, not 9

`# ->` is what was printed or, if nothing was, the value of the expression or of the name that was
assigned; within a block, what was printed and the values of expressions on lines with `# ->`. A
statement that prints has to show it, and one that raises has to say so.

SQL blocks run on the page's database. Of console blocks the lines that begin with `$ penstock` run,
and what stands below them is what they print; other commands need a `not run` line. A block with a
title is a file, which the blocks after it find in their folder.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import io
import os
import re
import subprocess
import tokenize
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

import penstock
from tests.docs.pages import Block, blocks, name, uses_spark
from tests.forked_python import penstock_server, spark_server

CONSOLE = ("console", "sh", "shell", "bash")
SHOWN_ONLY = ("", "text", "json", "ini", "toml", "yaml")


class Wrong(AssertionError):
    """A block did not do what its page says."""


def run_page(page: Path, url: str | None, variables: Mapping[str, str] = {}) -> None:
    """Run the blocks of a page in this environment and folder, on the database at `url`.

    Commands also get these variables.
    """
    namespace: dict[str, Any] = {"__name__": "__main__", "__echo__": _echo}
    with asyncio.Runner() as loop:
        try:
            for block in blocks(page):
                if block.not_run is None:
                    _runner(block, url, variables)(block, namespace, loop)
        finally:
            _close_stores(namespace, loop)


def _runner(
    block: Block, url: str | None, variables: Mapping[str, str]
) -> Callable[[Block, dict[str, Any], asyncio.Runner], None]:
    if block.title is not None:
        return lambda block, *_: save_file(block)
    if block.language == "python":
        return run_python
    if block.language == "sql":
        return lambda block, *_: run_sql(block, url)
    if block.language in CONSOLE:
        return lambda block, *_: run_console(block, variables)
    if block.language in SHOWN_ONLY:
        return lambda *_: None
    raise Wrong(f"{_where(block)}: nobody knows how to run {block.language!r}")


def run_python(block: Block, namespace: dict[str, Any], loop: asyncio.Runner) -> None:
    """Run a block statement by statement, and compare what each shows with what it should."""
    source = "\n" * (block.line - 1) + block.text  # so that tracebacks name the page's lines
    comments = _comments(source)
    for statement, lines in _statements(source):
        own = [comments[line] for line in lines if line in comments]
        at = f"{name(block.page)}, line {statement.lineno}"
        outcome = _outcome(_echoing(statement, comments), block, namespace, loop)
        _check_raised(at, outcome, [text[2:] for text in own if text.startswith("# raises ")])
        _check_shown(at, outcome, [text[5:] for text in own if text.startswith("# -> ")])


def save_file(block: Block) -> None:
    """Put a block with a title where the page's commands find it, as a reader would."""
    Path(str(block.title)).write_text(f"{block.text}\n", encoding="utf-8")


def run_sql(block: Block, url: str | None) -> None:
    """Run a block of SQL."""
    with psycopg.connect(url or os.environ["PENSTOCK_URL"], autocommit=True) as connection:
        connection.execute(block.text.encode())


def run_console(block: Block, variables: Mapping[str, str]) -> None:
    """Run the commands of a block, and compare what each prints with what stands below it."""
    commands = list(_commands(block))
    if not commands:
        raise Wrong(f"{_where(block)}: no line begins with `$ `: mark the block as not run")
    for command, expected in commands:
        if command.split()[0] != "penstock":
            raise Wrong(f"{_where(block)}: `{command}` is not ours: mark the block as not run")
        server = spark_server() if uses_spark(block.page) else penstock_server()
        path = (
            f"{server.program('penstock', '-m', 'penstock').parent}{os.pathsep}{os.environ['PATH']}"
        )
        done = subprocess.run(
            command,
            shell=True,
            env={**os.environ, **variables, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,  # Spark may have to start
            check=False,
        )
        at = f"{_where(block)}, `{command}`"
        if done.returncode != 0 and set(expected) <= {"..."}:
            raise Wrong(f"{at} ended with {done.returncode}:\n{done.stderr}")
        if expected:
            check_lines(at, done.stdout + done.stderr, expected)


def check_lines(at: str, shown: str, expected: list[str]) -> None:
    """Refuse text that differs from the expected lines, in which `...` stands for anything."""
    wanted = _stripped("\n".join(expected))
    if not doctest.OutputChecker().check_output(wanted, _stripped(shown), doctest.ELLIPSIS):
        raise Wrong(f"{at} should show\n\n{wanted}\nand shows\n\n{shown}")


def _statements(source: str) -> Iterator[tuple[ast.stmt, range]]:
    """The statements at top level, each with its lines, up to where the next one begins."""
    statements = ast.parse(source).body
    begins = [statement.lineno for statement in statements]
    ends = [*begins[1:], source.count("\n") + 2]
    for statement, begin, end in zip(statements, begins, ends, strict=True):
        yield statement, range(begin, end)


def _echoing(statement: ast.stmt, comments: dict[int, str]) -> ast.stmt:
    """The statement made to keep its value as the prompt does, and to print those within it."""
    if isinstance(statement, ast.Expr):
        assign = ast.Assign([ast.Name("_", ast.Store())], statement.value)
        return ast.copy_location(assign, statement)
    for node in ast.walk(statement):
        if isinstance(node, ast.Expr) and comments.get(node.end_lineno or 0, "").startswith("# ->"):
            node.value = ast.Call(ast.Name("__echo__", ast.Load()), [node.value], [])
    return statement


def _echo(value: object) -> None:
    if value is not None:
        print(repr(value))


@dataclass(frozen=True)
class Outcome:
    """What running a statement did."""

    printed: str
    error: Exception | None = None
    value: object = None


def _outcome(
    statement: ast.stmt, block: Block, namespace: dict[str, Any], loop: asyncio.Runner
) -> Outcome:
    module = ast.fix_missing_locations(ast.Module([statement], []))
    code = compile(module, name(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            awaitable = eval(code, namespace)
            if code.co_flags & inspect.CO_COROUTINE:
                loop.run(awaitable)
    except Exception as error:
        return Outcome(printed.getvalue(), error)
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)]):
            return Outcome(printed.getvalue(), value=namespace[target])
    return Outcome(printed.getvalue())


def _check_raised(at: str, outcome: Outcome, expected: list[str]) -> None:
    error = outcome.error
    raised = f"raises {type(error).__name__}: {error}" if error else "raises nothing"
    if error and not expected:
        raise Wrong(f"{at} {raised}") from error
    for text in expected:
        check_lines(at, raised if ":" in text else raised.partition(":")[0], [text])


def _check_shown(at: str, outcome: Outcome, expected: list[str]) -> None:
    if expected:
        check_lines(at, outcome.printed or repr(outcome.value), expected)
    elif outcome.printed:
        raise Wrong(f"{at} prints, and the page does not show what:\n\n{outcome.printed}")


def _comments(source: str) -> dict[int, str]:
    """The comments by line, without the indentation of the code around them."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {one.start[0]: one.string for one in tokens if one.type == tokenize.COMMENT}


def _commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines it should print."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *output = part.replace("\\\n", " ").splitlines()
        yield command, [line for line in output if line.strip()]


def _stripped(text: str) -> str:
    """The text without blank lines and blanks at the ends of lines, which no reader sees."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines() if line.strip())


def _close_stores(namespace: dict[str, Any], loop: asyncio.Runner) -> None:
    for value in namespace.values():
        if isinstance(value, penstock.Store):
            value.close()
        elif isinstance(value, penstock.AsyncStore):
            loop.run(value.close())


def _where(block: Block) -> str:
    return f"{name(block.page)}, line {block.line}"
