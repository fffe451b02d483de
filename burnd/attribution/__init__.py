"""Attribution: assigns every billed token of a rail to a cause. In tokens only; `pricing` has the prices."""

from burnd.attribution.causes import (
    Anatomy,
    Branch,
    Cause,
    CauseShare,
    Explained,
    GroupTally,
    anatomy,
    explain,
    nest,
    tally,
)
from burnd.attribution.rail import Rail, in_order, restore, save
from burnd.attribution.rates import Rate, Spent, Sums, add_up, rate_of

__all__ = [
    "explain",
    "anatomy",
    "Anatomy",
    "Explained",
    "Cause",
    "CauseShare",
    "nest",
    "Branch",
    "in_order",
    "Rail",
    "save",
    "restore",
    "GroupTally",
    "tally",
    "Sums",
    "Rate",
    "Spent",
    "rate_of",
    "add_up",
]
