"""Who is over its time limit, found without looking after every control step."""

import numpy as np
import pytest

from asyncppo_ros.simulation.episodes import Episodes, generators


@pytest.mark.parametrize('limit, random_start', [(0, False), (7, False), (7, True), (1, True)])
def test_over_are_those_at_their_limit(limit, random_start):
    steps = np.zeros(5, np.int64)
    episodes = Episodes(steps, limit, generators(0, 5), random_start)
    rng = np.random.default_rng(2)
    ends = 0
    for _ in range(2):
        episodes.begin_all()
        for _ in range(60):
            steps += 1
            episodes.count(np.ones(5))
            expected = steps >= episodes.limit
            over = episodes.over()
            assert over is None or over.any()
            np.testing.assert_array_equal(np.zeros(5, bool) if over is None else over, expected)
            ended = np.flatnonzero(expected | (rng.random(5) < 0.1))
            ends += expected.sum()
            if len(ended):
                episodes.finish(ended, None)
    assert ends >= 5 if limit else ends == 0


def test_who_is_left_at_its_limit_stays_over():
    steps = np.zeros(2, np.int64)
    episodes = Episodes(steps, 2, generators(0, 2), False)
    episodes.begin_all()
    found = []
    for _ in range(4):
        steps += 1
        found.append(episodes.over())
        episodes.finish(np.array([1]), None)
    assert found[0] is None
    assert [over.tolist() for over in found[1:]] == [[True, False]] * 3
