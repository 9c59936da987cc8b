"""Stream names: Python, our SQL and genuine Message DB take every name apart in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

import penstock
from penstock.message import names

# Mostly separators, so that they meet in every order; the server holds any text but NUL.
NAMES = st.lists(
    st.text(st.sampled_from("ab1-+:é😀$ "), max_size=12)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    max_size=20,
)
AWKWARD = ["", "-", "--", "a-", "-a", "a-+", "a-+b", "a--b+c", "a:b+c-d+e-f", "%s", "'", "a\n-b"]
for_the_server = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A connection to our installation."""
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        yield connection


@pytest.fixture
def genuine(new_database: Callable[[str], str]) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    """A connection to a genuine Message DB."""
    path = "-c search_path=message_store,public"
    url = new_database("genuine")
    with psycopg.connect(url, row_factory=dict_row, options=path) as connection:
        yield connection


Connection = psycopg.Connection[dict[str, Any]]


@for_the_server
@given(NAMES)
@example(AWKWARD)
def test_our_functions_on_the_server_are_those_in_python(
    connection: Connection, given_names: list[str]
) -> None:
    rows = connection.execute(
        """
        select message_store.category(n) as category, message_store.is_category(n) as is_category,
          message_store.id(n) as id, message_store.cardinal_id(n) as cardinal_id,
          message_store.hash_64(n) as hash_64
        from unnest(%s::varchar[]) with ordinality as given(n, number) order by number
        """,
        [given_names],
    ).fetchall()

    assert rows == [
        {
            "category": names.category(name),
            "is_category": names.is_category(name),
            "id": names.id(name),
            "cardinal_id": names.cardinal_id(name),
            "hash_64": names.hash_64(name),
        }
        for name in given_names
    ]


@for_the_server
@given(NAMES)
@example(AWKWARD)
def test_genuine_functions_are_those_in_python(genuine: Connection, given_names: list[str]) -> None:
    rows = genuine.execute(
        """
        select category(n) as category, is_category(n) as is_category, id(n) as id,
          hash_64(n) as hash_64, cardinal_id(n) as cardinal_id
        from unnest(%s::varchar[]) with ordinality as given(n, number) order by number
        """,
        [given_names],
    ).fetchall()

    assert rows == [
        {
            "category": names.category(name),
            "is_category": names.is_category(name),
            "id": names.id(name),
            "hash_64": names.hash_64(name),
            # decided: without a `+`, ours ends at the first hyphen as the specification says
            "cardinal_id": None if (id := names.id(name)) is None else id.partition("+")[0],
        }
        for name in given_names
    ]


@for_the_server
@given(NAMES, st.integers(min_value=1, max_value=32767))
@example(AWKWARD, 3)
def test_a_group_is_assigned_as_message_db_assigns_it(
    connection: Connection, genuine: Connection, given_names: list[str], size: int
) -> None:
    expected = [names.group_member(name, size) for name in given_names]

    ours = connection.execute(
        """
        select number from unnest(%s::varchar[], %s::bigint[]) with ordinality
          as given(n, member, number)
        where penstock.is_assigned(n, member, %s) order by number
        """,
        [given_names, expected, size],
    ).fetchall()
    theirs = genuine.execute(
        """
        select mod(@ hash_64(cardinal_id(n)), %s::smallint) as member
        from unnest(%s::varchar[]) with ordinality as given(n, number) order by number
        """,
        [size, given_names],
    ).fetchall()

    assigned = [number for number, member in enumerate(expected, 1) if member is not None]
    assert [row["number"] for row in ours] == assigned
    assert [row["member"] for row in theirs] == expected


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_group_can_move_between_the_two(new_database: Callable[[str], str], size: int) -> None:
    streams = [f"account-{n}{suffix}" for n in range(10) for suffix in ("", "-x", "+y", "-x+y")]

    shares = []
    for edition in ("penstock", "genuine"):
        with penstock.connect(new_database(edition)) as store:
            for name in streams:
                store.write_message(name, "Opened")
            shares.append(
                {
                    message.stream_name: member
                    for member in range(size)
                    for message in store.get_category_messages(
                        "account", consumer_group_member=member, consumer_group_size=size
                    )
                }
            )

    assert shares[0] == shares[1] == {name: names.group_member(name, size) for name in streams}
