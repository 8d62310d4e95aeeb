"""The world: batched MuJoCo, tasks, the Gymnasium adapter."""
