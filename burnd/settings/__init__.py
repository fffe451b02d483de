"""Every setting: its default, where its value comes from, how it is changed and shown."""
