"""What PostgreSQL cannot hold is refused while it is staged, by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import WrongValue
from tests.spark.writing import IDENTIFIED, MESSAGE, Writer


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            ("nope", "a-1", "T", "{}"),
            "id of a message to write is 'nope', which does not read as a UUID",
        ),
        ((None, "a\0-1", "T", "{}"), "stream_name of a message to write is 'a\\x00-1'"),
        ((None, "a-1", "T\0", "{}"), "type of a message to write is 'T\\x00'"),
        ((None, "a-1", "T", '{"a'), "data of a message to write is '{\"a', which does not read as"),
        ((None, "a-1", "T", '{"a": "\\u0000"}'), "data of a message to write is "),
    ],
)
def test_what_the_database_refuses_is_named(
    writer: Writer, row: tuple[Any, ...], problem: str
) -> None:
    with pytest.raises(WrongValue) as raised:
        writer.stage(IDENTIFIED, (None, "a-1", "T", "{}"), row)

    assert str(raised.value).startswith(problem)
    assert (writer.count("penstock.staged"), writer.count("penstock.stagings")) == (0, 0)


JSON_LIKE = st.text('{}[]":,\\u0019aetrfnl.- \n', max_size=12).map(lambda text: "{" + text)


@given(st.lists(JSON_LIKE | st.just('{"a": [1]}'), min_size=1, max_size=3))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_is_json_for_the_database_or_is_named(writer: Writer, texts: list[str]) -> None:
    found: WrongValue | None = None
    try:
        writer.stage(MESSAGE, *(("a-1", "T", text) for text in texts))
    except WrongValue as error:
        found = error

    assert found is None or (found.field == "data" and found.value in texts)
