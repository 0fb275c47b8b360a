/*
 * Addresses of Redis stores, as text ⇄ a plain struct:
 *
 *     redis://user:password@host:6379/0?option=value&…       one server
 *     redis+cluster://host:6379,host:6379/?…                  a cluster, some of its nodes
 *     redis+sentinel://host:26379,host:26379/master-name?…    Sentinels, and the name they watch
 *     redis+unix:///path/to/socket?db=0&…                     a socket of this host
 *     rediss://, rediss+cluster://, rediss+sentinel://        the same over TLS
 *
 * Only hosts (and a Sentinel's master name) must be given. User, password, the socket's path, the
 * master's name and option values are percent-decoded; an IPv6 address stands in brackets.
 *
 * What holds: a password never appears in a message, not even where the address is so wrong that
 * its parts cannot be told apart; messages quote nothing that stands before the last '@'.
 */
#ifndef WEIR_URL_H
#define WEIR_URL_H

#include "base/buffer.h"

#define WEIR__REDIS_HOSTS_MAX                                                                      \
    16 /* to start from; the rest of a cluster is learnt from any of them */

enum weir__redis_kind {
    WEIR__REDIS_SINGLE,
    WEIR__REDIS_CLUSTER,
    WEIR__REDIS_SENTINEL,
    WEIR__REDIS_UNIX,
};

/* What answers while Redis does not. */
enum weir__redis_fail { WEIR__FAIL_LOCAL, WEIR__FAIL_OPEN, WEIR__FAIL_CLOSED };
extern const char *const weir__redis_fail_names[]; /* by value; NULL at the end */

/* What decides inside Redis; auto takes the module where it is loaded, else a script. */
enum weir__redis_engine {
    WEIR__ENGINE_AUTO,
    WEIR__ENGINE_MODULE,
    WEIR__ENGINE_LUA,
    WEIR__ENGINE_FUNCTION,
};

struct weir__redis_host {
    char name
        [256]; /* a name or an address, IPv6 without its brackets; names have at most 253 bytes */
    uint16_t port;
};

struct weir__redis_url {
    enum weir__redis_kind kind;
    bool tls;
    bool verify; /* TLS: the server's certificate must be good; verify=yes, the default */
    uint32_t host_count;
    struct weir__redis_host hosts[WEIR__REDIS_HOSTS_MAX];
    char user[256];             /* empty: the default user */
    char password[4096];        /* empty: none; cloud tokens are passwords of some thousand bytes */
    char password_file[1024];   /* password-file=, instead of a password */
    char path[108];             /* UNIX: the socket; the system's own limit */
    char master[256];           /* SENTINEL: the name of the master */
    int32_t db;                 /* 0, the default; a cluster has no other */
    char prefix[256];           /* before every key; prefix=, weir: */
    int64_t deadline_us;        /* for an answer; deadline=, 50ms */
    enum weir__redis_fail fail; /* fail=local, the default, open or closed */
    int32_t peers;              /* how many share a limit while each is on its own; peers=, 1 */
    uint32_t slices;            /* of a limit's size, in millionths; slices=, 0: none */
    int64_t slice_life_us;      /* slice-life=, 1s */
    uint64_t size;              /* bytes of the local fallback's zone; size=, 16m */
    enum weir__redis_engine engine; /* engine=auto, the default, module, lua or function */
    char ca[1024];                  /* TLS: ca=, a file; empty: the system's */
    char cert[1024];                /* TLS: cert= and key=, who we are; both or none */
    char key[1024];
};

/* Whether the text is meant as such an address: its scheme starts with redis or rediss. */
bool weir__is_redis_url(const char *text);

/* Reads an address. 0, or WEIR_EURL with the column and a message; *ret is then as it was. */
int weir__redis_url_parse(const char *text, struct weir__redis_url *ret, weir_error *err);

/* The address in one canonical spelling, options at their defaults left out, the password as ***.
 * It reads as the same struct except the password. */
void weir__put_redis_url(struct weir__buffer *buffer, const struct weir__redis_url *url);

#endif
