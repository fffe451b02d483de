"""Makes packaging/completions/ from what `burnctl completions` prints, under the names that shells look for.

python packaging/make_completions.py
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from burnctl.cli import main as burnctl

FOLDER = Path(__file__).parent / "completions"
_NAMES = {"bash": "burnctl", "zsh": "_burnctl", "fish": "burnctl.fish"}


def files() -> dict[str, str]:
    """Every file by its name."""
    return {name: _printed("completions", shell) for shell, name in _NAMES.items()}


def _printed(*words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        burnctl(words)
    return out.getvalue()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
