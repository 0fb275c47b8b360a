-- What every limit's numbers must be; each algorithm adds its own.

--@block check
sound = sound and count >= 1 and count <= COST_MAX and count % 1 == 0
    and period >= 1 and period <= DURATION_MAX and period % 1 == 0
