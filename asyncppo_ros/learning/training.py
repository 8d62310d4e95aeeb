"""Training: batches in, policies, metrics and checkpoints out.  No ROS and no sockets."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
import math
import time
from typing import Any, Protocol

from asyncppo_ros.chunk import Identity
from asyncppo_ros.config import Config
from asyncppo_ros.errors import ArtefactError, RunError
from asyncppo_ros.learning.batcher import ConsumedChunks
from asyncppo_ros.learning.checkpoint import load_checkpoint, save_checkpoint
from asyncppo_ros.learning.lag_metrics import ChunkLog, lag_row
from asyncppo_ros.learning.learner import BadBatch, Learner
from asyncppo_ros.learning.metrics import EpisodeWindow, MetricsWriter
from asyncppo_ros.learning.milestones import Milestones
from asyncppo_ros.policy.snapshot import PolicySnapshot
from asyncppo_ros.run import replace_file, Run

# The rate that is shown is that of the last seconds, not of the whole run.
RATE_WINDOW_S = 5.0
# Policies are kept on disk no faster than this: publication may run at many Hz.
POLICY_FILE_S = 1.0
# After a checkpoint that could not be written the next one is tried so soon.
CHECKPOINT_AGAIN_S = 5.0
# What goes on failing is told again after this time.
TELL_AGAIN_S = 10.0
# Each restore after non-finite losses divides the step size by this.
RESTORE_DIVISOR = 3.0


class Source(Protocol):
    """Where batches come from and what it must be told: `transport.intake.Intake`."""

    def next_batch(self, current: Identity, gradient_steps: int,
                   timeout: float) -> ConsumedChunks | None:
        """Take the next batch."""

    def updated(self, version: int) -> None:
        """Report the end of an update."""

    def published(self, identity: Identity, data: bytes | None = None) -> None:
        """Report a publication, with the bytes for those who ask for them."""

    def restored(self, identity: Identity) -> None:
        """Report that an older state was restored."""

    def flow(self) -> Mapping[str, float]:
        """Give the flow metrics: actors, chunks and transitions, waits of actors."""

    def books(self) -> Mapping[str, Any]:
        """Write the books into the run, and give them, JSON types, for the checkpoint."""


class Publisher(Protocol):
    """Where policies go: a PolicyChannel."""

    def publish(self, data: bytes, identity: Identity) -> None:
        """Make a policy the newest one."""


class Outages(dict[str, str]):
    """
    What fails at this time, by name, such as a full disk; told when it begins and when it ends.

    While the disk is full the log may not be written either, so the end tells what was.

    Parameters
    ----------
    warn : callable
        Takes one line for people.
    clock : callable
        Monotonic time [s].

    """

    def __init__(self, warn: Callable[[str], None],
                 clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._warn = warn
        self._clock = clock
        self._since: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._count: Counter[str] = Counter()

    def failed(self, name: str, text: str) -> None:
        """Note a failure; `text` says in one line what and why."""
        now = self._clock()
        self[name] = text
        self._since.setdefault(name, now)
        self._count[name] += 1
        if now - self._told.get(name, -math.inf) >= TELL_AGAIN_S:
            self._told[name] = now
            self._warn(text)

    def worked(self, name: str, what: str) -> None:
        """Note that it works, which ends an outage."""
        if name not in self:
            return
        text = self.pop(name)
        duration = self._clock() - self._since.pop(name)
        self._told.pop(name, None)
        self._warn(f'{what} are written again after {self._count.pop(name)} failures in '
                   f'{duration:.0f} s, which were: {text}')


class Training:
    """
    Drives a learner until its steps are done or it is asked to stop.

    Parameters
    ----------
    config : Config
    run : Run
        Locked by this process.
    learner : Learner
    source : Source
    publisher : Publisher
    writers : sequence of MetricsWriter
        Receive one row per update.
    warn : callable
        Told in one line what the user should know.
    elapsed_s : float
        Training time before this generation [s].

    """

    def __init__(self, config: Config, run: Run, learner: Learner, source: Source,
                 publisher: Publisher, writers: Sequence[MetricsWriter],
                 warn: Callable[[str], None], elapsed_s: float = 0.0) -> None:
        self.config = config
        self.run = run
        self.learner = learner
        self.writers = writers
        self.row: dict[str, Any] = {}
        self.policy_bytes = 0
        self._snapshot: PolicySnapshot | None = None
        self._milestones = Milestones(run, config.learner.milestones)
        self._chunk_log = ChunkLog(run.chunks_file) if config.learner.log_chunks else None
        self._source = source
        self._publisher = publisher
        self._warn = warn
        self._begun = time.monotonic() - elapsed_s
        self._episodes = EpisodeWindow()
        self._rate: deque[tuple[float, int]] = deque([(time.monotonic(), learner.env_steps)])
        self._published = Identity(learner.generation, -1)
        self._published_at = -1e9
        self._policy_file_at = -1e9
        self._checkpoint_due = time.monotonic() + config.learner.checkpoint_seconds
        self._waiting_since = time.monotonic()
        self._bad_in_a_row = 0
        #: What goes wrong at this time, by what it concerns: for people, training goes on.
        self.outages = Outages(warn)

    @property
    def elapsed_s(self) -> float:
        """Training time of the run, over all generations [s]."""
        return time.monotonic() - self._begun

    @property
    def done(self) -> bool:
        """Say whether all steps were consumed."""
        return self.learner.env_steps >= self.config.env_steps

    def step(self, timeout: float, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """
        Make one update, or wait up to `timeout` [s] for a batch.

        Returns
        -------
        bool
            An update was made.

        """
        self.publish_if_due()
        batch = self._source.next_batch(self.learner.identity, self.learner.gradient_steps,
                                        min(timeout, self._until_due()))
        if batch is None:
            self._checkpoint_if_due()
            return False
        begun = time.monotonic()
        waited = begun - self._waiting_since
        for chunk in batch.chunks:
            self._episodes.add(chunk.episodes)
        try:
            metrics = self.learner.update(batch.chunks, should_stop, batch.weights)
            self._slow_down(time.monotonic() - begun, should_stop)
        except BadBatch as error:
            self._refuse(batch, error)
            return False
        finally:
            self._source.updated(self.learner.policy_version)
            self._waiting_since = time.monotonic()
        self._bad_in_a_row = 0
        self.publish_if_due()
        self._write(metrics, batch, waited, time.monotonic() - begun)
        self._checkpoint_if_due()
        return True

    def _slow_down(self, update_time: float, should_stop: Callable[[], bool]) -> None:
        """Lengthen an update of `update_time` [s] by the setting ``learner.slowdown``."""
        end = time.monotonic() + update_time * (self.config.learner.slowdown - 1.0)
        while (rest := end - time.monotonic()) > 0.0 and not should_stop():
            time.sleep(min(rest, 0.05))

    def publish_if_due(self, force: bool = False) -> None:
        """Publish when the version changed and a trigger fires (DESIGN section 6)."""
        if self._published == self.learner.identity or not (force or self._until_due() <= 0.0):
            return
        snapshot = self._snapshot = self.learner.snapshot()
        self._publisher.publish(snapshot.data, snapshot.identity)
        self._published, self._published_at = snapshot.identity, time.monotonic()
        self.policy_bytes = len(snapshot.data)
        # After the publication: who hears of a policy finds it on the topic.
        self._source.published(snapshot.identity, snapshot.data)
        self._keep_milestone(snapshot)
        if self._published_at - self._policy_file_at >= POLICY_FILE_S:
            self._keep(snapshot)

    def publish_last(self) -> None:
        """Publish what is not published yet, and make it the run's policy file."""
        self.publish_if_due(force=True)
        if self._snapshot is not None:
            self._keep(self._snapshot)

    def save(self) -> None:
        """Write a checkpoint; a full disk is told, and training goes on."""
        self._checkpoint_due = time.monotonic() + self.config.learner.checkpoint_seconds
        try:
            save_checkpoint(self.run.checkpoint, self.learner,
                            {'elapsed_s': self.elapsed_s, 'books': self._source.books()})
        except (OSError, ArtefactError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self.outages.failed('checkpoint', f'NO CHECKPOINT WRITTEN to {self.run.checkpoint}: '
                                f'{why}; the last good one is intact and training '
                                'goes on')
            self._checkpoint_due = min(self._checkpoint_due,
                                       time.monotonic() + CHECKPOINT_AGAIN_S)
        else:
            self.outages.worked('checkpoint', 'checkpoints')

    def _until_due(self) -> float:
        """Give the time until the next publication may be due [s]; inf = nothing to publish."""
        settings = self.config.learner
        if self._published == self.learner.identity:
            return float('inf')
        age = time.monotonic() - self._published_at
        behind = self.learner.policy_version - self._published.policy_version
        changed = self._published.generation != self.learner.generation
        wait = 0.0 if changed or behind >= settings.publish_updates else settings.publish_seconds
        return max(wait, 1.0 / settings.publish_max_hz) - age

    def _refuse(self, batch: ConsumedChunks, error: BadBatch) -> None:
        self._bad_in_a_row += 1
        senders = sorted({chunk.source.actor_id for chunk in batch.chunks})
        self._warn(f'update {self.learner.policy_version + 1} refused and undone, chunks of '
                   f'actors {senders}: {error}')
        if self._bad_in_a_row < self.config.learner.max_bad_batches:
            return
        self._bad_in_a_row = 0
        steps, scale = self.learner.env_steps, self.learner.learning_rate_scale
        bad, generation = self.learner.bad_batches, self.learner.generation
        try:
            load_checkpoint(self.run.checkpoint, self.learner)
            what = 'restored the last good checkpoint as'
        except RunError as error:
            # Refused batches are undone, so the state at hand is a good one, too.
            what = f'nothing to restore ({error}); what was before them goes on as'
        # What was consumed stays consumed, and a generation is never used twice.
        self.learner.env_steps, self.learner.bad_batches = steps, bad
        self.learner.generation = generation + 1
        self.learner.learning_rate_scale = scale / RESTORE_DIVISOR
        self._source.restored(self.learner.identity)
        self._warn(f'{what} generation {self.learner.generation}, step size divided by '
                   f'{RESTORE_DIVISOR:g}')

    def _checkpoint_if_due(self) -> None:
        if time.monotonic() >= self._checkpoint_due:
            self.save()

    def _keep(self, snapshot: PolicySnapshot) -> None:
        """Put the published bytes into the run's folder, and remove the oldest of them."""
        self._policy_file_at = time.monotonic()
        name = (f'policy-g{snapshot.identity.generation:03d}'
                f'-v{snapshot.identity.policy_version:06d}.safetensors')
        try:
            for path in (self.run.policies / name, self.run.policy_file):
                replace_file(path, snapshot.data)
            kept = sorted(self.run.policies.glob('policy-*.safetensors'))
            for path in kept[:-self.config.learner.keep_policies]:
                path.unlink()
        except OSError as error:
            self.outages.failed('policy', f'POLICY NOT KEPT in {self.run.policies}: '
                                f'{error.strerror}; it was published and training goes on')
        else:
            self.outages.worked('policy', 'policy files')

    def _keep_milestone(self, snapshot: PolicySnapshot) -> None:
        if not self._milestones.due(snapshot.env_steps):
            return
        try:
            self._milestones.keep(snapshot)
        except OSError as error:
            self.outages.failed('milestone', f'MILESTONE NOT KEPT in {self.run.policies}: '
                                f'{error.strerror}; the next policy is tried')
        else:
            self.outages.worked('milestone', 'milestones')

    def _write(self, metrics: dict[str, float], batch: ConsumedChunks, waited: float,
               update_time: float) -> None:
        learner = self.learner
        self.row = {
            'env_steps': learner.env_steps, 'policy_version': learner.policy_version,
            'gradient_steps': learner.gradient_steps, 'generation': learner.generation,
            'time_s': self.elapsed_s, 'env_steps_per_s': self._steps_per_s(),
            **self._episodes.row(), **metrics,
            **lag_row(batch),
            'learner_wait': waited / (waited + update_time), 'update_time': update_time,
            'bad_batches': learner.bad_batches, 'policy_bytes': self.policy_bytes,
            **self._source.flow()}
        for writer in self.writers:
            self._keep_metrics(type(writer).__name__, writer.write, self.row)
        if self._chunk_log is not None:
            self._keep_metrics('ChunkLog', self._chunk_log.write, self.row['time_s'],
                               batch.measured)

    def _keep_metrics(self, name: str, write: Callable[..., None], *what: Any) -> None:
        try:
            write(*what)
        except OSError as error:
            self.outages.failed(name, f'METRICS NOT WRITTEN by {name}: {error.strerror}; '
                                'training goes on')
        else:
            self.outages.worked(name, f'metrics ({name})')

    def _steps_per_s(self) -> float:
        now = time.monotonic()
        self._rate.append((now, self.learner.env_steps))
        while len(self._rate) > 2 and now - self._rate[0][0] > RATE_WINDOW_S:
            self._rate.popleft()
        then, steps = self._rate[0]
        return (self.learner.env_steps - steps) / max(now - then, 1e-9)
