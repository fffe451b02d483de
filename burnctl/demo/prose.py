"""Makes file listings, logs and test output, the same every time."""

from __future__ import annotations

import random

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
