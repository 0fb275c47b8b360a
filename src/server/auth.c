/*
 * Who may what: tokens, and which hosts a request may have been meant for.
 *
 * A page that a browser opens can send requests to a server on the same machine, and by DNS rebinding even
 * read the answers, under a name of the attacker's. So Host must name us, and so must Origin, if there is
 * one. An address cannot be rebound, a name can: names are the loopback ones and those configured.
 */
#include "server/listen.h"

#include <arpa/inet.h>
#include <string.h>

/* ---- tokens ---- */

/* Takes as long whatever the token is: only the secret's length shows. An empty secret is nobody's. */
static bool auth_is_secret(const char secret[SERVER_TOKEN_MAX], struct weir__span token)
{
    size_t len = strnlen(secret, SERVER_TOKEN_MAX);
    unsigned different = token.len != len || len == 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char theirs = i < token.len ? (unsigned char)token.data[i] : 0;
        different |= theirs ^ (unsigned char)secret[i];
    }
    return different == 0;
}

/* Without an admin token, the one for data opens everything; without either, everybody may, but for
 * administration where the server is public. */
enum server_access server_access_of(const struct server *server, struct weir__span token)
{
    const struct server_config *config = &server->config;
    bool some = token.len > 0; /* no token is nobody's */
    bool admin = some && auth_is_secret(config->admin_token, token);
    bool data = some && auth_is_secret(config->token, token);
    if (admin)
        return SERVER_ADMIN;
    if (config->token[0] && !data)
        return SERVER_NOBODY;
    if (config->admin_token[0])
        return SERVER_DATA;
    return data || !config->public_without_token ? SERVER_ADMIN : SERVER_DATA;
}

bool server_token_is_known(const struct server *server, struct weir__span token)
{
    bool admin = auth_is_secret(server->config.admin_token, token);
    bool data = auth_is_secret(server->config.token, token);
    return admin || data;
}

/* ---- hosts ---- */

/* Host without its port and brackets: "a.example:80", "[::1]:80"; len 0: it is malformed. */
static struct weir__span auth_without_port(struct weir__span host)
{
    static const struct weir__span none = {"", 0};
    if (!host.data || host.len == 0)
        return none;
    const char *end = host.data + host.len;
    const char *colon = memrchr(host.data, ':', host.len);
    if (host.data[0] == '[') {
        const char *bracket = memchr(host.data, ']', host.len);
        if (!bracket || (bracket + 1 != end && bracket + 1 != colon))
            return none;
        if (bracket + 1 == end)
            colon = NULL; /* that was one of the address's own */
        host = (struct weir__span){host.data + 1, (size_t)(bracket - host.data - 1)};
    } else if (colon) {
        host.len = (size_t)(colon - host.data);
        if (memchr(host.data, ':', host.len))
            return none;
    }
    for (const char *digit = colon ? colon + 1 : end; colon && digit < end; digit++) {
        if (*digit < '0' || *digit > '9')
            return none;
    }
    return host;
}

/* "localhost", and names below it, which resolvers keep to this machine. */
static bool auth_is_loopback_name(struct weir__span name)
{
    static const char suffix[] = ".localhost";
    const size_t len = sizeof suffix - 1;
    return weir__span_is_word(name, suffix + 1) ||
           (name.len > len && !strncasecmp(name.data + name.len - len, suffix, len));
}

static bool auth_is_loopback_address(struct weir__span name)
{
    char text[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (name.len >= sizeof text)
        return false;
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    if (inet_pton(AF_INET, text, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, text, &v6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

static bool auth_is_configured(const struct server *server, struct weir__span name)
{
    const char *const *allowed = server->config.allowed_hosts;
    for (; allowed && *allowed; allowed++) {
        if (weir__span_is_word(name, *allowed))
            return true;
    }
    return false;
}

static bool auth_is_address(struct weir__span name)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (name.len >= sizeof text)
        return false;
    memcpy(text, name.data, name.len);
    text[name.len] = 0;
    return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

/* The name in a Host or Origin; len 0: it is malformed. */
static struct weir__span auth_name_of(struct weir__span host)
{
    struct weir__span name = auth_without_port(host);
    if (name.len > 1 && name.data[name.len - 1] == '.')
        name.len--;
    return name;
}

static bool auth_is_ours(const struct server *server, struct weir__span name)
{
    return name.len > 0 &&
           (auth_is_loopback_name(name) || auth_is_loopback_address(name) ||
            auth_is_configured(server, name) || server_listens_on(server, name.data, name.len));
}

/* None at all is no browser: HTTP/1.0 has no Host. Who listens everywhere has addresses that nobody told
 * us, and no address can be rebound. */
bool server_host_allowed(const struct server *server, struct weir__span host)
{
    if (host.len == 0)
        return true;
    struct weir__span name = auth_name_of(host);
    return auth_is_ours(server, name) || (auth_is_address(name) && server_listens_everywhere());
}

/* A page of the same host is what Host is; of others, only those that Host could be. */
bool server_origin_allowed(const struct server *server, struct weir__span origin,
                           struct weir__span host)
{
    size_t scheme = 0;
    if (origin.len > 7 && !strncasecmp(origin.data, "http://", 7))
        scheme = 7;
    else if (origin.len > 8 && !strncasecmp(origin.data, "https://", 8))
        scheme = 8;
    if (scheme == 0)
        return false;
    struct weir__span from = {origin.data + scheme, origin.len - scheme};
    if (from.len == host.len && !strncasecmp(from.data, host.data, host.len))
        return true;
    return auth_is_ours(server, auth_name_of(from));
}
