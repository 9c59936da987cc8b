"""Three extractions as Spark jobs, and a transformation, one too, when all of them are done.

The outbox runs each step at least once. Its message names the delivery, so what a step writes to
the log is there once, also if the process is killed after the write and before the acknowledgement.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import penstock
from penstock import ClaimedMessage, Dispatcher, JoinId, Store
from penstock.spark import Frames, on_spark, session

RUN = penstock.new_id().hex
TABLES = {
    "customer": [("ada", "Zürich"), ("ben", "Bern")],
    "order": [("ada", "tea"), ("ada", "rice"), ("ben", "tea")],
    "product": [("tea", "7"), ("rice", "3")],
}


def main() -> None:
    with penstock.connect() as store, session() as spark:
        join_id = start(store)

        make_dispatcher(store, spark).run_until_idle()

        print(store.joins.get(join_id).status)
        for message in store.read_category(f"spent{RUN}"):
            print(message.data["name"], "of", message.data["city"], "spent", message.data["spent"])


def start(store: Store) -> JoinId:
    """Enqueue the extractions and what follows from them, all in one transaction."""
    with store.transaction() as tx:
        join_id = tx.joins.start(grouping_key=RUN, expected_steps=len(TABLES))
        for table in TABLES:
            tx.outbox.enqueue(f"extract {RUN}", table, joins=[join_id])
        tx.joins.enqueue_wait(join_id, on_complete_topic=f"transform {RUN}")
    return join_id


def make_dispatcher(store: Store, spark: SparkSession) -> Dispatcher:
    """Return a dispatcher whose handlers are Spark jobs."""
    dispatcher = Dispatcher(store, concurrency=2)
    frames = Frames(store, spark)

    @dispatcher.handler(f"extract {RUN}")
    @on_spark(spark)  # handlers run in threads, where no session is active
    def extract(message: ClaimedMessage) -> None:
        table = str(message.payload)
        rows = spark.createDataFrame(TABLES[table], "name string, value string")
        messages = rows.select(f.lit("Extracted").alias("type"), f.struct("*").alias("data"))
        own = f.concat(f.lit(f"{table}{RUN}-"), "data.name")
        frames.write(
            messages.withColumn("stream_name", own), delivery=f"{message.topic} {message.id}"
        )

    @dispatcher.handler(f"transform {RUN}")
    @on_spark(spark)
    def transform(message: ClaimedMessage) -> None:
        for table in TABLES:
            schema = "data struct<name: string, value: string>"
            loaded = frames.read.category(f"{table}{RUN}", schema)
            loaded.select("data.*").createOrReplaceTempView(f"{table}_{RUN}")
        spent = spark.sql(f"""
            select 'Spent' as type,
                struct(c.name, c.value as city, sum(cast(p.value as int)) as spent) as data,
                'spent{RUN}-all' as stream_name
            from customer_{RUN} c
            join order_{RUN} o on o.name = c.name
            join product_{RUN} p on p.name = o.value
            group by c.name, c.value order by c.name
        """)  # noqa: S608
        frames.write(spent, delivery=f"{message.topic} {message.id}")

    return dispatcher


if __name__ == "__main__":
    main()

# Output:
# completed
# ada of Zürich spent 10
# ben of Bern spent 7
