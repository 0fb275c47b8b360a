/*
 * The keeper's own conversation with a server, one step after the other: connecting, proving who we
 * are, learning what the server is. Every step shares one deadline and can be stopped.
 */
#ifndef WEIR_TALK_H
#define WEIR_TALK_H

#include "remote/link.h"

/* REFUSED: trying again will hardly change it. */
enum weir__talk_result { WEIR__TALK_OK = 0, WEIR__TALK_FAILED = -1, WEIR__TALK_REFUSED = -2 };

struct weir__talk {
    struct weir__conn conn;
    struct weir__patience patience;
    struct weir__resp_reader reader;
    struct weir__resp_node *nodes; /* of the last reply, until the next is read */
    const char *data;              /* what their places count from */
    char *in;
    size_t in_size, start, end;
    char *why; /* WEIR__WHY_SIZE bytes of the caller's */
};

/* Connects, with room for replies of `bytes` and `nodes` elements. */
enum weir__talk_result weir__talk_open(struct weir__talk *talk, const struct weir__redis_url *url,
                                       const struct weir__redis_host *host,
                                       const struct weir__patience *patience, size_t bytes,
                                       uint32_t nodes, char why[WEIR__WHY_SIZE]);
/* Closes the connection, unless the caller took it over. */
void weir__talk_close(struct weir__talk *talk);

/* Sends a command. */
enum weir__talk_result weir__talk_send(struct weir__talk *talk, size_t n,
                                       const char *const words[]);
/* The next reply, which may be an error reply. */
enum weir__talk_result weir__talk_read(struct weir__talk *talk);
/* Both. */
enum weir__talk_result weir__talk_ask(struct weir__talk *talk, size_t n, const char *const words[]);

#define WEIR__PASSWORD_SIZE sizeof(((struct weir__redis_url *)0)->password)
/* The address's password, or what its password file holds now; false: that cannot be read. */
bool weir__redis_password(const struct weir__redis_url *url, char ret[WEIR__PASSWORD_SIZE]);

/* AUTH with the address's user and password, or what its password file holds now. */
enum weir__talk_result weir__talk_auth(struct weir__talk *talk, const struct weir__redis_url *url);

/* Tells the server what we are called. */
enum weir__talk_result weir__talk_introduce(struct weir__talk *talk);

/* A connection ready for calls, and what its server is. REFUSED: the server will not have us. */
enum weir__talk_result weir__handshake(const struct weir__redis_url *url,
                                       const struct weir__redis_host *host,
                                       const struct weir__patience *patience,
                                       struct weir__conn *ret, struct weir__server *ret_server,
                                       char why[WEIR__WHY_SIZE]);

/* Whether a node is text that starts with a word. */
bool weir__node_starts(const char *data, const struct weir__resp_node *node, const char *word);

#endif
