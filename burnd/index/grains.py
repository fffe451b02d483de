"""The buckets that sums are kept for: quarters of an hour, numbered from the year 1 on."""

from __future__ import annotations

BUCKET_MS = 900_000
SHIFT_MS = 62_135_596_800_000  # from the year 1 on, so that no bucket is negative; whole days, so that days stay days
NO_ACTIVITY = -1  # of turns that have none


def bucket_of(ts: int) -> int:
    return (ts + SHIFT_MS) // BUCKET_MS


def begin_of(bucket: int) -> int:
    """The first millisecond of a bucket."""
    return bucket * BUCKET_MS - SHIFT_MS
