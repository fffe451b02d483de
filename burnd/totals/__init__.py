"""Exact totals before logs are recorded: a quick pass over them, merged and written into an index of totals."""
