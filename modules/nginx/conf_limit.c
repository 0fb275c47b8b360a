/* weir_limit, weir_conn and weir_rate: one reader for the three, which differ in their options. */
#include "ngx_http_weir.h"

#include "base/duration.h"

enum {
    KEY = 1,
    ZONE = 2,
    NAME = 4,
    COST = 8,
    WAIT = 16,
    DRY_RUN = 32,
    STATUS = 64,
    PHASE = 128,
    UNLESS = 256,
    ON = 512,
    CHARGE_IF = 1024,
    LEAST = 2048,
    /* what each directive takes */
    OF_RATE = KEY | ZONE | NAME | UNLESS,
    OF_CONN = OF_RATE | DRY_RUN | STATUS,
    OF_LIMIT = OF_CONN | COST | LEAST | WAIT | PHASE | ON | CHARGE_IF,
};

struct limit_reader {
    ngx_conf_t *cf;
    ngx_http_weir_limit_t *limit;
    const char *directive;
    unsigned options; /* that it takes */
    unsigned seen;
    ngx_str_t text;      /* of the limits, words joined */
    int64_t cost, least; /* as numbers; -1: they come with the request */
};

/* "weir_limit: invalid cost "x": expected 0 to 10^12". */
static char *limit_fail(const struct limit_reader *it, const char *what, const ngx_str_t *value,
                        const char *fix)
{
    return ngx_http_weir_conf_fail(it->cf, "%s: %s \"%V\": %s", it->directive, what, value, fix);
}

/* ---- options ---- */

static ngx_int_t limit_compile(ngx_conf_t *cf, ngx_str_t *text, ngx_http_complex_value_t *ret)
{
    ngx_http_compile_complex_value_t compiler = {.cf = cf, .value = text, .complex_value = ret};
    return ngx_http_compile_complex_value(&compiler);
}

static bool limit_is_name_byte(u_char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* "$name" or "${name}" alone is read without a copy. */
static ngx_int_t limit_variable_index(ngx_conf_t *cf, const ngx_str_t *value)
{
    ngx_str_t name = {value->len - 1, value->data + 1};
    if (value->data[0] != '$' || name.len == 0)
        return NGX_CONF_UNSET;
    if (name.data[0] == '{' && name.data[name.len - 1] == '}')
        name = (ngx_str_t){name.len - 2, name.data + 1};
    for (size_t i = 0; i < name.len; i++) {
        if (!limit_is_name_byte(name.data[i]) || (i == 0 && name.data[i] <= '9'))
            return NGX_CONF_UNSET;
    }
    return name.len ? ngx_http_get_variable_index(cf, &name) : NGX_CONF_UNSET;
}

/* How many bytes of a text do not belong to variables. */
static size_t limit_fixed_len(const ngx_str_t *text)
{
    size_t len = 0, i = 0;
    while (i < text->len) {
        if (text->data[i] != '$') {
            len++;
            i++;
            continue;
        }
        bool braced = ++i < text->len && text->data[i] == '{';
        i += braced;
        while (i < text->len && limit_is_name_byte(text->data[i]))
            i++;
        i += braced;
    }
    return len;
}

static char *limit_read_key(struct limit_reader *it, ngx_str_t *value)
{
    it->limit->key_text = *value;
    it->limit->key_fixed_len = ngx_http_script_variables_count(value) ? limit_fixed_len(value) : 0;
    it->limit->key_index = limit_variable_index(it->cf, value);
    return limit_compile(it->cf, value, &it->limit->key) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static char *limit_read_zone(struct limit_reader *it, ngx_str_t *value)
{
    it->limit->zone = ngx_http_weir_zone_named(it->cf, value);
    return it->limit->zone ? NGX_CONF_OK : NGX_CONF_ERROR;
}

/* It is sent in fields, which are ASCII. */
static char *limit_read_name(struct limit_reader *it, ngx_str_t *value)
{
    for (size_t i = 0; i < value->len; i++) {
        if (value->data[i] < ' ' || value->data[i] > '~')
            return limit_fail(it, "invalid name", value, "expected printable ASCII characters");
    }
    it->limit->name = *value;
    return NGX_CONF_OK;
}

static char *limit_compile_into(struct limit_reader *it, ngx_str_t *value,
                                ngx_http_complex_value_t **ret)
{
    *ret = ngx_palloc(it->cf->pool, sizeof **ret);
    return *ret && limit_compile(it->cf, value, *ret) == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
}

static char *limit_read_cost(struct limit_reader *it, ngx_str_t *value)
{
    it->cost = -1;
    if (!ngx_http_script_variables_count(value) &&
        (!weir__resp_read_integer((const char *)value->data, value->len, &it->cost) ||
         it->cost < 0 || it->cost > WEIR_COST_MAX))
        return limit_fail(it, "invalid cost", value,
                          "expected a whole number from 0 to 10^12, or variables");
    return limit_compile_into(it, value, &it->limit->cost);
}

static char *limit_read_least(struct limit_reader *it, ngx_str_t *value)
{
    it->least = -1;
    if (!ngx_http_script_variables_count(value) &&
        (!weir__resp_read_integer((const char *)value->data, value->len, &it->least) ||
         it->least < 1 || it->least > WEIR_COST_MAX))
        return limit_fail(it, "invalid least", value,
                          "expected a whole number from 1 to 10^12, or variables");
    return limit_compile_into(it, value, &it->limit->least);
}

static char *limit_read_unless(struct limit_reader *it, ngx_str_t *value)
{
    if (!ngx_http_script_variables_count(value))
        return limit_fail(
            it, "invalid exemption", value,
            "expected a variable that is neither empty nor 0 for those who are exempt, "
            "like unless=$exempt");
    return limit_compile_into(it, value, &it->limit->unless);
}

static char *limit_read_charge_if(struct limit_reader *it, ngx_str_t *value)
{
    if (!ngx_http_script_variables_count(value))
        return limit_fail(
            it, "invalid condition", value,
            "expected a variable that is empty or 0 for answers that cost nothing, like "
            "charge_if=$missed");
    return limit_compile_into(it, value, &it->limit->charge_if);
}

static char *limit_read_on(struct limit_reader *it, ngx_str_t *value)
{
    it->limit->on = ngx_palloc(it->cf->pool, NGX_HTTP_WEIR_STATUSES);
    if (!it->limit->on)
        return NGX_CONF_ERROR;
    return ngx_http_weir_charge_read(it->limit->on, value)
               ? NGX_CONF_OK
               : limit_fail(it, "invalid statuses", value,
                            "expected a list like on=401,403,404, on=4xx,!404 or on=!2xx");
}

static char *limit_read_wait(struct limit_reader *it, ngx_str_t *value)
{
    const char *why;
    if (ngx_http_weir_is(value, "any"))
        it->limit->wait_us = WEIR_WAIT_ANY;
    else if (weir__wait_parse((const char *)value->data, value->len, &it->limit->wait_us, &why) !=
                 value->len ||
             value->len == 0)
        return limit_fail(it, "invalid wait", value,
                          "expected a duration like 500ms or 1m, 0, or any");
    return NGX_CONF_OK;
}

static char *limit_read_status(struct limit_reader *it, ngx_str_t *value)
{
    ngx_int_t status = ngx_http_weir_read_status(value);
    if (status == NGX_ERROR)
        return limit_fail(it, "invalid status", value, "expected 400 to 599, like 429");
    it->limit->status = (ngx_uint_t)status;
    return NGX_CONF_OK;
}

static char *limit_read_phase(struct limit_reader *it, ngx_str_t *value)
{
    it->limit->precontent = ngx_http_weir_is(value, "precontent");
    if (!it->limit->precontent && !ngx_http_weir_is(value, "preaccess"))
        return limit_fail(it, "invalid phase", value, "expected preaccess or precontent");
    return NGX_CONF_OK;
}

static char *limit_read_dry_run(struct limit_reader *it, ngx_str_t *value)
{
    (void)value;
    it->limit->dry_run = 1;
    return NGX_CONF_OK;
}

static const struct {
    const char *word;
    unsigned bit;
    char *(*read)(struct limit_reader *, ngx_str_t *value);
} options[] = {
    {"key=", KEY, limit_read_key},
    {"zone=", ZONE, limit_read_zone},
    {"name=", NAME, limit_read_name},
    {"cost=", COST, limit_read_cost},
    {"least=", LEAST, limit_read_least},
    {"wait=", WAIT, limit_read_wait},
    {"status=", STATUS, limit_read_status},
    {"phase=", PHASE, limit_read_phase},
    {"unless=", UNLESS, limit_read_unless},
    {"on=", ON, limit_read_on},
    {"charge_if=", CHARGE_IF, limit_read_charge_if},
    {"dry_run", DRY_RUN, limit_read_dry_run},
};

static char *limit_fail_unknown(const struct limit_reader *it, const ngx_str_t *word)
{
    char room[256];
    struct weir__buffer known = weir__buffer_over(room, sizeof room);
    for (size_t i = 0; i < WEIR__COUNT(options); i++) {
        if (options[i].bit & it->options)
            weir__put_format(&known, "%s%s", known.len ? ", " : "", options[i].word);
    }
    return ngx_http_weir_conf_fail(it->cf, "%s: unknown option \"%V\": expected one of %s",
                                   it->directive, word, room);
}

/* A word that is not an option is part of the limits' text. */
static char *limit_add_text(struct limit_reader *it, const ngx_str_t *word)
{
    size_t len = it->text.len + (it->text.len > 0) + word->len;
    u_char *text = ngx_pnalloc(it->cf->pool, len + 1);
    if (!text)
        return NGX_CONF_ERROR;
    u_char *at = text;
    if (it->text.len) {
        at = ngx_cpymem(at, it->text.data, it->text.len);
        *at++ = ' ';
    }
    at = ngx_cpymem(at, word->data, word->len);
    *at = 0;
    it->text = (ngx_str_t){len, text};
    return NGX_CONF_OK;
}

static char *limit_read_word(struct limit_reader *it, ngx_str_t *word)
{
    for (size_t i = 0; i < WEIR__COUNT(options); i++) {
        size_t len = ngx_strlen(options[i].word);
        bool flag = options[i].bit == DRY_RUN;
        if (!(options[i].bit & it->options) || word->len < len || (flag && word->len > len) ||
            ngx_strncmp(word->data, options[i].word, len))
            continue;
        ngx_str_t value = {word->len - len, word->data + len};
        if (options[i].bit & it->seen)
            return limit_fail(it, "repeated option", word, "give every option once");
        if (!value.len && !flag)
            return limit_fail(it, "missing value in", word, "give one, or leave the option out");
        it->seen |= options[i].bit;
        return options[i].read(it, &value);
    }
    if (ngx_strlchr(word->data, word->data + word->len, '='))
        return limit_fail_unknown(it, word);
    return limit_add_text(it, word);
}

/* ---- the text ---- */

static bool limit_has_leases(const ngx_http_weir_limit_t *limit)
{
    return limit->limit && weir__has_leases(limit->limit);
}

/* "100KB/s", "5MiB/s", "500B/s": how people write bandwidth. Appends how it is written here. */
static void limit_suggest_bytes(const ngx_str_t *text, struct weir__buffer *ret)
{
    for (size_t i = 0; i < text->len; i++) {
        size_t start = i, end;
        while (i < text->len &&
               ((text->data[i] >= '0' && text->data[i] <= '9') || text->data[i] == '.'))
            i++;
        if (i == start)
            continue;
        u_char unit = i < text->len ? ngx_tolower(text->data[i]) : 0;
        bool scaled = unit == 'k' || unit == 'm' || unit == 'g';
        end = i += scaled;
        i += scaled && i < text->len && text->data[i] == 'i';
        if (i + 1 >= text->len || ngx_tolower(text->data[i]) != 'b' || text->data[i + 1] != '/')
            continue;
        weir__put_format(
            ret, "; bytes are written without a unit: %.*s%.*s/s (k, m and g are powers of 1000)",
            (int)(end - start - scaled), text->data + start, scaled, scaled ? (char *)&unit : "");
        return;
    }
}

static char *limit_parse_text(struct limit_reader *it)
{
    weir_error err;
    if (weir_limit_parse((const char *)it->text.data, &it->limit->limit, &err)) {
        char hint[256];
        struct weir__buffer buffer = weir__buffer_over(hint, sizeof hint);
        limit_suggest_bytes(&it->text, &buffer);
        return ngx_http_weir_conf_fail(it->cf, "%s: \"%V\": %s%s", it->directive, &it->text,
                                       err.message, hint);
    }
    return ngx_http_weir_free_with(it->cf->pool, it->limit->limit) == NGX_OK ? NGX_CONF_OK
                                                                             : NGX_CONF_ERROR;
}

static char *limit_read_text(struct limit_reader *it)
{
    if (!it->text.len)
        return ngx_http_weir_conf_fail(
            it->cf, "%s: the limit is missing; write one like \"token-bucket 10/s burst 20\"",
            it->directive);
    if (!ngx_http_script_variables_count(&it->text))
        return limit_parse_text(it);
    return limit_compile_into(it, &it->text, &it->limit->text);
}

static char *limit_require(const struct limit_reader *it, unsigned bit, const char *example)
{
    if (it->seen & bit)
        return NGX_CONF_OK;
    return ngx_http_weir_conf_fail(it->cf, "%s: %s is missing", it->directive, example);
}

/* Reads a whole directive; NULL after an error, which was logged. */
static ngx_http_weir_limit_t *limit_read_directive(ngx_conf_t *cf, unsigned takes,
                                                   struct limit_reader *it)
{
    ngx_str_t *words = cf->args->elts;
    ngx_http_weir_limit_t *limit = ngx_pcalloc(cf->pool, sizeof *limit);
    if (!limit)
        return NULL;
    limit->wait_us = WEIR_WAIT_DEFAULT;
    limit->place = ngx_http_weir_place(cf);
    *it = (struct limit_reader){.cf = cf,
                                .limit = limit,
                                .directive = (const char *)words[0].data,
                                .options = takes,
                                .cost = 1};
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        if (limit_read_word(it, &words[i]) != NGX_CONF_OK)
            return NULL;
    }
    if (limit_require(it, KEY, "key= (what is counted, like key=$binary_remote_addr)") !=
            NGX_CONF_OK ||
        limit_require(it, ZONE, "zone= (the name of a weir_zone)") != NGX_CONF_OK)
        return NULL;
    return limit;
}

static char *limit_append(ngx_conf_t *cf, ngx_array_t **list, ngx_http_weir_limit_t *limit)
{
    if (!*list)
        *list = ngx_array_create(cf->pool, 4, sizeof(void *));
    ngx_http_weir_limit_t **place = *list ? ngx_array_push(*list) : NULL;
    if (!place)
        return NGX_CONF_ERROR;
    *place = limit;
    return NGX_CONF_OK;
}

/* ---- the directives ---- */

/* "off" alone: an empty list, which undoes what an outer level has. NGX_DECLINED: it is not
 * that. */
static ngx_int_t limit_read_off(ngx_conf_t *cf, ngx_array_t **list)
{
    const ngx_str_t *words = cf->args->elts;
    bool off = cf->args->nelts == 2 && !ngx_strcmp(words[1].data, "off");
    bool is_off = *list && (*list)->nelts == 0;
    if (*list && (off || is_off)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%V: there is \"off\" and another %V on this level; leave one out",
                           &words[0], &words[0]);
        return NGX_ERROR;
    }
    if (!off)
        return NGX_DECLINED;
    *list = ngx_array_create(cf->pool, 1, sizeof(void *));
    return *list ? NGX_OK : NGX_ERROR;
}

/* "20" is short for "concurrent 20". */
static char *limit_complete_number(struct limit_reader *it)
{
    ngx_str_t number = it->text;
    if (!number.len || number.data[0] < '0' || number.data[0] > '9')
        return NGX_CONF_OK;
    it->text = (ngx_str_t)ngx_string("concurrent");
    return limit_add_text(it, &number);
}

/* Whether less than the cost can be granted. */
static char *limit_check_least(struct limit_reader *it)
{
    const ngx_http_weir_limit_t *limit = it->limit;
    weir_error err;
    if (!limit->least)
        return NGX_CONF_OK;
    bool waits = limit->wait_us != WEIR_WAIT_DEFAULT && limit->wait_us != 0;
    if (waits || limit->on || limit->charge_if)
        return ngx_http_weir_conf_fail(
            it->cf, "%s: least= cannot be used with wait=, on= and charge_if=; leave one out",
            it->directive);
    if (it->cost >= 0 && it->least > it->cost)
        return ngx_http_weir_conf_fail(
            it->cf, "%s: invalid least=%L: expected at most %L, the cost; give it another cost=",
            it->directive, it->least, it->cost);
    if (limit->limit && ngx_http_weir_check_least(limit->limit, &err))
        return limit_fail(it, "invalid limit", &it->text, err.message);
    return NGX_CONF_OK;
}

char *ngx_http_weir_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_weir_loc_conf_t *conf = data;
    ngx_array_t **list = (ngx_array_t **)((char *)data + cmd->offset);
    bool conn = list == &conf->conns;
    struct limit_reader it;
    ngx_int_t off = limit_read_off(cf, list);
    if (off != NGX_DECLINED)
        return off == NGX_OK ? NGX_CONF_OK : NGX_CONF_ERROR;
    ngx_http_weir_limit_t *limit = limit_read_directive(cf, conn ? OF_CONN : OF_LIMIT, &it);
    if (!limit || (conn && limit_complete_number(&it) != NGX_CONF_OK) ||
        limit_read_text(&it) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    if (!conn && limit_has_leases(limit))
        return limit_fail(&it, "invalid limit", &it.text,
                          "requests in progress are limited by weir_conn");
    if (limit->limit && ngx_http_weir_depends_on_costs(limit, limit->limit))
        return limit_fail(&it, "invalid limit", &it.text,
                          "a cost of its own cannot be used with on= and charge_if=; give the "
                          "directive a cost=");
    if (limit_check_least(&it) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    if (conn && limit->limit && (limit->limit->count > 1 || !limit_has_leases(limit)))
        return limit_fail(&it, "invalid limit", &it.text,
                          "expected a number, or \"concurrent 20 lease 30s\"");
    return limit_append(cf, list, limit);
}

char *ngx_http_weir_rate(ngx_conf_t *cf, ngx_command_t *cmd, void *data)
{
    ngx_http_weir_loc_conf_t *conf = data;
    ngx_str_t *words = cf->args->elts;
    struct limit_reader it;
    (void)cmd;
    if (conf->rate != NGX_CONF_UNSET_PTR)
        return "is given twice; give one weir_rate per level";
    if (cf->args->nelts == 2 && !ngx_strcmp(words[1].data, "off")) {
        conf->rate = NULL;
        return NGX_CONF_OK;
    }
    ngx_http_weir_limit_t *limit = limit_read_directive(cf, OF_RATE, &it);
    if (!limit || limit_read_text(&it) != NGX_CONF_OK)
        return NGX_CONF_ERROR;
    conf->rate = limit;
    return limit->limit ? ngx_http_weir_rate_check(cf, limit) : NGX_CONF_OK;
}
