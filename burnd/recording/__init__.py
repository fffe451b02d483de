"""The way from candidates to content, ledger and index: ownership, deduplication, and the one writer."""
