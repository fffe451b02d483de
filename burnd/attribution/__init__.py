"""Why every token was spent: the turns of a rail in, causes as token counts out. Pure; nothing here knows a price."""

from burnd.attribution.cause import Cause
from burnd.attribution.causes import Anatomy, Explained, Part, anatomy, explain
from burnd.attribution.rail import Rail, in_order
from burnd.attribution.rates import Rate, Spent, add_up, rate_of
from burnd.attribution.saving import restore, save
from burnd.attribution.tally import Sums, Tally, tally
from burnd.attribution.tree import Branch, nest

__all__ = [
    "explain",
    "anatomy",
    "Anatomy",
    "Explained",
    "Cause",
    "Part",
    "nest",
    "Branch",
    "in_order",
    "Rail",
    "save",
    "restore",
    "Tally",
    "tally",
    "Sums",
    "Rate",
    "Spent",
    "rate_of",
    "add_up",
]
