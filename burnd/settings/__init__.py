"""Every setting: which there are, what holds, how one is changed and shown."""
