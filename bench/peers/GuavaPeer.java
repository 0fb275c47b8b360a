import com.google.common.util.concurrent.RateLimiter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Locale;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CyclicBarrier;

/**
 * Guava's RateLimiter.tryAcquire() as a worker that a benchmark driver can interleave with others.
 *
 * Prints "ready" once warmed up. Then, a line a request on stdin:
 *   run SCENARIO THREADS OPS   each of THREADS threads does OPS decisions; answers "SCENARIO THREADS NS_PER_OP" with
 *                              ns_per_op = wall_ns / OPS, wall_ns from the first thread's start to the last one's end.
 *                              (So two threads that do not hinder each other show the same figure as one.)
 *   quit
 * Anything else is answered by a line "error …".
 *
 * hot-allowed  one limiter for all threads, a thousand million a second: never denies
 * hot-denied   one limiter, one permit in eleven days, taken: always denies
 * million      a million limiters of 1000/s in a ConcurrentHashMap by name ("user:0000000"), random order, a prng a thread.
 *              The names to look up are the very String objects in the map, with their hash already in them: the peer
 *              never hashes nor compares text here, which flatters it.
 * memory       bytes per key: heap after collection, with a million limiters in a map less without; the names not counted
 */
public final class GuavaPeer {
    static final int KEYS = 1_000_000;

    static final RateLimiter allowed = RateLimiter.create(1e9);
    static final RateLimiter denied = RateLimiter.create(1e-6);
    static final String[] names = new String[KEYS];
    static ConcurrentHashMap<String, RateLimiter> map;

    /** Every thread's count of allowed ends up here, so that no decision can be optimized away. */
    static volatile long sink;

    interface Loop {
        long run(int thread, long ops);
    }

    static long hot(RateLimiter limiter, long ops) {
        long n = 0;
        for (long i = 0; i < ops; i++) {
            if (limiter.tryAcquire()) {
                n++;
            }
        }
        return n;
    }

    static long million(int thread, long ops) {
        long x = 0x9E3779B97F4A7C15L * (thread + 1) ^ System.nanoTime();
        long n = 0;
        for (long i = 0; i < ops; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            String name = names[(int) ((x >>> 32) * KEYS >>> 32)];
            if (map.get(name).tryAcquire()) {
                n++;
            }
        }
        return n;
    }

    static ConcurrentHashMap<String, RateLimiter> populate() {
        ConcurrentHashMap<String, RateLimiter> m = new ConcurrentHashMap<>(KEYS);
        for (String name : names) {
            m.put(name, RateLimiter.create(1000));
        }
        return m;
    }

    static long heap() {
        Runtime r = Runtime.getRuntime();
        long used = Long.MAX_VALUE;
        for (int i = 0; i < 3; i++) {
            System.gc();
            used = Math.min(used, r.totalMemory() - r.freeMemory());
        }
        return used;
    }

    static double memory() {
        long before = heap();
        ConcurrentHashMap<String, RateLimiter> m = populate();
        // tryAcquire() makes the limiter's mutex, without which no limiter is ever used.
        for (String name : names) {
            sink += m.get(name).tryAcquire() ? 1 : 0;
        }
        long after = heap();
        sink += m.size();
        return (double) (after - before) / KEYS;
    }

    static double time(Loop loop, int threads, long ops, long expect) throws Exception {
        long[] start = new long[threads], end = new long[threads], count = new long[threads];
        CyclicBarrier barrier = new CyclicBarrier(threads);
        Thread[] t = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            final int me = i;
            t[i] = new Thread(() -> {
                try {
                    barrier.await();
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
                start[me] = System.nanoTime();
                count[me] = loop.run(me, ops);
                end[me] = System.nanoTime();
            });
            t[i].start();
        }
        long first = Long.MAX_VALUE, last = Long.MIN_VALUE, sum = 0;
        for (int i = 0; i < threads; i++) {
            t[i].join();
            first = Math.min(first, start[i]);
            last = Math.max(last, end[i]);
            sum += count[i];
        }
        sink += sum;
        if (expect >= 0 && sum != expect * threads * ops) {
            throw new IllegalStateException("allowed " + sum + " of " + threads * ops);
        }
        return (double) (last - first) / ops;
    }

    static double run(String scenario, int threads, long ops) throws Exception {
        switch (scenario) {
            case "hot-allowed": return time((i, n) -> hot(allowed, n), threads, ops, 1);
            case "hot-denied": return time((i, n) -> hot(denied, n), threads, ops, 0);
            case "million": return time(GuavaPeer::million, threads, ops, -1);
            case "memory": return memory();
            default: throw new IllegalArgumentException("unknown scenario " + scenario);
        }
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < KEYS; i++) {
            names[i] = String.format("user:%07d", i);
        }
        map = populate();
        denied.tryAcquire();
        for (int round = 0; round < 4; round++) {
            for (String s : new String[] {"hot-allowed", "hot-denied", "million"}) {
                run(s, 1, 1_000_000);
                run(s, 2, 500_000);
            }
        }
        System.gc();
        System.out.println("ready");
        System.out.flush();

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] w = line.trim().split("\\s+");
            if (w[0].equals("quit")) {
                break;
            }
            try {
                if (w.length != 4 || !w[0].equals("run")) {
                    throw new IllegalArgumentException("expected: run SCENARIO THREADS OPS, or quit");
                }
                int threads = Integer.parseInt(w[2]);
                long ops = Long.parseLong(w[3]);
                if (threads < 1 || threads > 64 || ops < 1 && !w[1].equals("memory")) {
                    throw new IllegalArgumentException("expected 1 to 64 threads and at least 1 op");
                }
                System.out.println(w[1] + " " + threads + " " + String.format(Locale.ROOT, "%.2f", run(w[1], threads, ops)));
            } catch (IllegalArgumentException | IllegalStateException e) {
                System.out.println("error " + e.getMessage());
            }
            System.out.flush();
        }
    }
}
