/*
 * What only the whole configuration shows about the limits that a location decides together:
 * whether there are too many, whether their zones can hold them, whether a key lacks the $ of its
 * variable, whether two of them would share a state, and whether the store can decide them in one
 * call. And whether limits of two locations
 * share a state though they differ.
 */
#include "ngx_http_weir.h"

static char *check_fail(ngx_conf_t *cf, const ngx_http_weir_limit_t *limit, const char *text)
{
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "%s in %V:%ui", text, &limit->place.file,
                  limit->place.line);
    return NGX_CONF_ERROR;
}

/* ---- zones ---- */

static char *check_fits(ngx_conf_t *cf, const ngx_http_weir_limit_t *limit)
{
    char text[512];
    for (size_t i = 0; limit->zone->size && limit->limit && i < limit->limit->count; i++) {
        if (weir__zone_fits(&limit->zone->layout, &limit->limit->rules[i]))
            continue;
        struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
        weir__put_format(&buffer,
                         "\"%s\" does not fit into zone \"%.*s\" of %zuk; make the zone larger, or "
                         "give logs and windows a larger share of it with large=50%%",
                         weir__rule_text(&limit->limit->rules[i]).text, (int)limit->zone->name.len,
                         limit->zone->name.data, limit->zone->size / 1024);
        return check_fail(cf, limit, text);
    }
    return NGX_CONF_OK;
}

/* ---- keys ---- */

/* Whether the configuration has a variable of this name, or variables that begin with it. */
static bool check_is_variable(ngx_conf_t *cf, const ngx_str_t *name)
{
    const ngx_http_core_main_conf_t *core =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    const ngx_hash_key_t *known = core->variables_keys->keys.elts;
    for (ngx_uint_t i = 0; i < core->variables_keys->keys.nelts; i++) {
        if (ngx_http_weir_same(&known[i].key, name))
            return true;
    }
    const ngx_http_variable_t *prefixes = core->prefix_variables.elts; /* "arg_" */
    for (ngx_uint_t i = 0; i < core->prefix_variables.nelts; i++) {
        size_t len = prefixes[i].name.len;
        if (name->len > len && !ngx_memcmp(prefixes[i].name.data, name->data, len))
            return true;
    }
    return false;
}

/* "account:account": somebody forgot the $, and all requests share one state. Variables of the
 * configuration are known when all of it was read. */
static void check_key(ngx_conf_t *cf, ngx_http_weir_limit_t *limit)
{
    ngx_str_t key = limit->key_text, last = key;
    if (limit->key_checked) /* by another location that inherits it */
        return;
    limit->key_checked = 1;
    for (size_t i = 0; i < key.len; i++) {
        if (key.data[i] == '$')
            return;
        if (key.data[i] == ':')
            last = (ngx_str_t){key.len - i - 1, key.data + i + 1};
    }
    if (check_is_variable(cf, &last))
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "key=%V has no variable, so all requests share it; write $%V, or another "
                      "word if this is meant, in %V:%ui",
                      &key, &last, &limit->place.file, limit->place.line);
}

void ngx_http_weir_check_keys(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf)
{
    const ngx_array_t *lists[] = {conf->limits, conf->conns};
    for (size_t i = 0; i < WEIR__COUNT(lists); i++) {
        ngx_http_weir_limit_t **limits = lists[i] ? lists[i]->elts : NULL;
        for (ngx_uint_t j = 0; limits && j < lists[i]->nelts; j++)
            check_key(cf, limits[j]);
    }
    if (conf->rate)
        check_key(cf, conf->rate);
}

/* ---- two of them ---- */

static bool check_may_share_state(const ngx_http_weir_limit_t *a, const ngx_http_weir_limit_t *b)
{
    for (size_t i = 0; a->limit && b->limit && i < a->limit->count; i++) {
        for (size_t j = 0; j < b->limit->count; j++) {
            if (weir__rule_same_state(&a->limit->rules[i], &b->limit->rules[j]))
                return true;
        }
    }
    return false;
}

/* The text before the first variable: if it differs, the keys do. */
static bool check_begin_alike(const ngx_str_t *a, const ngx_str_t *b)
{
    for (size_t i = 0; i < a->len && i < b->len; i++) {
        if (a->data[i] == '$' || b->data[i] == '$')
            return true;
        if (a->data[i] != b->data[i])
            return false;
    }
    return true;
}

static char *check_pair(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf,
                        const ngx_http_weir_limit_t *a, const ngx_http_weir_limit_t *b)
{
    bool one_memory = a->zone == b->zone || conf->store;
    if (!one_memory || !check_may_share_state(a, b))
        return NGX_CONF_OK;
    if (ngx_http_weir_same(&a->key_text, &b->key_text))
        return check_fail(
            cf, b,
            "two limits of one key with the same algorithm and period would share a state; "
            "leave one out, or give its key a word of its own, like key=all:$host,");
    if (check_begin_alike(&a->key_text, &b->key_text))
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "the keys \"%V\" and \"%V\" may be equal, and then share a state; give one a "
                      "word of its own, like key=user:$remote_user, in %V:%ui",
                      &a->key_text, &b->key_text, &b->place.file, b->place.line);
    return NGX_CONF_OK;
}

/* What is granted is one amount, which one zone knows. */
static char *check_least(ngx_conf_t *cf, const ngx_http_weir_limit_t *a,
                         const ngx_http_weir_limit_t *b)
{
    if (!a->least || !b->least || a->zone == b->zone)
        return NGX_CONF_OK;
    return check_fail(cf, b, "limits with least= that are decided together need one zone=");
}

/* ---- the store ---- */

/* The text between the first braces: a cluster keeps keys with the same text there together. */
static ngx_str_t check_hash_tag(const ngx_str_t *key)
{
    u_char *end = key->data + key->len;
    u_char *open = ngx_strlchr(key->data, end, '{');
    while (open && open > key->data && open[-1] == '$') /* "${name}" is a variable, no tag */
        open = ngx_strlchr(open + 1, end, '{');
    u_char *close = open ? ngx_strlchr(open + 1, end, '}') : NULL;
    return close ? (ngx_str_t){(size_t)(close - open - 1), open + 1} : (ngx_str_t)ngx_null_string;
}

static char *check_store(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf,
                         const ngx_http_weir_limit_t *a, const ngx_http_weir_limit_t *b)
{
    if (!conf->store)
        return NGX_CONF_OK;
    if (a->wait_us != b->wait_us)
        return check_fail(
            cf, b, "limits that Redis decides together have one wait=; give them all the same,");
    ngx_str_t one = check_hash_tag(&a->key_text), other = check_hash_tag(&b->key_text);
    if (conf->store->url.kind == WEIR__REDIS_CLUSTER &&
        !(one.len && ngx_http_weir_same(&one, &other)) &&
        !ngx_http_weir_same(&a->key_text, &b->key_text))
        return check_fail(
            cf, b,
            "keys of a Redis Cluster that are decided together must live in one slot; give "
            "them one hash tag, like \"key={$http_x_user}:all\",");
    return NGX_CONF_OK;
}

/* ---- a location ---- */

static char *check_together(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf,
                            const ngx_array_t *together)
{
    ngx_http_weir_limit_t **limits = together->elts;
    size_t rules = 0;
    for (ngx_uint_t i = 0; i < together->nelts; i++) {
        rules += limits[i]->limit ? limits[i]->limit->count : 1;
        if (rules > WEIR_LIMITS_MAX)
            return check_fail(
                cf, limits[i],
                "at most 16 limits are decided together; a location has more of them");
        for (ngx_uint_t j = 0; j < i; j++) {
            if (check_pair(cf, conf, limits[j], limits[i]) != NGX_CONF_OK ||
                check_least(cf, limits[j], limits[i]) != NGX_CONF_OK ||
                check_store(cf, conf, limits[j], limits[i]) != NGX_CONF_OK)
                return NGX_CONF_ERROR;
        }
    }
    return NGX_CONF_OK;
}

/* Slots are acquired one by one. No two of them may share their slots. */
static char *check_conns(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf)
{
    ngx_http_weir_limit_t **conns = conf->conns ? conf->conns->elts : NULL;
    for (ngx_uint_t i = 0; conns && i < conf->conns->nelts; i++) {
        for (ngx_uint_t j = 0; j < i; j++) {
            bool one_memory = conns[i]->zone == conns[j]->zone || conf->store;
            if (one_memory && ngx_http_weir_same(&conns[i]->key_text, &conns[j]->key_text))
                return check_fail(
                    cf, conns[i],
                    "two weir_conn of one key would share their slots; leave one out, or give "
                    "its key a word of its own, like key=all:$host,");
        }
    }
    return NGX_CONF_OK;
}

static char *check_list(ngx_conf_t *cf, const ngx_array_t *list)
{
    ngx_http_weir_limit_t **limits = list ? list->elts : NULL;
    for (ngx_uint_t i = 0; list && i < list->nelts; i++) {
        if (check_fits(cf, limits[i]) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

/* ---- two locations ---- */

/* A limit of a location, and where its states are. */
struct check_listed {
    const ngx_http_weir_limit_t *limit;
    const ngx_http_weir_store_t *store;
};

/* Whether two limits share a state and differ in more than a share does: a share of a bucket has
 * the same rate and another size. Whoever means it gives both one name. */
static bool check_differ(const ngx_http_weir_limit_t *a, const ngx_http_weir_limit_t *b)
{
    if (a->name.len && ngx_http_weir_same(&a->name, &b->name))
        return false;
    for (size_t i = 0; a->limit && b->limit && i < a->limit->count; i++) {
        for (size_t j = 0; j < b->limit->count; j++) {
            const struct weir__rule *one = &a->limit->rules[i], *other = &b->limit->rules[j];
            if (weir__rule_same_state(one, other) && one->count != other->count)
                return true;
        }
    }
    return false;
}

static bool check_is_one_memory(const struct check_listed *a, const struct check_listed *b)
{
    return a->store == b->store && (a->limit->zone == b->limit->zone || a->store);
}

/* Limits of two locations with one key: nobody sees in either of them that the other one spends,
 * too. One warning for each limit. */
static char *check_elsewhere(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf)
{
    ngx_http_weir_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_limit_t **limits = conf->limits ? conf->limits->elts : NULL;
    if (!main->checked.elts &&
        ngx_array_init(&main->checked, cf->pool, 16, sizeof(struct check_listed)) != NGX_OK)
        return NGX_CONF_ERROR;
    ngx_uint_t before = main->checked.nelts; /* not those of this location */
    for (ngx_uint_t i = 0; limits && i < conf->limits->nelts; i++) {
        struct check_listed it = {limits[i], conf->store};
        const struct check_listed *others = main->checked.elts; /* it may have moved */
        bool known = false, warned = false;
        for (ngx_uint_t j = 0; j < before && !known && !warned; j++) {
            known = others[j].limit == it.limit && others[j].store == it.store;
            warned = !known && check_is_one_memory(&others[j], &it) &&
                     ngx_http_weir_same(&others[j].limit->key_text, &it.limit->key_text) &&
                     check_differ(others[j].limit, it.limit);
            if (warned)
                ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                              "limits in %V:%ui and %V:%ui have one key, algorithm and period but "
                              "different counts: they share one state, and each spends what the "
                              "other allows; give one a word of its own, like key=login:%V, or "
                              "both one name= if this is meant",
                              &others[j].limit->place.file, others[j].limit->place.line,
                              &it.limit->place.file, it.limit->place.line, &it.limit->key_text);
        }
        struct check_listed *added = known ? NULL : ngx_array_push(&main->checked);
        if (!known && !added)
            return NGX_CONF_ERROR;
        if (added)
            *added = it;
    }
    return NGX_CONF_OK;
}

static void check_note_fleet(const ngx_array_t *list)
{
    ngx_http_weir_limit_t **limits = list ? list->elts : NULL;
    for (ngx_uint_t i = 0; limits && i < list->nelts; i++)
        limits[i]->zone->has_fleet = true;
}

char *ngx_http_weir_check_location(ngx_conf_t *cf, const ngx_http_weir_loc_conf_t *conf)
{
    if (conf->store) {
        check_note_fleet(conf->limits);
        check_note_fleet(conf->conns);
    }
    if (check_list(cf, conf->limits) != NGX_CONF_OK || check_list(cf, conf->conns) != NGX_CONF_OK ||
        check_conns(cf, conf) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    for (int phase = 0; phase < 2; phase++) {
        for (int dry = 0; dry < 2; dry++) {
            if (check_together(cf, conf, &conf->limits_of[phase][dry]) != NGX_CONF_OK)
                return NGX_CONF_ERROR;
        }
    }
    return check_elsewhere(cf, conf);
}
