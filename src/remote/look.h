/* A redis:// store seen from outside, for those who write logs: the library never prints. */
#ifndef WEIR_LOOK_H
#define WEIR_LOOK_H

#include "base/base.h"

#define WEIR__LOOK_WHY_SIZE sizeof(((weir_error *)0)->message)

/* What became of a store's calls since somebody last looked, for those who write logs. */
struct weir__remote_look {
    bool down;           /* servers did not decide; else all fields but `decided` say nothing */
    bool reached;        /* they could be reached all the same */
    uint64_t decided;    /* calls that the stand-in has decided so far */
    const char *standin; /* who decides in the servers' place, in words */
    char why[WEIR__LOOK_WHY_SIZE]; /* in the server's words where it said something */
};
/* One thread at a time. */
void weir__remote_look(weir_store *store, struct weir__remote_look *ret);

#endif
