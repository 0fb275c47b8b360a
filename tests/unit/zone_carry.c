/*
 * Zones that are made again: in another size, of version 1, after a crash at any moment. Every key
 * must decide as before, and whatever goes wrong leaves the old zone as it was.
 */
#include "carry_test.h"
#include "store_inside.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define NAME "zone"
#define BEGIN (START + 12345)

static _Atomic int64_t now = BEGIN;
static uint64_t leases[CARRY_KEYS], other_leases[CARRY_KEYS];
static char receipts[CARRY_KEYS][WEIR_RECEIPT_SIZE];

/* The file behind a zone. */
static const char *file_of(enum test_kind kind, const char *suffix)
{
    static char path[400];
    snprintf(path, sizeof path, "%s%s%s", kind == TEST_SHM ? "/dev/shm" : "", test_path(kind, NAME),
             suffix);
    return path;
}

/* A zone with states of every kind, closed; and a store that holds the same. */
static weir_store *make(enum test_kind kind)
{
    test_remove(kind, NAME);
    weir_store *twin = test_open("memory:1m?large=40%", &now);
    now = BEGIN;
    carry_fill(twin, &now, other_leases, receipts);
    weir_store *store = test_open(test_url(kind, NAME, "size=256k&large=40%"), &now);
    now = BEGIN;
    carry_fill(store, &now, leases, receipts);
    weir_store_close(store);
    return twin;
}

static void expect_only(enum test_kind kind)
{
    CHECK(access(file_of(kind, ".carry"), F_OK) != 0);
    CHECK(access(file_of(kind, ".v1"), F_OK) != 0);
    CHECK_INT(access(file_of(kind, ""), F_OK), 0);
}

static void test_sizes(enum test_kind kind)
{
    static const char *const options[] = {"size=128k", "size=4m", "large=70%",
                                          "size=256k&large=40%", ""};
    static const uint64_t sizes[] = {128 << 10, 4 << 20, 4 << 20, 256 << 10, 256 << 10};
    weir_store *twin = make(kind);
    uint64_t secret = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        weir_store *store = test_open(test_url(kind, NAME, options[i]), &now);
        CHECK_INT(test_info(store).size, sizes[i]);
        CHECK_INT(test_info(store).keys, test_info(twin).keys);
        CHECK(i == 0 || secret == test_zone(store)->secret[0]);
        secret = test_zone(store)->secret[0];
        test_sound(store);
        carry_compare(__FILE__, __LINE__, twin, store, &now);
        struct stat stat_;
        CHECK(stat(file_of(kind, ""), &stat_) == 0 && (stat_.st_mode & 07777) == 0600);
        expect_only(kind);
        weir_store_close(store);
    }
    weir_store *store = test_open(test_url(kind, NAME, "size=512k"), &now);
    carry_compare_rest(store, leases, receipts);
    weir_store_close(store);
    weir_store_close(twin);
    test_remove(kind, NAME);
}

/* Who else has it open goes on, and the error says what to do. */
static void test_in_use(enum test_kind kind)
{
    weir_store *twin = make(kind);
    weir_store *first = test_open(test_url(kind, NAME, ""), &now);
    test_refused(__FILE__, __LINE__, test_url(kind, NAME, "size=1m"), WEIR_EURL,
                 test_path(kind, NAME), "it has size=256k and large");
    test_refused(__FILE__, __LINE__, test_url(kind, NAME, "large=41%"), WEIR_EURL,
                 test_path(kind, NAME), "end that process");
    weir_store *second = test_open(test_url(kind, NAME, "size=256k"), &now);
    carry_compare(__FILE__, __LINE__, twin, second, &now);
    weir_store_close(second);
    weir_store_close(first);
    weir_store_close(twin);
    test_remove(kind, NAME);
}

/* States that do not fit: the zone stays as it was, and nothing is left beside it. */
static void test_too_small(enum test_kind kind)
{
    char key[32];
    weir_store *twin = make(kind);
    weir_store *store = test_open(test_url(kind, NAME, "size=1m"), &now);
    weir_limit *limit = test_limit("fixed-window 10/366d");
    weir_clock real = {0};
    weir_store_set_clock(store, &real); /* live by the clock that opening goes by */
    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof key, "many %d", i);
        test_take(store, key, limit, 1);
    }
    uint64_t keys = test_info(store).keys;
    weir_store_close(store);
    test_refused(__FILE__, __LINE__, test_url(kind, NAME, "size=128k"), WEIR_EFULL,
                 test_path(kind, NAME), "fit into size=128k and large");
    expect_only(kind);
    store = test_open(test_url(kind, NAME, ""), &now);
    CHECK_INT(test_info(store).size, 1 << 20);
    CHECK_INT(test_info(store).keys, keys);
    carry_compare(__FILE__, __LINE__, twin, store, &now);
    weir_limit_free(limit);
    weir_store_close(store);
    weir_store_close(twin);
    test_remove(kind, NAME);
}

/* More limits than have rows of their own in the layout. */
static void test_many_limits(enum test_kind kind)
{
    weir_store *store = NULL;
    char key[16];
    test_remove(kind, NAME);
    for (int round = 0; round < 3; round++) { /* charged, carried over, carried over again */
        static const char *const sizes[] = {"size=16m", "size=8m", "size=32m&large=20%"};
        store = test_open(test_url(kind, NAME, sizes[round]), &now);
        for (int i = 1; i <= 5000; i++) {
            weir_limit *limit = test_limit_of(i % 2 ? "fixed-window %d/d" : "sliding-log %d/d", i);
            snprintf(key, sizeof key, "key %d", i);
            weir_decision decision =
                round == 0 ? test_take(store, key, limit, 1) : test_peek(store, key, limit, 0);
            CHECK_INT(decision.remaining, i - 1);
            weir_limit_free(limit);
        }
        CHECK_INT(test_info(store).keys, 5000);
        CHECK_INT(test_info(store).limits, 5000);
        test_sound(store);
        weir_store_close(store);
    }
    test_remove(kind, NAME);
}

static void write_text(const char *path, const void *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK_INT(write(fd, text, len), len);
    close(fd);
}

/* What a crash left is removed; what somebody put there is not. */
static void test_leftover(enum test_kind kind)
{
    weir_store *twin = make(kind);
    write_text(file_of(kind, ".carry"), "weirZon?", 8);
    weir_store *store = test_open(test_url(kind, NAME, "size=1m"), &now);
    carry_compare(__FILE__, __LINE__, twin, store, &now);
    expect_only(kind);
    weir_store_close(store);
    write_text(file_of(kind, ".carry"), "a letter", 8);
    test_refused(__FILE__, __LINE__, test_url(kind, NAME, "size=256k"), WEIR_ESYSTEM,
                 test_path(kind, NAME), "in the way");
    char text[9] = "";
    int fd = open(file_of(kind, ".carry"), O_RDONLY);
    CHECK_INT(read(fd, text, 8), 8);
    CHECK(!strcmp(text, "a letter"));
    close(fd);
    unlink(file_of(kind, ".carry"));
    weir_store_close(twin);
    test_remove(kind, NAME);
}

/* A process that makes it again is killed at any moment. */
static void test_killed(enum test_kind kind)
{
    weir_store *twin = make(kind);
    int changed = 0;
    for (int i = 0; i < 60; i++) {
        bool large = i % 2;
        char url[512]; /* of this process: a child has another number */
        snprintf(url, sizeof url, "%s", test_url(kind, NAME, large ? "size=2m" : "size=256k"));
        pid_t pid = fork();
        if (pid == 0) {
            weir_store *store = NULL;
            _exit(weir_store_open(url, &store, NULL) ? 1 : 0);
        }
        nanosleep(&(struct timespec){0, 20000L * i * i}, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        weir_store *store = test_open(test_url(kind, NAME, ""), &now);
        uint64_t size = test_info(store).size;
        CHECK(size == 256 << 10 || size == 2 << 20);
        changed += size == (large ? 2u << 20 : 256u << 10);
        test_sound(store);
        CHECK_INT(test_info(store).keys, test_info(twin).keys);
        weir_store_close(store);
    }
    weir_store *store = test_open(test_url(kind, NAME, "size=512k"), &now);
    carry_compare(__FILE__, __LINE__, twin, store, &now);
    expect_only(kind);
    printf("killed 60 times, made again %d times\n", changed);
    weir_store_close(store);
    weir_store_close(twin);
    test_remove(kind, NAME);
}

/* ---- version 1 ---- */

/* Writes the zone of version 1 that is kept as text; sets the clock, leases and receipts. */
static void make_old(enum test_kind kind, const char *fixture)
{
    static uint8_t bytes[128 << 10];
    char line[256];
    int key = 0;
    FILE *file = fopen(fixture, "r");
    if (!file)
        test_give_up(fixture, "cannot read it");
    memset(bytes, 0, sizeof bytes);
    while (fgets(line, sizeof line, file)) {
        unsigned long at;
        long long time;
        char text[200];
        unsigned long long lease;
        if (sscanf(line, "now %lld", &time) == 1) {
            now = time;
        } else if (sscanf(line, "key %llu %199s", &lease, text) == 2) {
            leases[key] = lease;
            snprintf(receipts[key++], WEIR_RECEIPT_SIZE, "%.63s", text);
        } else if (sscanf(line, "%lx %199s", &at, text) == 2 && at + 32 <= sizeof bytes) {
            for (size_t i = 0; i < 32; i++)
                sscanf(text + 2 * i, "%2hhx", &bytes[at + i]);
        }
    }
    fclose(file);
    test_remove(kind, NAME);
    unlink(file_of(kind, ".v1"));
    write_text(file_of(kind, ""), bytes, sizeof bytes);
}

static void test_old(enum test_kind kind, const char *fixture)
{
    char no_receipts[CARRY_KEYS][WEIR_RECEIPT_SIZE];
    weir_store *twin = test_open("memory:1m?large=40%", &now);
    now = START;
    carry_fill(twin, &now, other_leases, no_receipts);
    int64_t ended = now;
    make_old(kind, fixture);
    CHECK_INT(now, ended);
    weir_store *store = test_open(test_url(kind, NAME, ""), &now);
    CHECK_INT(test_zone(store)->header->version, WEIR__ZONE_VERSION);
    CHECK_INT(test_info(store).size, 128 << 10);
    CHECK_INT(test_info(store).keys, test_info(twin).keys);
    test_sound(store);
    carry_compare(__FILE__, __LINE__, twin, store, &now);
    carry_compare_rest(store, leases, receipts);
    weir_store_close(store);
    CHECK_INT(access(file_of(kind, ".v1"), F_OK), kind == TEST_FILE ? 0 : -1);
    if (kind == TEST_FILE) { /* the way back is a rename; and the way forth may be gone twice */
        CHECK_INT(rename(file_of(kind, ".v1"), test_path(kind, NAME)), 0);
        store = test_open(test_url(kind, NAME, "size=1m"), &now);
        CHECK_INT(test_info(store).size, 1 << 20);
        carry_compare(__FILE__, __LINE__, twin, store, &now);
        weir_store_close(store);
        unlink(file_of(kind, ".v1"));
    }
    weir_store_close(twin);
    test_remove(kind, NAME);
}

/* A program of version 1 has it open: this one leaves it alone. */
static void test_old_in_use(enum test_kind kind, const char *fixture)
{
    make_old(kind, fixture);
    int fd = open(file_of(kind, ""), O_RDWR);
    struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    CHECK_INT(fcntl(fd, F_OFD_SETLK, &whole), 0);
    test_refused(__FILE__, __LINE__, test_url(kind, NAME, ""), WEIR_EVERSION, test_path(kind, NAME),
                 "end that process");
    close(fd);
    weir_store_close(test_open(test_url(kind, NAME, ""), &now));
    unlink(file_of(kind, ".v1"));
    test_remove(kind, NAME);
}

/* The zone that was just closed becomes one of version 2, as its maker would have left it: with
 * lists of free blocks where there are counts by now. */
static void make_version2(enum test_kind kind, uint32_t summed_as, uint8_t libc)
{
    int fd = open(file_of(kind, ""), O_RDWR);
    struct weir__zone_header header;
    struct weir__block_arena arena;
    CHECK(pread(fd, &header, sizeof header, 0) == sizeof header);
    off_t at = (off_t)header.layout.arenas_at;
    CHECK(pread(fd, &arena, sizeof arena, at) == sizeof arena);
    for (size_t i = 0; i < WEIR__COUNT(arena.free); i++) {
        arena.free[i] = (uint16_t)(i + 1);
        arena.near[i] = (uint16_t)(i * 4099);
    }
    header.version = WEIR__ZONE2_VERSION;
    header.libc = libc;
    header.check = weir__zone_sum(&header, summed_as);
    CHECK(pwrite(fd, &arena, sizeof arena, at) == sizeof arena);
    CHECK(pwrite(fd, &header, sizeof header, 0) == sizeof header);
    close(fd);
}

/* A zone of version 2 is raised where it lies; also where somebody died while raising it. One that
 * is in use, or of another kind of program, is left alone. */
static void test_version2(enum test_kind kind)
{
    static const uint32_t sums[] = {WEIR__ZONE2_VERSION, WEIR__ZONE_VERSION};
    const uint8_t other = WEIR__LIBC == WEIR__MUSL ? WEIR__GLIBC : WEIR__MUSL;
    char no_receipts[CARRY_KEYS][WEIR_RECEIPT_SIZE];
    for (size_t i = 0; i < WEIR__COUNT(sums); i++) {
        weir_store *twin = test_open("memory:1m?large=40%", &now);
        now = START;
        carry_fill(twin, &now, other_leases, no_receipts);
        now = START;
        weir_store *store = test_open(test_url(kind, NAME, "size=1m&large=40%"), &now);
        carry_fill(store, &now, leases, receipts);
        weir_store_close(store);
        make_version2(kind, sums[i], other);
        test_refused(__FILE__, __LINE__, test_url(kind, NAME, ""), WEIR_EVERSION, "of version 2",
                     "remove it");
        make_version2(kind, sums[i], WEIR__LIBC);
        int fd = open(file_of(kind, ""), O_RDWR);
        struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        CHECK_INT(fcntl(fd, F_OFD_SETLK, &whole), 0);
        test_refused(__FILE__, __LINE__, test_url(kind, NAME, ""), WEIR_EVERSION, "of version 2",
                     "end that process");
        close(fd);
        store = test_open(test_url(kind, NAME, ""), &now);
        CHECK_INT(test_zone(store)->header->version, WEIR__ZONE_VERSION);
        CHECK_INT(test_info(store).keys, test_info(twin).keys);
        test_sound(store);
        carry_compare(__FILE__, __LINE__, twin, store, &now);
        carry_compare_rest(store, leases, receipts);
        weir_store_close(store);
        weir_store_close(twin);
        test_remove(kind, NAME);
    }
}

/* Wrong bytes anywhere: refused, and left as they are; or of no weight. Never a crash. */
static void test_old_damaged(const char *fixture)
{
    int refused = 0;
    for (off_t at = 8; at < 128 << 10; at += at < 256 ? 8 : 3064) {
        uint8_t wrong[64], before[64], after[64];
        weir_store *store = NULL;
        weir_error err = {0};
        memset(wrong, 0xa5, sizeof wrong);
        make_old(TEST_FILE, fixture);
        int fd = open(file_of(TEST_FILE, ""), O_RDWR);
        CHECK(pwrite(fd, wrong, sizeof wrong, at) == sizeof wrong);
        CHECK(pread(fd, before, sizeof before, at) == sizeof before);
        int code = weir_store_open(test_url(TEST_FILE, NAME, ""), &store, &err);
        refused += code != 0;
        CHECK(code == 0 || code == WEIR_EDAMAGED || code == WEIR_EVERSION ||
              code == WEIR_ETRUNCATED);
        if (code == 0)
            test_sound(store);
        CHECK(pread(fd, after, sizeof after, at) == sizeof after &&
              !memcmp(before, after, sizeof after));
        close(fd);
        weir_store_close(store);
    }
    CHECK(refused > 30);
    printf("damaged in different ways, %d refused\n", refused);
    unlink(file_of(TEST_FILE, ".v1"));
    test_remove(TEST_FILE, NAME);
}

int main(int argc, char **argv)
{
    const char *fixture = argc > 1 ? argv[1] : "tests/vectors/zone-v1.txt";
    for (enum test_kind kind = TEST_SHM; kind <= TEST_FILE; kind++) {
        test_sizes(kind);
        test_in_use(kind);
        test_too_small(kind);
        test_many_limits(kind);
        test_leftover(kind);
        test_killed(kind);
        test_version2(kind);
    }
    carry_count = CARRY_LIMITS_1;
    for (enum test_kind kind = TEST_SHM; kind <= TEST_FILE; kind++) {
        test_old(kind, fixture);
        test_old_in_use(kind, fixture);
    }
    test_old_damaged(fixture);
    test_remove_directory();
    return test_report();
}
