"""The catalog of the two schemas, as sets of lines: two databases with equal lines are equal.

Compared are tables, columns, defaults, constraints, indexes, views, sequences, functions with their
bodies, triggers and privileges. Rows are not, nor the order of columns: nothing depends on it.
"""

from __future__ import annotations

import psycopg

_OURS = "in ('message_store'::regnamespace, 'penstock'::regnamespace)"

_QUESTIONS = {
    "relation": f"""
        select c.oid::regclass, c.relkind, c.relpersistence, c.reloptions
        from pg_class c where c.relnamespace {_OURS}
        """,
    "column": f"""
        select c.oid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
          a.attidentity, a.attgenerated, pg_get_expr(d.adbin, d.adrelid)
        from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        where c.relnamespace {_OURS} and c.relkind in ('r', 'v', 'c')
        """,
    "constraint": f"""
        select conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated
        from pg_constraint where connamespace {_OURS}
        """,
    "index": f"""
        select pg_get_indexdef(i.indexrelid), i.indisvalid
        from pg_index i join pg_class c on c.oid = i.indrelid where c.relnamespace {_OURS}
        """,
    "view": f"""
        select c.oid::regclass, pg_get_viewdef(c.oid)
        from pg_class c where c.relnamespace {_OURS} and c.relkind = 'v'
        """,
    "sequence": """
        select seqrelid::regclass, seqtypid::regtype, seqstart, seqincrement, seqcache, seqcycle
        from pg_sequence
        """,
    "type": f"""
        select typname, typtype from pg_type where typnamespace {_OURS}
        """,
    "function": f"""
        select p.oid::regprocedure, pg_get_functiondef(p.oid)
        from pg_proc p where p.pronamespace {_OURS}
        """,
    "trigger": f"""
        select pg_get_triggerdef(t.oid), t.tgenabled
        from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace {_OURS} and not t.tgisinternal
        """,
    "privilege": f"""
        select o.object, coalesce(r.rolname, 'public'), acl.privilege_type, acl.is_grantable
        from (
          select c.oid::regclass::text as object,
            coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char",
              c.relowner)) as acl
          from pg_class c where c.relnamespace {_OURS} and c.relkind in ('r', 'v', 'S')
          union all
          select p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner))
          from pg_proc p where p.pronamespace {_OURS}
          union all
          select n.nspname, coalesce(n.nspacl, acldefault('n', n.nspowner))
          from pg_namespace n where n.oid {_OURS}
        ) o
        cross join aclexplode(o.acl) acl
        left join pg_roles r on r.oid = acl.grantee
        """,
}


def catalog(url: str) -> set[str]:
    """Return what the catalog holds of the schemas message_store and penstock, a line for each."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set search_path = pg_catalog")
        return {
            f"{kind}: {line}"
            for kind, question in _QUESTIONS.items()
            for (line,) in connection.execute(f"select q::text from ({question}) q".encode())
        }


def differences(upgraded: set[str], fresh: set[str]) -> list[str]:
    """Return what only one of two catalogs has."""
    return sorted(
        [f"only upgraded: {line}" for line in upgraded - fresh]
        + [f"only fresh: {line}" for line in fresh - upgraded]
    )
