"""Rules that decide, as pure functions: Stela, its baselines, and mappings. Nothing here touches Spark."""
