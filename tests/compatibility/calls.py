"""Calls to every function of Message DB, written by hand: what works, what is refused, what is odd.

Each sequence begins with an empty log and is made by the role message_store.
"""

from __future__ import annotations

ID = "00000000-0000-4000-8000-00000000000"

HISTORY = [
    f"select write_message('{ID}1', 'account-1', 'Opened', '{{\"owner\": \"Ada\"}}')",
    f"select write_message('{ID}2', 'account-2', 'Opened', null, '{{\"a\": 1}}', -1)",
    f"select write_message('{ID}3', 'account-1', 'Deposited', '{{\"amount\": 5}}',"
    ' \'{"correlationStreamName": "transfer-7"}\', 0)',
    f"select write_message('{ID}4', 'account:command-1', 'Close', '{{}}')",
    f"select write_message('{ID}5', 'account-3+7', 'Opened', '{{}}')",
    f"select write_message('{ID}6', 'account', 'Audited', '{{}}')",
    f"select write_message('{ID}7', 'account-1', 'Deposited', '{{\"amount\": 7}}',"
    ' \'{"correlationStreamName": "loan-1", "correlation_id": null}\', 1)',
]

NAMES = [
    "account-1", "account", "account:command-1", "account:a+b-1+2", "account-1-2+3", "account-",
    "-", "-1", "", "a b-c d", "Ärger-ß", "$all",
]  # fmt: skip

REPORTS = [
    f"select * from {name}_summary"
    for name in ["stream", "type", "stream_type", "type_stream", "category_type", "type_category"]
]

GROUPS = [
    (0, "null"), ("null", 2), (0, 0), (0, -1), (-1, 2), (2, 2), (3, 2), (-1, 0), (0, 32767),
    (0, 32768), (0, 9223372036854775807),
]  # fmt: skip

SEQUENCES = {
    "names": [
        f"select {function}({name})"
        for function in ["category", "id", "is_category", "cardinal_id", "hash_64", "acquire_lock"]
        for name in [*(f"'{name}'" for name in NAMES), "null"]
    ],
    "names by name": [
        "select category(stream_name => 'a-1'), id(stream_name => 'a-1'),"
        " is_category(stream_name => 'a-1'), cardinal_id(stream_name => 'a-1'),"
        " hash_64(value => 'a-1'), acquire_lock(stream_name => 'a-1'),"
        " stream_version(stream_name => 'a-1'), message_store_version()",
    ],
    "hash of long values": ["select hash_64(repeat('x', 100000)), hash_64(U&'\\1F600')"],
    "write_message: positions": [
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}')",
        f"select write_message('{ID}b', 'a-1', 'T', '{{}}', null, null)",
        f"select write_message('{ID}c', 'a-2', 'T', '{{}}', '{{}}', -1)",
        "select write_message(gen_random_uuid()::varchar, 'a-' || n, 'T', '{}')"
        " from generate_series(1, 4) n",
        "select stream_version('a-1'), stream_version('a-4'), stream_version('a-5')",
    ],
    "write_message: arguments by name": [
        f"select write_message(type => 'T', id => '{ID}a', data => '{{\"a\": [1, null]}}',"
        " stream_name => 'a-1', expected_version => -1, metadata => '{\"m\": {}}')",
        f"select write_message(id => '{ID}b', stream_name => 'a-1', type => 'T', data => null)",
        "select * from get_stream_messages('a-1')",
    ],
    "write_message: wrong expected version": [
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}', null, 0)",
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}', null, -2)",
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}', null, -1)",
        f"select write_message('{ID}b', 'a-1', 'T', '{{}}', null, -1)",
        f"select write_message('{ID}b', 'a-1', 'T', '{{}}', null, 1)",
        f"select write_message('{ID}b', 'a-1', 'T', '{{}}', null, 9223372036854775807)",
        f"select write_message('{ID}b', 'a-1', 'T', '{{}}', null, 0)",
        f"select write_message('{ID}c', null, 'T', '{{}}', null, 5)",
        "select * from get_stream_messages('a-1')",
    ],
    "write_message: an id of another stream": [
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}')",
        f"select write_message('{ID}a', 'a-2', 'T', '{{}}')",
        f"select write_message('{ID}a', 'a-2', 'T', '{{}}', null, -1)",
        f"select write_message('{ID}a', 'a-2', 'T', '{{}}', null, 3)",
        f"select write_message('{ID}b', 'a-2', 'T', '{{}}', null, -1)",
        "select * from get_category_messages('a')",
    ],
    "write_message: bad input": [
        "select write_message('no id', 'a-1', 'T', '{}')",
        "select write_message('', 'a-1', 'T', '{}')",
        "select write_message(null, 'a-1', 'T', '{}')",
        f"select write_message('{ID}a', null, 'T', '{{}}')",
        f"select write_message('{ID}a', null, 'T', '{{}}', null, -1)",
        f"select write_message('{ID}a', 'a-1', null, '{{}}')",
        f"select write_message('{ID}a', null, null, null, null, null)",
        f"select write_message('{ID}a', 'a-1', 'T', '{{')",
        f"select write_message('{ID}a', 'a-1', 'T')",
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}', null, 'x')",
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}', unknown => 1)",
        "select count(*) from messages",
    ],
    "write_message: what is allowed though odd": [
        f"select write_message('{ID[:-1].upper()}0A', 'a-1', 'T', '{{}}')",
        f"select write_message('{{{ID}b}}', 'a-1', 'T', '{{}}')",
        f"select write_message('{ID}c', '', '', '[]')",
        f"select write_message('{ID}d', '-', 'T', '\"text\"', '1')",
        f"select write_message('{ID}e', '$all', 'T', 'null')",
        "select * from messages order by global_position",
        "select * from get_stream_messages('-')",
    ],
    "write_message: in a transaction": [
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}')",
        "begin",
        f"select write_message('{ID}b', 'a-1', 'T', '{{}}')",
        f"select write_message('{ID}c', 'b-1', 'T', '{{}}')",
        "select * from get_category_messages('a')",
        "savepoint s",
        f"select write_message('{ID}d', 'a-1', 'T', '{{}}', null, 7)",
        "select 1",
        "rollback to s",
        f"select write_message('{ID}d', 'a-1', 'T', '{{}}', null, 1)",
        "select * from get_stream_messages('a-1')",
        "rollback",
        f"select write_message('{ID}b', 'a-1', 'T', '{{}}')",
        "select * from get_category_messages('a')",
    ],
    "write_message: read only": [
        "begin read only",
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}')",
    ],
    "acquire_lock keeps writers of the category out": [
        "begin",
        "select acquire_lock('a-9')",
        "other: set lock_timeout = '20ms'",
        f"other: select write_message('{ID}a', 'a-1', 'T', '{{}}')",
        f"other: select write_message('{ID}a', 'b-1', 'T', '{{}}')",
        "commit",
        f"other: select write_message('{ID}b', 'a-1', 'T', '{{}}')",
    ],
    "writers of one stream take turns": [
        "begin",
        f"select write_message('{ID}a', 'a-1', 'T', '{{}}')",
        "other: set lock_timeout = '20ms'",
        f"other: select write_message('{ID}b', 'a-1', 'T', '{{}}')",
        "commit",
        f"other: select write_message('{ID}b', 'a-1', 'T', '{{}}')",
    ],
    "stream_version": [
        *HISTORY,
        *(f"select stream_version('{name}')" for name in NAMES),
        "select stream_version(null)",
    ],
    "get_stream_messages": [
        *HISTORY,
        "select * from get_stream_messages('account-1')",
        "select * from get_stream_messages('account-1', 1)",
        "select * from get_stream_messages('account-1', -5)",
        "select * from get_stream_messages('account-1', 99)",
        "select * from get_stream_messages('account-1', 0, 2)",
        "select * from get_stream_messages('account-1', 0, 0)",
        "select * from get_stream_messages('account-1', 0, -1)",
        "select * from get_stream_messages('account-1', 1, -1)",
        "select * from get_stream_messages('account-1', 0, -2)",
        "select * from get_stream_messages('account-1', null, null, null)",
        "select * from get_stream_messages(batch_size => 1, stream_name => 'account-1')",
        "select * from get_stream_messages(stream_name => 'account-1', \"position\" => 2)",
        "select * from get_stream_messages('account-none')",
        "select * from get_stream_messages('account')",
        "select * from get_stream_messages('')",
        "select * from get_stream_messages(null)",
        "select get_stream_messages('account-3+7')::varchar like '(%,account-3+7,Opened,0,5,{},,%'",
    ],
    "get_stream_messages: condition": [
        *HISTORY,
        "select * from get_stream_messages('account-1', 0, 1000, 'true')",
        "set message_store.sql_condition = 'off'",
        "select * from get_stream_messages('account-1', condition => 'true')",
        "set message_store.sql_condition = 'on'",
        "select * from get_stream_messages('account-1', condition => 'type = ''Deposited''')",
        "select * from get_stream_messages('account-1', condition => 'position = 1')",
        "select * from get_stream_messages('account-1', condition => 'false or true')",
        "select * from get_stream_messages('account-1', condition => 'messages.type like ''O%''')",
        "select * from get_stream_messages('account-1', 1, 1, 'id(stream_name) = ''1''')",
        "select * from get_stream_messages('account-1', condition => '')",
        "select * from get_stream_messages('account-1', condition => 'no_column = 1')",
        "select * from get_stream_messages('account-1', condition => 'type =')",
        "select * from get_stream_messages('account-1', condition => 'true /* no more */')",
        "select * from get_stream_messages('account-9', condition => 'type =')",
        "select * from get_stream_messages('account', condition => 'true')",
    ],
    "get_last_stream_message": [
        *HISTORY,
        "select * from get_last_stream_message('account-1')",
        "select * from get_last_stream_message('account-1', null)",
        "select * from get_last_stream_message('account-1', 'Opened')",
        "select * from get_last_stream_message(type => 'Deposited', stream_name => 'account-1')",
        "select * from get_last_stream_message('account-1', 'Never')",
        "select * from get_last_stream_message('account')",
        "select * from get_last_stream_message('account-none')",
        "select * from get_last_stream_message(null)",
        "select * from get_last_stream_message(null, null)",
        "select * from get_last_stream_message('')",
    ],
    "get_category_messages": [
        *HISTORY,
        "select * from get_category_messages('account')",
        "select * from get_category_messages('account:command')",
        "select * from get_category_messages('nothing')",
        "select * from get_category_messages('')",
        "select * from get_category_messages(null)",
        "select * from get_category_messages('account', 3)",
        "select * from get_category_messages('account', 0)",
        "select * from get_category_messages('account', -3)",
        "select * from get_category_messages('account', 99)",
        "select * from get_category_messages('account', 1, 2)",
        "select * from get_category_messages('account', 2, 2)",
        "select * from get_category_messages('account', 1, 0)",
        "select * from get_category_messages('account', 1, -1)",
        "select * from get_category_messages('account', 1, -2)",
        "select * from get_category_messages('account', 99, -2)",
        "select * from get_category_messages('account', null, null, null, null, null, null)",
        "select * from get_category_messages(batch_size => 1, category => 'account')",
        "select * from get_category_messages(category => 'account', \"position\" => 6)",
        "select * from get_category_messages('account-1')",
        "select * from get_category_messages('-')",
    ],
    "get_category_messages: nothing was ever written": [
        "select * from get_category_messages('account')",
        "select * from get_category_messages('account', 1, -2)",
        "select * from get_category_messages('account', condition => 'true')",
    ],
    "get_category_messages: correlation": [
        *HISTORY,
        "select * from get_category_messages('account', correlation => 'transfer')",
        "select * from get_category_messages('account', correlation => 'loan')",
        "select * from get_category_messages('account', correlation => 'nothing')",
        "select * from get_category_messages('account', correlation => '')",
        "select * from get_category_messages('account:command', correlation => 'loan')",
        "select * from get_category_messages('account-1', correlation => 'loan')",
    ],
    "get_category_messages: consumer group": [
        "select write_message(gen_random_uuid()::varchar, 'a-' || n, 'T', '{}')"
        " from generate_series(1, 30) n",
        "select write_message(gen_random_uuid()::varchar, 'a-7+' || n, 'T', '{}')"
        " from generate_series(1, 5) n",
        "select write_message(gen_random_uuid()::varchar, 'a-8-' || n, 'T', '{}')"
        " from generate_series(1, 5) n",
        "select write_message(gen_random_uuid()::varchar, 'a', 'T', '{}')",
        *(
            f"select stream_name, position, global_position from get_category_messages("
            f"'a', consumer_group_member => {member}, consumer_group_size => {size})"
            for size in (1, 2, 3)
            for member in range(size)
        ),
        *(
            f"select count(*) from get_category_messages('a', 1, 1000, null, {member}, {size})"
            for member, size in GROUPS
        ),
        "select count(*) from get_category_messages('a', 999, 1000, null, 0, 32768)",
        "select count(*) from get_category_messages('a-1', 1, 1000, null, 0, 32768)",
        "select count(*) from get_category_messages('a', 1, 1000, null, 0, 32768, 'true')",
    ],
    "get_category_messages: condition": [
        *HISTORY,
        "select * from get_category_messages('account', condition => 'true')",
        "select * from get_category_messages('account', 99, condition => 'true')",
        "set message_store.sql_condition = 'on'",
        "select * from get_category_messages('account', condition => 'type = ''Deposited''')",
        "select * from get_category_messages('account', condition => 'false or position = 0')",
        "select * from get_category_messages('account', 2, condition => 'messages.data is null')",
        "select * from get_category_messages('account', 1, 9, 'loan', 0, 1, 'true')",
        "select * from get_category_messages('account', condition => '')",
        "select * from get_category_messages('account', condition => 'no_column = 1')",
        "select * from get_category_messages('account', condition => 'type =')",
        "select * from get_category_messages('account', condition => 'true /* no more */')",
        "select * from get_category_messages('account', 99, condition => 'type =')",
        "select * from get_category_messages('account-1', condition => 'true')",
        "select * from get_category_messages('account', 1, 9, null, 0, null, 'true')",
    ],
    "reports of an empty log": REPORTS,
    "reports": [*HISTORY, *REPORTS],
    "the table itself": [
        *HISTORY,
        "select * from messages order by global_position",
        "insert into messages (stream_name, position, type) values ('b-1', 0, 'T')",
        "insert into messages (stream_name, position, type) values ('b-1', 0, 'T')",
        "insert into messages (stream_name, type) values ('b-1', 'T')",
        "select stream_name, position, global_position, data from get_category_messages('b')",
        f"select write_message('{ID}8', 'b-1', 'T', '{{}}')",
    ],
    "what the role may not do": [
        *HISTORY,
        "update messages set type = 'X'",
        "delete from messages",
        "truncate messages",
        "drop table messages",
        "alter table messages add column x int",
        "select setval('messages_global_position_seq', 1)",
        "select nextval('messages_global_position_seq')",
        "create table message_store.mine (x int)",
        "create or replace function message_store.mine() returns int language sql as 'select 1'",
        "drop function message_store.message_store_version()",
    ],
}
