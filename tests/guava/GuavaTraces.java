import com.google.common.util.concurrent.ScriptedRateLimiter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Drives the real com.google.common.util.concurrent.RateLimiter (Guava 31.1) through scripted and random sequences and
 * writes what it answered as test vectors: guava_smooth.vec (SmoothBursty) and guava_warmup.vec (SmoothWarmingUp).
 * The output depends on nothing but Guava: same version, same bytes.
 *
 * usage: GuavaTraces DIRECTORY
 *
 * Every case is run twice in step, on a clock that counts from 0 (as Guava's own does) and on one that counts from the
 * Unix epoch (as ours does); should they ever differ, no file is written.
 */
public final class GuavaTraces {
    static final long EPOCH = 1_700_000_000_000_000L;
    static final long ANY = ScriptedRateLimiter.ANY;
    static final long US = 1, MS = 1_000, S = 1_000_000, M = 60 * S, H = 3600 * S, D = 24 * H;
    static final long MAX_WAIT = 366 * D;
    /** Ours saturates here; vectors stay below. */
    static final long MAX_TIME = 1L << 53;
    /** Ours forgets a smooth state a day after it has filled up; gaps in smooth traces stay below. */
    static final long MAX_IDLE = 20 * H;

    // ---- limits ----------------------------------------------------------------------------------------------------

    static final class Limit {
        final String text;
        final double pps;
        final double stable;      // µs a permit, used only to choose interesting times
        final double burstSeconds;
        final long over;          // 0: smooth
        final double cold;
        final double most;        // about how many permits can be stored, used only to choose interesting costs

        private Limit(String text, long n, long period, double burstSeconds, long over, double cold) {
            this.text = text;
            this.pps = n * 1e6 / period;
            this.stable = 1e6 / pps;
            this.burstSeconds = burstSeconds;
            this.over = over;
            this.cold = cold;
            this.most = over == 0 ? burstSeconds * pps : 0.5 * over / stable + 2.0 * over / (stable * (1 + cold));
        }

        static Limit smooth(long n, long period, long burstFor) {
            return new Limit("smooth " + n + "/" + period(period) + " burst-for " + duration(burstFor), n, period, burstFor / 1e6, 0, 0);
        }

        /** burst-for left out: one second, which is what RateLimiter.create(rate) does. */
        static Limit smooth(long n, long period) {
            return new Limit("smooth " + n + "/" + period(period), n, period, 1.0, 0, 0);
        }

        static Limit warmup(long n, long period, long over, String cold) {
            return new Limit("warmup " + n + "/" + period(period) + " over " + duration(over) + " cold " + cold, n, period, 0, over,
                             Double.parseDouble(cold));
        }

        static Limit warmup(long n, long period, long over) {
            return new Limit("warmup " + n + "/" + period(period) + " over " + duration(over), n, period, 0, over, 3.0);
        }

        ScriptedRateLimiter create(long now) {
            return over == 0 ? ScriptedRateLimiter.bursty(pps, burstSeconds, now)
                             : ScriptedRateLimiter.warmingUp(pps, over, cold, now);
        }
    }

    static String duration(long us) {
        long[] units = {D, H, M, S, MS, US};
        String[] names = {"d", "h", "m", "s", "ms", "us"};
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < units.length; i++) {
            if (us / units[i] > 0) {
                b.append(us / units[i]).append(names[i]);
                us %= units[i];
            }
        }
        return b.toString();
    }

    /** As a duration, but a single unit stands alone: 5/s, not 5/1s. */
    static String period(long us) {
        String s = duration(us);
        return s.matches("1[a-z]+") ? s.substring(1) : s;
    }

    // ---- a trace file ----------------------------------------------------------------------------------------------

    static final class Trace {
        private final StringBuilder out = new StringBuilder();
        private Limit limit;
        private ScriptedRateLimiter ours, plain;
        private long zero;
        long now;
        int grants;

        Trace(String... about) {
            for (String line : about) {
                out.append("# ").append(line).append('\n');
            }
        }

        Trace begin(String name, Limit limit) {
            this.limit = limit;
            ours = plain = null;
            now = EPOCH;
            out.append("\ncase ").append(name).append("\nlimit ").append(limit.text).append('\n');
            return this;
        }

        /** A request at the current time. The first of a case creates the limiter at that instant. */
        long take(int cost, long wait) {
            if (ours == null) {
                zero = now;
                ours = limit.create(now);
                plain = limit.create(0);
            }
            long delay = ours.take(now, cost, wait);
            long again = plain.take(now - zero, cost, wait);
            if (delay != again || ours.nextFree() != plain.nextFree() + zero) {
                throw new IllegalStateException(limit.text + " at " + now + ": the clock's origin matters, " + delay + " or " + again);
            }
            if (ours.nextFree() > MAX_TIME) {
                throw new IllegalStateException(limit.text + " at " + now + ": beyond 2^53 microseconds");
            }
            out.append("grant ").append(now).append(' ').append(cost).append(' ');
            if (wait == ANY) {
                out.append("any");
            } else {
                out.append(wait);
            }
            out.append(delay == ScriptedRateLimiter.DENIED ? " = 0 0\n" : " = 1 " + delay + "\n");
            grants++;
            return delay;
        }

        Trace acquire() { take(1, ANY); return this; }
        Trace acquire(int cost) { take(cost, ANY); return this; }
        Trace tryAcquire() { take(1, 0); return this; }
        Trace tryAcquire(int cost) { take(cost, 0); return this; }
        Trace tryAcquire(int cost, long wait) { take(cost, wait); return this; }

        Trace pass(long us) {
            now += us;
            return this;
        }

        /** To where the next request would not have to wait, give or take. */
        Trace toFree(long offset) {
            now = Math.max(now, ours.nextFree() + offset);
            return this;
        }

        /** A request a microsecond before the limiter is free again, to pin down when that is. */
        Trace early() {
            if (owed() > 0) {
                toFree(-1).tryAcquire();
            }
            return this;
        }

        /** How long a request now would have to wait. */
        long owed() {
            return ours == null ? 0 : Math.max(0, ours.nextFree() - now);
        }

        void write(Path file) throws IOException {
            Files.write(file, out.toString().getBytes(StandardCharsets.US_ASCII));
            System.err.println(file + ": " + grants + " grants, " + out.length() + " bytes");
        }
    }

    // ---- a generator that is the same everywhere (splitmix64) --------------------------------------------------------

    static final class Prng {
        private long s;

        Prng(long seed) {
            s = seed;
        }

        long next() {
            long z = (s += 0x9E3779B97F4A7C15L);
            z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
            z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
            return z ^ (z >>> 31);
        }

        long below(long n) {
            return Long.remainderUnsigned(next(), n);
        }

        /** 0 … n, small values as likely as large ones. */
        long spread(long n) {
            int bits = 64 - Long.numberOfLeadingZeros(n);
            long mask = (1L << below(bits + 1)) - 1;
            return Math.min(n, next() & mask);
        }
    }

    // ---- scripted cases: for every limit, each way to ask --------------------------------------------------------------

    static void scripted(Trace x, String name, Limit l) {
        long stable = Math.max(1, (long) l.stable);
        int some = (int) Math.max(2, Math.min(1000, l.most / 3));
        int full = (int) Math.max(1, Math.min(1_000_000_000, l.most));
        long fill = Math.min(MAX_IDLE, (long) Math.max(l.over, l.burstSeconds * 1e6) + 1);

        x.begin(name + "/acquire-at-once", l);
        for (int i = 0; i < 6; i++) {
            x.acquire();
        }

        x.begin(name + "/acquire-and-sleep", l);
        for (int i = 0; i < 12; i++) {
            x.acquire().early().toFree(0);
        }

        x.begin(name + "/acquire-many", l);
        x.acquire(some).acquire().toFree(0).acquire(1).acquire(full).toFree(0).acquire(2).toFree(stable / 2).acquire(some);

        x.begin(name + "/try", l);
        x.tryAcquire().tryAcquire().toFree(-1).tryAcquire().toFree(0).tryAcquire().tryAcquire();
        x.toFree(stable / 3).tryAcquire().toFree(1).tryAcquire(some).tryAcquire().toFree(0).tryAcquire();

        x.begin(name + "/try-with-timeout", l);
        x.tryAcquire(1, stable).tryAcquire(1, stable);
        for (int i = 0; i < 3; i++) {
            long owed = Math.min(MAX_WAIT - 1, x.owed());
            x.tryAcquire(1, Math.max(0, owed - 1)).tryAcquire(1, owed).tryAcquire(some, owed + 1);
        }
        x.tryAcquire(1, MAX_WAIT);

        x.begin(name + "/idle", l);
        x.tryAcquire().toFree(stable / 2).tryAcquire().toFree(stable).tryAcquire().tryAcquire();
        x.toFree(Math.min(MAX_IDLE, 3 * stable + stable / 7)).tryAcquire().tryAcquire().tryAcquire().tryAcquire().tryAcquire();
        x.toFree(fill / 3).acquire(some).acquire();
        x.toFree(fill).acquire(full).acquire().toFree(fill).tryAcquire(full + 1).tryAcquire();
        x.toFree(Math.min(MAX_IDLE, 3 * fill)).tryAcquire(some).tryAcquire(some).tryAcquire(some).tryAcquire(some).tryAcquire();

        // The largest cost Guava takes, or the largest that stays below 2^53 µs.
        int big = (int) Math.min(Integer.MAX_VALUE, 5e15 / (l.stable * Math.max(1, l.cold)));
        if (big > 1) {
            x.begin(name + "/big", l);
            x.acquire(big).tryAcquire().tryAcquire(1, Math.min(MAX_WAIT, x.owed() - 1)).toFree(-1).tryAcquire().toFree(0).tryAcquire().acquire(2);
        }
    }

    /** Times, costs and waits drawn so that the edges (free, a microsecond before and after) come up often. */
    static void random(Trace x, String name, Limit l, long seed, int n) {
        Prng r = new Prng(seed);
        long stable = Math.max(1, (long) l.stable);
        long full = (long) Math.max(1, Math.min(1_000_000_000, l.most));
        long fill = Math.min(MAX_IDLE, (long) Math.max(l.over, l.burstSeconds * 1e6) + 1);
        long debt = Math.min((long) 1e15, Math.max(20 * stable, 3 * fill));  // above this no more acquire()
        x.begin(name + "/random-" + seed, l);
        for (int i = 0; i < n; i++) {
            if (i > 0) {
                switch ((int) r.below(8)) {
                    case 0: break;
                    case 1: x.pass(r.below(3)); break;
                    case 2: x.toFree(r.below(3) - 1); break;
                    case 3: x.toFree(r.below(1 + Math.min(MAX_IDLE, 3 * stable))); break;
                    case 4: x.pass(r.below(1 + Math.min(MAX_IDLE, stable))); break;
                    case 5: x.pass(r.spread(Math.min(MAX_IDLE, 4 * stable))); break;
                    case 6: x.pass(r.spread(fill)); break;
                    default: x.toFree(r.below(8) == 0 ? r.below(fill) : 0); break;
                }
            }
            int cost = 1;
            switch ((int) r.below(8)) {
                case 0: cost = 1 + (int) r.below(5); break;
                case 1: cost = (int) Math.max(1, r.spread(full)); break;
                case 2: cost = (int) (full + r.below(3)); break;
                default: break;
            }
            long owed = Math.min(MAX_WAIT - 2, x.owed());
            long wait = 0;
            switch ((int) r.below(8)) {
                case 0: case 1: wait = owed > debt ? 0 : ANY; break;
                case 2: wait = owed > debt ? 0 : owed + r.below(2); break;
                case 3: wait = Math.max(0, owed - 1); break;
                case 4: wait = r.spread(Math.min(MAX_WAIT, 3 * stable)); break;
                default: break;
            }
            if (cost * l.stable * Math.max(1, l.cold) > 1e15) {
                cost = 1;
            }
            x.take(cost, wait);
        }
    }

    static final String[] HEAD = {
        "case: starts with no state. limit: the limit in our language.",
        "grant T COST WAIT = ALLOWED DELAY: at T (microseconds since the epoch) acquire(COST) (WAIT any), tryAcquire(COST) (WAIT 0) or",
        "tryAcquire(COST, WAIT) answered so; DELAY is what Guava slept, in microseconds. The limiter is created at the case's first T.",
        "Written by tests/guava (make guava-traces); do not edit.",
    };

    static Trace trace(String what) {
        String[] about = new String[HEAD.length + 1];
        about[0] = "What the real Guava 31.1 " + what + " answered.";
        System.arraycopy(HEAD, 0, about, 1, HEAD.length);
        return new Trace(about);
    }

    public static void main(String[] args) throws IOException {
        if (args.length != 1) {
            System.err.println("usage: GuavaTraces DIRECTORY");
            System.exit(2);
        }
        Path dir = Path.of(args[0]);

        Object[][] smooth = {
            {"1-per-s", Limit.smooth(1, S)},
            {"5-per-s-2s", Limit.smooth(5, S, 2 * S)},
            {"3-per-s", Limit.smooth(3, S)},
            {"7-per-m", Limit.smooth(7, M)},
            {"7-per-m-1h", Limit.smooth(7, M, H)},
            {"1000-per-h", Limit.smooth(1000, H, 10 * M)},
            {"1-per-100s", Limit.smooth(1, 100 * S)},
            {"1-per-100s-1h", Limit.smooth(1, 100 * S, H)},
            {"100-per-s-10ms", Limit.smooth(100, S, 10 * MS)},
            {"10-per-s-half", Limit.smooth(10, S, 500 * MS)},
            {"13-per-7s", Limit.smooth(13, 7 * S, 90 * S)},
            {"5-per-17ms", Limit.smooth(5, 17 * MS, 333 * MS)},
            {"999983-per-s", Limit.smooth(999_983, S, 1500 * MS)},
            {"1m-per-s", Limit.smooth(1_000_000, S)},
            {"1-per-3us", Limit.smooth(1, 3, 10 * S)},
            {"1g-per-s", Limit.smooth(1_000_000_000, S, 100 * MS)},
            {"1-per-5h-1d", Limit.smooth(1, 5 * H, D)},
            // Where another order of the same operations gives another microsecond: 60,000 µs a permit becomes 59,999.99…,
            // count / seconds is not count * 1e6 / µs, seconds * rate is not µs * rate / 1e6.
            {"1000-per-m", Limit.smooth(1000, M)},
            {"3-per-9ms", Limit.smooth(3, 9 * MS)},
            {"3-per-s-700ms", Limit.smooth(3, S, 700 * MS)},
        };
        Trace s = trace("SmoothBursty");
        for (int i = 0; i < smooth.length; i++) {
            String name = (String) smooth[i][0];
            Limit l = (Limit) smooth[i][1];
            scripted(s, name, l);
            random(s, name, l, 100 + i, 110);
            random(s, name, l, 200 + i, 110);
        }

        // The example of Guava's documentation: a costly task is let in at once and the next caller pays for it.
        Limit five = Limit.smooth(5, S, 2 * S);
        s.begin("next-one-pays", five).acquire(100).acquire().pass(20 * S).acquire().acquire();
        // Saved permits are fractions: 2.5 saved, 3 asked, half a permit to pay for.
        s.begin("fractions", five).tryAcquire().toFree(500 * MS).tryAcquire(3).tryAcquire().toFree(-1).tryAcquire().toFree(0).tryAcquire();
        // A third of a second is no whole number of microseconds, and each grant truncates anew.
        s.begin("truncation", Limit.smooth(3, S));
        for (int i = 0; i < 30; i++) {
            s.acquire();
        }
        // A clock that steps back finds the limiter busy until next free, no more and no less.
        s.begin("clock-back", five).acquire(2).pass(10 * S).acquire(3).pass(-4 * S).tryAcquire().acquire().pass(-5 * S).tryAcquire(1, 9 * S)
            .tryAcquire(1, 8 * S).toFree(0).tryAcquire().tryAcquire();
        s.write(dir.resolve("guava_smooth.vec"));

        Object[][] warmup = {
            {"5-per-s-3s", Limit.warmup(5, S, 3 * S, "3")},
            {"5-per-s-3s-default", Limit.warmup(5, S, 3 * S)},
            {"2-per-s-4s", Limit.warmup(2, S, 4 * S)},
            {"3-per-s-10s", Limit.warmup(3, S, 10 * S, "2.5")},
            {"7-per-m-1h", Limit.warmup(7, M, H)},
            {"1000-per-h-10m", Limit.warmup(1000, H, 10 * M, "1.5")},
            {"1-per-100s-10m", Limit.warmup(1, 100 * S, 10 * M)},
            {"10-per-s-nearly-flat", Limit.warmup(10, S, 4 * S, "1.1")},
            {"100-per-s-very-cold", Limit.warmup(100, S, 100 * MS, "1000")},
            {"13-per-7s", Limit.warmup(13, 7 * S, 90 * S, "7.25")},
            {"shorter-than-a-permit", Limit.warmup(1, 10 * S, 3 * S)},
            {"one-microsecond", Limit.warmup(1, S, 1, "2")},
            {"999983-per-s", Limit.warmup(999_983, S, 1500 * MS, "10")},
            {"1m-per-s", Limit.warmup(1_000_000, S, 5 * S)},
            {"1-per-3us", Limit.warmup(1, 3, 2 * S, "3.3")},
            {"1g-per-s", Limit.warmup(1_000_000_000, S, 100 * MS)},
            {"1-per-5h-3d", Limit.warmup(1, 5 * H, 3 * D, "4")},
            {"1000-per-m", Limit.warmup(1000, M, 10 * S)},
            {"3-per-9ms", Limit.warmup(3, 9 * MS, 700 * MS, "2.2")},
        };
        Trace w = trace("SmoothWarmingUp");
        for (int i = 0; i < warmup.length; i++) {
            String name = (String) warmup[i][0];
            Limit l = (Limit) warmup[i][1];
            scripted(w, name, l);
            random(w, name, l, 300 + i, 110);
            random(w, name, l, 400 + i, 110);
        }
        // From cold to stable, one at a time and in twos and fives, and cold again after a rest.
        Limit cold = Limit.warmup(5, S, 3 * S, "3");
        for (int cost : new int[] {1, 2, 5}) {
            w.begin("warm-up-by-" + cost, cold);
            for (int i = 0; i < 20; i++) {
                w.acquire(cost).early().toFree(0);
            }
            w.toFree(S);
            for (int i = 0; i < 8; i++) {
                w.acquire(cost).early().toFree(0);
            }
            w.toFree(3 * S);
            for (int i = 0; i < 20; i++) {
                w.acquire(cost);
            }
        }
        // One request that takes all that is saved, from above the threshold to below zero saved.
        w.begin("across-the-threshold", cold).acquire(10).acquire(10).acquire(10).toFree(2 * S).acquire(7).acquire(4).acquire();
        w.begin("long-idle", cold).acquire(20).acquire().toFree(40 * D).acquire(3).toFree(400 * D).tryAcquire(15).acquire().acquire();
        w.begin("clock-back", cold).acquire(2).pass(10 * S).acquire(3).pass(-4 * S).tryAcquire().acquire().pass(-5 * S).tryAcquire(1, 9 * S)
            .tryAcquire(1, 8 * S).toFree(0).tryAcquire().tryAcquire();
        w.write(dir.resolve("guava_warmup.vec"));
    }
}
