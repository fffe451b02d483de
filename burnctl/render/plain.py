"""ASCII characters for the signs that the output's encoding lacks, so that plots and rules stay readable."""

from __future__ import annotations

import codecs

NAME = "burnctl.plain"  # of the error handler, for `reconfigure(errors=...)`
_SIGNS = {
    "─": "-",
    "└": "`",
    "┤": "|",
    "▲": "^",
    "▼": "v",
    "●": "*",
    "│": "|",
    "·": "-",
    "…": "~",
    "⋯": "~",
    "“": '"',
    "”": '"',
    "→": ">",
    "▸": ">",
    "◂": "<",
    "∴": "*",
    "━": "=",
    # The parts of a bill, which differ by their signs where there is no colour.
    "█": "#",
    "▓": "+",
    "▒": "=",
    "░": ".",
    "▞": "%",
    # Bars, to the cell that is at least half full; a row of columns, by how much ink a sign has.
    **dict.fromkeys("▏▎▍", "|"),
    **dict.fromkeys("▌▋▊▉", "#"),
    **dict(zip("▁▂▃▄▅▆▇", "_.-~=+*", strict=True)),
}


def register() -> None:
    """Registers the error handler under its name."""
    codecs.register_error(NAME, _replaced)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """One character for each, so that columns stay aligned; any other character becomes `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SIGNS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end
