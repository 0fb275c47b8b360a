/*
 * A cost that is known only afterwards: a language model bills by the token, and how many tokens an
 * answer has is known when it is finished. Charge an estimate first, so that nobody overdraws by
 * asking many times at once, and settle it to the truth later, in either direction.
 *
 *     cc settle.c $(pkg-config --cflags --libs weir) -o settle && ./settle
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir.h>

static weir_store *store;
static weir_limit *limit;
static weir_error err;

static long long left(void)
{
    weir_decision d;
    if (weir_peek(store, weir_key_text("tenant:acme"), limit, 1, &d))
        exit(1);
    return (long long)d.remaining;
}

/* One request: estimated before, settled after. */
static void ask(long estimate, long actual)
{
    weir_decision d;
    char receipt[WEIR_RECEIPT_SIZE];
    if (weir_take(store, weir_key_text("tenant:acme"), limit, estimate, &d))
        exit(1);
    if (!d.allowed) {
        printf("estimated %ld: denied, %lld left\n", estimate, (long long)d.remaining);
        return;
    }
    printf("estimated %ld: allowed, %lld left", estimate, (long long)d.remaining);

    /* The receipt is plain text: keep it with the job, send it through a queue. Use it once. */
    weir_receipt(&d, receipt);

    /* … the model answers … */

    if (weir_settle(store, weir_key_text("tenant:acme"), limit, receipt, actual, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    printf("; settled to %ld: %lld left\n", actual, left());
}

int main(void)
{
    if (weir_store_open("memory:1m", &store, &err) ||
        weir_limit_parse("fixed-window 100k/d from-first", &limit, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    ask(4000, 1234); /* gives 2766 back */
    ask(4000, 9000); /* takes 5000 more */
    ask(90000, 0);   /* denied: more than is left; charges nothing */
    ask(80000, 0);   /* the call failed: everything back */
    printf("%lld of 100000 left\n", left());
    weir_limit_free(limit);
    weir_store_close(store);
    return 0;
}
