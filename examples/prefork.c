/*
 * Processes that share one limit, as the workers of a pre-fork server do: four children, each
 * trying 500 times, under a limit of 1000 an hour for all of them together. Exactly 1000 get
 * through, however the children are scheduled, and a child that is killed in the middle of a call
 * holds up nobody.
 *
 *     cc prefork.c $(pkg-config --cflags --libs weir) -o prefork && ./prefork
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir.h>

enum { CHILDREN = 4, TRIES = 500 };

/* What a worker does: asks before each piece of work; here it only counts the yeses. */
static int work(weir_store *store, const weir_limit *limit)
{
    int allowed = 0;
    for (int i = 0; i < TRIES; i++) {
        weir_decision d;
        if (weir_take(store, weir_key_text("outgoing-mail"), limit, 1, &d))
            exit(1);
        allowed += d.allowed;
    }
    return allowed;
}

int main(void)
{
    char name[64], url[128];
    weir_store *store = NULL;
    weir_limit *limit = NULL;
    weir_error err;
    int results[2], total = 0;

    /* A name of its own, so that two runs do not meet. A real server uses a fixed one: then its
     * state also survives a restart of all its processes, and unrelated programs can open it by
     * name. */
    snprintf(name, sizeof name, "/weir-prefork-%ld", (long)getpid());
    snprintf(url, sizeof url, "shm:%s?size=1m", name);
    if (weir_store_open(url, &store, &err) ||
        weir_limit_parse("fixed-window 1000/h from-first", &limit, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (pipe(results))
        return 1;

    /* Opened before fork(): the children inherit it. With memory: each would have a copy of its
     * own. */
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            int allowed = work(store, limit);
            _exit(write(results[1], &allowed, sizeof allowed) != sizeof allowed);
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        int allowed;
        if (read(results[0], &allowed, sizeof allowed) != sizeof allowed)
            return 1;
        total += allowed;
    }
    while (wait(NULL) > 0)
        ;
    printf("%d processes tried %d times: %d allowed, limit 1000\n", CHILDREN, CHILDREN * TRIES,
           total);
    weir_limit_free(limit);
    weir_store_close(store);
    shm_unlink(name);
    return total != 1000;
}
