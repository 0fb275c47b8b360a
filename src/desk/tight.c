/*
 * Suspects that no suggestion stops: is there a window that would? An attack is mostly in the
 * second part, and limits are chosen on the first one: there nobody needed a strict limit. So the
 * strictest windows that keep the goal in the first part are tried on both parts.
 *
 * What holds: it keeps the goal in both parts. It is no suggestion, because nothing is left that
 * could judge it: the second part has helped to choose it.
 */
#include "desk/suggest.h"

#define SIZES 4 /* of a row: the strictest may miss the goal in the second part */
#define WINDOWS_MOST 24
#define HALF 2     /* a limit that lets more than half through does not stop them */
#define NEARLY 0.7 /* of the most that any denies them: other days will differ from this log */

struct tight_window {
    weir_limit *limit;
    bool exempt, good;
    struct desk_outcome parts[2];
};

struct tight {
    struct tight_window windows[WINDOWS_MOST];
    struct desk_candidate candidates[WINDOWS_MOST];
    size_t count;
};

static int tight_add(struct tight *tight, const struct desk_row *row, int size, bool exempt,
                     weir_error *err)
{
    char text[WEIR__RULE_TEXT_MAX];
    struct weir__buffer buffer = weir__buffer_over(text, sizeof text);
    struct tight_window *it = &tight->windows[tight->count];
    desk_row_put(&buffer, row, size);
    int code = weir_limit_parse(text, &it->limit, err);
    if (code)
        return code;
    it->exempt = exempt;
    it->good = true;
    tight->candidates[tight->count++] = (struct desk_candidate){"tight", it->limit, false, exempt};
    return 0;
}

/* The strictest windows that a search found. */
static int tight_collect(struct tight *tight, const struct desk_search *search, weir_error *err)
{
    int code = 0;
    for (size_t i = 0; i < search->row_count; i++) {
        const struct desk_row *row = &search->rows[i];
        for (int size = row->hi; row->kind == DESK_KIND_WINDOW && size < row->hi + SIZES; size++) {
            if (size <= row->last && tight->count < WINDOWS_MOST && code == 0)
                code = tight_add(tight, row, size, search->exempt, err);
        }
    }
    return code;
}

/* What they do in a part, and which keep the goal there. */
static int tight_try(struct tight *tight, const struct desk_search *search, size_t part,
                     weir_error *err)
{
    struct desk_suggest *suggest = search->suggest;
    struct desk_engine *engine;
    int code = desk_suggest_engine(suggest, tight->candidates, tight->count, false, &engine, err);
    if (code)
        return code;
    code = desk_suggest_pass(suggest, &suggest->parts[part], engine, err);
    for (size_t i = 0; i < tight->count && code == 0; i++) {
        struct tight_window *it = &tight->windows[i];
        struct desk_outcome *outcome = &it->parts[part];
        desk_outcome_read(suggest, engine, i, outcome);
        it->good = it->good && !desk_engine_is_lossy(engine) &&
                   (part == 0 ? desk_search_keeps(search, outcome)
                              : desk_suggest_meets(suggest, engine, i, outcome));
    }
    desk_engine_free(engine);
    return code;
}

static int64_t tight_of_suspects(const struct tight_window *it)
{
    return it->parts[0].suspects_denied + it->parts[1].suspects_denied;
}

static bool tight_is_gentler(const struct tight_window *a, const struct tight_window *b)
{
    int64_t x = a->parts[0].others_keys_denied + a->parts[1].others_keys_denied;
    int64_t y = b->parts[0].others_keys_denied + b->parts[1].others_keys_denied;
    if (x != y)
        return x < y;
    return a->parts[0].others_denied + a->parts[1].others_denied <
           b->parts[0].others_denied + b->parts[1].others_denied;
}

/* Of those that deny suspects at least half, and nearly as much as any, the one that denies the
 * fewest other keys; NULL: there is none. */
static struct tight_window *tight_best(struct tight *tight, int64_t requests)
{
    struct tight_window *best = NULL;
    int64_t most = 0;
    for (size_t i = 0; i < tight->count; i++) {
        if (tight->windows[i].good)
            most = weir__max(most, tight_of_suspects(&tight->windows[i]));
    }
    for (size_t i = 0; i < tight->count && HALF * most >= requests; i++) {
        struct tight_window *it = &tight->windows[i];
        if (it->good && HALF * tight_of_suspects(it) >= requests &&
            (double)tight_of_suspects(it) >= NEARLY * (double)most &&
            (!best || tight_is_gentler(it, best)))
            best = it;
    }
    return best;
}

int desk_tight_find(const struct desk_search searches[2], weir_error *err)
{
    struct desk_suggest *suggest = searches[0].suggest;
    struct tight tight = {.count = 0};
    bool told =
        suggest->options.spare_count > 0 || suggest->heavy.count > 0; /* whom to leave out */
    int64_t requests = suggest->parts[0].suspect_requests + suggest->parts[1].suspect_requests;
    int code = tight_collect(&tight, &searches[0], err);
    if (code == 0 && told)
        code = tight_collect(&tight, &searches[1], err);
    for (size_t part = 0; part < 2 && code == 0 && tight.count > 0; part++)
        code = tight_try(&tight, &searches[0], part, err);
    struct tight_window *best = code == 0 ? tight_best(&tight, requests) : NULL;
    if (best) {
        suggest->tight.limit = best->limit;
        suggest->tight.exempt = best->exempt;
        best->limit = NULL;
    }
    for (size_t i = 0; i < tight.count; i++)
        weir_limit_free(tight.windows[i].limit);
    return code;
}
