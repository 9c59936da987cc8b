"""The connection lost right after a write is published: it is published, and says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from penstock import Store
from tests.spark.faults.waiting import STAGINGS, end_blocked, held, wait_until_blocked
from tests.spark.writing import MESSAGE, Writer


def test_what_cannot_be_cleaned_up_is_published_all_the_same(
    writer: Writer, store: Store, database_url: str
) -> None:
    staged = writer.stage(MESSAGE, ("a-1", "T", "{}"))

    with held(database_url, STAGINGS), ThreadPoolExecutor(1) as thread:
        publishing = thread.submit(writer.publish, staged)
        wait_until_blocked(database_url, 1, publishing)
        end_blocked(database_url)
        published = publishing.result()

    assert published.count == 1
    assert [one.type for one in store.get_category_messages("a")] == ["T"]
