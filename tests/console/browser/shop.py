"""The demo's shop on a busy and unlucky day, without Spark: every screen has something to show.

Its files are those of `penstock demo`. What Spark and the pipeline do there is done here by calling
the same functions of the database.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from psycopg.types.json import Jsonb

from penstock import (
    Claim,
    CommitMode,
    Consumer,
    Dispatcher,
    FailurePolicy,
    Message,
    RecordedMessage,
    Store,
    Worker,
)
from penstock.console.data.audit import AUDIT_STREAM
from penstock.database.operation import call
from penstock.demo import files, stock
from penstock.errors import PermanentFailure
from penstock.lake.store_catalog import open_catalog
from tests.lake import sales

ORDERS, CUSTOMERS = 600, 60
Row = tuple[str, str, Mapping[str, Any], Mapping[str, Any]]


def fill(store: Store, folder: Path) -> None:
    """Fill an empty database, and its lake."""
    files.generate(folder, ORDERS)
    store.declare(stock.Requested, stock.Reserved, stock.Refused)
    _extract(store, folder)
    orders = _invoice(store)
    _reserve(store)
    _mail(store, orders)
    _read_queues(store)
    _run_outbox(store)
    _act(store)
    lake = open_catalog(store.settings)
    sales.create(lake)
    for number in range(3):
        sales.sell(lake, *range(10 * number, 10 * number + 10))


# -- the log -----------------------------------------------------------------------------------


def _extract(store: Store, folder: Path) -> None:
    """Write the files into the log. One order is placed by a command, and has consequences."""
    customers, products = (_csv(folder / f"{one}.csv") for one in ("customers", "products"))
    place = Message("PlaceOrder", {"order_id": "o0", "customer_id": "c7"})
    store.write_messages("order:command-o0", [place])
    lines = (folder / "orders" / "part-0.jsonl").read_text().splitlines()
    orders = [json.loads(line) for line in lines]
    for number, quantity in ((20, "many"), (70, "")):
        orders[number]["quantity"] = quantity
    store.write_messages("order-o0", [place.follow("Ordered", orders[0])])
    _publish(
        store,
        [
            *(_row("customer", "Registered", one["customer_id"], one) for one in customers),
            *(_row("product", "Offered", one["product_id"], one) for one in products),
            *(_row("order", "Ordered", one["order_id"], one) for one in orders[1:]),
        ],
    )


def _row(category: str, type: str, id: str, data: Mapping[str, Any]) -> Row:
    return f"{category}-{id}", type, data, {}


def _csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))[:CUSTOMERS]
    return [{key: int(one) if one.isdecimal() else one for key, one in row.items()} for row in rows]


def _publish(store: Store, rows: Sequence[Row]) -> None:
    tokens, counts = _stage(store, rows)
    sql = "select * from penstock.publish_staged(%s::uuid[], %s::bigint[])"
    store.run(call("publish_staged", sql, (tokens, counts), list))


def _stage(store: Store, rows: Iterable[Row]) -> tuple[list[str], list[int]]:
    """Stage messages as Spark's tasks do, and return the tokens and how many each has."""
    staged = [(*one[:2], Jsonb(one[2]), Jsonb(one[3])) for one in rows]
    if not staged:
        return [], []
    token, columns = str(uuid4()), [list(one) for one in zip(*staged, strict=True)]
    sql = """
    insert into penstock.staged (token, ordinal, stream_name, category, type, data, metadata)
    select %s, r.n, r.stream_name, split_part(r.stream_name, '-', 1), r.type, r.data, r.metadata
    from unnest(%s::text[], %s::text[], %s::jsonb[], %s::jsonb[])
      with ordinality r(stream_name, type, data, metadata, n)
    returning 1
    """
    store.run(call("stage", sql, (token, *columns), _nothing))
    return [token], [len(staged)]


# -- the pipeline ------------------------------------------------------------------------------


def _invoice(store: Store) -> list[RecordedMessage]:
    """Run the pipeline's steps; one of them is open, and one processor has failed."""
    orders = store.get_category_messages("order", batch_size=ORDERS)
    third = len(orders) // 3
    for part in (orders[:third], orders[third : 2 * third]):
        valid = [one for one in part if _quantity(one)]
        rejected = [one for one in part if not _quantity(one)]
        outputs = [*(_invoiced(one) for one in valid), *_requested(valid)]
        ranges = {"order": (_before(part), part[-1].global_position)}
        _step(store, "invoicing", "stream", ranges, outputs, len(part), rejected)
    left = {"order": (_before(orders[2 * third :]), orders[-1].global_position)}
    _begin(store, "invoicing", "stream", left)

    invoices = store.get_category_messages("invoice", batch_size=ORDERS)
    ranges = {"invoice": (-1, invoices[len(invoices) // 2].global_position)}
    _step(store, "revenue", "projection", ranges, [], len(invoices) // 2)
    _begin(store, "margins", "sink", {"invoice": (-1, invoices[-1].global_position)})
    error = (
        "SparkRuntimeException: [DIVIDE_BY_ZERO] Division by zero.\n  at margins, shop.py line 71"
    )
    _on_processor(store, "select penstock.fail_step(%s, %s, '', %s)", "margins", error)
    return orders


def _quantity(order: RecordedMessage) -> int | None:
    text = order.data["quantity"]
    return int(text) if text.isdecimal() and 0 < int(text) < 100 else None


def _before(messages: Sequence[RecordedMessage]) -> int:
    return messages[0].global_position - 1


def _follows(order: RecordedMessage) -> dict[str, str]:
    correlation = order.correlation_id or str(order.id)
    return {"correlation_id": correlation, "causation_id": str(order.id)}


def _invoiced(order: RecordedMessage) -> Row:
    data = {
        "order_id": order.data["order_id"],
        "product_id": order.data["product_id"],
        "quantity": _quantity(order),
        "total_cents": 1_250 * (_quantity(order) or 0),
    }
    return f"invoice-{order.data['day']}", "Invoiced", data, _follows(order)


def _requested(orders: Sequence[RecordedMessage]) -> Iterable[Row]:
    for number, order in enumerate(orders):
        data = {
            "order_id": order.data["order_id"],
            "product_id": f"p{number % files.SCARCE}",
            "quantity": _quantity(order),
        }
        yield f"reservation-{uuid4()}", "reservation.requested", data, _follows(order)


def _step(
    store: Store,
    processor: str,
    kind: str,
    ranges: Mapping[str, tuple[int, int]],
    outputs: Sequence[Row],
    messages_in: int,
    rejected: Sequence[RecordedMessage] = (),
) -> None:
    """Begin and commit a step."""
    snapshot = _begin(store, processor, kind, ranges)
    tokens, counts = _stage(store, outputs)
    if rejected:
        (after, until), token = ranges["order"], str(uuid4())
        positions = [one.global_position for one in rejected]
        errors = [f"no quantity: {one.data['quantity']!r}" for one in rejected]
        sql = "select penstock.stage_errors(%s, 'rejected', %s, %s, 'order', %s, %s)"
        store.run(call("stage_errors", sql, (token, positions, errors, after, until), _nothing))
        tokens, counts = [*tokens, token], [*counts, len(rejected)]
    sql = "select * from penstock.commit_step(%s, %s, %s, %s::uuid[], %s::bigint[], %s)"
    report = Jsonb({"messages_in": messages_in})
    _on_processor(store, sql, processor, Jsonb(snapshot), tokens, counts, report)
    sql = """
    update penstock.processor_progress set last_step_seconds = 0.31
    where pipeline = %s and processor = %s returning 1
    """
    _on_processor(store, sql, processor)


def _begin(
    store: Store, processor: str, kind: str, ranges: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    """Write the snapshot of a step, and return it."""
    _on_processor(store, "select penstock.open_processor(%s, %s, %s)", processor, kind)
    starts = Jsonb({queue: after for queue, (after, _) in ranges.items()})
    _on_processor(store, "select penstock.place_tailers(%s, %s, %s)", processor, starts)
    facts = {"processor": processor, "generation": 0, "ranges": dict(ranges), "tables": {}}
    hash = hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()
    snapshot = {**facts, "hash": hash}
    store.write_message(f"shop:try-{processor}", "Snapshot", snapshot)
    return snapshot


def _on_processor(store: Store, sql: Any, processor: str, *arguments: Any) -> None:
    store.run(call("processor", sql, ("shop", processor, *arguments), _nothing))


# -- the readers -------------------------------------------------------------------------------


def _reserve(store: Store) -> None:
    """Reserve stock: one partition is parked, one is claimed, some are pending."""

    def reserve(claim: Claim) -> list[stock.Reserved | stock.Refused]:
        if claim.partition_value["product_id"] == "p3":
            raise ValueError("the warehouse has no shelf for p3")
        return stock.reserve(store, claim)

    options: dict[str, Any] = {"partition_by": "product_id", "handled_types": [stock.Requested]}
    worker = Worker(
        store, stock.GROUP, reserve, worker_id="worker 1", batch_size=20,
        on_failure=FailurePolicy.park(attempts=1), **options,
    )  # fmt: skip
    store.groups.register(stock.GROUP)
    store.groups.claim_next(stock.GROUP, worker_id="worker 2", lease=36_000, **options)
    for _ in range(6):
        worker.run_once()


def _mail(store: Store, orders: Sequence[RecordedMessage]) -> None:
    """Handle some orders: a consumer that is done, and one that parks what it cannot handle."""

    def mail(message: RecordedMessage) -> None:
        if message.data["order_id"] in ("o4", "o40"):
            raise ConnectionRefusedError(f"smtp: no such mailbox: {message.data['customer_id']}")

    handlers = {"Ordered": mail}
    park = FailurePolicy.park(attempts=1)
    Consumer(store, "order", "mailer", handlers=handlers, on_failure=park).run_until_idle()
    store.admin.seek("order", "auditor", orders[len(orders) // 4].global_position)


def _read_queues(store: Store) -> None:
    queue = store.queue("labels")
    queue.offer_many([{"order_id": f"o{n}", "format": "A6"} for n in range(25)])
    with queue.create_consumer("printer", CommitMode.MANUAL_COMMIT) as session:
        for _ in range(18):
            session.poll()
            session.commit()


# -- the outbox --------------------------------------------------------------------------------


def _run_outbox(store: Store) -> None:
    """Run the extraction's join, send mails of which some fail, and leave work for later."""
    with store.transaction() as tx:
        done = tx.joins.start("shop", expected_steps=3, metadata='{"phase": "extract"}')
        for table in ("customers", "products", "orders"):
            tx.outbox.enqueue(f"extract.{table}", {"table": table}, joins=[done])
        tx.joins.enqueue_wait(done, on_complete_topic="shop.transform")
    cause = store.get_stream_messages("order-o0")[0]
    for number in range(12):
        payload = {"to": f"c{number}@example.org", "order": f"o{number}"}
        correlation = cause.correlation_id if number == 0 else None
        store.outbox.enqueue("mail", payload, correlation_id=correlation)
    store.outbox.enqueue("Shipped", {"order": "o0"}, correlation_id=cause.correlation_id)

    dispatcher = Dispatcher(store, concurrency=2)
    for table in ("customers", "products", "orders"):
        dispatcher.handler(f"extract.{table}")(lambda message: None)

    def shipment(message: Any) -> str:
        return f"shipment-{message.payload['order']}"

    dispatcher.publish("Shipped", shipment)

    @dispatcher.handler("mail", on_failure=FailurePolicy.retry(attempts=2, delay=0.001))
    def send(message: Any) -> None:
        if message.payload["order"] in ("o3", "o5"):
            raise PermanentFailure(f"550 no such mailbox: {message.payload['to']}")
        if message.payload["order"] == "o8":
            raise TimeoutError("smtp.example.org did not answer within 10 s")

    while store.outbox.list(topic="mail", state="ready"):
        dispatcher.run_until_idle()

    with store.transaction() as tx:
        waiting = tx.joins.start("nightly", expected_steps=3)
        first = tx.outbox.enqueue("export.invoices", {"day": "2026-01-03"}, joins=[waiting])
        tx.outbox.enqueue("export.stock", {"day": "2026-01-03"}, joins=[waiting])
        tx.outbox.enqueue("export.customers", joins=[waiting])
        tx.joins.enqueue_wait(waiting, on_complete_topic="archive", on_fail_topic="alert")
    (claimed,) = store.outbox.claim("dispatcher 2", topics=["export.stock"], limit=1, lease=36_000)
    assert claimed.id != first
    (exported,) = store.outbox.claim("dispatcher 1", topics=["export.invoices"], limit=1)
    store.outbox.ack(exported)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    store.outbox.enqueue("remind", {"order": "o11"}, due=tomorrow)
    failed = store.joins.start("refund", expected_steps=2)
    store.outbox.enqueue("refund", {"order": "o9", "cents": 1_250}, joins=[failed])
    (refund,) = store.outbox.claim("dispatcher 1", topics=["refund"], limit=1)
    store.outbox.fail(refund, "card 4111 was declined")


def _act(store: Store) -> None:
    """Record what somebody did on the console."""
    facts = {"topic": "mail", "result": "2 messages are ready again."}
    data = {"who": "ada", "what": "Retry messages", "facts": facts}
    store.write_message(AUDIT_STREAM, "ActionTaken", data)


def _nothing(rows: Sequence[Any]) -> None:
    """Decode an answer that nobody needs."""
