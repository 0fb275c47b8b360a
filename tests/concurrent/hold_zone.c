/*
 * Holds locks of a zone and stops, as a process does that is suspended or debugged at the wrong
 * moment.
 *
 *     hold_zone URL all|rows|blocks
 *
 * Prints a line when it has them, then stops itself (SIGSTOP). When it goes on it lets go of them.
 */
#include "store/zone/store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    weir_store *store = NULL;
    weir_error err = {0};
    if (argc != 3 || weir_store_open(argv[1], &store, &err)) {
        fprintf(stderr, "hold_zone: %s\n", argc == 3 ? err.message : "URL all|rows|blocks");
        return 2;
    }
    struct weir__zone *zone = &((struct weir__zone_store *)store)->region.zone;
    bool all = !strcmp(argv[2], "all");
    uint32_t one = !strcmp(argv[2], "rows") ? weir__rows_stripe(zone) : weir__arena_lock(zone, 0);
    bool has = all ? weir__stripes_lock_all(zone) : weir__stripe_lock(zone, one);
    printf("%s\n", has ? "held" : "not held");
    fflush(stdout);
    raise(SIGSTOP);
    if (all)
        weir__stripes_unlock_all(zone);
    else
        weir__stripe_unlock(zone, one);
    printf("let go\n");
    weir_store_close(store);
    return 0;
}
