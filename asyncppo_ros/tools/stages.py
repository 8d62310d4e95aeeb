"""
Measure the stages of a training, one after the other, in this process.

What is measured is what runs in a training: the environments of the task under a rollout, its
exploration, a chunk sender with a receiver behind it, and a learner.
"""

from collections.abc import Callable
import dataclasses
import math
import time
from typing import Any

import numpy as np

from asyncppo_ros.acting.rollout import layout_of, Rollout, sends_values, Stamp
from asyncppo_ros.chunk import INTEGERS, Layout
from asyncppo_ros.config import Config
from asyncppo_ros.learning.batcher import Batcher
from asyncppo_ros.learning.books import Books
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.robot.actions import choices_of
from asyncppo_ros.simulation.environment import critic_rows, Environment
from asyncppo_ros.simulation.registry import make
from asyncppo_ros.tools.made_up_chunks import made_up_chunk
from asyncppo_ros.tools.stopwatch import Stopwatch, ThreadClock
from asyncppo_ros.tools.throughput import Cost, NOTHING
from asyncppo_ros.transport.admission import Session
from asyncppo_ros.transport.chunk_sender import ChunkSender
from asyncppo_ros.transport.intake import Intake
from asyncppo_ros.transport.keys import actor_keys, learner_keys
from asyncppo_ros.transport.messages import hello
from asyncppo_ros.transport.payload import ChunkBuffer
from asyncppo_ros.transport.permits import UnpacedPermitBook
from asyncppo_ros.transport.receiver import ZmqChunkReceiver
from asyncppo_ros.transport.sender import ZmqChunkSender
from asyncppo_ros.transport.zeromq import connectable

# Arrays of a chunk that a rollout fills.
WRITTEN = ('observation', 'critic_observation', 'action', 'behaviour_log_prob',
           'behaviour_parameters', 'value', 'reward', 'terminated', 'truncated')
# How the policy that acts is known here.
_RUN_ID = 1
_CONNECT_S = 20.0
# An update that is ended early makes so many gradient steps: the first is not as the others.
_FEWEST_STEPS = 4
# Between two looks for a chunk that is on its way.
_LOOK_S = 0.0002


class TimedEnvironment:
    """An environment whose steps are measured; all else is that of the one within."""

    def __init__(self, environment: Environment, watch: Stopwatch) -> None:
        self._environment = environment
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def step(self, action: np.ndarray, out: np.ndarray) -> Any:
        """Make one control step."""
        with self._watch('physics'):
            return self._environment.step(action, out)


class ActorStages:
    """
    One actor, its environments, and a receiver that takes its chunks.

    Parameters
    ----------
    config : Config
    policy : PolicySnapshot
        Acts.
    num_envs : int
    wrap_sender : callable, optional
        Is given the sender; gives the one that is used.

    """

    def __init__(self, config: Config, policy: PolicySnapshot, num_envs: int,
                 wrap_sender: Callable[[ChunkSender], ChunkSender] = lambda sender: sender
                 ) -> None:
        self._policy = policy
        self._watch = Stopwatch()
        self._environment = make(config.task, num_envs, config.seed,
                                 random_episode_start=config.actor.random_episode_start,
                                 randomization=config.randomization,
                                 privileged=config.policy.privileged_critic)
        timed: Any = TimedEnvironment(self._environment, self._watch)
        self._rollout = Rollout(timed, config.actor.chunk_length, config.seed,
                                sends_values(config))
        self._link = Link(config, self._rollout.layout, num_envs, policy)
        self._sender = wrap_sender(self._link.sender)
        self._chunk = made_up_chunk(
            self._rollout.layout, config.actor.chunk_length, num_envs, np.random.default_rng(0),
            choices_of(self._environment.describe()['action']))

    def measure(self, seconds: float) -> dict[str, Cost]:
        """
        Collect for about so long, then send for a quarter of that.

        A chunk is cut short when the time is over; those that are sent are whole ones.

        Returns
        -------
        dict from str to Cost
            Per transition: physics, inference, sending and receiving, as `Costs` has them.

        """
        self._watch.clear()
        acted = self._act(self._watch.clock.after(seconds))
        sent, receiving = self._transport(self._watch.clock.after(seconds / 4.0))
        spent = self._watch
        within = spent.of('physics') + spent.of('poll') + spent.of('look')
        return {'physics': spent.of('physics').times(1.0 / acted),
                # All that a rollout does beside the steps is for the policy.
                'inference': spent.of('collect').since(within).times(1.0 / acted),
                'sending': spent.of('poll').times(1.0 / acted)
                + spent.of('send').times(1.0 / sent),
                'receiving': receiving.times(1.0 / sent)}

    def close(self) -> None:
        """Free everything."""
        self._link.close()
        self._environment.close()
        self._watch.clock.close()

    def _act(self, over: Callable[[], bool]) -> int:
        """Collect chunks, which nobody takes; give the number of transitions."""
        sender, watch = self._sender, self._watch

        def cut() -> bool:
            with watch('poll'):
                sender.poll()
            with watch('look'):
                return over()

        acted = 0
        while not (acted and over()):
            with watch('collect'):
                chunk = self._rollout.collect(self._policy, self._stamp(), cut)
            acted += chunk.transitions if chunk is not None else 0
        return acted

    def _transport(self, over: Callable[[], bool]) -> tuple[int, Cost]:
        """Write, send and take chunks; give the number of transitions, and what taking costs."""
        chunk, layout, sender = self._chunk, self._rollout.layout, self._sender
        steps, num_envs = chunk.reward.shape
        every_thread, this_thread = time.process_time(), time.thread_time()
        sent = 0
        while not (sent and over()):
            with self._watch('send'):
                buffer = ChunkBuffer(layout, steps, num_envs, sender.buffer())
                for name in WRITTEN:
                    getattr(buffer, name)[...] = getattr(chunk, name)
                sender.send(buffer.finish(
                    {**dict.fromkeys(INTEGERS, 0), **self._stamp()._asdict(),
                     **self._policy.identity._asdict()}, chunk.final_observation,
                    chunk.final_index, chunk.episodes, steps, chunk.final_critic_observation,
                    chunk.final_value))
            sender.ledger.stepped(chunk.transitions)
            self._link.take()
            sent += chunk.transitions
        others = max(0.0, time.process_time() - every_thread - time.thread_time() + this_thread)
        return sent, Cost(others, others)

    def _stamp(self) -> Stamp:
        sender = self._sender
        return Stamp(sender.run_id, *sender.source, sender.next_sequence)


class Link:
    """
    A chunk sender, and a receiver in a thread of this process, as a learner has it.

    Attributes
    ----------
    sender : ZmqChunkSender

    """

    def __init__(self, config: Config, layout: Layout, num_envs: int,
                 policy: PolicySnapshot) -> None:
        transport = config.transport
        self._identity = policy.identity
        session = Session(_RUN_ID, layout, '', transport.heartbeat_s, 3600.0,
                          rings=transport.kind != 'zmq')
        # Each chunk is a batch, which is taken at once.
        self._intake = Intake(session, UnpacedPermitBook(1, 0, policy.identity), Batcher(1, 0),
                              Books(None, None))
        self._receiver = ZmqChunkReceiver(self._intake, 'tcp://127.0.0.1:*', False,
                                          learner_keys(transport.keys))
        self._receiver.start()
        self._intake.published(policy.identity, policy.data)
        self.sender = ZmqChunkSender(
            connectable(self._receiver.address),
            hello(0, layout, num_envs, config.actor.chunk_length), actor_keys(transport.keys),
            transport.kind)
        if not self.sender.connect(_CONNECT_S):
            raise RuntimeError(f'no answer at {self._receiver.address} in {_CONNECT_S:g} s')

    def take(self) -> None:
        """Wait for the chunk that was sent, and let it go."""
        while self._intake.next_batch(self._identity, 0, 0.0) is None:
            self.sender.poll()
            time.sleep(_LOOK_S)
        self._intake.updated(self._identity.policy_version)

    def close(self) -> None:
        """Close both ends."""
        self.sender.close()
        self._receiver.close()


class LearnerStage:
    """
    A learner that is given made-up chunks.

    Parameters
    ----------
    config : Config

    """

    def __init__(self, config: Config) -> None:
        # Torch is needed only where there is a learner.
        from asyncppo_ros.learning.learner import Learner
        environment = make(config.task, 1, config.seed, randomization=config.randomization,
                           privileged=config.policy.privileged_critic)
        task, self._layout = environment.describe(), layout_of(environment, sends_values(config))
        critic_size = critic_rows(environment).shape[1]
        environment.close()
        self._config = config
        self._choices = choices_of(task['action'])
        self._learner = Learner(config, task, self._layout.observation_size,
                                self._layout.action_size, _RUN_ID, critic_size)
        # Made-up chunks move a policy anywhere: that is no reason to make fewer epochs.
        self._learner.ppo = dataclasses.replace(config.learner.ppo, target_kl=0.0)
        self._chunks: dict[int, list[Any]] = {}
        self._clock = ThreadClock()

    def close(self) -> None:
        """Free what it holds."""
        self._clock.close()

    def snapshot(self) -> PolicySnapshot:
        """Give its policy."""
        return self._learner.snapshot()

    def measure(self, seconds: float, batch_size: int = 0) -> Cost:
        """
        Make updates for about so long, at least one.

        Parameters
        ----------
        seconds : float
            An update that takes longer is ended early; what is missing of it is taken to cost
            what its gradient steps did on average.
        batch_size : int
            0 = that of the settings.

        Returns
        -------
        Cost
            Per transition.

        """
        chunks = self._chunks_of(batch_size or self._config.learner.batch_size)
        transitions = sum(chunk.transitions for chunk in chunks)
        over = self._clock.after(seconds)
        total, count = NOTHING, 0
        while not (count and over()):
            total += self._update(chunks, transitions, over)
            count += 1
        return total.times(self._config.learner.slowdown / (count * transitions))

    def _update(self, chunks: list[Any], transitions: int, over: Callable[[], bool]) -> Cost:
        learner = self._learner
        needed = learner.ppo.epochs * math.ceil(transitions / learner.ppo.minibatch_size)
        stamps: list[Cost] = []

        def now() -> Cost:
            return Cost(self._clock.now().wall_s, time.process_time())

        learner.after_gradient_step = lambda: stamps.append(now())
        begun = now()
        learner.update(chunks, lambda: len(stamps) >= _FEWEST_STEPS and over())
        learner.snapshot()
        spent = now().since(begun)
        missing = needed - len(stamps)
        if missing <= 0:
            return spent
        first = stamps[0] if len(stamps) > 1 else begun
        steps = stamps[-1].since(first).times(1.0 / max(1, len(stamps) - 1))
        return spent + steps.times(missing)

    def _chunks_of(self, batch_size: int) -> list[Any]:
        if batch_size not in self._chunks:
            # As many environments as there are in a large chunk: what they are does not matter.
            steps = min(self._config.actor.chunk_length, batch_size)
            num_envs = min(max(1, self._config.actor.num_envs), batch_size // steps)
            rng = np.random.default_rng(0)
            self._chunks[batch_size] = [
                made_up_chunk(self._layout, steps, num_envs, rng, self._choices)
                for _ in range(max(1, batch_size // (steps * num_envs)))]
        return self._chunks[batch_size]
