"""Answers, put together for people and programs: from the index, and where words or whole records are asked for, from
content and ledger. Nothing here writes."""
