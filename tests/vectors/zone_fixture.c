/*
 * Prints a small zone as text: what tests/vectors/zone-v1.txt was made with, by the last program of
 * version 1. Before the format changes again, this keeps a zone of the version that is left behind.
 *
 *     build/tests/zone_fixture > tests/vectors/zone-vN.txt
 */
#include "../unit/carry_test.h"

#include <fcntl.h>

static void print_bytes(int fd)
{
    uint8_t row[32];
    static const uint8_t zeros[sizeof row];
    for (off_t at = 0; pread(fd, row, sizeof row, at) == sizeof row; at += (off_t)sizeof row) {
        if (!memcmp(row, zeros, sizeof row))
            continue;
        printf("%lx ", (unsigned long)at);
        for (size_t i = 0; i < sizeof row; i++)
            printf("%02x", row[i]);
        printf("\n");
    }
}

int main(void)
{
    _Atomic int64_t now = START;
    uint64_t leases[CARRY_KEYS] = {0};
    char receipts[CARRY_KEYS][WEIR_RECEIPT_SIZE];
    weir_store *store = test_open(test_url(TEST_FILE, "zone", "size=128k&large=40%"), &now);
    carry_fill(store, &now, leases, receipts);
    weir_store_close(store);
    printf("now %lld\n", (long long)now);
    for (int i = 0; i < CARRY_KEYS; i++)
        printf("key %llu %s\n", (unsigned long long)leases[i], receipts[i]);
    int fd = open(test_path(TEST_FILE, "zone"), O_RDONLY);
    print_bytes(fd);
    close(fd);
    test_remove(TEST_FILE, "zone");
    test_remove_directory();
    return test_failed > 0;
}
