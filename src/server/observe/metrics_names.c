/* Names to ids by an open table at most half full. Names come from configuration files, so that the
 * hash needs no secret. */
#include "server/observe/metrics_names.h"

#include "base/base.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

int server_names_create(struct server_names *names, uint32_t max)
{
    uint32_t slots = 16;
    while (slots < 2 * max)
        slots *= 2;
    *names = (struct server_names){
        .names = calloc(max, sizeof *names->names),
        .slots = calloc(slots, sizeof *names->slots),
        .max = max,
        .mask = slots - 1,
    };
    if (names->names && names->slots)
        return 0;
    server_names_destroy(names);
    return WEIR_ENOMEM;
}

void server_names_destroy(struct server_names *names)
{
    for (uint32_t i = 0; i < names->count; i++)
        free(names->names[i].first);
    free(names->names);
    free(names->slots);
    *names = (struct server_names){0};
}

/* The slot that holds the pair, or the empty one where it belongs. */
static uint32_t *slot_of(const struct server_names *names, const char *first, const char *second)
{
    const uint64_t secret[2] = {0, 0};
    uint64_t one[2], two[2];
    weir__hash(secret, first, strlen(first), one);
    weir__hash(one, second, strlen(second), two);
    uint32_t at = (uint32_t)two[0] & names->mask;
    for (; names->slots[at]; at = (at + 1) & names->mask) {
        const struct server_name *name = &names->names[names->slots[at] - 1];
        if (!strcmp(name->first, first) && !strcmp(name->second, second))
            break;
    }
    return &names->slots[at];
}

static uint32_t refuse(struct server_names *names)
{
    names->refused++;
    return SERVER_NO_NAME;
}

/* Puts a pair at the end of its first name's list. */
static void link_child(struct server_names *names, uint32_t parent, uint32_t id)
{
    struct server_name *const name = &names->names[parent];
    if (name->child)
        names->names[name->last].next = id;
    else
        name->child = id;
    name->last = id;
}

uint32_t server_names_id(struct server_names *names, const char *first, const char *second)
{
    uint32_t *slot = slot_of(names, first, second);
    if (*slot)
        return *slot - 1;
    uint32_t parent = SERVER_NO_NAME;
    if (second[0]) {
        parent = server_names_id(names, first, "");
        if (parent == SERVER_NO_NAME)
            return SERVER_NO_NAME;
        slot = slot_of(names, first, second);
    }
    const size_t first_len = strlen(first), second_len = strlen(second);
    if (names->count == names->max || first_len + second_len > SERVER_NAME_MAX)
        return refuse(names);
    char *const text = malloc(first_len + second_len + 2);
    if (!text)
        return refuse(names);
    memcpy(text, first, first_len + 1);
    memcpy(text + first_len + 1, second, second_len + 1);
    const uint32_t id = names->count++;
    names->names[id] = (struct server_name){.first = text, .second = text + first_len + 1};
    names->bytes += first_len + second_len;
    *slot = id + 1;
    if (parent != SERVER_NO_NAME)
        link_child(names, parent, id);
    return id;
}
