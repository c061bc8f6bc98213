"""Real clients, tried against a provider that leaks: see scripts/try_client."""
