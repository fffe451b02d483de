"""What the blocks of a turn are: whose they are, what they may weigh, and which of them its output went into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from burnd.attribution.rates import OUTPUT, REASONING, SEARCHES
from burnd.classify.tools import kind as tool_kind
from burnd.records import Block, Copy, Turn, Usage

Kind = Literal[
    "prefix",
    "prompt",
    "answer",
    "thinking",
    "call",
    "reminder",
    "attachment",
    "summary",
    "inherited",
    "unexplained",
]

# How well a size is known before the next bill tells: to the token, to the token unless it was dropped, by its bytes.
FIRM: Final = 0
THOUGHT: Final = 1
LOOSE: Final = 2

IMAGE_TOKENS: Final = 1600
_BYTES_PER_TOKEN: Final = 4
_WRAPPING_TOKENS: Final = 8

INSTRUCTIONS: Final = "instructions"
_ENTERED_KINDS: Final[dict[str, Kind]] = {
    "prompt": "prompt",
    "image": "prompt",
    "file": "attachment",
    "summary": "summary",
}


class Group(NamedTuple):
    """Causes that are alike, for sums over many sessions."""

    kind: Kind
    tool: str | None = None
    target: str | None = None


class Claim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A block that stands in the context while no bill has told its size yet."""

    owner: int
    expected: int
    nature: int


# (rate class, owner, tokens): what part of a turn's output, or of its searches, is whose.
Output = tuple[int, int, int]


class Owners(Protocol):
    """Knows whose a block of the turn at hand is."""

    def owner(self, kind: Kind) -> int: ...

    def call_owner(self, call_id: str) -> int: ...

    def knows_call(self, call_id: str) -> bool: ...


def expected_tokens(block: Block) -> int:
    """What a block is likely to weigh. Twice that is the most: no text has more than a token for two bytes."""
    if block.kind == "image":
        return IMAGE_TOKENS
    return -(-block.bytes // _BYTES_PER_TOKEN) + _WRAPPING_TOKENS


def inherited_tokens(copy: Copy) -> int:
    return sum(expected_tokens(block) for block in (*copy.entered, *copy.made) if block.kind != INSTRUCTIONS)


def entered_claims(blocks: Sequence[Block], owners: Owners, *, begins: bool) -> list[Claim]:
    """The blocks that entered the context since the previous turn; one about a call that is long gone is a reminder.

    Instruction files at the beginning of a row (`begins`) are part of its prefix and claim nothing.
    """
    claims = []
    for block in blocks:
        if begins and block.kind == INSTRUCTIONS:
            continue
        if block.call_id is not None and (block.kind != "reminder" or owners.knows_call(block.call_id)):
            owner = owners.call_owner(block.call_id)
        else:
            owner = owners.owner(_ENTERED_KINDS.get(block.kind, "reminder"))
        claims.append(Claim(owner, expected_tokens(block), LOOSE))
    return claims


def made_claims(turn: Turn, owners: Owners, unexplained: int) -> tuple[list[Output], list[Claim]]:
    """Whose the turn's output is, and what of it stands in the context from now on."""
    usage, made = turn.usage, turn.made
    said = _said(turn)
    outputs: list[Output] = []
    claims: list[Claim] = []
    if said:
        _say(said, turn, outputs, claims, owners)
    elif usage.output:
        outputs.append((OUTPUT, unexplained, usage.output))
        claims.append(Claim(unexplained, usage.output, FIRM))
    if usage.reasoning:
        thinking = owners.owner("thinking")
        outputs.append((REASONING, thinking, usage.reasoning))
        claims = _with_reasoning(claims, thinking, usage.reasoning)
    if made is not said:
        claims += [
            Claim(owners.call_owner(b.call_id or ""), expected_tokens(b), LOOSE) for b in made if b.kind == "result"
        ]
    return outputs, claims


def _say(said: Sequence[Block], turn: Turn, outputs: list[Output], claims: list[Claim], owners: Owners) -> None:
    """What is said weighs what it was billed; where a log gives only a lower bound of that, what its bytes tell."""
    final = turn.quality == "final"
    shares = _shares(said, turn.usage) if len(said) > 1 else [turn.usage.output]
    for n, block in enumerate(said):
        share, nature = shares[n], FIRM if final else LOOSE
        if block.kind == "call":
            owner = owners.call_owner(block.call_id or "")
        elif block.kind == "thinking":
            owner, nature = owners.owner("thinking"), THOUGHT
        else:
            owner = owners.owner("answer")
        if share:
            outputs.append((OUTPUT, owner, share))
        claims.append(Claim(owner, share if final else max(share, expected_tokens(block)), nature))


def _said(turn: Turn) -> Sequence[Block]:
    """What the model itself said. A result among it is from a tool that ran at the provider: it is input."""
    made = turn.made
    if not made:
        return [Block(kind="call", bytes=0, call_id=call.id) for call in turn.tool_calls]
    for block in made:
        if block.kind == "result":
            return [said for said in made if said.kind != "result"]
    return made


def _with_reasoning(claims: list[Claim], thinking: int, reasoning: int) -> list[Claim]:
    """Thinking that is billed apart weighs what it was billed, however much of it the log shows."""
    return [Claim(thinking, reasoning, THOUGHT), *(claim for claim in claims if claim.owner != thinking)]


def _shares(said: Sequence[Block], usage: Usage) -> list[int]:
    """Output by the bytes of what was said.

    Thinking is often shown shortened or not at all: what their bytes do not allow text and arguments to be is
    thinking, too. Where thinking is billed apart, it has no share.
    """
    shares = portions(usage.output, [block.bytes or 1 for block in said])
    kinds = [block.kind for block in said]
    if "thinking" not in kinds:
        return shares
    thinking = kinds.index("thinking")
    if usage.reasoning:
        weights = [0 if block.kind == "thinking" else block.bytes or 1 for block in said]
        return portions(usage.output, weights) if any(weights) else shares
    for n, block in enumerate(said):
        over = shares[n] - 2 * expected_tokens(block)
        if over > 0 and block.kind != "thinking":
            shares[n] -= over
            shares[thinking] += over
    return shares


def search_outputs(turn: Turn, owners: Owners) -> list[Output]:
    """Searches are for the calls that searched, else for the answer."""
    searches = turn.searches
    if not searches:
        return []
    calls = [owners.call_owner(call.id) for call in turn.tool_calls if _searches(call.name)]
    searching = calls or [owners.owner("answer")]
    shares = portions(searches, [1] * len(searching))
    return [(SEARCHES, owner, share) for owner, share in zip(searching, shares, strict=True) if share]


def _searches(tool: str) -> bool:
    return "search" in tool.lower() and tool_kind(tool) in ("web", "other")


def portions(amount: int, weights: Sequence[int]) -> list[int]:
    """An amount shared out by weights, in whole numbers that add up to it. The weights must not all be zero."""
    total, seen, given = sum(weights), 0, 0
    shares = []
    for weight in weights:
        seen += weight
        upto = amount * seen // total
        shares.append(upto - given)
        given = upto
    return shares
