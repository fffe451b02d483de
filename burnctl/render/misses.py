"""Why a cache was missed, in words: a sentence where there is room for it, else a few words."""

from __future__ import annotations

_SENTENCES = {
    "pause": "the cache had expired in a pause",
    "slow-call": "the cache had expired while a call ran or waited to be allowed",
    "prefix": "the beginning of the context had changed, or the provider had dropped it",
    "model-switch": "the turn before had another model",
    "compaction": "a compaction began the context anew",
    "rewind": "the conversation went back to an earlier point",
    "edited": "something in the middle of the context was gone",
    "unknown": "it is not known why the cache did not have it",
}
_WORDS = {
    "pause": "expired in a pause",
    "slow-call": "expired in a long call",
    "prefix": "new beginning, or dropped",
    "model-switch": "another model",
    "compaction": "after a compaction",
    "rewind": "went back",
    "edited": "changed in the middle",
    "unknown": "not known why",
}


def sentence(reason: str) -> str:
    return _SENTENCES.get(reason, reason)


def words(reason: str) -> str:
    return _WORDS.get(reason, reason)
