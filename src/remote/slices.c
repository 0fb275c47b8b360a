/* See slices.h. */
#include "remote/slices.h"

#include "remote/remote.h"

int weir__slices_open(struct weir__remote *remote, struct weir__slices **ret, weir_error *err)
{
    (void)remote;
    (void)err;
    *ret = NULL;
    return 0;
}

int weir__slices_start(struct weir__slices *slices)
{
    (void)slices;
    return 0;
}

void weir__slices_close(struct weir__slices *slices, bool forked)
{
    (void)slices;
    (void)forked;
}

bool weir__slices_try(weir_store *store, const weir_request *request, weir_decision *ret)
{
    (void)store;
    (void)request;
    (void)ret;
    return false;
}

void weir__slices_count(weir_store *store, struct weir__slices_counts *ret)
{
    (void)store;
    *ret = (struct weir__slices_counts){0};
}

const char *weir__slices_trouble(weir_store *store)
{
    (void)store;
    return NULL;
}
