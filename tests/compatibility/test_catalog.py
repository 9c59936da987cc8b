"""What PostgreSQL's catalog says of the schema message_store is what it says of Message DB's.

Names, types, defaults, indexes and privileges are compared as a client or a report could see them.
What our schema has besides (an index and triggers; the role penstock_reader) is in
`differences.py`.
"""

from __future__ import annotations

import pytest

from tests.compatibility.sides import Sides

# Each question is about things that both have; ours may have more only where the question says so.
QUESTIONS = {
    "columns": """
        select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
          pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute a
        left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        where a.attrelid = 'messages'::regclass and a.attnum > 0
        order by a.attnum
        """,
    "constraints": """
        select conname, pg_get_constraintdef(oid), condeferrable, convalidated
        from pg_constraint where conrelid = 'messages'::regclass order by conname
        """,
    "indexes": """
        select pg_get_indexdef(indexrelid), indisunique, indisprimary, indisvalid
        from pg_index
        where indrelid = 'messages'::regclass and indexrelid::regclass::text not like '%correlation'
        order by indexrelid::regclass::text
        """,
    "sequence": """
        select s.seqtypid::regtype::text, s.seqstart, s.seqincrement, s.seqmin, s.seqmax,
          s.seqcache, s.seqcycle, pg_get_serial_sequence('messages', 'global_position')
        from pg_sequence s where s.seqrelid = 'messages_global_position_seq'::regclass
        """,
    "composite type": """
        select a.attname, format_type(a.atttypid, a.atttypmod)
        from pg_attribute a join pg_type t on t.typrelid = a.attrelid
        where t.oid = 'message'::regtype order by a.attnum
        """,
    "functions": """
        select proname, pg_get_function_arguments(oid), pg_get_function_result(oid), prokind,
          proretset, provolatile, prosecdef, proisstrict
        from pg_proc where pronamespace = 'message_store'::regnamespace
        order by proname, oid
        """,
    "views": """
        select c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.relnamespace = 'message_store'::regnamespace and c.relkind = 'v'
        order by c.relname, a.attnum
        """,
    "all names": """
        select relkind, relname from pg_class
        where relnamespace = 'message_store'::regnamespace and relname not like '%correlation'
        order by relkind, relname
        """,
    "types": """
        select typname, typtype from pg_type
        where typnamespace = 'message_store'::regnamespace order by typname
        """,
    "owners": """
        select distinct nspowner::regrole::text, relowner::regrole::text
        from pg_namespace n join pg_class c on c.relnamespace = n.oid
        where nspname = 'message_store'
        """,
    "privileges on the schema": """
        select a.grantee::regrole::text, a.privilege_type, a.is_grantable
        from pg_namespace, aclexplode(nspacl) a
        where nspname = 'message_store' and a.grantee::regrole::text <> 'penstock_reader'
        order by 1, 2
        """,
    "privileges on table, sequence and views": """
        select relname, a.grantee::regrole::text, a.privilege_type, a.is_grantable
        from pg_class, aclexplode(relacl) a
        where relnamespace = 'message_store'::regnamespace
          and a.grantee::regrole::text <> 'penstock_reader'
        order by 1, 2, 3
        """,
    "privileges on functions": """
        select proname, a.grantee::regrole::text, a.privilege_type, a.is_grantable
        from pg_proc, aclexplode(proacl) a
        where pronamespace = 'message_store'::regnamespace
          and a.grantee::regrole::text <> 'penstock_reader'
        order by 1, 2, 3
        """,
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_the_catalog_says_the_same(sides: Sides, question: str) -> None:
    genuine, ours = sides.ask(question)

    assert ours == genuine
    assert isinstance(ours, list)
    assert ours
