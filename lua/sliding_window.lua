-- Sliding window: slots of `extra` µs, each remembering its last stamp, which a charge renews.

--@block derive

--@block check
sound = sound and extra >= 1 and extra <= period and period <= extra * SLOTS_MAX and extra % 1 == 0

--@block charge
--@use stamps.charge stamp - stamp % extra == t - t % extra

--@block settle
--@use stamps.settle stamp - stamp % extra == t - t % extra
