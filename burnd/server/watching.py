"""What the daemon does for its clients between their questions: takes in quotas, watches budgets, follows prices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

from burnd import looking_again
from burnd.budget_watch import BudgetWatch
from burnd.errors import NotNow
from burnd.restarting import Minded
from burnd.server.service import Service

_PRICES_S = 30.0


def watches(service: Service) -> Iterator[Minded]:
    """Each runs for as long as the daemon does."""
    yield Minded("taking in readings of limits", service.quotas.run)
    yield Minded("following prices", partial(_follow_prices, service))
    if service.settings.budgets:
        yield Minded("watching budgets", partial(_watch_budgets, service))


async def _follow_prices(service: Service) -> None:
    """Lets sums follow the user's own prices, which may set other context sizes apart."""
    while True:
        with contextlib.suppress(NotNow):  # until then reports read more turns one by one
            await service.pipeline.adopt_prices(service.prices.table)
        await looking_again.rest(_PRICES_S)


async def _watch_budgets(service: Service) -> None:
    settings = service.settings
    budgets = BudgetWatch(
        service.home.crossings,
        settings.budgets,
        settings.budget_command,
        look=service.ask,
        announce=lambda crossed: service.feed.say({"budget": crossed}),
        notices=service.notices,
    )
    with service.feed.following(lambda _turn: True) as follower:
        await budgets.run(follower.take)
