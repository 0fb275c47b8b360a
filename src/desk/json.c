/*
 * Lines of JSON: see format.h. One pass over the line, without a tree: names are looked up in a
 * table, values that nobody wants are passed over. Members of members are known by both names,
 * `request.method`; a name that has the dot in it is the same. Of an array the first value counts.
 */
#include "desk/format.h"

#include "wire/scan.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define JSON_DEEPEST 4 /* members of members that are looked into */

/* ---- the table of names ---- */

static uint32_t json_hash_begin(uint16_t parent)
{
    return 2166136261u ^ parent;
}

static inline uint32_t json_hash_add(uint32_t hash, char c)
{
    return (hash ^ desk_name_char(c)) * 16777619u;
}

static bool json_is_member(const struct desk_format *format, const struct desk_member *member,
                           uint16_t parent, struct weir__span name)
{
    return member->parent == parent &&
           desk_names_equal((struct weir__span){format->names + member->name, member->name_len},
                            name);
}

/* The place of a name, or the empty one where it belongs. */
static size_t json_place(const struct desk_format *format, uint16_t parent, struct weir__span name)
{
    uint32_t hash = json_hash_begin(parent);
    for (size_t i = 0; i < name.len; i++)
        hash = json_hash_add(hash, name.data[i]);
    size_t place = (hash ^ hash >> 15) & (DESK_MEMBERS - 1);
    while (format->members[place].name_len > 0 &&
           !json_is_member(format, &format->members[place], parent, name))
        place = (place + 1) & (DESK_MEMBERS - 1);
    return place;
}

/* The member with that name, made if it is not there; NULL: there is no room. */
static struct desk_member *json_add(struct desk_format *format, uint16_t parent,
                                    struct weir__span name, size_t *ret_place)
{
    size_t place = json_place(format, parent, name);
    struct desk_member *member = &format->members[place];
    *ret_place = place;
    if (member->name_len > 0)
        return member;
    if (name.len == 0 || format->member_count >= DESK_MEMBERS / 2 ||
        name.len > sizeof format->names - format->names_used)
        return NULL;
    memcpy(format->names + format->names_used, name.data, name.len);
    *member = (struct desk_member){.name = (uint32_t)format->names_used,
                                   .name_len = (uint32_t)name.len,
                                   .parent = parent,
                                   .slot = DESK_NO_SLOT,
                                   .named = DESK_NO_SLOT,
                                   .rank = DESK_NO_SLOT};
    format->names_used += name.len;
    format->member_count++;
    return member;
}

static void json_lead(struct desk_member *member, struct desk_place place)
{
    if (place.rank <= member->rank && place.slot != DESK_NO_SLOT) {
        member->slot = place.slot;
        member->rank = place.rank;
    }
    if (place.named != DESK_NO_SLOT)
        member->named = place.named;
}

/* A name and where it leads: as one word, and where it has dots, as members of members. */
static bool json_add_name(struct desk_format *format, struct weir__span name,
                          struct desk_place place)
{
    size_t at;
    struct desk_member *flat = json_add(format, 0, name, &at);
    if (!flat)
        return false;
    json_lead(flat, place);
    uint16_t parent = 0;
    const char *dot;
    while ((dot = memchr(name.data, '.', name.len))) {
        struct weir__span outer = {name.data, (size_t)(dot - name.data)};
        struct desk_member *member = json_add(format, parent, outer, &at);
        if (!member)
            return outer.len == 0; /* a name that begins with a dot is one word */
        member->inner = true;
        parent = (uint16_t)(at + 1);
        name = (struct weir__span){dot + 1, name.len - outer.len - 1};
    }
    struct desk_member *inner = parent ? json_add(format, parent, name, &at) : flat;
    if (!inner)
        return name.len == 0;
    json_lead(inner, place);
    return true;
}

/* Whether --field says where a slot is: not where its own names lead. */
static bool json_is_moved(const struct desk_wanted *wanted, uint8_t slot)
{
    size_t i = 0;
    while (i < wanted->moved_count && wanted->moved[i].slot != slot)
        i++;
    return i < wanted->moved_count;
}

/* A header field may be called by several names. */
static bool json_add_wanted(struct desk_format *format, const struct desk_wanted *wanted, size_t i)
{
    static const char *const beginnings[] = {"request.headers.", "headers.", "http_", "request_"};
    struct desk_place place = {DESK_NO_SLOT, (uint8_t)(DESK_NAMED + i), DESK_NO_SLOT, 0};
    struct weir__span name = weir__span_of(wanted->names[i]);
    if (json_is_moved(wanted, place.named))
        return true;
    bool added = json_add_name(format, name, place);
    if (strncmp(name.data, "header.", 7))
        return added;
    for (size_t j = 0; j < WEIR__COUNT(beginnings) && added; j++) {
        char room[DESK_NAME_MAX + 32];
        size_t len = strlen(beginnings[j]);
        memcpy(room, beginnings[j], len);
        memcpy(room + len, name.data + 7, name.len - 7);
        added = json_add_name(format, (struct weir__span){room, len + name.len - 7}, place);
    }
    return added;
}

int desk_json_compile(const struct desk_wanted *wanted, struct desk_format *ret, weir_error *err)
{
    bool added = true;
    ret->family = DESK_JSON;
    ret->open_names = true;
    for (size_t i = 0; i < wanted->count && added; i++)
        added = json_add_wanted(ret, wanted, i);
    for (size_t i = 0; i < wanted->moved_count && added; i++) {
        struct weir__span name = {wanted->moved[i].name, wanted->moved[i].len};
        added = json_add_name(ret, name, desk_place_of(wanted, name));
    }
    struct weir__span name;
    struct desk_place place;
    for (size_t i = 0; added && desk_known_place(wanted, i, &name, &place); i++) {
        if (place.slot != DESK_NO_SLOT || place.named != DESK_NO_SLOT)
            added = json_add_name(ret, name, place);
    }
    if (!added)
        return weir__fail(err, WEIR_EINVAL, 0, "too many names for members of JSON");
    return 0;
}

/* ---- lines ---- */

struct json_line {
    const struct desk_format *format;
    struct desk_fields *fields;
    const char *text;
    size_t at, len;
    uint8_t ranks[DESK_SLOTS];
    struct desk_wrong *wrong;
};

static bool json_fail(struct json_line *line, const char *why)
{
    *line->wrong = (struct desk_wrong){.why = why, .at = line->at};
    return false;
}

static inline void json_blanks(struct json_line *line)
{
    while (line->at < line->len && (line->text[line->at] == ' ' || line->text[line->at] == '\t'))
        line->at++;
}

static inline bool json_pass(struct json_line *line, char c)
{
    if (line->at == line->len || line->text[line->at] != c)
        return false;
    line->at++;
    return true;
}

/* Passes a string; the line stands behind its opening quote. ret_escaped: it has a backslash. */
static bool json_string(struct json_line *line, struct weir__span *ret, bool *ret_escaped)
{
    size_t start = line->at, at = start;
    *ret_escaped = false;
    for (;;) {
        if (at < line->len)
            at = weir__scan(WEIR__STOP_JSON, line->text, at, line->len);
        if (at >= line->len) /* a backslash may be the last byte */
            return json_fail(line, "a quote is missing");
        if (line->text[at] == '"')
            break;
        bool backslash = line->text[at] == '\\';
        *ret_escaped |= backslash;
        at += backslash ? 2 : 1;
    }
    *ret = (struct weir__span){line->text + start, at - start};
    line->at = at + 1;
    return true;
}

/* A number or a word. */
static struct weir__span json_word(struct json_line *line)
{
    size_t start = line->at;
    while (line->at < line->len && !strchr(",]} \t", line->text[line->at]))
        line->at++;
    return (struct weir__span){line->text + start, line->at - start};
}

/* Passes all of an array or object; the line stands behind its bracket. */
static bool json_skip(struct json_line *line)
{
    struct weir__span string;
    bool escaped;
    for (size_t deep = 1; deep > 0;) {
        if (line->at == line->len)
            return json_fail(line, "a bracket is missing");
        char c = line->text[line->at++];
        deep += c == '{' || c == '[';
        deep -= c == '}' || c == ']';
        if (c == '"' && !json_string(line, &string, &escaped))
            return false;
    }
    return true;
}

static void json_put(struct json_line *line, uint8_t slot, struct weir__span value, bool escaped)
{
    uint64_t bit = UINT64_C(1) << slot;
    line->fields->at[slot] = value;
    line->fields->present |= bit;
    line->fields->escaped = escaped ? line->fields->escaped | bit : line->fields->escaped & ~bit;
}

/* A value that is a string, a number or a word. */
static void json_found(struct json_line *line, const struct desk_member *member,
                       struct weir__span value, bool escaped)
{
    if (member->slot != DESK_NO_SLOT && member->rank <= line->ranks[member->slot]) {
        line->ranks[member->slot] = member->rank;
        json_put(line, member->slot, value, escaped);
    }
    if (member->named != DESK_NO_SLOT)
        json_put(line, member->named, value, escaped);
}

static bool json_object(struct json_line *line, uint16_t parent, int depth);

/* The value of a member, NULL: of one that nobody wants. */
static bool json_value(struct json_line *line, const struct desk_member *member, int depth)
{
    struct weir__span value;
    bool escaped = false;
    json_blanks(line);
    bool array = member && json_pass(line, '[');
    if (array) {
        json_blanks(line);
        if (json_pass(line, ']'))
            return true;
    }
    if (json_pass(line, '"')) {
        if (!json_string(line, &value, &escaped))
            return false;
        if (member)
            json_found(line, member, value, escaped);
    } else if (json_pass(line, '{')) {
        bool inner = member && member->inner && !array && depth < JSON_DEEPEST;
        if (!(inner ? json_object(line, (uint16_t)(member - line->format->members + 1), depth + 1)
                    : json_skip(line)))
            return false;
    } else if (json_pass(line, '[')) {
        if (!json_skip(line))
            return false;
    } else {
        value = json_word(line);
        if (value.len == 0)
            return json_fail(line, "a value is missing");
        if (member && !weir__span_is(value, "null"))
            json_found(line, member, value, false);
    }
    return !array || json_skip(line);
}

/* The members of an object, whose bracket was passed. */
static bool json_object(struct json_line *line, uint16_t parent, int depth)
{
    json_blanks(line);
    if (json_pass(line, '}'))
        return true;
    do {
        struct weir__span name;
        bool escaped;
        json_blanks(line);
        if (!json_pass(line, '"'))
            return json_fail(line, "expected a name in quotes");
        if (!json_string(line, &name, &escaped))
            return false;
        json_blanks(line);
        if (!json_pass(line, ':'))
            return json_fail(line, "expected ':' behind a name");
        size_t place = json_place(line->format, parent, name);
        const struct desk_member *member = &line->format->members[place];
        if (!json_value(line, member->name_len > 0 ? member : NULL, depth))
            return false;
        json_blanks(line);
    } while (json_pass(line, ','));
    return json_pass(line, '}') || json_fail(line, "expected ',' or '}'");
}

bool desk_json_read(const struct desk_format *format, struct weir__span line,
                    struct desk_fields *fields, struct desk_wrong *ret)
{
    struct json_line it = {format, fields, line.data, 0, line.len, {0}, ret};
    memset(it.ranks, DESK_NO_SLOT, sizeof it.ranks);
    fields->escape = DESK_ESCAPE_JSON;
    json_blanks(&it);
    if (!json_pass(&it, '{'))
        return json_fail(&it, "not an object of JSON");
    if (!json_object(&it, 0, 0))
        return false;
    json_blanks(&it);
    return it.at == it.len || json_fail(&it, "something follows the object");
}

/* ---- the names of a line ---- */

struct json_names {
    struct json_line line;
    char *ret;
    size_t used, size;
    char path[128]; /* of the object that is listed: "request.headers." */
    size_t path_len;
};

/* Adds a name with its path. False: it does not fit, and the list says so. */
static bool names_add(struct json_names *it, struct weir__span name)
{
    size_t need = 2 + it->path_len + name.len;
    bool fits = it->used + need + sizeof ", ..." <= it->size;
    const char *comma = it->used ? ", " : "";
    if (fits)
        it->used += (size_t)snprintf(it->ret + it->used, it->size - it->used, "%s%.*s%.*s", comma,
                                     (int)it->path_len, it->path, (int)name.len, name.data);
    else if (it->used + sizeof ", ..." <= it->size)
        snprintf(it->ret + it->used, it->size - it->used, "%s...", comma);
    return fits;
}

/* The members of an object, whose bracket was passed. False: no more of them. */
static bool names_list(struct json_names *it, int depth)
{
    struct json_line *line = &it->line;
    json_blanks(line);
    if (json_pass(line, '}'))
        return true;
    do {
        struct weir__span name;
        bool escaped;
        size_t path_len = it->path_len;
        json_blanks(line);
        if (!json_pass(line, '"') || !json_string(line, &name, &escaped))
            return false;
        json_blanks(line);
        if (!json_pass(line, ':'))
            return false;
        json_blanks(line);
        bool inner = depth < JSON_DEEPEST && path_len + name.len + 1 <= sizeof it->path &&
                     json_pass(line, '{');
        if (inner) {
            memcpy(it->path + path_len, name.data, name.len);
            it->path[path_len + name.len] = '.';
            it->path_len += name.len + 1;
        }
        if (inner ? !names_list(it, depth + 1)
                  : !names_add(it, name) || !json_value(line, NULL, depth))
            return false;
        it->path_len = path_len;
        json_blanks(line);
    } while (json_pass(line, ','));
    return json_pass(line, '}');
}

void desk_json_names(struct weir__span line, char *ret, size_t size)
{
    struct desk_wrong wrong;
    struct json_names it = {{NULL, NULL, line.data, 0, line.len, {0}, &wrong}, ret, 0, size, "", 0};
    assert(size > 0);
    ret[0] = 0;
    json_blanks(&it.line);
    if (json_pass(&it.line, '{'))
        names_list(&it, 0);
}
