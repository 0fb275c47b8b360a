-- Sliding log: every charge with its own stamp; exact. One cell an instant.

--@block derive

--@block check
sound = sound and count <= LOG_COUNT_MAX

--@block charge
--@use stamps.charge stamp == t

--@block settle
--@use stamps.settle stamp == t
