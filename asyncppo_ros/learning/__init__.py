"""The learner: batches, advantages, losses, updates, books, checkpoints."""
