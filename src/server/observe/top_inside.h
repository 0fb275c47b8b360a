/* What the files of top share. */
#ifndef WEIR_SERVER_TOP_INSIDE_H
#define WEIR_SERVER_TOP_INSIDE_H

#include "server/observe/top_table.h"

#include <pthread.h>

#define SERVER_TOP_HALF_LIFE_US (SERVER_TOP_HALF_LIFE_S * INT64_C(1000000))

enum server_top_list { SERVER_TOP_HOTTEST, SERVER_TOP_DENIED, SERVER_TOP_LISTS };

/* The tables of one policy and thread. */
struct server_top_pair {
    int64_t since_us; /* of the first record; 0: none yet */
    struct server_top_table lists[SERVER_TOP_LISTS];
};

struct server_top_thread {
    uint64_t secret[2];
    uint64_t random;
    double weight;   /* of an event of now */
    uint32_t seq;    /* odd while the next two change, and counts with them */
    int64_t now_us;  /* of the last advance that counted */
    int64_t base_us; /* when the weight was 1 */
    const uint32_t *count;
    struct server_top_pair *pairs[SERVER_TOP_POLICIES_MAX];
} __attribute__((aligned(64)));

struct server_top {
    struct server_top_thread *threads;
    size_t thread_count;
    pthread_mutex_t lock; /* of names, and of the rows that a report is made in */
    char *names[SERVER_TOP_POLICIES_MAX];
    uint32_t count; /* of names and pairs; grows, read without the lock too */
    struct server_top_row *rows;
};

#endif
