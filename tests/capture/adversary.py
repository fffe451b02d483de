"""Makes random trees of transcripts with every known kind of line, and their truth."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnd.records import Usage
from tests.harness.claude_code.transcript import Transcript, call, image, text, thinking
from tests.harness.collect import line as line_of

VERSIONS = ("1.0.100", "2.0.60", "2.1.90", "2.1.97", "2.1.250", "2.1.325")
MODELS = ("claude-opus-5-5", "claude-haiku-4-5", "nobody-knows-1", "claude-sonnet-4-5[1m]")
_NOISE = (
    b"",
    b"\0\0\0",
    b"[1,2]",
    b'{"type":"assistant","message":{"id":"torn","usage":{"input_tok',
    b'{"type":"progress","data":{"message":{"message":{"id":"p","usage":{"input_tokens":999}}}}}',
    b'{"type":"to-come","usage":{"input_tokens":777}}',
    b'{"messageId":"x","type":"file-history-snapshot"}',
)


class World:
    """Logs by path below `projects`, the bill of every message with its owner, and the texts by session."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.logs: dict[str, Transcript] = {}
        self.bills: dict[str, Usage] = {}
        self.owners: dict[str, tuple[str, str]] = {}
        self.words: dict[str, list[str]] = {}
        self._hour = self._count = 0
        for _ in range(self.rng.randint(1, 3)):
            self._session()
        for path, log in list(self.logs.items()):
            repeat = self.rng.choice((self._fork, self._resume, self._replay, None))
            if repeat is not None and "/subagents/" not in path and "/agent-" not in path:
                repeat(path, log)

    def write(self, projects: Path) -> None:
        for name, log in self.logs.items():
            path = projects / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(line + b"\n" for line in log.lines))

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self.rng.randrange(16**6):06x}{self._count}"

    def _word(self, session: str) -> str:
        word = self._name("w")
        self.words.setdefault(session, []).append(word)
        return word + self.rng.choice(["", " größe", " x" * 700])

    def _log(self, path: str, session: str, **envelope: Any) -> Transcript:
        self._hour += 1
        log = Transcript(self.rng.choice(VERSIONS), session, self._name("u") + "-", **envelope)
        log.begin(self._hour * 600)
        self.logs[path] = log
        return log

    def _session(self) -> None:
        session = self._name("s")
        log = self._log(f"-p/{session}.jsonl", session)
        for _ in range(self.rng.randint(1, 4)):
            self._exchange(log, session, "main")

    def _exchange(self, log: Transcript, session: str, rail: str, **mark: Any) -> None:
        """A prompt and its answers, with something odd around it."""
        before = log.last
        log.prompt(self._word(session), **mark)
        self._twice(log, 0.1)
        for _ in range(self.rng.randint(1, 3)):
            self._answer(log, session, rail, **mark)
        if rail == "main" and not mark:
            odd = self.rng.choice((self._agent, self._legacy_agent, self._sidechain, self._compaction, None, None))
            if odd is not None:
                odd(log, session)
            if self.rng.random() < 0.2:
                log.prompt(self._word(session), parent=before)
                self._answer(log, session, rail)

    def _answer(self, log: Transcript, session: str, rail: str, **mark: Any) -> None:
        rng = self.rng
        message, calls = self._name("msg_"), [self._name("toolu_") for _ in range(rng.randint(0, 2))]
        kinds = rng.choice([(text,), (thinking, text), (thinking,)])
        blocks = [kind(self._word(session)) for kind in kinds]
        blocks += [call(one, rng.choice(["Read", "Bash", "mcp__s__t"]), command=self._word(session)) for one in calls]
        usage = self._usage(message)
        self.owners |= {one: (session, rail) for one in self.bills if one.split(":")[0] == message}
        fields: dict[str, Any] = {"model": rng.choice(MODELS), "usage": usage, "stop": "tool_use", **mark}
        if rng.random() < 0.2:
            fields["requestId"] = None
        for block in blocks[:-1]:
            early = {**usage, "output_tokens": 1, "iterations": None, "output_tokens_details": None}
            log.says(message, block, **{**fields, "usage": rng.choice([usage, early]), "stop": None, "done": False})
            self._twice(log, 0.05)
        log.says(message, blocks[-1], **fields)
        self._noise(log)
        for one in calls:
            words = self._word(session)
            log.result(one, rng.choice([words, [text(words), image()]]), **mark)
            self._twice(log, 0.1)

    def _usage(self, message: str) -> dict[str, Any]:
        rng = self.rng
        five, hour, thought, output = rng.randrange(900), rng.choice([0, 800]), rng.choice([0, 3]), rng.randint(10, 999)
        counts = {"input_tokens": rng.randrange(999), "cache_read_input_tokens": rng.choice([0, 190_000])}
        self.bills[message] = Usage(
            input=counts["input_tokens"],
            output=output - thought,
            reasoning=thought,
            cache_read=counts["cache_read_input_tokens"],
            cache_create_5m=five,
            cache_create_1h=hour,
        )
        beside = [{"type": kind, "input_tokens": 70, "output_tokens": 7} for kind in ("message", "compaction")]
        iterations = beside if rng.random() < 0.2 else None
        if iterations:
            self.bills[f"{message}:iter:1"] = Usage(input=70, output=7)
        return counts | {
            "output_tokens": output,
            "cache_creation_input_tokens": five + hour,
            "cache_creation": {"ephemeral_1h_input_tokens": hour},
            "output_tokens_details": {"thinking_tokens": thought},
            "iterations": iterations,
        }

    def _twice(self, log: Transcript, likely: float) -> None:
        """The last line once more: as it is, or under another uuid, as old clients wrote it."""
        if self.rng.random() < likely:
            again = json.loads(log.lines[-1])
            log.bare(**again | self.rng.choice([{}, {"uuid": self._name("again")}]))

    def _noise(self, log: Transcript) -> None:
        if self.rng.random() < 0.2:
            log.lines.append(self.rng.choice(_NOISE))
        if self.rng.random() < 0.1:
            log.add("system", subtype="api_error", error={"status": 529})

    def _compaction(self, log: Transcript, session: str) -> None:
        log.add("system", parent=None, logicalParentUuid=log.last, subtype="compact_boundary", compactMetadata={})
        log.prompt(self._word(session), isCompactSummary=True)
        self._answer(log, session, "main")

    def _agent(self, log: Transcript, session: str) -> None:
        name = self._name("a")
        self._delegate(log, session, name, f"-p/{session}/subagents/agent-{name}.jsonl")

    def _legacy_agent(self, log: Transcript, session: str) -> None:
        name = self._name("")
        self._delegate(log, session, name, f"-p/agent-{name}.jsonl")

    def _delegate(self, log: Transcript, session: str, name: str, path: str) -> None:
        self._answer(log, session, "main")
        agent = self._log(path, session, isSidechain=True, agentId=name, cwd="/home/dev/app/deep")
        self._noise(agent)
        agent.last = None
        self._exchange(agent, session, name)

    def _sidechain(self, log: Transcript, session: str) -> None:
        """As releases up to 1.0 wrote agents: within the main file, named by their first line."""
        back, log.last = log.last, None
        root = log.prompt(self._word(session), isSidechain=True)
        self._answer(log, session, root, isSidechain=True)
        log.last = back

    def _fork(self, path: str, log: Transcript) -> None:
        """With its mark, or with a time before all that it repeats."""
        mark = self.rng.choice([{}, {"forkedFrom": {"sessionId": "x", "messageUuid": "y"}}])
        self._repeat(path, log, lambda said: said | mark, timed=not mark)

    def _resume(self, path: str, log: Transcript) -> None:
        """As releases up to 1.0 went on: in a new file, with new times and without request ids."""
        at = Transcript.time((self._hour + 1) * 600)
        self._repeat(path, log, lambda said: {k: v for k, v in said.items() if k != "requestId"} | {"timestamp": at})

    def _repeat(self, path: str, log: Transcript, copied: Callable[[Any], Any], *, timed: bool = False) -> None:
        session = self._name(self.rng.choice("az"))
        fork = self._log(f"-p/{session}.jsonl", session)
        if timed:
            fork.bare(type="queue-operation", timestamp=fork.time(self._hour * 600), sessionId=session)
        fork.lines += [line_of(**copied(said | {"sessionId": session})) for said in _conversation(log)]
        fork.last = log.last
        self._exchange(fork, session, "main")

    def _replay(self, path: str, log: Transcript) -> None:
        """A compaction's agent holds the whole session, and its own answer."""
        session, name = Path(path).stem, self._name("acompact-")
        agent = self._log(f"-p/{session}/subagents/agent-{name}.jsonl", session, isSidechain=True, agentId=name)
        agent.lines += [line_of(**said | {"isSidechain": True, "agentId": name}) for said in _conversation(log)]
        agent.last = log.last
        self._answer(agent, session, name)


def _conversation(log: Transcript) -> list[dict[str, Any]]:
    """The lines that a fork repeats: those with a uuid, but for agents'."""
    found = []
    for line in log.lines:
        said = json.loads(line) if line.startswith(b'{"') and line.endswith(b"}") else {}
        if "uuid" in said and not said["isSidechain"]:
            found.append(said)
    return found
