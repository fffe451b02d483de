"""A daemon with questions that never end, questions that end when there is a file `gate`, and one with a mistake."""

from __future__ import annotations

import time
from typing import Any

from burnd.contract import Params
from burnd.contract.daemon import MethodsParams as NoParams
from burnd.queries.view import View
from burnd.server.method import Method, Result, query
from burnd.server.methods import METHODS
from burnd.server.service import Service

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def endless(view: View, _params: NoParams) -> dict[str, Any]:
    return {"rows": view.rows(ENDLESS)}


def dawdling(view: View, _params: NoParams) -> dict[str, Any]:
    """As endless, but it leaves the processor to others."""
    while True:
        view.rows("SELECT 1")
        time.sleep(0.02)


class GatedParams(Params, deadline=None):
    """No parameters, and no deadline."""


async def gated(service: Service, _params: GatedParams) -> Result:
    """Runs in its thread until the file exists."""
    gate = service.home.root / "gate"

    def wait(view: View) -> dict[str, Any]:
        while not gate.exists():
            view.rows("SELECT 1")
            time.sleep(0.01)
        return {"rows": []}

    return await service.ask(wait, within=600)


def broken(_view: View, _params: NoParams) -> dict[str, Any]:
    raise ZeroDivisionError("the canary")


METHODS["endless"] = query(NoParams, endless)
METHODS["dawdling"] = query(NoParams, dawdling)
METHODS["gated"] = Method(GatedParams, gated)
METHODS["broken"] = query(NoParams, broken)

if __name__ == "__main__":
    from burnd.cli import main

    raise SystemExit(main())
