/*
 * What a request says of itself. For a decision that a proxy asks for (GET, forward authentication) the
 * attributes are the original request's, as the proxy's headers tell, but only where the proxy is one
 * that the policies trust; otherwise they are the peer's own. JSON brings its attributes along.
 */
#include "server/http_ask.h"

#include <string.h>

void server_subject_begin(struct server_subject *subject, const struct server_conn *conn,
                          const struct weir__http_request *request,
                          const struct server_params *params)
{
    subject->conn = conn;
    subject->request = request;
    subject->params = params;
    subject->trusted =
        weir__policies_trusts(conn->thread->rules->policies, conn->peer_text, conn->peer_text_len);
}

static struct weir__span trim(struct weir__span text)
{
    while (text.len > 0 && (text.data[0] == ' ' || text.data[0] == '\t'))
        text.data++, text.len--;
    while (text.len > 0 && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
        text.len--;
    return text;
}

/* The last hop that is not one of the trusted proxies: who they say they serve. Several fields are one
 * list: proxies that add a line of their own add it behind the client's. */
static struct weir__span last_untrusted(const struct server_subject *subject)
{
    const struct weir__policies *policies = subject->conn->thread->rules->policies;
    const struct weir__http_request *request = subject->request;
    struct weir__span hop = {NULL, 0};
    for (size_t i = request->field_count; i > 0; i--) {
        struct weir__span list = request->fields[i - 1].value;
        if (!weir__span_is_word(request->fields[i - 1].name, "x-forwarded-for"))
            continue;
        while (list.len > 0) {
            size_t start = list.len;
            while (start > 0 && list.data[start - 1] != ',')
                start--;
            hop = trim((struct weir__span){list.data + start, list.len - start});
            list.len = start > 0 ? start - 1 : 0;
            if (!weir__policies_trusts(policies, hop.data, hop.len))
                return hop;
        }
    }
    return hop;
}

static bool find_ip(const struct server_subject *subject, struct weir__span *ret)
{
    if (subject->trusted) {
        *ret = last_untrusted(subject);
        if (ret->len > 0 || weir__http_field(subject->request, "x-real-ip", ret))
            return true;
    }
    *ret = (struct weir__span){subject->conn->peer_text, subject->conn->peer_text_len};
    return true;
}

static bool first_field(const struct server_subject *subject, const char *const *names,
                        struct weir__span *ret)
{
    for (size_t i = 0; subject->trusted && names[i]; i++) {
        if (weir__http_field(subject->request, names[i], ret))
            return true;
    }
    return false;
}

static bool find_path(const struct server_subject *subject, struct weir__span *ret)
{
    static const char *const names[] = {"x-forwarded-uri", "x-original-uri", NULL};
    if (!first_field(subject, names, ret)) {
        *ret = subject->request->path;
        return true;
    }
    const char *query = memchr(ret->data, '?', ret->len);
    if (query)
        ret->len = (size_t)(query - ret->data);
    return true;
}

static bool find_method(const struct server_subject *subject, struct weir__span *ret)
{
    static const char *const names[] = {"x-forwarded-method", "x-original-method", NULL};
    if (!first_field(subject, names, ret))
        *ret = subject->request->method_text;
    return true;
}

static bool find_host(const struct server_subject *subject, struct weir__span *ret)
{
    static const char *const names[] = {"x-forwarded-host", "x-original-host", NULL};
    if (!first_field(subject, names, ret))
        *ret = subject->request->host;
    return ret->len > 0;
}

static bool find_user(const struct server_subject *subject, struct weir__span *ret)
{
    static const char *const names[] = {"x-forwarded-user", "remote-user", "x-remote-user", NULL};
    return first_field(subject, names, ret) && ret->len > 0;
}

/* attr.NAME=value of the query. */
static bool find_said(const struct server_params *params, struct weir__span wanted,
                      struct weir__span *ret)
{
    for (size_t i = 0; i < params->said_count; i++) {
        if (params->said[i].name.len == wanted.len &&
            !memcmp(params->said[i].name.data, wanted.data, wanted.len)) {
            *ret = params->said[i].value;
            return true;
        }
    }
    return false;
}

static bool find_in_json(const struct server_params *params, struct weir__span wanted,
                         struct weir__span *ret)
{
    const struct weir__json_node *nodes = params->nodes;
    uint32_t at = (uint32_t)(params->attributes - nodes), end = params->attributes->next;
    for (uint32_t i = at + 1; i < end; i = nodes[i + 1].next) {
        const struct weir__json_node *value = &nodes[i + 1];
        if (nodes[i].len != wanted.len || memcmp(nodes[i].text, wanted.data, wanted.len))
            continue;
        if (value->type == WEIR__JSON_BOOL)
            *ret = weir__span_of(value->truth ? "true" : "false");
        else
            *ret = (struct weir__span){value->text, value->len};
        return value->type == WEIR__JSON_STRING || value->type == WEIR__JSON_NUMBER ||
               value->type == WEIR__JSON_BOOL;
    }
    return false;
}

static bool find_header(const struct server_subject *subject, struct weir__span name,
                        struct weir__span *ret)
{
    char lower[128];
    if (name.len >= sizeof lower)
        return false;
    for (size_t i = 0; i < name.len; i++)
        lower[i] =
            (char)(name.data[i] >= 'A' && name.data[i] <= 'Z' ? name.data[i] | 32 : name.data[i]);
    lower[name.len] = 0;
    return weir__http_field(subject->request, lower, ret);
}

bool server_subject_find(const void *context, const char *name, size_t len, struct weir__span *ret)
{
    const struct server_subject *subject = context;
    struct weir__span wanted = {name, len};
    if (subject->params->attributes)
        return find_in_json(subject->params, wanted, ret);
    if (subject->params->nodes) /* JSON without attributes says nothing of itself */
        return false;
    if (find_said(subject->params, wanted, ret))
        return true;
    if (weir__span_is(wanted, "ip"))
        return find_ip(subject, ret);
    if (weir__span_is(wanted, "path"))
        return find_path(subject, ret);
    if (weir__span_is(wanted, "method"))
        return find_method(subject, ret);
    if (weir__span_is(wanted, "host"))
        return find_host(subject, ret);
    if (weir__span_is(wanted, "user"))
        return find_user(subject, ret);
    if (len > 7 && !memcmp(name, "header.", 7))
        return find_header(subject, (struct weir__span){name + 7, len - 7}, ret);
    return false;
}
