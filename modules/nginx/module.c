/* The module as nginx sees it: its directives, how their levels merge, where it hooks in. */
#include "ngx_http_weir.h"

#include "base/duration.h"

/* ---- configurations ---- */

static void *module_create_main(ngx_conf_t *cf)
{
    ngx_http_weir_main_conf_t *conf = ngx_pcalloc(cf->pool, sizeof *conf);
    if (!conf || ngx_array_init(&conf->zones, cf->pool, 4, sizeof(void *)) != NGX_OK ||
        ngx_array_init(&conf->stores, cf->pool, 2, sizeof(void *)) != NGX_OK)
        return NULL;
    return conf;
}

static void *module_create_location(ngx_conf_t *cf)
{
    ngx_http_weir_loc_conf_t *conf = ngx_pcalloc(cf->pool, sizeof *conf);
    if (!conf)
        return NULL;
    conf->rate = NGX_CONF_UNSET_PTR;
    conf->overload = NGX_CONF_UNSET_PTR;
    conf->store = NGX_CONF_UNSET_PTR;
    conf->status = NGX_CONF_UNSET_UINT;
    conf->log_level = NGX_CONF_UNSET_UINT;
    conf->headers = NGX_CONF_UNSET_UINT;
    conf->dry_run = NGX_CONF_UNSET;
    conf->subrequests = NGX_CONF_UNSET;
    return conf;
}

/* Sorts the limits by phase and by dry run. */
static char *module_sort_limits(ngx_conf_t *cf, ngx_http_weir_loc_conf_t *conf)
{
    ngx_http_weir_limit_t **limits = conf->limits ? conf->limits->elts : NULL;
    ngx_uint_t n = conf->limits ? conf->limits->nelts : 0;
    for (int phase = 0; phase < 2; phase++) {
        for (int dry = 0; dry < 2; dry++) {
            if (ngx_array_init(&conf->limits_of[phase][dry], cf->pool, n ? n : 1, sizeof(void *)) !=
                NGX_OK)
                return NGX_CONF_ERROR;
        }
    }
    for (ngx_uint_t i = 0; i < n; i++) {
        ngx_array_t *to =
            &conf->limits_of[limits[i]->precontent][ngx_http_weir_is_dry(conf, limits[i])];
        *(ngx_http_weir_limit_t **)ngx_array_push(to) = limits[i];
    }
    bool conns = conf->conns && conf->conns->nelts > 0;
    conf->applies[NGX_HTTP_WEIR_PREACCESS] = conns || conf->overload ||
                                             conf->limits_of[NGX_HTTP_WEIR_PREACCESS][0].nelts ||
                                             conf->limits_of[NGX_HTTP_WEIR_PREACCESS][1].nelts;
    if (!conns && !conf->overload)
        conf->first_step[NGX_HTTP_WEIR_PREACCESS] = NGX_HTTP_WEIR_AT_LIMIT;
    conf->first_step[NGX_HTTP_WEIR_PRECONTENT] = NGX_HTTP_WEIR_AT_LIMIT;
    conf->applies[NGX_HTTP_WEIR_PRECONTENT] = conf->limits_of[NGX_HTTP_WEIR_PRECONTENT][0].nelts ||
                                              conf->limits_of[NGX_HTTP_WEIR_PRECONTENT][1].nelts;
    return NGX_CONF_OK;
}

static char *module_merge_location(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_weir_loc_conf_t *prev = parent, *conf = child;
    if (!conf->limits)
        conf->limits = prev->limits;
    if (!conf->conns)
        conf->conns = prev->conns;
    if (!conf->test_clock)
        conf->test_clock = prev->test_clock;
    ngx_conf_merge_ptr_value(conf->rate, prev->rate, NULL);
    ngx_conf_merge_ptr_value(conf->overload, prev->overload, NULL);
    ngx_conf_merge_ptr_value(conf->store, prev->store, NULL);
    ngx_conf_merge_uint_value(conf->status, prev->status, NGX_HTTP_TOO_MANY_REQUESTS);
    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_ERR);
    ngx_conf_merge_uint_value(conf->headers, prev->headers, WEIR__FIELDS_IETF);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);
    ngx_conf_merge_value(conf->subrequests, prev->subrequests, 0);
    if (module_sort_limits(cf, conf) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    bool inherited = conf->limits == prev->limits && conf->conns == prev->conns &&
                     conf->store == prev->store && conf->dry_run == prev->dry_run &&
                     prev->limits_of[0][0].elts;
    ngx_http_weir_check_keys(cf, conf);
    return inherited ? NGX_CONF_OK : ngx_http_weir_check_location(cf, conf);
}

/* ---- what readers of directives share ---- */

ngx_http_weir_place_t ngx_http_weir_place(const ngx_conf_t *cf)
{
    return (ngx_http_weir_place_t){cf->conf_file->file.name, cf->conf_file->line};
}

ngx_int_t ngx_http_weir_duration(const ngx_str_t *text, int64_t *ret)
{
    const char *why;
    size_t len = weir__duration_parse((const char *)text->data, text->len, ret, &why);
    return len && len == text->len ? NGX_OK : NGX_ERROR;
}

ngx_int_t ngx_http_weir_read_status(const ngx_str_t *text)
{
    ngx_int_t status = ngx_atoi(text->data, text->len);
    return status >= 400 && status <= 599 ? status : NGX_ERROR;
}

char *ngx_http_weir_word_fail(ngx_conf_t *cf, const ngx_str_t *word, const char *expected)
{
    ngx_str_t *words = cf->args->elts;
    return ngx_http_weir_conf_fail(cf, "%V: \"%V\": %s", &words[0], word, expected);
}

char *ngx_http_weir_read_option(ngx_conf_t *cf, const ngx_http_weir_option_t *options, size_t n,
                                const ngx_str_t *word, unsigned *seen, const char *unknown,
                                void *conf)
{
    assert(n <= 8 * sizeof *seen);
    for (size_t i = 0; i < n; i++) {
        const ngx_str_t *name = &options[i].name;
        if (word->len < name->len || ngx_strncmp(word->data, name->data, name->len))
            continue;
        if (*seen & 1u << i)
            return ngx_http_weir_word_fail(cf, word, "the option is given twice; give it once");
        *seen |= 1u << i;
        ngx_str_t value = {word->len - name->len, word->data + name->len};
        return options[i].read(cf, word, &value, conf);
    }
    return ngx_http_weir_word_fail(cf, word, unknown);
}

/* ---- small directives ---- */

static ngx_conf_enum_t log_levels[] = {{ngx_string("info"), NGX_LOG_INFO},
                                       {ngx_string("notice"), NGX_LOG_NOTICE},
                                       {ngx_string("warn"), NGX_LOG_WARN},
                                       {ngx_string("error"), NGX_LOG_ERR},
                                       {ngx_null_string, 0}};

static ngx_conf_enum_t header_styles[] = {{ngx_string("ietf"), WEIR__FIELDS_IETF},
                                          {ngx_string("ietf-06"), WEIR__FIELDS_IETF_06},
                                          {ngx_string("x-ratelimit"), WEIR__FIELDS_X},
                                          {ngx_string("openai"), WEIR__FIELDS_OPENAI},
                                          {ngx_string("retry-after"), WEIR__FIELDS_RETRY},
                                          {ngx_string("off"), WEIR__FIELDS_OFF},
                                          {ngx_null_string, 0}};

/* One word of a list. nginx's own reader would not name the words. */
static char *module_set_word(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_str_t *words = cf->args->elts;
    ngx_uint_t *place = (ngx_uint_t *)((char *)data + cmd->offset);
    char room[64];
    struct weir__buffer known = weir__buffer_over(room, sizeof room);
    if (*place != NGX_CONF_UNSET_UINT)
        return "is duplicate";
    for (const ngx_conf_enum_t *it = cmd->post; it->name.len; it++) {
        if (!ngx_strcmp(it->name.data, words[1].data)) {
            *place = it->value;
            return NGX_CONF_OK;
        }
        weir__put_format(&known, "%s%s", known.len ? ", " : "", it->name.data);
    }
    return ngx_http_weir_conf_fail(cf, "%V: invalid word \"%V\": expected one of %s", &words[0],
                                   &words[1], room);
}

/* A style, and whether ours replace the fields of an upstream. */
static char *module_set_headers(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_str_t *words = cf->args->elts;
    ngx_http_weir_loc_conf_t *conf = data;
    char *said = module_set_word(cf, cmd, data);
    if (said != NGX_CONF_OK || cf->args->nelts == 2)
        return said;
    if (ngx_strcmp(words[2].data, "replace") || conf->headers == WEIR__FIELDS_OFF)
        return ngx_http_weir_conf_fail(
            cf,
            "weir_headers: invalid word \"%V\": after a style there may be \"replace\", which "
            "removes the fields of an upstream",
            &words[2]);
    conf->headers |= NGX_HTTP_WEIR_REPLACE;
    return NGX_CONF_OK;
}

static char *module_set_status(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_str_t *words = cf->args->elts;
    ngx_http_weir_loc_conf_t *conf = data;
    ngx_int_t status = ngx_http_weir_read_status(&words[1]);
    (void)cmd;
    if (conf->status != NGX_CONF_UNSET_UINT)
        return "is duplicate";
    if (status == NGX_ERROR)
        return ngx_http_weir_conf_fail(
            cf, "weir_status: invalid status \"%V\": expected 400 to 599, like 429", &words[1]);
    conf->status = (ngx_uint_t)status;
    return NGX_CONF_OK;
}

static char *module_set_test_clock(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_weir_main_conf_t *main = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    main->test_clock = 1;
    return ngx_http_set_complex_value_slot(cf, cmd, data);
}

#define ANY_LEVEL (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)
#define LOCATION(field) NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_weir_loc_conf_t, field)

static ngx_command_t module_commands[] = {
    {ngx_string("weir_zone"), NGX_HTTP_MAIN_CONF | (NGX_CONF_TAKE23 | NGX_CONF_TAKE4),
     ngx_http_weir_zone, NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    {ngx_string("weir_limit"), ANY_LEVEL | NGX_CONF_1MORE, ngx_http_weir_limit, LOCATION(limits),
     NULL},
    {ngx_string("weir_conn"), ANY_LEVEL | NGX_CONF_1MORE, ngx_http_weir_limit, LOCATION(conns),
     NULL},
    {ngx_string("weir_rate"), ANY_LEVEL | NGX_CONF_1MORE, ngx_http_weir_rate, LOCATION(rate), NULL},
    {ngx_string("weir_overload"), ANY_LEVEL | NGX_CONF_1MORE, ngx_http_weir_overload,
     LOCATION(overload), NULL},
    {ngx_string("weir_store"), ANY_LEVEL | NGX_CONF_1MORE, ngx_http_weir_store, LOCATION(store),
     NULL},
    {ngx_string("weir_status"), ANY_LEVEL | NGX_CONF_TAKE1, module_set_status, LOCATION(status),
     NULL},
    {ngx_string("weir_log_level"), ANY_LEVEL | NGX_CONF_TAKE1, module_set_word, LOCATION(log_level),
     log_levels},
    {ngx_string("weir_headers"), ANY_LEVEL | NGX_CONF_TAKE12, module_set_headers, LOCATION(headers),
     header_styles},
    {ngx_string("weir_dry_run"), ANY_LEVEL | NGX_CONF_FLAG, ngx_conf_set_flag_slot,
     LOCATION(dry_run), NULL},
    {ngx_string("weir_subrequests"), ANY_LEVEL | NGX_CONF_FLAG, ngx_conf_set_flag_slot,
     LOCATION(subrequests), NULL},
    {ngx_string("weir_test_clock"), ANY_LEVEL | NGX_CONF_TAKE1, module_set_test_clock,
     LOCATION(test_clock), NULL},
    {ngx_string("weir_info"), NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1,
     ngx_http_weir_info, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("weir_keys"), NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1, ngx_http_weir_keys,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    ngx_null_command,
};

/* ---- where it hooks in ---- */

/* nginx calls the handlers of a phase from the last to the first. Ours comes after all others: then
 * realip has set the address, and try_files has found something. */
static ngx_int_t module_add_handler(ngx_conf_t *cf, ngx_http_phases phase,
                                    ngx_http_handler_pt handler)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_array_t *handlers = &core->phases[phase].handlers;
    if (!ngx_array_push(handlers))
        return NGX_ERROR;
    ngx_http_handler_pt *all = handlers->elts;
    ngx_memmove(all + 1, all, (handlers->nelts - 1) * sizeof *all);
    all[0] = handler;
    return NGX_OK;
}

static ngx_int_t module_hook_in(ngx_conf_t *cf)
{
    if (ngx_http_weir_zones_check(cf) != NGX_OK ||
        module_add_handler(cf, NGX_HTTP_PREACCESS_PHASE, ngx_http_weir_preaccess_handler) !=
            NGX_OK ||
        module_add_handler(cf, NGX_HTTP_PRECONTENT_PHASE, ngx_http_weir_precontent_handler) !=
            NGX_OK)
        return NGX_ERROR;
    return ngx_http_weir_fields_init(cf) == NGX_OK ? ngx_http_weir_rate_init(cf) : NGX_ERROR;
}

static ngx_int_t module_init_process(ngx_cycle_t *cycle)
{
    ngx_http_weir_main_conf_t *conf =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    if (!conf || (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE))
        return NGX_OK;
    ngx_http_weir_zone_t **zones = conf->zones.elts;
    for (ngx_uint_t i = 0; conf->test_clock && i < conf->zones.nelts; i++)
        weir_store_set_clock(zones[i]->store, &ngx_http_weir_test_clock);
    return ngx_http_weir_fleet_start(cycle, conf);
}

static void module_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_weir_main_conf_t *conf =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    if (!conf || (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE))
        return;
    ngx_http_weir_slots_release_all();
    ngx_http_weir_fleet_stop(conf);
    ngx_http_weir_plan_end();
}

static ngx_http_module_t module_context = {
    .preconfiguration = ngx_http_weir_variables_add,
    .postconfiguration = module_hook_in,
    .create_main_conf = module_create_main,
    .create_loc_conf = module_create_location,
    .merge_loc_conf = module_merge_location,
};

__attribute__((visibility("default"))) ngx_module_t ngx_http_weir_module = {
    NGX_MODULE_V1,
    &module_context,
    module_commands,
    NGX_HTTP_MODULE,
    NULL, /* init master */
    NULL, /* init module */
    module_init_process,
    NULL, /* init thread */
    NULL, /* exit thread */
    module_exit_process,
    NULL, /* exit master */
    NGX_MODULE_V1_PADDING,
};

/* ---- what nginx looks for in a file that it loads ---- */

#ifdef NGX_HTTP_WEIR_STANDALONE /* else nginx's own build writes this */
extern ngx_module_t *ngx_modules[];
extern char *ngx_module_names[];
extern char *ngx_module_order[];
__attribute__((visibility("default"))) ngx_module_t *ngx_modules[] = {&ngx_http_weir_module, NULL};
__attribute__((visibility("default"))) char *ngx_module_names[] = {"ngx_http_weir_module", NULL};
__attribute__((visibility("default"))) char *ngx_module_order[] = {NULL};
#endif
