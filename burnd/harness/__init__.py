"""Agent products whose sessions burnd reads: one package each, and the registry that lists them."""
