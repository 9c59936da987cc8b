"""Texts that would break out if anything were glued together from strings, and how to draw them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, example, settings
from hypothesis import strategies as st

#: if one of these is ever run as SQL, the database is not what it was; see `Witness`
SQL = [
    "'; drop table message_store.messages cascade; --",
    "'); create table penstock.injected (); --",
    "'::text); delete from message_store.messages; select ('",
    '"; create role injected; --',
    "$$; create schema injected; $$",
    "$body$ create schema injected $body$",
    "\\'; create schema injected; --",
    "x' or '1'='1",
    "x' union select 'injected', null --",
    "1); truncate message_store.messages; --",
    "/* */; create schema injected; --",
    "; create schema injected;",
    "'||(select pg_terminate_backend(pg_backend_pid()))||'",
]

#: what else has a meaning somewhere: to psycopg, JSON, arrays, LIKE, formats, shells, terminals
MARKS = [
    "%s", "%(name)s", "%", "%%", "{}", "{0}", "{a,b}", '{"a": "b"}', '","type":"injected', "NULL",
    "null", "nil", "\\", "\\\\", "\\x41", "E'\\\\'", "'", '"', "''", '""', "`", "$1", ":name", "_",
    "*", "a|b", "a:b", "a\\:b", "a|b:c\\", "a,b", "a=b", "+", "account+x", "a:b+c", "-", "--", "a-",
    "\t", "\n", "\r\n", " ", "  x  ", "\x1b[2J", "\u2028", "\ufeff", "ʼ", "＇", "\U0001f6b0",
    "İ", "true", "0", "-1", "1e999", "../../etc/passwd", "~", "join.wait", "penstock", "x" * 3000,
]  # fmt: skip

#: what PostgreSQL cannot hold as text
UNHOLDABLE = ["", "a\0b", "\0", "a\ud800b", "\udfff"]

_CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")

#: text that PostgreSQL can hold
holdable = st.sampled_from(SQL) | st.sampled_from(MARKS) | st.text(_CHARACTERS, min_size=1)

#: any text at all
texts = (
    holdable
    | st.sampled_from(UNHOLDABLE)
    | st.text(st.characters(exclude_categories=()))
    | st.builds("account-{}".format, st.sampled_from(SQL))
)

#: the same on one database, of which each example uses its own part; never slow enough to matter
many = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
few = settings(many, max_examples=6)

Test = TypeVar("Test", bound=Callable[..., None])


def surely(test: Test) -> Test:
    """Have each text that breaks out, and each that cannot be held, among the examples."""
    for text in (*SQL, *UNHOLDABLE):
        test = example(text=text)(test)
    return test
