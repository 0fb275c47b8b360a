/*
 * Zones in files: what is kept over a close, and what is refused: each with its code and a message
 * that names the path and what to do.
 */
#include "store_inside.h"
#include "store_test.h"

#include <fcntl.h>
#include <sys/stat.h>

#define NAME "zone"

static _Atomic int64_t now = START;

static const char *path(void)
{
    return test_path(TEST_FILE, NAME);
}

static const char *url(const char *options)
{
    return test_url(TEST_FILE, NAME, options);
}

#define REFUSED(address, code, fix) test_refused(__FILE__, __LINE__, address, code, path(), fix)

/* A zone with some of everything in it. */
static void make(void)
{
    unlink(path());
    weir_store *store = test_open(url("size=256k&large=40%"), &now);
    weir_limit *limit = test_limit("token-bucket 10/d, sliding-log 10/d, concurrent 10 lease 1d");
    char key[16];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "key %d", i);
        test_take(store, key, limit, 1 + i % 3);
    }
    weir_limit_free(limit);
    weir_store_close(store);
}

static void overwrite(off_t at, const void *bytes, size_t size)
{
    int fd = open(path(), O_WRONLY);
    CHECK_INT(pwrite(fd, bytes, size, at), size);
    close(fd);
}

static void write_file(const char *text, size_t size, mode_t mode)
{
    unlink(path());
    int fd = open(path(), O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK_INT(write(fd, text, size), size);
    fchmod(fd, mode);
    close(fd);
}

static uint32_t dirty_flag(void)
{
    struct weir__zone_header header = {0};
    int fd = open(path(), O_RDONLY);
    CHECK(pread(fd, &header, sizeof header, 0) == sizeof header);
    close(fd);
    return header.dirty;
}

/* ---- what is kept ---- */

static void test_reopen(void)
{
    make();
    CHECK_INT(dirty_flag(), 0);
    weir_limit *limit = test_limit("token-bucket 10/d, sliding-log 10/d, concurrent 10 lease 1d");
    weir_store *store = test_open(url(""), &now);
    CHECK_INT(dirty_flag(), 1);
    CHECK_INT(test_peek(store, "key 2", limit, 0).remaining, 7);
    CHECK_INT(test_info(store).size, 256 << 10);
    weir_store *again = test_open(url("size=256k&large=40%"), &now);
    CHECK_INT(test_take(again, "key 2", limit, 2).allowed, true);
    CHECK_INT(test_peek(store, "key 2", limit, 0).remaining, 5);
    weir_store_close(store);
    CHECK_INT(dirty_flag(), 1);
    CHECK_INT(test_peek(again, "key 2", limit, 0).remaining, 5);
    weir_store_close(again);
    CHECK_INT(dirty_flag(), 0);
    struct stat stat;
    CHECK_INT(lstat(path(), &stat), 0);
    CHECK_INT(stat.st_mode & 07777, 0600);
    CHECK_INT(stat.st_size, 256 << 10);
    CHECK(stat.st_blocks * 512 >= 256 << 10); /* reserved, not sparse */
    weir_limit_free(limit);
}

/* Another secret, and so other places for the same keys, in every new zone. */
static void test_secrets(void)
{
    uint64_t secrets[2];
    for (int i = 0; i < 2; i++) {
        unlink(path());
        weir_store *store = test_open(url("size=64k"), &now);
        secrets[i] = test_zone(store)->secret[0];
        weir_store_close(store);
    }
    CHECK(secrets[0] != secrets[1]);
}

/* ---- what is refused ---- */

static void test_foreign(void)
{
    static char text[100000];
    memset(text, 'x', sizeof text);
    write_file("hello, world\n", 13, 0600);
    REFUSED(url(""), WEIR_EFOREIGN, "another path");
    write_file(text, sizeof text, 0600);
    REFUSED(url(""), WEIR_EFOREIGN, "another path");
    memset(text, 0, sizeof text);
    text[50000] = 'x';
    write_file(text, sizeof text, 0600); /* begins like a file nobody has written to */
    REFUSED(url(""), WEIR_EFOREIGN, "another path");
    struct stat stat;
    CHECK(lstat(path(), &stat) == 0 && stat.st_size == sizeof text);
    write_file("", 0, 0600); /* but an empty one may be used */
    weir_store_close(test_open(url("size=64k"), &now));
}

static void test_truncated(void)
{
    make();
    CHECK_INT(truncate(path(), 255 << 10), 0);
    REFUSED(url(""), WEIR_ETRUNCATED, "restore a backup (docs/BACKUP.md), or remove it");
    CHECK_INT(truncate(path(), 5000), 0);
    REFUSED(url(""), WEIR_ETRUNCATED, "restore a backup (docs/BACKUP.md), or remove it");
    CHECK_INT(truncate(path(), 100), 0);
    REFUSED(url(""), WEIR_ETRUNCATED, "restore a backup (docs/BACKUP.md), or remove it");
    CHECK_INT(truncate(path(), 5), 0);
    REFUSED(url(""), WEIR_EFOREIGN, "another path");
    make();
    CHECK_INT(truncate(path(), 300 << 10), 0); /* longer does no harm */
    weir_store *store = test_open(url(""), &now);
    test_sound(store);
    weir_store_close(store);
}

static void test_version(void)
{
    uint32_t other = WEIR__ZONE_VERSION + 1;
    make();
    overwrite(offsetof(struct weir__zone_header, version), &other, sizeof other);
    REFUSED(url(""), WEIR_EVERSION, "remove it");
}

/* Programs with other locks, words or swaps are refused, with the names of both. */
static void test_platform(void)
{
    const uint8_t libc = WEIR__LIBC == WEIR__MUSL ? WEIR__GLIBC : WEIR__MUSL;
    const uint8_t machines[] = {4, WEIR__MACHINE ^ WEIR__MACHINE_BIG,
                                WEIR__MACHINE ^ WEIR__MACHINE_SWAPS};
    static const char *const named[] = {"32 bits", "big-endian", "16-byte swaps"};
    make();
    overwrite(offsetof(struct weir__zone_header, libc), &libc, 1);
    test_refused(__FILE__, __LINE__, url(""), WEIR_EVERSION, "musl, 64 bits, little-endian",
                 "glibc, 64 bits, little-endian");
    REFUSED(url(""), WEIR_EVERSION, "use one kind for all");
    for (size_t i = 0; i < WEIR__COUNT(machines); i++) {
        make();
        overwrite(offsetof(struct weir__zone_header, machine), &machines[i], 1);
        test_refused(__FILE__, __LINE__, url(""), WEIR_EVERSION, named[i], "remove it");
    }
}

/* Every byte that the header's checksum covers, and the checksum. */
static void test_damaged_header(void)
{
    make();
    for (size_t at = 0; at < offsetof(struct weir__zone_header, dirty); at++) {
        uint8_t byte, wrong;
        int fd = open(path(), O_RDONLY);
        CHECK_INT(pread(fd, &byte, 1, (off_t)at), 1);
        close(fd);
        if (at >= offsetof(struct weir__zone_header, boot) &&
            at < offsetof(struct weir__zone_header, check))
            continue;
        wrong = byte ^ 0x10;
        overwrite((off_t)at, &wrong, 1);
        int code = at < sizeof(uint64_t)                             ? WEIR_EFOREIGN
                   : at < offsetof(struct weir__zone_header, layout) ? WEIR_EVERSION
                                                                     : WEIR_EDAMAGED;
        REFUSED(url(""), code, at < sizeof(uint64_t) ? "another path" : "remove it");
        overwrite((off_t)at, &byte, 1);
    }
    weir_store_close(test_open(url(""), &now));
}

/* Runs of wrong bytes all over rows, table and blocks: found, or harmless, never a crash. */
static void test_damaged_contents(void)
{
    make();
    weir_store *store = test_open(url(""), &now);
    struct weir__layout layout = test_zone(store)->layout;
    weir_store_close(store);
    uint8_t wrong[64];
    memset(wrong, 0xa5, sizeof wrong);
    for (uint64_t at = layout.rows_at + 64; at < layout.taken_at; at += 64)
        overwrite((off_t)at, wrong, 64); /* every row */
    REFUSED(url(""), WEIR_EDAMAGED, "restore a backup (docs/BACKUP.md), or remove it");
    make();
    for (uint64_t at = layout.table_at; at < layout.map_at; at += 128)
        overwrite((off_t)at + 8, wrong, 8); /* a tag: an empty slot that is none, or another key */
    REFUSED(url(""), WEIR_EDAMAGED, "restore a backup (docs/BACKUP.md), or remove it");
    make();
    for (uint64_t at = layout.table_at; at < layout.map_at; at += 128)
        overwrite((off_t)at + 48, wrong, 64); /* states */
    REFUSED(url(""), WEIR_EDAMAGED, "restore a backup (docs/BACKUP.md), or remove it");
    make();
    for (uint64_t at = layout.blocks_at; at + 64 <= layout.size; at += 64)
        overwrite((off_t)at, wrong, 16);
    REFUSED(url(""), WEIR_EDAMAGED, "restore a backup (docs/BACKUP.md), or remove it");
}

/* A row of a kind that this weir does not know: a newer one made it. Its states are not damage. */
static void test_newer_kind(void)
{
    uint8_t kind = WEIR__KIND_COUNT;
    make();
    weir_store *store = test_open(url(""), &now), *beside = test_open(url(""), &now);
    weir_limit *ours = test_limit("fixed-window 3/h"), *newer = test_limit("token-bucket 7/h");
    CHECK_INT(test_take(store, "key", newer, 1).remaining, 6);
    struct weir__zone *zone = test_zone(store);
    uint32_t generation, row = weir__row_find(zone, &newer->rules[0], now, &generation);
    overwrite((off_t)(zone->layout.rows_at + row * sizeof(struct weir__rule) +
                      offsetof(struct weir__rule, kind)),
              &kind, 1);
    CHECK_INT(test_take(beside, "key", ours, 1).remaining, 2); /* another limit of the key */
    weir_error err;
    CHECK_INT(weir_store_check(store, &err), WEIR_EVERSION);
    CHECK(strstr(err.message, "newer weir") && !strstr(err.message, "remove"));
    weir_limit_free(ours);
    weir_limit_free(newer);
    weir_store_close(beside);
    weir_store_close(store);
    REFUSED(url(""), WEIR_EVERSION, "use the newer weir");
}

static void test_permissions(void)
{
    make();
    CHECK_INT(chmod(path(), 0644), 0);
    REFUSED(url(""), WEIR_EOWNER, "chmod 600");
    CHECK_INT(chmod(path(), 0660), 0);
    REFUSED(url(""), WEIR_EOWNER, "chmod 600 it if it is yours, or add mode=0660&group=NAME");
    CHECK_INT(chmod(path(), 0400), 0);
    REFUSED(url(""), WEIR_ESYSTEM, geteuid() == 0 ? "chmod 600" : "denied");
    CHECK_INT(chmod(path(), 0600), 0);
    weir_store_close(test_open(url(""), &now));
    if (geteuid() == 0) {
        CHECK_INT(chown(path(), 65534, 65534), 0);
        REFUSED(url(""), WEIR_EOWNER, "another path");
        CHECK_INT(chown(path(), 0, 0), 0);
    }
}

static void test_wrong_things(void)
{
    char target[256];
    unlink(path());
    snprintf(target, sizeof target, "%s.target", path());
    CHECK_INT(symlink(target, path()), 0);
    REFUSED(url(""), WEIR_ESYSTEM, "symbolic link; name the file itself");
    CHECK(access(target, F_OK) != 0);
    unlink(path());
    CHECK_INT(mkdir(path(), 0700), 0);
    REFUSED(url(""), WEIR_ESYSTEM, "directory");
    rmdir(path());
    CHECK_INT(mkfifo(path(), 0600), 0);
    REFUSED(url(""), WEIR_EFOREIGN, "not an ordinary file");
    unlink(path());
    test_refused(__FILE__, __LINE__, "file:/nowhere/at/all", WEIR_ESYSTEM, "/nowhere/at/all",
                 "No such file");
    test_refused(__FILE__, __LINE__, "file:/dev/full", WEIR_EFOREIGN, "/dev/full",
                 "not an ordinary file");
}

/* With create=no what is there is opened as it is, and nothing is made. */
static void test_only_present(void)
{
    struct stat there;
    unlink(path());
    REFUSED(url("create=no"), WEIR_ESYSTEM, "there is no zone; check its name");
    CHECK(access(path(), F_OK) != 0);
    write_file("", 0, 0600);
    REFUSED(url("create=no"), WEIR_EFOREIGN, "it is not a weir zone: it is empty");
    CHECK(stat(path(), &there) == 0 && there.st_size == 0);
    make();
    weir_store *store = test_open(url("create=no&size=1m&large=10%"), &now);
    CHECK_INT(test_info(store).size, 256 << 10);
    CHECK_INT(test_info(store).keys, 300);
    weir_store *beside = test_open(url("size=256k&create=yes"), &now);
    weir_store_close(beside);
    weir_store_close(store);
    unlink(path());
    weir_store_close(test_open(url("size=256k&create=yes"), &now));
    CHECK(access(path(), F_OK) == 0);
}

/* ---- what becomes of it in use ---- */

static void expect_unsound(weir_store *store, int code, const char *words)
{
    weir_error err = {0};
    CHECK_INT(weir_store_check(store, &err), code);
    CHECK_INT(err.code, code);
    CHECK(strstr(err.message, NAME) && strstr(err.message, words));
}

static void expect_gone(weir_store *store, const weir_limit *limit)
{
    weir_key key = weir_key_text("k");
    weir_decision decision = {0}, many[40];
    weir_request requests[40];
    char receipt[WEIR_RECEIPT_SIZE];
    for (int i = 0; i < 40; i++)
        requests[i] = (weir_request){.key = key, .limit = limit, .cost = 1};
    decision.charged = 1;
    decision.time_us = now;
    weir_receipt(&decision, receipt);
    CHECK_INT(weir_take(store, key, limit, 1, &decision), WEIR_EGONE);
    CHECK_INT(weir_peek(store, key, limit, 1, &decision), WEIR_EGONE);
    CHECK_INT(weir_take_many(store, requests, 40, many), WEIR_EGONE);
    for (int i = 0; i < 40; i++)
        CHECK_INT(many[i].code, WEIR_EGONE);
    CHECK_INT(weir_settle(store, key, limit, receipt, 2, NULL), WEIR_EGONE);
    CHECK_INT(weir_reset(store, key), WEIR_EGONE);
    weir_limit *slots = test_limit("concurrent 3");
    CHECK_INT(weir_acquire(store, key, slots, 1, &decision), WEIR_EGONE);
    CHECK_INT(weir_release(store, key, slots, 7), WEIR_EGONE);
    weir_limit_free(slots);
    expect_unsound(store, WEIR_EGONE, "another zone is at the path");
}

/* Two zones would each allow the whole limit. Whoever has the old one open is told within a
 * second. */
static void test_replaced(enum test_kind kind)
{
    weir_limit *limit = test_limit("token-bucket 10/d");
    weir_store *old = test_open(test_url(kind, NAME, "size=64k"), &now);
    test_take(old, "k", limit, 1);
    test_remove(kind, NAME);
    now += 5 * SECOND;
    CHECK_INT(test_take(old, "k", limit, 1).remaining, 8); /* removed: there is no other one */
    expect_unsound(old, WEIR_ESYSTEM, "the zone was removed while it is in use");
    weir_store *young = test_open(test_url(kind, NAME, "size=64k"), &now);
    expect_unsound(old, WEIR_EGONE, "another zone is at the path"); /* at once */
    test_sound(young);
    CHECK_INT(test_take(young, "k", limit, 1).remaining, 9);
    now += SECOND;
    expect_gone(old, limit);
    CHECK_INT(test_take(young, "k", limit, 1).remaining, 8);
    weir_store_close(old);
    old = test_open(test_url(kind, NAME, "size=64k"), &now);
    CHECK_INT(test_take(old, "k", limit, 1).remaining, 7);
    weir_store_close(old);
    weir_store_close(young);
    weir_limit_free(limit);
    test_remove(kind, NAME);
}

/* A path is what it was when the zone was opened, wherever the process goes. */
static void test_elsewhere(void)
{
    weir_limit *limit = test_limit("token-bucket 10/d");
    char here[4096], other[300];
    CHECK(getcwd(here, sizeof here) != NULL);
    CHECK_INT(chdir(test_directory()), 0);
    weir_store *store = test_open("file:zone?size=64k", &now);
    snprintf(other, sizeof other, "%s/other", test_directory());
    CHECK_INT(mkdir(other, 0700), 0);
    CHECK_INT(chdir(other), 0);
    now += SECOND;
    CHECK_INT(test_take(store, "k", limit, 1).remaining, 9);
    int fd = open("zone", O_WRONLY | O_CREAT, 0600);
    close(fd);
    now += SECOND;
    CHECK_INT(test_take(store, "k", limit, 1).remaining, 8);
    CHECK_INT(rename("zone", "../zone"), 0);
    now += SECOND;
    expect_gone(store, limit);
    CHECK_INT(chdir(here), 0);
    rmdir(other);
    unlink(path());
    weir_store_close(store);
    weir_limit_free(limit);
}

/* Who cuts the file or writes over its beginning is noticed within a second: nobody gets a fresh
 * limit. */
static void test_harmed(off_t size, const char *bytes, size_t len)
{
    weir_limit *limit = test_limit("token-bucket 10/d");
    weir_key key = weir_key_text("k");
    weir_decision decision;
    weir_zone_info info;
    weir_store *store = test_open(url("size=64k"), &now);
    test_take(store, "k", limit, 10);
    int fd = open(path(), O_RDWR);
    CHECK_INT(ftruncate(fd, size), 0);
    CHECK_INT(pwrite(fd, bytes, len, 0), (int64_t)len);
    close(fd);
    now += SECOND;
    for (int i = 0; i < 2; i++) {
        CHECK_INT(weir_store_check(store, NULL), WEIR_EDAMAGED);
        CHECK_INT(weir_take(store, key, limit, 1, &decision), WEIR_EDAMAGED);
        CHECK_INT(weir_peek(store, key, limit, 1, &decision), WEIR_EDAMAGED);
        CHECK_INT(weir_reset(store, key), WEIR_EDAMAGED);
        CHECK_INT(weir_store_info(store, &info), WEIR_EDAMAGED);
    }
    weir_store_close(store);
    weir_limit_free(limit);
    unlink(path());
}

/* Another zone is written over the file: it is whole in itself, but those who open it from now on
 * find no key of ours, and would count apart. */
static void test_harmed_by_another(const char *options)
{
    static char bytes[65536];
    weir_limit *limit = test_limit("token-bucket 10/d");
    weir_decision decision;
    weir_store_close(test_open(url(options), &now));
    int fd = open(path(), O_RDONLY);
    CHECK_INT(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
    close(fd);
    unlink(path());
    weir_store *store = test_open(url("size=64k"), &now);
    test_take(store, "k", limit, 10);
    overwrite(0, bytes, sizeof bytes);
    now += SECOND;
    CHECK_INT(weir_take(store, weir_key_text("k"), limit, 1, &decision), WEIR_EDAMAGED);
    CHECK_INT(weir__store_file_state(store), WEIR__FILE_HARMED);
    CHECK_INT(weir_store_check(store, NULL), WEIR_EDAMAGED);
    weir_store_close(store);
    weir_limit_free(limit);
    unlink(path());
}

/* Whoever copies a backup over a file in use cuts it first. Once that was noticed no verb decides
 * any more, so a check does not call it whole when the copy is done. */
static void test_harmed_and_restored(void)
{
    static char bytes[65536];
    weir_limit *limit = test_limit("token-bucket 10/d");
    weir_decision decision;
    weir_error err;
    weir_store *store = test_open(url("size=64k"), &now);
    int fd = open(path(), O_RDWR);
    test_take(store, "k", limit, 10);
    CHECK_INT(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
    CHECK_INT(ftruncate(fd, 4096), 0);
    now += SECOND;
    CHECK_INT(weir_take(store, weir_key_text("k"), limit, 1, &decision), WEIR_EDAMAGED);
    CHECK_INT(pwrite(fd, bytes, sizeof bytes, 0), sizeof bytes);
    close(fd);
    now += SECOND;
    CHECK_INT(weir_take(store, weir_key_text("k"), limit, 1, &decision), WEIR_EDAMAGED);
    CHECK_INT(weir_store_check(store, &err), WEIR_EDAMAGED);
    CHECK(strstr(err.message, path()) && strstr(err.message, "start again"));
    CHECK_INT(weir__store_file_state(store), WEIR__FILE_HARMED);
    weir_store_close(store);
    weir_limit_free(limit);
    unlink(path());
}

int main(void)
{
    static const char nothing[4096];
    test_harmed(4096, NULL, 0);
    test_harmed(65536, nothing, sizeof nothing);
    test_harmed_by_another("size=64k");
    test_harmed_by_another("size=64k&large=40%");
    test_harmed_and_restored();
    test_reopen();
    test_secrets();
    test_foreign();
    test_truncated();
    test_version();
    test_platform();
    test_damaged_header();
    test_damaged_contents();
    test_newer_kind();
    test_permissions();
    test_wrong_things();
    test_only_present();
    test_replaced(TEST_FILE);
    test_replaced(TEST_SHM);
    test_elsewhere();
    unlink(path());
    test_remove_directory();
    return test_report();
}
