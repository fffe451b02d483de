"""Having burnd started at login: the unit files and agents that `burnctl service` writes, and who runs them."""
