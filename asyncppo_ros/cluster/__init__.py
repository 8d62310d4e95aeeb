"""More than one host or learner: Ray, torch.distributed."""
