"""The demo's machine: its folders, projects with instruction files, and the sessions in its logs."""

from __future__ import annotations

import os
import random
from importlib import import_module
from types import ModuleType

from burnd.harness.demo import Act, Agent, Ask, Compact, DemoCall, Log, Say, Story, Wait
from burnd.harness.product import Product
from burnd.harness.registry import BY_SOURCE, PRODUCTS

_ELSEWHERE = (
    "BURND_SOCKET",
    "RELAYBURN_CONTENT_STORE",
    "RELAYBURN_CONTENT_TTL_DAYS",
    *(variable.name for product in PRODUCTS for variable in product.variables[1:]),
)


class Machine:
    """Everything is below `folder`; nothing of the user's own is read or written."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.environment = {
            "HOME": os.path.join(folder, "you"),
            "RELAYBURN_HOME": os.path.join(folder, "relayburn"),
            **{product.variables[0].name: self._home_of(product) for product in PRODUCTS},
            "XDG_CONFIG_HOME": os.path.join(folder, "config"),
        }

    def enter(self) -> None:
        """Moves this process, and all that it starts, to the machine."""
        os.environ.update(self.environment)
        for name in _ELSEWHERE:
            os.environ.pop(name, None)

    def write_logs(self, now: float) -> dict[str, Story]:
        """Writes the sessions of the last days, by their ids, and their instruction files."""
        for place, text in instructions().items():
            path = os.path.join(self.folder, place)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return {self._writer(story).write(*self._place(story, now)): story for story in stories()}

    def live_log(self, story: Story, clock: float) -> Log:
        """A session that can grow."""
        log: Log = self._writer(story).begin(*self._place(story, clock))
        return log

    def _writer(self, story: Story) -> ModuleType:
        return import_module(BY_SOURCE[story.harness].demo)

    def _place(self, story: Story, now: float) -> tuple[str, Story, str, float]:
        folder = self._home_of(BY_SOURCE[story.harness])
        return folder, story, os.path.join(self.folder, "you", story.project), now - story.ago_h * 3600

    def _home_of(self, product: Product) -> str:
        return os.path.join(self.folder, product.program)


_MINE = """# How I like to work

Small commits, each with its test. Say what you are not sure of. Ask before you delete anything.

## Style

Short functions with names that explain them. No comments that repeat the code.
"""
_SHOP = """# shop-api

The order service of the shop: a queue, a scheduler and some forty endpoints.

## Commands

- `npm test -- NAME` runs the tests of one part, `pytest jobs -q` those of the jobs.
- `make up` starts everything with made-up data.

## Rules

- Money is in cents, always an integer; only the edges format it.
- Times are UTC in the database and in logs.
- A job must be safe to run twice.

@docs/style.md

## History

The jobs were seven scripts once, then a scheduler. The checkout was rewritten twice: the first time for the new tax
rules, the second time because the first had read the clock wherever it pleased. The import came from another team and
still looks like it. None of this matters for most tasks, and all of it is read in every turn.
"""
_STYLE = """# Style

## Names

Functions are verbs, modules are nouns, booleans read as claims.

## Errors

An error says what happened, to which thing, and what to do.
"""
_AGENTS = """# shop-api for agents

Run `make up` first. Money is in cents. Tests before code.
"""
_PAYMENT = """# Payment

The provider's sandbox answers slowly: fake the clock in tests.
"""
_SERVERS = '{"mcpServers": {"tickets": {"command": "tickets-mcp"}, "designs": {"command": "designs-mcp"}}}\n'


def instructions() -> dict[str, str]:
    """Texts by their place on the demo's machine."""
    return {
        "claude/CLAUDE.md": _MINE,
        "you/shop-api/CLAUDE.md": _SHOP,
        "you/shop-api/docs/style.md": _STYLE,
        "you/shop-api/AGENTS.md": _AGENTS,
        "you/shop-api/src/payment/CLAUDE.md": _PAYMENT,
        "you/shop-api/.mcp.json": _SERVERS,
    }


OPUS, SONNET, HAIKU = "claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"
GPT, CODEX = "gpt-5", "gpt-5-codex"


def stories() -> list[Story]:
    result = [
        Story(
            "Move the nightly jobs to one scheduler",
            "claude-code",
            "shop-api",
            "cron-refactor",
            OPUS,
            262,
            _cron(),
            (("workflow", "nightly"), ("persona", "senior")),
        ),
        Story("Why does the checkout test flake?", "claude-code", "shop-api", "main", SONNET, 190, _flaky()),
        Story("Name the stock fields alike", "claude-code", "shop-api", "main", HAIKU, 165, _names()),
        Story(
            "The migration hangs in staging",
            "claude-code",
            "shop-api",
            "migrate",
            SONNET,
            150,
            _migration(),
            (),
            14_800,
        ),
        Story("How is the cart priced?", "claude-code", "webapp", "main", SONNET, 141, _survey()),
        Story("Explain the deploy script", "claude-code", "infra", "main", HAIKU, 96, _question()),
        Story(
            "Write the runbook for restores",
            "opencode",
            "infra",
            "main",
            GPT,
            71,
            _runbook(),
            (("workflow", "docs"), ("persona", "writer")),
        ),
        Story("Speed up the stock import", "opencode", "shop-api", "import-speed", SONNET, 45, _import()),
        Story("Pin the base images", "codex", "infra", "pin-images", CODEX, 30, _images()),
        Story(
            "Round prices to cents everywhere",
            "claude-code",
            "webapp",
            "cents",
            OPUS,
            20,
            _cents(),
            (("workflow", "nightly"), ("persona", "senior")),
        ),
    ]
    without = BY_SOURCE.keys() - {story.harness for story in result}
    more = [Story("What does the deploy script do?", name, "infra", "main", HAIKU, 12, _question()) for name in without]
    return [*result, *sorted(more)]


def live() -> Story:
    """The session that grows during the demo."""
    acts: list[Act] = [
        Ask("Add a retry with backoff to the payment client, and a test for it."),
        Say(
            "Let me look at the client first.",
            (_read("src/payment/client.ts", 120),),
            thinking="Where are errors handled?",
        ),
        Say("", (DemoCall("Bash", {"command": "rg -n 'fetch\\(' src/payment"}, log("rg", 12)),)),
        Say("I will wrap the request.", (_edit("src/payment/client.ts"),)),
        Say("Now the test.", (_write("src/payment/client.spec.ts"),)),
        Say("", (DemoCall("Bash", {"command": "npm test -- payment"}, failing_tests("live"), True),)),
        Say(
            "The clock must be faked.", (_edit("src/payment/client.spec.ts"),), thinking="The delay is real time here."
        ),
        Say("", (DemoCall("Bash", {"command": "npm test -- payment"}, passing_tests()),)),
        Say("Done: three tries, doubling from 200 ms, and a test that fakes the clock."),
    ]
    return Story("live", "claude-code", "shop-api", "payment-retry", SONNET, 0, acts)


def _read(path: str, lines: int) -> DemoCall:
    return DemoCall("Read", {"file_path": path}, source(path, lines))


def _edit(path: str, *, back: bool = False) -> DemoCall:
    old, new = source(path, 6), source(path + "+", 8)
    if back:
        old, new = new, old
    arguments = {"file_path": path, "old_string": old, "new_string": new}
    return DemoCall("Edit", arguments, f"The file {path} has been updated.")


def _write(path: str) -> DemoCall:
    return DemoCall("Write", {"file_path": path, "content": source(path, 40)}, f"File created at {path}")


def _test(command: str, seed: str = "", *, fails: bool = True) -> DemoCall:
    return DemoCall("Bash", {"command": command}, failing_tests(seed) if fails else passing_tests(), fails)


def _cron() -> list[Act]:
    acts: list[Act] = [
        Ask("Refactor the cron jobs: one scheduler instead of seven scripts. Keep the times."),
        Say(
            "I will look at what there is.",
            (DemoCall("Bash", {"command": "ls jobs && cat crontab"}, log("ls", 20)),),
            thinking="Seven scripts; find the times first, then what they share.",
        ),
        Say("", (DemoCall("Bash", {"command": "cat /var/log/jobs/nightly.log"}, log("nightly", 420)),)),
    ]
    for number in range(1, 8):
        path = f"jobs/job_{number}.py"
        acts += [Say("", (_read(path, 90), _read(f"jobs/tests/test_job_{number}.py", 50)))]
    acts += [Say("The shape is clear: a table of jobs and one loop.", (_write("jobs/scheduler.py"),))]
    for number in range(1, 8):
        acts += [
            Say(f"Job {number} moves over.", (_edit(f"jobs/job_{number}.py"),)),
            Say("", (_test("pytest jobs -q", f"cron{number}", fails=number % 3 == 0),)),
        ]
    acts += [
        Compact(
            "The scheduler is in jobs/scheduler.py; jobs 1 to 7 register themselves. Open: time zones, the lock file."
        ),
        Ask("Good. Now make sure that two schedulers never run at once."),
        Say(
            "A lock file with the pid.",
            (_read("jobs/scheduler.py", 120), _edit("jobs/scheduler.py")),
            thinking="flock is released by the kernel, a pid file is not.",
        ),
        Say("", (_test("pytest jobs -q", "lock", fails=False),)),
        Say(
            "",
            (
                DemoCall(
                    "Bash",
                    {"command": "git commit -am 'One scheduler for all jobs'"},
                    "[cron-refactor 1f2e3d4] 9 files changed",
                ),
            ),
        ),
        Say("Done: one scheduler, guarded by a lock, and every job at its old time."),
    ]
    return acts


def _flaky() -> list[Act]:
    acts: list[Act] = [Ask("The checkout test fails about one time in five. Fix the flaky test.")]
    for turn in range(5):
        acts += [Say("", (_read("src/checkout.ts", 160),)), Say("", (_test("npm test -- checkout", "same"),))]
        if turn == 2:
            acts += [Wait(9)]
    acts += [
        Say(
            "The clock is read twice.",
            (_edit("src/checkout.ts"),),
            thinking="Two calls of Date.now() straddle a second.",
        ),
        Say("", (_test("npm test -- checkout", fails=False),)),
        Say("It read the clock twice; now once."),
    ]
    return acts


def _names() -> list[Act]:
    acts: list[Act] = [Ask("The stock fields are called three different things. Pick one.")]
    for name in ("model", "view", "feed"):
        acts += [Say("", (_read(f"src/stock/{name}.ts", 60),)), Say("", (_edit(f"src/stock/{name}.ts"),))]
    return [*acts, Say("They are all `quantity` now.")]


def _migration() -> list[Act]:
    path = "migrations/0042_orders.sql"
    commands = ("psql -h staging", "pg_isready -h staging", "psql -h db", "kubectl logs db-0", "ssh db-0 uptime")
    failing = [
        Say("", (DemoCall("Bash", {"command": command}, f"error: could not connect to {command.split()[-1]}", True),))
        for command in commands
    ]
    return [
        Ask("The migration hangs in staging. Find out why."),
        Say("", (DemoCall("Bash", {"command": "cat /var/log/postgres.log"}, log("postgres", 760)),)),
        *failing,
        Say("Not reachable from here; the lock is in the file itself.", (_read(path, 90),)),
        Say("Without the lock.", (_edit(path),)),
        Say("It may be there for a reason.", (_edit(path, back=True),)),
        Compact("The lock in 0042_orders.sql is the reason. Tried: without it, and with it again."),
        Say("", (_read(path, 90),)),
        Say("Without the lock after all.", (_edit(path),)),
        Say("", (DemoCall("Bash", {"command": "make migrate"}, log("migrate", 160)),)),
        Compact("0042_orders.sql runs without the lock. To do: a test."),
        Say("", (_read(path, 90), _write("migrations/test_0042.py"))),
        Say("", (_test("pytest migrations -q", fails=False),)),
        Say("It waited for a lock that it held itself; now it takes none, and a test says so."),
    ]


def _survey() -> list[Act]:
    wide: list[Act] = [Say("", (_read(f"src/cart/part_{number}.ts", 140),)) for number in range(9)]
    narrow: list[Act] = [Say("", (DemoCall("Grep", {"pattern": "price", "path": "src"}, log("grep", 25)),))]
    return [
        Ask("How is the price of a cart computed? Where would a discount go?"),
        Say(
            "Two agents will look.",
            (
                DemoCall(
                    "Agent",
                    {"subagent_type": "Explore", "prompt": "Read everything under src/cart and report."},
                    "Prices are summed in cart/total.ts.",
                    agent=Agent(
                        "Explore",
                        "Read everything under src/cart and report.",
                        [*wide, Say("Prices are summed in cart/total.ts.")],
                    ),
                ),
                DemoCall(
                    "Agent",
                    {"subagent_type": "Explore", "prompt": "Where is `price` used outside the cart?"},
                    "In invoice.ts and feed.ts.",
                    agent=Agent(
                        "Explore",
                        "Where is `price` used outside the cart?",
                        [*narrow, Say("In invoice.ts and feed.ts.")],
                    ),
                ),
            ),
        ),
        Say("", (_read("src/cart/total.ts", 60),)),
        Say("Prices are summed in total.ts; a discount belongs right before the tax line."),
    ]


def _question() -> list[Act]:
    return [
        Ask("What does deploy.sh do, line by line?"),
        Say("", (_read("deploy.sh", 45),)),
        Say("It builds the image, pushes it, and rolls the pods one by one; line 31 waits for health."),
    ]


def _runbook() -> list[Act]:
    return [
        Ask("Write a runbook for restoring the database from a backup."),
        Say("", (_read("infra/backup.sh", 70), _read("infra/restore.sh", 50)), thinking="Which steps need a person?"),
        Say("", (_write("docs/restore.md"),)),
        Say("The runbook is in docs/restore.md, with the two steps that need a person marked."),
    ]


def _import() -> list[Act]:
    return [
        Ask("The stock import takes an hour. Make it faster."),
        Say("", (_read("src/stock/import.py", 220), _read("src/stock/rows.py", 180))),
        Say("", (DemoCall("Bash", {"command": "python -m cProfile -s cumtime import.py"}, log("profile", 120)),)),
        Wait(47),
        Ask("Sorry, lunch. Go on."),
        Say("It writes row by row; batches of 1,000 will do.", (_edit("src/stock/import.py"),)),
        Say("", (_test("pytest src/stock -q", "stock"),)),
        Say("", (_edit("src/stock/import.py"),), thinking="The last batch was dropped."),
        Say("", (_test("pytest src/stock -q", fails=False),)),
        Say("From 58 minutes to 4: batches, and one index built at the end."),
    ]


def _images() -> list[Act]:
    acts: list[Act] = [
        Ask("Pin every base image to a digest. Which ones were floating?"),
        Say("", (DemoCall("Bash", {"command": "rg -n '^FROM' --glob '*Dockerfile'"}, log("from", 9)),)),
    ]
    for name in ("api", "jobs", "web"):
        acts += [Say("", (_read(f"{name}/Dockerfile", 40),)), Say("", (_edit(f"{name}/Dockerfile"),))]
    return [
        *acts,
        Say("", (_test("make images", "images"),), thinking="The digest of web is of another platform."),
        Say("", (_edit("web/Dockerfile"),)),
        Say("", (_test("make images", fails=False),)),
        Say("All three were floating; each has its digest now, and `make images` builds."),
    ]


def _cents() -> list[Act]:
    acts: list[Act] = [Ask("Prices show as 19.990000001. Round to cents everywhere, with a test.")]
    for name in ("total", "tax", "discount", "shipping"):
        acts += [Say("", (_read(f"src/cart/{name}.ts", 80),)), Say("", (_edit(f"src/cart/{name}.ts"),))]
    acts += [
        Say("", (_test("npm test", "cents"),)),
        Say("One left.", (_edit("src/cart/tax.ts"),)),
        Say("", (_test("npm test", fails=False),)),
        Say("Every price is rounded where it is made; the test covers halves."),
    ]
    return acts


_NOUNS = (
    "order",
    "invoice",
    "cart",
    "schedule",
    "job",
    "queue",
    "customer",
    "price",
    "stock",
    "refund",
    "session",
    "retry",
)
_VERBS = (
    "load",
    "store",
    "resolve",
    "apply",
    "merge",
    "validate",
    "dispatch",
    "collect",
    "render",
    "expire",
    "lock",
    "drain",
)
_TESTS = ("rejects an empty cart", "keeps the order of jobs", "rounds to cents", "retries once", "expires old sessions")


def source(seed: str, lines: int) -> str:
    """A Python-like file, numbered as a reading tool shows it."""
    rng = random.Random(seed)  # noqa: S311 - made-up text, and the same every time
    out = []
    for number in range(1, lines + 1):
        verb, noun, other = rng.choice(_VERBS), rng.choice(_NOUNS), rng.choice(_NOUNS)
        body = rng.choice(
            (
                f"def {verb}_{noun}({other}: {other.title()}, *, now: float) -> {noun.title()}:",
                f"    {noun} = {verb}_{other}({other}.id, limit={rng.randrange(5, 500)})",
                f"    if {noun} is None or {noun}.{other}_id != {other}.id:",
                f'        raise {noun.title()}Error("cannot {verb} the {noun} of " + {other}.name)',
                f"    return {verb}_{noun}({noun}, now=now)",
                "",
            )
        )
        out.append(f"{number:>6}\t{body}")
    return "\n".join(out)


def log(seed: str, lines: int) -> str:
    rng = random.Random(seed)  # noqa: S311
    return "\n".join(
        f"2026-03-{rng.randrange(1, 28):02d}T{rng.randrange(24):02d}:{rng.randrange(60):02d}:07Z "
        f"{rng.choice(('INFO', 'INFO', 'WARN', 'DEBUG'))} {rng.choice(_NOUNS)}.{rng.choice(_VERBS)} "
        f"id={rng.randrange(10**6)} took={rng.randrange(900)}ms"
        for _ in range(lines)
    )


def failing_tests(seed: str) -> str:
    rng = random.Random(seed)  # noqa: S311
    name = rng.choice(_TESTS)
    passed = "\n".join(f"  ok  {test} ({rng.randrange(4, 90)} ms)" for test in _TESTS if test != name)
    return (
        f"{passed}\n  FAIL  {name}\n    AssertionError: expected {rng.randrange(90)} to equal {rng.randrange(90)}\n"
        f"      at checkout.spec.ts:{rng.randrange(20, 200)}:13\n\n1 failed, {len(_TESTS) - 1} passed"
    )


def passing_tests() -> str:
    return "\n".join(f"  ok  {test}" for test in _TESTS) + f"\n\n{len(_TESTS)} passed"
