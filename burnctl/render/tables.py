"""Aligned tables that fit the screen, blocks side by side, and the colours of cells. A pipe cuts and hides nothing.

A colour only repeats what the text of a cell shows.
"""

from __future__ import annotations

from burnctl.render.text import clean, cut, pad, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from burnctl.render.screen import Screen

    _Cell = tuple[str, str, str]  # text, style, which part may be cut

_GAP = 2
_NARROWEST = 6
_UNLIMITED = 1_000_000


class Column:
    """One column.

    `least` is the width it may be cut to (0: never cut) before the table overflows; columns with the highest `drop`
    above 0 are hidden first; `where` is the part of a long cell that is cut; `style` paints its cells.
    """

    __slots__ = ("align", "drop", "least", "style", "title", "where")

    def __init__(
        self,
        title: str,
        align: str = "left",
        *,
        least: int = 0,
        drop: int = 0,
        where: str = "end",
        style: str = "",
    ) -> None:
        self.title, self.align, self.least, self.drop = clean(title), align, least, drop
        self.where, self.style = where, style


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[object]],
    screen: Screen,
    *,
    footer: Sequence[object] | None = None,
    header: bool = True,
    indent: int = 0,
) -> str:
    """The table as text, with `footer` below a line. Cells are cleaned; the screen notes hidden columns.

    Empty columns are left out. A cell may be `(text, style)` or `(text, style, where)`.
    """
    every = [[_cell(value, column) for value, column in zip(row, columns, strict=True)] for row in rows]
    last = [_cell(value, column) for value, column in zip(footer, columns, strict=True)] if footer else None
    used = [n for n in range(len(columns)) if any(row[n][0] for row in every)] or range(len(columns))
    columns, every = [columns[n] for n in used], [[row[n] for n in used] for row in every]
    last = [last[n] for n in used] if last else None
    room = _UNLIMITED if screen.is_pipe else screen.width - indent
    indexes, widths = _fitted(columns, [*every, last] if last else every, room, header=header)
    for n, column in enumerate(columns):
        if n not in indexes:
            screen.hide(column.title)
    margin = " " * indent
    lines = []
    if header:
        heads = [(columns[i].title, "bold", columns[i].where) for i in indexes]
        lines.append(_line(heads, [columns[i] for i in indexes], widths, screen))
    lines += [_line([row[i] for i in indexes], [columns[i] for i in indexes], widths, screen) for row in every]
    if last:
        lines.append(screen.paint("─" * (sum(widths) + _GAP * (len(widths) - 1)), "dim"))
        bold = [(last[i][0], last[i][1] or "bold", last[i][2]) for i in indexes]
        lines.append(_line(bold, [columns[i] for i in indexes], widths, screen))
    return "\n".join(margin + line for line in lines)


def _cell(value: object, column: Column) -> _Cell:
    if isinstance(value, tuple):
        text, style, *where = value
        return clean(text), style, where[0] if where else column.where
    return ("" if value is None else clean(value)), column.style, column.where


def _fitted(
    columns: Sequence[Column], rows: Sequence[Sequence[_Cell]], room: int, *, header: bool
) -> tuple[list[int], list[int]]:
    """The columns shown and their widths. A hidden column returns if nothing is cut for it."""
    natural = [
        max([width_of(row[i][0]) for row in rows] + [width_of(column.title) if header else 0])
        for i, column in enumerate(columns)
    ]
    smallest = [
        min(wide, column.least) if column.least else wide for wide, column in zip(natural, columns, strict=True)
    ]
    indexes = list(range(len(columns)))
    for i in sorted(indexes, key=lambda i: -columns[i].drop):
        if columns[i].drop <= 0 or sum(smallest[k] for k in indexes) + _GAP * (len(indexes) - 1) <= room:
            break
        indexes.remove(i)
    for i in sorted(set(range(len(columns))) - set(indexes), key=lambda i: columns[i].drop):
        if sum(natural[k] for k in [*indexes, i]) + _GAP * len(indexes) <= room:
            indexes = sorted([*indexes, i])
    widths = {i: natural[i] for i in indexes}
    over = sum(widths.values()) + _GAP * (len(indexes) - 1) - room
    over = _shrink(widths, smallest, over)
    _shrink(widths, [min(wide, _NARROWEST) if columns[i].least else wide for i, wide in enumerate(smallest)], over)
    return indexes, [widths[i] for i in indexes]


def _shrink(widths: dict[int, int], smallest: Sequence[int], over: int) -> int:
    """Narrows the widest column that may shrink, repeatedly. Returns by how much the table is too wide."""
    while over > 0 and (able := [i for i in widths if widths[i] > smallest[i]]):
        widths[max(able, key=lambda i: widths[i])] -= 1
        over -= 1
    return over


def _line(cells: Sequence[_Cell], columns: Sequence[Column], widths: Sequence[int], screen: Screen) -> str:
    parts = []
    for (text, style, where), column, wide in zip(cells, columns, widths, strict=True):
        label = cut(text, wide, where)
        padded = pad(label, wide, column.align)
        parts.append(padded.replace(label, screen.paint(label, style), 1) if label else padded)
    line = (" " * _GAP).join(parts)
    return line.rstrip()


_BLOCK_GAP = 4


class TextBlock:
    """Lines as printed, and without colour codes to measure them."""

    def __init__(self, plain: str, painted: str) -> None:
        self.lines = painted.split("\n")
        self.widths = [width_of(line) for line in plain.split("\n")]
        self.width = max(self.widths, default=0)


def beside(blocks: Sequence[TextBlock], screen: Screen) -> str:
    """The blocks from left to right; one that does not fit begins a new row."""
    rows: list[list[TextBlock]] = []
    used = 0
    for block in blocks:
        if not rows or used + _BLOCK_GAP + block.width > screen.width:
            rows.append([])
            used = -_BLOCK_GAP
        rows[-1].append(block)
        used += _BLOCK_GAP + block.width
    parts = []
    for row in rows:
        lines = []
        for n in range(max(len(block.lines) for block in row)):
            line, gap = "", 0
            for block in row:
                if n < len(block.lines) and block.lines[n]:
                    line += " " * gap + block.lines[n]
                    gap = block.width - block.widths[n] + _BLOCK_GAP
                else:
                    gap += block.width + _BLOCK_GAP
            lines.append(line)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def weight_style(cost: float | None, most: float | None) -> str:
    """Bold for an amount that matters beside the largest one, dim for one that does not."""
    if not cost or not most:
        return "dim"
    share = cost / most
    return "bold" if share >= 0.5 else "dim" if share < 0.02 else ""


def hit_rate_style(share: float | None) -> str:
    """Green from 80%, yellow from 50%, red below."""
    if share is None:
        return "dim"
    return "green" if share >= 0.8 else "yellow" if share >= 0.5 else "red"


def change_style(share: float | None) -> str:
    """Red for a growth of 25% or more, green for such a fall."""
    if share is None or abs(share) < 0.25:
        return "dim" if share is None else ""
    return "red" if share > 0 else "green"


def used_style(percent: float | None) -> str:
    if percent is None:
        return "dim"
    return "red" if percent >= 90 else "yellow" if percent >= 70 else "green"


_MODELS = (
    ("opus", "magenta"),
    ("fable", "magenta"),
    ("sonnet", "cyan"),
    ("haiku", "green"),
    ("gpt", "yellow"),
    ("gemini", "blue"),
)


def model_style(name: object) -> str:
    """The colour of a model's family."""
    text = str(name or "").lower()
    return next((color for family, color in _MODELS if family in text), "")
