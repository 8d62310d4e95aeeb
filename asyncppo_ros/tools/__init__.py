"""The `asyncppo` command and its verbs."""
