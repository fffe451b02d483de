"""Where bytes and rows come from: files, watches and databases are read here, and nothing here knows what they mean."""
