"""The command with hostile arguments: it answers or complains, and never by mistake."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import Result

from penstock import Store
from penstock.cli.app import app
from tests.cli.conftest import run
from tests.fuzz.hostile import UNHOLDABLE, many, texts

#: these lead to other databases, to other files, to another schema or to no end
LEFT_OUT = {"url", "folder", "follow", "source", "output", "take_over"}
#: these look at the machine, start Spark, or serve until they are ended
COMMANDS_LEFT_OUT = {"doctor", "demo", "run", "console"}


def commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], list[Any]]]:
    """Return all commands by their path, with their parameters."""
    inner = getattr(command, "commands", {})
    found = [one for name, sub in inner.items() for one in commands(sub, (*path, name))]
    parameters = [one for one in command.params if one.name not in LEFT_OUT]
    return [*found, (path, parameters)] if path and path[0] not in COMMANDS_LEFT_OUT else found


COMMANDS = commands(typer.main.get_command(app))

values = texts | st.integers(-2, 2**70).map(str) | st.sampled_from(["end", "table", "{}", "all"])


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with all of its arguments, and some of its options."""
    path, parameters = draw(st.sampled_from(COMMANDS))
    line = list(path)
    for one in parameters:
        if one.param_type_name == "argument":
            line.append(draw(values))
        elif draw(st.booleans()):
            line += [one.opts[0]] if one.is_flag else [one.opts[0], draw(values)]
    return line


@settings(many, max_examples=50)
@given(line=command_lines())
def test_any_arguments_are_answered_or_refused(store: Store, url: str, line: list[str]) -> None:
    check_answered_or_refused(run(*line, url=url))


@pytest.mark.parametrize("text", ["'; drop table message_store.messages; --", *UNHOLDABLE])
@pytest.mark.parametrize(
    ("path", "parameters"), [pytest.param(*one, id=" ".join(one[0])) for one in COMMANDS]
)
def test_every_command_answers_or_refuses_what_cannot_be_held(
    store: Store, url: str, path: tuple[str, ...], parameters: list[Any], text: str
) -> None:
    arguments = [text for one in parameters if one.param_type_name == "argument"]

    check_answered_or_refused(run(*path, *arguments, url=url))


def check_answered_or_refused(result: Result) -> None:
    """Every mistake is reported as the user's, not as Penstock's."""
    assert result.exit_code in (0, 1, 2), result.output
    assert "bug in Penstock" not in result.output
    assert "Traceback" not in result.output
