"""How processes that were started together find each other, and not what an earlier start left behind.

A launcher that starts them again may keep the store in which they look each other up: torchrun does (torch 2.13), with
addresses in it at which nobody is any more. So each meeting has a name of its own.
"""

import secrets
import time
from datetime import timedelta
from typing import Final

from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transduce.config import TransduceError

_PAUSE: Final = 0.01  # seconds


def open_store(rank: int, number: int, limit: timedelta) -> Store:
    """What all processes of this start, and no others, read and write.

    Raises:
        TransduceError: Some of them do not come within the limit.
    """
    store: Store = next(rendezvous("env://", rank, number, timeout=limit))[0]
    return PrefixStore(name_meeting(store, rank, number, limit), store)


def name_meeting(store: Store, rank: int, number: int, limit: timedelta) -> str:
    """A name that the first process chooses and all others of this start hear, whatever stands in the store.

    Each says hello with a word that it has just made up, and waits for an answer to this very word. The first answers
    whatever word it finds, an old one too, until it is thanked in its own name.
    """
    own = secrets.token_hex(8)
    store.set(f"hello/{rank}", own)
    if rank > 0:
        name = str(store.get(f"welcome/{own}").decode())
        store.set(f"thanks/{name}/{rank}", "")
        return name
    missing, deadline = set(range(1, number)), time.monotonic() + limit.total_seconds()
    while missing:
        for other in sorted(missing):
            if store.check([f"hello/{other}"]):
                store.set(f"welcome/{store.get(f'hello/{other}').decode()}", own)
            if store.check([f"thanks/{own}/{other}"]):
                missing.remove(other)
        if missing and time.monotonic() > deadline:
            raise TransduceError(f"of {number} processes, these did not come: {', '.join(map(str, sorted(missing)))}")
        time.sleep(_PAUSE)
    return own
