/*
 * The bytes of requests, made before the clock starts. Ten '#' in a template stand for a key's
 * number. All keys lie shuffled side by side; a random batch begins at a random one, so that every
 * key is as likely as any other and sending is one call without a copy. Fresh keys are written into
 * the next places of a ring that is longer than all that can be unsent.
 */
#include "load.h"

#include <stdlib.h>
#include <string.h>

enum { FRESH_RING = CONNECTIONS_MAX * DEPTH_MAX, BYTES_MAX = 1 << 30 };

void template_add(struct template *it, const void *bytes, size_t len)
{
    if (it->len + len > it->size) {
        it->size = 2 * (it->len + len);
        it->bytes = realloc(it->bytes, it->size);
        if (!it->bytes)
            load_die("no memory");
    }
    memcpy(it->bytes + it->len, bytes, len);
    it->len += len;
}

void template_text(struct template *it, const char *text)
{
    template_add(it, text, strlen(text));
}

static void find_places(struct requests *it, const struct template *template)
{
    for (size_t i = 0, run = 0; i < template->len; i++) {
        run = template->bytes[i] == '#' ? run + 1 : 0;
        if (run < KEY_DIGITS)
            continue;
        if (it->place_count == PLACES_MAX)
            load_die("more than %d places for a key's number", PLACES_MAX);
        it->places[it->place_count++] = i + 1 - KEY_DIGITS;
        run = 0;
    }
}

static void put_number(const struct requests *it, char *request, uint64_t number)
{
    char digits[KEY_DIGITS];
    for (int i = KEY_DIGITS; i-- > 0; number /= 10)
        digits[i] = (char)('0' + number % 10);
    for (unsigned i = 0; i < it->place_count; i++)
        memcpy(request + it->places[i], digits, KEY_DIGITS);
}

static uint64_t random_below(struct requests *it, uint64_t limit)
{
    it->seed ^= it->seed << 13;
    it->seed ^= it->seed >> 7;
    it->seed ^= it->seed << 17;
    return (it->seed >> 32) * limit >> 32;
}

static void shuffle(struct requests *it)
{
    uint32_t *numbers = load_allocate(it->count * sizeof *numbers);
    for (uint64_t i = 0; i < it->count; i++)
        numbers[i] = (uint32_t)i;
    for (uint64_t i = it->count; i-- > 1;) {
        uint64_t other = random_below(it, i + 1);
        uint32_t number = numbers[i];
        numbers[i] = numbers[other];
        numbers[other] = number;
    }
    for (uint64_t i = 0; i < it->count + DEPTH_MAX; i++)
        put_number(it, it->bytes + i * it->each, numbers[i % it->count]);
    free(numbers);
}

void requests_make(struct requests *ret, const struct template *template, enum order order,
                   uint64_t keys, uint64_t first)
{
    *ret = (struct requests){.each = template->len, .order = order, .number = first};
    ret->seed = (uint64_t)load_now_ns() * UINT64_C(0x9E3779B97F4A7C15) | 1;
    find_places(ret, template);
    if (order == ORDER_FRESH && ret->place_count == 0)
        load_die("fresh keys need a place for their number: ten '#' in the request");
    ret->count = order == ORDER_FRESH ? FRESH_RING : ret->place_count ? keys : 1;
    if ((ret->count + DEPTH_MAX) * ret->each > BYTES_MAX)
        load_die("requests for %llu keys take more than %d bytes; use fewer keys",
                 (unsigned long long)ret->count, BYTES_MAX);
    ret->bytes = load_allocate((ret->count + DEPTH_MAX) * ret->each);
    for (uint64_t i = 0; i < ret->count + DEPTH_MAX; i++)
        memcpy(ret->bytes + i * ret->each, template->bytes, template->len);
    if (order != ORDER_FRESH)
        shuffle(ret);
}

/* `count` requests side by side, to be sent before a ring's length of others is asked for. */
const char *requests_next(struct requests *it, unsigned count)
{
    uint64_t at = it->order == ORDER_RANDOM ? random_below(it, it->count) : it->next;
    if (it->order != ORDER_RANDOM)
        it->next = (it->next + count) % it->count;
    char *found = it->bytes + at * it->each;
    if (it->order == ORDER_FRESH) {
        for (unsigned i = 0; i < count; i++)
            put_number(it, found + i * it->each, it->number++);
    }
    return found;
}
