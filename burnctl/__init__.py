"""burnctl: the small client that asks burnd what was spent, why, and where to save."""
