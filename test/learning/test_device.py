"""Updates on a GPU: nothing is read from it between gradient steps; results as on a CPU."""

import numpy as np
import pytest
import torch
from toys import random_chunk, TASK

from asyncppo_ros.config import Config, LearnerConfig, PpoConfig
from asyncppo_ros.learning.learner import Learner
from asyncppo_ros.learning.samples import Samples, STEP_NUMBERS
from asyncppo_ros.learning.torch_steps import TorchSteps
from asyncppo_ros.learning.transitions import on_device


def make_learner(device='cpu', gradients='auto', **ppo):
    ppo = {'minibatch_size': 16, 'epochs': 3, 'learning_rate': 0.003, **ppo}
    return Learner(Config(env_steps=10_000, learner=LearnerConfig(
        device=device, gradients=gradients, ppo=PpoConfig(**ppo))), TASK, 3, 2, run_id=1)


@pytest.mark.parametrize('ppo', [
    {}, {'objective': 'clipped', 'dual_clip_above_lag': 1}, {'objective': 'misread_dual_clip'},
    {'dual_clip': 0.0, 'clip_schedule': 'linear', 'entropy_coefficient': 0.01}])
def test_a_gradient_step_reads_nothing_from_the_device(ppo):
    """On the device `meta` tensors have no numbers: whatever would read one raises."""
    learner = make_learner(gradients='torch', **ppo)
    learner.network.to('meta')
    # Adam, fused, has no form for it.
    optimizer = torch.optim.SGD(learner.network.parameters(), 0.1)
    learner._steps = TorchSteps(learner.network, optimizer, learner.ppo)
    sizes = {'observation': (16, 3), 'critic_observation': (16, 0), 'action': (16, 2)}
    samples = Samples(*(torch.zeros(sizes.get(name, (16,)), device='meta')
                        for name in Samples._fields))
    numbers = learner._gradient_step(samples)
    assert numbers.device.type == 'meta' and numbers.shape == (len(STEP_NUMBERS),)
    with pytest.raises((NotImplementedError, RuntimeError)):
        numbers.tolist()


def test_numbers_are_read_once_an_epoch(monkeypatch):
    learner = make_learner(epochs=2)
    read = []
    original = torch.stack

    def noted(tensors, *rest, **options):
        result = original(tensors, *rest, **options)
        if result.ndim == 2 and result.shape[1] == len(STEP_NUMBERS):
            read.append(len(result))
        return result

    monkeypatch.setattr(torch, 'stack', noted)
    learner.update([random_chunk(1), random_chunk(2)])
    assert read == [4, 4]


def test_on_a_cpu_the_tensor_is_the_array():
    array = np.ones(3, np.float32)
    tensor = on_device(array, torch.device('cpu'))
    array[0] = 5.0
    assert tensor.tolist() == [5.0, 1.0, 1.0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA GPU')
def test_a_gpu_gives_what_a_cpu_gives():
    learners = [make_learner(device) for device in ('cpu', 'cuda')]
    for seed in range(5):
        chunks = [random_chunk(seed), random_chunk(seed + 100)]
        cpu, gpu = (learner.update(chunks) for learner in learners)
        assert cpu.keys() == gpu.keys()
        for name, value in cpu.items():
            assert gpu[name] == pytest.approx(value, rel=1e-2, abs=1e-3), name
    first, second = (learner.snapshot().artefact.tensors for learner in learners)
    for name, tensor in first.items():
        np.testing.assert_allclose(second[name], tensor, atol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA GPU')
def test_memory_that_is_on_its_way_to_the_gpu_is_not_used_again():
    device = torch.device('cuda')
    arrays = [np.full(10 ** 6, number, np.float32) for number in range(50)]
    tensors = [on_device(array, device) for array in arrays]
    assert [float(tensor.mean()) for tensor in tensors] == list(range(50))
