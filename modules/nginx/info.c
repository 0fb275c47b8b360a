/*
 * weir_info: what the zones and stores of this nginx hold and do, as JSON or in Prometheus's text
 * format. Of a store each worker knows its own part only; Prometheus gets a label for that. Slices
 * are of all workers.
 */
#include "ngx_http_weir.h"

#include "wire/json.h"

/* ---- the numbers ---- */

/* A number, by its name in JSON and as a metric. */
struct info_number {
    const char *name;          /* NULL: JSON says it in another way */
    const char *metric, *more; /* and a further label */
    const char *type, *help;   /* NULL: of the same metric as the one before */
    size_t offset;
};

#define OF_ZONE(field) offsetof(weir_zone_info, field)
static const struct info_number info_zone_numbers[] = {
    {"keys", "nginx_weir_zone_keys", "", "gauge", "States in the zone.", OF_ZONE(keys)},
    {"capacity", "nginx_weir_zone_capacity", "", "gauge", "Places for states.", OF_ZONE(capacity)},
    {"limits", "nginx_weir_zone_limits", "", "gauge", "Different limits in use.", OF_ZONE(limits)},
    {"large_bytes", "nginx_weir_zone_large_bytes", "", "gauge",
     "The share for logs, windows and leases.", OF_ZONE(large_bytes)},
    {"large_used", "nginx_weir_zone_large_used_bytes", "", "gauge", "The used part of it.",
     OF_ZONE(large_used)},
    {"evicted_fresh", "nginx_weir_zone_evicted_total", ",kind=\"fresh\"", "counter",
     "States forgotten because there was no room.", OF_ZONE(evicted_fresh)},
    {"evicted_unused", "nginx_weir_zone_evicted_total", ",kind=\"unused\"", NULL, NULL,
     OF_ZONE(evicted_unused)},
    {"evicted_soonest", "nginx_weir_zone_evicted_total", ",kind=\"soonest\"", NULL, NULL,
     OF_ZONE(evicted_soonest)},
    {"refused", "nginx_weir_zone_refused_total", "", "counter",
     "Requests refused because there was no room for their state.", OF_ZONE(refused)},
    {"repairs", "nginx_weir_zone_repairs_total", "", "counter", "Repairs after workers that died.",
     OF_ZONE(repairs)},
};

#define OF_STORE(field) offsetof(ngx_http_weir_fleet_info_t, field)
static const struct info_number info_store_numbers[] = {
    {"asked", "nginx_weir_store_asked_total", "", "counter", "Queries.", OF_STORE(asked)},
    {"answered", "nginx_weir_store_answered_total", "", "counter", "Queries that Redis answered.",
     OF_STORE(answered)},
    {"unreachable", "nginx_weir_store_unreachable_total", "", "counter",
     "Queries that Redis did not answer.", OF_STORE(unreachable)},
    {"cached_denials", "nginx_weir_store_cached_denials_total", "", "counter",
     "Answered from the denial cache.", OF_STORE(cached_denials)},
    {"queue", "nginx_weir_store_queue", "", "gauge", "Queries in progress.", OF_STORE(queue)},
    {"owed", "nginx_weir_store_owed", "", "gauge", "To be given back when Redis is back.",
     OF_STORE(owed)},
    {NULL, "nginx_weir_store_up", "", "gauge", "Whether a server of Redis can be reached.",
     OF_STORE(up)},
    {NULL, "nginx_weir_store_servers", ",state=\"reached\"", "gauge",
     "Servers that own keys of the store.", OF_STORE(reached)},
    {NULL, "nginx_weir_store_servers", ",state=\"away\"", NULL, NULL, OF_STORE(away)},
};

#define OF_POOLS(field) offsetof(ngx_http_weir_pools_info_t, field)
#define POOL_COUNT(name) OF_POOLS(counts[NGX_HTTP_WEIR_##name])
#define TROUBLE(name) OF_POOLS(troubles[WEIR__TROUBLE_##name])
#define METRIC_TROUBLE "nginx_weir_slices_trouble"
#define METRIC_UNITS "nginx_weir_slices_units_total"
#define METRIC_DECISIONS "nginx_weir_slices_decisions_total"
static const struct info_number info_slices_numbers[] = {
    {"slices", "nginx_weir_slices", "", "gauge", "Slices held by all workers.", OF_POOLS(slices)},
    {"units", "nginx_weir_slices_units", "", "gauge", "Units held in them.", OF_POOLS(units)},
    {"slices_taken", "nginx_weir_slices_total", ",what=\"taken\"", "counter",
     "Slices taken from Redis and given back.", POOL_COUNT(SLICES_TAKEN)},
    {"slices_returned", "nginx_weir_slices_total", ",what=\"returned\"", NULL, NULL,
     POOL_COUNT(SLICES_RETURNED)},
    {"units_taken", METRIC_UNITS, ",what=\"taken\"", "counter",
     "Units taken, given back, and neither spent nor given back.", POOL_COUNT(UNITS_TAKEN)},
    {"units_returned", METRIC_UNITS, ",what=\"returned\"", NULL, NULL, POOL_COUNT(UNITS_RETURNED)},
    {"units_lost", METRIC_UNITS, ",what=\"lost\"", NULL, NULL, POOL_COUNT(UNITS_LOST)},
    {"local", METRIC_DECISIONS, ",by=\"slice\"", "counter",
     "Decisions from a slice, by a denial that was known, and by Redis.", POOL_COUNT(LOCAL)},
    {"denied", METRIC_DECISIONS, ",by=\"denial\"", NULL, NULL, POOL_COUNT(DENIED)},
    {"central", METRIC_DECISIONS, ",by=\"redis\"", NULL, NULL, POOL_COUNT(CENTRAL)},
    {NULL, "nginx_weir_slices_slot", "", "gauge", "Whether it has a slot among the peers.",
     OF_POOLS(slot)},
    {NULL, METRIC_TROUBLE, ",reason=\"peers\"", "gauge", "1 if no slices are taken, by reason.",
     TROUBLE(PEERS)},
    {NULL, METRIC_TROUBLE, ",reason=\"unreachable\"", NULL, NULL, TROUBLE(UNREACHABLE)},
    {NULL, METRIC_TROUBLE, ",reason=\"refused\"", NULL, NULL, TROUBLE(REFUSED)},
    {NULL, METRIC_TROUBLE, ",reason=\"least\"", NULL, NULL, TROUBLE(LEAST)},
};

static uint64_t info_number(const void *info, size_t offset)
{
    uint64_t number;
    memcpy(&number, (const char *)info + offset, sizeof number);
    return number;
}

static double info_bytes_per_key(const weir_zone_info *info)
{
    return info->capacity ? (double)(info->size - info->large_bytes) / (double)info->capacity : 0;
}

/* ---- JSON ---- */

/* Room for one entry: every number at its longest, every byte of a text escaped as \u0000. */
#define NUMBERS_MOST 24
#define ENTRY_MOST (NUMBERS_MOST * (WEIR__DIGITS + 24) + 64)
#define TEXT_MOST(len) (6 * (len) + 16)

static size_t info_json_most(const ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_zone_t *const *zones = conf->zones.elts;
    ngx_http_weir_store_t *const *stores = conf->stores.elts;
    size_t size = ENTRY_MOST;
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++)
        size += ENTRY_MOST + TEXT_MOST(zones[i]->name.len);
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++)
        size += ENTRY_MOST + TEXT_MOST(stores[i]->text.len) + TEXT_MOST(WEIR__WHY_SIZE) +
                TEXT_MOST(WEIR__TROUBLE_MAX);
    return size;
}

static void info_put_zone(struct weir__json *json, const ngx_http_weir_zone_t *zone)
{
    weir_zone_info info;
    weir__json_open(json, NULL, '{');
    weir__json_put_text(json, "name", (const char *)zone->name.data, zone->name.len);
    if (weir_store_info(zone->store, &info) == 0) {
        weir__json_put_uint(json, "size", info.size);
        for (size_t i = 0; i < WEIR__COUNT(info_zone_numbers); i++) {
            weir__json_put_uint(json, info_zone_numbers[i].name,
                                info_number(&info, info_zone_numbers[i].offset));
            if (info_zone_numbers[i].offset == offsetof(weir_zone_info, capacity))
                weir__json_put_double(json, "bytes_per_key", info_bytes_per_key(&info));
        }
    }
    static const struct {
        const char *name;
        ngx_http_weir_kind_e kind;
        ngx_http_weir_outcome_e outcome;
    } counts[] = {
        {"passed", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_DID_PASS},
        {"delayed", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_DID_DELAY},
        {"rejected", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_DID_REJECT},
        {"closed", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_DID_CLOSE},
        {"dry_run", NGX_HTTP_WEIR_OF_LIMIT, NGX_HTTP_WEIR_WOULD_REJECT},
        {"conn_passed", NGX_HTTP_WEIR_OF_CONN, NGX_HTTP_WEIR_DID_PASS},
        {"conn_rejected", NGX_HTTP_WEIR_OF_CONN, NGX_HTTP_WEIR_DID_REJECT},
        {"conn_closed", NGX_HTTP_WEIR_OF_CONN, NGX_HTTP_WEIR_DID_CLOSE},
        {"conn_dry_run", NGX_HTTP_WEIR_OF_CONN, NGX_HTTP_WEIR_WOULD_REJECT},
    };
    for (size_t i = 0; i < WEIR__COUNT(counts); i++)
        weir__json_put_uint(json, counts[i].name,
                            ngx_http_weir_counted(zone, counts[i].kind, counts[i].outcome));
    weir__json_put_uint(json, "given_back", ngx_http_weir_given_back(zone));
    weir__json_close(json, '}');
}

static void info_put_slices(struct weir__json *json, const ngx_http_weir_store_t *store)
{
    ngx_http_weir_pools_info_t info;
    ngx_http_weir_pools_info(store, &info);
    weir__json_open(json, "slices", '{');
    weir__json_put_bool(json, "slot", info.slot);
    weir__json_put_string(json, "trouble", info.trouble[0] ? info.trouble : NULL);
    for (size_t i = 0; i < WEIR__COUNT(info_slices_numbers) && info_slices_numbers[i].name; i++)
        weir__json_put_uint(json, info_slices_numbers[i].name,
                            info_number(&info, info_slices_numbers[i].offset));
    weir__json_close(json, '}');
}

static const char *info_state(const ngx_http_weir_fleet_info_t *info)
{
    if (!info->up)
        return "down";
    if (info->refusing > 0 && info->refusing + info->away >= info->servers)
        return "refuses";
    return info->refusing + info->away > 0 ? "partly" : "up";
}

static void info_put_store(struct weir__json *json, const ngx_http_weir_store_t *store)
{
    ngx_http_weir_fleet_info_t info;
    ngx_http_weir_fleet_info(store, &info);
    weir__json_open(json, NULL, '{');
    weir__json_put_text(json, "url", (const char *)store->text.data, store->text.len);
    weir__json_put_string(json, "state", info_state(&info));
    weir__json_put_string(json, "why", info.why);
    weir__json_put_uint(json, "servers", info.servers);
    weir__json_put_uint(json, "away", info.away);
    for (size_t i = 0; i < WEIR__COUNT(info_store_numbers) && info_store_numbers[i].name; i++)
        weir__json_put_uint(json, info_store_numbers[i].name,
                            info_number(&info, info_store_numbers[i].offset));
    if (store->pools)
        info_put_slices(json, store);
    weir__json_close(json, '}');
}

static void info_put_json(struct weir__buffer *buffer, const ngx_http_weir_main_conf_t *conf)
{
    struct weir__json json = {.out = buffer};
    ngx_http_weir_zone_t *const *zones = conf->zones.elts;
    ngx_http_weir_store_t *const *stores = conf->stores.elts;
    weir__json_open(&json, NULL, '{');
    weir__json_open(&json, "zones", '[');
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++)
        info_put_zone(&json, zones[i]);
    weir__json_close(&json, ']');
    weir__json_open(&json, "stores", '[');
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++)
        info_put_store(&json, stores[i]);
    weir__json_close(&json, ']');
    weir__json_put_int(&json, "worker", ngx_pid);
    weir__json_close(&json, '}');
    weir__put_text(buffer, "\n");
}

/* ---- Prometheus: zones ---- */

#define LINE_MOST 256  /* of one sample without its label's text */
#define LINES_ZONE 24  /* samples of a zone, at most */
#define LINES_STORE 28 /* and of a store */
#define HEADS_MOST 6144
_Static_assert(WEIR__COUNT(info_store_numbers) + WEIR__COUNT(info_slices_numbers) <= LINES_STORE,
               "there is room for every sample of a store");

static size_t info_text_most(const ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_zone_t *const *zones = conf->zones.elts;
    ngx_http_weir_store_t *const *stores = conf->stores.elts;
    size_t size = HEADS_MOST;
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++)
        size += LINES_ZONE * (LINE_MOST + 2 * zones[i]->name.len);
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++)
        size += LINES_STORE * (LINE_MOST + 2 * stores[i]->text.len);
    return size;
}

/* `type` NULL: the metric has its head already. */
static void info_text_head(struct weir__buffer *to, const char *name, const char *type,
                           const char *help)
{
    if (type)
        weir__put_format(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void info_text_label(struct weir__buffer *to, const char *name, const ngx_str_t *value)
{
    weir__put_format(to, "%s=\"", name);
    for (size_t i = 0; i < value->len; i++) {
        char c = (char)value->data[i];
        if (c == '\n')
            weir__put(to, "\\n", 2);
        else if (c == '"' || c == '\\')
            weir__put_format(to, "\\%c", c);
        else
            weir__put(to, &c, 1);
    }
    weir__put_text(to, "\"");
}

static void info_text_requests(struct weir__buffer *to, const ngx_http_weir_zone_t *zone)
{
    static const char *const kinds[] = {"limit", "conn"};
    static const char *const outcomes[] = {"passed", "delayed", "rejected", "dry_run", "closed"};
    for (int kind = 0; kind < NGX_HTTP_WEIR_KINDS; kind++) {
        for (int outcome = 0; outcome < NGX_HTTP_WEIR_OUTCOMES; outcome++) {
            if (kind == NGX_HTTP_WEIR_OF_CONN && outcome == NGX_HTTP_WEIR_DID_DELAY)
                continue; /* slots do not delay */
            weir__put_text(to, "nginx_weir_requests_total{");
            info_text_label(to, "zone", &zone->name);
            weir__put_format(to, ",by=\"%s\",outcome=\"%s\"} %llu\n", kinds[kind],
                             outcomes[outcome],
                             (unsigned long long)ngx_http_weir_counted(zone, kind, outcome));
        }
    }
}

static void info_text_zones(struct weir__buffer *to, const ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_zone_t *const *zones = conf->zones.elts;
    weir_zone_info info;
    info_text_head(to, "nginx_weir_requests_total", "counter",
                   "Requests by result, of limits and of slots.");
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++)
        info_text_requests(to, zones[i]);
    info_text_head(to, "nginx_weir_given_back_total", "counter",
                   "Charges that were given back by the answer.");
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++) {
        weir__put_text(to, "nginx_weir_given_back_total{");
        info_text_label(to, "zone", &zones[i]->name);
        weir__put_format(to, "} %llu\n", (unsigned long long)ngx_http_weir_given_back(zones[i]));
    }
    for (size_t k = 0; k < WEIR__COUNT(info_zone_numbers); k++) {
        const struct info_number *it = &info_zone_numbers[k];
        info_text_head(to, it->metric, it->type, it->help);
        for (ngx_uint_t i = 0; i < conf->zones.nelts; i++) {
            if (weir_store_info(zones[i]->store, &info))
                continue;
            weir__put_format(to, "%s{", it->metric);
            info_text_label(to, "zone", &zones[i]->name);
            weir__put_format(to, "%s} %llu\n", it->more,
                             (unsigned long long)info_number(&info, it->offset));
        }
    }
}

/* ---- Prometheus: stores ---- */

static void info_text_stores(struct weir__buffer *to, const ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_store_t *const *stores = conf->stores.elts;
    for (size_t k = 0; k < WEIR__COUNT(info_store_numbers) && conf->stores.nelts > 0; k++) {
        const struct info_number *it = &info_store_numbers[k];
        info_text_head(to, it->metric, it->type, it->help);
        for (ngx_uint_t i = 0; i < conf->stores.nelts; i++) {
            ngx_http_weir_fleet_info_t info;
            ngx_http_weir_fleet_info(stores[i], &info);
            weir__put_format(to, "%s{", it->metric);
            info_text_label(to, "store", &stores[i]->text);
            weir__put_format(to, "%s,worker=\"%llu\"} %llu\n", it->more,
                             (unsigned long long)ngx_worker,
                             (unsigned long long)info_number(&info, it->offset));
        }
    }
}

static void info_text_slices(struct weir__buffer *to, const ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_store_t *const *stores = conf->stores.elts;
    bool any = false;
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++)
        any = any || stores[i]->pools;
    for (size_t k = 0; k < WEIR__COUNT(info_slices_numbers) && any; k++) {
        const struct info_number *it = &info_slices_numbers[k];
        info_text_head(to, it->metric, it->type, it->help);
        for (ngx_uint_t i = 0; i < conf->stores.nelts; i++) {
            ngx_http_weir_pools_info_t info;
            if (!stores[i]->pools)
                continue;
            ngx_http_weir_pools_info(stores[i], &info);
            weir__put_format(to, "%s{", it->metric);
            info_text_label(to, "store", &stores[i]->text);
            weir__put_format(to, "%s} %llu\n", it->more,
                             (unsigned long long)info_number(&info, it->offset));
        }
    }
}

static void info_put_text(struct weir__buffer *to, const ngx_http_weir_main_conf_t *conf)
{
    info_text_zones(to, conf);
    info_text_stores(to, conf);
    info_text_slices(to, conf);
}

/* ---- the answer ---- */

/* The answer's body; NULL: no memory. */
static ngx_buf_t *info_make_body(ngx_http_request_t *r, bool text)
{
    const ngx_http_weir_main_conf_t *conf = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    size_t size = text ? info_text_most(conf) : info_json_most(conf);
    ngx_buf_t *body = ngx_create_temp_buf(r->pool, size);
    if (!body)
        return NULL;
    struct weir__buffer buffer = weir__buffer_over((char *)body->pos, size);
    if (text)
        info_put_text(&buffer, conf);
    else
        info_put_json(&buffer, conf);
    if (buffer.cut)
        return NULL;
    body->last = body->pos + buffer.len;
    return body;
}

static ngx_int_t info_add_no_store(ngx_http_request_t *r)
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

ngx_int_t ngx_http_weir_send(ngx_http_request_t *r, ngx_uint_t status, const ngx_str_t *type,
                             ngx_buf_t *body)
{
    if (info_add_no_store(r) != NGX_OK)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    body->last_buf = r == r->main;
    body->last_in_chain = 1;
    r->headers_out.status = status;
    r->headers_out.content_length_n = body->last - body->pos;
    r->headers_out.content_type = *type;
    r->headers_out.content_type_len = type->len;
    r->headers_out.content_type_lowcase = NULL;
    ngx_int_t rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only)
        return rc;
    ngx_chain_t out = {.buf = body};
    return ngx_http_output_filter(r, &out);
}

static ngx_int_t info_answer(ngx_http_request_t *r)
{
    static const ngx_str_t json = ngx_string("application/json");
    static const ngx_str_t text = ngx_string("text/plain; version=0.0.4; charset=utf-8");
    const ngx_http_weir_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)))
        return NGX_HTTP_NOT_ALLOWED;
    ngx_int_t rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK)
        return rc;
    ngx_buf_t *body = info_make_body(r, conf->info_text);
    if (!body)
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    return ngx_http_weir_send(r, NGX_HTTP_OK, conf->info_text ? &text : &json, body);
}

char *ngx_http_weir_info(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_weir_loc_conf_t *conf = data;
    ngx_str_t *words = cf->args->elts;
    (void)cmd;
    core->handler = info_answer;
    conf->info_text = cf->args->nelts == 2 && !ngx_strcmp(words[1].data, "prometheus");
    if (cf->args->nelts == 1 || conf->info_text || !ngx_strcmp(words[1].data, "json"))
        return NGX_CONF_OK;
    return ngx_http_weir_conf_fail(
        cf, "weir_info: unknown format \"%V\": expected json or prometheus", &words[1]);
}
