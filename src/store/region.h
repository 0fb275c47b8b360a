/*
 * Regions: the memory a zone lives in. Reads a store address, maps private memory, shared memory or
 * a file, and opens or makes the zone in it. Memory can be borrowed, too (weir__zone_store_over).
 *
 * Every process keeps a shared lock (fcntl, of the open file) as long as it has it open. Who can
 * get the exclusive one is alone: it may make the zone, renew its locks, repair what the last one
 * left, and make it again in another size (region_remake.c).
 */
#ifndef WEIR_REGION_H
#define WEIR_REGION_H

#include "store/zone/zone.h"

#include <sys/stat.h>
#include <sys/types.h>

enum weir__region_kind { WEIR__MEMORY, WEIR__SHM, WEIR__FILE, WEIR__BORROWED };

/* Who may open a zone: its owner, or the members of a group as well. There is nothing else: who may
 * only read a zone cannot use it, and would know its secret. */
#define WEIR__MODE_OWN 0600
#define WEIR__MODE_GROUP 0660

#define WEIR__REGION_PATH_MAX (4096 + 16)

struct weir__region {
    enum weir__region_kind kind;
    char path[4096];   /* without the scheme; empty for memory */
    uint64_t size;     /* 0: not given */
    int large_percent; /* -1: not given */
    bool keeps;        /* full=deny */
    bool present;      /* create=no: what is there is opened as it is */
    unsigned mode;     /* WEIR__MODE_OWN or WEIR__MODE_GROUP */
    gid_t group;       /* WEIR__MODE_GROUP: whose */
    int fd;            /* -1: none */
    struct weir__zone zone;
    bool made;            /* there was none */
    uint64_t size_before; /* of one that was made again; 0: it is as it was */
    unsigned large_percent_before;
    /* Where the file was when it was opened, and which one it was; empty: nobody looks. */
    char watched[2 * WEIR__REGION_PATH_MAX];
    dev_t device;
    ino_t inode;
    _Atomic int lost; /* WEIR_EGONE: another one is there by now; WEIR_EDAMAGED */
};

/* Reads the address only. */
int weir__region_parse(const char *url, struct weir__region *ret, weir_error *err);
/* Maps it and opens the zone. On failure nothing is left open; a new file is removed. */
int weir__region_open(struct weir__region *region, weir_error *err);
void weir__region_close(struct weir__region *region);

/* ---- region_watch.c: what becomes of the file of a zone that is in use ---- */

#define WEIR__LOOK_EVERY_US 1000000

/* From now on its path is looked at, once a second at most, when the zone is used
 * (zone->look_at_us). */
int weir__region_watch(struct weir__region *region, weir_error *err);
/* Looks, if it is time: 0, or what it says from then on: WEIR_EGONE, or WEIR_EDAMAGED if the file
 * is shorter now or its header was overwritten. */
int weir__region_look(struct weir__region *region, int64_t now_us);
/* Whether the file that is open has its length and its header, and had them at each look. */
bool weir__region_is_whole(const struct weir__region *region);
/* Whether its file is still there, the same one and whole. */
int weir__region_check(const struct weir__region *region, weir_error *err);

/* ---- region_remake.c: the states of a zone in a new one ---- */

/* What goes into a zone beside the states that are there. */
struct weir__load {
    uint64_t secret[2];     /* under which its tags were made */
    uint64_t size;          /* of a new zone where neither the address nor an old one says it */
    unsigned large_percent; /* likewise */
    int (*fill)(struct weir__zone *zone, void *context, weir_error *err);
    void *context;
};

/* Adds states to the zone at an address, or to a new one there, while nobody else has it open. All
 * or nothing. */
int weir__region_load(const char *url, const struct weir__load *load, weir_error *err);

/* The zone as the address wants it, made again beside the old one and then put in its place. The
 * region has the exclusive lock; on failure it is as before. */
int weir__region_resize(struct weir__region *region, weir_error *err);
/* Likewise of the version before. Nothing is mapped yet. */
int weir__region_upgrade(struct weir__region *region, uint64_t size, weir_error *err);

/* ---- shared by both files ---- */

/* A size in messages, as addresses write it: the number in place of the bytes, and its unit. */
const char *weir__region_unit(uint64_t *size);
/* What the region is called in messages. */
const char *weir__region_shown(const struct weir__region *region);
/* The path of the file behind it. */
void weir__region_path(const struct weir__region *region, char ret[WEIR__REGION_PATH_MAX]);
/* Fails with what the system said. */
int weir__region_fail(const struct weir__region *region, const char *doing, weir_error *err);
/* F_WRLCK or F_RDLCK, without waiting; 0, or -1 and errno. */
int weir__region_try_lock(const struct weir__region *region, short type);
/* Opens and locks the file that the path names, made if need be and the address allows it;
 * *ret_alone: whether nobody else has it open. */
int weir__region_open_file(struct weir__region *region, bool *ret_alone, weir_error *err);
/* Whether the file is one that the address speaks of. *ret_unmade: there is no zone in it yet. */
int weir__region_check_file(struct weir__region *region, bool alone, struct stat *ret,
                            bool *ret_unmade, weir_error *err);
/* Opens the file without waiting; flags: 0, or O_CREAT | O_EXCL. -1 and errno. */
int weir__region_open_fd(const struct weir__region *region, int flags);
/* Makes the zone in an empty file of ours, with the rights that the address asks for. */
int weir__region_make(struct weir__region *region, weir_error *err);
/* Opens the zone in a file of that size, as the address wants it. */
int weir__region_open_zone(struct weir__region *region, uint64_t size, bool alone, weir_error *err);
void weir__region_unlink(const struct weir__region *region);

#endif
