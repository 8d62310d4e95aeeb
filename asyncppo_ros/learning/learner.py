"""Learner: dual-clip PPO updates, each of which ends with policy_version + 1."""

from collections.abc import Callable, Mapping, Sequence
import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asyncppo_ros.chunk import ARRAYS, Chunk, Identity
from asyncppo_ros.config import Config
from asyncppo_ros.cores import usable_cores
from asyncppo_ros.errors import RankError
from asyncppo_ros.learning import losses
from asyncppo_ros.learning.history import PastPolicy, PolicyHistory
from asyncppo_ros.learning.samples import Samples, Scheduled, STEP_NUMBERS
from asyncppo_ros.learning.steps import steps_for
from asyncppo_ros.learning.transitions import (
    estimate,
    Estimates,
    join,
    on_device,
    raw_critic_observations,
    raw_observations,
    Segment,
    Transitions,
)
from asyncppo_ros.policy.distributions import distribution_for
from asyncppo_ros.policy.network import ActorCritic
from asyncppo_ros.policy.normalizer import RunningMoments, ScalarScale
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.numpy_policy import normalizer_arrays
from asyncppo_ros.run import Run

# Bounds and steps of the adaptive learning rate.
LEARNING_RATE_RANGE = (1e-6, 1e-2)
LEARNING_RATE_STEP = 1.5
# What lag did to the ratio is looked at in so many transitions of an update at most.
MOST_LOOKED_AT = 1024
# Policies remembered for that.
HISTORY_SIZE = 64


class BadBatch(ArithmeticError):
    """A number of an update was not finite; the update was undone."""


class Learner:
    """
    Everything that an update changes, and the update.

    Parameters
    ----------
    config : Config
        The settings of the run.
    task : mapping
        What the environment says of itself (`Environment.describe`), for the card.
    observation_size, action_size : int
        O and A.
    run_id : int
        Of the run, for the card.
    critic_size : int
        C, the size of what only the critic sees.

    Attributes
    ----------
    generation, policy_version, gradient_steps, env_steps : int
        The counters that a snapshot carries.
    learning_rate : float
        Of the schedule.
    learning_rate_scale : float
        The optimizer's step size is `learning_rate` times this.
    signing_key : bytes or None
        Snapshots are signed with it.

    """

    def __init__(self, config: Config, task: Mapping[str, Any], observation_size: int,
                 action_size: int, run_id: int, critic_size: int = 0) -> None:
        self.config = config
        self.ppo = config.learner.ppo
        self.task = task
        self.action_size = action_size
        self.run_id = run_id
        self.device = _device(config.learner.device)
        # Small networks gain nothing from more threads, which would fight with the actors.
        torch.set_num_threads(config.learner.threads or max(1, usable_cores() // 4))
        self.generator = torch.Generator().manual_seed(config.seed)
        self.network = ActorCritic(observation_size, action_size,
                                   distribution_for(task.get('action', {})), config.policy,
                                   self.generator, critic_size).to(self.device)
        self._parameters = list(self.network.parameters())
        self.optimizer = torch.optim.Adam(self._parameters, self.ppo.learning_rate, eps=1e-5,
                                          fused=True)
        self._steps = steps_for(config.learner, self.network, self.optimizer,
                                str(Run(config.run_dir).logs) if config.run_dir else '')
        self.normalizer = RunningMoments(observation_size)
        self.pending_normalizer = self.normalizer.copy()
        self.critic_normalizer = RunningMoments(critic_size)
        self.pending_critic_normalizer = self.critic_normalizer.copy()
        self.value_scale = ScalarScale()
        self.learning_rate = self.ppo.learning_rate
        # Lowered whenever a state had to be restored after non-finite losses.
        self.learning_rate_scale = 1.0
        self.generation = 0
        self.policy_version = 0
        self.gradient_steps = 0
        self.env_steps = 0
        #: Transitions simulated in vain that count as training nevertheless (`train_local`).
        self.dropped_env_steps = 0
        self.bad_batches = 0
        self.signing_key: bytes | None = None
        #: Called after every gradient step; what it raises ends the update.
        self.after_gradient_step: Callable[[], None] = lambda: None
        self._history = PolicyHistory(HISTORY_SIZE)
        self._effective_share = 1.0

    @property
    def identity(self) -> Identity:
        """Of the policy as it is now."""
        return Identity(self.generation, self.policy_version)

    def update(self, chunks: Sequence[Chunk],
               should_stop: Callable[[], bool] = lambda: False,
               weights: Sequence[float] = ()) -> dict[str, float]:
        """
        Make all epochs over the transitions of some chunks.

        Parameters
        ----------
        chunks : sequence of Chunk
            Checked and admitted.
        should_stop : callable, optional
            Asked between gradient steps: True ends the update early, as a shorter one.
        weights : sequence of float, optional
            Of each chunk in the loss, relative to the others; none = all are equal.

        Returns
        -------
        dict from str to float
            Metrics of the update, by the names of `metrics.METRICS`.

        Raises
        ------
        BadBatch
            A sample, loss, gradient, weight or metric was not finite.  Nothing changed but the
            counters of transitions and of bad batches.
        RankError
            Another rank is gone, so there are no further updates.  Nothing changed but the
            counter of transitions.

        """
        before = self._undo_point()
        self._steps.begin_update()
        try:
            for chunk in chunks:
                _check_finite(chunk)
            segments = [self._segment(chunk)._replace(weight=weight) for chunk, weight
                        in zip(chunks, weights or (1.0,) * len(chunks), strict=True)]
            metrics = self._optimize(segments, should_stop)
            self._check_state()
        except BadBatch:
            self._undo(before)
            self.bad_batches += 1
            raise
        except RankError:
            self._undo(before)
            raise
        finally:
            self.env_steps += sum(chunk.transitions for chunk in chunks)
        if self.config.policy.normalize_observation:
            self.pending_normalizer.merge(raw_observations(chunks))
            self.pending_critic_normalizer.merge(raw_critic_observations(chunks))
        self.policy_version += 1
        return metrics

    def close(self) -> None:
        """Let the other ranks end, where there are any; no update follows."""
        self._steps.close()

    def snapshot(self) -> PolicySnapshot:
        """
        Give the policy as it is now, for publication.

        The statistics gathered since the last snapshot take effect here, in the learner and
        in everyone who receives the snapshot at once.
        """
        self.normalizer = self.pending_normalizer.copy()
        self.critic_normalizer = self.pending_critic_normalizer.copy()
        return self.mid_update_snapshot()

    def mid_update_snapshot(self) -> PolicySnapshot:
        """
        Give the policy as it is now, with the statistics of the last publication.

        Raises
        ------
        BadBatch
            In the midst of an update that goes wrong.

        """
        weights = self._policy_weights()
        if not bool(torch.isfinite(weights).all()):
            raise BadBatch('weights of the policy are not finite')
        self._history.remember(self.identity, self.gradient_steps,
                               PastPolicy(weights, self.normalizer))
        card = {
            'run_id': self.run_id, 'generation': self.generation,
            'policy_version': self.policy_version, 'gradient_steps': self.gradient_steps,
            'env_steps': self.env_steps, 'task': self.task,
            'architecture': self.architecture()}
        tensors = self.network.policy_tensors() | {
            'normalizer.mean': self.normalizer.mean,
            'normalizer.variance': self.normalizer.variance,
            'normalizer.count': np.array([self.normalizer.count])}
        if self.config.learner.value_source == 'actor':
            card['critic'] = self.critic_architecture()
            tensors |= self._critic_tensors()
        return PolicySnapshot.make(card, tensors, self.signing_key)

    def architecture(self) -> dict[str, Any]:
        """Give the card's entry that a reader rebuilds the network from."""
        policy = self.config.policy
        return {
            **self.network.distribution.card(),
            'hidden_sizes': list(policy.hidden_sizes), 'activation': policy.activation,
            'observation_clip': policy.observation_clip,
            'observation_size': len(self.normalizer.mean),
            'action_size': self.action_size}

    def critic_architecture(self) -> dict[str, Any]:
        """Give what the critic is rebuilt from, beside what it has in common with the policy."""
        return {'hidden_sizes': list(self.config.policy.critic_hidden_sizes),
                'critic_size': len(self.critic_normalizer.mean),
                'terms': [term['name'] for term in self.task.get('critic_observation', [])]}

    def _critic_tensors(self) -> dict[str, np.ndarray]:
        """Give all that actors need to say values in the unit of the return."""
        moments, scale = self.critic_normalizer, self.value_scale
        unit = (scale.mean, scale.std) if self.ppo.normalize_return else (0.0, 1.0)
        return self.network.critic_tensors() | {
            'critic.scale': np.array(unit), 'critic.normalizer.mean': moments.mean,
            'critic.normalizer.variance': moments.variance,
            'critic.normalizer.count': np.array([moments.count])}

    def _optimize(self, segments: Sequence[Segment],
                  should_stop: Callable[[], bool]) -> dict[str, float]:
        batch = join(segments)
        estimates = self._estimate(segments)
        self._follow_returns(estimates.value_target)
        proximal, metrics = self._before_first_step(batch)
        metrics |= self._what_lag_did(segments)
        metrics['explained_variance'] = losses.explained_variance(estimates.value,
                                                                  estimates.value_target)
        reference, weight = self._reference(batch, proximal)
        samples = self._samples(batch, estimates, reference, weight)
        rows: list[list[float]] = []
        epochs, kl = 0, 0.0
        # A look at the whole batch takes as long as some gradient steps.
        steered = self.ppo.schedule == 'adaptive' or self.ppo.target_kl > 0.0
        for epoch in range(self.ppo.epochs):
            if epoch and (should_stop() or 0.0 < self.ppo.target_kl < kl):
                break
            if epoch and self.ppo.recompute_advantages:
                samples = self._samples(batch, self._estimate(segments), reference, weight)
            rows += self._epoch(samples, should_stop, first=not epoch)
            epochs += 1
            if steered:
                kl = self._kl_from(proximal, batch)
                self._adapt_learning_rate(kl)
        if not steered:
            kl = self._kl_from(proximal, batch)
        means = np.mean(rows, axis=0).tolist()
        metrics |= dict(zip(STEP_NUMBERS[:-1], means))
        log_std = self.network.clamped_log_std().detach()
        if len(log_std):
            metrics['log_std_mean'] = float(log_std.mean())
        metrics |= {'kl': kl, 'epochs': float(epochs), 'learning_rate': self._step_size()}
        metrics |= self._steps.measured()
        _check_numbers(metrics)
        return metrics

    def _epoch(self, samples: Samples, should_stop: Callable[[], bool],
               first: bool) -> list[list[float]]:
        """
        Make the gradient steps of one epoch and give the `STEP_NUMBERS` of each.

        They are read at its end: a look at each would let a GPU wait for Python.
        """
        numbers: list[Tensor] = []
        order = torch.randperm(len(samples.action), generator=self.generator)
        for minibatch in self._steps.minibatches(samples, order):
            if not (first and not numbers) and should_stop():
                break
            numbers.append(self._gradient_step(minibatch))
        rows = torch.stack(numbers).tolist() if numbers else []
        for row in rows:
            _check_numbers(dict(zip(STEP_NUMBERS, row)))
        return rows

    def _segment(self, chunk: Chunk) -> Segment:
        return Segment(chunk, self.policy_version - chunk.policy_version,
                       self._normalized(chunk.observation),
                       self._normalized(chunk.final_observation),
                       self._normalized(chunk.critic_observation, self.critic_normalizer),
                       self._normalized(chunk.final_critic_observation, self.critic_normalizer))

    def _estimate(self, segments: Sequence[Segment]) -> Estimates:
        settings = self.config.learner
        return estimate(segments, None if settings.value_source == 'actor' else self._values,
                        settings.discount, settings.gae_lambda,
                        self._ratios if settings.advantage == 'vtrace' else None,
                        settings.vtrace_max_ratio)

    def _samples(self, batch: Transitions, estimates: Estimates, reference: Tensor,
                 weight: Tensor) -> Samples:
        advantage = estimates.advantage
        if self.ppo.normalize_advantage:
            advantage = _normalized_advantage(advantage)
        return Samples(batch.observation, batch.critic_observation, batch.action, reference,
                       weight * advantage, self._critic_target(estimates.value_target), batch.lag,
                       batch.weight)

    def _gradient_step(self, samples: Samples) -> Tensor:
        """Make one step of the optimizer and give its `STEP_NUMBERS`."""
        ppo = self.ppo
        numbers = self._steps.step(samples, Scheduled(
            ppo.clip_ratio * self._schedule(ppo.clip_schedule),
            ppo.entropy_coefficient * self._schedule(ppo.entropy_schedule), self._step_size()))
        self.gradient_steps += 1
        self.after_gradient_step()
        return numbers

    @torch.no_grad()
    def _before_first_step(self, batch: Transitions) -> tuple[Tensor, dict[str, float]]:
        """Give the proximal policy's parameters [M, P] and what lag alone has done."""
        proximal = self.network.parameters_of(batch.observation)
        difference = (self.network.distribution.log_prob(proximal, batch.action)
                      - batch.behaviour_log_prob)
        if not bool(torch.isfinite(difference).all()):
            raise BadBatch('log ratio before the first gradient step is not finite')
        share = float(losses.effective_sample_share(difference))
        self._effective_share = share if self.ppo.ess_learning_rate else 1.0
        size = difference.abs()
        return proximal, {
            'first_abs_log_ratio_max': float(size.max()),
            'first_abs_log_ratio_mean': float(size.mean()),
            'effective_sample_share': share,
            'behaviour_kl': float(self.network.distribution.kl(
                batch.behaviour_parameters, proximal).mean()),
            'ratio_max': float(torch.exp(difference.clamp(max=losses.MAX_LOG_RATIO)).max())}

    @torch.no_grad()
    def _what_lag_did(self, segments: Sequence[Segment]) -> dict[str, float]:
        """
        Split |log ratio| before the first step into what weights and what the normalizer did.

            log π_now(u|s) - log μ(u|s) = [π_now with μ's normalizer - μ] + [π_now - that]

        Nothing is said of a chunk whose policy is not remembered.
        """
        now = self._policy_weights()
        by_weights, by_normalizer, distances = [], [], []
        for segment in segments:
            chunk, past = segment.chunk, self._history.of(segment.chunk)
            if past is None:
                continue
            rows = _spread_rows(chunk.transitions, MOST_LOOKED_AT // len(segments))
            raw = chunk.observation[:-1].reshape(-1, chunk.observation.shape[-1])[rows]
            behaviour, action = (
                on_device(array.reshape(-1, *array.shape[2:])[rows], self.device)
                for array in (chunk.behaviour_log_prob, chunk.action))
            old, new = (self.network.distribution.log_prob(
                self.network.parameters_of(self._normalized(raw, normalizer)), action)
                for normalizer in (past.normalizer, self.normalizer))
            by_weights.append((old - behaviour).abs().mean())
            by_normalizer.append((new - old).abs().mean())
            distances.append((now - past.weights).norm())
        if not distances:
            return {}
        return {name: float(torch.stack(values).mean()) for name, values in (
            ('weight_lag_log_ratio', by_weights), ('normalizer_drift_log_ratio', by_normalizer),
            ('parameter_distance', distances))}

    @torch.no_grad()
    def _reference(self, batch: Transitions, proximal: Tensor) -> tuple[Tensor, Tensor]:
        """Give what the ratio is taken to, log-probs [M], and the weights of samples [M]."""
        if self.ppo.objective != 'decoupled':
            return batch.behaviour_log_prob, torch.ones_like(batch.behaviour_log_prob)
        proximal_log_prob = self.network.distribution.log_prob(proximal, batch.action)
        # A positive weight scales every branch of the objective alike, so it may go into the
        # advantage.
        return proximal_log_prob, losses.behaviour_weight(
            proximal_log_prob, batch.behaviour_log_prob, self.ppo.max_behaviour_weight)

    @torch.no_grad()
    def _kl_from(self, proximal: Tensor, batch: Transitions) -> float:
        """Give the mean KL(proximal ‖ current): lag has no part in it."""
        current = self.network.parameters_of(batch.observation)
        return float(self.network.distribution.kl(proximal, current).mean())

    def _follow_returns(self, value_target: Tensor) -> None:
        """Let the unit of the critic follow the value targets of a batch, [M]."""
        if not self.ppo.normalize_return:
            return
        scale = self.value_scale
        old_mean, old_std = scale.mean, scale.std
        scale.merge(value_target.cpu().numpy())
        self.network.rescale_value(old_mean, old_std, scale.mean, scale.std)

    def _critic_target(self, value_target: Tensor) -> Tensor:
        """Give the value targets in the unit of the critic, [M]."""
        if not self.ppo.normalize_return:
            return value_target
        return (value_target - self.value_scale.mean) / self.value_scale.std

    def _adapt_learning_rate(self, kl: float) -> None:
        if self.ppo.schedule != 'adaptive':
            return
        low, high = LEARNING_RATE_RANGE
        if kl > 2.0 * self.ppo.desired_kl:
            self.learning_rate = max(low, self.learning_rate / LEARNING_RATE_STEP)
        elif kl < 0.5 * self.ppo.desired_kl:
            self.learning_rate = min(high, self.learning_rate * LEARNING_RATE_STEP)

    def _step_size(self) -> float:
        """Give the learning rate with everything that scales it."""
        if self.ppo.schedule == 'linear':
            self.learning_rate = self.ppo.learning_rate * self._schedule('linear')
        warmup = min(1.0, (self.env_steps + 1) / max(1, self.ppo.warmup_steps))
        return self.learning_rate * self.learning_rate_scale * warmup * self._effective_share

    def _schedule(self, kind: str) -> float:
        """Give the factor of a schedule, 1 at the start."""
        if kind != 'linear':
            return 1.0
        return max(0.0, 1.0 - (self.env_steps + self.dropped_env_steps) / self.config.env_steps)

    def _policy_weights(self) -> Tensor:
        """Give all parameters of the policy, float32 [W]."""
        with torch.no_grad():
            return torch.cat([parameter.flatten() for parameter in
                              (*self.network.policy.parameters(), self.network.log_std)])

    def _normalized(self, observation: np.ndarray,
                    normalizer: RunningMoments | None = None) -> Tensor:
        moments = normalizer or self.normalizer
        shift, scale = normalizer_arrays(moments.mean, moments.variance, moments.count)
        clip = np.float32(self.config.policy.observation_clip)
        normalized = np.clip((observation - shift) * scale, -clip, clip)
        return on_device(normalized, self.device)

    @torch.no_grad()
    def _values(self, observation: Tensor, critic_observation: Tensor) -> np.ndarray:
        value = self.network.value(observation, critic_observation)
        if self.ppo.normalize_return:
            value = value * self.value_scale.std + self.value_scale.mean
        return value.cpu().numpy()

    @torch.no_grad()
    def _ratios(self, segment: Segment) -> np.ndarray:
        """Give current over behaviour policy for every step of a chunk, float32 [T, N]."""
        chunk = segment.chunk
        log_prob = self.network.distribution.log_prob(
            self.network.parameters_of(segment.observation[:-1]),
            on_device(np.ascontiguousarray(chunk.action), self.device))
        behaviour = on_device(chunk.behaviour_log_prob.copy(), self.device)
        return torch.exp(losses.log_ratio(log_prob, behaviour)).cpu().numpy()

    def _check_state(self) -> None:
        """Refuse what a step made of finite gradients: it may be too long all the same."""
        slots = self.optimizer.state.values()
        tensors = [*self._parameters, *(slot[name] for slot in slots
                                        for name in ('exp_avg', 'exp_avg_sq'))]
        whole = torch.cat([tensor.detach().flatten() for tensor in tensors])
        if not bool(torch.isfinite(whole).all()):
            raise BadBatch('weights or moments of the optimizer are not finite after the update')

    def _undo_point(self) -> tuple[Any, ...]:
        optimizer = self.optimizer.state_dict()
        # A deep copy takes ten times as long.
        optimizer['state'] = {index: _cloned(slot) for index, slot in optimizer['state'].items()}
        return (_cloned(self.network.state_dict()), optimizer, copy.copy(self.value_scale),
                self.gradient_steps, self.learning_rate)

    def _undo(self, point: tuple[Any, ...]) -> None:
        network, optimizer, self.value_scale, self.gradient_steps, self.learning_rate = point
        self.network.load_state_dict(network)
        self.optimizer.load_state_dict(optimizer)


def _cloned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _check_finite(chunk: Chunk) -> None:
    """Refuse what came past the check of messages, as it does within one process."""
    for name, dtype, _ in ARRAYS:
        if dtype == '<f4' and not np.isfinite(getattr(chunk, name)).all():
            raise BadBatch(f'{name} of chunk {chunk.sequence} of actor {chunk.actor_id} has a '
                           'NaN or an infinity')


def _check_numbers(numbers: Mapping[str, float]) -> None:
    bad = [f'{name} = {value}' for name, value in numbers.items() if not math.isfinite(value)]
    if bad:
        raise BadBatch(', '.join(bad))


def _normalized_advantage(advantage: Tensor) -> Tensor:
    return (advantage - advantage.mean()) / (advantage.std(unbiased=False) + 1e-8)


def _spread_rows(count: int, most: int) -> np.ndarray:
    """Give up to `most` indices below `count`, evenly spread."""
    return np.linspace(0, count - 1, min(count, max(1, most)), dtype=np.int64)


def _device(name: str) -> torch.device:
    if name == 'auto':
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    if name == 'cuda' and not torch.cuda.is_available():
        from asyncppo_ros.errors import ConfigError
        raise ConfigError('learner.device = cuda: torch finds no CUDA GPU; use auto or cpu')
    return torch.device(name)
