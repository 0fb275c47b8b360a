/*
 * Whom suggestions hurt: keys that they deny although they are no suspects. Such a key may be an
 * office behind one address, and among many suspects nobody would see it. The whole log is decided
 * by all suggestions once more, as `weir replay` would; a closer look at those that lose most
 * follows.
 */
#include "desk/suggest.h"

#include <string.h>

#define ALWAYS 3 /* so many are named; and more, if they lose more than a tenth of the first */
#define LITTLE 10

/* Those that a suggestion denies most, in an engine that tried it on the whole log. */
static void hurt_read(const struct desk_suggest *suggest, struct desk_suggestion *it,
                      const struct desk_engine *engine, size_t i)
{
    const struct desk_tally *tally = &engine->tallies[i];
    const struct desk_key *top[DESK_HURT];
    size_t n = desk_engine_most_hurt(engine, i, top, DESK_HURT), k = 0;
    it->hurt_keys = tally->keys_denied - tally->suspect_keys_denied;
    it->denied = tally->denied;
    for (; k < n; k++) {
        struct desk_hurt *hurt = &it->hurt[k];
        *hurt = (struct desk_hurt){.profile.middle_us = suggest->parts[1].from_us,
                                   .requests = top[k]->requests,
                                   .denied = desk_key_mark(engine, top[k], i)->denied};
        if (k >= ALWAYS && LITTLE * hurt->denied <= it->hurt[0].denied)
            break;
        memcpy(hurt->profile.hash, top[k]->hash, sizeof hurt->profile.hash);
    }
    it->hurt_count = k;
}

/* Whether good keys lose most of what is denied. One of them with one agent may be a scraper. */
static void hurt_judge(struct desk_suggestion *it)
{
    int64_t good = 0;
    size_t clients = 0;
    for (size_t k = 0; k < it->hurt_count; k++) {
        const struct desk_hurt *hurt = &it->hurt[k];
        if (!desk_profile_is_good(&hurt->profile))
            continue;
        good += hurt->denied;
        clients += weir__max(hurt->profile.agent_count, 1);
    }
    it->good_part = it->denied > 0 ? (double)good / (double)it->denied : 0;
    it->denies_good = 2 * good > it->denied;
    it->hurts_people = it->denies_good && clients > 1;
}

/* Whether a suggestion denied keys that are no suspects. One for all together denies whoever comes
 * at a bad time: there is nobody to name. */
static bool hurt_anybody(const struct desk_suggestion *it)
{
    return !it->total && it->chosen.others_keys_denied + it->outcome.others_keys_denied > 0;
}

static int hurt_try(struct desk_suggest *suggest, weir_error *err)
{
    const struct desk_part all = {.from_us = INT64_MIN, .to_us = INT64_MAX};
    struct desk_engine *engine;
    int code =
        desk_suggest_engine(suggest, suggest->candidates, suggest->count, false, &engine, err);
    if (code)
        return code;
    code = desk_suggest_pass(suggest, &all, engine, err);
    for (size_t i = 0; i < suggest->count && code == 0; i++) {
        if (hurt_anybody(&suggest->suggestions[i]))
            hurt_read(suggest, &suggest->suggestions[i], engine, i);
    }
    desk_engine_free(engine);
    return code;
}

int desk_hurt_find(struct desk_suggest *suggest, weir_error *err)
{
    const struct desk_part all = {.from_us = INT64_MIN, .to_us = INT64_MAX};
    struct desk_profile *profiles[DESK_SUGGESTIONS * DESK_HURT];
    size_t count = 0;
    bool any = false;
    for (size_t i = 0; i < suggest->count; i++)
        any |= hurt_anybody(&suggest->suggestions[i]);
    int code = any ? hurt_try(suggest, err) : 0;
    for (size_t i = 0; i < suggest->count; i++) {
        struct desk_suggestion *it = &suggest->suggestions[i];
        for (size_t k = 0; k < it->hurt_count; k++)
            profiles[count++] = &it->hurt[k].profile;
    }
    if (code || count == 0)
        return code;
    const struct desk_pass pass = {
        .profiles = profiles, .profile_count = count, .every_status = suggest->options.by_status};
    code = desk_suggest_read(suggest, &all, pass, err);
    for (size_t i = 0; i < suggest->count; i++)
        hurt_judge(&suggest->suggestions[i]);
    return code;
}
