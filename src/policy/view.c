/* See view.h. */
#include "policy/view.h"

#include "policy/arena.h"
#include "policy/normal.h"

#include <string.h>

/* ---- expressions ---- */

#define GRAMMAR "expected an attribute like user, header.x-tenant, lower(NAME) or ip(NAME)"

static bool is_name(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i], small = (char)(c | 0x20);
        bool solid = (small >= 'a' && small <= 'z') || (c >= '0' && c <= '9');
        if (!solid && c != '.' && c != '_' && c != '-')
            return false;
    }
    return len > 0;
}

/* The name within FUNCTION(NAME); false: it is no call of that function. */
static bool is_call(const char *function, const char **text, size_t *len)
{
    size_t skip = strlen(function);
    if (*len < skip + 2 || memcmp(*text, function, skip) || (*text)[skip] != '(' ||
        (*text)[*len - 1] != ')')
        return false;
    *text += skip + 1;
    *len -= skip + 2;
    return true;
}

static enum weir__spelling spelling_of(const char *name)
{
    if (!strcmp(name, "ip"))
        return WEIR__AS_ADDRESS;
    if (!strcmp(name, "path"))
        return WEIR__AS_PATH;
    return strcmp(name, "host") ? WEIR__AS_IT_IS : WEIR__AS_HOST;
}

/* Reads an expression into ret, its name into room, in the request's spelling: fields of HTTP in lower
 * case. */
static const char *read_expression(const char *text, size_t len,
                                   char room[WEIR__ATTRIBUTE_NAME_MAX + 1],
                                   struct weir__attribute *ret)
{
    bool lower = is_call("lower", &text, &len), ip = !lower && is_call("ip", &text, &len);
    if (!is_name(text, len))
        return GRAMMAR;
    if (len > WEIR__ATTRIBUTE_NAME_MAX)
        return "an attribute's name has at most 64 letters";
    struct weir__span name = {text, len}, small = name;
    if (len > 7 && !memcmp(text, "header.", 7) &&
        weir__normal_lower(name, room, WEIR__ATTRIBUTE_NAME_MAX, &small))
        name = small;
    memmove(room, name.data, name.len);
    room[name.len] = 0;
    ret->name = room;
    ret->name_len = len;
    ret->spelling = ip ? WEIR__AS_ADDRESS : spelling_of(room);
    ret->lower = lower && ret->spelling != WEIR__AS_HOST;
    if (ret->lower && ret->spelling == WEIR__AS_ADDRESS)
        return "an address has no upper case; leave out lower()";
    return NULL;
}

static const char *text_of(const struct weir__attribute *attribute, struct weir__arena *arena)
{
    char room[WEIR__ATTRIBUTE_NAME_MAX + 16];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    const char *function = attribute->lower ? "lower" : "ip";
    if (attribute->lower ||
        (attribute->spelling == WEIR__AS_ADDRESS && strcmp(attribute->name, "ip")))
        weir__put_format(&buffer, "%s(%s)", function, attribute->name);
    else
        weir__put_text(&buffer, attribute->name);
    return weir__arena_text(arena, room, buffer.len);
}

int weir__attribute_read(struct weir__attributes *attributes, struct weir__arena *arena,
                         const char *text, size_t len, const char **ret_wrong)
{
    char room[WEIR__ATTRIBUTE_NAME_MAX + 1];
    struct weir__attribute found = {0};
    *ret_wrong = read_expression(text, len, room, &found);
    if (*ret_wrong)
        return -1;
    for (size_t i = 0; i < attributes->count; i++) {
        const struct weir__attribute *known = &attributes->items[i];
        if (!strcmp(known->name, found.name) && known->spelling == found.spelling &&
            known->lower == found.lower)
            return (int)i;
    }
    if (attributes->count == WEIR__ATTRIBUTES_MAX) {
        *ret_wrong = "more than 64 different attributes in one file";
        return -1;
    }
    found.text = text_of(&found, arena);
    found.name = weir__arena_text(arena, room, found.name_len);
    if (!found.text || !found.name) {
        *ret_wrong = "";
        return -1;
    }
    attributes->items[attributes->count] = found;
    return (int)attributes->count++;
}

bool weir__attribute_known(const struct weir__attribute *attribute)
{
    static const char *const known[] = {"ip", "method", "path", "host", "user"};
    for (size_t i = 0; i < WEIR__COUNT(known); i++) {
        if (!strcmp(known[i], attribute->name))
            return true;
    }
    return !strncmp(attribute->name, "header.", 7);
}

/* ---- values ---- */

void weir__view_begin(struct weir__view *view, const struct weir__attributes *attributes,
                      const struct weir__subject *subject)
{
    view->attributes = attributes;
    view->subject = subject;
    view->asked = view->present = 0;
    view->too_long = -1;
    view->used = 0;
}

/* Rewrites a value where it has another spelling; false: it is none, or there is no room for it. */
static bool respell(struct weir__view *view, int i, struct weir__span *value)
{
    const struct weir__attribute *attribute = &view->attributes->items[i];
    char *room = view->scratch + view->used;
    size_t size = sizeof view->scratch - view->used;
    struct weir__address address;
    bool fits = true;
    if (attribute->spelling == WEIR__AS_ADDRESS) {
        if (!weir__address_read(value->data, value->len, &address))
            return false;
        fits = size >= sizeof address;
        if (fits)
            memcpy(room, &address, sizeof address);
        *value = (struct weir__span){room, sizeof address};
    } else if (attribute->spelling == WEIR__AS_HOST) {
        fits = weir__normal_host(*value, room, size, value);
    } else if (attribute->spelling == WEIR__AS_PATH) {
        fits = weir__normal_path(*value, room, size, value);
    }
    if (fits && attribute->lower)
        fits = weir__normal_lower(*value, room, size, value);
    if (!fits)
        view->too_long = i;
    else if (value->data == room)
        view->used += value->len;
    return fits;
}

bool weir__view_ask(struct weir__view *view, int i)
{
    const struct weir__attribute *attribute = &view->attributes->items[i];
    const struct weir__subject *subject = view->subject;
    struct weir__span value = {NULL, 0};
    view->asked |= UINT64_C(1) << i;
    if (!subject || !subject->find ||
        !subject->find(subject->context, attribute->name, attribute->name_len, &value))
        return false;
    if (!value.data)
        value = (struct weir__span){"", 0};
    if (value.len > WEIR__VALUE_MAX) {
        view->too_long = i;
        return false;
    }
    bool as_it_is = attribute->spelling == WEIR__AS_IT_IS && !attribute->lower;
    if (!as_it_is && !respell(view, i, &value))
        return false;
    view->values[i] = value;
    view->present |= UINT64_C(1) << i;
    return true;
}
