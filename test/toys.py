"""Small worlds and chunks with identifiable content, for tests without MuJoCo."""

import numpy as np

from asyncppo_ros.chunk import Chunk, Layout, NO_SUCCESS
from asyncppo_ros.simulation.environment import StepMissed, StepResult

TASK = {'task': 'toy', 'control_dt': 0.1, 'deployable': False,
        'observation': [{'name': 'counter', 'size': 3}], 'action': {}, 'start_pose': {}}


class CountingEnvironment:
    """
    Environment n ends its episode after ``lengths[n]`` steps.

    The observation is (episode of this environment, step within it, n); the reward is the step.
    Even environments are truncated, odd ones terminate.
    """

    task = 'toy'
    observation_size = 3
    action_size = 2
    control_dt = 0.1

    def __init__(self, lengths):
        self.lengths = np.asarray(lengths)
        self.num_envs = len(self.lengths)
        self.episode = np.zeros(self.num_envs, int)
        self.step_in_episode = np.zeros(self.num_envs, int)
        self.actions = []

    def _write(self, out):
        out[:] = np.stack((self.episode, self.step_in_episode, np.arange(self.num_envs)), 1)

    def reset(self, out):
        self.episode[:] = 0
        self.step_in_episode[:] = 0
        self._write(out)

    def step(self, action, out):
        assert (np.abs(action) <= 1.0).all()
        self.actions.append(action.copy())
        self.step_in_episode += 1
        reward = self.step_in_episode.astype(np.float32)
        self._write(out)
        ended = self.step_in_episode >= self.lengths
        odd = np.arange(self.num_envs) % 2 == 1
        index = np.flatnonzero(ended & ~odd)
        final = out[index].copy()
        steps = self.step_in_episode[ended]
        episodes = np.stack((steps * (steps + 1) / 2, steps, np.full(len(steps), NO_SUCCESS)), 1)
        self.episode[ended] += 1
        self.step_in_episode[ended] = 0
        self._write(out)
        return StepResult(reward, ended & odd, ended & ~odd, index, final,
                          episodes.astype(np.float32))

    def describe(self):
        return TASK

    def close(self):
        pass


class PrivilegedEnvironment(CountingEnvironment):
    """The same, where the critic also sees (100 · episode + step, -n)."""

    def __init__(self, lengths):
        super().__init__(lengths)
        self.critic_observation = np.zeros((self.num_envs, 2), np.float32)

    def _write(self, out):
        super()._write(out)
        self.critic_observation[:, 0] = 100 * self.episode + self.step_in_episode
        self.critic_observation[:, 1] = -np.arange(self.num_envs)

    def step(self, action, out):
        result = super().step(action, out)
        final = np.stack((100 * result.final_observation[:, 0] + result.final_observation[:, 1],
                          -result.final_observation[:, 2]), axis=1)
        return result._replace(final_critic_observation=final)

    def describe(self):
        return {**TASK, 'critic_observation': [{'name': 'clock', 'size': 2}]}


class FlakyEnvironment(PrivilegedEnvironment):
    """
    One that misses the control steps whose numbers (over all episodes) are in `missed`.

    A missed step changes the world and tells nothing.  Each `reset` begins further episodes, and
    only it goes on after a miss.  `happened` has what is true of every step that came about, in
    order: (row before, action, reward, terminated, truncated, row after).
    """

    def __init__(self, lengths, missed, missed_resets=()):
        super().__init__(lengths)
        self.missed, self.missed_resets = set(missed), set(missed_resets)
        self.steps, self.resets, self.lost = 0, 0, True
        self.happened = []

    def reset(self, out):
        self.resets += 1
        if self.resets - 1 in self.missed_resets:
            out[:] = -7.0
            raise StepMissed('nobody put it back')
        self.episode += 1
        self.step_in_episode[:] = 0
        self.lost = False
        self._write(out)
        self.row = out.copy()

    def step(self, action, out):
        assert not self.lost, 'only a reset goes on'
        self.steps += 1
        if self.steps - 1 in self.missed:
            self.lost = True
            self.step_in_episode += 50
            # What a step that breaks off leaves behind is none of the chunk's business.
            out[:] = -7.0
            raise StepMissed('no joint state came')
        before = self.row
        result = super().step(action, out)
        after = out.copy()
        after[result.final_index] = result.final_observation
        self.row = out.copy()
        self.happened.append((before, action.copy(), result.reward, result.terminated,
                              result.truncated, after))
        return result


def toy_layout(observation_size=3, action_size=2):
    return Layout('toy', observation_size, action_size, 2 * action_size, 'counter')


def random_chunk(seed=0, steps=8, num_envs=4, observation_size=3, action_size=2, critic_size=0,
                 value_size=0, **integers):
    """Make a chunk of a standard Gaussian policy with log-probs that belong to its actions."""
    rng = np.random.default_rng(seed)
    action = rng.normal(size=(steps, num_envs, action_size)).astype(np.float32)
    log_prob = (-0.5 * action ** 2 - 0.5 * np.log(2 * np.pi)).sum(-1).astype(np.float32)
    truncated = np.zeros((steps, num_envs), bool)
    truncated[steps // 2, 0] = True
    terminated = np.zeros((steps, num_envs), bool)
    terminated[steps // 2, 1] = True
    stamp = {'run_id': 1, 'actor_id': 0, 'incarnation': 1, 'sequence': 0, 'generation': 0,
             'policy_version': 0, 'gradient_steps': 0, 'collecting_ns': 1_000_000,
             'waiting_ns': 0, **integers}
    return Chunk(
        **stamp,
        observation=rng.normal(size=(steps + 1, num_envs, observation_size)).astype(np.float32),
        action=action, behaviour_log_prob=log_prob,
        behaviour_parameters=np.zeros((steps, num_envs, 2 * action_size), np.float32),
        reward=rng.normal(size=(steps, num_envs)).astype(np.float32),
        terminated=terminated, truncated=truncated,
        final_observation=rng.normal(size=(1, observation_size)).astype(np.float32),
        final_index=np.array([[steps // 2, 0]], np.int32),
        episodes=np.array([[1.0, 5.0, -1.0]], np.float32),
        **{name: rng.normal(size=shape).astype(np.float32) for name, shape in (
            ('critic_observation', (steps + 1, num_envs, critic_size)),
            ('final_critic_observation', (1, critic_size)),
            ('value', (steps + 1, num_envs, value_size)),
            ('final_value', (1, value_size)))})
