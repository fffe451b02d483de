"""opencode: sessions in a SQLite database."""
