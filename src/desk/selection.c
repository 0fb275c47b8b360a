/* What is asked for, as text: see select.h. */
#include "desk/select.h"

#include "base/duration.h"

#include <assert.h>
#include <string.h>

/* ---- attributes ---- */

int desk_selection_attribute(struct desk_selection *selection, struct weir__span text,
                             const char **ret_wrong)
{
    int i = weir__attribute_read(&selection->attributes, &selection->arena, text.data, text.len,
                                 ret_wrong);
    if (i < 0) {
        *ret_wrong = **ret_wrong ? *ret_wrong : "out of memory";
        return -1;
    }
    const struct weir__attribute *attribute = &selection->attributes.items[i];
    struct weir__span name = {attribute->name, attribute->name_len};
    struct desk_source_of *source = &selection->sources[i];
    if (name.len > 6 && !memcmp(name.data, "query.", 6)) {
        source->from = DESK_FROM_ARGUMENT;
        source->slot = DESK_QUERY;
        source->argument = (struct weir__span){name.data + 6, name.len - 6};
        return i;
    }
    source->from = DESK_FROM_SLOT;
    source->slot = desk_wanted_slot(&selection->wanted, name);
    if (source->slot != DESK_NO_SLOT)
        return i;
    *ret_wrong = "too many different fields";
    return -1;
}

/* ---- the key ---- */

/* "24" or "24/48" behind the slash of an address. */
static bool selection_read_bits(struct weir__span text, struct weir__key_part *ret)
{
    const char *slash = memchr(text.data, '/', text.len);
    size_t first = slash ? (size_t)(slash - text.data) : text.len;
    int64_t bits4, bits6 = WEIR__IP_BITS6;
    if (!weir__span_whole((struct weir__span){text.data, first}, 1, 128, &bits4))
        return false;
    if (slash &&
        !weir__span_whole((struct weir__span){slash + 1, text.len - first - 1}, 1, 128, &bits6))
        return false;
    if (!slash && bits4 > 32) { /* ip/56 can only be meant for IPv6 */
        bits6 = bits4;
        bits4 = WEIR__IP_BITS4;
    }
    ret->bits4 = (uint8_t)bits4;
    ret->bits6 = (uint8_t)bits6;
    return bits4 <= 32;
}

static const char *selection_add_template(struct desk_selection *selection, struct weir__span text)
{
    if (selection->template_count == DESK_TEMPLATES_MAX)
        return "more than 64 templates";
    if (text.len == 0 || text.data[0] != '/')
        return "a template is a path, like /users/{id}";
    if (!memchr(text.data, '{', text.len))
        return "a template has a part in braces, like /users/{id}";
    selection->templates[selection->template_count++] = text;
    return NULL;
}

static const char *selection_read_part(struct desk_selection *selection, struct weir__span text,
                                       struct desk_key_part *ret)
{
    const char *wrong = NULL;
    *ret = (struct desk_key_part){.part = {.attribute = -1}};
    if (text.len > 2 && text.data[0] == '\'' && text.data[text.len - 1] == '\'') {
        ret->constant = (struct weir__span){text.data + 1, text.len - 2};
        return NULL;
    }
    if (text.len > 6 && !memcmp(text.data, "hash(", 5) && text.data[text.len - 1] == ')') {
        ret->part.hashed = true;
        text = (struct weir__span){text.data + 5, text.len - 6};
    }
    if (text.len > 5 && !memcmp(text.data, "path:", 5)) {
        wrong = selection_add_template(selection, (struct weir__span){text.data + 5, text.len - 5});
        text.len = 4;
    }
    const char *slash = memchr(text.data, '/', text.len);
    struct weir__span name = {text.data, slash ? (size_t)(slash - text.data) : text.len};
    if (!wrong)
        ret->part.attribute = desk_selection_attribute(selection, name, &wrong);
    if (wrong)
        return wrong;
    bool address = selection->attributes.items[ret->part.attribute].spelling == WEIR__AS_ADDRESS;
    ret->part.bits4 = WEIR__IP_BITS4;
    ret->part.bits6 = WEIR__IP_BITS6;
    if (slash && !address)
        return "only addresses have networks; write ip(NAME)/24/64";
    if (slash &&
        !selection_read_bits((struct weir__span){slash + 1, text.len - name.len - 1}, &ret->part))
        return "after an address write the lengths of its network, for IPv4 (1 to 32) and IPv6 "
               "(1 to 128), like ip/24/64";
    return NULL;
}

/* The parts, which commas separate; a constant may have one in it. */
static const char *selection_read_key(struct desk_selection *selection, const char *text)
{
    const char *at = text, *wrong = NULL;
    while (!wrong) {
        at += strspn(at, " ");
        size_t len = *at == '\'' ? 1 + strcspn(at + 1, "'") : 0;
        len += strcspn(at + len, ",");
        size_t trimmed = len;
        while (trimmed > 0 && at[trimmed - 1] == ' ')
            trimmed--;
        if (selection->part_count == WEIR__KEY_FORM_MAX)
            return "a key has at most 8 parts";
        wrong = selection_read_part(selection, (struct weir__span){at, trimmed},
                                    &selection->parts[selection->part_count++]);
        if (!at[len])
            break;
        at += len + 1;
    }
    return wrong;
}

/* ---- the cost ---- */

/* "bytes", "bytes/1000", "duration/100ms". A duration costs its milliseconds unless told
 * otherwise. */
static const char *selection_read_cost(struct desk_selection *selection, const char *text)
{
    const char *slash = strchr(text, '/'), *wrong = NULL, *why;
    struct weir__span name = {text, slash ? (size_t)(slash - text) : strlen(text)};
    int attribute = desk_selection_attribute(selection, name, &wrong);
    if (attribute < 0)
        return wrong;
    if (selection->sources[attribute].from != DESK_FROM_SLOT)
        return "the cost is a field of the log, like bytes or duration";
    selection->costs = true;
    selection->cost_slot = selection->sources[attribute].slot;
    bool duration = selection->cost_slot == DESK_DURATION;
    selection->cost_unit = duration ? 1000000 : 1;
    if (!slash)
        return NULL;
    struct weir__span unit = weir__span_of(slash + 1);
    if (duration) {
        if (weir__duration_parse(unit.data, unit.len, &selection->cost_unit, &why) != unit.len ||
            unit.len == 0)
            return "expected a duration after the /, like duration/100ms";
        selection->cost_unit *= 1000;
        return NULL;
    }
    if (!weir__span_whole(unit, 1, WEIR_COST_MAX, &selection->cost_unit))
        return "expected a whole number after the /, like bytes/1000";
    return NULL;
}

/* ---- all of it ---- */

/* The slot of a word that may be moved; a header field gets one. DESK_NO_SLOT: *ret_wrong. */
static uint8_t selection_moved_slot(struct desk_selection *selection, struct weir__span word,
                                    const char **ret_wrong)
{
    static const char begin[] = "header.";
    const size_t len = sizeof begin - 1;
    *ret_wrong = "expected NAME=FIELD, where NAME is one of time, ip, method, path, query, "
                 "request, host, status, bytes, duration, user, agent, referer, key and cost, or "
                 "header.NAME";
    if (word.len <= len || memcmp(word.data, begin, len) != 0)
        return desk_slot_of_word(word);
    int attribute = desk_selection_attribute(selection, word, ret_wrong);
    return attribute < 0 ? DESK_NO_SLOT : selection->sources[attribute].slot;
}

/* "ip=my.client": a word of ours, and the name that the log has for it. */
static const char *selection_read_moved(struct desk_selection *selection, const char *text)
{
    const char *equals = strchr(text, '='), *wrong;
    struct desk_wanted *wanted = &selection->wanted;
    struct weir__span word = {text, equals ? (size_t)(equals - text) : 0};
    uint8_t slot = selection_moved_slot(selection, word, &wrong);
    if (!equals || !equals[1] || slot == DESK_NO_SLOT)
        return wrong;
    if (wanted->moved_count == DESK_NAMED_MAX - 1)
        return "too many fields";
    wanted->moved[wanted->moved_count].slot = slot;
    wanted->moved[wanted->moved_count].name = equals + 1;
    wanted->moved[wanted->moved_count++].len = strlen(equals + 1);
    return NULL;
}

static int selection_refuse(weir_error *err, const char *what, const char *text, const char *wrong)
{
    return weir__fail(err, WEIR_EINVAL, 0, "invalid %s \"%.80s\": %s", what, text, wrong);
}

static int selection_read_lists(const struct desk_options *options, struct desk_selection *ret,
                                weir_error *err)
{
    const char *wrong;
    for (size_t i = 0; i < options->field_count; i++) {
        wrong = selection_read_moved(ret, options->fields[i]);
        if (wrong)
            return selection_refuse(err, "field", options->fields[i], wrong);
    }
    for (size_t i = 0; i < options->template_count; i++) {
        wrong = selection_add_template(ret, weir__span_of(options->templates[i]));
        if (wrong)
            return selection_refuse(err, "template", options->templates[i], wrong);
    }
    for (size_t i = 0; i < options->where_count; i++) {
        wrong = desk_where_read(ret, false, options->where[i]);
        if (wrong)
            return selection_refuse(err, "condition", options->where[i], wrong);
    }
    for (size_t i = 0; i < options->wide_count; i++) {
        wrong = desk_where_read(ret, true, options->wide[i]);
        if (wrong)
            return selection_refuse(err, "condition", options->wide[i], wrong);
    }
    ret->carried_as_keys = options->carried_as_keys;
    if (options->carried_count > DESK_CARRIED_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "more than %d attributes", DESK_CARRIED_MAX);
    for (size_t i = 0; i < options->carried_count; i++) {
        ret->carried[i] = desk_selection_attribute(ret, weir__span_of(options->carried[i]), &wrong);
        if (ret->carried[i] < 0)
            return selection_refuse(err, "attribute", options->carried[i], wrong);
        ret->carried_count++;
    }
    return 0;
}

int desk_selection_make(const struct desk_options *options, struct desk_selection *ret,
                        weir_error *err)
{
    const char *wrong = NULL;
    memset(ret, 0, sizeof *ret);
    memcpy(ret->secret, options->secret, sizeof ret->secret);
    ret->where = options->where;
    ret->ip = desk_selection_attribute(ret, weir__span_of("ip"), &wrong);
    ret->key = desk_selection_attribute(ret, weir__span_of("key"), &wrong);
    if (ret->ip < 0 || ret->key < 0)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory");
    int code = selection_read_lists(options, ret, err);
    if (code == 0 && options->key) {
        wrong = selection_read_key(ret, options->key);
        if (wrong)
            code = selection_refuse(err, "key", options->key, wrong);
    }
    if (code == 0 && options->cost) {
        wrong = selection_read_cost(ret, options->cost);
        if (wrong)
            code = selection_refuse(err, "cost", options->cost, wrong);
    }
    return code;
}

void desk_selection_free(struct desk_selection *selection)
{
    weir__arena_free(&selection->arena);
}

/* Whether lines with these slots have it: methods and paths also come from the request. */
static bool selection_has(uint64_t has, uint8_t slot)
{
    if (has >> slot & 1)
        return true;
    bool request = has >> DESK_REQUEST & 1, target = request || has >> DESK_TARGET & 1;
    return slot == DESK_METHOD
               ? request
               : (slot == DESK_TARGET || slot == DESK_QUERY || slot == DESK_HOST) && target;
}

/* Whether lines of the format may have it. */
static bool selection_is_there(const struct desk_format *format, uint8_t slot)
{
    return format->open_names || selection_has(format->has, slot);
}

static const struct weir__attribute *selection_cost(const struct desk_selection *selection)
{
    size_t i = 0;
    while (selection->sources[i].from != DESK_FROM_SLOT ||
           selection->sources[i].slot != selection->cost_slot)
        i++;
    assert(i < selection->attributes.count); /* selection_read_cost made it */
    return &selection->attributes.items[i];
}

/* What is asked for and no line of the format has, or NULL. */
static const struct weir__attribute *selection_missing(const struct desk_selection *selection,
                                                       const struct desk_format *format,
                                                       const char **ret_hint)
{
    const struct weir__attribute *attributes = selection->attributes.items;
    for (size_t i = 0; i < selection->part_count; i++) {
        int attribute = selection->parts[i].part.attribute;
        if (attribute >= 0 && !selection_is_there(format, selection->sources[attribute].slot))
            return &attributes[attribute];
    }
    for (size_t i = 0; i < selection->conditions.count; i++) {
        int attribute = selection->items[i].attribute;
        if (!selection_is_there(format, selection->sources[attribute].slot))
            return &attributes[attribute];
    }
    for (size_t i = 0; selection->carried_as_keys && i < selection->carried_count; i++) {
        int attribute = selection->carried[i];
        if (!selection_is_there(format, selection->sources[attribute].slot)) {
            *ret_hint = "; name one of them with --share-by";
            return &attributes[attribute];
        }
    }
    if (selection->costs && !selection_is_there(format, selection->cost_slot))
        return selection_cost(selection);
    if (selection->part_count == 0 && !selection_is_there(format, DESK_KEY) &&
        !selection_is_there(format, DESK_IP)) {
        *ret_hint = "; name one of them with --key, or say which field is the address: "
                    "--field ip=NAME";
        return &attributes[selection->ip];
    }
    return NULL;
}

/* A log of text may have more fields than its format names: how to name this one. */
static void selection_put_format(struct weir__buffer *out, const struct weir__attribute *missing)
{
    const char *name = missing->name;
    bool header = !strncmp(name, "header.", 7);
    weir__put_format(out, "; if lines have it, give nginx's log_format: --format '... \"$%s",
                     header ? "http_" : "");
    for (name += header ? 7 : 0; *name; name++)
        weir__put(out, *name == '-' ? "_" : name, 1);
    weir__put_text(out, "\"'");
}

int desk_selection_check(const struct desk_selection *selection, const struct desk_format *format,
                         const char *path, weir_error *err)
{
    const char *hint = "";
    const struct weir__attribute *missing = selection_missing(selection, format, &hint);
    if (!missing)
        return 0;
    char list[200], advice[200];
    struct weir__buffer buffer = weir__buffer_over(list, sizeof list);
    for (unsigned slot = DESK_IP; slot < DESK_NAMED; slot++) {
        if (selection_is_there(format, (uint8_t)slot))
            weir__put_format(&buffer, "%s%s", buffer.len ? ", " : "",
                             desk_slot_word((uint8_t)slot));
    }
    if (buffer.len == 0)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "%s: lines in the format %s have no field %s, and no other that has a "
                          "known name; say which one it is: --field %s=NAME",
                          path, format->name, missing->text, missing->text);
    struct weir__buffer more = weir__buffer_over(advice, sizeof advice);
    weir__put_text(&more, hint);
    if (!hint[0] && format->family == DESK_TEXT)
        selection_put_format(&more, missing);
    return weir__fail(err, WEIR_EINVAL, 0,
                      "%s: lines in the format %s have no field %s; they have %s%s", path,
                      format->name, missing->text, list, advice);
}

void desk_selection_unseen(const struct desk_selection *selection,
                           const struct desk_options *options, uint64_t seen,
                           struct desk_facts *ret)
{
    ret->unseen_field = ret->unseen_where = ret->unseen_key = NULL;
    ret->unseen_carried = 0;
    for (size_t i = options->field_count; i-- > 0;) {
        if (!(seen >> selection->wanted.moved[i].slot & 1)) /* no other name leads there */
            ret->unseen_field = options->fields[i];
    }
    for (size_t i = 0; i < selection->carried_count; i++) {
        if (!selection_has(seen, selection->sources[selection->carried[i]].slot))
            ret->unseen_carried |= UINT64_C(1) << i;
    }
    for (size_t i = selection->part_count; i-- > 0;) {
        int attribute = selection->parts[i].part.attribute;
        if (attribute >= 0 && !selection_has(seen, selection->sources[attribute].slot))
            ret->unseen_key = selection->attributes.items[attribute].name;
    }
    for (size_t i = options->where_count; i-- > 0;) {
        const struct desk_source_of *source = &selection->sources[selection->items[i].attribute];
        const char *equals = strchr(options->where[i], '=');
        bool absent = equals[-1] == '!' && !strcmp(equals, "=*");
        if (!absent && !selection_has(seen, source->slot))
            ret->unseen_where = options->where[i];
    }
}
