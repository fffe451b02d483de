"""A daemon with one more source, which fails every time."""

from __future__ import annotations

from burnd.harness import supervisor
from tests.server.test_status import Failing

supervisor.SOURCES["failing"] = lambda _: Failing()

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
