/* weir_zone: a zone in memory that nginx shares between its workers and keeps over reloads. */
#include "ngx_http_weir.h"

#define SIZE_MIN ((ssize_t)80 * 1024) /* the smallest zone, and nginx's own part of the memory */
#define LARGE_PERCENT 12
#define LARGE_MAX 90

/* nginx keeps its page table in the same memory: about that much is left. */
static size_t usable(size_t size)
{
    return (size - size / 128 - 2 * ngx_pagesize) / ngx_pagesize * ngx_pagesize;
}

static void close_zone(void *data)
{
    ngx_http_weir_zone_t *zone = data;
    weir_store_close(zone->store);
    zone->store = NULL;
}

ngx_http_weir_zone_t *ngx_http_weir_zone_named(ngx_conf_t *cf, const ngx_str_t *name)
{
    ngx_http_weir_main_conf_t *conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_zone_t **zones = conf->zones.elts;
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++) {
        if (zones[i]->name.len == name->len &&
            !ngx_memcmp(zones[i]->name.data, name->data, name->len))
            return zones[i];
    }
    ngx_http_weir_zone_t *zone = ngx_pcalloc(cf->pool, sizeof *zone);
    ngx_http_weir_zone_t **place = ngx_array_push(&conf->zones);
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (!zone || !place || !cleanup)
        return NULL;
    cleanup->handler = close_zone;
    cleanup->data = zone;
    zone->name = *name;
    zone->place = ngx_http_weir_place(cf);
    *place = zone;
    return zone;
}

/* ---- the memory ---- */

/* All of nginx's pool but its own part, as one piece; where it was made before, the same again. */
static u_char *piece_of(ngx_slab_pool_t *pool, size_t *ret_size)
{
    if (!pool->data)
        pool->data = ngx_slab_alloc(pool, pool->pfree * ngx_pagesize);
    *ret_size =
        pool->data ? (size_t)(pool->end - (u_char *)pool->data) / ngx_pagesize * ngx_pagesize : 0;
    return pool->data;
}

static ngx_int_t init_zone(ngx_shm_zone_t *shm, void *old)
{
    ngx_http_weir_zone_t *zone = shm->data;
    ngx_slab_pool_t *pool = (ngx_slab_pool_t *)shm->shm.addr;
    weir_error err = {0};
    size_t size;
    if (!old && !shm->shm.exists)
        pool->data = NULL;
    shm->noreuse = 0; /* it was for this time: the next reload is to take it over */
    u_char *base = piece_of(pool, &size);
    if (!base || weir__zone_store_over(base, size, zone->large_percent, &zone->store, &err)) {
        ngx_log_error(NGX_LOG_EMERG, shm->shm.log, 0, "weir_zone \"%V\": %s in %V:%ui", &zone->name,
                      base ? err.message : "no memory for it", &zone->place.file, zone->place.line);
        return NGX_ERROR;
    }
    return NGX_OK;
}

/* ---- the directive ---- */

static char *read_large(ngx_conf_t *cf, ngx_http_weir_zone_t *zone, const ngx_str_t *text)
{
    size_t digits = text->len > 7 && text->data[text->len - 1] == '%' ? text->len - 7 : 0;
    ngx_int_t percent = digits && !ngx_strncmp(text->data, "large=", 6)
                            ? ngx_atoi(text->data + 6, digits)
                            : NGX_ERROR;
    if (percent < 0 || percent > LARGE_MAX) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "weir_zone: \"%V\" must be a share for logs, windows and leases of 0%% to "
            "%d%%, like large=25%%",
            text, LARGE_MAX);
        return NGX_CONF_ERROR;
    }
    zone->large_percent = (unsigned)percent;
    return NGX_CONF_OK;
}

static char *read_size(ngx_conf_t *cf, ngx_http_weir_zone_t *zone, ngx_str_t *text)
{
    ssize_t size = ngx_parse_size(text);
    if (size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "weir_zone: \"%V\" is not a size; write it like 10m or 512k", text);
        return NGX_CONF_ERROR;
    }
    if (size < SIZE_MIN) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "weir_zone: zone \"%V\" is too small with %V; it needs at least %dk",
                           &zone->name, text, (int)(SIZE_MIN / 1024));
        return NGX_CONF_ERROR;
    }
    zone->size = (size_t)size;
    return NGX_CONF_OK;
}

/* The zone of that name in the nginx that runs; NULL: it has none. */
static const ngx_http_weir_zone_t *running(ngx_conf_t *cf, const ngx_str_t *name)
{
    const ngx_list_part_t *part = &cf->cycle->old_cycle->shared_memory.part;
    for (; part; part = part->next) {
        const ngx_shm_zone_t *zones = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (zones[i].tag == &ngx_http_weir_module && zones[i].shm.name.len == name->len &&
                !ngx_memcmp(zones[i].shm.name.data, name->data, name->len))
                return zones[i].data;
        }
    }
    return NULL;
}

/* Memory laid out in another way is not taken over. (Where only large= changes, nginx takes the old memory
 * for still in use, and keeps it until it ends.) */
static void compare(ngx_conf_t *cf, const ngx_http_weir_zone_t *zone)
{
    const ngx_http_weir_zone_t *old = running(cf, &zone->name);
    if (!old || (old->size == zone->size && old->large_percent == zone->large_percent))
        return;
    zone->shm->noreuse = 1;
    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "weir_zone: zone \"%V\" has another size or another large= than before: it "
                       "starts afresh",
                       &zone->name);
}

static char *declare(ngx_conf_t *cf, ngx_http_weir_zone_t *zone)
{
    if (!weir__zone_plan(usable(zone->size), zone->large_percent, &zone->layout)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "weir_zone: a zone of %uz bytes cannot be made",
                           zone->size);
        return NGX_CONF_ERROR;
    }
    zone->shm = ngx_shared_memory_add(cf, &zone->name, zone->size, &ngx_http_weir_module);
    if (!zone->shm)
        return NGX_CONF_ERROR;
    zone->shm->init = init_zone;
    zone->shm->data = zone;
    zone->place = ngx_http_weir_place(cf);
    compare(cf, zone);
    return ngx_http_weir_counts_declare(cf, zone) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

char *ngx_http_weir_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t *words = cf->args->elts;
    ngx_http_weir_zone_t *zone = ngx_http_weir_zone_named(cf, &words[1]);
    (void)cmd;
    (void)conf;
    if (!zone)
        return NGX_CONF_ERROR;
    if (zone->size) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "weir_zone: zone \"%V\" is already declared in %V:%ui, with %uzk; declare it "
            "once",
            &zone->name, &zone->place.file, zone->place.line, zone->size / 1024);
        return NGX_CONF_ERROR;
    }
    zone->large_percent = LARGE_PERCENT;
    if (read_size(cf, zone, &words[2]) != NGX_CONF_OK ||
        (cf->args->nelts == 4 && read_large(cf, zone, &words[3]) != NGX_CONF_OK))
        return NGX_CONF_ERROR;
    return declare(cf, zone);
}

ngx_int_t ngx_http_weir_zones_check(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t *conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_zone_t **zones = conf->zones.elts;
    for (ngx_uint_t i = 0; i < conf->zones.nelts; i++) {
        if (zones[i]->size)
            continue;
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "there is no zone \"%V\"; declare it in the http block: weir_zone %V 10m; in "
                      "%V:%ui",
                      &zones[i]->name, &zones[i]->name, &zones[i]->place.file,
                      zones[i]->place.line);
        return NGX_ERROR;
    }
    return NGX_OK;
}
