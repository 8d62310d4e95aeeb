"""Whether a learner can be reached from this host, found out before any actor is started."""

import socket
import time

from asyncppo_ros.transport.keys import ActorKeys
from asyncppo_ros.transport.zeromq import connectable, Doorbell, open_dealer

LOOK_S = 0.02
# A learner on the other side of the world shakes hands within this.
ANSWER_S = 3.0


def why_out_of_reach(address: str, keys: ActorKeys | None = None,
                     timeout: float = ANSWER_S) -> str:
    """
    Shake hands with the learner at an address, and say nothing more.

    Parameters
    ----------
    address : str
    keys : ActorKeys, optional
        To encrypt with.
    timeout : float
        [s].

    Returns
    -------
    str
        Why that did not succeed, in words; '' = it did.

    Raises
    ------
    AddressError
        The address is malformed.

    """
    context, dealer = open_dealer(connectable(address), keys)
    bell = Doorbell(dealer, connectable(address), keys is not None)
    try:
        unknown = _unknown_name(address)
        if unknown:
            return unknown
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            bell.look()
            if bell.greeted:
                return ''
            # A learner that is there but turns this host away does so at once.
            if bell.trouble:
                return bell.trouble
            time.sleep(LOOK_S)
        return _nobody(address)
    finally:
        bell.close()
        dealer.close()
        context.term()


def _unknown_name(address: str) -> str:
    """Say that no host has the name in an address; '' = it is known, or there is none."""
    scheme, _, rest = connectable(address).partition('://')
    host, _, port = rest.rpartition(':')
    if scheme != 'tcp':
        return ''
    try:
        socket.getaddrinfo(host.strip('[]'), port)
    except OSError as error:
        return f'this host knows no {host} ({error.strerror})'
    return ''


def _nobody(address: str) -> str:
    if connectable(address) != address or '://127.' in address or '://localhost' in address:
        return ('that address is of this host itself: where the learner is on another, give '
                'tcp://LEARNER_HOST:PORT')
    return ('is the training started, is its transport.address one that other hosts reach, and '
            'does no firewall keep the port closed?')
