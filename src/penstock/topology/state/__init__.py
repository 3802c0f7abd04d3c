"""State of the user's own: how it is declared, what a processor does with it, and a store for it in memory."""
