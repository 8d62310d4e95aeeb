"""Acting: a snapshot and an environment make chunks and evaluations."""
