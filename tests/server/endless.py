"""A daemon with a question that never ends, and one with a mistake in it."""

from __future__ import annotations

from typing import Any

from burnd.queries.view import View
from burnd.server.method import NoParams, query
from burnd.server.methods import METHODS

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def endless(view: View, _params: NoParams) -> dict[str, Any]:
    return {"rows": view.rows(ENDLESS)}


def broken(_view: View, _params: NoParams) -> dict[str, Any]:
    raise ZeroDivisionError("the canary")


METHODS["endless"] = query(NoParams, endless)
METHODS["broken"] = query(NoParams, broken)

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
