/*
 * A small zone with states of all kinds, damaged as the input says, then opened and used. It may be
 * refused; if it opens, no verb may crash, hang, read outside the zone or make it worse.
 *
 * The zone lies in memory of its own with a fence behind it, where a read outside is seen at once;
 * some inputs write it to a file, whole or cut short, and open that.
 */
#include "fuzz.h"

#include "base/hash.h"
#include "sim/virtual_clock.h"
#include "store/zone/store.h"

#include <fcntl.h>
#include <unistd.h>

#define SIZE 65536
#define LARGE_PERCENT 75 /* a table soon full */
#define CROWD_KEYS 640
#define NOW_US INT64_C(1700000000000000)

static const char *const limits[] = {
    "token-bucket 10/s burst 20",
    "token-bucket 10/m burst 20 stepped",
    "leaky-bucket 10/h burst 5",
    "fixed-window 100/m",
    "fixed-window 100/h from-first",
    "sliding-log 40/m",
    "sliding-window 240/h precision 1m",
    "sliding-counter 1000/h",
    "smooth 5/s burst-for 2s",
    "warmup 5/s over 3s",
    "concurrent 30 lease 10m",
    "token-bucket 7/90s, leaky-bucket 3/m burst 9 delay 2, sliding-counter 9/d, smooth 1/d",
    "fixed-window 50/month from 31 zone +08:00",
    "fixed-window 50/90s zone -12:00, fixed-window 9/year from 02-29, fixed-window 9/w from sun",
};
#define LIMITS WEIR__COUNT(limits)

static weir_limit *parsed[LIMITS];
static uint8_t image[SIZE] __attribute__((aligned(4096)));
static uint64_t lease;

/* ---- the image ---- */

static uint64_t header_check(const struct weir__zone_header *header)
{
    uint64_t key[2] = {WEIR__ZONE_MAGIC, WEIR__ZONE_VERSION}, hash[2];
    weir__hash(key, header, offsetof(struct weir__zone_header, boot), hash);
    return hash[0];
}

/* A store over memory that holds a zone, until the next one. */
static weir_store *store_over(const struct weir__zone *zone, struct weir__virtual_clock *clock)
{
    static weir_store *store;
    if (!store)
        EXPECT(weir_store_open("memory:64k", &store, NULL) == 0, "open");
    struct weir__zone *last = &((struct weir__zone_store *)store)->region.zone;
    free(last->sweep.verdicts);
    *last = *zone;
    weir__virtual_clock_install(clock, store);
    return store;
}

static weir_key key_of(char *room, size_t i)
{
    snprintf(room, 8, "k%zu", i);
    return weir_key_text(room);
}

static void fill(weir_store *store, struct weir__virtual_clock *clock)
{
    char room[8];
    weir_decision d;
    for (size_t i = 0; i < LIMITS; i++) {
        for (size_t n = 0; n < 2 + i; n++) {
            int64_t cost = 1 + (int64_t)n % 2;
            EXPECT(weir_take(store, key_of(room, i), parsed[i], cost, &d) == 0, "%s", limits[i]);
            clock->now_us += 1500;
        }
    }
    size_t last = 10; /* concurrent */
    EXPECT(weir_acquire(store, key_of(room, last), parsed[last], 1, &d) == 0 && d.lease, "acquire");
    lease = d.lease;
}

static void make_image(void)
{
    struct weir__virtual_clock clock = {NOW_US - 1000000};
    struct weir__zone zone;
    weir_error err = {0};
    fuzz_random_reset();
    EXPECT(weir__zone_format(image, SIZE, LARGE_PERCENT, false, &zone, &err) == 0, "%s",
           err.message);
    for (size_t i = 0; i < LIMITS; i++)
        EXPECT(weir_limit_parse(limits[i], &parsed[i], &err) == 0, "%s", err.message);
    fill(store_over(&zone, &clock), &clock);
    const struct weir__zone_header *header = (const struct weir__zone_header *)image;
    EXPECT(header_check(header) == header->check, "the checksum is made otherwise");
    EXPECT(weir__zone_check(&zone, &err) == 0, "%s", err.message);
}

/* ---- damage ---- */

struct target {
    uint8_t *base;
    struct weir__layout layout; /* of the sound image */
};

static void poke(struct target *target, struct fuzz_input *input, uint64_t from, uint64_t words)
{
    uint64_t place = from + fuzz_number(input, 2) % (words ? words : 1) * 8;
    uint8_t how = fuzz_byte(input);
    uint64_t value = fuzz_number(input, how % 8 + 1u), old;
    EXPECT(place + 8 <= SIZE, "the harness leads outside");
    memcpy(&old, target->base + place, 8);
    uint64_t new = how & 0x80   ? old ^ value
                   : how & 0x40 ? old + value
                   : how & 0x20 ? ~value
                                : value;
    memcpy(target->base + place, &new, 8);
}

/* The n-th slot in use, as an offset of its state. */
static uint64_t used_slot(const struct target *target, uint64_t n)
{
    const struct weir__group *groups =
        (const struct weir__group *)(target->base + target->layout.table_at);
    uint64_t count = (target->layout.map_at - target->layout.table_at) / sizeof *groups;
    for (uint64_t i = 0, seen = 0; i < count * WEIR__SLOTS * 2; i++) {
        uint64_t g = i / WEIR__SLOTS % count, slot = i % WEIR__SLOTS;
        if (groups[g].tags[slot] && seen++ == n)
            return (uint64_t)((const uint8_t *)&groups[g].states[slot] - target->base);
    }
    return target->layout.table_at;
}

static void damage(struct target *target, struct fuzz_input *input)
{
    const struct weir__layout *layout = &target->layout;
    switch (fuzz_byte(input) % 8) {
    case 0: /* anywhere */
        poke(target, input, 0, SIZE / 8);
        break;
    case 1: /* header */
        poke(target, input, 0, sizeof(struct weir__zone_header) / 8);
        break;
    case 2: /* counters and locks */
        poke(target, input, layout->stripes_at, (layout->rows_at - layout->stripes_at) / 8);
        break;
    case 3: /* the first rules */
        poke(target, input, layout->rows_at, 20 * sizeof(struct weir__rule) / 8);
        break;
    case 4: /* a state */
        poke(target, input, used_slot(target, fuzz_byte(input) % 16), 2);
        break;
    case 5: /* the map of blocks */
        poke(target, input, layout->map_at, layout->units / 8);
        break;
    case 6: /* the blocks */
        poke(target, input, layout->blocks_at, layout->units / 8 * 8);
        break;
    default: /* a header that checks */
        ((struct weir__zone_header *)target->base)->check =
            header_check((const struct weir__zone_header *)target->base);
    }
}

/* ---- use ---- */

static void expect_code(int code, const char *verb)
{
    EXPECT(code == 0 || code == WEIR_EFULL || code == WEIR_ENOLEASE || code == WEIR_EUNSUPPORTED ||
               code == WEIR_EDAMAGED,
           "%s: %s", verb, weir_strerror(code));
}

static void use_key(weir_store *store, size_t i)
{
    char room[8], receipt[WEIR_RECEIPT_SIZE];
    weir_key key = key_of(room, i);
    weir_decision d = {.time_us = NOW_US - 1000000, .charged = 1};
    for (int64_t cost = 0; cost < 3; cost++) {
        expect_code(weir_peek(store, key, parsed[i], cost, &d), "peek");
        expect_code(weir_take(store, key, parsed[i], cost, &d), "take");
        weir_receipt(&d, receipt);
        expect_code(weir_settle(store, key, parsed[i], receipt, cost * 2, NULL), "settle");
    }
}

static void use_lease(weir_store *store)
{
    char room[8];
    weir_decision d = {0};
    weir_key key = key_of(room, 10);
    expect_code(weir_renew(store, key, parsed[10], lease), "renew");
    expect_code(weir_acquire(store, key, parsed[10], 2, &d), "acquire");
    expect_code(weir_release(store, key, parsed[10], lease), "release");
}

/* More keys than there is room for, with small and large states, so that all others are judged and
 * evicted, and every free block is met. */
static void crowd(weir_store *store)
{
    static const size_t which[] = {0, 5, 6, 3, 3, 3, 3, 3};
    char text[16];
    weir_decision d;
    for (unsigned i = 0; i < CROWD_KEYS; i++) {
        snprintf(text, sizeof text, "new%u", i);
        weir_limit *limit = parsed[which[i % WEIR__COUNT(which)]];
        expect_code(weir_take(store, weir_key_text(text), limit, 1, &d), "take");
    }
}

/* More limits than there are rows, so that they are swept. */
static void many_limits(weir_store *store)
{
    char text[64];
    weir_decision d;
    for (unsigned i = 1; i < 80; i++) {
        weir_limit *limit = NULL;
        snprintf(text, sizeof text, "fixed-window 5/%uus", i);
        EXPECT(weir_limit_parse(text, &limit, NULL) == 0, "%s", text);
        expect_code(weir_take(store, weir_key_text("many"), limit, 1, &d), "take");
        weir_limit_free(limit);
    }
}

static void use_keys(weir_store *store)
{
    for (size_t i = 0; i < LIMITS; i++)
        use_key(store, i);
    use_lease(store);
}

/* What the first byte chooses. */
enum { CROWD = 1, MANY_LIMITS = 2, RESET = 4, STRANGERS_FIRST = 32 };

static void use(weir_store *store, unsigned how)
{
    weir_zone_info info;
    weir_error err = {0};
    if (!(how & STRANGERS_FIRST))
        use_keys(store);
    if (how & CROWD)
        crowd(store);
    if (how & MANY_LIMITS)
        many_limits(store);
    char room[8];
    for (size_t i = 0; how & RESET && i < LIMITS; i++)
        EXPECT(weir_reset(store, key_of(room, i)) == 0, "reset");
    use_keys(store);
    EXPECT(weir_store_info(store, &info) == 0 && info.size == SIZE, "info");
    EXPECT(weir_store_check(store, &err) == 0, "sound when opened, then: %s", err.message);
}

/* ---- opening ---- */

static void check_refusal(int code, const weir_error *err)
{
    EXPECT(code == WEIR_EDAMAGED || code == WEIR_EFOREIGN || code == WEIR_EVERSION ||
               code == WEIR_ETRUNCATED,
           "code %d: %s", code, err->message);
    EXPECT(err->code == code && err->message[0], "no message");
}

static void open_memory(uint8_t *base, struct weir__virtual_clock *clock, unsigned how)
{
    struct weir__zone zone;
    weir_error err = {0};
    int code = weir__zone_attach(base, SIZE, true, &zone, &err);
    if (code == 0)
        code = weir__zone_recover(&zone, &err);
    if (code) {
        check_refusal(code, &err);
        return;
    }
    use(store_over(&zone, clock), how);
}

static void open_file(const uint8_t *base, size_t size, struct weir__virtual_clock *clock,
                      unsigned how)
{
    char path[64], url[80];
    weir_store *store = NULL;
    weir_error err = {0};
    snprintf(path, sizeof path, "/dev/shm/weir-fuzz-zone-%ld", (long)getpid());
    snprintf(url, sizeof url, "file:%s", path);
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    EXPECT(fd >= 0 && write(fd, base, size) == (ssize_t)size, "%s", path);
    close(fd);
    int code = weir_store_open(url, &store, &err);
    if (code == 0) {
        weir__virtual_clock_install(clock, store);
        use(store, how);
        weir_store_close(store);
    } else {
        check_refusal(code, &err);
    }
    unlink(path); /* not before: a zone whose file is gone is not sound */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t later[] = {0, 1000000, 3600000000, -3600000000};
    struct fuzz_input input = {data, size};
    if (!parsed[0])
        make_image();
    fuzz_random_reset();
    unsigned how = fuzz_byte(&input);
    struct weir__virtual_clock clock = {NOW_US + later[how >> 3 & 3]};
    struct target target = {aligned_alloc(64, SIZE),
                            ((const struct weir__zone_header *)image)->layout};
    EXPECT(target.base, "out of memory");
    memcpy(target.base, image, SIZE);
    for (int i = 0; i < 64 && input.size > 0; i++)
        damage(&target, &input);
    if (how >> 5 == 7)
        open_file(target.base, SIZE, &clock, how);
    else if (how >> 5 == 6)
        open_file(target.base, 1 + how % 32 * 2000, &clock, how);
    else
        open_memory(target.base, &clock, how);
    free(target.base);
    return 0;
}
