/*
 * Heavy keys: a few that ask for far more than all others, like an office, a crawler, a probe or
 * an attacker. Because of them a limit for all is loose. They are found in the first part of the
 * log, by their busiest hour (or what the log is long enough for). The whole log says what is known
 * of them: a reader must decide who is a friend.
 *
 * What holds: there are at most DESK_HEAVY, and their texts are addresses or plain words, so they
 * can be pasted. If one is not, there is no list.
 */
#include "desk/suggest.h"

#include "policy/view.h"

#include <string.h>

#define GAP 3         /* the least of them asks for so many times as much as anybody else */
#define LEAST 20      /* requests: smaller numbers differ by accident */
#define FEW_OF_KEYS 4 /* at most one key of four */

/* ---- who they are ---- */

/* The longest span that the first part has two of; 0: it is too short. */
static size_t heavy_span(const struct desk_suggest *suggest)
{
    int64_t half_us = suggest->parts[0].to_us - suggest->parts[0].from_us;
    size_t span = 0;
    for (size_t i = 1; i < suggest->peak_count && half_us >= 2 * desk_peak_us[i]; i++)
        span = i;
    return span;
}

/* An address, a network, or a short word without anything that YAML or nginx reads. */
static bool heavy_is_plain(struct weir__span text)
{
    struct weir__network network;
    if (text.len == 0 || text.len >= DESK_HEAVY_TEXT)
        return false;
    if (!weir__network_read(text.data, text.len, &network))
        return true;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && !(i > 0 && c && strchr("._@-", c)))
            return false;
    }
    return true;
}

void desk_heavy_find(struct desk_suggest *suggest, const struct desk_engine *engine)
{
    struct desk_heavy *heavy = &suggest->heavy;
    const struct desk_key *top[DESK_HEAVY + 1];
    size_t span = heavy_span(suggest), few = 0;
    heavy->count = 0;
    if (span == 0 || suggest->goal.protect > 0 || desk_engine_is_lossy(engine))
        return;
    size_t n = desk_engine_busiest(engine, span, top, DESK_HEAVY + 1);
    for (size_t i = 1; i < n && FEW_OF_KEYS * i <= engine->keys; i++) {
        int64_t peak = desk_key_peaks(engine, top[i - 1])[span].peak;
        if (peak >= LEAST && peak >= GAP * desk_key_peaks(engine, top[i])[span].peak)
            few = i;
    }
    for (size_t i = 0; i < few; i++) {
        struct weir__span text = desk_key_text(engine, top[i]);
        if (top[i]->text_cut || !heavy_is_plain(text))
            return;
        heavy->keys[i] = (struct desk_heavy_key){.would_deny = 0};
        memcpy(heavy->keys[i].profile.hash, top[i]->hash, sizeof top[i]->hash);
        memcpy(heavy->keys[i].text, text.data, text.len);
        heavy->texts[i] = heavy->keys[i].text;
    }
    heavy->count = few;
}

void desk_heavy_keep_denied(struct desk_heavy *heavy, const struct desk_engine *engine,
                            size_t candidate)
{
    size_t kept = 0;
    for (size_t i = 0; i < heavy->count; i++) {
        struct desk_heavy_key *it = &heavy->keys[i];
        const struct desk_key *key = desk_engine_find(engine, it->profile.hash);
        it->would_deny = key ? desk_key_mark(engine, key, candidate)->denied : 0;
        if (it->would_deny > 0)
            heavy->keys[kept++] = *it;
    }
    heavy->count = kept;
    for (size_t i = 0; i < kept; i++)
        heavy->texts[i] = heavy->keys[i].text;
}

bool desk_heavy_stops_friend(const struct desk_heavy *heavy, const struct desk_engine *engine,
                             size_t candidate)
{
    for (size_t i = 0; i < heavy->count; i++) {
        const struct desk_profile *it = &heavy->keys[i].profile;
        const struct desk_key *key = desk_engine_find(engine, it->hash);
        if (desk_profile_is_served(it) && key &&
            2 * (int64_t)desk_key_mark(engine, key, candidate)->denied >= key->requests)
            return true;
    }
    return false;
}
