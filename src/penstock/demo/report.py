"""The demo's report: one self-contained HTML file with checks and charts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from penstock.demo.findings import Findings
from penstock.demo.story import Story
from penstock.demo.truth import Truth

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 860px; margin: 2em auto; color: #222; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: .25em 1em .25em 0; }
th { text-align: left; border-bottom: 1px solid #999; } td.n { text-align: right; }
.ok { color: #2e7d32; } .wrong { color: #b71c1c; font-weight: bold; } svg { max-width: 100%; }
"""
_WIDTH, _HEIGHT = 820, 200


def report(story: Story, findings: Findings, truth: Truth, graph: str) -> str:
    """Return the report as HTML."""
    day_cents = [cents / 100 for _, (_, cents) in sorted(findings.days.items())]
    verdict = "All checks passed." if findings.all_correct else "Some checks failed."
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Penstock demo</title>
<style>{_STYLE}</style></head><body>
<h1>Penstock demo</h1>
<p>{truth.orders:,} orders became {findings.counts["invoice"]:,} invoices in
{story.seconds:.0f} seconds. The pipeline was killed with <code>kill -9</code> after
{story.killed_at:,} invoices, and resumed. {verdict}</p>
<h2>Checks</h2>
<p>Expected: computed from the files in plain Python. Found: read from the database.</p>
{_checks(findings)}
<h2>The pipeline</h2>
{graph}
<h2>Invoices over time</h2>
{_line(story.timeline, story.kill_second)}
<h2>Revenue by day</h2>
{_bars(day_cents)}
<h2>Scarce products</h2>
{_stock(findings, truth)}
</body></html>
"""


def _checks(findings: Findings) -> str:
    marks = {True: '<span class="ok">ok</span>', False: '<span class="wrong">wrong</span>'}
    rows = [(*check, marks[check[1] == check[2]]) for check in findings.checks]
    return _table(["check", "expected", "found", ""], rows)


def _stock(findings: Findings, truth: Truth) -> str:
    rows = [(name, truth.stock[name], *counts) for name, counts in sorted(findings.stock.items())]
    return _table(["product", "stock", "reserved", "granted", "refused"], rows)


def _table(head: list[str], rows: Sequence[tuple[str | int, ...]]) -> str:
    lines = ["".join(f"<th>{name}</th>" for name in head)]
    for row in rows:
        cells = (f"<td class=n>{one:,}" if isinstance(one, int) else f"<td>{one}" for one in row)
        lines.append("".join(f"{cell}</td>" for cell in cells))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _line(points: Sequence[tuple[float, int]], mark: float) -> str:
    last, most = points[-1][0], max(count for _, count in points) or 1
    path = " ".join(
        f"{_WIDTH * at / last:.1f},{_HEIGHT - _HEIGHT * count / most:.1f}" for at, count in points
    )
    x = _WIDTH * mark / last
    killed = (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT}" stroke="#b71c1c" '
        f'stroke-dasharray="4 3"/><text x="{x + 5:.1f}" y="14" fill="#b71c1c">kill -9</text>'
    )
    drawn = f'<polyline points="{path}" fill="none" stroke="#1565c0" stroke-width="2"/>{killed}'
    return _svg(drawn, f"0 s to {last:.0f} s, up to {most:,} invoices")


def _bars(values: Sequence[float]) -> str:
    most, width = max(values, default=1.0) or 1.0, _WIDTH / max(1, len(values))
    bars = "".join(
        f'<rect x="{number * width:.1f}" y="{_HEIGHT - _HEIGHT * value / most:.1f}" '
        f'width="{width - 1:.1f}" height="{_HEIGHT * value / most:.1f}" fill="#ad6800"/>'
        for number, value in enumerate(values)
    )
    return _svg(bars, f"{len(values)} days, up to {most:,.0f}")


def _svg(content: str, caption: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 4}" width="{_WIDTH}" font-size="12" '
        f'font-family="sans-serif">{content}</svg><p><small>{escape(caption)}</small></p>'
    )
