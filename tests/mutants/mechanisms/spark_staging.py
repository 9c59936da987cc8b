"""What is staged becomes messages once: deliveries, tokens, counts and slices."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

LOCKS = "database/sql/penstock/04_locks.sql"
SQL = "database/sql/penstock/50_staging.sql"
DELIVERIES = "database/sql/penstock/51_deliveries.sql"
PYTHON = "spark/write/staging.py"
STAGING = "tests/spark/write/test_staging.py"
SLICES = "tests/spark/write/test_slices.py"
CRASHED = "tests/spark/faults/test_server_lost.py"
BETWEEN = f"{SLICES}::TestFailedInBetween"

_KNOWN = "elsif old.batch >= batch then"
_PUBLISH = "        beside = is_beside(connection)\n"

_DELIVERIES = (
    Mutant(
        "delivery-known",
        "If a delivery that is known already were published again",
        (Edit(DELIVERIES, _KNOWN, "elsif false then"),),
        (
            f"{STAGING}::test_a_delivery_is_published_once",
            f"{STAGING}::test_a_twin_waits_and_finds_the_delivery_made",
            f"{STAGING}::test_a_delivery_of_nothing_is_a_delivery",
        ),
    ),
    Mutant(
        "batches-forward",
        "If a batch before the last one were published again",
        (Edit(DELIVERIES, _KNOWN, "elsif old.batch = batch then"),),
        (f"{STAGING}::test_batches_of_a_delivery_go_forward_only",),
    ),
    Mutant(
        "delivery-made-by-twin",
        "If a twin did not look again when the other one had made the delivery",
        (Edit(DELIVERIES, "exit when penstock.replace_delivery(old, new);",
              "perform penstock.replace_delivery(old, new);\n      exit;"),),
        (f"{STAGING}::test_a_twin_waits_and_finds_the_delivery_made",),
    ),
    Mutant(
        "delivery-lock",
        "Without the lock of a delivery",
        (
            Edit(
                DELIVERIES,
                "d.version = latest.version for update;",
                "d.version = latest.version;",
            ),
        ),
        (f"{BETWEEN}::test_two_publish_the_same_slice",),
    ),
    Mutant(
        "delivery-recorded-first",
        "If a delivery were recorded in a transaction before that of its messages",
        (Edit(PYTHON, _PUBLISH, _PUBLISH + """\
        if source is not None:
            known = connection.execute(
                "select * from penstock.publish(%s, %s, '{}', '{}')", (source, batch)
            ).fetchone()
            if known and known[3]:
                return Published(*known)
            source = None
"""),),
        (
            f"{STAGING}::test_a_delivery_that_failed_may_come_again",
            f"{STAGING}::test_rows_that_a_crash_took_are_missed",
        ),
    ),
    Mutant(
        "delivery-recorded-after",
        "If a delivery were recorded in a transaction after that of its messages",
        (Edit(PYTHON, _PUBLISH, _PUBLISH + """\
        known = connection.execute(
            "select from penstock.deliveries where source = %s and batch >= %s", (source, batch)
        ).fetchone()
        if known is None:
            connection.execute(
                "select penstock.publish_staged(%s, %s)", tokens_and_counts(staged)
            )
        clean_up(connection, staged)
        staged = []
"""),),
        (f"{STAGING}::test_a_twin_waits_and_finds_the_delivery_made",),
    ),
)  # fmt: skip

_NAMES = (
    Mutant(
        "query-delivery",
        "If the delivery of a streaming query were not named by its id and its batch",
        (
            Edit(
                "spark/sink.py",
                'f"query:{query}", batchId',
                'f"query:{_parts(messages)[0].staged.token}", batchId',
            ),
        ),
        (f"{STAGING}::test_a_batch_of_a_query_that_spark_runs_again_is_published_once",),
    ),
    Mutant(
        "job-delivery",
        "If the option delivery of a batch job named nothing",
        (
            Edit(
                "spark/sink.py",
                'f"batch:{delivery}"',
                'f"batch:{_parts(messages)[0].staged.token}"',
            ),
        ),
        (
            "tests/spark/test_sink.py"
            "::test_a_delivery_is_written_once_and_a_write_without_one_each_time",
        ),
    ),
)

_ROWS = (
    Mutant(
        "staged-locks-bounded",
        "If a delivery locked every stream of thousands",
        (Edit(SQL, "staged.named >= 400", "false"),),
        (f"{STAGING}::test_a_delivery_to_many_streams_holds_a_bounded_number_of_locks",),
    ),
    Mutant(
        "staged-hash-join",
        "If a delivery were joined by whatever plan old statistics suggest",
        (Edit(SQL, "full join streams v", "left join streams v"),),
        (
            f"{STAGING}"
            "::test_statistics_of_a_staging_that_was_nearly_empty_do_not_make_it_quadratic",
        ),
    ),
    Mutant(
        "tokens",
        "If everything that is staged were published, whatever its token",
        (Edit(SQL, """\
          from (select s.* from penstock.staged s where s.token = any (tokens)) s
""", """\
          from penstock.staged s
"""),),
        (f"{STAGING}::test_only_the_tokens_that_are_named_count",),
    ),
    Mutant(
        "own-token",
        "If the attempts of a task shared a token",
        (
            Edit(PYTHON, "token, count = uuid4(), 0", "token, count = UUID(int=1), 0"),
            Edit(PYTHON, "insert into penstock.stagings (token) values (%s)",
                 "insert into penstock.stagings (token) values (%s) on conflict do nothing"),
        ),
        (f"{STAGING}::test_only_the_tokens_that_are_named_count",),
    ),
    Mutant(
        "unstage-by-token",
        "If publishing emptied the whole staging",
        (Edit(SQL, "delete from penstock.staged s where s.token = any (tokens);",
              "delete from penstock.staged s;"),),
        (f"{STAGING}::test_only_the_tokens_that_are_named_count",),
    ),
    Mutant(
        "sweep-old",
        "If what others are still staging were swept",
        (Edit(SQL, "where s.staged_at < now() - older_than\n", "\n"),),
        (f"{STAGING}::test_what_nobody_published_for_a_day_is_swept_by_the_next_write",),
    ),
    Mutant(
        "counts",
        "If the rows were not counted before they are published",
        (Edit(SQL, "  if wrong is not null then\n    raise exception using errcode = 'PS070',",
              "  if false then\n    raise exception using errcode = 'PS070',"),),
        (
            f"{STAGING}::test_rows_that_a_crash_took_are_missed",
            f"{CRASHED}::TestWithoutSpark"
            "::test_what_was_staged_is_gone_and_nothing_is_published",
        ),
    ),
    Mutant(
        "staged-versions",
        "If the expected versions of staged rows were not checked",
        (Edit(SQL, "  if found then\n    raise exception using errcode = 'PS001',",
              "  if false then\n    raise exception using errcode = 'PS001',"),),
        (
            f"{STAGING}::test_a_delivery_that_failed_may_come_again",
            f"{STAGING}::test_a_wrong_version_stops_the_whole_delivery_and_names_the_stream",
        ),
    ),
    Mutant(
        "staged-ids",
        "If ids that exist already did not stop a sliced delivery before its first slice",
        (Edit(SQL, "  if found then\n    raise exception using errcode = 'PS002',",
              "  if false then\n    raise exception using errcode = 'PS002',"),),
        (
            f"{SLICES}::TestIdsOfTheirOwn"
            "::test_one_that_exists_stops_all_of_it_before_the_first_slice",
            f"{SLICES}::TestIdsOfTheirOwn::test_one_that_is_there_twice_too",
        ),
    ),
    Mutant(
        "staged-stream-locks",
        "If a delivery did not lock its streams",
        (Edit(LOCKS, "done := pg_advisory_xact_lock(key);", "done := key;"),),
        (f"{STAGING}::test_two_deliveries_to_one_stream_come_one_after_the_other",),
    ),
    Mutant(
        "staged-category-locks",
        "If a delivery did not share its categories",
        (Edit(LOCKS, "done := pg_advisory_xact_lock_shared(key);", "done := key;"),),
        (f"{STAGING}::test_a_delivery_waits_for_who_has_its_category_alone",),
    ),
    Mutant(
        "staged-snapshot",
        "If a delivery could be published on an old snapshot",
        (Edit(SQL, "  perform penstock.refuse_old_snapshot();\n", ""),),
        (f"{STAGING}::test_a_delivery_is_not_published_on_an_old_snapshot",),
    ),
)  # fmt: skip

_SLICES = (
    Mutant(
        "slices-logged",
        "If slices lay in an unlogged table",
        (
            Edit(
                DELIVERIES,
                "create table if not exists penstock.staged_slices",
                "create unlogged table if not exists penstock.staged_slices",
            ),
        ),
        (
            f"{CRASHED}::TestWithoutSpark::test_slices_that_are_not_published_yet_are_still_there",
        ),
    ),
    Mutant(
        "slices-of-first-attempt",
        "If who goes on with a sliced delivery published its own rows",
        (
            Edit(
                DELIVERIES,
                _KNOWN,
                "elsif old.batch >= batch and penstock.remaining(old) = 0 then",
            ),
        ),
        (f"{BETWEEN}::test_a_retry_goes_on_with_the_rows_of_the_first_attempt",),
    ),
    Mutant(
        "slices-done",
        "If a slice that is published were not counted as done",
        (Edit(DELIVERIES, """\
    perform penstock.unstage(array[old.slices[slice]]);
    new.slices_done := slice;
""", ""),),
        (
            f"{SLICES}::test_each_slice_is_a_transaction",
            f"{BETWEEN}::test_two_go_on_at_once",
        ),
    ),
    Mutant(
        "slices-before-next-batch",
        "If the next batch did not wait for the slices of the last one",
        (Edit(DELIVERIES, "if old.slices_done < cardinality(old.slices) and"
                   " (old.batch < batch or slice_size is null) then", "if false then"),),
        (
            f"{BETWEEN}::test_the_next_batch_begins_when_the_last_is_whole",
            f"{BETWEEN}::test_who_wants_one_transaction_gets_the_rest_in_one",
        ),
    ),
    Mutant(
        "slices-order",
        "If slices were cut in any order",
        (Edit(DELIVERIES, "order by s.order_number, s.order_text,"
                   " penstock.staged_order(tokens, s.token, s.ordinal)) as number",
              "order by s.id desc) as number"),),
        (
            f"{SLICES}::test_the_order_of_the_writer_holds_across_slices_and_tokens",
            f"{BETWEEN}::test_others_write_between_the_slices",
        ),
    ),
    Mutant(
        "slices-versions",
        "If rows that expect a version were sliced",
        (Edit(DELIVERIES, "staged.total > slice_size and staged.versioned = 0",
              "staged.total > slice_size"),),
        (f"{SLICES}::test_rows_that_expect_versions_are_one_transaction",),
    ),
)  # fmt: skip

MUTANTS: tuple[Mutant, ...] = (*_DELIVERIES, *_NAMES, *_ROWS, *_SLICES)
