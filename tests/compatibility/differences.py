"""What Penstock does differently from Message DB on purpose: all of it, each with its reason.

`docs/compatibility.md` has the same list, and a test keeps the two equal. In each difference the
answers are those to the last call; to the calls before it both sides answer alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.compatibility.sides import NOTICES, Answer, Refused

ID = "00000000-0000-4000-8000-00000000000"


@dataclass(frozen=True)
class Difference:
    """One difference: the words that the documentation has for it, and the calls that show it."""

    what: str
    why: str
    calls: tuple[str, ...]
    genuine: Answer
    ours: Answer
    #: whether the last call is made on a standby
    on_standby: bool = False


def _write(number: str, stream_name: str, rest: str = "") -> str:
    return f"select write_message('{ID}{number}', '{stream_name}', 'T', '{{}}'{rest})"


DIFFERENCES = [
    Difference(
        "A write that is repeated with its id returns the position of the first one.",
        "A client that lost the reply can repeat the call. Message DB reports a duplicate key.",
        (_write("1", "a-1"), _write("2", "a-1"), _write("1", "a-1")),
        Refused("23505", 'duplicate key value violates unique constraint "messages_id"'),
        [(0,)],
    ),
    Difference(
        "It does so for any `expected_version`.",
        "The first write has changed the version, so a retry could never match it.",
        (_write("1", "a-1", ", null, -1"), _write("1", "a-1", ", null, -1")),
        Refused("P0001", "Wrong expected version: -1 (Stream: a-1, Stream Version: 0)"),
        [(0,)],
    ),
    Difference(
        "An id that is not a UUID is refused before the expected version is checked.",
        "The id determines whether the write is a repeated one.",
        ("select write_message('no id', 'a-1', 'T', '{}', null, 5)",),
        Refused("P0001", "Wrong expected version: 5 (Stream: a-1, Stream Version: -1)"),
        Refused("22P02", 'invalid input syntax for type uuid: "no id"'),
    ),
    Difference(
        "`cardinal_id` of an id without a `+` ends at its first `-`.",
        "The client specification requires it. Group members are assigned as in Message DB.",
        ("select cardinal_id('a-1-2')",),
        [("1-2",)],
        [("1",)],
    ),
    Difference(
        "The category `$all` is the whole log.",
        "Message DB has no such category and returns streams of that name.",
        (
            _write("1", "a-1"),
            _write("2", "b-1"),
            "select stream_name from get_category_messages('$all')",
        ),
        [],
        [("a-1",), ("b-1",)],
    ),
    Difference(
        "`correlation` can be a stream name: it matches all names that start with it.",
        "Message DB accepts a category only.",
        (
            "select write_message(gen_random_uuid()::varchar, 'a-' || n, 'T', '{}',"
            " jsonb_build_object('correlationStreamName', 'b-cmd-' || n))"
            " from generate_series(1, 2) n",
            "select stream_name from get_category_messages('a', correlation => 'b-cmd')",
        ),
        Refused("P0001", "Correlation must be a category (Correlation: b-cmd)"),
        [("a-1",), ("a-2",)],
    ),
    Difference(
        "`correlation` also finds messages by a `correlation_id` of the category.",
        "The client specification correlates by id, Message DB by the stream's name alone.",
        (
            f"select write_message('{ID}1', 'b-1', 'T', '{{}}', '{{\"correlation_id\": \"x\"}}')",
            f"select write_message('{ID}2', 'a-1', 'T', '{{}}', '{{\"correlation_id\": \"x\"}}')",
            "select stream_name from get_category_messages('a', correlation => 'b')",
        ),
        [],
        [("a-1",)],
    ),
    Difference(
        "Writers to different streams of a category do not wait for each other.",
        "Message DB locks the whole category for each write.",
        (
            "begin",
            _write("1", "a-1"),
            "other: set lock_timeout = '20ms'",
            f"other: {_write('2', 'a-2')}",
        ),
        Refused("55P03", "canceling statement due to lock timeout"),
        [(0,)],
    ),
    Difference(
        "A category read ends before the first position at which an open transaction may write.",
        "Otherwise a reader could miss a message that commits late.",
        (
            "begin",
            _write("1", "a-1"),
            f"other: {_write('2', 'b-1')}",
            "other: select stream_name from get_category_messages('b')",
        ),
        [("b-1",)],
        [],
    ),
    Difference(
        "A category read is refused in a transaction that keeps its snapshot.",
        "The snapshot may be older than the watermark. The client takes the watermark first.",
        (
            _write("1", "a-1"),
            "begin isolation level repeatable read",
            "select stream_name from get_category_messages('a')",
        ),
        [("a-1",)],
        Refused(
            "PS003",
            "a repeatable read transaction reads an old snapshot and needs a watermark taken"
            " before it began",
        ),
    ),
    Difference(
        "A category read is refused on a standby, unless the client has asked the primary up to "
        "where.",
        "Open transactions are not visible on a standby, so a read could be incomplete.",
        (_write("1", "a-1"), "select stream_name from get_category_messages('a')"),
        [("a-1",)],
        Refused("PS005", "a standby has no record of open writers: read from the primary"),
        on_standby=True,
    ),
    Difference(
        "From 500 streams on, a transaction can fail if others write to the same category.",
        "Each stream is a lock, and the lock table is limited. The error, PS004, can be retried.",
        (
            "set lock_timeout = '20ms'",
            "begin",
            "select count(write_message(gen_random_uuid()::varchar, 'a-' || n, 'T', '{}'))"
            " from generate_series(1, 500) n",
            "other: begin",
            f"other: {_write('1', 'b-1')}",
            _write("2", "b-2"),
        ),
        Refused("55P03", "canceling statement due to lock timeout"),
        Refused(
            "PS004",
            "this transaction writes to so many streams that it needs an exclusive lock on category"
            " b, to which other transactions are writing",
        ),
    ),
    Difference(
        "An explicit `global_position` is refused if it is below the next one.",
        "Readers may have read past it already.",
        (
            _write("1", "a-1"),
            _write("2", "a-1"),
            "insert into messages (global_position, stream_name, position, type)"
            " values (0, 'a-2', 0, 'T')",
        ),
        "INSERT 0 1",
        Refused(
            "PS006",
            "global position 0 is below 3, the lowest position that this transaction announced",
        ),
    ),
    Difference(
        "An empty `message_store.sql_condition` is off.",
        "PostgreSQL leaves an empty value after `set local`.",
        (
            _write("1", "a-1"),
            "set message_store.sql_condition = ''",
            "select stream_name from get_stream_messages('a-1', condition => 'true')",
        ),
        [("a-1",)],
        Refused("P0001", "Retrieval with SQL condition is not activated"),
    ),
    Difference(
        "The functions find each other without a `search_path`.",
        "Any role can call them from any schema.",
        (
            "set search_path = public",
            f"select message_store.write_message('{ID}1', 'a-1', 'T', '{{}}')",
        ),
        Refused("42883", "function acquire_lock(character varying) does not exist"),
        [(0,)],
    ),
    Difference(
        "The settings `message_store.debug`, `debug_get` and `debug_write` do nothing.",
        "They show the SQL that Message DB builds dynamically. Penstock's is static.",
        (
            "set message_store.debug = on",
            "select acquire_lock('a-1')",
            NOTICES,
        ),
        [
            ("» acquire_lock",),
            ("stream_name: a-1",),
            ("_category: a",),
            ("_category_name_hash: 919145239626757800",),
        ],
        [],
    ),
    Difference(
        "Errors carry their facts as JSON in the detail.",
        "Clients do not have to parse the message, which is the same.",
        (
            """
            do $$
            declare
              detail text;
            begin
              perform message_store.get_stream_messages('account');
            exception when others then
              get stacked diagnostics detail = pg_exception_detail;
              perform set_config('tests.detail', detail, false);
            end
            $$
            """,
            "select current_setting('tests.detail')",
        ),
        [("",)],
        [('{"code": "PS007", "stream_name": "account"}',)],
    ),
    Difference(
        "The table has additional triggers and an additional index.",
        "The triggers announce writers to readers. The index is on `correlation_id`.",
        (
            "select exists (select from pg_trigger where tgrelid = 'messages'::regclass),"
            " to_regclass('messages_correlation') is not null",
        ),
        [(False, False)],
        [(True, True)],
    ),
    Difference(
        "A role with individually granted privileges also needs `usage` on the schema `penstock`.",
        "Functions call each other. Members of the role `message_store` have all privileges.",
        (
            "owner: grant usage on schema message_store to pg_monitor",
            "owner: grant select, insert on message_store.messages to pg_monitor",
            "owner: grant usage, select on all sequences in schema message_store to pg_monitor",
            "owner: set search_path = message_store",
            "owner: set role pg_monitor",
            f"owner: {_write('1', 'a-1')}",
        ),
        [(0,)],
        Refused("42501", "permission denied for schema penstock"),
    ),
]
