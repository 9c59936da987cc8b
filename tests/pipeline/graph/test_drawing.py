"""A graph is drawn as text, in the order messages flow, and as an image."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from pyspark.sql import DataFrame

from penstock.pipeline import Latest, Pipeline, load
from penstock.pipeline.drawing import as_svg, as_text, columns
from tests.pipeline.graph.files import write_file

SVG = "{http://www.w3.org/2000/svg}"

SHOP = """
pipe.schema("product")

@pipe.sink(inputs="bill")
def book(bill): ...

@pipe.stream(inputs="order", tables=Latest("product"), output=["bill", "gift"], errors="lost")
def bill(order, product): ...

@pipe.source(output="order")
def orders(spark): ...

@pipe.stream(alts=["gift", "lost"], output="letter")
def write(messages): ...

@pipe.project("bill", into="bills", columns="n int")
def bills(state, message): ...
"""


def shop(folder: Path) -> Pipeline:
    return load(str(write_file(folder, SHOP)))


def test_text_has_a_line_for_each_processor_in_the_order_messages_flow(tmp_path: Path) -> None:
    drawn = as_text(shop(tmp_path))

    assert drawn.splitlines() == [
        "pipeline shop",
        "  ▷ orders  (source, shop.py:13)",
        "      output  order",
        "  ▶ bill  (stream, shop.py:10)",
        "      inputs  order",
        "      tables  product",
        "      output  bill, gift",
        "      errors  lost",
        "  ▣ book  (sink, shop.py:7)",
        "      inputs  bill",
        "  ▶ write  (stream, shop.py:16)",
        "      alts    gift | lost",
        "      output  letter",
        "  ▤ bills  (projection, shop.py:19)",
        "      inputs  bill",
        "      table   bills",
    ]


def test_iceberg_tables_are_named_where_they_are_written_and_read() -> None:
    pipe = Pipeline("lake")

    @pipe.source(output="order", table="shop.import")
    def orders(rows: DataFrame) -> DataFrame:
        return rows

    @pipe.table("shop.order", inputs="order")
    def keep(order: DataFrame) -> DataFrame:
        return order

    kept = [line for line in as_text(pipe).splitlines() if "shop." in line or "keep" in line]
    assert [line.partition("  (")[0] for line in kept] == [
        "      rows of shop.import",
        "  ▦ keep",
        "      table   shop.order",
    ]
    assert "keep" in as_svg(pipe)


def test_an_image_has_a_box_for_each_processor_and_an_arrow_for_each_way(tmp_path: Path) -> None:
    image = ET.fromstring(as_svg(shop(tmp_path)))

    texts = [one.text for one in image.iter(f"{SVG}text")]
    arrows = image.findall(f"{SVG}path")
    assert set(texts) >= {"orders", "bill", "book", "write", "bills", "product"}
    assert [texts.count(one) for one in ("order", "gift", "lost")] == [1, 1, 1]
    assert len(arrows) == 6
    assert len([one for one in arrows if one.get("stroke-dasharray")]) == 1


def test_everything_in_an_image_is_inside_of_it(tmp_path: Path) -> None:
    image = ET.fromstring(as_svg(shop(tmp_path)))

    width, height = int(image.attrib["width"]), int(image.attrib["height"])
    boxes = [{key: int(one.attrib[key]) for key in ("x", "y", "width", "height")}
             for one in image.iter(f"{SVG}rect")]  # fmt: skip
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
    assert all(box["y"] >= 0 and box["y"] + box["height"] <= height for box in boxes)
    assert len({(box["x"], box["y"]) for box in boxes}) == len(boxes) == 6


def test_names_with_characters_of_xml_and_of_markup_are_drawn_as_they_are() -> None:
    pipe = Pipeline("shop")
    pipe.schema("<a & 'b'>[red]")

    @pipe.sink(alts=["<a & 'b'>[red]"])
    def sink(messages: object) -> None: ...

    image = ET.fromstring(as_svg(pipe))

    assert "<a & 'b'>[red]" in [one.text for one in image.iter(f"{SVG}text")]
    assert "<a & 'b'>[red]" in as_text(pipe)


def test_a_ring_that_something_feeds_is_drawn_too() -> None:
    pipe = Pipeline("echo")
    pipe.schema("call")

    @pipe.stream(alts=["call", "echo"], tables=[Latest("never")], output="answer")
    def mountain(messages: object, never: object) -> None: ...

    @pipe.stream(inputs="answer", output=["echo", "never"])
    def valley(answer: object) -> None: ...

    assert {one.name for column in columns(pipe) for one in column} == {"mountain", "valley"}
    ET.fromstring(as_svg(pipe))
