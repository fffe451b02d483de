"""What `burnctl doctor` looks at: each check is a function that looks at one thing and says how it is."""
