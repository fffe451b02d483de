"""`burnctl pricing`: what a model costs and by which list, and updating the list."""

from __future__ import annotations

from burnctl import flags
from burnctl.output import as_json
from burnctl.progress import waiting
from burnctl.render.names import short_model
from burnctl.render.notes import caveats
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, table
from burnctl.render.text import clean
from burnd.contract import Params, param
from burnd.contract.reports import PricingParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

    from burnctl.client import Client
    from burnd.contract.results.reports import ListedModel, Pricing

HELP = "shows the prices of a model, or fetches the newest price list"
EXAMPLES = (
    "burnctl pricing show claude-opus-5",
    "burnctl pricing show glm-5.2 --provider openrouter",
    "burnctl pricing update",
    "burnctl pricing update --from api.json",
)
_KINDS = (
    ("input", "input"),
    ("output", "output"),
    ("reasoning", "reasoning"),
    ("cacheRead", "cache read"),
    ("cacheCreate5m", "5-min write"),
    ("cacheCreate1h", "1-hour write"),
)


class PricingFlags(Params):
    file: str | None = param(
        default=None, help="take this list instead, without the network", flag="--from", metavar="FILE"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="what a model costs, by size of context and kind of token")
    show.description = (
        "shows dollars per million tokens, which list they are from and of which day; for a model without a price, "
        "where it was looked for and which names are near"
    )
    flags.place(show, PricingParams, "model")
    flags.add(show, PricingParams, skip=("model",))
    flags.reading(show)
    update = actions.add_parser("update", help="fetch the newest list from models.dev, or take one from a file")
    update.description = (
        "fetches the newest price list and puts it into models.dev.json in the home, where burnd takes it up at once. "
        "Prices you wrote there yourself stay."
    )
    flags.add(update, PricingFlags)


def run(options: argparse.Namespace) -> int:
    return _update(options) if options.action == "update" else _show(options)


def _update(options: argparse.Namespace) -> int:
    """Updates with `burnd`, which checks the list."""
    import subprocess
    import sys

    arguments = [] if options.file is None else ["--from", options.file]
    command = [sys.executable, "-P", "-m", "burnd.pricing.update", *arguments]
    with waiting.during("fetching https://models.dev/api.json" if options.file is None else "reading"):
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    sys.stderr.write(done.stderr)
    sys.stdout.write(done.stdout)
    return done.returncode


def _show(options: argparse.Namespace) -> int:
    from burnctl.daemon import reach

    client = reach(options)
    with waiting.during("looking"):
        answer = client.pricing_show(options.model, provider=options.provider)
        if not answer["priced"] and (name := _whole_name(client, options.model)):
            answer = client.pricing_show(name, provider=options.provider)
    if options.json:
        return as_json(answer)
    screen = Screen.of(options)
    screen.report({}, _priced(answer, screen) if answer["priced"] else _unpriced(answer, screen))
    return 0


def _whole_name(client: Client, short: str) -> str | None:
    """The full name of a model that reports show as `short`: `opus-4-5` is `claude-opus-4-5-20251101`."""
    names = (row["key"] for row in client.summary(by="model")["rows"] if row["key"])
    return next((name for name in names if short_model(name) == short != name), None)


def _priced(answer: Pricing, screen: Screen) -> str:
    entry = answer["found"]
    columns = [Column("context"), *(Column(title, "right", drop=max(n - 1, 0)) for n, (_, title) in enumerate(_KINDS))]
    tiers: Sequence[Mapping[str, Any]] = answer["tiers"]
    over = [tier["over"] for tier in tiers[1:]]
    sizes = [f"up to {over[0]:,}", *(f"over {tokens:,}" for tokens in over)] if over else ["any size"]
    rows = [[size, *(_rate(tier[kind]) for kind, _ in _KINDS)] for size, tier in zip(sizes, tiers, strict=True)]
    sold_as = clean(f"{entry['provider']} {entry['model']}, {_from(entry)}")
    lines = [f"{_name(answer)} is priced as {sold_as}."]
    if entry["retiredAfter"]:
        lines.append(f"It is not sold any more; its last price, seen on {clean(entry['retiredAfter'])}, still counts.")
    lines += ["", "USD per million tokens:", table(columns, rows, screen, indent=2), ""]
    lines.append(f"Fast mode costs twice that. A web search costs ${answer['searchUsd']:g}.")
    return _paragraphs(answer, lines, screen)


def _unpriced(answer: Pricing, screen: Screen) -> str:
    lines = [f"{_name(answer)} is unpriced: {answer['reason']}. Its requests and tokens are counted, without a cost."]
    if answer["lookedIn"]:
        lines.append(f"Looked for at: {_listed(answer['lookedIn'])}.")
    if answer["soldBy"]:
        lines.append(f"Listed by: {_listed(answer['soldBy'])}; add --provider to see what it costs there.")
    if answer["near"]:
        lines.append(f"Near names, which are other models: {_listed(answer['near'])}.")
    lines.append("Give it a price in models.dev.json in the home, or try: burnctl pricing update")
    return _paragraphs(answer, lines, screen)


def _paragraphs(answer: Pricing, lines: list[str], screen: Screen) -> str:
    name = _name(answer)
    lines += map(clean, caveats(answer))
    text = "\n".join(line if "\n" in line else screen.paragraph(line) for line in lines)
    return screen.paint(name, "bold") + text.removeprefix(name) if text.startswith(name) else text


def _listed(names: list[str]) -> str:
    return ", ".join(map(clean, names))


def _name(answer: Pricing) -> str:
    served = f" (served by {clean(answer['provider'])})" if answer["provider"] else ""
    return clean(answer["model"]) + served


def _from(found: ListedModel) -> str:
    day = f" of {found['asOf']}" if found["asOf"] else ""
    lists = {"yours": "your own list", "fetched": "the fetched list", "shipped": "the list shipped with burnd"}
    return f"by {lists[found['list']]}{day}"


def _rate(usd: float) -> str:
    """`$15`, `$2.50`, `$0.125`."""
    whole, _, rest = f"{usd:.7f}".rstrip("0").partition(".")
    return f"${whole}.{rest:0<2}" if rest else f"${whole}"
