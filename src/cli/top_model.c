/* From the JSON of a server to the numbers that `weir top` shows: see top.h. */
#include "cli/top.h"

#include "wire/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

struct reading {
    struct weir__json_node *nodes;
    bool wrong; /* a member that weir always sends is missing */
};

static bool model_open_reading(struct reading *reading, char *text, size_t len)
{
    /* Every node takes at least one byte and its comma. */
    const size_t room = len / 2 + 16;
    *reading = (struct reading){.nodes = calloc(room, sizeof *reading->nodes)};
    if (reading->nodes && weir__json_read(text, len, reading->nodes, (uint32_t)room, NULL) > 0 &&
        reading->nodes->type == WEIR__JSON_OBJECT)
        return true;
    free(reading->nodes);
    return false;
}

static const struct weir__json_node *
model_member(const struct reading *reading, const struct weir__json_node *object, const char *name)
{
    return weir__json_member(reading->nodes, object, name);
}

/* One that weir always sends; NULL: it does not here. */
static const struct weir__json_node *model_need(struct reading *reading,
                                                const struct weir__json_node *object,
                                                const char *name, enum weir__json_type type)
{
    const struct weir__json_node *const node = weir__json_typed(reading->nodes, object, name, type);
    reading->wrong = reading->wrong || !node;
    return node;
}

static uint64_t model_count_in(struct reading *reading, const struct weir__json_node *object,
                               const char *name)
{
    const struct weir__json_node *const node = model_member(reading, object, name);
    int64_t number = 0;
    if (!node || !weir__json_integer(node, 0, INT64_MAX, &number))
        reading->wrong = true;
    return (uint64_t)number;
}

static double model_number_in(struct reading *reading, const struct weir__json_node *object,
                              const char *name)
{
    const struct weir__json_node *const node = model_need(reading, object, name, WEIR__JSON_NUMBER);
    char text[41];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    if (node)
        weir__put(&buffer, node->text, node->len);
    reading->wrong = reading->wrong || buffer.cut;
    return node && !buffer.cut ? strtod(text, NULL) : 0;
}

static struct cli_shown model_text_in(struct reading *reading, const struct weir__json_node *object,
                                      const char *name)
{
    const struct weir__json_node *const node = model_need(reading, object, name, WEIR__JSON_STRING);
    return node ? cli_show(node->text, node->len) : (struct cli_shown){""};
}

static bool model_truth_in(const struct reading *reading, const struct weir__json_node *object,
                           const char *name)
{
    const struct weir__json_node *const node =
        weir__json_typed(reading->nodes, object, name, WEIR__JSON_BOOL);
    return node && node->truth;
}

/* The elements of an array: the first, and the next one. */
static const struct weir__json_node *model_first_of(struct reading *reading,
                                                    const struct weir__json_node *object,
                                                    const char *name, uint32_t *ret_count)
{
    const struct weir__json_node *const array = model_need(reading, object, name, WEIR__JSON_ARRAY);
    *ret_count = array ? array->len : 0;
    return array ? array + 1 : NULL;
}

static const struct weir__json_node *model_next_of(const struct reading *reading,
                                                   const struct weir__json_node *node)
{
    return reading->nodes + node->next;
}

/* ---- stats ---- */

static void model_add_row(struct reading *reading, const struct weir__json_node *node,
                          const struct cli_shown *policy, struct cli_top_model *top)
{
    if (top->row_count == CLI_TOP_ROWS_MAX || model_truth_in(reading, node, "gone"))
        return;
    const struct cli_shown name = model_text_in(reading, node, "name");
    assert(top->row_count < CLI_TOP_ROWS_MAX);
    top->rows[top->row_count++] = (struct cli_top_row){
        .policy = policy ? *policy : name,
        .limit = policy ? name : (struct cli_shown){""},
        .shadow = model_truth_in(reading, node, "shadow"),
        .allowed = model_count_in(reading, node, "allowed"),
        .denied = model_count_in(reading, node, "denied"),
    };
}

static void model_read_policies(struct reading *reading, struct cli_top_model *top)
{
    uint32_t policies, limits;
    const struct weir__json_node *policy =
        model_first_of(reading, reading->nodes, "policies", &policies);
    for (; policies > 0 && !reading->wrong; policies--, policy = model_next_of(reading, policy)) {
        const struct cli_shown name = model_text_in(reading, policy, "name");
        model_add_row(reading, policy, NULL, top);
        const struct weir__json_node *limit = model_first_of(reading, policy, "limits", &limits);
        for (; limits > 0 && !model_truth_in(reading, policy, "gone"); limits--) {
            model_add_row(reading, limit, &name, top);
            limit = model_next_of(reading, limit);
        }
    }
}

static void model_read_counts(struct reading *reading, struct cli_top_model *top)
{
    static const char *const names[CLI_TOP_COUNTS] = {"http",   "resp",   "grpc",         "allowed",
                                                      "denied", "failed", "shadow_denied"};
    const struct weir__json_node *const root = reading->nodes;
    const struct weir__json_node *const requests = model_member(reading, root, "requests");
    const struct weir__json_node *const totals = model_member(reading, root, "totals");
    const struct weir__json_node *const connections = model_member(reading, root, "connections");
    const struct weir__json_node *const latency = model_member(reading, root, "latency");
    for (int i = 0; i < CLI_TOP_COUNTS; i++)
        top->counts[i].value =
            model_count_in(reading, i < CLI_TOP_ALLOWED ? requests : totals, names[i]);
    top->open = model_count_in(reading, connections, "open");
    top->refused = model_count_in(reading, connections, "refused");
    top->latency_count = model_count_in(reading, latency, "count");
    top->p50 = model_number_in(reading, latency, "p50");
    top->p99 = model_number_in(reading, latency, "p99");
    top->p999 = model_number_in(reading, latency, "p999");
}

static void model_read_store(struct reading *reading, struct cli_top_model *top)
{
    const struct weir__json_node *const store = model_member(reading, reading->nodes, "store");
    const struct weir__json_node *const zone = model_member(reading, reading->nodes, "zone");
    top->store = model_text_in(reading, store, "kind");
    top->degraded = model_truth_in(reading, store, "degraded");
    top->has_zone = zone != NULL;
    if (!zone)
        return;
    top->zone_keys = model_count_in(reading, zone, "keys");
    top->zone_capacity = model_count_in(reading, zone, "capacity");
    top->zone_lost = model_count_in(reading, zone, "evicted_unused") +
                     model_count_in(reading, zone, "evicted_soonest");
}

bool cli_top_read_stats(char *text, size_t len, struct cli_top_model *ret)
{
    struct reading reading;
    if (!model_open_reading(&reading, text, len))
        return false;
    ret->row_count = 0;
    ret->version = model_text_in(&reading, reading.nodes, "version");
    ret->time = model_number_in(&reading, reading.nodes, "time");
    ret->uptime = model_number_in(&reading, reading.nodes, "uptime");
    model_read_counts(&reading, ret);
    model_read_store(&reading, ret);
    model_read_policies(&reading, ret);
    free(reading.nodes);
    return !reading.wrong;
}

/* ---- keys ---- */

/* A key that was asked for by its policy and by itself, with its limit in the request, is one key:
 * takes what is listed of it out of the list, into *key. */
static void model_join_key(struct cli_top_keys *keys, struct cli_top_key *key)
{
    for (size_t i = 0; i < keys->count && key->whole; i++) {
        const struct cli_top_key *const it = &keys->rows[i];
        if (!it->whole || strcmp(it->key.text, key->key.text))
            continue;
        key->rate += it->rate;
        if (it->policy.text[0])
            key->policy = it->policy;
        keys->count--;
        memmove(&keys->rows[i], &keys->rows[i + 1], (keys->count - i) * sizeof *key);
        return;
    }
}

/* Inserts a key by its rate. Without room the smallest is dropped. */
static void model_add_key(struct cli_top_keys *keys, const struct cli_top_key *key)
{
    size_t at = keys->count;
    while (at > 0 && keys->rows[at - 1].rate < key->rate)
        at--;
    if (at == CLI_TOP_KEYS_MAX)
        return;
    if (keys->count < CLI_TOP_KEYS_MAX)
        keys->count++;
    assert(at < keys->count && keys->count <= CLI_TOP_KEYS_MAX);
    memmove(&keys->rows[at + 1], &keys->rows[at], (keys->count - 1 - at) * sizeof *key);
    keys->rows[at] = *key;
}

static void model_read_list(struct reading *reading, const struct weir__json_node *policy,
                            const char *name, struct cli_top_keys *ret)
{
    const struct cli_shown of = model_text_in(reading, policy, "name");
    uint32_t count;
    const struct weir__json_node *node = model_first_of(reading, policy, name, &count);
    for (; count > 0 && !reading->wrong; count--, node = model_next_of(reading, node)) {
        const bool binary = model_member(reading, node, "key_base64") != NULL;
        const char *const member = binary ? "key_base64" : "key";
        struct cli_top_key key = {.policy = of, .key = model_text_in(reading, node, member)};
        const struct weir__json_node *const said = model_member(reading, node, member);
        key.rate = model_number_in(reading, node, "rate");
        key.whole = !binary && said && !model_truth_in(reading, node, "cut") &&
                    strlen(key.key.text) == said->len &&
                    !memcmp(key.key.text, said->text, said->len);
        if (binary) {
            char text[160];
            snprintf(text, sizeof text, "base64:%s", key.key.text);
            key.key = cli_show_text(text);
        }
        if (model_truth_in(reading, node, "cut") && strlen(key.key.text) + 4 < sizeof key.key.text)
            strcat(key.key.text, "…");
        model_join_key(ret, &key);
        model_add_key(ret, &key);
    }
}

bool cli_top_read_keys(char *text, size_t len, struct cli_top_model *ret)
{
    struct reading reading;
    if (!model_open_reading(&reading, text, len))
        return false;
    uint32_t count;
    const struct weir__json_node *policy =
        model_first_of(&reading, reading.nodes, "policies", &count);
    ret->hottest.count = ret->denied_keys.count = 0;
    for (; count > 0 && !reading.wrong; count--, policy = model_next_of(&reading, policy)) {
        model_read_list(&reading, policy, "hottest", &ret->hottest);
        model_read_list(&reading, policy, "denied", &ret->denied_keys);
    }
    free(reading.nodes);
    return !reading.wrong;
}

/* ---- rates ---- */

static double model_rate_of(uint64_t before, uint64_t now, double seconds)
{
    return now >= before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

/* The same row in an earlier reading: at the same place, unless policies were reloaded. */
static const struct cli_top_row *model_same_row(const struct cli_top_model *top,
                                                const struct cli_top_row *row, size_t guess)
{
    for (size_t i = 0; i < top->row_count; i++) {
        const struct cli_top_row *const it = &top->rows[(guess + i) % top->row_count];
        if (!strcmp(it->policy.text, row->policy.text) && !strcmp(it->limit.text, row->limit.text))
            return it;
    }
    return NULL;
}

void cli_top_compare(const struct cli_top_model *before, struct cli_top_model *now)
{
    /* After a restart the counters begin at zero. */
    const bool same = now->uptime >= before->uptime;
    const double seconds = same ? now->time - before->time : 0;
    for (int i = 0; i < CLI_TOP_COUNTS; i++)
        now->counts[i].rate = model_rate_of(before->counts[i].value, now->counts[i].value, seconds);
    for (size_t i = 0; i < now->row_count; i++) {
        struct cli_top_row *const row = &now->rows[i];
        const struct cli_top_row *const old = model_same_row(before, row, i);
        row->allowed_rate = old ? model_rate_of(old->allowed, row->allowed, seconds) : 0;
        row->denied_rate = old ? model_rate_of(old->denied, row->denied, seconds) : 0;
    }
}
