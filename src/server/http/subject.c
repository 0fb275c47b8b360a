/*
 * What a request says of itself. For a decision that a proxy asks for (GET, forward authentication)
 * the attributes are the original request's, as the proxy's headers tell, but only where the proxy
 * is one that the policies trust; otherwise they are the peer's own. JSON brings its attributes
 * along.
 *
 * What holds: a client cannot choose between two readings of its request. A field that is asked for
 * and was sent twice, fields that tell one thing in two ways, a list of hosts, a client's address
 * that is not an address: all of these are refused, since whoever stands behind may read them
 * otherwise.
 */
#include "server/http/http.h"

#include <string.h>

/* ---- whom to believe ---- */

/* Whether a field is one of those that proxies tell of their clients by. */
static bool subject_is_forwarded(struct weir__span name)
{
    static const char *const names[] = {
        "x-forwarded-for",    "x-real-ip",         "x-forwarded-uri",  "x-original-uri",
        "x-forwarded-method", "x-original-method", "x-forwarded-host", "x-original-host",
        "x-forwarded-user",   "x-remote-user"};
    if (name.len < 9 || (name.data[0] | 0x20) != 'x')
        return false;
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        if (weir__span_is_word(name, names[i]))
            return true;
    }
    return false;
}

/* An operator who forgot trusted_proxies has every client share the proxy's limits, and should be
 * told. */
static void subject_tell_ignored(const struct server_subject *subject)
{
    const struct weir__http_request *request = subject->request;
    size_t i = 0;
    while (i < request->field_count && !subject_is_forwarded(request->fields[i].name))
        i++;
    if (i == request->field_count)
        return;
    server_report_once(subject->conn->peer_text,
                       "%s sends %.*s, which is ignored: it is not one of the policies' "
                       "trusted_proxies; reported once for this address",
                       subject->conn->peer_text,
                       (int)weir__min((int64_t)request->fields[i].name.len, 40),
                       request->fields[i].name.data);
}

void server_subject_begin(struct server_subject *subject, const struct server_conn *conn,
                          const struct weir__http_request *request,
                          const struct server_params *params)
{
    subject->conn = conn;
    subject->request = request;
    subject->params = params;
    subject->trusted =
        weir__policies_trusts(conn->thread->rules->policies, conn->peer_text, conn->peer_text_len);
    if (!subject->trusted && !params->nodes)
        subject_tell_ignored(subject);
}

/* ---- fields ---- */

static enum weir__found subject_refuse(const char *why, struct weir__span *ret)
{
    *ret = weir__span_of(why);
    return WEIR__UNUSABLE;
}

/* A field by its name. Of several, servers behind take the first, the last, or all of them as a
 * list. */
static enum weir__found subject_find_field(const struct server_subject *subject, const char *name,
                                           struct weir__span *ret)
{
    const struct weir__http_request *request = subject->request;
    bool found = false;
    for (size_t i = 0; i < request->field_count; i++) {
        if (!weir__span_is_word(request->fields[i].name, name))
            continue;
        if (found)
            return subject_refuse("was sent twice", ret);
        *ret = request->fields[i].value;
        found = true;
    }
    return found ? WEIR__FOUND : WEIR__ABSENT;
}

/* What a trusted proxy says by one of several names. Where it says it by two, one may be its
 * client's. */
static enum weir__found subject_find_told(const struct server_subject *subject,
                                          const char *const *names, struct weir__span *ret)
{
    enum weir__found found = WEIR__ABSENT;
    for (size_t i = 0; subject->trusted && names[i]; i++) {
        struct weir__span value = {"", 0};
        enum weir__found it = subject_find_field(subject, names[i], &value);
        if (it == WEIR__ABSENT)
            continue;
        if (it == WEIR__FOUND && found == WEIR__FOUND &&
            (value.len != ret->len || memcmp(value.data, ret->data, value.len)))
            return subject_refuse("was sent by two fields that differ", ret);
        *ret = value;
        found = it;
        if (found == WEIR__UNUSABLE)
            break;
    }
    return found;
}

/* ---- attributes ---- */

static struct weir__span subject_trim(struct weir__span text)
{
    while (text.len > 0 && (text.data[0] == ' ' || text.data[0] == '\t'))
        text.data++, text.len--;
    while (text.len > 0 && (text.data[text.len - 1] == ' ' || text.data[text.len - 1] == '\t'))
        text.len--;
    return text;
}

/* The last hop that is not one of the trusted proxies: who they say they serve. Several fields are
 * one list: proxies that add a line of their own add it behind the client's. Empty elements are
 * none, as in every list of HTTP. False: there is no such field. An empty hop: it names nobody. */
static bool subject_last_untrusted(const struct server_subject *subject, struct weir__span *ret)
{
    const struct weir__policies *policies = subject->conn->thread->rules->policies;
    const struct weir__http_request *request = subject->request;
    bool there = false;
    *ret = (struct weir__span){"", 0};
    for (size_t i = request->field_count; i > 0; i--) {
        struct weir__span list = request->fields[i - 1].value;
        if (!weir__span_is_word(request->fields[i - 1].name, "x-forwarded-for"))
            continue;
        there = true;
        while (list.len > 0) {
            size_t start = list.len;
            while (start > 0 && list.data[start - 1] != ',')
                start--;
            struct weir__span hop =
                subject_trim((struct weir__span){list.data + start, list.len - start});
            list.len = start > 0 ? start - 1 : 0;
            if (hop.len == 0)
                continue;
            *ret = hop;
            if (!weir__policies_trusts(policies, hop.data, hop.len))
                return true;
        }
    }
    return there;
}

static enum weir__found subject_find_ip(const struct server_subject *subject,
                                        struct weir__span *ret)
{
    if (subject->trusted) {
        bool listed = subject_last_untrusted(subject, ret);
        if (ret->len > 0)
            return WEIR__FOUND;
        enum weir__found found = subject_find_field(subject, "x-real-ip", ret);
        if (found != WEIR__ABSENT)
            return found;
        if (listed)
            return subject_refuse("comes from an X-Forwarded-For without an address", ret);
    }
    *ret = (struct weir__span){subject->conn->peer_text, subject->conn->peer_text_len};
    return WEIR__FOUND;
}

/* What proxies tell by fields, and what the request says by itself. */
enum told { TOLD_PATH, TOLD_METHOD, TOLD_HOST, TOLD_USER, TOLD };

static const struct {
    const char *name, *fields[4]; /* NULL-terminated */
} told[TOLD] = {
    [TOLD_PATH] = {"path", {"x-forwarded-uri", "x-original-uri"}},
    [TOLD_METHOD] = {"method", {"x-forwarded-method", "x-original-method"}},
    [TOLD_HOST] = {"host", {"x-forwarded-host", "x-original-host"}},
    [TOLD_USER] = {"user", {"x-forwarded-user", "remote-user", "x-remote-user"}},
};

static enum weir__found subject_find_by_name(const struct server_subject *subject, enum told which,
                                             struct weir__span *ret)
{
    const struct weir__http_request *request = subject->request;
    const struct weir__span own[TOLD] = {
        request->path, request->method_text, request->host, {"", 0}};
    enum weir__found found = subject_find_told(subject, told[which].fields, ret);
    if (which == TOLD_HOST && found == WEIR__FOUND && memchr(ret->data, ',', ret->len))
        return subject_refuse("is a list of hosts", ret);
    if (found == WEIR__ABSENT) {
        *ret = own[which];
        found = WEIR__FOUND;
        if (which == TOLD_HOST && ret->len == 0)
            return WEIR__ABSENT;
    }
    return which == TOLD_USER && found == WEIR__FOUND && ret->len == 0 ? WEIR__ABSENT : found;
}

/* attr.NAME=value of the query. */
static enum weir__found subject_find_said(const struct server_params *params,
                                          struct weir__span wanted, struct weir__span *ret)
{
    for (size_t i = 0; i < params->said_count; i++) {
        if (params->said[i].name.len == wanted.len &&
            !memcmp(params->said[i].name.data, wanted.data, wanted.len)) {
            *ret = params->said[i].value;
            return WEIR__FOUND;
        }
    }
    return WEIR__ABSENT;
}

/* null is missing; what is no single value was refused before. */
static enum weir__found subject_find_in_json(const struct server_params *params,
                                             struct weir__span wanted, struct weir__span *ret)
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
        return value->type == WEIR__JSON_NULL ? WEIR__ABSENT : WEIR__FOUND;
    }
    return WEIR__ABSENT;
}

static enum weir__found subject_find_header(const struct server_subject *subject,
                                            struct weir__span name, struct weir__span *ret)
{
    char text[128];
    if (name.len >= sizeof text)
        return WEIR__ABSENT;
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    return subject_find_field(subject, text, ret);
}

enum weir__found server_subject_find(const void *context, const char *name, size_t len,
                                     struct weir__span *ret)
{
    const struct server_subject *subject = context;
    struct weir__span wanted = {name, len};
    if (subject->params->attributes)
        return subject_find_in_json(subject->params, wanted, ret);
    if (subject->params->nodes) /* JSON without attributes says nothing of itself */
        return WEIR__ABSENT;
    if (subject_find_said(subject->params, wanted, ret) == WEIR__FOUND)
        return WEIR__FOUND;
    if (weir__span_is(wanted, "ip"))
        return subject_find_ip(subject, ret);
    for (int i = 0; i < TOLD; i++) {
        if (weir__span_is(wanted, told[i].name))
            return subject_find_by_name(subject, (enum told)i, ret);
    }
    if (len > 7 && !memcmp(name, "header.", 7))
        return subject_find_header(subject, (struct weir__span){name + 7, len - 7}, ret);
    return WEIR__ABSENT;
}
