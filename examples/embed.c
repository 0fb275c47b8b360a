/*
 * The smallest complete use of weir: one store, one limit, one question.
 *
 *     cc embed.c $(pkg-config --cflags --libs weir) -o embed && ./embed
 *
 * Three requests are allowed at once, then one more every 20 seconds. The answer to "no" comes with
 * the time at which it would be "yes".
 */
#include <stdio.h>
#include <weir.h>

int main(void)
{
    weir_store *store = NULL; /* where the counting happens: here 1 MiB of this process's memory */
    weir_limit *limit = NULL; /* what is allowed; parse it once, use it from any thread */
    weir_error err;
    if (weir_store_open("memory:1m", &store, &err) ||
        weir_limit_parse("token-bucket 3/m burst 3", &limit, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (int i = 1; i <= 5; i++) {
        weir_decision d;
        if (weir_take(store, weir_key_text("user:42"), limit, 1, &d))
            return 1; /* a failure; "denied" is not one, it is in d.allowed */
        if (d.allowed)
            printf("request %d: allowed, %lld left\n", i, (long long)d.remaining);
        else /* whole seconds are rounded up: a retry must never come too early */
            printf("request %d: denied, retry in %lld s\n", i,
                   (long long)(d.retry_after_us + 999999) / 1000000);
    }
    weir_limit_free(limit);
    weir_store_close(store);
    return 0;
}
