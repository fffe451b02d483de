"""Answers: what the index says, put together for people and programs. Nothing here writes."""
