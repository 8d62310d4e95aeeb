"""The wire: codec, permits, chunk senders and receivers, policy channels."""
