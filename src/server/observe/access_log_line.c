/* A record as a line of JSON. */
#include "server/observe/access_log_inside.h"
#include "wire/json.h"

#include <string.h>

/* The texts stand one behind the other. */
static const char *put_text(struct weir__json *json, const char *name, const char *text, size_t len)
{
    weir__json_put_text(json, name, text, len);
    return text + len;
}

void server_log_format(const struct server_log_item *item, struct weir__buffer *out)
{
    static const char *const protocols[SERVER_PROTOCOLS] = {"http", "resp", "grpc"};
    const char *const protocol = protocols[item->protocol];
    struct weir__json json = {.out = out};
    const char *text = item->texts;
    weir__json_open(&json, NULL, '{');
    weir__json_put_seconds(&json, "time", item->time_us);
    weir__json_put_text(&json, "protocol", protocol, strlen(protocol));
    text = put_text(&json, "client", text, item->client_len);
    text = put_text(&json, "policy", text, item->policy_len);
    if (item->entry_len)
        text = put_text(&json, "entry", text, item->entry_len);
    weir__json_put_key(&json, text, item->key_len);
    text += item->key_len;
    if (item->key_cut)
        weir__json_put_bool(&json, "key_cut", true);
    if (item->ip_len)
        weir__json_put_text(&json, "ip", text, item->ip_len);
    text += item->ip_len;
    if (item->method_len)
        weir__json_put_text(&json, "method", text, item->method_len);
    text += item->method_len;
    if (item->path_len)
        weir__json_put_text(&json, "path", text, item->path_len);
    text += item->path_len;
    weir__json_put_int(&json, "cost", item->cost);
    weir__json_put_bool(&json, "allowed", item->allowed);
    weir__json_put_text(&json, "verdict", item->verdict, strlen(item->verdict));
    if (item->decided) {
        weir__json_put_int(&json, "limit", item->limit);
        weir__json_put_int(&json, "remaining", item->remaining);
        weir__json_put_seconds(&json, "retry_after", item->retry_after_us);
        weir__json_put_seconds(&json, "reset_after", item->reset_after_us);
        weir__json_put_seconds(&json, "delay", item->delay_us);
        weir__json_put_bool(&json, "degraded", item->degraded);
    }
    weir__json_put_uint(&json, "shadow_denied", item->shadow_denied);
    if (item->shadows_len) {
        weir__json_open(&json, "shadows", '[');
        weir__put(out, text, item->shadows_len);
        weir__json_close(&json, ']');
    }
    weir__json_close(&json, '}');
    weir__put(out, "\n", 1);
}
