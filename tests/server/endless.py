"""A daemon with questions that never end, and one with a mistake in it."""

from __future__ import annotations

import time
from typing import Any

from burnd.contract import NoParams
from burnd.queries.view import View
from burnd.server.method import query
from burnd.server.methods import METHODS

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def endless(view: View, _params: NoParams) -> dict[str, Any]:
    return {"rows": view.rows(ENDLESS)}


def dawdling(view: View, _params: NoParams) -> dict[str, Any]:
    """As endless, but it leaves the processor to others."""
    while True:
        view.rows("SELECT 1")
        time.sleep(0.02)


def broken(_view: View, _params: NoParams) -> dict[str, Any]:
    raise ZeroDivisionError("the canary")


METHODS["endless"] = query(NoParams, endless)
METHODS["dawdling"] = query(NoParams, dawdling)
METHODS["broken"] = query(NoParams, broken)

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
