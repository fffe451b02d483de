"""All settings: defaults, loading, changing and showing."""
