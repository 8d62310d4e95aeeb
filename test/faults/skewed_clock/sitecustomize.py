"""Every clock of a Python process that has this folder in PYTHONPATH is off by CLOCK_OFFSET_S."""

import os
import time

OFFSET_S = float(os.environ.get('CLOCK_OFFSET_S', '0'))


def shifted(clock, offset):
    return lambda: clock() + offset


for name in ('time', 'monotonic', 'perf_counter'):
    setattr(time, name, shifted(getattr(time, name), OFFSET_S))
    setattr(time, f'{name}_ns', shifted(getattr(time, f'{name}_ns'), round(OFFSET_S * 1e9)))
