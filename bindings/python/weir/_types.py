"""Names for what the verbs take."""
from __future__ import annotations

import datetime
from typing import Union

from . import _weir

Key = Union[str, bytes]
LimitText = Union[str, _weir.Limit]
Time = Union[float, datetime.timedelta]


def seconds(time: Time) -> float:
    """Of seconds or a timedelta."""
    return time.total_seconds() if isinstance(time, datetime.timedelta) else float(time)
