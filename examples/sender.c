/*
 * A sender that never exceeds its receiver's rate: 50 messages a second, evenly spaced, whoever
 * else sends on the same store. weir_wait sleeps exactly as long as needed; a message that could
 * not make its deadline is refused at once instead of after a futile sleep.
 *
 *     cc sender.c $(pkg-config --cflags --libs weir) -o sender && ./sender
 */
#include <stdio.h>
#include <time.h>
#include <weir.h>

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(void)
{
    weir_store *store = NULL;
    weir_limit *limit = NULL;
    weir_decision d;
    weir_error err;
    /* A queue of up to 100 messages that leaks one every 20 ms. */
    if (weir_store_open("memory:1m", &store, &err) ||
        weir_limit_parse("leaky-bucket 50/s burst 100", &limit, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    weir_key peer = weir_key_text("smtp.example.com");

    double start = now_ms();
    for (int i = 1; i <= 10; i++) {
        if (weir_wait(store, peer, limit, 1, 2000000 /* give up beyond 2 s */, &d))
            return 1;
        printf("message %d %s\n", i, d.allowed ? "sent" : "dropped");
    }
    double took = now_ms() - start;

    /* The first goes at once and each of the other nine 20 ms after the one before. */
    printf("10 messages took %.0f ms, at least 180: %s\n", took, took > 179 ? "yes" : "no");

    /* weir_take never sleeps: it books the place in the queue and leaves the waiting (d.delay_us)
     * to the caller, an event loop perhaps. This one is a mailing that weighs as much as 50
     * messages. */
    if (weir_take(store, peer, limit, 50, &d))
        return 1;
    printf("a mailing of 50: %s\n", d.allowed ? "booked" : "refused");

    /* Behind it, one that may not wait at all has no chance for a second. */
    if (weir_wait(store, peer, limit, 1, 0, &d))
        return 1;
    printf("an urgent one: %s\n", d.allowed ? "sent" : "refused at once");
    weir_limit_free(limit);
    weir_store_close(store);
    return took <= 179;
}
