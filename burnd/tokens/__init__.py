"""Splits content into the words that search indexes. Pure, so that it runs where text is read."""
