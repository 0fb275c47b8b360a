/*
 * Which server has which keys: the cluster slot of a key, and who has which slot. The nodes of a
 * cluster are asked for CLUSTER SLOTS, Sentinels for the address of the master that they watch.
 * That is done over short connections of its own: links carry calls and nothing else.
 */
#include "remote/fleet.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_BYTES (4u << 20) /* a map of many small ranges, with every replica */
#define REPLY_NODES 131072
#define ASKED_MAX 4 /* servers asked in one look */

/* ---- cluster slots ---- */

/* A key in two parts, read as one. */
struct topology_key {
    const char *prefix;
    size_t prefix_len;
    const char *name;
};

static char topology_byte_at(const struct topology_key *key, size_t i)
{
    return i < key->prefix_len ? key->prefix[i] : key->name[i - key->prefix_len];
}

/* CRC16 (polynomial 0x1021, start 0), four bits at a time. */
static uint16_t topology_crc16(const struct topology_key *key, size_t from, size_t to)
{
    static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                       0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                       0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    uint16_t crc = 0;
    for (size_t i = from; i < to; i++) {
        uint8_t byte = (uint8_t)topology_byte_at(key, i);
        crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte >> 4) & 15]);
        crc = (uint16_t)(crc << 4 ^ table[(crc >> 12 ^ byte) & 15]);
    }
    return crc;
}

/* The first place of a byte, searched from a place on; or `len`. */
static size_t topology_find_byte(const struct topology_key *key, size_t from, size_t len,
                                 char wanted)
{
    while (from < len && topology_byte_at(key, from) != wanted)
        from++;
    return from;
}

uint16_t weir__cluster_slot(const char *prefix, size_t prefix_len, const char *name,
                            size_t name_len)
{
    struct topology_key key = {prefix, prefix_len, name};
    size_t len = prefix_len + name_len;
    size_t open = topology_find_byte(&key, 0, len, '{');
    size_t close = topology_find_byte(&key, open, len, '}');
    bool tagged = close < len && close > open + 1;
    uint16_t crc = tagged ? topology_crc16(&key, open + 1, close) : topology_crc16(&key, 0, len);
    return crc % WEIR__CLUSTER_SLOTS;
}

/* ---- reading replies ---- */

static bool topology_is_integer(const struct weir__resp_node *node, int64_t least, int64_t most)
{
    return node->type == WEIR__RESP_INTEGER && node->integer >= least && node->integer <= most;
}

/* Copies a host's name; a missing one is that of the server which was asked. */
static bool topology_read_host(const struct weir__talk *talk, const struct weir__resp_node *name,
                               const char *asked, char ret[256])
{
    if (name->type == WEIR__RESP_NULL || name->len == 0) {
        snprintf(ret, 256, "%s", asked);
        return true;
    }
    if (name->type != WEIR__RESP_BULK || name->len > 253 || talk->data[name->at] == '?')
        return false;
    memcpy(ret, talk->data + name->at, name->len);
    ret[name->len] = 0;
    return true;
}

/* ---- cluster ---- */

/* One range, [start, end, [host, port, …], replicas …], into the new map. */
static bool topology_read_range(struct weir__fleet *fleet, const struct weir__talk *talk,
                                uint32_t i, const char *asked, uint16_t *map)
{
    const struct weir__resp_node *range = &talk->nodes[i];
    const struct weir__resp_node *owner = range + 3;
    struct weir__redis_host host = {.name = ""};
    if (range->type != WEIR__RESP_ARRAY || range->len < 3 ||
        !topology_is_integer(range + 1, 0, WEIR__CLUSTER_SLOTS - 1) ||
        !topology_is_integer(range + 2, range[1].integer, WEIR__CLUSTER_SLOTS - 1))
        return false;
    if (owner->type != WEIR__RESP_ARRAY || owner->len < 2 ||
        !topology_is_integer(owner + 2, 1, UINT16_MAX))
        return false;
    if (!topology_read_host(talk, owner + 1, asked, host.name))
        return false;
    host.port = (uint16_t)owner[2].integer;
    unsigned node = weir__fleet_index(fleet, weir__fleet_node(fleet, &host));
    if (node == fleet->count)
        return false;
    for (int64_t slot = range[1].integer; slot <= range[2].integer; slot++)
        map[slot] = (uint16_t)(node + 1);
    return true;
}

static void topology_adopt(struct weir__fleet *fleet, const uint16_t *map)
{
    assert(weir__fleet_is_keeper(fleet) && fleet->count <= WEIR__NODES_MAX);
    bool owns[WEIR__NODES_MAX] = {false};
    uint32_t gaps = 0;
    for (unsigned slot = 0; slot < WEIR__CLUSTER_SLOTS; slot++) {
        fleet->slots[slot] = map[slot];
        gaps += !map[slot];
        if (map[slot])
            owns[map[slot] - 1] = true;
    }
    fleet->gaps = gaps;
    for (unsigned i = 0; i < fleet->count; i++)
        fleet->nodes[i]->owns = owns[i];
}

static enum weir__talk_result topology_read_slots(struct weir__fleet *fleet,
                                                  const struct weir__talk *talk, const char *asked,
                                                  char why[WEIR__WHY_SIZE])
{
    uint16_t map[WEIR__CLUSTER_SLOTS] = {0};
    const struct weir__resp_node *all = &talk->nodes[0];
    if (all->type == WEIR__RESP_ERROR) {
        snprintf(why, WEIR__WHY_SIZE, "CLUSTER SLOTS: %.*s", (int)(all->len > 160 ? 160 : all->len),
                 talk->data + all->at);
        return WEIR__TALK_REFUSED;
    }
    bool sound = all->type == WEIR__RESP_ARRAY && all->len > 0;
    uint32_t i = 1;
    for (uint32_t n = 0; sound && n < all->len; n++, i = talk->nodes[i].next)
        sound = topology_read_range(fleet, talk, i, asked, map);
    if (!sound) {
        snprintf(why, WEIR__WHY_SIZE, "the cluster at %.100s has no slots assigned", asked);
        return WEIR__TALK_FAILED;
    }
    topology_adopt(fleet, map);
    return WEIR__TALK_OK;
}

static enum weir__talk_result topology_ask_cluster(struct weir__fleet *fleet,
                                                   const struct weir__redis_host *host,
                                                   const struct weir__patience *patience,
                                                   char why[WEIR__WHY_SIZE])
{
    static const char *const words[] = {"CLUSTER", "SLOTS"};
    struct weir__talk talk;
    enum weir__talk_result result =
        weir__talk_open(&talk, fleet->url, host, patience, REPLY_BYTES, REPLY_NODES, why);
    if (result == WEIR__TALK_OK)
        result = weir__talk_auth(&talk, fleet->url);
    if (result == WEIR__TALK_OK)
        result = weir__talk_introduce(&talk);
    if (result == WEIR__TALK_OK)
        result = weir__talk_ask(&talk, 2, words);
    if (result == WEIR__TALK_OK)
        result = topology_read_slots(fleet, &talk, host->name, why);
    weir__talk_close(&talk);
    return result;
}

/* Nodes with a connection first, then the others and those of the address, in turn. */
static enum weir__talk_result topology_look_at_cluster(struct weir__fleet *fleet,
                                                       const struct weir__patience *patience,
                                                       char why[WEIR__WHY_SIZE])
{
    enum weir__talk_result result = WEIR__TALK_FAILED;
    unsigned known = fleet->count, all = known + fleet->url->host_count, asked = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < all && asked < ASKED_MAX; i++) {
            unsigned turn = (fleet->turn + i) % all;
            bool up = turn < known && fleet->nodes[turn]->link.state == WEIR__LINK_UP;
            if (up != (pass == 0))
                continue;
            struct weir__redis_host host =
                turn < known ? fleet->nodes[turn]->host : fleet->url->hosts[turn - known];
            int64_t now = weir__mono_us(); /* each gets an equal share of the time that is left */
            struct weir__patience share = {now + (patience->until_us - now) / (ASKED_MAX - asked),
                                           patience->stop_fd};
            result = topology_ask_cluster(fleet, &host, &share, why);
            asked++;
            if (result != WEIR__TALK_OK || fleet->gaps > 0) /* another one may know more */
                fleet->turn = turn + 1;
            if (result == WEIR__TALK_OK)
                return result;
        }
    }
    return result;
}

/* ---- Sentinels ---- */

static enum weir__talk_result topology_ask_master(struct weir__talk *talk, const char *master)
{
    const char *words[] = {"SENTINEL", "get-master-addr-by-name", master};
    return weir__talk_ask(talk, 3, words);
}

/* Sentinels seldom have a password; one that wants it gets that of the servers. */
static enum weir__talk_result topology_ask_sentinel(struct weir__fleet *fleet,
                                                    const struct weir__redis_host *host,
                                                    const struct weir__patience *patience,
                                                    struct weir__redis_host *ret,
                                                    char why[WEIR__WHY_SIZE])
{
    struct weir__talk talk;
    int64_t port = 0;
    enum weir__talk_result result =
        weir__talk_open(&talk, fleet->url, host, patience, 65536, 256, why);
    if (result == WEIR__TALK_OK)
        result = topology_ask_master(&talk, fleet->url->master);
    if (result == WEIR__TALK_OK && weir__node_starts(talk.data, &talk.nodes[0], "NOAUTH")) {
        result = weir__talk_auth(&talk, fleet->url);
        if (result == WEIR__TALK_OK)
            result = topology_ask_master(&talk, fleet->url->master);
    }
    if (result == WEIR__TALK_OK &&
        !(talk.nodes[0].type == WEIR__RESP_ARRAY && talk.nodes[0].len == 2 &&
          topology_read_host(&talk, &talk.nodes[1], host->name, ret->name) &&
          weir__resp_read_integer(talk.data + talk.nodes[2].at, talk.nodes[2].len, &port) &&
          port > 0 && port <= UINT16_MAX)) {
        snprintf(why, WEIR__WHY_SIZE, "the Sentinel %.80s:%u knows no master \"%.80s\"", host->name,
                 (unsigned)host->port, fleet->url->master);
        result = WEIR__TALK_FAILED;
    }
    ret->port = (uint16_t)port;
    weir__talk_close(&talk);
    return result;
}

static void topology_set_master(struct weir__fleet *fleet, const struct weir__redis_host *host)
{
    struct weir__node *node = fleet->nodes[0];
    assert(weir__fleet_is_keeper(fleet));
    if (node->host.port == host->port && !strcmp(node->host.name, host->name))
        return;
    weir__link_stop(&node->link, "another server is the master now");
    weir__lock_take(&fleet->lock);
    node->host = *host;
    weir__lock_release(&fleet->lock);
    node->was_up = false;
    node->failures = 0;
    node->next_try_us = 0;
}

static enum weir__talk_result topology_look_at_sentinels(struct weir__fleet *fleet,
                                                         const struct weir__patience *patience,
                                                         char why[WEIR__WHY_SIZE])
{
    enum weir__talk_result result = WEIR__TALK_FAILED;
    const struct weir__redis_url *url = fleet->url;
    for (unsigned i = 0; i < url->host_count; i++) {
        struct weir__redis_host master = {.name = ""};
        int64_t now = weir__mono_us();
        struct weir__patience share = {now + (patience->until_us - now) / (url->host_count - i),
                                       patience->stop_fd};
        result = topology_ask_sentinel(fleet, &url->hosts[fleet->turn % url->host_count], &share,
                                       &master, why);
        if (result == WEIR__TALK_OK) {
            topology_set_master(fleet, &master);
            return result;
        }
        fleet->turn++;
    }
    if (fleet->nodes[0]->link.state != WEIR__LINK_UP)
        weir__link_failed(&fleet->nodes[0]->link, why);
    return result;
}

enum weir__talk_result weir__topology_look(struct weir__fleet *fleet,
                                           const struct weir__patience *patience,
                                           char why[WEIR__WHY_SIZE])
{
    return fleet->url->kind == WEIR__REDIS_CLUSTER
               ? topology_look_at_cluster(fleet, patience, why)
               : topology_look_at_sentinels(fleet, patience, why);
}
