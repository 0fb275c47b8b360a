"""weir: rate limits that are exact across processes.

    import weir

    store = weir.Store("shm:/web")                     # shared by all processes of this host
    if store.take("user:42", "token-bucket 100/s burst 200"):
        serve()

bindings/python/README.md is the manual.
"""
from ._decorate import limited
from ._slots import Denied, Slot
from ._store import Store
from ._weir import (  # one exception per error code, as weir.h lists them
    Decision, Error, EINVAL, ESYNTAX, EURL, ENOMEM, ESYSTEM, ETRUNCATED, EFOREIGN, EVERSION, EOWNER, EDAMAGED,
    EFULL, EBUSY, ENOLEASE, ERECEIPT, EUNSUPPORTED, ESHARED, ESLOTS, EUNREACHABLE, ESETTLED, ECANCELED, EINTR,
    EGONE, Limit, Wakeup,
)
from ._weir import version as __version__

NEVER = -1
"""retry_after_us of a request that can never be allowed."""

__all__ = [
    "Decision", "Denied", "Error", "Limit", "NEVER", "Slot", "Store", "Wakeup", "limited", "EINVAL", "ESYNTAX",
    "EURL", "ENOMEM", "ESYSTEM", "ETRUNCATED", "EFOREIGN", "EVERSION", "EOWNER", "EDAMAGED", "EFULL", "EBUSY",
    "ENOLEASE", "ERECEIPT", "EUNSUPPORTED", "ESHARED", "ESLOTS", "EUNREACHABLE", "ESETTLED", "ECANCELED", "EINTR",
    "EGONE",
]
