"""
A link between two namespaces whose packets are late or lost, where the kernel has no netem.

``slow_link.py NAMESPACE INTERFACE NAMESPACE INTERFACE --delay-s 0.02 --loss 0.01`` makes both
interfaces and carries Ethernet frames between them until it is killed.
"""

import argparse
from collections import deque
import ctypes
import fcntl
import os
import random
import select
import struct
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
LARGEST_FRAME = 65536


def interface(namespace, name):
    """Make an Ethernet interface in a namespace; give the file of its other end."""
    with open(f'/run/netns/{namespace}') as where:
        if ctypes.CDLL(None, use_errno=True).setns(where.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), f'setns {namespace}')
    end = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack('16sH', name.encode(), IFF_TAP | IFF_NO_PI))
    return end


def carry(ends, delay_s, loss, rng):
    """Take frames from either end and give them to the other, later, or never."""
    other = dict(zip(ends, reversed(ends)))
    under_way = deque()
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for end in select.select(ends, [], [], wait)[0]:
            frame = os.read(end, LARGEST_FRAME)
            if rng.random() >= loss:
                under_way.append((time.monotonic() + delay_s, other[end], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            try:
                os.write(end, frame)
            except OSError:
                continue  # its queue is full, or its cable is out: lost, as on any link


def main():
    """Carry frames until the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('places', nargs=4)
    parser.add_argument('--delay-s', type=float, default=0.0, help='one way')
    parser.add_argument('--loss', type=float, default=0.0, help='share of packets')
    parser.add_argument('--seed', type=int, default=0)
    own = parser.parse_args()
    ends = [interface(*own.places[:2]), interface(*own.places[2:])]
    print('ready', flush=True)
    carry(ends, own.delay_s, own.loss, random.Random(own.seed))


if __name__ == '__main__':
    main()
