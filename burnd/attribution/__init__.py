"""Why every token was spent: turns of a rail in, causes as token counts out. Pure; nothing here knows a price."""
