"""Kinds of context blocks, their expected sizes, and the division of a turn's output among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from burnd.classify.tools import kind as tool_kind
from burnd.records import Block, Copy, Usage

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
ENTERED_KINDS: Final[dict[str, Kind]] = {
    "prompt": "prompt",
    "image": "prompt",
    "file": "attachment",
    "summary": "summary",
}

# (owner, expected tokens, precision) of a block in the context whose size no bill has shown yet.
SizeClaim = tuple[int, int, int]
# (rate class, owner, tokens) of a part of a turn's output or searches.
Output = tuple[int, int, int]


class Group(NamedTuple):
    """Kind, tool and target of causes, for sums over many sessions."""

    kind: Kind
    tool: str | None = None
    target: str | None = None


def expected_tokens(block: Block) -> int:
    """The likely tokens of a block. Twice that is the maximum: no text has more than a token per two bytes."""
    if block.kind == "image":
        return IMAGE_TOKENS
    return -(-block.bytes // _BYTES_PER_TOKEN) + _WRAPPING_TOKENS


def inherited_tokens(copy: Copy) -> int:
    return sum(expected_tokens(block) for block in (*copy.entered, *copy.made) if block.kind != INSTRUCTIONS)


def output_shares(blocks: Sequence[Block], usage: Usage) -> list[int]:
    """Output tokens by block, in proportion to bytes.

    Logs shorten or omit thinking: tokens above the maximum of text and arguments count as thinking. Separately billed
    thinking has no share.
    """
    if len(blocks) == 1:
        return [usage.output]
    weights = [block.bytes or 1 for block in blocks]
    thoughts = [n for n, block in enumerate(blocks) if block.kind == "thinking"]
    if usage.reasoning and len(thoughts) < len(blocks):
        for n in thoughts:
            weights[n] = 0
    shares = portions(usage.output, weights)
    if thoughts and not usage.reasoning:
        for n, block in enumerate(blocks):
            over = shares[n] - 2 * expected_tokens(block)
            if over > 0 and block.kind != "thinking":
                shares[n] -= over
                shares[thoughts[0]] += over
    return shares


def is_search(tool: str) -> bool:
    """Whether a tool makes web searches, which are billed one by one."""
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
