"""A daemon on a disk that fails when the ledger is synced."""

from __future__ import annotations

from typing import Any

from burnd.errors import SyncFailed
from burnd.ledger.journal import Journal


def append(self: Journal, lines: Any) -> Any:
    if lines:
        raise SyncFailed("Input/output error", str(self.path))
    return []


failing: Any = append
Journal.append = failing  # type: ignore[method-assign]

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
