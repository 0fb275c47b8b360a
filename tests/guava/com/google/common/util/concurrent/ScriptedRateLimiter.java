package com.google.common.util.concurrent;

import java.util.concurrent.TimeUnit;

/**
 * Guava's own RateLimiter under a clock that the caller sets. It lives in Guava's package because the clock
 * (SleepingStopwatch), SmoothBursty's burst and the cold factor are package-private there. Nothing of the algorithm is
 * repeated here: every decision is made by the classes in guava.jar.
 */
public final class ScriptedRateLimiter {
    /** Answers of {@link #take}: the delay in microseconds, or this. */
    public static final long DENIED = -1;
    /** For the wait: acquire(), which waits as long as it takes. */
    public static final long ANY = -1;

    private static final class Clock extends RateLimiter.SleepingStopwatch {
        long now;
        long slept;

        @Override
        protected long readMicros() {
            return now;
        }

        /** Records the sleep. Time stays where the script put it: other callers arrive meanwhile. */
        @Override
        protected void sleepMicrosUninterruptibly(long micros) {
            slept = micros;
        }
    }

    private final Clock clock = new Clock();
    private final RateLimiter limiter;

    private ScriptedRateLimiter(double permitsPerSecond, double burstSeconds, long now) {
        clock.now = now;
        limiter = new SmoothRateLimiter.SmoothBursty(clock, burstSeconds);
        limiter.setRate(permitsPerSecond);
    }

    private ScriptedRateLimiter(double permitsPerSecond, long warmupMicros, double coldFactor, long now) {
        clock.now = now;
        limiter = RateLimiter.create(permitsPerSecond, warmupMicros, TimeUnit.MICROSECONDS, coldFactor, clock);
    }

    public static ScriptedRateLimiter bursty(double permitsPerSecond, double burstSeconds, long now) {
        return new ScriptedRateLimiter(permitsPerSecond, burstSeconds, now);
    }

    public static ScriptedRateLimiter warmingUp(double permitsPerSecond, long warmupMicros, double coldFactor, long now) {
        return new ScriptedRateLimiter(permitsPerSecond, warmupMicros, coldFactor, now);
    }

    /** acquire(permits) when wait is ANY, tryAcquire(permits) when it is 0, else tryAcquire(permits, wait). */
    public long take(long now, int permits, long wait) {
        clock.now = now;
        clock.slept = 0;
        boolean allowed = true;
        if (wait == ANY) {
            if (permits == 1) {
                limiter.acquire();
            } else {
                limiter.acquire(permits);
            }
        } else if (wait == 0) {
            allowed = permits == 1 ? limiter.tryAcquire() : limiter.tryAcquire(permits);
        } else {
            allowed = limiter.tryAcquire(permits, wait, TimeUnit.MICROSECONDS);
        }
        return allowed ? clock.slept : DENIED;
    }

    /** When the next request would be served, on the limiter's clock. Changes nothing. */
    public long nextFree() {
        return limiter.queryEarliestAvailable(clock.now);
    }
}
