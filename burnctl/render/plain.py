"""What stands for our own signs where the output's encoding lacks them: plots and rules stay readable in ASCII."""

from __future__ import annotations

import codecs

NAME = "burnctl.plain"  # of the error handler, for `reconfigure(errors=...)`
_SIGNS = {
    "─": "-",
    "└": "`",
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
    # The parts of a bill, which are told apart by their signs where there is no colour.
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
    """Makes the handler known by its name."""
    codecs.register_error(NAME, _replaced)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """One sign for each, so that columns stay where they are; what is not ours becomes `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SIGNS.get(sign, "?") for sign in error.object[error.start : error.end]), error.end
