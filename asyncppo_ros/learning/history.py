"""PolicyHistory: the policies that still act, to tell what made the ratio of an old sample."""

from collections import OrderedDict
from typing import NamedTuple

from torch import Tensor

from asyncppo_ros.chunk import Chunk, Identity
from asyncppo_ros.policy.normalizer import RunningMoments


class PastPolicy(NamedTuple):
    """
    What a policy consisted of when it was published.

    Attributes
    ----------
    weights : float32 [W]
        All parameters of the policy.
    normalizer : RunningMoments

    """

    weights: Tensor
    normalizer: RunningMoments


class PolicyHistory:
    """
    The last `size` published policies by identity.

    Gradient steps are part of it: two policies from the midst of one update differ in them alone.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._policies: OrderedDict[tuple[int, int, int], PastPolicy] = OrderedDict()

    def remember(self, identity: Identity, gradient_steps: int, policy: PastPolicy) -> None:
        """Keep a policy, forget the oldest of too many."""
        self._policies[identity.generation, identity.policy_version, gradient_steps] = policy
        while len(self._policies) > self._size:
            self._policies.popitem(last=False)

    def of(self, chunk: Chunk) -> PastPolicy | None:
        """Give the policy that acted in a chunk; None where it is too old or of another life."""
        return self._policies.get(
            (chunk.generation, chunk.policy_version, chunk.gradient_steps))
