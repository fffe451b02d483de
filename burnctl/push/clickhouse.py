"""ClickHouse as a push target, over its HTTP interface, with nothing but the standard library."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import ssl
import time
from decimal import Decimal
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from burnctl.push.clickhouse_tables import LONGEST_INSERT_S, SCHEMA_TABLE, literal, statements
from burnctl.push.schema import KEYS, OLDEST_WRITER, SCHEMA_VERSION, TABLES, TOKENS
from burnctl.push.target import Refused, Totals, Unreachable, check_schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from burnctl.push.schema import Row
    from burnctl.push.target import Batch, DayModel

_PORTS = {"clickhouse": 8123, "clickhouses": 8443}
_TIMEOUT_S = 300.0
_BODY_BYTES = 8_000_000
_LEVEL = 1  # of gzip: sending is faster than compressing well
_BUSY = (159, 202, 209, 210, 241, 242, 252, 319, 425, 999)  # time, queries, network, memory, read only, parts, Keeper
_CREDENTIALS = (192, 193, 194, 492, 516)
_RIGHTS = (497, 291)
_NO_DATABASE = 81


class ClickHouseTarget:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._version = 0  # of the last row in push_state

    @classmethod
    def at(cls, url: str, user: str | None = None, password: str | None = None) -> ClickHouseTarget:
        return cls(Connection(url, user, password))

    def open(self, machine_id: str) -> str | None:
        ask = self._connection.rows
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS push_schema {SCHEMA_TABLE}")
        ((there, oldest),) = ask("SELECT max(version), max(oldest_writer) FROM push_schema")
        check_schema(self._connection.name, there, oldest)
        if there < SCHEMA_VERSION:
            for statement in statements():
                self._connection.execute(statement)
            self._connection.execute(f"INSERT INTO push_schema VALUES ({SCHEMA_VERSION}, {OLDEST_WRITER})")
        rows = ask(f"SELECT version, cursor FROM push_state FINAL WHERE machine_id = {literal(machine_id)}")
        self._version = int(rows[0][0]) if rows else 0
        return rows[0][1] if rows else None

    def send(self, batch: Batch) -> None:
        """Inserts rows, then the cursor. Sessions come last: they name the causes that count."""
        order = sorted(batch.tables, key=lambda table: table == "sessions")
        for table in order:
            if rows := batch.tables[table]:
                self._connection.insert(table, map(_encoded, rows))
        self._version = max(self._version + 1, time.time_ns() // 1000)
        machine = next((rows[0] for rows in batch.tables.values() if rows), {})
        state = {
            "machine_id": batch.machine_id,
            "machine": machine.get("machine"),
            "user": machine.get("user"),
            "cursor": batch.cursor,
            "seq": batch.seq,
            "schema": SCHEMA_VERSION,
            "at": self._version // 1000,
            "version": self._version,
        }
        self._connection.insert("push_state", [json.dumps(state)])

    def finish_reset(self, machine_id: str, first_seq: int) -> None:
        """Turns get tombstones: deleting them would compute sums by hour again, those of all other machines too."""
        old = f"machine_id = {literal(machine_id)} AND seq < {int(first_seq)}"
        keys = ", ".join(KEYS["turns"])
        self._connection.execute(
            f"INSERT INTO turns ({keys}, seq, deleted, schema) "
            f"SELECT {keys}, {int(first_seq)}, true, {SCHEMA_VERSION} FROM turns FINAL WHERE {old} AND NOT deleted "
            f"SETTINGS max_execution_time = {LONGEST_INSERT_S}"
        )
        for table in TABLES.keys() - {"turns"}:
            self._delete(table, old)

    def erase(self, machine_id: str, session_ids: list[str], before: int) -> None:
        some = ", ".join(map(literal, session_ids))
        self._delete(
            "content", f"machine_id = {literal(machine_id)} AND session_id IN ({some}) AND seq < {int(before)}"
        )

    def _delete(self, table: str, where: str) -> None:
        """Deletes rows, which disappear from disk with the next merge, at most a day later."""
        ((old,),) = self._connection.rows(f"SELECT count() FROM {table} WHERE {where}")
        if int(old):
            self._connection.execute(f"DELETE FROM {table} WHERE {where} SETTINGS lightweight_deletes_sync = 2")

    def totals(self, machine_id: str) -> dict[DayModel, Totals]:
        sums = ", ".join(f"sum({name})" for name in TOKENS)
        rows = self._connection.rows(
            f"SELECT toString(toDate(ts)), coalesce(model, ''), count(), {sums}, sum(cost_usd) FROM turns_now "
            f"WHERE machine_id = {literal(machine_id)} GROUP BY 1, 2"
        )
        return {
            (day, model): Totals(int(turns), tuple(map(int, tokens)), None if cost is None else Decimal(cost))
            for day, model, turns, *tokens, cost in rows
        }

    def close(self) -> None:
        self._connection.close()


def _encoded(row: Row) -> str:
    """A row as JSON; amounts are texts, which lose no digit, and tags are never null."""
    if "tags" in row and row["tags"] is None:
        row = row | {"tags": {}}
    return json.dumps(row, default=str, separators=(",", ":"))


class Connection:
    """A client of the HTTP interface. Verifies certificates by the system, or by `?sslrootcert=FILE`."""

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        parts = urlsplit(url)
        self._is_secure = parts.scheme == "clickhouses"
        self._host, self._port = parts.hostname or "localhost", parts.port or _PORTS[parts.scheme]
        self._database = unquote(parts.path.strip("/")) or "default"
        self._headers = {
            "X-ClickHouse-User": user or unquote(parts.username or "") or "default",
            "X-ClickHouse-Key": password or unquote(parts.password or ""),
            "X-ClickHouse-Database": self._database,
        }
        self._authority = parse_qs(parts.query).get("sslrootcert", [os.environ.get("SSL_CERT_FILE")])[0]
        self._http: http.client.HTTPConnection | None = None
        self.name = f"{parts.scheme}://{self._host}:{self._port}/{self._database}"

    def rows(self, sql: str) -> list[list[Any]]:
        """The rows of a query. Integers of 64 bits are numbers, amounts are texts."""
        text = self._post(sql.encode(), {"default_format": "JSONCompactEachRow"})
        return [json.loads(line) for line in text.splitlines()]

    def execute(self, sql: str) -> None:
        self._post(sql.encode(), {})

    def insert(self, table: str, lines: Iterable[str]) -> None:
        query = {"query": f"INSERT INTO {table} FORMAT JSONEachRow", "max_execution_time": str(LONGEST_INSERT_S)}
        body: list[bytes] = []
        size = 0
        for line in lines:
            body.append(line.encode())
            size += len(body[-1])
            if size >= _BODY_BYTES:
                self._post(b"\n".join(body), query)
                body, size = [], 0
        if body:
            self._post(b"\n".join(body), query)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _post(self, body: bytes, options: dict[str, str]) -> str:
        """Sends a request; reconnects once if the server has closed the connection."""
        headers = self._headers
        if len(body) > 1000:
            body, headers = gzip.compress(body, _LEVEL), headers | {"Content-Encoding": "gzip"}
        path = f"/?{urlencode(options | _SETTINGS)}"
        is_new = self._http is None
        try:
            return self._answer(path, body, headers)
        except Unreachable:
            if is_new or self._http is not None:
                raise
        return self._answer(path, body, headers)

    def _answer(self, path: str, body: bytes, headers: dict[str, str]) -> str:
        try:
            self._http = self._http or self._connect()
            self._http.request("POST", path, body, headers)
            response = self._http.getresponse()
            text = response.read().decode("utf-8", "replace")
        except ssl.SSLCertVerificationError as error:
            self.close()
            what = f"{self.name}: the certificate is not valid: {error.verify_message}"
            raise Refused(what, "name the certificate of your own authority: ?sslrootcert=FILE in the URL") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unreachable(f"{self.name} does not answer: {error}", "is it running?") from None
        if response.status != http.client.OK:
            raise _failure(self.name, response.status, text, response.getheader("X-ClickHouse-Exception-Code"))
        return text

    def _connect(self) -> http.client.HTTPConnection:
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            context = ssl.create_default_context(cafile=self._authority)
        except (OSError, ssl.SSLError) as error:
            raise Refused(f"{self._authority}: {error.strerror or error}", "sslrootcert names a PEM file") from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=context)


# Answers only after the whole query has run, so that a failure is never in the middle of rows.
_SETTINGS = {
    "wait_end_of_query": "1",
    "date_time_input_format": "best_effort",
    "output_format_json_quote_64bit_integers": "0",
    "output_format_json_quote_decimals": "1",
    "joined_subquery_requires_alias": "0",
    "max_query_size": "10000000",  # a report names up to 10,000 sessions
    "enable_shared_storage_snapshot_in_query": "1",  # a report reads some tables several times
}


def _failure(name: str, status: int, text: str, code: str | None) -> Refused | Unreachable:
    number = int(code) if code and code.isdecimal() else _number_in(text)
    sentence = text.strip().partition("\n")[0][:300]
    if status == http.client.UNAUTHORIZED or number in _CREDENTIALS:
        return Refused(f"{name} refuses the user or the password", "see: burnctl help push")
    if status == http.client.FORBIDDEN or number in _RIGHTS:
        return Refused(f"{name}: {sentence}", "grant the user all rights to the database")
    if number in _BUSY or status in (429, 502, 503, 504):
        return Unreachable(f"{name} cannot take rows now: {sentence}", "it is tried again")
    if number == _NO_DATABASE:
        return Refused(f"{name}: there is no such database", "create it there with: CREATE DATABASE NAME")
    return Refused(f"{name}: {sentence}", "see the log of the server")


def _number_in(text: str) -> int:
    first = text.removeprefix("Code: ").partition(".")[0]
    return int(first) if text.startswith("Code: ") and first.isdecimal() else 0
