/*
 * Lines for nginx: a zone, who is left out, and the limit. Paths that --where names become
 * locations. Other conditions become maps; what these cannot say is told in a note. Of a log the
 * lines have only heavy keys that are addresses.
 */
#include "cli/suggest.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

#define LOCATIONS_MOST 4

/* ---- the key ---- */

/* The variable of a part of the key; false: there is none. */
static bool nginx_put_variable(struct weir__buffer *out, struct weir__span part)
{
    static const struct {
        const char *name, *variable;
    } known[] = {{"ip", "$weir_network"},  {"ip/32/128", "$binary_remote_addr"},
                 {"user", "$remote_user"}, {"host", "$host"},
                 {"path", "$uri"},         {"method", "$request_method"},
                 {"'all'", "all"}};
    for (size_t i = 0; i < WEIR__COUNT(known); i++) {
        if (weir__span_is(part, known[i].name)) {
            weir__put_text(out, known[i].variable);
            return true;
        }
    }
    bool header = suggest_begins(part, "header."), argument = suggest_begins(part, "query.");
    size_t skip = header ? 7 : 6;
    if (!header && !argument)
        return false;
    for (size_t i = skip; i < part.len; i++) {
        if (!isalnum((unsigned char)part.data[i]) && part.data[i] != '_' &&
            !(header && part.data[i] == '-'))
            return false;
    }
    weir__put_text(out, header ? "$http_" : "$arg_");
    for (size_t i = skip; i < part.len; i++) {
        char c = part.data[i] == '-' ? '_' : (char)tolower((unsigned char)part.data[i]);
        weir__put(out, &c, 1);
    }
    return true;
}

/* Bytes of IPv4 that a part of a key has, if a map can make it of an address: 1 to 3; 0: it cannot.
 * Of IPv6 $weir_network has the first 64 bits. */
static int nginx_network_bytes(struct weir__span part)
{
    static const char *const parts[] = {"ip/8/64", "ip/16/64", "ip/24/64"};
    for (int i = 0; i < (int)WEIR__COUNT(parts); i++) {
        size_t len = strlen(parts[i]), brief = len - 3; /* ip/24 is ip/24/64 */
        if ((part.len == len || part.len == brief) && !memcmp(part.data, parts[i], part.len))
            return i + 1;
    }
    return 0;
}

/* Whether a request may be without it. A key of several variables would still be a key then. */
static bool nginx_may_be_absent(struct weir__span part)
{
    return weir__span_is(part, "user") || suggest_begins(part, "header.") ||
           suggest_begins(part, "query.");
}

/* A variable of this suggestion: $login_window_other. nginx reads $2 of $2fa as a capture. */
static void nginx_put_own(struct weir__buffer *out, const struct weir__buffer *name,
                          const char *end)
{
    weir__put_text(out, isdigit((unsigned char)name->data[0]) ? "$of_" : "$");
    for (size_t i = 0; i < name->len; i++)
        weir__put(out, name->data[i] == '-' ? "_" : &name->data[i], 1);
    weir__put_format(out, "_%s", end);
}

/* The networks of IPv4 that keys are, as policies write them: 192.0.2.0/24. */
static void nginx_put_networks(struct weir__buffer *out, const struct suggest *suggest,
                               const struct weir__buffer *name)
{
    for (size_t i = 0; i < suggest->key_count; i++) {
        int bytes = nginx_network_bytes(suggest->key[i]);
        if (bytes == 0)
            continue;
        weir__put_text(out, "map $remote_addr ");
        nginx_put_own(out, name, "network");
        weir__put_text(out, " { default $weir_network; \"~^(");
        for (int b = 0; b < bytes; b++)
            weir__put_text(out, b ? "\\.[0-9]+" : "[0-9]+");
        weir__put_format(out, ")\\.\" $1%s/%d; }\n", &".0.0.0"[2 * (bytes - 1)], 8 * bytes);
        return;
    }
}

/* Whether the key is one value that a request may be without, and nginx has it. */
static bool nginx_is_optional(const struct suggest *suggest)
{
    struct weir__buffer variable = weir__buffer_growing();
    bool known = suggest->key_count == 1 && nginx_put_variable(&variable, suggest->key[0]);
    weir__buffer_free(&variable);
    return known && nginx_may_be_absent(suggest->key[0]);
}

/* Without the value the key must be empty, as a policy sees it: its prefix alone would be a key. */
static void nginx_put_optional(struct weir__buffer *out, const struct suggest *suggest,
                               const struct weir__buffer *name)
{
    weir__put_text(out, "map ");
    nginx_put_variable(out, suggest->key[0]);
    weir__put_text(out, " ");
    nginx_put_own(out, name, "key");
    weir__put_text(out, " { \"\" \"\"; default \"");
    suggest_put_word(out, suggest);
    weir__put_text(out, ":");
    nginx_put_variable(out, suggest->key[0]);
    weir__put_text(out, "\"; }\n");
}

static bool nginx_put_key(struct weir__buffer *out, const struct suggest *suggest,
                          const struct weir__buffer *name, bool total)
{
    bool good = true;
    weir__put_text(out, "key=");
    if (!total && nginx_is_optional(suggest)) {
        nginx_put_own(out, name, "key");
        return true;
    }
    suggest_put_word(out, suggest); /* not the state of a limit for other requests, or other keys */
    weir__put_text(out, total ? ":all" : ":");
    for (size_t i = 0; i < suggest->key_count && !total && good; i++) {
        weir__put_text(out, i ? ":" : "");
        if (nginx_network_bytes(suggest->key[i]) > 0) {
            nginx_put_own(out, name, "network");
            continue;
        }
        good = nginx_put_variable(out, suggest->key[i]) &&
               (suggest->key_count == 1 || !nginx_may_be_absent(suggest->key[i]));
    }
    return good;
}

/* ---- conditions ---- */

/* The one condition on the path that locations can stand for; NULL: there is none. */
static const char *nginx_paths(const struct suggest *suggest)
{
    const char *found = NULL;
    for (size_t i = 0; i < suggest->logs.where.count; i++) {
        const char *text = suggest->logs.where.texts[i], *paths = suggest_path_values(text);
        if (!paths)
            continue;
        if (found)
            return NULL;
        found = paths;
    }
    size_t values = 1;
    for (const char *p = found; p && *p; p++) {
        bool first = p == found || p[-1] == '|', last = !p[1] || p[1] == '|';
        if (first && *p != '/')
            return NULL;
        if (!isalnum((unsigned char)*p) && !strchr("/_.~-|", *p) && !(*p == '*' && last))
            return NULL;
        values += *p == '|';
    }
    return values <= LOCATIONS_MOST ? found : NULL;
}

/* The field of a condition: "header.x-a" of header.x-a!=1. */
static struct weir__span nginx_field(const char *where)
{
    const char *equals = strchr(where, '=');
    assert(equals && equals > where); /* the reader took it */
    return (struct weir__span){where, (size_t)(equals - where) - (equals[-1] == '!')};
}

/* Whether a map can compare with these values: plain ones, with stars only at their ends. */
static bool nginx_are_plain(const char *values)
{
    for (const char *p = values; *p; p++) {
        bool last = !p[1] || p[1] == '|';
        if (!isalnum((unsigned char)*p) && !strchr("/_.~-:@|", *p) && !(*p == '*' && last))
            return false;
    }
    return true;
}

/* What a map compares for a condition, which then says in unless= who is left out: the method, a
 * header field, or a path that has no limit. False: this condition is no map. */
static bool nginx_put_compared(struct weir__buffer *out, const char *where)
{
    struct weir__span field = nginx_field(where);
    const char *values = strchr(where, '=') + 1;
    if (weir__span_is(field, "method")) {
        weir__put_text(out, "$request_method");
        return values[strspn(values, "ABCDEFGHIJKLMNOPQRSTUVWXYZ|")] == 0;
    }
    if (!nginx_are_plain(values))
        return false;
    if (!strncmp(where, "path!=/", strlen("path!=/"))) {
        weir__put_text(out, "$uri");
        return true;
    }
    return suggest_begins(field, "header.") && nginx_put_variable(out, field);
}

static bool nginx_is_mapped(const char *where)
{
    struct weir__buffer compared = weir__buffer_growing();
    bool mapped = nginx_put_compared(&compared, where);
    weir__buffer_free(&compared);
    return mapped;
}

/* The condition on the status as on= has it: 401,4xx or !2xx. False: there is none, or on= cannot
 * say it. */
static bool nginx_put_statuses(struct weir__buffer *out, const struct suggest *suggest)
{
    const char *text = suggest_status(suggest), *from = text ? strchr(text, '=') : NULL;
    bool negated = from && from[-1] == '!';
    while (from) {
        const char *value = ++from;
        size_t len = strcspn(value, "|,"), digits = strspn(value, "0123456789");
        bool exact = len == 3 && digits == 3;
        bool class = digits == 1 && ((len == 3 && !strncasecmp(value + 1, "xx", 2)) ||
                                     (len == 2 && value[1] == '*'));
        if ((!exact && !class) || value[0] < '1' || value[0] > '5')
            return false;
        weir__put_format(out, "%s%s%.*s%s", out->len ? "," : "", negated ? "!" : "", exact ? 3 : 1,
                         value, exact ? "" : "xx");
        from = value[len] ? value + len : NULL;
    }
    return text != NULL;
}

static bool nginx_has_status(const struct suggest *suggest)
{
    for (size_t i = 0; i < suggest->logs.where.count; i++) {
        const char *text = suggest->logs.where.texts[i];
        if (!strncmp(text, "status=", 7) || !strncmp(text, "status!=", 8))
            return true;
    }
    return false;
}

/* The conditions that the lines do not say: " --where ip!=192.0.2.1"; "": they say all. */
static void nginx_put_unsaid(struct weir__buffer *out, const struct suggest *suggest, bool statuses)
{
    const char *paths = nginx_paths(suggest);
    for (size_t i = 0; i < suggest->logs.where.count; i++) {
        const char *text = suggest->logs.where.texts[i];
        bool status = weir__span_is(nginx_field(text), "status") && statuses;
        if (!status && !(paths && suggest_path_values(text)) && !nginx_is_mapped(text))
            weir__put_format(out, " --where %s", cli_show_text(text).text);
    }
}

/* The variable of the i-th condition that is a map. */
static void nginx_put_other(struct weir__buffer *out, const struct weir__buffer *name, size_t i)
{
    nginx_put_own(out, name, "other");
    if (i > 0)
        weir__put_format(out, "%zu", i + 1);
}

/* A value as a map has it. Its texts would be alike in capitals, so what is not a method is an
 * expression. */
static void nginx_put_value(struct weir__buffer *out, const char *value, size_t len, bool method)
{
    bool star = len > 0 && value[len - 1] == '*';
    if (method) {
        weir__put(out, value, len);
        return;
    }
    weir__put_text(out, len == 1 && star ? "\"~." : "\"~^");
    for (size_t i = 0; i < len - star; i++)
        weir__put_format(out, "%s%c", value[i] == '.' ? "\\" : "", value[i]);
    weir__put_text(out, star ? "\"" : "$\"");
}

/* Who is not as a condition asks: the value of the map is not empty. */
static void nginx_put_maps(struct weir__buffer *out, const struct suggest *suggest,
                           const struct weir__buffer *name)
{
    for (size_t i = 0, maps = 0; i < suggest->logs.where.count; i++) {
        const char *text = suggest->logs.where.texts[i], *from = strchr(text, '=') + 1;
        bool negated = from[-2] == '!', method = weir__span_is(nginx_field(text), "method");
        if (!nginx_is_mapped(text))
            continue;
        weir__put_text(out, "map ");
        nginx_put_compared(out, text);
        weir__put_text(out, " ");
        nginx_put_other(out, name, maps++);
        weir__put_text(out, negated ? " { default \"\";" : " { default 1;");
        while (*from) {
            size_t len = strcspn(from, "|");
            weir__put_text(out, " ");
            nginx_put_value(out, from, len, method);
            weir__put_text(out, negated ? " 1;" : " \"\";");
            from += len + (from[len] == '|');
        }
        weir__put_text(out, " }\n");
    }
}

/* unless=: who is left out, and who is not as --where asks. */
static void nginx_put_unless(struct weir__buffer *out, const struct suggest *suggest, bool exempt,
                             const struct weir__buffer *name)
{
    size_t maps = 0;
    if (exempt) {
        weir__put_text(out, " unless=");
        nginx_put_own(out, name, "spared");
    }
    for (size_t i = 0; i < suggest->logs.where.count; i++) {
        if (!nginx_is_mapped(suggest->logs.where.texts[i]))
            continue;
        weir__put_text(out, maps == 0 && !exempt ? " unless=" : "");
        nginx_put_other(out, name, maps++);
    }
}

/* Who is left out: addresses and networks. False: something else. */
static bool nginx_put_geo(struct weir__buffer *out, const struct suggest *suggest,
                          const struct desk_suggestion *it, const struct weir__buffer *name)
{
    const char *const *keys;
    size_t count = suggest_left_out(suggest, it, &keys);
    weir__put_text(out, "geo ");
    nginx_put_own(out, name, "spared");
    weir__put_text(out, " { default 0;");
    for (size_t i = 0; i < count; i++) {
        weir__put_text(out, " ");
        if (!suggest_put_network(out, suggest, keys[i]))
            return false;
        weir__put_text(out, " 1;");
    }
    weir__put_text(out, " }\n");
    return true;
}

/* ---- the limit ---- */

/* Whether a part of the key is a field that only this log has by that name: one of JSON, CSV or
 * --format. */
static bool nginx_is_of_log(struct weir__span part)
{
    static const char *const others[] = {"key", "status", "bytes", "duration", "agent", "referer"};
    struct weir__buffer variable = weir__buffer_growing();
    bool known = nginx_put_variable(&variable, part) || nginx_network_bytes(part) > 0;
    weir__buffer_free(&variable);
    for (size_t i = 0; i < WEIR__COUNT(others); i++)
        known = known || weir__span_is(part, others[i]);
    for (size_t i = 0; i < part.len; i++)
        known = known || !(isalnum((unsigned char)part.data[i]) || strchr("_-.", part.data[i]));
    return !known && part.len > 0;
}

/* The header field that a field of the log perhaps is: header.x-api-key for my.api_key. */
static void nginx_put_header(struct weir__buffer *out, struct weir__span part)
{
    const char *dot = memrchr(part.data, '.', part.len);
    size_t from = dot ? (size_t)(dot - part.data) + 1 : 0;
    bool x = part.len - from > 1 && (part.data[from] | 32) == 'x' &&
             strchr("_-", part.data[from + 1]) != NULL;
    weir__put_text(out, x ? "header." : "header.x-");
    for (size_t i = from; i < part.len; i++) {
        char c = part.data[i] == '_' ? '-' : (char)tolower((unsigned char)part.data[i]);
        weir__put(out, &c, 1);
    }
}

/* Nor does a proxy send such a field to a policy: both texts would be of no use. */
static const char *nginx_no_key(const struct suggest *suggest, struct weir__buffer *out)
{
    size_t found = suggest->key_count;
    for (size_t i = 0; i < suggest->key_count && found == suggest->key_count; i++)
        found = nginx_is_of_log(suggest->key[i]) ? i : found;
    if (found == suggest->key_count)
        return "no variable of nginx is such a key; see Keys in docs/NGINX.md";
    struct weir__span part = suggest->key[found];
    const char *quote = suggest->key_count > 1 ? "\"" : "";
    weir__put_format(out,
                     "no variable of nginx is %.*s, and a proxy sends policies no attribute of "
                     "that name. If it is a header field, say which: --key %s",
                     (int)part.len, part.data, quote);
    for (size_t i = 0; i < suggest->key_count; i++) {
        weir__put_text(out, i ? ", " : "");
        if (i == found)
            nginx_put_header(out, part);
        else
            weir__put(out, suggest->key[i].data, suggest->key[i].len);
    }
    weir__put_format(out, "%s --field ", quote);
    nginx_put_header(out, part);
    weir__put_format(out, "=%.*s. Otherwise see Keys in docs/NGINX.md", (int)part.len, part.data);
    return out->data;
}

static bool nginx_has_part(const struct suggest *suggest, const char *name)
{
    for (size_t i = 0; i < suggest->key_count; i++) {
        if (weir__span_is(suggest->key[i], name))
            return true;
    }
    return false;
}

/* The line weir_limit. NULL, or why there is none. */
static const char *nginx_put_limit(struct weir__buffer *out, const struct suggest *suggest,
                                   const struct desk_suggestion *it,
                                   const struct weir__buffer *name, const char *statuses,
                                   struct weir__buffer *why)
{
    const char *wrong = NULL;
    struct weir__span header;
    weir__put_text(out, "weir_limit ");
    if (!nginx_put_key(out, suggest, name, it->total))
        wrong = nginx_no_key(suggest, why);
    weir__put_format(out, " zone=%s \"%s\" name=%s", name->data, weir_limit_text(it->limit),
                     name->data);
    if (!it->total && suggest_cost_header(suggest, &header)) {
        weir__put_text(out, " cost=");
        if (!nginx_put_variable(out, header))
            wrong = "no variable of nginx is such a cost; see Costs in docs/NGINX.md";
    }
    if (*statuses)
        weir__put_format(out, " on=%s", statuses);
    nginx_put_unless(out, suggest, it->exempt, name);
    weir__put_text(out,
                   !it->total && nginx_has_part(suggest, "user") ? " phase=precontent;\n" : ";\n");
    return wrong;
}

/* A slash before a part of a path. Before it, segments that mean nothing, or go back: /;a, /%20 and
 * /x/..; as Java and policies read them. nginx resolves those without blanks and ; before. Between
 * parts it is up to five segments: with any number each slash would try all that the others do, and
 * a long path could keep a worker busy for a second. */
#define NGINX_SLASH_FIRST "(/(.*/)?([ .]+|[ .]*;[^/]*))?/+ *"
#define NGINX_SLASH "(/([^/]*/){0,4}([ .]+|[ .]*;[^/]*))?/+ *"
/* Behind a path, what leads to the same page: blanks, dots, /, ;x and /x/..; */
#define NGINX_END "(/(([^/]*/){0,5} *\\.\\.)?[ ./]*)?(;|$)"

/* A path in the spellings that policies, or an application, read alike: also in capitals, with
 * spaces or dots around its parts, with ;x behind them, with / at its end. nginx itself decodes %6c
 * before. */
static void nginx_put_spellings(struct weir__buffer *out, const char *path, size_t len, bool star)
{
    weir__put_text(out, "\"^");
    for (size_t i = 0; i < len && len > 1; i++) {
        if (path[i] == '/' && i > 0)
            weir__put_text(out, "[ .]*(;[^/]*)?");
        if (path[i] == '/')
            weir__put_text(out, star && i + 1 == len ? "/"
                                : i == 0             ? NGINX_SLASH_FIRST
                                                     : NGINX_SLASH);
        else
            weir__put_format(out, "%s%c", path[i] == '.' ? "\\" : "", path[i]);
    }
    weir__put_text(out, star ? "\"" : len > 1 ? "[ .]*" NGINX_END "\"" : NGINX_END "\"");
}

/* A location for each of the paths, with the line in it. */
static void nginx_put_locations(struct weir__buffer *out, const char *paths, const char *line)
{
    while (*paths) {
        size_t len = strcspn(paths, "|");
        bool star = len > 0 && paths[len - 1] == '*';
        size_t bare = len - star;
        if (bare == 1 && star) {
            weir__put_text(out, "location ^~ / {\n");
        } else {
            weir__put_text(out, bare == 1 ? "# also with ;x"
                                : star    ? "# also in capitals and with ;x"
                                          : "# also in capitals, with / at its end and with ;x");
            weir__put_format(out,
                             "; put it above other locations with ~\n"
                             "# nginx prefers location = %.*s and location ^~ %.*s: put this "
                             "weir_limit into them, too\nlocation ~* ",
                             (int)bare, paths, (int)bare, paths);
            nginx_put_spellings(out, paths, bare, star);
            weir__put_text(out, " {\n");
        }
        weir__put_format(out, "    %s", line);
        weir__put_text(out,
                       "    # Repeat the server's weir_limit here: those of a location replace "
                       "it.\n    # Then what the location does, like proxy_pass http://host;\n}\n");
        paths += len + (paths[len] == '|');
    }
}

/* Whether the log's user is something else than nginx's. */
static bool nginx_has_other_user(const struct suggest *suggest)
{
    for (size_t i = 0; i < suggest->logs.fields.count; i++) {
        if (!strncmp(suggest->logs.fields.texts[i], "user=", 5))
            return nginx_has_part(suggest, "user");
    }
    return false;
}

/* What the lines cannot say, or what is not expected of them. */
static void nginx_put_notes(const struct suggest *suggest, bool total, const char *statuses,
                            struct suggest_paste *paste)
{
    struct weir__buffer unsaid = weir__buffer_growing();
    nginx_put_unsaid(&unsaid, suggest, *statuses);
    if (unsaid.len > 0)
        weir__put_format(suggest_note(paste),
                         "nginx: these lines do not say%s. As they are, other requests are "
                         "limited, too. If those that are meant have a location, put weir_limit "
                         "only there, and repeat the server's weir_limit: those of a location "
                         "replace it. Otherwise exempt the others with unless=: see Exemptions in "
                         "docs/NGINX.md.",
                         unsaid.data);
    weir__buffer_free(&unsaid);
    if (*statuses)
        weir__put_format(suggest_note(paste),
                         "nginx: on=%s charges only such answers. Whoever has used up the limit is "
                         "denied whatever it asks for here.",
                         statuses);
    if (!total && nginx_has_other_user(suggest))
        weir__put_text(suggest_note(paste),
                       "user was read from the field that --field names. $remote_user is the name "
                       "of HTTP authentication: if that is something else, put the variable that "
                       "has your value in its place, or the limit applies to nobody. To a policy "
                       "the caller sends it as the attribute user.");
    if (!total && nginx_has_part(suggest, "path"))
        weir__put_text(suggest_note(paste),
                       "nginx: each spelling of a path, like /A or /a;x, is a key of its own. A "
                       "client that varies it is not limited: use a policy, or a location and a "
                       "key without the path.");
}

void suggest_nginx_make(const struct suggest *suggest, size_t i, struct suggest_paste *paste)
{
    const struct desk_suggestion *it = &suggest->result->suggestions[i];
    const char *paths = nginx_paths(suggest);
    struct weir__buffer *out = &paste->nginx;
    struct weir__buffer name = weir__buffer_growing(), line = weir__buffer_growing();
    struct weir__buffer statuses = weir__buffer_growing(), unsaid = weir__buffer_growing();
    bool by_status = nginx_put_statuses(&statuses, suggest);
    const char *on = by_status ? statuses.data : "";
    suggest_put_name(&name, suggest, i);
    weir__put_format(out, "weir_zone %s 10m;\n", name.data);
    nginx_put_networks(out, suggest, &name);
    if (!it->total && nginx_is_optional(suggest))
        nginx_put_optional(out, suggest, &name);
    const char *wrong = nginx_put_limit(&line, suggest, it, &name, on, &paste->why_no_nginx);
    if (nginx_has_status(suggest) && !by_status)
        wrong = "on= cannot say which answers these are; see Failures only in docs/NGINX.md";
    if (it->exempt && !nginx_put_geo(out, suggest, it, &name))
        wrong = "geo knows addresses only; see Exemptions in docs/NGINX.md";
    nginx_put_maps(out, suggest, &name);
    nginx_put_unsaid(&unsaid, suggest, by_status);
    if (unsaid.len > 0)
        weir__put_format(out, "# This does not say%s: as it is, other requests are limited, too.\n",
                         unsaid.data);
    if (paths) {
        struct weir__buffer each = weir__buffer_growing();
        suggest_put_paths(&each, paths, false);
        weir__put_text(out, "# in server { ... }:\n");
        nginx_put_locations(out, each.data, line.data);
        weir__buffer_free(&each);
    } else {
        weir__put_text(out, line.data);
    }
    paste->no_nginx = paste->no_nginx ? paste->no_nginx : wrong;
    if (!paste->no_nginx)
        nginx_put_notes(suggest, it->total, on, paste);
    weir__buffer_free(&name);
    weir__buffer_free(&line);
    weir__buffer_free(&statuses);
    weir__buffer_free(&unsaid);
}
