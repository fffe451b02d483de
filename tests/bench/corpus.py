"""Makes trees of Claude Code transcripts of any size, always the same bytes, with their exact totals. They contain what
makes naive counting wrong: a message on several lines whose usage grows, forks that repeat lines of another session,
messages without a request id, subagents in separate files, answers invented by the client, results repeated within a
line, and a last line cut short."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from burnd.records.times import to_iso

START_MS = 1_780_000_000_000
KINDS = ("input", "output", "cacheCreate5m", "cacheCreate1h", "cacheRead")
# Dollars for a million tokens, in the order of KINDS: as the maker lists them, not as our own table has them.
RATES = {
    "claude-sonnet-4-5-20250929": ("3", "15", "3.75", "6", "0.3"),
    "claude-opus-4-5-20251101": ("5", "25", "6.25", "10", "0.5"),
    "claude-haiku-4-5-20251001": ("1", "5", "1.25", "2", "0.1"),
}
_LARGEST_CONTEXT = 150_000  # beyond 200,000 other rates hold
_SYLLABLES = ["ba", "de", "fi", "go", "lu", "mar", "ten", "sol", "pri", "ket", "dra", "von", "hel", "qui", "zan", "por"]
_COMMON = ("the", "of", "to", "and", "in", "is", "it", "for", "on", "with", "as", "file", "line", "test", "run")
_TOOLS = ("Read", "Bash", "Edit", "Grep", "Write", "TodoWrite")
_encode = msgspec.json.Encoder().encode


class Truth:
    """Exact totals of a tree: a turn is one billed message, however many copies there are."""

    def __init__(self) -> None:
        self.turns = self.files = self.bytes = 0
        self.tokens: Counter[str] = Counter()
        self.cost = Decimal(0)
        self.needles: dict[str, int] = {}

    def bill(self, model: str, usage: tuple[int, ...]) -> None:
        self.turns += 1
        self.tokens.update(dict(zip(KINDS, usage, strict=True)))
        self.cost += sum(
            (Decimal(rate) * count / 1_000_000 for rate, count in zip(RATES[model], usage, strict=True)), Decimal(0)
        )

    def differs(self, totals: dict[str, Any]) -> str:
        """Differences of a summary's totals from the truth; empty when exact."""
        usage, wrong = totals["usage"], []
        if totals["turns"] != self.turns:
            wrong.append(f"{totals['turns']:,} turns instead of {self.turns:,}")
        wrong += [
            f"{usage[kind]:,} {kind} instead of {self.tokens[kind]:,}"
            for kind in KINDS
            if usage[kind] != self.tokens[kind]
        ]
        if abs(Decimal(str(totals["costUsd"])) - self.cost) > Decimal("0.000001"):
            wrong.append(f"${totals['costUsd']} instead of ${self.cost}")
        return ", ".join(wrong)


class Words:
    """Text as agents read and write it: common words, names made of syllables, numbers; a few names everywhere."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(f"words {seed}")
        plain = ["".join(rng.choices(_SYLLABLES, k=rng.choice((1, 2, 2, 3)))) for _ in range(4000)]
        names = [_named(rng) for _ in range(12_000)]
        self._vocabulary = [*_COMMON, *plain, *names]
        weights = [1 / (rank + 3) for rank in range(len(self._vocabulary))]
        self._cumulative: list[float] = []
        total = 0.0
        for weight in weights:
            total += weight
            self._cumulative.append(total)
        self.names = names

    def text(self, rng: random.Random, size: int) -> str:
        words = rng.choices(self._vocabulary, cum_weights=self._cumulative, k=size // 7 + 1)
        lines = "\n".join([" ".join(words[at : at + 11]) for at in range(0, len(words), 11)])
        return lines[: size - 11] + f" {rng.getrandbits(40):x}" if size > 30 else lines[:size]


def _named(rng: random.Random) -> str:
    parts = ["".join(rng.choices(_SYLLABLES, k=2)) for _ in range(rng.choice((2, 2, 3)))]
    if rng.random() < 0.5:
        return "_".join(parts)
    return parts[0] + "".join(part.capitalize() for part in parts[1:])


class Log:
    """One transcript while it is written: its lines, and for each the message it is of."""

    def __init__(self, tree: Tree, rng: random.Random, cwd: str, session: str, at_ms: int, agent: str = "") -> None:
        self.tree, self.rng, self.cwd, self.session, self.ms, self.agent = tree, rng, cwd, session, at_ms, agent
        self.lines: list[bytes] = []
        self.last: str | None = None
        self.model = rng.choice(list(RATES))
        self.context, self.cached = rng.randrange(12_000, 24_000), 0
        self.files = [f"{cwd}/src/{rng.choice(tree.words.names)}.py" for _ in range(12)]

    def work(self, size: int) -> None:
        """Prompts, answers, calls and results until the log is so long."""
        done = 0
        while done < size:
            before = len(self.lines)
            self._prompt()
            for _ in range(self.rng.randrange(2, 9)):
                self._answer(self.rng.choice((1, 1, 2)))
            self._answer(0)
            done += sum(map(len, self.lines[before:]))

    def _line(self, kind: str, **more: Any) -> None:
        self.ms += self.rng.randrange(200, 9000)
        uuid = f"{self.rng.getrandbits(32):08x}-0000-4000-8000-{self.rng.getrandbits(48):012x}"
        line = {
            "parentUuid": self.last,
            "isSidechain": bool(self.agent),
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": "2.0.55",
            "gitBranch": "main",
            **({"agentId": self.agent} if self.agent else {}),
            "type": kind,
            "uuid": uuid,
            "timestamp": to_iso(self.ms),
            **more,
        }
        self.lines.append(_encode(line))
        self.last = uuid

    def _prompt(self) -> None:
        text = self.tree.words.text(self.rng, self.rng.randrange(40, 600))
        self._line("user", message={"role": "user", "content": self.tree.with_needle(self.rng, text)})
        self.context += len(text) // 4

    def _answer(self, calls: int) -> None:
        rng, words = self.rng, self.tree.words
        if rng.random() < 0.003:
            self._made_up()
        blocks: list[dict[str, Any]] = []
        if rng.random() < 0.5:
            thought = words.text(rng, rng.randrange(60, 1500))
            blocks.append({"type": "thinking", "thinking": thought, "signature": f"{rng.getrandbits(1200):x}"})
        if not calls or rng.random() < 0.4:
            blocks.append({"type": "text", "text": words.text(rng, rng.randrange(40, 1600))})
        made = [self._call() for _ in range(calls)]
        blocks += made
        self._say(blocks, calls)
        for call in made:
            self._result(call)

    def _say(self, blocks: list[dict[str, Any]], calls: int) -> None:
        """One message, a line per block; usage on all but the last may be the partial one while streaming."""
        rng = self.rng
        if rng.random() < 0.04 or self.context > _LARGEST_CONTEXT:
            self.context, self.cached = min(self.context, 30_000), 0
        output = max(4, sum(len(_encode(block)) for block in blocks) // 4)
        written = self.context - self.cached
        hour = rng.random() < 0.3
        usage = (rng.randrange(2, 12), output, 0 if hour else written, written if hour else 0, self.cached)
        growing = rng.random() < 0.5
        message_id, request = f"msg_01{rng.getrandbits(130):x}", f"req_011{rng.getrandbits(100):x}"
        request_id = {} if rng.random() < 0.05 else {"requestId": request}
        for n, block in enumerate(blocks):
            is_last = n == len(blocks) - 1
            said = self._usage(usage, output if is_last or not growing else 1 + n)
            stop = ("tool_use" if calls else "end_turn") if is_last else None
            message = {
                "model": self.model,
                "id": message_id,
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": stop,
                "usage": said,
            }
            self._line("assistant", message=message, **request_id)
        self.tree.truth.bill(self.model, usage)
        self.cached = self.context
        self.context += output

    def _usage(self, usage: tuple[int, ...], output: int) -> dict[str, Any]:
        plain, _, five, hour, read = usage
        return {
            "input_tokens": plain,
            "cache_creation_input_tokens": five + hour,
            "cache_read_input_tokens": read,
            "cache_creation": {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour},
            "output_tokens": output,
            "service_tier": "standard",
        }

    def _made_up(self) -> None:
        nothing = {"input_tokens": 0, "output_tokens": 0}
        content = [{"type": "text", "text": "API Error: 529 overloaded_error"}]
        message = {"id": f"{self.rng.getrandbits(64):x}", "model": "<synthetic>", "content": content, "usage": nothing}
        self._line("assistant", message={"role": "assistant", **message}, isApiErrorMessage=True)

    def _call(self) -> dict[str, Any]:
        rng, words = self.rng, self.tree.words
        name, path = rng.choice(_TOOLS), rng.choice(self.files)
        given: dict[str, Any] = {"file_path": path}
        if name == "Bash":
            verb = rng.choice(("git status", "npm test", "pytest -q", "ls -la", "cargo build", "grep -rn"))
            given = {"command": f"{verb} {rng.choice(words.names)}", "description": words.text(rng, 40)}
        elif name == "Edit":
            given |= {"old_string": words.text(rng, 300), "new_string": words.text(rng, 400)}
        elif name == "Write":
            given |= {"content": words.text(rng, 1500)}
        elif name != "Read":
            given = {"pattern": rng.choice(words.names), "path": self.cwd}
        return {"type": "tool_use", "id": f"toolu_01{rng.getrandbits(130):x}", "name": name, "input": given}

    def _result(self, call: dict[str, Any]) -> None:
        rng = self.rng
        size = min(50_000, int(rng.lognormvariate(7.6, 1.1))) if call["name"] in ("Read", "Bash", "Grep") else 200
        body = self.tree.with_needle(rng, self.tree.words.text(rng, size))
        block = {"tool_use_id": call["id"], "type": "tool_result", "content": body}
        if rng.random() < 0.05:
            block["is_error"] = True
        # The client writes the same text twice: as the model gets it, and as its own screen shows it.
        self._line("user", message={"role": "user", "content": [block]}, toolUseResult={"stdout": body, "stderr": ""})
        self.context += len(body) // 4


class Tree:
    """A folder for CLAUDE_CONFIG_DIR, and its truth."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.projects = folder / "projects"
        self.truth = Truth()
        self.words = Words(seed)
        self._rng = random.Random(f"tree {seed}")
        self._needles = 0

    def with_needle(self, rng: random.Random, text: str) -> str:
        """The text, sometimes with a word that occurs nowhere else."""
        if rng.random() > 0.01:
            return text
        self._needles += 1
        needle = f"zqneedle{self._needles:07d}"
        self.truth.needles[needle] = 1
        return f"{text} {needle}"

    def grow(self, size: int) -> Truth:
        """Sessions until there are so many bytes; one in eight has a subagent, one in twelve is a fork of the last."""
        number, last = 0, None
        while self.truth.bytes < size:
            rng = random.Random(f"{self._rng.random()} {number}")
            cwd = f"/home/dev/work/project-{number % 12}"
            session = f"{rng.getrandbits(32):08x}-0000-4000-8000-{number:012x}"
            log = Log(self, rng, cwd, session, START_MS + number * 3_600_000)
            if last is not None and number % 12 == 5:
                log.lines += [line.replace(last.session.encode(), session.encode()) for line in last.lines[:40]]
                log.cwd, log.ms = last.cwd, max(last.ms, log.ms)
            log.work(int(min(size / 4, rng.lognormvariate(13.6, 0.8))))
            self._write(log, self._place(log) / f"{session}.jsonl", torn=number % 9 == 3)
            if number % 8 == 2:
                self._write_agent(log, number)
            number, last = number + 1, log
        return self.truth

    def _write_agent(self, log: Log, number: int) -> None:
        agent = Log(self, log.rng, log.cwd, log.session, log.ms, agent=f"a{number:015x}")
        agent.work(60_000)
        self._write(agent, self._place(log) / log.session / "subagents" / f"agent-{agent.agent}.jsonl", torn=False)

    def _place(self, log: Log) -> Path:
        return self.projects / log.cwd.replace("/", "-")

    def _write(self, log: Log, path: Path, *, torn: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = b"\n".join(log.lines) + b"\n" + (b'{"parentUuid":"' if torn else b"")
        path.write_bytes(data)
        os.utime(path, (log.ms / 1000, log.ms / 1000))
        self.truth.bytes += len(data)
        self.truth.files += 1


def small_logs(folder: Path, count: int) -> Iterator[Path]:
    """So many transcripts of one turn each."""
    tree = Tree(folder)
    for number in range(count):
        rng = random.Random(number)
        log = Log(tree, rng, f"/home/dev/work/p{number % 40}", f"{number:08x}-0000-4000-8000-000000000001", START_MS)
        log._prompt()
        log._answer(0)
        path = tree._place(log) / f"{log.session}.jsonl"
        tree._write(log, path, torn=False)
        yield path


def long_log(folder: Path, turns: int) -> str:
    """The id of a session with this many turns and no siblings."""
    tree = Tree(folder)
    log = Log(tree, random.Random("long"), "/home/dev/work/long", "77777777-0000-4000-8000-000000000007", START_MS)
    while tree.truth.turns < turns:
        if tree.truth.turns % 7 == 0:
            log._prompt()
        log._answer(log.rng.choice((1, 1, 2)))
    tree._write(log, tree._place(log) / f"{log.session}.jsonl", torn=False)
    return log.session
