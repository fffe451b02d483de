"""Why every token was spent: the turns of a rail in, causes as token counts out. Pure; nothing here knows a price."""

from burnd.attribution.causes import Anatomy, Branch, Cause, Explained, Part, anatomy, explain, nest
from burnd.attribution.rail import Rail, in_order
from burnd.attribution.rail_state import restore, save
from burnd.attribution.rates import Rate, Spent, add_up, rate_of
from burnd.attribution.tally import Sums, Tally, tally

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
