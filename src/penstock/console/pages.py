"""Pages: templates, their functions, and JSON as a collapsible tree.

Jinja escapes every value, so that what applications write is shown as text. Markup is made only
here, of escaped values. There are no inline scripts or styles: the content security policy forbids
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from penstock.console import drawing, pictures
from penstock.console.addresses import link, reader_link

FOLDER = Path(__file__).parent
#: values of a JSON tree, characters of one text, and characters of JSON that a page shows
_NODES, _LONGEST, _MOST = 400, 4_000, 200_000


class _Environment(Environment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a field of a plain value: `page.items` is a field here, not the dict's method."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


@cache
def _environment() -> Environment:
    """Return the templates, which are compiled once for all consoles of a process."""
    made = _Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=number, when=when, seconds=seconds, json=json_text, tree=tree, short=short,
        bytes=bytes_text, rate=rate, compact=compact,
    )  # fmt: skip
    made.globals.update(
        link=link,
        reader_link=reader_link,
        chart=drawing.chart,
        pipeline_graph=pictures.pipeline_graph,
        join_picture=pictures.join_picture,
    )
    made.globals["ui"] = made.get_template("ui.html").module
    return made


class Pages:
    """The pages of a console, with the values that all of them have."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """Return a whole page."""
        return _environment().get_template(template).render({**self._values, **values})

    def render_block(self, template: str, block: str, values: Mapping[str, Any]) -> str:
        """Return one block of a page, as the page has it."""
        found = _environment().get_template(template)
        context = found.new_context({**self._values, **values})
        return "".join(found.blocks[block](context)).strip()


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with thousands separators."""
    return "—" if value is None else f"{value:,.{digits}f}"


def rate(value: float | None) -> str:
    """Return a rate: a decimal below ten, none above."""
    return number(value, 1 if value is not None and 0 < value < 10 else 0)


def seconds(value: float | None) -> str:
    """Return a duration in its two largest units: 1 h 5 min."""
    if value is None:
        return "—"
    if value < 1:
        return "0 s" if value <= 0 else f"{max(1, round(value * 1000))} ms"
    if value < 10:
        return f"{value:.1f} s"
    whole = int(value)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for unit, size in units:
        if whole >= size or parts:
            parts.append(f"{whole // size} {unit}")
            whole %= size
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def bytes_text(value: int) -> str:
    """Return a size: 20.1 MB."""
    size = float(value)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def when(value: datetime | str | None) -> Markup:
    """Return a time: UTC here, and in the viewer's zone by console.js."""
    if value is None:
        return Markup('<span class="muted">—</span>')
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    utc = f"{moment:%Y-%m-%d %H:%M:%S}"
    return Markup('<time datetime="{}" title="{} UTC">{} UTC</time>').format(
        moment.isoformat(), f"{utc}.{moment.microsecond:06d}", utc
    )


def short(value: object, most: int = 80) -> str:
    """Return a text of one line, cut."""
    text = " ".join(str(value).split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def compact(value: Any) -> str:
    """Return a value as JSON in one line."""
    return msgspec.json.encode(value).decode()


def json_text(value: Any) -> str:
    """Return a value as JSON, indented and cut."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if len(text) <= _MOST else f"{text[:_MOST]}\n… cut"


def tree(value: Any) -> Markup:
    """Return JSON as nested <details>, cut where it is long."""
    budget = [_NODES]
    return Markup('<div class="json">{}</div>').format(_branch(None, value, budget, 0))


def _branch(name: str | None, value: Any, budget: list[int], depth: int) -> Markup:
    budget[0] -= 1
    label = Markup("") if name is None else Markup('<span class="key">{}</span>: ').format(name)
    if isinstance(value, dict) and value:
        kind, items, brackets = "fields", list(value.items()), "{}"
    elif isinstance(value, list) and value:
        kind, items, brackets = "items", [(str(i), one) for i, one in enumerate(value)], "[]"
    else:
        return Markup('<div class="leaf">{}{}</div>').format(label, _leaf(value))
    inside = Markup("").join(_branches(items, budget, depth))
    # the first levels are open
    shown = Markup(" open") if depth < 2 and len(items) <= 50 else Markup("")
    counted = f"{brackets} {len(items):,} {kind if len(items) > 1 else kind[:-1]}"
    summary = Markup('{}<span class="muted">{}</span>').format(label, counted)
    return Markup("<details{}><summary>{}</summary>{}</details>").format(shown, summary, inside)


def _branches(items: Iterable[tuple[str, Any]], budget: list[int], depth: int) -> Iterable[Markup]:
    listed = list(items)
    for index, (name, one) in enumerate(listed):
        if budget[0] <= 0:
            left = len(listed) - index
            yield Markup('<div class="leaf muted">… {} more: download it</div>').format(left)
            return
        yield _branch(name, one, budget, depth + 1)


def _leaf(value: Any) -> Markup:
    kind = {str: "text", bool: "word", type(None): "word"}.get(type(value), "figure")
    text = msgspec.json.encode(value).decode()
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… cut, {len(text):,} characters"
    return Markup('<span class="{}">{}</span>').format(kind, escape(text))
