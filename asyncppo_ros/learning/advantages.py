"""Advantages of stored transitions: pure functions on numpy arrays."""

import numpy as np


def next_values(value: np.ndarray, terminated: np.ndarray, final_value: np.ndarray,
                final_index: np.ndarray) -> np.ndarray:
    """
    Give V(s_{t+1}) as each step must bootstrap from it.

    A terminated step has no future: 0.  A truncated one bootstraps from its own final
    observation, because row t+1 already belongs to the next episode.  Every other step, the
    last of a full chunk included, takes the value of row t+1.

    Parameters
    ----------
    value : float32 [T+1, N]
        V of every row of the observation.
    terminated : bool [T, N]
    final_value : float32 [K]
        V of the final observation of each truncated step.
    final_index : int [K, 2]
        Its t and n.

    Returns
    -------
    float32 [T, N]

    """
    following = value[1:].copy()
    following[final_index[:, 0], final_index[:, 1]] = final_value
    following[terminated] = 0.0
    return following


def gae(reward: np.ndarray, value: np.ndarray, next_value: np.ndarray, ended: np.ndarray,
        discount: float, gae_lambda: float) -> tuple[np.ndarray, np.ndarray]:
    """
    Estimate the advantage of every step.

        δ_t = r_t + γ V(s_{t+1}) - V(s_t)
        A_t = δ_t + γ λ (1 - ended_t) A_{t+1},    A_T = 0

    Parameters
    ----------
    reward : float32 [T, N]
        Reward for the action at step t.
    value : float32 [T, N]
        V(s_t), in the unit of the return.
    next_value : float32 [T, N]
        V(s_{t+1}) as `next_values` gives it.
    ended : bool [T, N]
        The episode ended with step t, terminated or truncated.
    discount : float
        γ per control step, in [0, 1].
    gae_lambda : float
        λ in [0, 1]: 0 is one-step TD, 1 is Monte-Carlo.

    Returns
    -------
    advantage : float32 [T, N]
    value_target : float32 [T, N]
        advantage + value, what the critic learns.

    Raises
    ------
    ValueError
        The shapes differ.

    References
    ----------
    Schulman et al. 2016, arXiv:1506.02438.

    """
    if not reward.shape == value.shape == next_value.shape == ended.shape:
        raise ValueError(f'reward {reward.shape}, value {value.shape}, next_value '
                         f'{next_value.shape} and ended {ended.shape} must have one shape [T, N]')
    delta = reward + np.float32(discount) * next_value - value
    carry = np.float32(discount * gae_lambda) * ~ended
    advantage = np.empty_like(delta)
    following = np.zeros(delta.shape[1:], np.float32)
    for t in range(len(delta) - 1, -1, -1):
        following = delta[t] + carry[t] * following
        advantage[t] = following
    return advantage, advantage + value


def vtrace(reward: np.ndarray, value: np.ndarray, next_value: np.ndarray, ended: np.ndarray,
           ratio: np.ndarray, discount: float, gae_lambda: float,
           max_ratio: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """
    Estimate values of the current policy, and advantages, from steps of an older one.

        ρ_t = min(π(a|s) / μ(a|s), ρ̄),    c_t = λ min(π(a|s) / μ(a|s), 1)
        δ_t = ρ_t (r_t + γ V(s_{t+1}) - V(s_t))
        v_t - V(s_t) = δ_t + γ c_t (1 - ended_t) (v_{t+1} - V(s_{t+1})),    v_T = V(s_T)
        A_t = r_t + γ v'_{t+1} - V(s_t)

    where v'_{t+1} is v_{t+1}, or V(s_{t+1}) of `next_values` where the episode ended with step t.
    There is no ρ in A: the objective multiplies it by its own ratio already.

    Parameters
    ----------
    reward, value, next_value : float32 [T, N]
        As in `gae`.
    ended : bool [T, N]
    ratio : float32 [T, N]
        π(a|s) / μ(a|s) of the policy at the start of the update and the one that acted.
    discount, gae_lambda : float
        γ and λ.
    max_ratio : float
        ρ̄ ≥ 1.

    Returns
    -------
    advantage : float32 [T, N]
    value_target : float32 [T, N]
        v_t.

    Raises
    ------
    ValueError
        The shapes differ.

    References
    ----------
    Espeholt et al. 2018, arXiv:1802.01561, section 4.1 and remark 2.

    """
    if not reward.shape == value.shape == next_value.shape == ended.shape == ratio.shape:
        raise ValueError(f'reward {reward.shape}, value {value.shape}, next_value '
                         f'{next_value.shape}, ended {ended.shape} and ratio {ratio.shape} must '
                         'have one shape [T, N]')
    gamma = np.float32(discount)
    delta = np.minimum(ratio, np.float32(max_ratio)) * (reward + gamma * next_value - value)
    carry = gamma * np.float32(gae_lambda) * np.minimum(ratio, np.float32(1.0)) * ~ended
    correction = np.empty_like(delta)
    following = np.zeros(delta.shape[1:], np.float32)
    for t in range(len(delta) - 1, -1, -1):
        following = delta[t] + carry[t] * following
        correction[t] = following
    # The corrected value that follows each step; none follows the end of an episode or chunk.
    corrected = next_value.copy()
    corrected[:-1] += correction[1:] * ~ended[:-1]
    return reward + gamma * corrected - value, value + correction
