"""Downloads the newest price list into the home: `python -m burnd.pricing.update`. Only this accesses the network."""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from burnd.errors import BurndError
from burnd.ledger.files import prepare_home, replace_file
from burnd.paths import find_home
from burnd.pricing.cost import Price, usd_per_million
from burnd.pricing.pricefile import PriceFileError, is_own, read_listing, read_user_lists
from burnd.pricing.table import PriceTable

ADDRESS = "https://models.dev/api.json"
_TIMEOUT_S = 30.0
_DEADLINE_S = 120.0
_MOST_BYTES = 64 << 20
_MOST_LINES = 20
_Key = tuple[str, str]
# Strings up to their terminator, CSI sequences, and short ones.
_ESCAPES = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?"
)


class RawList(NamedTuple):
    """Unchanged entries by (provider, model), why others were left out, and remarks."""

    entries: dict[_Key, dict[str, Any]]
    left_out: list[str]
    remarks: dict[str, Any]

    @classmethod
    def read(cls, text: bytes, name: str) -> RawList:
        """Leaves out single bad entries. Raises PriceFileError."""
        try:
            providers = json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError) as error:
            raise PriceFileError(name, f"is not JSON: {error}") from error
        if not isinstance(providers, dict):
            raise PriceFileError(name, "must be an object of providers")
        result = cls({}, [], {})
        for provider, section in providers.items():
            if provider.startswith(("_", "$")):
                result.remarks[provider] = section
            else:
                result._add(provider, section, name)
        if not result.entries:
            raise PriceFileError(name, result.left_out[0] if result.left_out else "has no model with a price")
        return result

    def _add(self, provider: str, section: Any, name: str) -> None:
        models = section.get("models") if isinstance(section, dict) else None
        if not isinstance(models, dict):
            raise PriceFileError(name, 'has no "models"', model=provider)
        for model, entry in models.items():
            try:
                priced = read_listing(_compact({provider: {"models": {model: entry}}}), name)
            except PriceFileError as error:
                self.left_out.append(f"{error.model}: {error.key}: {error.reason}" if error.key else str(error.reason))
            else:
                if priced:
                    self.entries[provider, model] = entry


def merged(new: RawList, old: RawList, day: str) -> RawList:
    """Keeps the user's own entries, and retires those that are no longer listed."""
    own = {key: entry for key, entry in old.entries.items() if is_own(entry)}
    own_names, new_names = _names(own), _names(new.entries)
    entries = {}
    for key, entry in new.entries.items():
        if _lower(key) not in own_names:  # price and dates are some 5 % of a list
            retired = {"retired_after": entry["retired_after"]} if entry.get("retired_after") else {}
            entries[key] = {"cost": entry["cost"], "fetched": day, **retired}
    for key, entry in old.entries.items():
        if key not in own and _lower(key) not in own_names | new_names:
            last_seen = entry.get("retired_after") or entry.get("fetched") or day
            entries[key] = {**entry, "retired_after": last_seen}
    return RawList(entries | own, [], old.remarks)


def _names(entries: Iterable[_Key]) -> set[_Key]:
    return {_lower(key) for key in entries}


def _lower(key: _Key) -> _Key:
    return key[0].lower(), key[1].lower()


def rendered(models: RawList) -> bytes:
    """One line per model in order, so that a changed price is one line of a diff."""
    providers: dict[str, list[str]] = {}
    for (provider, model), entry in sorted(models.entries.items()):
        line = f"{json.dumps(model)}:{_compact(entry)}"
        providers.setdefault(provider, []).append(line)
    remarks = [f"{json.dumps(name)}:{_compact(remark)}" for name, remark in models.remarks.items()]
    groups = [f'{json.dumps(name)}:{{"models":{{\n' + ",\n".join(lines) + "\n}}" for name, lines in providers.items()]
    return ("{\n" + ",\n".join([*remarks, *groups]) + "\n}\n").encode()


def _compact(value: Any) -> str:
    """JSON with unchanged decimals."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_compact(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value)


class PriceChanges(NamedTuple):
    new: list[str]
    changed: list[str]
    gone: list[str]
    own: list[str]

    def lines(self) -> list[str]:
        return [
            f"{len(self.new)} new, {len(self.changed)} with another price, {len(self.gone)} not listed any more",
            *_first("other prices:", self.changed),
            *_first("not listed any more, kept at their last price:", self.gone),
            *_first("your own prices stay as they are:", self.own),
        ]


def _first(title: str, lines: list[str]) -> list[str]:
    first = [title, *(f"  {line}" for line in lines[:_MOST_LINES])] if lines else []
    return [*first, f"  and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else first


def changes(before: PriceTable, new: RawList, old: RawList, after: PriceTable) -> PriceChanges:
    """Compares the prices in use, the shipped list included."""
    prices = [
        (provider, model, before.find(model, provider), after.find(model, provider)) for provider, model in new.entries
    ]
    listed_before = [
        (f"{p}/{m}", one, other) for p, m, one, other in prices if _is_listed(one, p, m) and other is not None
    ]
    own = [f"{provider}/{model}" for (provider, model), entry in old.entries.items() if is_own(entry)]
    new_names = _names(new.entries)
    gone = [
        f"{p}/{m}" for (p, m), entry in old.entries.items() if not is_own(entry) and _lower((p, m)) not in new_names
    ]
    return PriceChanges(
        new=[f"{p}/{m}" for p, m, one, other in prices if not _is_listed(one, p, m) and _is_listed(other, p, m)],
        changed=[
            f"{name}: {_difference(one, other)}"
            for name, one, other in listed_before
            if one and one.standard != other.standard
        ],
        gone=gone,
        own=own,
    )


def _is_listed(price: Price | None, provider: str, model: str) -> bool:
    return price is not None and (price.provider, price.model.lower()) == (provider.lower(), model.lower())


def _difference(one: Price, other: Price) -> str:
    kinds = ("input", "output", "reasoning", "cache read", "5-minute write", "1-hour write")
    rates = zip(kinds, one.rates(), other.rates(), strict=True)
    differences = [f"{kind} {_dollars(was)} -> {_dollars(now)}" for kind, was, now in rates if was != now]
    return ", ".join(differences) or "other tiers"


def _dollars(rate: int) -> str:
    return f"${usd_per_million(rate).normalize():f}"


def fetch(address: str = ADDRESS) -> bytes:
    """Raises BurndError.

    Reads in a thread with a deadline: socket timeouts never fire if the server sends a byte now and then.
    """
    results: list[bytes | BurndError] = []

    def read() -> None:
        try:
            results.append(_download(address))
        except BurndError as error:
            results.append(error)

    reader = threading.Thread(target=read, name="price list", daemon=True)
    reader.start()
    reader.join(_DEADLINE_S)
    answer = results[0] if results else _unreachable(address, f"did not send the list within {_DEADLINE_S:.0f} seconds")
    if isinstance(answer, BurndError):
        raise answer
    return answer


def _download(address: str) -> bytes:
    request = urllib.request.Request(address, headers={"User-Agent": "burnctl", "Accept": "application/json"})  # noqa: S310 - the address is ours
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            text: bytes = answer.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise _unreachable(address, f"answered {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, OSError) as error:
        raise _unreachable(address, f"cannot be reached: {getattr(error, 'reason', None) or error}") from error
    if len(text) > _MOST_BYTES:
        raise _unreachable(address, "sent more than a price list can have")
    return text


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise BurndError(f"cannot be read: {error.strerror}", file) from error


def _unreachable(address: str, what: str) -> BurndError:
    remedy = "nothing was changed; try again, or download it elsewhere and use: burnctl pricing update --from FILE"
    return BurndError(what, address, remedy)


def update(user_file: Path, text: bytes, name: str, day: str) -> list[str]:
    """Returns lines to print. Changes nothing if it raises PriceFileError."""
    new = RawList.read(text, name)
    before = PriceTable.load(str(user_file))
    old = RawList.read(user_file.read_bytes(), str(user_file)) if user_file.exists() else RawList({}, [], {})
    data = rendered(merged(new, old, day))
    after = before.under(read_user_lists(data, name))
    prepare_home(user_file.parent)
    replace_file(user_file, data)
    left_out = _first("left out, since the list has no usable price:", new.left_out)
    count = "1 price" if len(new.entries) == 1 else f"{len(new.entries):,} prices"
    return [f"{count} in {user_file}", *changes(before, new, old, after).lines(), *left_out]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="burnctl pricing update")
    parser.add_argument("--from", dest="file", metavar="FILE", help=f"a list in the shape of {ADDRESS}")
    options = parser.parse_args(arguments)
    try:
        text = fetch() if options.file is None else _read(options.file)
        for line in update(find_home().prices, text, options.file or ADDRESS, time.strftime("%Y-%m-%d")):
            print(_printable(line))  # noqa: T201 - a command
    except (BurndError, ValueError, OSError) as error:
        print(f"burnctl: {_printable(str(error))}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _printable(text: str) -> str:
    """Without escape sequences and control characters: the names come from the network."""
    return "".join(char for char in re.sub(_ESCAPES, "", text) if char.isprintable())


if __name__ == "__main__":
    sys.exit(main())
