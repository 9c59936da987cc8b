"""Calls to the functions of Message DB, made up by hypothesis: from few names, so that they meet.

What differs on purpose is left out: a message's id comes twice only in different streams, one that
is no UUID only without an expected version, and so on (see `differences.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


@dataclass(frozen=True)
class Call:
    """A call and its arguments."""

    sql: str
    arguments: tuple[Any, ...] = ()


def sequences() -> SearchStrategy[list[Call]]:
    """Sequences of calls in which no message is written twice to its stream."""
    return st.lists(_calls(), min_size=1, max_size=25).map(_without_repeated_writes)


def _calls() -> SearchStrategy[Call]:
    write = _call("select write_message({})", _ids, _names, _types, _json, _json, _versions)
    no_ids = st.sampled_from(["x", "", None])
    bad_write = _call("select write_message({})", no_ids, _names, _types, _json)
    stream = _call("select * from get_stream_messages({})", _names, _numbers, _sizes, _conditions)
    category = _call(
        "select * from get_category_messages({})",
        _names, _numbers, _sizes, st.sampled_from([None, None, "a", "b", ""]),
        _members, _members, _conditions,
    )  # fmt: skip
    last = _call("select * from get_last_stream_message({})", _names, _types)
    others = st.one_of(
        _call("select stream_version({})", _names),
        _call("select category({0}), id({0}), is_category({0}), hash_64({0})", _names),
        _call("select cardinal_id({})", _names.filter(_is_cut_alike)),
        _call("select acquire_lock({})", _names),
        st.sampled_from(["stream", "type_stream", "category_type"]).map(
            lambda view: Call(f"select * from {view}_summary")
        ),
        st.sampled_from(["on", "off"]).map(
            lambda value: Call(f"set message_store.sql_condition = {value}")
        ),
    )
    return st.one_of(write, write, write, bad_write, stream, category, category, last, others)


def _call(sql: str, *arguments: SearchStrategy[Any]) -> SearchStrategy[Call]:
    """A call whose arguments stand in the braces, each as often as it is named there."""
    if "{0}" in sql:
        times = sql.count("{0}")
        return arguments[0].map(lambda one: Call(sql.replace("{0}", "%s"), (one,) * times))
    places = ", ".join(["%s"] * len(arguments))
    return st.tuples(*arguments).map(lambda values: Call(sql.replace("{}", places), values))


_ids = st.integers(0, 30).map("00000000-0000-4000-8000-{:012}".format)
_names = st.one_of(
    st.sampled_from(["a-1", "a-2", "a-1+2", "a", "a:command-1", "b-1", None]),
    st.text(alphabet="ab1-+: é", max_size=6),
)
_types = st.sampled_from(["A", "B", "", None])
_json = st.one_of(
    st.sampled_from([None, "{}", "[]", "{", '{"correlationStreamName": "b-1"}']),
    st.dictionaries(
        st.text(max_size=3),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        max_size=3,
    ).map(json.dumps),
)
_versions = st.none() | st.integers(-2, 3)
_numbers = st.none() | st.integers(-1, 12)
_sizes = st.none() | st.integers(-2, 5)
_members = st.sampled_from([None, None, -1, 0, 1, 2, 3, 40_000])
_conditions = st.sampled_from([None, None, None, "type = 'A'", "position = 0 or false", "no"])


def _is_cut_alike(name: str | None) -> bool:
    _, _, id = (name or "").partition("-")
    return "+" in id or "-" not in id


def _without_repeated_writes(calls: list[Call]) -> list[Call]:
    kept: dict[object, Call] = {}
    for number, call in enumerate(calls):
        is_write = call.sql.startswith("select write_message") and len(call.arguments) == 6
        kept.setdefault(call.arguments[:2] if is_write else number, call)
    return list(kept.values())
