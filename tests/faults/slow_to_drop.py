"""A daemon to which dropping the content of a few sessions takes seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable

from burnd.ledger import content

content.DROPPED_AT_ONCE = 5
_drop = content.ContentStore.drop


def _slowly(store: content.ContentStore, session_ids: Iterable[str]) -> int:
    time.sleep(1.5)
    return _drop(store, session_ids)


if __name__ == "__main__":
    setattr(content.ContentStore, "drop", _slowly)  # noqa: B010 - its parameter has another name
    from burnd.cli import main

    raise SystemExit(main())
