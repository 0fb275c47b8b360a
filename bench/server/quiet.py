"""How much of the two cores something else had while a measurement ran.

Times of processes hardly suffer from it, but for their caches; requests a second and latencies do. So every measurement
is told with what others had of the server's or the client's core, whichever is more.
"""
import os
import resource
import time

from .servers import CLIENT_CORE, SERVER_CORE

NOISY = 0.05
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    return time.clock_gettime((~pid << 3) | 2)  # the process's CPU clock, as clock_getcpuclockid() makes it


def busy_seconds(core):
    """Seconds in which the core was not idle, or was taken from the machine."""
    with open("/proc/stat", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(f"cpu{core} "):
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
                return (user + nice + system + irq + softirq + steal) / TICKS
    return 0.0


def children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Watch:
    """with Watch(pid) as watch: …; watch.others is the share of a core that others had."""

    def __init__(self, pid):
        self.pid, self.others = pid, 0.0

    def readings(self):
        return (time.monotonic(), busy_seconds(SERVER_CORE) - cpu_seconds(self.pid),
                busy_seconds(CLIENT_CORE) - children_seconds())

    def __enter__(self):
        self.before = self.readings()
        return self

    def __exit__(self, *_):
        wall, *others = (after - before for after, before in zip(self.readings(), self.before))
        self.others = max(0.0, *others) / wall
