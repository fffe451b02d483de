"""A daemon with one more source, which fails every time."""

from __future__ import annotations

from burnd.harness import supervisor
from tests.server.failing_source import FailingSource

supervisor.SOURCES["failing"] = lambda _: FailingSource()

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
