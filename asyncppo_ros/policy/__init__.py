"""The policy: network, distributions, normalizer, immutable snapshot."""
