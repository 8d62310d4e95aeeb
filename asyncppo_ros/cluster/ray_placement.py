"""One actor as a Ray actor."""

import time
from typing import Any

import ray

from asyncppo_ros.cluster.ray_actors import Fault, Gone, Unavailable
from asyncppo_ros.cluster.ray_worker import Answer, Collector

# Each process is asked for a sign of life this often.
ASK_S = 0.5


class RayPlacement:
    """
    A `Placement` by Ray.

    Ray restarts a process that died for as long as it takes: how often is enough is decided by
    `ray_actors.Actor`, which forgets what is long ago.

    Parameters
    ----------
    arguments : tuple
        Of `Collector`.
    num_cpus : float
        What the actor asks the cluster for; one waits until there is so much.
    resources : dict from str to float
        What else it asks for.

    """

    def __init__(self, arguments: tuple[Any, ...], num_cpus: float,
                 resources: dict[str, float]) -> None:
        # One thread collects, the other answers.
        remote = ray.remote(num_cpus=num_cpus, resources=resources, max_restarts=-1,
                            max_concurrency=2)(Collector)
        self._handle = remote.remote(*arguments)
        self._question: Any = None
        self._asked_at = 0.0
        self._loop: Any = None

    def answer(self) -> Answer | None:
        """Give the newest sign of life, once."""
        now = time.monotonic()
        if self._question is None:
            if now - self._asked_at >= ASK_S:
                self._asked_at, self._question = now, self._handle.answer.remote()
            return None
        if not _is_ready(self._question):
            return None
        question, self._question = self._question, None
        try:
            answer: Answer = ray.get(question)
        except ray.exceptions.ActorDiedError as error:
            raise Gone(_why_gone(error)) from None
        except ray.exceptions.RayActorError:
            raise Unavailable from None
        return answer

    def collect(self) -> None:
        """Let the process that answered collect."""
        self._loop = self._handle.collect.remote()

    def outcome(self) -> str | None:
        """Say how collecting ended; None = it goes on."""
        if not _is_ready(self._loop):
            return None
        try:
            mistake: str = ray.get(self._loop)
        except ray.exceptions.RayTaskError as error:
            raise Fault(str(error)) from None
        except ray.exceptions.RayError:
            raise Unavailable from None
        return mistake

    def restart(self) -> None:
        """Let Ray end the process and start another."""
        ray.kill(self._handle, no_restart=False)

    def ask_to_stop(self) -> None:
        """Ask the loop to end in good order."""
        self._handle.stop.remote()

    def end(self) -> None:
        """End the process for good."""
        ray.kill(self._handle)


def _is_ready(reference: Any) -> bool:
    return bool(ray.wait([reference], timeout=0)[0])


def _why_gone(error: Exception) -> str:
    """Give the line of Ray's long text that says what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if 'Error: ' in line or 'dead because' in line]
    return (told or lines or ['Ray does not say why'])[-1]
