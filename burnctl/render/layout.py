"""Blocks of lines side by side, as many as fit on the screen."""

from __future__ import annotations

from burnctl.render.text import width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from burnctl.render.screen import Screen

_GAP = 4


class Block:
    """Lines of text as printed, and their widths without colour codes."""

    def __init__(self, plain: str, painted: str) -> None:
        self.lines = painted.split("\n")
        self.widths = [width_of(line) for line in plain.split("\n")]
        self.width = max(self.widths, default=0)


def beside(blocks: Sequence[Block], screen: Screen) -> str:
    """The blocks from left to right; one that does not fit begins a new row below an empty line."""
    rows: list[list[Block]] = []
    used = 0
    for block in blocks:
        if not rows or used + _GAP + block.width > screen.width:
            rows.append([])
            used = -_GAP
        rows[-1].append(block)
        used += _GAP + block.width
    return "\n\n".join(_row(row) for row in rows)


def _row(blocks: Sequence[Block]) -> str:
    lines = []
    for n in range(max(len(block.lines) for block in blocks)):
        line, gap = "", 0
        for block in blocks:
            if n < len(block.lines) and block.lines[n]:
                line += " " * gap + block.lines[n]
                gap = block.width - block.widths[n] + _GAP
            else:
                gap += block.width + _GAP
        lines.append(line)
    return "\n".join(lines)
