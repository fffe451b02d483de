"""A daemon with short intervals, for tests that would have to wait for minutes otherwise."""

from __future__ import annotations

from burnd.logfiles import finder
from burnd.server import listener

listener.LOOK_EVERY_S = 0.2
vars(finder)["TAIL_QUIET_S"] = 1.0  # as it imported it

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
