"""How long this machine holds processes up: for tests that say how long something takes at most.

    with Stalls() as stalls:
        mark = stalls.mark()
        … something that takes 50 ms at most …
        took <= 50000 + stalls.since_us(mark)

On every core a process sleeps a moment at a time and adds up by how much later than asked it wakes. Where the machine is
our own that is nothing, and the bound is sharp; where others steal its time it grows by what they steal.
"""
import multiprocessing
import os
import time

MOMENT = 0.005
NOTED = 0.005  # less is usual


def watch(cpu, shared, index):
    os.sched_setaffinity(0, {cpu})
    parent = os.getppid()
    while os.getppid() == parent:
        start = time.monotonic()
        time.sleep(MOMENT)
        late = time.monotonic() - start - MOMENT
        if late > NOTED:
            shared[index] += late


class Stalls:
    def __init__(self):
        context = multiprocessing.get_context("fork")
        cpus = sorted(os.sched_getaffinity(0))
        self.shared = context.RawArray("d", len(cpus))
        self.processes = [context.Process(target=watch, args=(cpu, self.shared, i), daemon=True)
                          for i, cpu in enumerate(cpus)]

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.join()

    def mark(self):
        return sum(self.shared)

    def since(self, mark):
        """Seconds by which the cores, taken together, were held up since."""
        time.sleep(4 * MOMENT)  # who was held up just now says so by then
        return sum(self.shared) - mark

    def since_us(self, mark):
        return int(self.since(mark) * 1000000)
