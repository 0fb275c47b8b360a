/*
 * How much room there is: the layout of every size, files that do not fit on their disk, and store
 * addresses that make no sense, each refused at its column.
 */
#include "store_inside.h"
#include "store_test.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NAME "space"

static _Atomic int64_t now = START;

static const char *path(void)
{
    return test_path(TEST_FILE, NAME);
}

/* Every size and share has room for keys. */
static void test_layouts(void)
{
    for (unsigned percent = 0; percent <= 90; percent++) {
        for (uint64_t size = 64 << 10; size <= 64 << 20; size = size * 5 / 4 / 4096 * 4096) {
            struct weir__layout layout;
            CHECK(weir__zone_plan(size, percent, &layout));
            CHECK(layout.pages >= 1);
            CHECK(layout.table_at < layout.map_at);
            CHECK(layout.blocks_at + (uint64_t)layout.units * WEIR__BLOCK_UNIT <= size);
        }
    }
    weir_limit *limit = test_limit("token-bucket 10/d");
    weir_store *store = test_open("memory:64k?large=90%", &now);
    for (int i = 0; i < 1000; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i);
        test_take(store, key, limit, 1);
    }
    test_sound(store);
    weir_store_close(store);
    weir_limit_free(limit);
}

/* ---- no space ---- */

static void fill_up(const char *address, const char *named, const char *why)
{
    test_refused(__FILE__, __LINE__, address, WEIR_ESYSTEM, named, why);
    CHECK(access(named, F_OK) != 0); /* what was not made is not left behind */
}

static void test_no_space(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        test_passed = test_failed = 0;
        struct rlimit most = {100000, 100000};
        signal(SIGXFSZ, SIG_IGN);
        unlink(path());
        setrlimit(RLIMIT_FSIZE, &most);
        fill_up(test_url(TEST_FILE, NAME, "size=256k"), path(), "File too large");
        fflush(stdout);
        _exit(test_failed ? 1 : 0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
}

/* A file system of its own, where the system lets us have one. */
static void test_full_disk(void)
{
    char mount_point[300], named[400], address[600];
    fflush(stdout);
    snprintf(mount_point, sizeof mount_point, "%s/disk", test_directory());
    mkdir(mount_point, 0700);
    pid_t pid = fork();
    if (pid == 0) {
        test_passed = test_failed = 0;
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("none", mount_point, "tmpfs", 0, "size=128k,mode=0700"))
            _exit(77);
        snprintf(named, sizeof named, "%s/zone", mount_point);
        snprintf(address, sizeof address, "file:%s?size=256k", named);
        fill_up(address, named, "No space left");
        snprintf(address, sizeof address, "file:%s?size=64k", named);
        weir_store_close(test_open(address, &now));
        fflush(stdout);
        _exit(test_failed ? 1 : 0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        printf("no small file system here: left out\n");
    else
        CHECK_INT(status, 0);
    rmdir(mount_point);
}

/* ---- addresses ---- */

static void test_addresses(void)
{
    static const struct {
        const char *address;
        int column;
        const char *says;
    } wrong[] = {
        {"", 1, "expected memory:64m"},
        {"memry:64m", 1, "expected memory:64m"},
        {"MEMORY:64m", 1, "expected memory:64m"},
        {"REDIS://:pass@word@host", 1, "\"REDIS://…@host\": expected memory:64m"},
        {"pass:word@host", 1, "\"…@host\": expected memory:64m"},
        {"memory:12q", 8, "a size like 64m"},
        {"memory:m", 8, "a size like 64m"},
        {"memory:64mm", 8, "a size like 64m"},
        {"memory:-1m", 8, "a size like 64m"},
        {"memory:1k", 8, "at least 64k"},
        {"memory:0", 8, "at least 64k"},
        {"memory:257g", 8, "a size like 64m"},
        {"memory:17179869185g", 8, "a size like 64m"},
        {"memory:99999999999999999999", 8, "a size like 64m"},
        {"memory:?size=1x", 14, "a size like 64m"},
        {"memory:64m?colour=red", 12, "unknown option"},
        {"memory:64m?large=91%", 18, "0% to 90%"},
        {"memory:64m?large=x", 18, "0% to 90%"},
        {"memory:64m?large=5%%", 18, "0% to 90%"},
        {"memory:64m?large=10%&size=7", 22, "given twice"},
        {"shm:/a?large=10%&size=7", 23, "at least 64k"},
        {"shm:/a?large=10%&large=10%", 18, "given twice"},
        {"shm:", 5, "a name like /weir"},
        {"shm:name", 5, "a name like /weir"},
        {"shm:/", 5, "a name like /weir"},
        {"shm:/a/b", 5, "a name like /weir"},
        {"shm:/name?size", 11, "unknown option"},
        {"file:", 6, "expected a path"},
        {"file:?size=64m", 6, "expected a path"},
        {"file:z?mode=", 8, "unknown option"},
        {"file:z?mode=0666&group=0", 13, "invalid mode \"0666\": expected 0600, or 0660"},
        {"file:z?mode=0664&group=0", 13, "invalid mode"},
        {"file:z?mode=0640&group=0", 13, "invalid mode"},
        {"file:z?mode=00660&group=0", 13, "invalid mode"},
        {"file:z?mode=4660&group=0", 13, "invalid mode"},
        {"file:z?mode=66&group=0", 13, "invalid mode"},
        {"file:z?mode=0660", 8, "give both"},
        {"file:z?group=0", 8, "give both"},
        {"file:z?mode=600&group=0", 8, "give both"},
        {"file:z?mode=0660&mode=0660&group=0", 18, "given twice"},
        {"file:z?mode=0660&group=no-such-group", 24, "there is no group \"no-such-group\""},
        {"file:z?mode=0660&group=-1", 24, "there is no group"},
        {"file:z?mode=0660&group=4294967295", 24, "there is no group"},
        {"file:z?create=maybe", 15, "invalid create \"maybe\": expected no or yes"},
        {"file:z?create=n", 15, "invalid create"},
        {"file:z?create=yet", 15, "invalid create"},
        {"file:z?create=on", 15, "invalid create"},
        {"memory:64m?create=no", 12, "use shm: or file:"},
        {"memory:64m?mode=0660&group=0", 12, "use shm: or file:"},
        {NULL, 0, NULL},
    };
    for (size_t i = 0; wrong[i].says; i++) {
        weir_store *store = NULL;
        weir_error err = {0};
        char what[900];
        int code = weir_store_open(wrong[i].address, &store, &err);
        snprintf(what, sizeof what, "%s: %s at column %d (%s), expected column %d",
                 wrong[i].address, weir_errname(code), err.column, err.message, wrong[i].column);
        test_check(code == WEIR_EURL && err.column == wrong[i].column &&
                       strstr(err.message, wrong[i].says) && !store,
                   __FILE__, __LINE__, what);
        CHECK_INT(weir_store_open(wrong[i].address, &store, NULL), WEIR_EURL);
    }
    weir_store *store = NULL;
    CHECK_INT(weir_store_open(NULL, &store, NULL), WEIR_EINVAL);
    char longest[5000] = "file:/";
    memset(longest + 6, 'x', sizeof longest - 7);
    CHECK_INT(weir_store_open(longest, &store, NULL), WEIR_EURL);
    CHECK(!store);
}

static void test_sizes(void)
{
    static const struct {
        const char *address;
        uint64_t size;
    } right[] = {{"memory:", 64 << 20},           {"memory:64k", 64 << 10},
                 {"memory:1M", 1 << 20},          {"memory:100000", 98304},
                 {"memory:?size=2m", 2 << 20},    {"memory:1m?large=0", 1 << 20},
                 {"memory:1m?large=90%", 1 << 20}};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        weir_store *store = test_open(right[i].address, &now);
        CHECK_INT(test_info(store).size, right[i].size);
        weir_store_close(store);
    }
}

int main(void)
{
    test_directory(); /* before the first fork: it is the parent's to remove */
    test_layouts();
    test_no_space();
    test_full_disk();
    test_addresses();
    test_sizes();
    test_remove_directory();
    return test_report();
}
