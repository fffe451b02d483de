"""A Prometheus endpoint on a loopback address: usage and cost by model and project, state of the sources."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import anyio
import anyio.abc
import structlog

from burnd import __version__
from burnd.contract.reports import SummaryParams
from burnd.errors import IndexDamaged, NotNow, error_types
from burnd.index.query_pool import TookTooLong
from burnd.queries.summary import summary
from burnd.server.service import Service
from burnd.settings.keys import Address

log = structlog.get_logger()
MOST_SERIES: Final = 1000  # the most expensive first
_AT_ONCE = 4
_REQUEST_S = 5.0
_ANSWER_S = 30.0
_RETRY_S = 30.0
_REQUEST_BYTES = 8192
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_BY = SummaryParams(by="model,project", limit=MOST_SERIES)
# OpenTelemetry's GenAI conventions, with underscores for dots.
_USAGE = "gen_ai_client_inference_usage"
# columns of `export`, and fields of an answer
_KINDS = {
    "input": "input",
    "output": "output",
    "reasoning": "reasoning",
    "cache_read": "cacheRead",
    "cache_create_5m": "cacheCreate5m",
    "cache_create_1h": "cacheCreate1h",
}
# Name, help, and the fields of usage that are added.
_COUNTERS = (
    (f"{_USAGE}_input_tokens_total", "Input tokens, cached ones included.", ("input", "cacheRead", "cacheCreate5m",
      "cacheCreate1h")),
    (f"{_USAGE}_output_tokens_total", "Output tokens, reasoning included.", ("output", "reasoning")),
    (f"{_USAGE}_cache_read_input_tokens_total", "Input tokens read from the cache.", ("cacheRead",)),
    (f"{_USAGE}_cache_write_input_tokens_total", "Input tokens written to the cache.", ("cacheCreate5m",
      "cacheCreate1h")),
    (f"{_USAGE}_reasoning_output_tokens_total", "Output tokens of reasoning.", ("reasoning",)),
)  # fmt: skip
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Labels = Mapping[str, str]
Series = tuple[str, str]  # model and project


class Counters:
    """Usage since the first scrape. Counters only grow, while sums shrink if a turn is removed.

    Old logs do not count: they would look like usage of this minute.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[str, Series], tuple[int, int]] = {}  # the counter, and the sum at which it is 0
        self._has_started = False

    def update(self, rows: Mapping[Series, Mapping[str, int]], *, is_backfill: bool, is_cut: bool = False) -> None:
        """If rows were omitted, a new one starts at 0: it may be old."""
        for series, usage in rows.items():
            for name, _, fields in _COUNTERS:
                total = sum(usage[field] for field in fields)
                is_new = (name, series) not in self._values
                value, zero = self._values.get((name, series), (0, 0))
                ignores = is_backfill or not self._has_started or (is_cut and is_new)
                value, zero = (value, total - value) if ignores else (max(value, total - zero), zero)
                self._values[name, series] = value, zero
        self._has_started = True

    def of(self, name: str) -> Iterator[tuple[Series, int]]:
        return ((series, value) for (counter, series), (value, _) in self._values.items() if counter == name)


class Metrics:
    """Every user of the machine can read it."""

    def __init__(self, service: Service, address: Address) -> None:
        self._service, self._address = service, address
        self._counters = Counters()
        self._scraping = anyio.Lock()
        self._clients = 0

    async def run(self) -> None:
        """Tries again while another program uses the port."""
        where = f"metrics cannot be served at {self._address.host}, port {self._address.port}"
        notice = ""
        while True:
            try:
                listener = await anyio.create_tcp_listener(local_host=self._address.host, local_port=self._address.port)
            except OSError as error:
                reason = os.strerror(error.errno or 0)
                log.warning("metrics.waiting", reason=reason)
                self._service.notices.pop(notice, None)
                notice = f"{where}: {reason}"
                self._service.notices[notice] = "set metrics.listen to a free port, or to nothing"
                await anyio.sleep(_RETRY_S)
                continue
            self._service.notices.pop(notice, None)
            async with listener:
                await listener.serve(self._serve)

    async def _serve(self, client: anyio.abc.SocketStream) -> None:
        async with client:
            if self._clients >= _AT_ONCE:
                return
            self._clients += 1
            try:
                await self._answer(client)
            except (anyio.EndOfStream, anyio.BrokenResourceError, TimeoutError):
                pass  # disconnected, or sent no request
            except Exception as error:  # noqa: BLE001 - a client must never end the daemon
                log.warning("metrics.failed", error=error_types(error))
            finally:
                self._clients -= 1

    async def _answer(self, client: anyio.abc.SocketStream) -> None:
        head = b""
        with anyio.fail_after(_REQUEST_S):
            while b"\r\n\r\n" not in head:
                if len(head) > _REQUEST_BYTES:
                    return
                head += await client.receive()
        status, body = await self._respond(head.decode("latin-1"))
        head_of_answer = (
            f"HTTP/1.1 {status}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        with anyio.fail_after(_ANSWER_S):
            await client.send(head_of_answer.encode() + body)

    async def _respond(self, head: str) -> tuple[str, bytes]:
        method, _, rest = head.partition(" ")
        if not _is_local(head):  # a web page whose name points to this machine
            return "403 Forbidden", b"the host must be a loopback address\n"
        if method != "GET":
            return "405 Method Not Allowed", b"only GET\n"
        if rest.partition(" ")[0].partition("?")[0] != "/metrics":
            return "404 Not Found", b"see /metrics\n"
        try:
            return "200 OK", (await self.text()).encode(errors="replace")
        except (TookTooLong, IndexDamaged, NotNow):
            return "503 Service Unavailable", b"the index is busy\n"

    async def text(self) -> str:
        async with self._scraping:
            backfill = self._service.backfill()
            answer = await self._service.ask(lambda view: summary(view, _BY), totals=True)
            rows = {(row["keys"]["model"] or "", row["keys"]["project"] or ""): row for row in answer["rows"]}
            usage = {series: row["usage"] for series, row in rows.items()}
            self._counters.update(usage, is_backfill=not backfill.done, is_cut=answer["moreRows"] > 0)
            return "".join((*self._of_usage(rows, answer["moreRows"]), *self._of_daemon(is_done=backfill.done)))

    def _of_usage(self, rows: Mapping[Series, Mapping[str, Any]], more: int) -> Iterator[str]:
        for name, about, _ in _COUNTERS:
            yield _metric(
                name,
                "counter",
                f"{about} Recorded since burnd started to count.",
                ((_labels(series), value) for series, value in self._counters.of(name)),
            )
        yield _metric(
            "burnd_cost_usd",
            "gauge",
            "Cost of everything recorded, at API prices of now.",
            ((_labels(series), row["costUsd"]) for series, row in rows.items() if row["costUsd"] is not None),
        )
        yield _metric(
            "burnd_tokens",
            "gauge",
            "Tokens of everything recorded, by kind; none is in two kinds.",
            (
                ({**_labels(series), "kind": kind}, row["usage"][field])
                for series, row in rows.items()
                for kind, field in _KINDS.items()
            ),
        )
        for name, field, about in (
            ("burnd_requests", "turns", "Requests recorded."),
            ("burnd_open_requests", "openTurns", "Requests whose response may still grow."),
        ):
            yield _metric(name, "gauge", about, ((_labels(series), row[field]) for series, row in rows.items()))
        yield _metric("burnd_omitted_series", "gauge", f"Series beyond the first {MOST_SERIES:,}.", [({}, more)])

    def _of_daemon(self, *, is_done: bool) -> Iterator[str]:
        sources = [(source.name, source.status()) for source in self._service.sources.values()]
        yield _metric("burnd_info", "gauge", "The running version.", [({"version": __version__}, 1)])
        yield _metric("burnd_backfill_done", "gauge", "1 if all old logs are read.", [({}, int(is_done))])
        yield _metric(
            "burnd_source_lag_seconds",
            "gauge",
            "Time that the oldest unread line has waited.",
            (({"source": name}, status.lag) for name, status in sources),
        )
        yield _metric(
            "burnd_source_pending_files",
            "gauge",
            "Logs with unread lines.",
            (({"source": name}, status.pending) for name, status in sources),
        )


def _labels(series: Series) -> Labels:
    return {"gen_ai_response_model": series[0], "project": series[1]}


def _metric(name: str, kind: str, about: str, samples: Iterable[tuple[Labels, float]]) -> str:
    lines = [f"# HELP {name} {about}\n# TYPE {name} {kind}\n"]
    for labels, value in samples:
        pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
        lines.append(f"{name}{{{pairs}}} {value!r}\n" if pairs else f"{name} {value!r}\n")
    return "".join(lines)


def _is_local(head: str) -> bool:
    hosts = [line.partition(":")[2].strip() for line in head.split("\r\n")[1:] if line.lower().startswith("host:")]
    name = hosts[0] if len(hosts) == 1 else ""
    host = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
