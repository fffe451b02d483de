"""Search over all content: a tantivy index of its words, a background task that fills it, queries and passages."""
