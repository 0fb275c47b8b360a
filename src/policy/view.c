/* See view.h. */
#include "policy/view.h"

#include <string.h>

/* ---- expressions ---- */

#define GRAMMAR "expected an attribute like user, header.x-tenant, lower(NAME) or ip(NAME)"

static bool view_is_name(const char *text, size_t len)
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
static bool view_is_call(const char *function, const char **text, size_t *len)
{
    size_t skip = strlen(function);
    if (*len < skip + 2 || memcmp(*text, function, skip) || (*text)[skip] != '(' ||
        (*text)[*len - 1] != ')')
        return false;
    *text += skip + 1;
    *len -= skip + 2;
    return true;
}

static enum weir__spelling view_spelling_of(const char *name)
{
    if (!strcmp(name, "ip"))
        return WEIR__AS_ADDRESS;
    if (!strcmp(name, "path"))
        return WEIR__AS_PATH;
    return strcmp(name, "host") ? WEIR__AS_IT_IS : WEIR__AS_HOST;
}

static const char *const server_names[] = {"ip", "method", "path", "host", "user"};

void weir__attribute_fold(char *name, size_t len)
{
    bool fold = len > 7 && !strncasecmp(name, "header.", 7);
    for (size_t i = 0; i < WEIR__COUNT(server_names) && !fold; i++)
        fold = weir__span_is_word((struct weir__span){name, len}, server_names[i]);
    for (size_t i = 0; i < len && fold; i++)
        name[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] | 0x20 : name[i]);
}

/* Reads an expression into ret, its name into room, in the request's spelling. */
static const char *view_read_expression(const char *text, size_t len,
                                        char room[WEIR__ATTRIBUTE_NAME_MAX + 1],
                                        struct weir__attribute *ret)
{
    bool lower = view_is_call("lower", &text, &len), ip = !lower && view_is_call("ip", &text, &len);
    if (!view_is_name(text, len))
        return GRAMMAR;
    if (len > WEIR__ATTRIBUTE_NAME_MAX)
        return "an attribute's name has at most 64 letters";
    memcpy(room, text, len);
    room[len] = 0;
    weir__attribute_fold(room, len);
    ret->name = room;
    ret->name_len = len;
    ret->spelling = ip ? WEIR__AS_ADDRESS : view_spelling_of(room);
    ret->lower = lower && ret->spelling != WEIR__AS_HOST;
    if (ret->lower && ret->spelling == WEIR__AS_ADDRESS)
        return "an address has no upper case; leave out lower()";
    return NULL;
}

static const char *view_text_of(const struct weir__attribute *attribute, struct weir__arena *arena)
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

/* The number of an attribute that is read already, or -1. */
static int view_find(const struct weir__attributes *attributes, const struct weir__attribute *found)
{
    for (size_t i = 0; i < attributes->count; i++) {
        const struct weir__attribute *known = &attributes->items[i];
        if (!strcmp(known->name, found->name) && known->spelling == found->spelling &&
            known->lower == found->lower)
            return (int)i;
    }
    return -1;
}

int weir__attribute_read(struct weir__attributes *attributes, struct weir__arena *arena,
                         const char *text, size_t len, const char **ret_wrong)
{
    char room[WEIR__ATTRIBUTE_NAME_MAX + 1];
    struct weir__attribute found = {0};
    *ret_wrong = view_read_expression(text, len, room, &found);
    if (*ret_wrong)
        return -1;
    int known = view_find(attributes, &found);
    if (known >= 0) {
        attributes->items[known].uses++;
        return known;
    }
    if (attributes->count == WEIR__ATTRIBUTES_MAX) {
        *ret_wrong = "more than 64 different attributes in one file";
        return -1;
    }
    found.text = view_text_of(&found, arena);
    found.name = weir__arena_text(arena, room, found.name_len);
    if (!found.text || !found.name) {
        *ret_wrong = "";
        return -1;
    }
    found.uses = 1;
    attributes->items[attributes->count] = found;
    return (int)attributes->count++;
}

bool weir__attribute_known(const struct weir__attribute *attribute)
{
    for (size_t i = 0; i < WEIR__COUNT(server_names); i++) {
        if (!strcmp(server_names[i], attribute->name))
            return true;
    }
    return !strncmp(attribute->name, "header.", 7);
}

/* How often the file has a name, in whatever expression. */
static unsigned view_uses(const struct weir__attributes *attributes, const char *name)
{
    unsigned uses = 0;
    for (size_t i = 0; i < attributes->count; i++)
        uses += strcmp(attributes->items[i].name, name) ? 0 : attributes->items[i].uses;
    return uses;
}

/* Whether attribute i may be a slip of j: the file has it once, and the other one more often, in a
 * key or cost, or earlier. Numbered names (tokens1, tokens2) are alike on purpose. */
static bool view_may_mean(const struct weir__attributes *attributes, size_t i, size_t j)
{
    const struct weir__attribute *it = &attributes->items[i], *other = &attributes->items[j];
    bool surer = it->counted == other->counted ? j < i : other->counted;
    char last = it->name[it->name_len - 1];
    return view_uses(attributes, it->name) == 1 && strcmp(it->name, other->name) &&
           (surer || view_uses(attributes, other->name) > 1) && !(last >= '0' && last <= '9');
}

const char *weir__attribute_meant(const struct weir__attributes *attributes, size_t i)
{
    const struct weir__attribute *it = &attributes->items[i];
    const char *names[WEIR__COUNT(server_names) + WEIR__ATTRIBUTES_MAX + 1];
    size_t count = 0;
    const bool field = !strncmp(it->name, "header.", 7); /* only compared with other fields */
    if (weir__attribute_known(it) && !field)
        return NULL;
    for (size_t j = 0; j < WEIR__COUNT(server_names) && !field; j++)
        names[count++] = server_names[j];
    for (size_t j = 0; j < attributes->count; j++) {
        if (!strncmp(attributes->items[j].name, "header.", 7) == field &&
            view_may_mean(attributes, i, j))
            names[count++] = attributes->items[j].name;
    }
    names[count] = NULL;
    return weir__misspelt(it->name, it->name_len, names);
}

/* ---- values ---- */

void weir__view_begin(struct weir__view *view, const struct weir__attributes *attributes,
                      const struct weir__subject *subject)
{
    view->attributes = attributes;
    view->subject = subject;
    view->asked = view->present = 0;
    view->wrong = -1;
    view->used = 0;
}

static bool view_refuse(struct weir__view *view, int i, const char *why, struct weir__span said)
{
    view->wrong = i;
    view->why = why;
    view->said = said;
    return false;
}

/* Rewrites a value where it has another spelling. NULL, or what is wrong. */
static const char *view_respell(struct weir__view *view, int i, struct weir__span *value)
{
    const struct weir__attribute *attribute = &view->attributes->items[i];
    char *room = view->scratch + view->used;
    size_t size = sizeof view->scratch - view->used;
    struct weir__address address;
    const char *wrong = NULL;
    bool fits = true;
    if (attribute->spelling == WEIR__AS_ADDRESS) {
        if (!weir__address_read(value->data, value->len, &address))
            return value->len == 0 ? "is empty" : "is not an address";
        fits = size >= sizeof address;
        if (fits)
            memcpy(room, &address, sizeof address);
        *value = (struct weir__span){room, sizeof address};
    } else if (attribute->spelling == WEIR__AS_HOST) {
        wrong = weir__normal_host(*value, room, size, value);
    } else if (attribute->spelling == WEIR__AS_PATH) {
        wrong = weir__normal_path(*value, view->attributes->keep_parameters, room, size, value);
    }
    if (fits && !wrong && attribute->lower)
        fits = weir__normal_lower(*value, room, size, value);
    if (fits && !wrong && value->data == room)
        view->used += value->len;
    return fits ? wrong : "is too long";
}

bool weir__view_ask(struct weir__view *view, int i)
{
    const struct weir__attribute *attribute = &view->attributes->items[i];
    const struct weir__subject *subject = view->subject;
    struct weir__span value = {NULL, 0}, said;
    view->asked |= UINT64_C(1) << i;
    if (!subject || !subject->find)
        return false;
    enum weir__found found =
        subject->find(subject->context, attribute->name, attribute->name_len, &value);
    if (found == WEIR__UNUSABLE)
        return view_refuse(view, i, value.data, (struct weir__span){"", 0});
    if (found == WEIR__ABSENT)
        return false;
    if (!value.data)
        value = (struct weir__span){"", 0};
    said = value;
    bool as_it_is = attribute->spelling == WEIR__AS_IT_IS && !attribute->lower;
    const char *wrong = value.len > WEIR__VALUE_MAX ? "is too long"
                        : as_it_is                  ? NULL
                                                    : view_respell(view, i, &value);
    if (wrong)
        return view_refuse(view, i, wrong, said);
    view->values[i] = value;
    view->present |= UINT64_C(1) << i;
    return true;
}

enum weir__found weir__attribute_text(const struct weir__subject *subject, struct weir__span name,
                                      char *room, size_t size, struct weir__span *ret)
{
    char text[WEIR__ATTRIBUTE_NAME_MAX + 1] = "";
    memcpy(text, name.data, name.len < sizeof text ? name.len : 0);
    enum weir__spelling spelling = view_spelling_of(text);
    enum weir__found found = subject->find(subject->context, name.data, name.len, ret);
    struct weir__address address;
    if (found != WEIR__FOUND || spelling == WEIR__AS_IT_IS)
        return found;
    const char *wrong = NULL;
    if (spelling != WEIR__AS_ADDRESS) {
        wrong = spelling == WEIR__AS_PATH ? weir__normal_path(*ret, false, room, size, ret)
                                          : weir__normal_host(*ret, room, size, ret);
    } else if (weir__address_read(ret->data, ret->len, &address)) {
        struct weir__buffer buffer = weir__buffer_over(room, size);
        weir__put_masked(&buffer, address, WEIR__IP_BITS4, WEIR__IP_BITS6);
        *ret = (struct weir__span){room, buffer.len};
    } else {
        wrong = "is not an address";
    }
    if (wrong)
        *ret = weir__span_of(wrong);
    return wrong ? WEIR__UNUSABLE : WEIR__FOUND;
}
