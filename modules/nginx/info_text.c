/* weir_info prometheus: what weir_info tells, in Prometheus's text format. Of stores each worker only knows
 * its own part: these have a label for it. */
#include "ngx_http_weir.h"

#define LINE_MOST 256  /* of one sample without its label's text */
#define LINES_ZONE 24  /* samples of a zone, at most */
#define LINES_STORE 12 /* and of a store */
#define HEADS_MOST 4096

size_t ngx_http_weir_text_most(const ngx_http_weir_main_conf_t *conf)
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

static void text_head(struct weir__buffer *to, const char *name, const char *type, const char *help)
{
    weir__put_format(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void text_label(struct weir__buffer *to, const char *name, const ngx_str_t *value)
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

/* ---- zones ---- */

static void text_requests(struct weir__buffer *to, const ngx_http_weir_zone_t *zone)
{
    static const char *const kinds[] = {"limit", "conn"};
    static const char *const outcomes[] = {"passed", "delayed", "rejected", "dry_run"};
    for (int kind = 0; kind < NGX_HTTP_WEIR_KINDS; kind++) {
        for (int outcome = 0; outcome < NGX_HTTP_WEIR_OUTCOMES; outcome++) {
            if (kind == NGX_HTTP_WEIR_OF_CONN && outcome == NGX_HTTP_WEIR_DID_DELAY)
                continue; /* slots do not delay */
            weir__put_text(to, "nginx_weir_requests_total{");
            text_label(to, "zone", &zone->name);
            weir__put_format(to, ",by=\"%s\",outcome=\"%s\"} %llu\n", kinds[kind],
                             outcomes[outcome],
                             (unsigned long long)ngx_http_weir_counted(zone, kind, outcome));
        }
    }
}

static void text_zone_sample(struct weir__buffer *to, const char *name,
                             const ngx_http_weir_zone_t *zone, const char *more, uint64_t value)
{
    weir__put_format(to, "%s{", name);
    text_label(to, "zone", &zone->name);
    weir__put_format(to, "%s} %llu\n", more, (unsigned long long)value);
}

static const struct {
    const char *name, *type, *help, *more;
    size_t offset;
} zone_samples[] = {
    {"nginx_weir_zone_keys", "gauge", "States in the zone.", "", offsetof(weir_zone_info, keys)},
    {"nginx_weir_zone_capacity", "gauge", "Places for states.", "",
     offsetof(weir_zone_info, capacity)},
    {"nginx_weir_zone_limits", "gauge", "Different limits in use.", "",
     offsetof(weir_zone_info, limits)},
    {"nginx_weir_zone_large_bytes", "gauge", "The share for logs, windows and leases.", "",
     offsetof(weir_zone_info, large_bytes)},
    {"nginx_weir_zone_large_used_bytes", "gauge", "What of it is used.", "",
     offsetof(weir_zone_info, large_used)},
    {"nginx_weir_zone_evicted_total", "counter", "States forgotten for want of room.",
     ",kind=\"fresh\"", offsetof(weir_zone_info, evicted_fresh)},
    {"nginx_weir_zone_evicted_total", NULL, NULL, ",kind=\"unused\"",
     offsetof(weir_zone_info, evicted_unused)},
    {"nginx_weir_zone_evicted_total", NULL, NULL, ",kind=\"soonest\"",
     offsetof(weir_zone_info, evicted_soonest)},
    {"nginx_weir_zone_repairs_total", "counter", "Repairs after workers that died.", "",
     offsetof(weir_zone_info, repairs)},
};

static uint64_t text_number(const weir_zone_info *info, size_t offset)
{
    uint64_t number;
    memcpy(&number, (const char *)info + offset, sizeof number);
    return number;
}

static void text_zones(struct weir__buffer *to, const ngx_http_weir_main_conf_t *conf)
{
    ngx_http_weir_zone_t *const *zones = conf->zones.elts;
    weir_zone_info info;
    text_head(to, "nginx_weir_requests_total", "counter",
              "Requests by what became of them, by limits and by slots.");
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++)
        text_requests(to, zones[i]);
    for (size_t k = 0; k < WEIR__COUNT(zone_samples); k++) {
        if (zone_samples[k].type)
            text_head(to, zone_samples[k].name, zone_samples[k].type, zone_samples[k].help);
        for (ngx_uint_t i = 0; i < conf->zones.nelts; i++) {
            if (weir_store_info(zones[i]->store, &info) == 0)
                text_zone_sample(to, zone_samples[k].name, zones[i], zone_samples[k].more,
                                 text_number(&info, zone_samples[k].offset));
        }
    }
}

/* ---- stores ---- */

static void text_stores(struct weir__buffer *to, const ngx_http_weir_main_conf_t *conf)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset;
    } samples[] = {
        {"nginx_weir_store_asked_total", "counter", "Questions.",
         offsetof(ngx_http_weir_fleet_info_t, asked)},
        {"nginx_weir_store_answered_total", "counter", "Questions that Redis answered.",
         offsetof(ngx_http_weir_fleet_info_t, answered)},
        {"nginx_weir_store_unreachable_total", "counter", "Questions that Redis did not answer.",
         offsetof(ngx_http_weir_fleet_info_t, unreachable)},
        {"nginx_weir_store_cached_denials_total", "counter", "Answered from the denial cache.",
         offsetof(ngx_http_weir_fleet_info_t, cached_denials)},
        {"nginx_weir_store_queue", "gauge", "Questions under way.",
         offsetof(ngx_http_weir_fleet_info_t, queue)},
        {"nginx_weir_store_owed", "gauge", "To be given back when Redis is there again.",
         offsetof(ngx_http_weir_fleet_info_t, owed)},
        {"nginx_weir_store_up", "gauge", "Whether Redis can be reached.", SIZE_MAX},
    };
    ngx_http_weir_store_t *const *stores = conf->stores.elts;
    for (size_t k = 0; k < WEIR__COUNT(samples) && conf->stores.nelts > 0; k++) {
        text_head(to, samples[k].name, samples[k].type, samples[k].help);
        for (ngx_uint_t i = 0; i < conf->stores.nelts; i++) {
            ngx_http_weir_fleet_info_t info;
            uint64_t number;
            ngx_http_weir_fleet_info(stores[i], &info);
            number = info.up ? 1 : 0;
            if (samples[k].offset != SIZE_MAX)
                memcpy(&number, (const char *)&info + samples[k].offset, sizeof number);
            weir__put_format(to, "%s{", samples[k].name);
            text_label(to, "store", &stores[i]->text);
            weir__put_format(to, ",worker=\"%llu\"} %llu\n", (unsigned long long)ngx_worker,
                             (unsigned long long)number);
        }
    }
}

void ngx_http_weir_put_text(struct weir__buffer *to, const ngx_http_weir_main_conf_t *conf)
{
    text_zones(to, conf);
    text_stores(to, conf);
}
