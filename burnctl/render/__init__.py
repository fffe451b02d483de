"""Parts that screens share: numbers, safe text, tables, charts, notes, the terminal or pipe they are printed to."""
