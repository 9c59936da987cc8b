"""`penstock graph` and `penstock pipelines`: neither needs Spark to run."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from penstock import Store
from penstock.pipeline.snapshot import Snapshot
from penstock.pipeline.state import fail_step, open_processor, place_tailers
from tests.cli.conftest import run
from tests.pipeline.graph.files import write_file

SHOP = """
pipe.schema("order")

@pipe.stream(inputs="order", output="bill")
def bill(order): ...
"""


class TestGraph:
    def test_it_is_drawn_as_text(self, tmp_path: Path) -> None:
        result = run("graph", str(write_file(tmp_path, SHOP)))

        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "pipeline shop",
            "  ▶ bill  (stream, shop.py:7)",
            "      inputs  order",
            "      output  bill",
        ]

    def test_it_is_drawn_to_a_file(self, tmp_path: Path) -> None:
        image = tmp_path / "shop.SVG"

        result = run("graph", str(write_file(tmp_path, SHOP)), "--output", str(image))

        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == f"wrote {image}\n"
        assert ET.fromstring(image.read_text()).tag.endswith("svg")

    def test_a_file_of_another_kind_is_refused(self, tmp_path: Path) -> None:
        file, image = str(write_file(tmp_path, SHOP)), str(tmp_path / "shop.gif")

        result = run("graph", file, "-o", image, columns=400)

        assert result.exit_code == 2
        assert "the file has to end in .svg, which browsers show" in result.stderr
        assert not (tmp_path / "shop.gif").exists()

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("@pipe.sink(inputs='odrer')\ndef s(odrer): ...", "shop.py:4: s reads odrer"),
            ("pipe.schema('x')", "pipeline shop: it has no processors"),
            ("pipe = 5", "there is no pipeline in it"),
            ("def (:", "it cannot be loaded: SyntaxError"),
        ],
    )
    def test_what_is_wrong_is_one_line_on_stderr(
        self, tmp_path: Path, text: str, complaint: str
    ) -> None:
        result = run("graph", str(write_file(tmp_path, text)))

        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("penstock: ")
        assert complaint in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert "mistake in Penstock" not in result.stderr


class TestPipelines:
    def test_there_may_be_none(self, database_url: str) -> None:
        result = run("pipelines", url=database_url)

        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == "no pipeline has run on this database yet\n"

    @pytest.fixture
    def stopped(self, store: Store) -> Store:
        """A database on which a processor has been stopped by an error, and another one ran."""
        store.write_message("order-1", "Placed")
        store.write_message("order-2", "Placed")
        store.run(open_processor("shop", "orders", "source"))
        store.run(open_processor("shop", "bill", "stream"))
        store.run(fail_step("shop", Snapshot("bill", 0), "ValueError: no\x1b[31m paper"))
        store.run(place_tailers("shop", "bill", {"order": 1}))
        return store

    def test_each_processor_has_a_line_with_what_stopped_it(self, stopped: Store) -> None:
        result = run("pipelines", url=stopped.settings.conninfo(), columns=200)

        head, bill, orders = (line.split() for line in result.stdout.splitlines())
        assert result.exit_code == 0
        assert head[:2] == ["pipeline", "processor"]
        assert bill[:7] == ["shop", "bill", "stream", "0", "0", "0", "1"]
        assert " ".join(bill[7:]) == "ValueError: no\\x1b[31m paper"
        assert orders == ["shop", "orders", "source", "0", "0", "0", "0"]

    def test_one_that_is_gone_for_good_is_retired(self, stopped: Store) -> None:
        url = stopped.settings.conninfo()

        told = run("pipelines", "retire", "shop", "bill", url=url)
        listed = run("pipelines", url=url, columns=200)

        assert (told.exit_code, told.stderr) == (0, "shop.bill is retired\n")
        assert listed.stdout.splitlines()[1].split()[-1] == "retired"

    def test_one_that_is_not_there_cannot_be_retired(self, stopped: Store) -> None:
        result = run("pipelines", "retire", "shop", "paint", url=stopped.settings.conninfo())

        assert result.exit_code == 2
        assert "shop.paint" in result.stderr

    def test_json_has_all_of_it(self, stopped: Store) -> None:
        result = run("pipelines", "--json", url=stopped.settings.conninfo())

        bill, _ = json.loads(result.stdout)
        [tailer] = bill["tailers"]
        assert tailer.pop("seconds_behind") >= 0
        assert tailer == {"queue": "order", "position": 1, "lag": 1}
        assert bill["error"] == "ValueError: no\x1b[31m paper"
        assert (bill["generation"], bill["rebuilding"], bill["steps"]) == (0, False, 0)
