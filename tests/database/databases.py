"""What the tests of installing ask of databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

NewDatabase = Callable[[str], str]

FUNCTIONS = """
    select p.proname, pg_get_functiondef(p.oid) from pg_proc p
    where p.pronamespace = 'message_store'::regnamespace order by 1
    """
CATALOG = """
    select array_agg(one::text order by one::text) from (
      select 'class' as kind, oid, xmin from pg_class where relpersistence <> 't'
      union all select 'function', oid, xmin from pg_proc
      union all select 'trigger', oid, xmin from pg_trigger
      union all select 'schema', oid, xmin from pg_namespace where nspname not like 'pg_%temp%'
      union all select 'role', oid, xmin from pg_authid
    ) one
    """
FIVE_MESSAGES = """
    select message_store.write_message(gen_random_uuid()::varchar, 'account-' || n % 2, 'T', '{}')
    from generate_series(1, 5) n
    """


def ask(url: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(
        url, options="-c search_path=message_store", autocommit=True
    ) as connection:
        cursor = connection.execute(question.encode())
        return cursor.fetchall() if cursor.description else []


def as_role(url: str, role: str) -> str:
    return url.replace("postgres@", f"{role}@")
