/*
 * How many requests passed, were delayed and were rejected, for each zone, and how many charges
 * were given back by the answer: counted by all workers, kept over reloads and over changes of the
 * zone's size.
 *
 * A worker counts in a line of its own, so that workers do not wait for each other. While one takes
 * over from another, both may use the same line: so it is counted atomically.
 */
#include "ngx_http_weir.h"

#define LINES 64

struct counts_line {
    ngx_atomic_t counts[NGX_HTTP_WEIR_KINDS][NGX_HTTP_WEIR_OUTCOMES];
    ngx_atomic_t given_back;
} __attribute__((aligned(64))); /* workers share no cache line */

struct ngx_http_weir_counts_s {
    struct counts_line lines[LINES];
};

/* ---- the memory ---- */

static ngx_int_t counts_init(ngx_shm_zone_t *shm, void *old)
{
    ngx_http_weir_zone_t *zone = shm->data;
    ngx_slab_pool_t *pool = (ngx_slab_pool_t *)shm->shm.addr;
    if (!old && !shm->shm.exists)
        pool->data = ngx_slab_calloc(pool, sizeof(struct ngx_http_weir_counts_s));
    zone->counts = pool->data;
    return zone->counts ? NGX_OK : NGX_ERROR;
}

ngx_int_t ngx_http_weir_counts_declare(ngx_conf_t *cf, ngx_http_weir_zone_t *zone)
{
    static char tag;
    static const char start[] = "weir counts of ";
    ngx_str_t name = {sizeof start - 1 + zone->name.len, NULL};
    name.data = ngx_pnalloc(cf->pool, name.len);
    if (!name.data)
        return NGX_ERROR;
    ngx_memcpy(ngx_cpymem(name.data, start, sizeof start - 1), zone->name.data, zone->name.len);
    ngx_shm_zone_t *shm = ngx_shared_memory_add(cf, &name, 8 * ngx_pagesize, &tag);
    if (!shm)
        return NGX_ERROR;
    shm->init = counts_init;
    shm->data = zone;
    return NGX_OK;
}

/* ---- counting ---- */

static void counts_add(const ngx_http_weir_zone_t *zone, ngx_http_weir_kind_e kind,
                       ngx_http_weir_outcome_e outcome)
{
    struct counts_line *line = &zone->counts->lines[ngx_worker % LINES];
    (void)ngx_atomic_fetch_add(&line->counts[kind][outcome], 1);
}

/* Whether a limit of the zone makes the request wait. */
static bool counts_delays(const ngx_http_weir_plan_t *plan, const ngx_http_weir_zone_t *zone)
{
    if (plan->failed || plan->folded.delay_us == 0)
        return false;
    for (ngx_uint_t i = 0; i < plan->limits; i++) {
        const ngx_http_weir_limit_t *conf;
        ngx_http_weir_rule(plan, i, &conf);
        if (conf->zone == zone && plan->rows[i].delay_us > 0)
            return true;
    }
    return false;
}

void ngx_http_weir_count(const ngx_http_weir_plan_t *plan, bool dry_run)
{
    ngx_http_weir_kind_e kind =
        plan->verb == WEIR__VERB_ACQUIRE ? NGX_HTTP_WEIR_OF_CONN : NGX_HTTP_WEIR_OF_LIMIT;
    const ngx_http_weir_limit_t *binding = plan->confs[0];
    if (!plan->failed)
        ngx_http_weir_rule(plan, plan->folded.binding, &binding);
    if (dry_run || !plan->folded.allowed) {
        counts_add(binding->zone, kind,
                   dry_run        ? NGX_HTTP_WEIR_WOULD_REJECT
                   : plan->closed ? NGX_HTTP_WEIR_DID_CLOSE
                                  : NGX_HTTP_WEIR_DID_REJECT);
        return;
    }
    for (ngx_uint_t i = 0; i < plan->count; i++) {
        const ngx_http_weir_zone_t *zone = plan->confs[i]->zone;
        ngx_uint_t first = 0;
        while (plan->confs[first]->zone != zone)
            first++;
        if (first < i) /* this zone was counted already */
            continue;
        counts_add(zone, kind,
                   counts_delays(plan, zone) ? NGX_HTTP_WEIR_DID_DELAY : NGX_HTTP_WEIR_DID_PASS);
    }
}

void ngx_http_weir_count_given_back(const ngx_http_weir_zone_t *zone)
{
    (void)ngx_atomic_fetch_add(&zone->counts->lines[ngx_worker % LINES].given_back, 1);
}

uint64_t ngx_http_weir_given_back(const ngx_http_weir_zone_t *zone)
{
    uint64_t sum = 0;
    for (size_t i = 0; zone->counts && i < LINES; i++)
        sum += zone->counts->lines[i].given_back;
    return sum;
}

uint64_t ngx_http_weir_counted(const ngx_http_weir_zone_t *zone, ngx_http_weir_kind_e kind,
                               ngx_http_weir_outcome_e outcome)
{
    uint64_t sum = 0;
    for (size_t i = 0; zone->counts && i < LINES; i++)
        sum += zone->counts->lines[i].counts[kind][outcome];
    return sum;
}
