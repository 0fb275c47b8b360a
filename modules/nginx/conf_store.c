/*
 * weir_zone NAME SIZE [large=N%] [full=deny]; weir_store URL [deadline=50ms]
 * [fail=open|closed|local] [peers=N] [denial_cache=500ms]; weir_store off: where states are kept.
 * A store that slices remembers denials, too, unless denial_cache=off.
 *
 * A zone is memory that nginx shares between its workers and keeps over reloads. The address of a
 * store is the library's, with its own options; those of the directive may not be there, too.
 * Stores that are written alike are one, with one connection per worker, wherever in the
 * configuration they are. What holds: no password ever gets into a message.
 */
#include "ngx_http_weir.h"

/* ---- weir_zone ---- */

#define SIZE_MIN ((ssize_t)80 * 1024) /* the smallest zone, and nginx's own part of the memory */
#define LARGE_PERCENT 12
#define LARGE_MAX 90

/* nginx keeps its page table in the same memory: about this much is left. */
static size_t zone_usable_size(size_t size)
{
    return (size - size / 128 - 2 * ngx_pagesize) / ngx_pagesize * ngx_pagesize;
}

static void zone_close(void *data)
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
        if (ngx_http_weir_same(&zones[i]->name, name))
            return zones[i];
    }
    ngx_http_weir_zone_t *zone = ngx_pcalloc(cf->pool, sizeof *zone);
    ngx_http_weir_zone_t **place = ngx_array_push(&conf->zones);
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (!zone || !place || !cleanup)
        return NULL;
    cleanup->handler = zone_close;
    cleanup->data = zone;
    zone->name = *name;
    zone->place = ngx_http_weir_place(cf);
    *place = zone;
    return zone;
}

/* ---- its memory ---- */

/* All of nginx's pool except its own part, as one piece; the same one if it was made before. */
static u_char *zone_memory(ngx_slab_pool_t *pool, size_t *ret_size)
{
    if (!pool->data)
        pool->data = ngx_slab_alloc(pool, pool->pfree * ngx_pagesize);
    *ret_size =
        pool->data ? (size_t)(pool->end - (u_char *)pool->data) / ngx_pagesize * ngx_pagesize : 0;
    return pool->data;
}

static ngx_int_t zone_init(ngx_shm_zone_t *shm, void *old)
{
    ngx_http_weir_zone_t *zone = shm->data;
    ngx_slab_pool_t *pool = (ngx_slab_pool_t *)shm->shm.addr;
    weir_error err = {0};
    size_t size;
    if (!old && !shm->shm.exists)
        pool->data = NULL;
    shm->noreuse = 0; /* that was for this time: the next reload takes the memory over */
    u_char *base = zone_memory(pool, &size);
    if (!base ||
        weir__zone_store_over(base, size, zone->large_percent, zone->keeps, &zone->store, &err)) {
        ngx_log_error(NGX_LOG_EMERG, shm->shm.log, 0, "weir_zone \"%V\": %s in %V:%ui", &zone->name,
                      base ? err.message : "no memory for it", &zone->place.file, zone->place.line);
        return NGX_ERROR;
    }
    weir__store_deny_full(zone->store); /* who is not counted does not pass */
    return NGX_OK;
}

/* ---- its directive ---- */

static char *zone_read_large(ngx_conf_t *cf, ngx_http_weir_zone_t *zone, const ngx_str_t *text)
{
    size_t digits = text->len > 7 && text->data[text->len - 1] == '%' ? text->len - 7 : 0;
    ngx_int_t percent = digits && !ngx_strncmp(text->data, "large=", 6)
                            ? ngx_atoi(text->data + 6, digits)
                            : NGX_ERROR;
    if (percent < 0 || percent > LARGE_MAX)
        return ngx_http_weir_conf_fail(
            cf,
            "weir_zone: invalid option \"%V\": expected full=deny, or a share for "
            "logs, windows and leases of 0%% to "
            "%d%%, like large=25%%",
            text, LARGE_MAX);
    zone->large_percent = (unsigned)percent;
    return NGX_CONF_OK;
}

/* large= and full=, each once at most. */
static char *zone_read_options(ngx_conf_t *cf, ngx_http_weir_zone_t *zone)
{
    const ngx_str_t *words = cf->args->elts;
    bool large = false, full = false;
    for (ngx_uint_t i = 3; i < cf->args->nelts; i++) {
        bool is_full = words[i].len >= 5 && !ngx_strncmp(words[i].data, "full=", 5);
        bool denies = ngx_http_weir_is(&words[i], "full=deny");
        bool evicts = ngx_http_weir_is(&words[i], "full=evict");
        if (is_full && !denies && !evicts)
            return ngx_http_weir_conf_fail(
                cf, "weir_zone: invalid option \"%V\": expected full=deny or full=evict",
                &words[i]);
        if (!is_full && zone_read_large(cf, zone, &words[i]) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
        if (is_full ? full : large)
            return ngx_http_weir_conf_fail(cf, "weir_zone: \"%V\" is given twice", &words[i]);
        full = full || is_full;
        large = large || !is_full;
        zone->keeps = zone->keeps || denies;
    }
    return NGX_CONF_OK;
}

static char *zone_read_size(ngx_conf_t *cf, ngx_http_weir_zone_t *zone, ngx_str_t *text)
{
    ssize_t size = ngx_parse_size(text);
    if (size == NGX_ERROR)
        return ngx_http_weir_conf_fail(
            cf, "weir_zone: invalid size \"%V\": expected one like 10m or 512k", text);
    if (size < SIZE_MIN)
        return ngx_http_weir_conf_fail(
            cf, "weir_zone: zone \"%V\" is too small with %V; it needs at least %dk", &zone->name,
            text, (int)(SIZE_MIN / 1024));
    zone->size = (size_t)size;
    return NGX_CONF_OK;
}

/* The zone of that name in the running nginx; NULL: there is none. */
static const ngx_http_weir_zone_t *zone_running(ngx_conf_t *cf, const ngx_str_t *name)
{
    const ngx_list_part_t *part = &cf->cycle->old_cycle->shared_memory.part;
    for (; part; part = part->next) {
        const ngx_shm_zone_t *zones = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (zones[i].tag == &ngx_http_weir_module &&
                ngx_http_weir_same(&zones[i].shm.name, name))
                return zones[i].data;
        }
    }
    return NULL;
}

/* Memory with another layout is not taken over. (If only large= changes, nginx thinks that the old
 * memory is still in use, and keeps it until nginx ends.) */
static void zone_compare(ngx_conf_t *cf, const ngx_http_weir_zone_t *zone)
{
    const ngx_http_weir_zone_t *old = zone_running(cf, &zone->name);
    if (!old || (old->size == zone->size && old->large_percent == zone->large_percent))
        return;
    zone->shm->noreuse = 1;
    ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                       "weir_zone: zone \"%V\" has another size or another large= than before: its "
                       "states start again from fresh",
                       &zone->name);
}

static char *zone_declare(ngx_conf_t *cf, ngx_http_weir_zone_t *zone)
{
    if (!weir__zone_plan(zone_usable_size(zone->size), zone->large_percent, &zone->layout))
        return ngx_http_weir_conf_fail(cf, "weir_zone: a zone of %uz bytes cannot be made",
                                       zone->size);
    zone->shm = ngx_shared_memory_add(cf, &zone->name, zone->size, &ngx_http_weir_module);
    if (!zone->shm)
        return NGX_CONF_ERROR;
    zone->shm->init = zone_init;
    zone->shm->data = zone;
    zone->place = ngx_http_weir_place(cf);
    zone_compare(cf, zone);
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
    if (zone->size)
        return ngx_http_weir_conf_fail(
            cf,
            "weir_zone: zone \"%V\" is already declared in %V:%ui, with %uzk; declare it "
            "once",
            &zone->name, &zone->place.file, zone->place.line, zone->size / 1024);
    zone->large_percent = LARGE_PERCENT;
    if (zone_read_size(cf, zone, &words[2]) != NGX_CONF_OK ||
        zone_read_options(cf, zone) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    return zone_declare(cf, zone);
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

/* ---- weir_store: options ---- */

#define URL_TEXT_MAX 8192 /* of an address without its password */
#define PEERS_MAX 1000000
#define DEADLINE_MAX_US 10000000 /* nobody needs a request that waits for longer */
#define DENIAL_CACHE_MAX_US 1000000

static char *store_read_deadline(ngx_conf_t *cf, const ngx_str_t *word, ngx_str_t *value,
                                 void *data)
{
    ngx_http_weir_store_t *store = data;
    if (ngx_http_weir_duration(value, &store->url.deadline_us) != NGX_OK ||
        store->url.deadline_us > DEADLINE_MAX_US)
        return ngx_http_weir_word_fail(cf, word,
                                       "expected a duration up to 10s, like deadline=50ms");
    return NGX_CONF_OK;
}

static char *store_read_fail(ngx_conf_t *cf, const ngx_str_t *word, ngx_str_t *value, void *data)
{
    ngx_http_weir_store_t *store = data;
    for (int i = 0; weir__redis_fail_names[i]; i++) {
        if (ngx_http_weir_is(value, weir__redis_fail_names[i])) {
            store->url.fail = (enum weir__redis_fail)i;
            return NGX_CONF_OK;
        }
    }
    return ngx_http_weir_word_fail(
        cf, word,
        "expected local (the zone decides while Redis does not), open (everything passes) or "
        "closed (everything is rejected)");
}

static char *store_read_peers(ngx_conf_t *cf, const ngx_str_t *word, ngx_str_t *value, void *data)
{
    ngx_http_weir_store_t *store = data;
    ngx_int_t peers = ngx_atoi(value->data, value->len);
    if (peers < 1 || peers > PEERS_MAX)
        return ngx_http_weir_word_fail(
            cf, word, "expected how many nginx share the limits, from 1 to 1000000");
    store->url.peers = (int32_t)peers;
    return NGX_CONF_OK;
}

static char *store_read_denial_cache(ngx_conf_t *cf, const ngx_str_t *word, ngx_str_t *value,
                                     void *data)
{
    ngx_http_weir_store_t *store = data;
    if (ngx_http_weir_is(value, "off")) {
        store->denial_cache_us = 0;
        return NGX_CONF_OK;
    }
    if (ngx_http_weir_duration(value, &store->denial_cache_us) != NGX_OK ||
        store->denial_cache_us > DENIAL_CACHE_MAX_US)
        return ngx_http_weir_word_fail(
            cf, word, "expected a duration up to 1s, like denial_cache=500ms, or off");
    return NGX_CONF_OK;
}

static const ngx_http_weir_option_t store_options[] = {
    {ngx_string("deadline="), store_read_deadline},
    {ngx_string("fail="), store_read_fail},
    {ngx_string("peers="), store_read_peers},
    {ngx_string("denial_cache="), store_read_denial_cache},
};

/* Whether the address, which is a good one, has the option of this word, too. */
static bool store_says_too(const ngx_str_t *address, const ngx_str_t *word)
{
    for (size_t i = 0; i < WEIR__COUNT(store_options); i++) {
        const ngx_str_t *name = &store_options[i].name;
        if (word->len < name->len || ngx_strncmp(word->data, name->data, name->len))
            continue;
        const char *at = strchr((const char *)address->data, '?');
        for (; at; at = strchr(at + 1, '&')) {
            if (!ngx_strncmp(at + 1, name->data, name->len))
                return true;
        }
    }
    return false;
}

static char *store_read_option(ngx_conf_t *cf, const ngx_str_t *word, unsigned *seen,
                               ngx_http_weir_store_t *store)
{
    /* An address in a wrong place may contain a password. */
    static const ngx_str_t hidden = ngx_string("***");
    bool secret = ngx_strlchr(word->data, word->data + word->len, '@') != NULL;
    for (size_t i = 0; secret && i < WEIR__COUNT(store_options); i++) {
        const ngx_str_t *name = &store_options[i].name;
        secret = word->len < name->len || ngx_strncmp(word->data, name->data, name->len);
    }
    return ngx_http_weir_read_option(cf, store_options, WEIR__COUNT(store_options),
                                     secret ? &hidden : word, seen,
                                     "unknown option; after the address there may be deadline=, "
                                     "fail=, peers= and denial_cache=; others are part of it: "
                                     "redis://HOST?NAME=VALUE",
                                     store);
}

/* ---- its address ---- */

/* Whether the master can read a file. Only of a full path: workers may run in another folder. */
static char *store_check_file(ngx_conf_t *cf, const char *name, const char *path)
{
    ngx_file_info_t info;
    if (path[0] != '/')
        return NGX_CONF_OK;
    ngx_err_t flaw = access(path, R_OK) || ngx_file_info(path, &info) ? ngx_errno : 0;
    if (!flaw && ngx_is_dir(&info))
        flaw = NGX_EISDIR;
    if (!flaw)
        return NGX_CONF_OK;
    ngx_conf_log_error(NGX_LOG_EMERG, cf, flaw, "weir_store: %s=%s in the address cannot be read",
                       name, path);
    return NGX_CONF_ERROR;
}

/* What is wrong with them later, when a worker reads them, is an outage. */
static char *store_check_files(ngx_conf_t *cf, const struct weir__redis_url *url)
{
    const struct {
        const char *name, *path;
    } files[] = {{"password-file", url->password_file},
                 {"ca", url->ca},
                 {"cert", url->cert},
                 {"key", url->key}};
    for (size_t i = 0; i < WEIR__COUNT(files); i++) {
        if (store_check_file(cf, files[i].name, files[i].path) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

/* The configuration's words end in a NUL, and may contain others. */
static char *store_read_url(ngx_conf_t *cf, const ngx_str_t *word, ngx_http_weir_store_t *store)
{
    weir_error error;
    if (ngx_strlen(word->data) != word->len)
        return ngx_http_weir_conf_fail(cf,
                                       "weir_store: there is a NUL in the address; leave it out");
    if (weir__redis_url_parse((const char *)word->data, &store->url, &error))
        return ngx_http_weir_conf_fail(cf, "weir_store: %s", error.message);
    if (store->url.deadline_us > DEADLINE_MAX_US)
        return ngx_http_weir_conf_fail(
            cf,
            "weir_store: invalid deadline= in the address: expected at most 10s, since requests "
            "wait for it; write one like deadline=50ms");
    return store_check_files(cf, &store->url);
}

/* The address as people may see it. */
static char *store_put_text(ngx_conf_t *cf, ngx_http_weir_store_t *store)
{
    char room[URL_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    weir__put_redis_url(&buffer, &store->url);
    store->text = (ngx_str_t){buffer.len, (u_char *)room};
    store->text.data = ngx_pstrdup(cf->pool, &store->text);
    return store->text.data ? NGX_CONF_OK : NGX_CONF_ERROR;
}

/* ---- its directive ---- */

static bool store_equals(const ngx_http_weir_store_t *a, const ngx_http_weir_store_t *b)
{
    return ngx_http_weir_same(&a->text, &b->text) && !strcmp(a->url.password, b->url.password) &&
           a->denial_cache_us == b->denial_cache_us;
}

/* The equal store that there is already, or this one. */
static ngx_http_weir_store_t *store_unite(ngx_conf_t *cf, ngx_http_weir_store_t *store)
{
    ngx_http_weir_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_store_t **stores = main->stores.elts;
    for (ngx_uint_t i = 0; i < main->stores.nelts; i++) {
        if (store_equals(stores[i], store))
            return stores[i];
    }
    if (ngx_http_weir_pools_declare(cf, store) != NGX_OK)
        return NULL;
    const struct weir__slicing slicing = weir__slicing_of(&store->url);
    const char *note = weir__slicing_note(&slicing);
    if (note)
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "weir_store: %s", note);
    stores = ngx_array_push(&main->stores);
    if (stores)
        *stores = store;
    return stores ? store : NULL;
}

char *ngx_http_weir_store(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_weir_loc_conf_t *conf = data;
    const ngx_str_t *words = cf->args->elts;
    (void)cmd;
    if (conf->store != NGX_CONF_UNSET_PTR)
        return "is duplicate";
    if (ngx_http_weir_is(&words[1], "off")) {
        conf->store = NULL;
        return cf->args->nelts == 2
                   ? NGX_CONF_OK
                   : ngx_http_weir_word_fail(cf, &words[2], "nothing may follow \"off\"");
    }
    ngx_http_weir_store_t *store = ngx_pcalloc(cf->pool, sizeof *store);
    if (!store || store_read_url(cf, &words[1], store) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    unsigned seen = 0;
    store->denial_cache_us = store->url.slices ? DENIAL_CACHE_MAX_US : 0;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (store_says_too(&words[1], &words[i]))
            return ngx_http_weir_word_fail(cf, &words[i],
                                           "the address has this option, too; leave one out");
        if (store_read_option(cf, &words[i], &seen, store) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    }
    if (store->url.slices)
        store->denial_cache_us = ngx_min(store->denial_cache_us, store->url.slice_life_us);
    if (store_put_text(cf, store) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    conf->store = store_unite(cf, store);
    return conf->store ? NGX_CONF_OK : NGX_CONF_ERROR;
}
