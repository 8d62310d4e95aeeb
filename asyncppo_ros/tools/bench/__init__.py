"""``asyncppo bench NAME``: measurements; each is one module of this package."""

import importlib
import os

from asyncppo_ros.errors import UserError
from asyncppo_ros.nodes.process import child_environment, StopRequest

BENCHES = {'env': 'control steps per second of environments, beside a bare loop of mj_step',
           'inference': 'time of a call of the policy, beside bare matmuls and onnxruntime',
           'actor': 'env steps per second of an actor that sends, beside a bare loop of mj_step',
           'learning': 'deterministic returns over tasks, seeds and modes',
           'sb3': 'this learner, synchronous, against the PPO of Stable-Baselines3',
           'peers': 'asynchronous training against other packages on the same cores',
           'learner': 'samples per second of the update, beside bare matmuls and memcpy',
           'ranks': 'samples per second and bytes of the update, of one learner and of several',
           'train': 'env steps per second of a training, beside its actors and its learner alone',
           'transport': 'chunks per second by ways from actors to the learner',
           'fleet': 'the chunks of many actors on one learner, beside those of one actor',
           'payload': 'half precision and compression of chunks: bytes, rates, log ratios',
           'fuzz': 'damaged and forged messages against a second, independent reader',
           'lag': 'policy lag at each target, with a slow learner',
           'deploy': 'inference, and how well the policy node keeps its times',
           'actors': 'rate by number of actors, of a task that takes time and no cores',
           'elastic': 'num_actors: auto, which follows the load, beside every fixed number',
           'doctor': 'what `asyncppo doctor` predicts for two actors, and what they then make',
           'drift': 'whether a training becomes slower while it goes on, beside a bare mj_step',
           'memory': 'growth of the memory of a run with a slow learner',
           'faults': 'a long run with random faults against one without'}
# Each measures what one thread does.
ONE_THREAD = ('env', 'inference', 'actor')


def main(arguments: list[str], stop: StopRequest) -> int:
    """Run one bench."""
    names = ''.join(f'\n  {name:<12} {text}' for name, text in BENCHES.items())
    if not arguments or arguments[0] in ('-h', '--help'):
        print(f'usage: asyncppo bench NAME [options]\n\nbenches:{names}\n\n'
              '`asyncppo bench NAME --help` shows the options of a bench.')
        return 0 if arguments else 2
    name, *rest = arguments
    if name not in BENCHES:
        raise UserError(f'bench {name}: no such bench; there are {", ".join(BENCHES)}')
    if name in ONE_THREAD:
        # As the launcher does it for actors; numpy looks once, when it is loaded.
        os.environ.update((variable, threads) for variable, threads in child_environment().items()
                          if variable.endswith('_NUM_THREADS'))
    return importlib.import_module(f'asyncppo_ros.tools.bench.{name}').main(rest, stop)
