"""Estimates the size of the blocks of a turn, and divides its output among them."""

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

# How exact the expected size of a block is: exact, exact unless the provider drops it, or estimated from its bytes.
EXACT: Final = 0
THOUGHT: Final = 1
ESTIMATED: Final = 2

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
    """Kind, tool and target of causes, for sums over many sessions."""

    kind: Kind
    tool: str | None = None
    target: str | None = None


class SizeClaim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A block in the context whose size no bill has shown yet."""

    owner: int
    expected: int
    precision: int


# (rate class, owner, tokens) of a part of a turn's output or searches.
Output = tuple[int, int, int]


class Owners(Protocol):
    """Finds the cause that owns a block of the current turn."""

    def owner(self, kind: Kind) -> int: ...

    def call_owner(self, call_id: str) -> int: ...

    def knows_call(self, call_id: str) -> bool: ...


def expected_tokens(block: Block) -> int:
    """The likely tokens of a block. Twice that is the maximum: no text has more than a token per two bytes."""
    if block.kind == "image":
        return IMAGE_TOKENS
    return -(-block.bytes // _BYTES_PER_TOKEN) + _WRAPPING_TOKENS


def inherited_tokens(copy: Copy) -> int:
    return sum(expected_tokens(block) for block in (*copy.entered, *copy.made) if block.kind != INSTRUCTIONS)


def entered_claims(blocks: Sequence[Block], owners: Owners, *, begins: bool) -> list[SizeClaim]:
    """Claims of the blocks that entered the context since the previous turn.

    A block of a call that is out of reach is a reminder. Instruction files at the beginning of a row (`begins`) are in
    its prefix.
    """
    claims = []
    for block in blocks:
        if begins and block.kind == INSTRUCTIONS:
            continue
        if block.call_id is not None and (block.kind != "reminder" or owners.knows_call(block.call_id)):
            owner = owners.call_owner(block.call_id)
        else:
            owner = owners.owner(_ENTERED_KINDS.get(block.kind, "reminder"))
        claims.append(SizeClaim(owner, expected_tokens(block), ESTIMATED))
    return claims


def made_claims(turn: Turn, owners: Owners, unexplained: int) -> tuple[list[Output], list[SizeClaim]]:
    """The owners of a turn's output, and the claims of its blocks in later contexts."""
    usage, made = turn.usage, turn.made
    output = _output_blocks(turn)
    outputs: list[Output] = []
    claims: list[SizeClaim] = []
    if output:
        _divide_output(output, turn, outputs, claims, owners)
    elif usage.output:
        outputs.append((OUTPUT, unexplained, usage.output))
        claims.append(SizeClaim(unexplained, usage.output, EXACT))
    if usage.reasoning:
        thinking = owners.owner("thinking")
        outputs.append((REASONING, thinking, usage.reasoning))
        claims = _with_reasoning(claims, thinking, usage.reasoning)
    if made is not output:
        claims += [
            SizeClaim(owners.call_owner(b.call_id or ""), expected_tokens(b), ESTIMATED)
            for b in made
            if b.kind == "result"
        ]
    return outputs, claims


def _divide_output(
    blocks: Sequence[Block], turn: Turn, outputs: list[Output], claims: list[SizeClaim], owners: Owners
) -> None:
    """Divides the billed output among blocks. If the log has only a minimum of it, sizes are estimated from bytes."""
    final = turn.quality == "final"
    shares = _shares(blocks, turn.usage) if len(blocks) > 1 else [turn.usage.output]
    for n, block in enumerate(blocks):
        share, precision = shares[n], EXACT if final else ESTIMATED
        if block.kind == "call":
            owner = owners.call_owner(block.call_id or "")
        elif block.kind == "thinking":
            owner, precision = owners.owner("thinking"), THOUGHT
        else:
            owner = owners.owner("answer")
        if share:
            outputs.append((OUTPUT, owner, share))
        claims.append(SizeClaim(owner, share if final else max(share, expected_tokens(block)), precision))


def _output_blocks(turn: Turn) -> Sequence[Block]:
    """The blocks that the model wrote, without results of tools that ran at the provider, which are input."""
    made = turn.made
    if not made:
        return [Block(kind="call", bytes=0, call_id=call.id) for call in turn.tool_calls]
    for block in made:
        if block.kind == "result":
            return [one for one in made if one.kind != "result"]
    return made


def _with_reasoning(claims: list[SizeClaim], thinking: int, reasoning: int) -> list[SizeClaim]:
    """The claims with separately billed thinking at its billed size."""
    return [SizeClaim(thinking, reasoning, THOUGHT), *(claim for claim in claims if claim.owner != thinking)]


def _shares(blocks: Sequence[Block], usage: Usage) -> list[int]:
    """Output tokens by block, in proportion to bytes.

    Logs shorten or omit thinking: tokens above the maximum of text and arguments count as thinking. Separately billed
    thinking has no share.
    """
    shares = portions(usage.output, [block.bytes or 1 for block in blocks])
    kinds = [block.kind for block in blocks]
    if "thinking" not in kinds:
        return shares
    thinking = kinds.index("thinking")
    if usage.reasoning:
        weights = [0 if block.kind == "thinking" else block.bytes or 1 for block in blocks]
        return portions(usage.output, weights) if any(weights) else shares
    for n, block in enumerate(blocks):
        over = shares[n] - 2 * expected_tokens(block)
        if over > 0 and block.kind != "thinking":
            shares[n] -= over
            shares[thinking] += over
    return shares


def search_outputs(turn: Turn, owners: Owners) -> list[Output]:
    """Owners of the web searches: the calls that searched, else the answer."""
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
    """Divides an amount by weights into whole numbers that add up to it. The weights must not all be zero."""
    total, weight_sum, assigned = sum(weights), 0, 0
    shares = []
    for weight in weights:
        weight_sum += weight
        upto = amount * weight_sum // total
        shares.append(upto - assigned)
        assigned = upto
    return shares
