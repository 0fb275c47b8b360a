/*
 * A closer look at a few keys, in a pass of their own over the whole log: how they were answered,
 * with which programs they asked, and for what. A reader must decide who of them is a friend.
 */
#include "desk/suggest.h"

#include <string.h>

#define BOTH_PARTS 10  /* one request of ten, at least, is in the quieter one */
#define GOOD_BELOW 400 /* a scanner that finds nothing is not served, nor who gets errors */

const int desk_refusals[DESK_REFUSALS] = {401, 403, 429};
const char *const desk_profile_carried[4] = {"status", "header.user-agent", "path", "method"};

bool desk_profile_is_served(const struct desk_profile *profile)
{
    return profile->answers > 0 && 2 * profile->good >= profile->answers;
}

bool desk_profile_is_good(const struct desk_profile *profile)
{
    int64_t few = weir__min(profile->early, profile->requests - profile->early);
    return desk_profile_is_served(profile) && BOTH_PARTS * few >= profile->requests;
}

static void profile_note_status(struct desk_profile *it, struct weir__span status)
{
    int64_t number;
    if (!weir__span_whole(status, 100, 599, &number))
        return;
    it->answers++;
    it->good += number < GOOD_BELOW;
    for (size_t i = 0; i < DESK_REFUSALS; i++)
        it->refused[i] += number == desk_refusals[i];
}

static void profile_note_agent(struct desk_profile *it, struct weir__span agent)
{
    size_t len = agent.len < DESK_HEAVY_TEXT - 1 ? agent.len : DESK_HEAVY_TEXT - 1, i = 0;
    while (len < agent.len && len > 0 && (agent.data[len] & 0xc0) == 0x80)
        len--; /* not within a character */
    while (i < it->agent_count &&
           (memcmp(it->agents[i].text, agent.data, len) != 0 || it->agents[i].text[len] != 0))
        i++;
    if (i == DESK_AGENTS) {
        it->more_agents = true;
        return;
    }
    if (i == it->agent_count) {
        it->agents[i] = (struct desk_agent){.requests = 0};
        memcpy(it->agents[i].text, agent.data, len);
        it->agents[i].cut = len < agent.len;
        it->agent_count++;
    }
    it->agents[i].requests++;
}

static void vote_note(struct desk_vote *it, struct weir__span text)
{
    bool fits = text.len > 0 && text.len < DESK_HEAVY_TEXT;
    if (fits && weir__span_is(text, it->text)) {
        it->votes++;
        it->requests++;
    } else if (it->votes > 0) {
        it->votes--;
    } else if (fits) {
        memcpy(it->text, text.data, text.len);
        it->text[text.len] = 0;
        it->votes = it->requests = 1;
    }
}

static void vote_note_path(struct desk_vote *it, struct weir__span path)
{
    const char *query = memchr(path.data, '?', path.len);
    path.len = query ? (size_t)(query - path.data) : path.len;
    vote_note(it, path);
}

void desk_profile_note(struct desk_profile *it, const struct desk_arrival *arrival)
{
    struct weir__span value;
    if (memcmp(it->hash, arrival->hash, sizeof it->hash) != 0)
        return;
    it->requests++;
    it->early += arrival->time_us < it->middle_us;
    if (desk_arrival_value(arrival, 0, &value))
        profile_note_status(it, value);
    if (desk_arrival_value(arrival, 1, &value))
        profile_note_agent(it, value);
    if (desk_arrival_value(arrival, 2, &value))
        vote_note_path(&it->path, value);
}

void desk_asked_note(struct desk_asked *it, const struct desk_arrival *arrival)
{
    struct weir__span value;
    it->requests++;
    if (desk_arrival_value(arrival, 2, &value))
        vote_note_path(&it->path, value);
    if (desk_arrival_value(arrival, 3, &value))
        vote_note(&it->method, value);
}
