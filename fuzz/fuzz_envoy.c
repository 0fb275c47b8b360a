/*
 * Envoy's configuration and a request to it. The input is a byte of options, a configuration up to
 * a zero byte, and a request, in JSON if it begins with '{', else in protobuf. Whatever comes: a
 * configuration is refused with words or whole; an answer has a status a descriptor; nothing of a
 * denied group is charged.
 */
#include "fuzz.h"

#include "policy/envoy/service.h"

#include <stdbool.h>

#define NOW INT64_C(1700000000000000)

static int64_t now(void *context)
{
    return *(int64_t *)context;
}

static int64_t time_us = NOW;

static weir_store *store(void)
{
    static weir_store *opened;
    static const weir_clock clock = {now, NULL, &time_us};
    if (!opened) {
        EXPECT(weir_store_open("memory:256k?large=30%", &opened, NULL) == 0, "no store");
        weir_store_set_clock(opened, &clock);
    }
    return opened;
}

static void check_rules(const struct weir__envoy *envoy)
{
    for (size_t i = 0; i < envoy->rule_count; i++) {
        const struct weir__envoy_rule *rule = envoy->rules[i];
        EXPECT(rule->index == i && rule->name[0] && rule->domain[0], "rule %zu", i);
        EXPECT((rule->limit != NULL) + rule->unlimited + rule->denies == 1, "rule %zu", i);
    }
}

static bool read_request(char *text, size_t len, struct weir__rls_request *ret)
{
    static struct weir__json_node nodes[WEIR__RLS_JSON_NODES];
    weir_error err = {0};
    int code = len > 0 && text[0] == '{'
                   ? weir__rls_read_json(text, len, nodes, WEIR__RLS_JSON_NODES, ret, &err)
                   : weir__rls_read((struct weir__span){text, len}, ret, &err);
    EXPECT(code == 0 || (code == WEIR_EINVAL && err.message[0]), "code %d", code);
    return code == 0;
}

/* An input leaves nothing for the next: its keys are forgotten. */
static void forget(const struct weir__rls_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        if (call->asked[i].limit)
            EXPECT(weir_reset(store(), call->asked[i].key) == 0, "reset");
    }
}

static void check_plan(const struct weir__rls_call *call, const struct weir__rls_request *request)
{
    EXPECT(call->count == request->descriptor_count, "%zu items", call->count);
    for (size_t i = 0; i < call->count; i++) {
        const struct weir__rls_asked *item = &call->asked[i];
        bool denied = item->outcome == WEIR__RLS_DENIED;
        EXPECT(!item->limit ||
                   (item->key.len > 0 && item->key.len < WEIR__ENVOY_KEY_ROOM &&
                    (const char *)item->key.data == call->plan.keys + i * WEIR__ENVOY_KEY_ROOM),
               "key %zu", i);
        EXPECT(call->over || !denied || item->quota, "item %zu denied, the request allowed", i);
        EXPECT(!call->over || !item->limit || item->alone || item->refund || item->shadow ||
                   item->decision.charged == 0,
               "item %zu charged, the request denied", i);
        EXPECT(!item->limit || item->decision.remaining <= item->decision.limit, "item %zu", i);
    }
}

static void check_answers(const struct weir__rls_call *call)
{
    static char room[WEIR__RLS_ANSWER_ROOM];
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    struct weir__span message;
    EXPECT(weir__rls_answer(call, &out), "the answer is cut");
    EXPECT(weir__grpc_unframe(room, out.len, &message, NULL) == 0, "the frame");
    out = weir__buffer_over(room, sizeof room);
    int status = weir__rls_answer_json(call, &out);
    EXPECT(!out.cut && status == (call->over && !call->options.shadow ? 429 : 200), "%d", status);
}

static void ask(const struct weir__envoy *envoy, const struct weir__rls_request *request,
                uint8_t flags)
{
    static struct weir__limit_cache cache;
    static struct weir__rls_call call;
    struct weir__rls_setup setup = {
        envoy,
        NULL,
        &cache,
        {.charge_denied = flags & 1, .shadow = flags & 2, .headers = flags & 4}};
    weir_error err = {0};
    weir__limit_cache_turn(&cache);
    for (int i = 0; i < 3; i++) {
        int code = weir__rls_plan(&setup, request, &call, &err);
        EXPECT(code == 0 || ((code == WEIR_EINVAL || code == WEIR_ESHARED) && err.message[0]),
               "code %d", code);
        if (code)
            return;
        code = weir__rls_decide(store(), &call, &err);
        EXPECT(code == 0 || code == WEIR_EFULL, "%s", err.message);
        if (code == 0) {
            check_plan(&call, request);
            check_answers(&call);
        }
        if (i == 2)
            forget(&call);
        weir__rls_end(&call);
        time_us += 700000;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct weir__rls_request request;
    if (size == 0)
        return 0;
    uint8_t flags = data[0];
    const uint8_t *end = memchr(data + 1, 0, size - 1);
    size_t len = end ? (size_t)(end - data) - 1 : size - 1;
    char *text = fuzz_text(data + 1, len);
    struct weir__envoy *envoy = NULL;
    weir_error err = {0};
    time_us = NOW;
    int code = weir__envoy_parse(text, len, "fuzz.yaml", &envoy, &err);
    if (code) {
        EXPECT(code == WEIR_EINVAL && err.code == code && !envoy, "code %d", code);
        EXPECT(!strncmp(err.message, "fuzz.yaml:", 10), "\"%s\" has no place", err.message);
    } else {
        size_t rest = end ? size - len - 2 : 0;
        char *body = fuzz_text(end ? end + 1 : data, rest);
        check_rules(envoy);
        if (read_request(body, rest, &request))
            ask(envoy, &request, flags);
        free(body);
    }
    weir__envoy_free(envoy);
    free(text);
    return 0;
}
