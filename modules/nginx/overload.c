/*
 * weir_overload [connections=N] [load=L] [status=503]; weir_overload off;
 *
 * Connections are those that nginx's stub_status counts, of all workers; the load is the system's
 * average over a minute, looked at once a second.
 */
#include "ngx_http_weir.h"

#include <stdlib.h>

/* nginx has it only if it was built with stub_status. */
extern ngx_atomic_t *ngx_stat_active __attribute__((weak));

#define LOAD_MOST 1000000 /* in hundredths */

/* ---- the directive ---- */

static char *overload_read_connections(ngx_conf_t *cf, const ngx_str_t *word, ngx_str_t *value,
                                       void *data)
{
    ngx_http_weir_overload_t *ret = data;
    ngx_int_t connections = ngx_atoi(value->data, value->len);
    if (connections < 1)
        return ngx_http_weir_word_fail(cf, word,
                                       "expected a number from 1, like connections=10000");
    if (!&ngx_stat_active)
        return ngx_http_weir_word_fail(
            cf, word,
            "this nginx does not count connections, it was built without "
            "--with-http_stub_status_module; use load= or another nginx");
    ret->connections = (ngx_uint_t)connections;
    return NGX_CONF_OK;
}

static char *overload_read_load(ngx_conf_t *cf, const ngx_str_t *word, ngx_str_t *value, void *data)
{
    ngx_http_weir_overload_t *ret = data;
    ngx_int_t hundredths = ngx_atofp(value->data, value->len, 2);
    if (hundredths < 1 || hundredths > LOAD_MOST)
        return ngx_http_weir_word_fail(cf, word,
                                       "expected a load average from 0.01 to 10000, like load=8.5");
    ret->load = (double)hundredths / 100;
    return NGX_CONF_OK;
}

static char *overload_read_status(ngx_conf_t *cf, const ngx_str_t *word, ngx_str_t *value,
                                  void *data)
{
    ngx_http_weir_overload_t *ret = data;
    ngx_int_t status = ngx_http_weir_read_status(value);
    if (status == NGX_ERROR)
        return ngx_http_weir_word_fail(cf, word,
                                       "expected a status of 400 to 599, like status=503");
    ret->status = (ngx_uint_t)status;
    return NGX_CONF_OK;
}

static const ngx_http_weir_option_t overload_options[] = {
    {ngx_string("connections="), overload_read_connections},
    {ngx_string("load="), overload_read_load},
    {ngx_string("status="), overload_read_status},
};

char *ngx_http_weir_overload(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_weir_loc_conf_t *conf = data;
    ngx_str_t *words = cf->args->elts;
    unsigned seen = 0;
    (void)cmd;
    if (conf->overload != NGX_CONF_UNSET_PTR)
        return "is given twice; give one weir_overload per level";
    if (cf->args->nelts == 2 && !ngx_strcmp(words[1].data, "off")) {
        conf->overload = NULL;
        return NGX_CONF_OK;
    }
    ngx_http_weir_overload_t *overload = ngx_pcalloc(cf->pool, sizeof *overload);
    if (!overload)
        return NGX_CONF_ERROR;
    overload->status = NGX_HTTP_SERVICE_UNAVAILABLE;
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        if (ngx_http_weir_read_option(
                cf, overload_options, WEIR__COUNT(overload_options), &words[i], &seen,
                "expected connections=, load= and status=, or off alone", overload) != NGX_CONF_OK)
            return NGX_CONF_ERROR;
    }
    if (!overload->connections && overload->load == 0)
        return "needs connections= or load=";
    conf->overload = overload;
    return NGX_CONF_OK;
}

/* ---- looking ---- */

/* The load average, at most a second old; 0 if the system has none. */
static double overload_load_average(void)
{
    static time_t looked_at = -1;
    static double load;
    if (looked_at != ngx_time()) {
        looked_at = ngx_time();
        if (getloadavg(&load, 1) != 1)
            load = 0;
    }
    return load;
}

bool ngx_http_weir_is_overloaded(const ngx_http_weir_overload_t *overload)
{
    if (overload->connections && *ngx_stat_active > overload->connections)
        return true;
    return overload->load > 0 && overload_load_average() > overload->load;
}
