/* Reads the body of a simulation, every value within its bounds: see playground.h. An error names
 * the path ("load.rate"), the value and what was expected. */
#include "sim/playground.h"

#include "base/duration.h"
#include "limit/limit.h"
#include "wire/json.h"

#include <string.h>

#define NODES 64
#define MILLION INT64_C(1000000)

struct reader {
    const struct weir__json_node *nodes;
    weir_error *err;
};

/* A value as the body has it, for messages. */
static void play_put_value(struct weir__buffer *out, const struct weir__json_node *node)
{
    int len = node->len > 60 ? 60 : (int)node->len;
    switch (node->type) {
    case WEIR__JSON_NULL:
        weir__put_text(out, "null");
        break;
    case WEIR__JSON_BOOL:
        weir__put_text(out, node->truth ? "true" : "false");
        break;
    case WEIR__JSON_NUMBER:
        weir__put(out, node->text, (size_t)len);
        break;
    case WEIR__JSON_STRING:
        weir__put_format(out, "\"%.*s\"", len, node->text);
        break;
    case WEIR__JSON_ARRAY:
        weir__put_text(out, "a list");
        break;
    case WEIR__JSON_OBJECT:
        weir__put_text(out, "an object");
        break;
    }
}

static int play_wrong(const struct reader *reader, const char *path,
                      const struct weir__json_node *node, const char *expected)
{
    char value[80];
    struct weir__buffer out = weir__buffer_over(value, sizeof value);
    if (!node)
        return weir__fail(reader->err, WEIR_EINVAL, 0, "%s is missing: expected %s", path,
                          expected);
    play_put_value(&out, node);
    return weir__fail(reader->err, WEIR_EINVAL, 0, "%s is %s: expected %s", path, value, expected);
}

/* An object whose members all have one of these names; NULL ends them. */
static int play_check_object(const struct reader *reader, const char *path,
                             const struct weir__json_node *node, const char *const *names)
{
    if (!node || node->type != WEIR__JSON_OBJECT)
        return play_wrong(reader, path, node, "an object");
    const struct weir__json_node *name = node + 1;
    for (uint32_t i = 0; i < node->len; i++) {
        size_t known = 0;
        while (names[known] &&
               (strlen(names[known]) != name->len || memcmp(names[known], name->text, name->len)))
            known++;
        if (!names[known])
            return weir__fail(reader->err, WEIR_EINVAL, 0,
                              "unknown member \"%.*s\" in %s; see docs/DASHBOARD.md",
                              name->len > 60 ? 60 : (int)name->len, name->text, path);
        name = reader->nodes + reader->nodes[name - reader->nodes + 1].next;
    }
    return 0;
}

/* ---- limits ---- */

static int play_read_limit(const struct reader *reader, size_t i,
                           const struct weir__json_node *node, struct weir__play *play)
{
    char path[32], text[WEIR__PLAY_TEXT_MAX];
    struct weir__buffer out = weir__buffer_over(path, sizeof path);
    weir__put_format(&out, "limits[%zu]", i);
    if (node->type != WEIR__JSON_STRING || node->len >= sizeof text ||
        memchr(node->text, 0, node->len))
        return play_wrong(reader, path, node,
                          "a limit's text of at most 1023 bytes, such as \"token-bucket 10/s\"");
    memcpy(text, node->text, node->len);
    text[node->len] = 0;
    weir_error cause = {0};
    int code = weir_limit_parse(text, &play->limits[i], &cause);
    if (code)
        return weir__fail(reader->err, code, cause.column, "%s \"%.80s\": %s", path, text,
                          cause.message);
    play->limit_count = i + 1;
    return 0;
}

static int play_read_limits(const struct reader *reader, const struct weir__json_node *list,
                            struct weir__play *play)
{
    if (!list || list->type != WEIR__JSON_ARRAY || list->len == 0 ||
        list->len > WEIR__PLAY_LIMITS_MAX)
        return play_wrong(reader, "limits", list, "a list of 1 to 6 limit texts");
    const struct weir__json_node *node = list + 1;
    for (size_t i = 0; i < list->len; i++) {
        int code = play_read_limit(reader, i, node, play);
        if (code)
            return code;
        node = reader->nodes + node->next;
    }
    return 0;
}

/* Whether two texts are of the same states, one by one. */
static bool play_shares_states(const weir_limit *a, const weir_limit *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++)
        same = weir__rule_same_state(&a->rules[i], &b->rules[i]);
    return same;
}

static int play_read_shared(const struct reader *reader, const struct weir__json_node *body,
                            struct weir__play *play)
{
    const struct weir__json_node *node = weir__json_member(reader->nodes, body, "shared");
    if (!node)
        return 0;
    if (node->type != WEIR__JSON_BOOL)
        return play_wrong(reader, "shared", node, "true or false");
    play->shared = node->truth;
    for (size_t i = 1; i < play->limit_count && play->shared; i++) {
        if (!play_shares_states(play->limits[0], play->limits[i]))
            return weir__fail(reader->err, WEIR_EINVAL, 0,
                              "limits[%zu] \"%.80s\" does not share the state of limits[0] "
                              "\"%.80s\": expected the same algorithm and period",
                              i, weir_limit_text(play->limits[i]),
                              weir_limit_text(play->limits[0]));
    }
    return 0;
}

/* ---- load ---- */

/* A number of the load: whole, or decimal and read in millionths. */
struct number {
    const char *name, *expected;
    int64_t least, most, otherwise; /* otherwise: the default; -1: the number is required */
    bool decimal;
};

static int play_read_number(const struct reader *reader, const struct weir__json_node *load,
                            const struct number *number, int64_t *ret)
{
    const struct weir__json_node *node = weir__json_member(reader->nodes, load, number->name);
    char path[32];
    struct weir__buffer out = weir__buffer_over(path, sizeof path);
    int64_t value;
    weir__put_format(&out, "load.%s", number->name);
    if (!node && number->otherwise >= 0) {
        *ret = number->otherwise;
        return 0;
    }
    if (!node || node->type != WEIR__JSON_NUMBER)
        return play_wrong(reader, path, node, number->expected);
    bool fits = number->decimal ? weir__json_seconds(node, &value) && value >= number->least &&
                                      value <= number->most
                                : weir__json_integer(node, number->least, number->most, &value);
    if (!fits)
        return play_wrong(reader, path, node, number->expected);
    *ret = value;
    return 0;
}

static int play_read_kind(const struct reader *reader, const struct weir__json_node *load,
                          enum weir__load_kind *ret)
{
    static const char *const kinds[] = {
        [WEIR__STEADY] = "steady",
        [WEIR__BURSTS] = "bursts",
        [WEIR__EDGES] = "edge",
        [WEIR__POISSON] = "poisson",
    };
    const struct weir__json_node *node = weir__json_member(reader->nodes, load, "kind");
    for (size_t i = 0; node && node->type == WEIR__JSON_STRING && i < WEIR__COUNT(kinds); i++) {
        if (node->len == strlen(kinds[i]) && !memcmp(node->text, kinds[i], node->len)) {
            *ret = (enum weir__load_kind)i;
            return 0;
        }
    }
    return play_wrong(reader, "load.kind", node, "\"steady\", \"bursts\", \"edge\" or \"poisson\"");
}

static int play_read_wait(const struct reader *reader, const struct weir__json_node *load,
                          int64_t *ret)
{
    const struct weir__json_node *node = weir__json_member(reader->nodes, load, "wait");
    *ret = WEIR_WAIT_DEFAULT;
    if (!node || node->type == WEIR__JSON_NULL)
        return 0;
    *ret = WEIR_WAIT_ANY;
    if (node->type == WEIR__JSON_STRING && node->len == 3 && !memcmp(node->text, "any", 3))
        return 0;
    if (node->type == WEIR__JSON_NUMBER && weir__json_seconds(node, ret) &&
        *ret <= WEIR_DURATION_MAX)
        return 0;
    return play_wrong(
        reader, "load.wait", node,
        "seconds, 0 to 31622400, or \"any\"; without it each limit uses its own default");
}

static int play_read_load(const struct reader *reader, const struct weir__json_node *node,
                          struct weir__load *ret)
{
    static const char *const names[] = {"kind", "rate",    "burst", "every", "keys",
                                        "cost", "seconds", "seed",  "wait",  NULL};
    int code = play_check_object(reader, "load", node, names);
    if (code == 0)
        code = play_read_kind(reader, node, &ret->kind);
    if (code)
        return code;
    bool pattern = ret->kind == WEIR__BURSTS || ret->kind == WEIR__EDGES;
    const struct {
        struct number number;
        int64_t *ret;
    } numbers[] = {
        {{"rate", "requests per second, 0 to 1000000, up to six decimals", 0,
          WEIR__PLAY_RATE_MAX * MILLION, pattern ? 0 : -1, true},
         &ret->rate_millionths},
        {{"burst", "how many requests at once, 1 to 200000", 1, WEIR__PLAY_REQUESTS_MAX,
          pattern ? -1 : 1, false},
         &ret->burst},
        {{"every", "seconds, 0.001 to 31622400", WEIR__PLAY_LEAST_US, WEIR_DURATION_MAX,
          pattern ? -1 : MILLION, true},
         &ret->every_us},
        {{"keys", "how many keys, 1 to 10000", 1, WEIR__PLAY_KEYS_MAX, 1, false}, &ret->keys},
        {{"cost", "what each request costs, 1 to 1000000000000", 1, WEIR_COST_MAX, 1, false},
         &ret->cost},
        {{"seconds", "how long it lasts, 0.001 to 31622400", WEIR__PLAY_LEAST_US, WEIR_DURATION_MAX,
          -1, true},
         &ret->span_us},
        {{"seed", "a whole number, 0 to 9007199254740991", 0, WEIR__EXACT_MAX - 1, 1, false},
         &ret->seed},
    };
    for (size_t i = 0; code == 0 && i < WEIR__COUNT(numbers); i++)
        code = play_read_number(reader, node, &numbers[i].number, numbers[i].ret);
    return code ? code : play_read_wait(reader, node, &ret->wait_us);
}

/* ---- all of it ---- */

int weir__play_read(char *body, size_t len, struct weir__play *ret, weir_error *err)
{
    static const char *const names[] = {"limits", "load", "shared", NULL};
    struct weir__json_node nodes[NODES];
    struct weir__play play = {.limit_count = 0};
    int count = weir__json_read(body, len, nodes, NODES, err);
    if (count < 0)
        return count;
    struct reader reader = {nodes, err};
    int code = play_check_object(&reader, "the body", nodes, names);
    if (code == 0)
        code = play_read_limits(&reader, weir__json_member(nodes, nodes, "limits"), &play);
    if (code == 0)
        code = play_read_shared(&reader, nodes, &play);
    if (code == 0)
        code = play_read_load(&reader, weir__json_member(nodes, nodes, "load"), &play.load);
    if (code) {
        weir__play_free(&play);
        return code;
    }
    *ret = play;
    return 0;
}

void weir__play_free(struct weir__play *play)
{
    for (size_t i = 0; i < play->limit_count; i++)
        weir_limit_free(play->limits[i]);
}
