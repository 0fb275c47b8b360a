/*
 * Texts to paste: an entry of a policy file; lines for nginx are made in suggest_nginx.c. They are
 * made of the limit and of arguments of the command. Of what a log says they have only heavy keys,
 * which are addresses or plain words (desk/heavy.c). Words of the arguments are quoted, and the
 * policy is read once, as `weir check` reads it: what would be wrong is not printed.
 */
#include "cli/suggest.h"

#include "policy/view.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *suggest_path_values(const char *where)
{
    static const char *const names[] = {"path=", "lower(path)="};
    for (size_t i = 0; i < WEIR__COUNT(names); i++) {
        if (!strncmp(where, names[i], strlen(names[i])))
            return where + strlen(names[i]);
    }
    return NULL;
}

/* Whether a list of values, with | between them, has this one. */
static bool paths_have(const struct weir__buffer *list, const struct weir__buffer *path)
{
    for (const char *at = list->data; list->len > 0; at++) {
        size_t len = strcspn(at, "|");
        if (len == path->len && !memcmp(at, path->data, len))
            return true;
        at += len;
        if (!*at)
            break;
    }
    return false;
}

void suggest_put_paths(struct weir__buffer *out, const char *values, bool slashes)
{
    struct weir__buffer list = weir__buffer_growing();
    for (const char *from = values;; from++) {
        size_t len = strcspn(from, "|"), bare = len;
        struct weir__buffer path = weir__buffer_growing();
        bool star = memchr(from, '*', len) != NULL;
        while (!star && bare > 1 && from[bare - 1] == '/')
            bare--;
        for (size_t i = 0; i < bare; i++)
            weir__put(&path, &(char){(char)tolower((unsigned char)from[i])}, 1);
        bool twice = slashes && !star && bare > 1;
        if (!paths_have(&list, &path))
            weir__put_format(&list, "%s%s%s%s%s", list.len ? "|" : "", path.data, twice ? "|" : "",
                             twice ? path.data : "", twice ? "/" : "");
        weir__buffer_free(&path);
        from += len;
        if (!*from)
            break;
    }
    weir__put(out, list.data, list.len);
    weir__buffer_free(&list);
}

bool suggest_begins(struct weir__span span, const char *text)
{
    return span.len > strlen(text) && !memcmp(span.data, text, strlen(text));
}

struct weir__buffer *suggest_note(struct suggest_paste *paste)
{
    assert(paste->note_count < SUGGEST_NOTES);
    struct weir__buffer *note = &paste->notes[paste->note_count++];
    *note = weir__buffer_growing();
    return note;
}

/* ---- names ---- */

#define WORD_MAX 32 /* bytes */

/* Letters and digits of a text, with a dash for all between: /api/x.json as api-x-json. */
static void word_put(struct weir__buffer *out, struct weir__span text)
{
    size_t from = out->len;
    bool gap = false;
    for (size_t i = 0; i < text.len && out->len - from < WORD_MAX; i++) {
        char c = (char)tolower((unsigned char)text.data[i]);
        if (!isalnum((unsigned char)c) || (unsigned char)c > 127) {
            gap = true;
            continue;
        }
        if (gap && out->len > from)
            weir__put_text(out, "-");
        gap = false;
        weir__put(out, &c, 1);
    }
}

/* What keys are called that are no addresses: header.x-api-key as x-api-key. */
static void word_put_key(struct weir__buffer *out, const struct suggest *suggest)
{
    static const char *const prefixes[] = {"header.", "query."};
    for (size_t i = 0; i < suggest->key_count; i++) {
        struct weir__span part = suggest->key[i];
        for (size_t p = 0; p < WEIR__COUNT(prefixes); p++) {
            size_t len = strlen(prefixes[p]);
            bool begins = suggest_begins(part, prefixes[p]);
            part = begins ? (struct weir__span){part.data + len, part.len - len} : part;
        }
        weir__put_text(out, i ? "-" : "");
        word_put(out, part);
    }
}

/* Whether keys are addresses, or nobody knows what they are. */
static bool word_is_client(const struct suggest *suggest)
{
    struct weir__span key = suggest->key[0];
    return suggest->key_count == 1 &&
           (weir__span_is(key, "ip") || weir__span_is(key, "key") || suggest_begins(key, "ip/"));
}

/* What the requests of --where are called: the first path that they name, otherwise the first value
 * of a condition. Without --where it is "clients", or what the key is called. */
static void word_put_where(struct weir__buffer *out, const struct suggest *suggest)
{
    const char *best = NULL;
    for (size_t i = 0; i < suggest->logs.where.count; i++) {
        const char *text = suggest->logs.where.texts[i];
        if (!best || (suggest_path_values(text) && !suggest_path_values(best)))
            best = text;
    }
    if (!best)
        return;
    const char *equals = strchr(best, '=');
    assert(equals && equals > best); /* the reader took it */
    weir__put_text(out, equals[-1] == '!' ? "not-" : "");
    bool status = !strncmp(best, "status", 6);
    weir__put_text(out, status ? "status-" : "");
    size_t from = out->len;
    word_put(out, (struct weir__span){equals + 1, strcspn(equals + 1, status ? "|," : "|")});
    if (out->len == from)
        weir__put_text(out, "root"); /* path=/ */
}

void suggest_put_word(struct weir__buffer *out, const struct suggest *suggest)
{
    size_t from = out->len;
    bool client = word_is_client(suggest);
    word_put_where(out, suggest);
    if (!client) {
        weir__put_text(out, out->len > from ? "-" : "");
        word_put_key(out, suggest);
    }
    if (out->len == from || out->data[out->len - 1] == '-')
        weir__put_text(out, "clients");
}

/* The name of a suggestion. Those of one log differ, and so do those of other conditions: any of
 * them can be pasted together. */
void suggest_put_name(struct weir__buffer *out, const struct suggest *suggest, size_t i)
{
    suggest_put_word(out, suggest);
    if (i > 0)
        weir__put_format(out, "-%s", desk_suggestion_name(&suggest->result->suggestions[i]));
}

/* ---- YAML ---- */

/* Plain if it can be taken for nothing else, otherwise in quotes. */
static void yaml_put(struct weir__buffer *out, const char *text, size_t len)
{
    static const char *const words[] = {"true", "false", "null", "yes", "no", "on",
                                        "off",  "y",     "n",    "~",   NULL};
    bool plain = len > 0 && (islower((unsigned char)text[0]) || text[0] == '/');
    for (size_t i = 0; i < len && plain; i++)
        plain = isalnum((unsigned char)text[i]) || strchr("_./()-", text[i]);
    for (size_t i = 0; words[i] && plain; i++)
        plain = !(strlen(words[i]) == len && !memcmp(words[i], text, len));
    if (plain) {
        weir__put(out, text, len);
        return;
    }
    struct weir__json json = {out, false};
    weir__json_put_text(&json, NULL, text, len);
}

/* A value that a condition compares with as it is: stars stand for themselves. */
static void yaml_put_exact(struct weir__buffer *out, const char *text)
{
    struct weir__buffer escaped = weir__buffer_growing();
    for (; *text; text++) {
        if (*text == '*' || *text == '\\')
            weir__put(&escaped, "\\", 1);
        weir__put(&escaped, text, 1);
    }
    yaml_put(out, escaped.data, escaped.len);
    weir__buffer_free(&escaped);
}

/* a|b as [a, b]; one value alone. */
static void yaml_put_values(struct weir__buffer *out, const char *values)
{
    bool several = strchr(values, '|') != NULL;
    weir__put_text(out, several ? "[" : "");
    for (const char *from = values;; from++) {
        size_t len = strcspn(from, "|");
        yaml_put(out, from, len);
        from += len;
        if (!*from)
            break;
        weir__put_text(out, ", ");
    }
    weir__put_text(out, several ? "]" : "");
}

/* Paths in the spellings that some application reads alike: `lower` is in the name of the
 * condition, a / at the end is another value, and policies know the rest by themselves. */
static void yaml_put_paths(struct weir__buffer *out, const char *values)
{
    struct weir__buffer paths = weir__buffer_growing();
    suggest_put_paths(&paths, values, true);
    bool one = strchr(paths.data, '|') == NULL;
    weir__put_text(out, one ? "[" : "");
    yaml_put_values(out, paths.data);
    weir__put_text(out, one ? "]" : "");
    weir__buffer_free(&paths);
}

/* ---- the policy ---- */

/* Whether a request has this before it is answered, as policies know it. */
static bool policy_knows(struct weir__span name)
{
    static const char *const names[] = {"ip", "method", "path", "host", "user", NULL};
    if (suggest_begins(name, "lower(") && name.data[name.len - 1] == ')')
        name = (struct weir__span){name.data + 6, name.len - 7};
    for (size_t i = 0; names[i]; i++) {
        if (weir__span_is(name, names[i]))
            return true;
    }
    return suggest_begins(name, "header.") || suggest_begins(name, "ip(header.");
}

const char *suggest_status(const struct suggest *suggest)
{
    const char *found = NULL;
    for (size_t i = 0; i < suggest->logs.where.count; i++) {
        const char *text = suggest->logs.where.texts[i];
        if (strncmp(text, "status=", 7) && strncmp(text, "status!=", 8))
            continue;
        if (found)
            return NULL;
        found = text;
    }
    return found;
}

bool suggest_selects_path(const struct suggest *suggest)
{
    for (size_t i = 0; i < suggest->logs.where.count; i++) {
        if (suggest_path_values(suggest->logs.where.texts[i]))
            return true;
    }
    return false;
}

/* Why a condition on what policies do not know is in no policy. */
static void policy_refuse(struct suggest_paste *paste, const char *text, struct weir__span name)
{
    if (weir__span_is(name, "status")) {
        weir__fail(&paste->no_policy, WEIR_EINVAL, 0,
                   "a policy is decided before the answer is known. The limit must be charged on "
                   "answers with %s only: ask the server before each request, and settle the "
                   "charge to 0 after other answers, as in docs/LOGIN.md.",
                   cli_show_text(text).text);
        return;
    }
    weir__fail(&paste->no_policy, WEIR_EINVAL, 0,
               "policies do not know %s of a request, so they cannot say that the limit is only "
               "for some",
               cli_show(name.data, name.len).text);
    paste->no_nginx = "see Failures only and Exemptions in docs/NGINX.md for limits that are only "
                      "for some requests";
}

/* The field of a condition, as a policy compares it. */
static struct weir__span policy_field(const char *where)
{
    const char *equals = strchr(where, '=');
    assert(equals && equals > where); /* the reader took it */
    if (suggest_path_values(where))
        return weir__span_of("lower(path)");
    return (struct weir__span){where, (size_t)(equals - where) - (equals[-1] == '!')};
}

/* Whether an earlier condition is about the same field: a policy has one for each. */
static bool policy_has_both(const struct suggest *suggest, size_t i)
{
    struct weir__span name = policy_field(suggest->logs.where.texts[i]);
    for (size_t j = 0; j < i; j++) {
        struct weir__span other = policy_field(suggest->logs.where.texts[j]);
        if (name.len == other.len && !memcmp(name.data, other.data, name.len))
            return true;
    }
    return false;
}

/* Conditions of --where. False: one of them cannot be written, and without it the limit would be
 * for other requests. */
static bool policy_put_match(const struct suggest *suggest, struct suggest_paste *paste)
{
    struct weir__buffer *out = &paste->policy;
    for (size_t i = 0; i < suggest->logs.where.count; i++) {
        const char *text = suggest->logs.where.texts[i], *equals = strchr(text, '=');
        const char *paths = suggest_path_values(text);
        struct weir__span name = policy_field(text);
        bool negated = equals[-1] == '!';
        if (!policy_knows(name)) {
            policy_refuse(paste, text, name);
            return false;
        }
        if (policy_has_both(suggest, i)) {
            weir__fail(&paste->no_policy, WEIR_EINVAL, 0,
                       "a policy has one condition for each field, and --where has several for "
                       "%s: write what all of them say as one",
                       cli_show(name.data, name.len).text);
            return false;
        }
        weir__put_text(out, i ? ", " : ", match: {");
        yaml_put(out, name.data, name.len);
        weir__put_text(out, negated ? ": {" : ": ");
        if (negated && !strcmp(equals + 1, "*")) {
            weir__put_text(out, "absent: true");
        } else if (paths) {
            yaml_put_paths(out, paths);
        } else {
            weir__put_text(out, negated ? "not: " : "");
            yaml_put_values(out, equals + 1);
        }
        weir__put_text(out, negated ? "}" : "");
    }
    weir__put_text(out, suggest->logs.where.count ? "}" : "");
    return true;
}

/* Bits of IPv6, if a part of a key says only them, like ip/56; 0: it does not. Policies name those
 * of IPv4, too. */
static int64_t paste_bits6(struct weir__span part)
{
    const char *slash = memchr(part.data, '/', part.len);
    size_t name = slash ? (size_t)(slash - part.data) : part.len;
    int64_t bits = 0;
    if (!slash || part.data[0] == '\'' || part.data[0] == 'h' ||
        !weir__span_whole((struct weir__span){slash + 1, part.len - name - 1}, 33, 128, &bits))
        return 0;
    return bits;
}

static void policy_put_part(struct weir__buffer *out, struct weir__span part)
{
    int64_t bits6 = paste_bits6(part);
    struct weir__buffer text = weir__buffer_growing();
    if (bits6) {
        weir__put(&text, part.data, (size_t)((char *)memchr(part.data, '/', part.len) - part.data));
        weir__put_format(&text, "/%d/%" PRId64, WEIR__IP_BITS4, bits6);
    } else {
        weir__put(&text, part.data, part.len);
    }
    yaml_put(out, text.data, text.len);
    weir__buffer_free(&text);
}

static void policy_put_key(struct weir__buffer *out, const struct suggest *suggest, bool total)
{
    weir__put_text(out, ", key: ");
    if (total) {
        weir__put_text(out, "\"'all'\"");
        return;
    }
    weir__put_text(out, suggest->key_count > 1 ? "[" : "");
    for (size_t i = 0; i < suggest->key_count; i++) {
        weir__put_text(out, i ? ", " : "");
        policy_put_part(out, suggest->key[i]);
    }
    weir__put_text(out, suggest->key_count > 1 ? "]" : "");
}

/* Bits of IPv4 and IPv6 that keys are made of. False: keys are not addresses. */
static bool paste_key_bits(const struct suggest *suggest, uint8_t *ret4, uint8_t *ret6)
{
    struct weir__span key = suggest->key[0];
    unsigned bits4 = WEIR__IP_BITS4, bits6 = WEIR__IP_BITS6;
    char text[16] = "";
    memcpy(text, key.data, key.len < sizeof text ? key.len : 0);
    if (suggest->key_count != 1 || (!weir__span_is(key, "ip") && !suggest_begins(key, "ip/")))
        return false;
    if (sscanf(text, "ip/%u/%u", &bits4, &bits6) < 1 && !weir__span_is(key, "ip"))
        return false;
    if (paste_bits6(key)) {
        bits6 = bits4;
        bits4 = WEIR__IP_BITS4;
    }
    *ret4 = (uint8_t)weir__min(bits4, 32);
    *ret6 = (uint8_t)weir__min(bits6, 128);
    return true;
}

/* A network to spare, as wide as a key: the log counts no part of one. False: it is not one. */
bool suggest_put_network(struct weir__buffer *out, const struct suggest *suggest, const char *text)
{
    uint8_t bits4, bits6;
    struct weir__network network;
    if (!paste_key_bits(suggest, &bits4, &bits6) ||
        weir__network_read(text, strlen(text), &network))
        return false;
    weir__put_masked(out, network.address, (uint8_t)weir__min(bits4, network.bits),
                     (uint8_t)weir__min(bits6, network.bits));
    return true;
}

size_t suggest_left_out(const struct suggest *suggest, const struct desk_suggestion *it,
                        const char *const **ret)
{
    *ret = it->heavy ? suggest->result->heavy.texts : suggest->spare.texts;
    return it->heavy ? suggest->result->heavy.count : suggest->spare.count;
}

static void policy_put_allow(struct weir__buffer *out, const struct suggest *suggest,
                             const struct desk_suggestion *it)
{
    struct weir__span name = suggest->key[0];
    const char *const *keys;
    size_t count = suggest_left_out(suggest, it, &keys);
    if (!it->exempt)
        return;
    if (suggest_begins(name, "ip/")) /* conditions name the address */
        name = weir__span_of("ip");
    weir__put_text(out, ", allow: [{");
    yaml_put(out, name.data, name.len);
    weir__put_text(out, ": [");
    for (size_t i = 0; i < count; i++) {
        struct weir__buffer network = weir__buffer_growing();
        weir__put_text(out, i ? ", " : "");
        if (suggest_put_network(&network, suggest, keys[i]))
            yaml_put(out, network.data, network.len);
        else
            yaml_put_exact(out, keys[i]);
        weir__buffer_free(&network);
    }
    weir__put_text(out, "]}]");
}

/* The header field that says what a request costs. False: it costs 1, or something that nobody
 * knows before the answer. */
bool suggest_cost_header(const struct suggest *suggest, struct weir__span *ret)
{
    *ret = weir__span_of(suggest->logs.options.cost ? suggest->logs.options.cost : "");
    return suggest_begins(*ret, "header.") && !memchr(ret->data, '/', ret->len);
}

/* Whether requests cost something else than 1. A trace says it without --cost. */
static bool paste_has_costs(const struct suggest *suggest)
{
    const struct desk_engine *whole = suggest->result->whole;
    return suggest->logs.options.cost || whole->cost != whole->requests;
}

/* What a text would silently leave out, so that it would be too lenient: what requests cost, and
 * which paths are alike. A limit for all together counts requests and has one key. */
static bool paste_says_all(const struct suggest *suggest, const struct desk_suggestion *it,
                           struct suggest_paste *paste)
{
    struct weir__span header;
    bool paths = false;
    if (it->total)
        return true;
    for (size_t i = 0; i < suggest->key_count; i++) {
        struct weir__span part = suggest->key[i];
        paths |= suggest_begins(part, "path:") || suggest_begins(part, "hash(path") ||
                 (weir__span_is(part, "path") && suggest->logs.templates.count > 0);
    }
    if (paths) {
        weir__fail(&paste->no_policy, WEIR_EINVAL, 0,
                   "policies have no templates of paths: they would count each path by itself. "
                   "Make one policy for each template, with a match");
        paste->no_nginx = "$uri would count each path by itself; put the limit into a location";
        return false;
    }
    if (!paste_has_costs(suggest) || suggest_cost_header(suggest, &header))
        return true;
    const char *cost = suggest->logs.options.cost ? suggest->logs.options.cost : "cost";
    weir__fail(&paste->no_policy, WEIR_EINVAL, 0,
               "the limit counts %s, which policies do not know of a request: the caller must send "
               "it as the cost",
               cli_show_text(cost).text);
    paste->no_nginx = "the limit counts what only the log knows; see Costs in docs/NGINX.md";
    return false;
}

static void policy_put_cost(struct weir__buffer *out, const struct suggest *suggest, bool total)
{
    struct weir__span header;
    if (total || !suggest_cost_header(suggest, &header))
        return;
    weir__put_text(out, ", cost: {of: ");
    yaml_put(out, header.data, header.len);
    weir__put_text(out, "}");
}

static void policy_make(const struct suggest *suggest, size_t i, struct suggest_paste *paste)
{
    const struct desk_suggestion *it = &suggest->result->suggestions[i];
    struct weir__buffer *out = &paste->policy, name = weir__buffer_growing();
    const char *text = weir_limit_text(it->limit);
    suggest_put_name(&name, suggest, i);
    weir__put_text(out, "- {name: ");
    yaml_put(out, name.data, name.len);
    weir__buffer_free(&name);
    if (!policy_put_match(suggest, paste))
        return;
    policy_put_allow(out, suggest, it);
    policy_put_key(out, suggest, it->total);
    policy_put_cost(out, suggest, it->total);
    weir__put_text(out, ", limit: ");
    yaml_put(out, text, strlen(text));
    weir__put_text(out, "}");
    weir__put_format(
        &paste->file,
        "version: 1\npolicies: # if a file has this already, paste only the next line\n  %s\n",
        out->data);
    if (suggest_check_policies(paste->file.data, paste->file.len, &paste->no_policy) == 0)
        paste->no_policy.message[0] = 0;
}

/* ---- both ---- */

/* The texts limit more than what was judged: a path in other spellings. */
static void paste_note_wide(const struct suggest *suggest, struct suggest_paste *paste)
{
    if (suggest->facts.wide == 0 || (paste->no_policy.message[0] && paste->no_nginx))
        return;
    bool one = suggest->facts.wide == 1;
    weir__put_format(suggest_note(paste),
                     "%" PRId64 " more request%s the path in another spelling. These lines limit "
                     "%s, too: --where '%s' also counts %s.",
                     suggest->facts.wide, one ? " has" : "s have", one ? "it" : "them",
                     cli_show_text(suggest->wide_path.data).text, one ? "it" : "them");
}

/* Keys that a client makes up. */
static void paste_note_invented(const struct suggest *suggest, struct suggest_paste *paste)
{
    for (size_t i = 0; i < suggest->key_count; i++) {
        if (!suggest_begins(suggest->key[i], "header.") &&
            !suggest_begins(suggest->key[i], "query."))
            continue;
        weir__put_text(suggest_note(paste),
                       "Each value that a client invents has a fresh limit, and a request without "
                       "one has none: check the key before the limit, or also limit each ip.");
        return;
    }
}

void suggest_paste_make(const struct suggest *suggest, size_t i, struct suggest_paste *ret)
{
    const struct desk_suggestion *it = &suggest->result->suggestions[i];
    *ret = (struct suggest_paste){.policy = weir__buffer_growing(),
                                  .file = weir__buffer_growing(),
                                  .nginx = weir__buffer_growing(),
                                  .why_no_nginx = weir__buffer_growing()};
    if (paste_says_all(suggest, it, ret)) {
        policy_make(suggest, i, ret);
        suggest_nginx_make(suggest, i, ret);
        paste_note_wide(suggest, ret);
        if (!it->total)
            paste_note_invented(suggest, ret);
    }
}

void suggest_paste_free(struct suggest_paste *paste)
{
    weir__buffer_free(&paste->policy);
    weir__buffer_free(&paste->file);
    weir__buffer_free(&paste->nginx);
    weir__buffer_free(&paste->why_no_nginx);
    for (size_t i = 0; i < paste->note_count; i++)
        weir__buffer_free(&paste->notes[i]);
}
