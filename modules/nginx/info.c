/* weir_info: what the zones and stores of this nginx hold and do, as JSON or as Prometheus reads it. */
#include "ngx_http_weir.h"

#include "wire/json.h"

/* Room for one entry: every number at its longest, every byte of a text escaped as \u0000. */
#define NUMBERS_MOST 20
#define ENTRY_MOST (NUMBERS_MOST * (WEIR__DIGITS + 24) + 64)
#define TEXT_MOST(len) (6 * (len) + 16)

static size_t size_most(const ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_zone_t *const *zones = conf->zones.elts;
    ngx_http_weir_store_t *const *stores = conf->stores.elts;
    size_t size = ENTRY_MOST;
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++)
        size += ENTRY_MOST + TEXT_MOST(zones[i]->name.len);
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++)
        size += ENTRY_MOST + TEXT_MOST(stores[i]->text.len) + TEXT_MOST(WEIR__WHY_SIZE);
    return size;
}

static void put_zone(struct weir__json *json, const ngx_http_weir_zone_t *zone)
{
    weir_zone_info info;
    weir__json_open(json, NULL, '{');
    weir__json_put_text(json, "name", (const char *)zone->name.data, zone->name.len);
    if (weir_store_info(zone->store, &info) == 0) {
        double bytes =
            info.capacity ? (double)(info.size - info.large_bytes) / (double)info.capacity : 0;
        weir__json_put_uint(json, "size", info.size);
        weir__json_put_uint(json, "keys", info.keys);
        weir__json_put_uint(json, "capacity", info.capacity);
        weir__json_put_double(json, "bytes_per_key", bytes);
        weir__json_put_uint(json, "limits", info.limits);
        weir__json_put_uint(json, "large_bytes", info.large_bytes);
        weir__json_put_uint(json, "large_used", info.large_used);
        weir__json_put_uint(json, "evicted_fresh", info.evicted_fresh);
        weir__json_put_uint(json, "evicted_unused", info.evicted_unused);
        weir__json_put_uint(json, "evicted_soonest", info.evicted_soonest);
        weir__json_put_uint(json, "repairs", info.repairs);
    }
    static const struct {
        const char *name;
        ngx_http_weir_kind_e kind;
        ngx_http_weir_outcome_e outcome;
    } counts[] = {
        {"passed", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_DID_PASS},
        {"delayed", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_DID_DELAY},
        {"rejected", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_DID_REJECT},
        {"dry_run", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_WOULD_REJECT},
        {"conn_passed", NGX_HTTP_WEIR_OF_CONN, NGX_HTTP_WEIR_DID_PASS},
        {"conn_rejected", NGX_HTTP_WEIR_OF_CONN, NGX_HTTP_WEIR_DID_REJECT},
        {"conn_dry_run", NGX_HTTP_WEIR_OF_CONN, NGX_HTTP_WEIR_WOULD_REJECT},
    };
    for (size_t i = 0; i < WEIR__COUNT(counts); i++)
        weir__json_put_uint(json, counts[i].name,
                            ngx_http_weir_counted(zone, counts[i].kind, counts[i].outcome));
    weir__json_close(json, '}');
}

static void put_store(struct weir__json *json, const ngx_http_weir_store_t *store)
{
    ngx_http_weir_fleet_info_t info;
    ngx_http_weir_fleet_info(store, &info);
    weir__json_open(json, NULL, '{');
    weir__json_put_text(json, "url", (const char *)store->text.data, store->text.len);
    const char *state = info.up ? "up" : "down";
    weir__json_put_text(json, "state", state, ngx_strlen(state));
    weir__json_put_text(json, "why", info.why, ngx_strlen(info.why));
    weir__json_put_uint(json, "asked", info.asked);
    weir__json_put_uint(json, "answered", info.answered);
    weir__json_put_uint(json, "unreachable", info.unreachable);
    weir__json_put_uint(json, "cached_denials", info.cached_denials);
    weir__json_put_uint(json, "queue", info.queue);
    weir__json_put_uint(json, "owed", info.owed);
    weir__json_close(json, '}');
}

static void put_all(struct weir__buffer *buffer, const ngx_http_weir_main_conf_t *conf)
{
    struct weir__json json = {.out = buffer};
    ngx_http_weir_zone_t *const *zones = conf->zones.elts;
    ngx_http_weir_store_t *const *stores = conf->stores.elts;
    weir__json_open(&json, NULL, '{');
    weir__json_open(&json, "zones", '[');
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++)
        put_zone(&json, zones[i]);
    weir__json_close(&json, ']');
    weir__json_open(&json, "stores", '[');
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++)
        put_store(&json, stores[i]);
    weir__json_close(&json, ']');
    weir__json_put_int(&json, "worker", ngx_pid);
    weir__json_close(&json, '}');
    weir__put_text(buffer, "\n");
}

/* The answer's body; NULL: there is no room for it. */
static ngx_buf_t *make_body(ngx_http_request_t *r, bool text)
{
    const ngx_http_weir_main_conf_t *conf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    size_t size = text ? ngx_http_weir_text_most(conf) : size_most(conf);
    ngx_buf_t *body = ngx_create_temp_buf(r->pool, size);
    if (!body)
        return NULL;
    struct weir__buffer buffer = weir__buffer_over((char *)body->pos, size);
    if (text)
        ngx_http_weir_put_text(&buffer, conf);
    else
        put_all(&buffer, conf);
    if (buffer.cut)
        return NULL;
    body->last = body->pos + buffer.len;
    body->last_buf = r == r->main;
    body->last_in_chain = 1;
    return body;
}

static ngx_int_t add_no_store(ngx_http_request_t *r)
{
    ngx_table_elt_t *field = ngx_list_push(&r->headers_out.headers);
    if (!field)
        return NGX_ERROR;
    ngx_memzero(field, sizeof *field);
    field->hash = 1;
    ngx_str_set(&field->key, "Cache-Control");
    ngx_str_set(&field->value, "no-store");
    return NGX_OK;
}

static ngx_int_t answer(ngx_http_request_t *r)
{
    const ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    ngx_buf_t *body = make_body(r, conf->info_text);
    if (!body || add_no_store(r) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = body->last - body->pos;
    if (conf->info_text) {
        ngx_str_set(&r->headers_out.content_type, "text/plain; version=0.0.4; charset=utf-8");
    } else {
        ngx_str_set(&r->headers_out.content_type, "application/json");
    }
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    ngx_chain_t out = {.buf = body};
    return ngx_http_output_filter(r, &out);
}

char *ngx_http_weir_info(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_weir_loc_conf_t *conf = data;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    core->handler = answer;
    conf->info_text = cf->args->nelts == 2 && !ngx_strcmp(words[1].data, "prometheus");
    if (cf->args->nelts == 1 || conf->info_text || !ngx_strcmp(words[1].data, "json"))
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "weir_info: unknown format \"%V\"; there are json, prometheus", &words[1]);
    return NGX_CONF_ERROR;
}
