/*
 * weir_store URL [deadline=50ms] [fail=open|closed|local] [peers=N] [denial_cache=500ms]; weir_store off;
 *
 * The address is the library's, with its own options; those of the directive win over them. Stores that
 * read alike are one, with one connection a worker, wherever in the configuration they stand.
 * What holds: no password ever gets into a message.
 */
#include "ngx_http_weir.h"

#define URL_TEXT_MAX 8192 /* of an address without its password */
#define PEERS_MAX 1000000
#define DEADLINE_MAX_US                                                                            \
    10000000 /* a request that waits longer for a decision is of no use to anybody */
#define DENIAL_CACHE_MAX_US 1000000

/* ---- options ---- */

static char *fail(ngx_conf_t *cf, const ngx_str_t *word, const char *expected)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "weir_store: \"%V\": %s", word, expected);
    return NGX_CONF_ERROR;
}

static char *take_deadline(ngx_conf_t *cf, const ngx_str_t *word, const ngx_str_t *value,
                           ngx_http_weir_store_t *store)
{
    if (ngx_http_weir_duration(value, &store->url.deadline_us) != NGX_OK ||
        store->url.deadline_us > DEADLINE_MAX_US)
        return fail(cf, word, "deadline= is a duration up to 10s, like deadline=50ms");
    return NGX_CONF_OK;
}

static char *take_fail(ngx_conf_t *cf, const ngx_str_t *word, const ngx_str_t *value,
                       ngx_http_weir_store_t *store)
{
    static const struct {
        ngx_str_t name;
        enum weir__redis_fail fail;
    } table[] = {
        {ngx_string("local"), WEIR__FAIL_LOCAL},
        {ngx_string("open"), WEIR__FAIL_OPEN},
        {ngx_string("closed"), WEIR__FAIL_CLOSED},
    };
    for (size_t i = 0; i < WEIR__COUNT(table); i++) {
        if (value->len == table[i].name.len &&
            !ngx_strncmp(value->data, table[i].name.data, value->len)) {
            store->url.fail = table[i].fail;
            return NGX_CONF_OK;
        }
    }
    return fail(
        cf, word,
        "fail= is local (the zone decides while Redis does not), open (everything passes) or "
        "closed (everything is rejected)");
}

static char *take_peers(ngx_conf_t *cf, const ngx_str_t *word, const ngx_str_t *value,
                        ngx_http_weir_store_t *store)
{
    ngx_int_t peers = ngx_atoi(value->data, value->len);
    if (peers < 1 || peers > PEERS_MAX)
        return fail(cf, word,
                    "peers= is how many nginx share the limits, a number from 1 to 1000000");
    store->url.peers = (int32_t)peers;
    return NGX_CONF_OK;
}

static char *take_denial_cache(ngx_conf_t *cf, const ngx_str_t *word, const ngx_str_t *value,
                               ngx_http_weir_store_t *store)
{
    if (value->len == 3 && !ngx_strncmp(value->data, "off", 3)) {
        store->denial_cache_us = 0;
        return NGX_CONF_OK;
    }
    if (ngx_http_weir_duration(value, &store->denial_cache_us) != NGX_OK ||
        store->denial_cache_us > DENIAL_CACHE_MAX_US)
        return fail(cf, word,
                    "denial_cache= is a duration up to 1s, like denial_cache=500ms, or off");
    return NGX_CONF_OK;
}

static const struct option {
    ngx_str_t name;
    char *(*take)(ngx_conf_t *cf, const ngx_str_t *word, const ngx_str_t *value,
                  ngx_http_weir_store_t *store);
} options[] = {
    {ngx_string("deadline="), take_deadline},
    {ngx_string("fail="), take_fail},
    {ngx_string("peers="), take_peers},
    {ngx_string("denial_cache="), take_denial_cache},
};

static char *take_option(ngx_conf_t *cf, const ngx_str_t *word, ngx_uint_t *seen,
                         ngx_http_weir_store_t *store)
{
    for (size_t i = 0; i < WEIR__COUNT(options); i++) {
        const ngx_str_t *name = &options[i].name;
        if (word->len < name->len || ngx_strncmp(word->data, name->data, name->len))
            continue;
        if (*seen & 1u << i)
            return fail(cf, word, "the option is given twice; leave one out");
        *seen |= 1u << i;
        ngx_str_t value = {word->len - name->len, word->data + name->len};
        return options[i].take(cf, word, &value, store);
    }
    /* An address in a wrong place may hold a password. */
    static const ngx_str_t hidden = ngx_string("***");
    return fail(cf, ngx_strlchr(word->data, word->data + word->len, '@') ? &hidden : word,
                "no such option; there are deadline=, fail=, peers= and denial_cache=, behind the "
                "address");
}

/* ---- the address ---- */

/* The configuration's words end in a NUL, but may hold others. */
static char *take_url(ngx_conf_t *cf, const ngx_str_t *word, ngx_http_weir_store_t *store)
{
    weir_error error;
    if (ngx_strlen(word->data) != word->len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "weir_store: a NUL in the address; leave it out");
        return NGX_CONF_ERROR;
    }
    if (weir__redis_url_parse((const char *)word->data, &store->url, &error)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "weir_store: %s", error.message);
        return NGX_CONF_ERROR;
    }
    if (store->url.deadline_us > DEADLINE_MAX_US) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "weir_store: the address has a deadline= over 10s; requests wait for it, "
            "write one like deadline=50ms");
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

/* The address as people may see it. */
static char *put_text(ngx_conf_t *cf, ngx_http_weir_store_t *store)
{
    char room[URL_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    weir__put_redis_url(&buffer, &store->url);
    ngx_str_t text = {buffer.len, (u_char *)room};
    store->text.data = ngx_pstrdup(cf->pool, &text);
    store->text.len = text.len;
    return store->text.data ? NGX_CONF_OK : NGX_CONF_ERROR;
}

/* ---- the directive ---- */

static bool alike(const ngx_http_weir_store_t *a, const ngx_http_weir_store_t *b)
{
    return a->text.len == b->text.len && !ngx_strncmp(a->text.data, b->text.data, a->text.len) &&
           !strcmp(a->url.password, b->url.password) && a->denial_cache_us == b->denial_cache_us;
}

/* The one of the same kind that there is already, or this one. */
static ngx_http_weir_store_t *unite(ngx_conf_t *cf, ngx_http_weir_store_t *store)
{
    ngx_http_weir_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_store_t **stores = main->stores.elts;
    for (ngx_uint_t i = 0; i < main->stores.nelts; i++) {
        if (alike(stores[i], store))
            return stores[i];
    }
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
    if (words[1].len == 3 && !ngx_strncmp(words[1].data, "off", 3)) {
        conf->store = NULL;
        return cf->args->nelts == 2 ? NGX_CONF_OK
                                    : fail(cf, &words[2], "nothing may follow \"off\"");
    }
    ngx_http_weir_store_t *store = ngx_pcalloc(cf->pool, sizeof *store);
    if (!store || take_url(cf, &words[1], store) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    ngx_uint_t seen = 0;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (take_option(cf, &words[i], &seen, store) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    }
    if (put_text(cf, store) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    conf->store = unite(cf, store);
    return conf->store ? NGX_CONF_OK : NGX_CONF_ERROR;
}
