/*
 * Is a history linearizable? That is: is there one order of all its calls in which a call that
 * returned before another was made comes first, and in which the sequential model gives every call
 * the very answer that it got?
 *
 * A way is how many calls of each hand are explained so far, and the states that result. The search
 * goes on from the way that came furthest, and goes back where it ends; it never looks at the same
 * way twice. What holds:
 *   1. A hand's calls come in its own order, so the next call of each hand are all the candidates.
 *      A candidate may come
 *      next unless another one had returned before it was made.
 *   2. A candidate whose answer says that it changed nothing (a peek, a denial) comes next at once
 *      if it is explained
 *      now: in any order that has it later it can be moved here. So only the others make the search
 *      branch. (A reset
 *      may change nothing here and something later: it is one of the others.) Answers say so much
 *      of a state that
 *      nearly every wrong way ends at once.
 *   3. The order is not that of the clock readings. A call reads the clock, and then may be delayed
 *      before it decides;
 *      SPEC's t' = max(t, at) says what that means, and the core does it.
 */
#ifndef WEIR_HISTORY_CHECK_H
#define WEIR_HISTORY_CHECK_H

#include "history_model.h"

#define CHECK_WAYS_MAX                                                                             \
    100000 /* in one level; more: the history is not decided, which is a failure */

/* One way to explain a part of a history. */
struct check_way {
    uint32_t done[HISTORY_HANDS];
    struct model model;
};

struct check {
    const struct history_world *world;
    const struct history *history;
    struct check_way *ways; /* all that were found */
    size_t count, room;
    uint32_t *todo; /* of these, those to go on from; the last one first */
    size_t todo_count;
    uint32_t *index; /* by hash: way + 1; 0: none */
    size_t index_room;
    size_t most; /* ways of any history */
};

static inline void *check_grow(void *memory, size_t bytes)
{
    void *grown = realloc(memory, bytes);
    if (!grown)
        test_give_up("realloc", "out of memory for the ways of a history");
    return grown;
}

/* ---- ways ---- */

/* The bytes in use: marks fill the end. */
static inline size_t check_way_len(const struct check_way *way)
{
    return offsetof(struct check_way, model.marks) +
           (size_t)way->model.mark_count * sizeof way->model.marks[0];
}

static inline uint64_t check_way_hash(const struct check_way *way)
{
    const char *bytes = (const char *)way;
    uint64_t hash = 1, word;
    for (size_t at = 0, len = check_way_len(way); at < len; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}

static inline void check_index_put(struct check *check, uint64_t hash, size_t way)
{
    size_t at = hash & (check->index_room - 1);
    while (check->index[at])
        at = (at + 1) & (check->index_room - 1);
    check->index[at] = (uint32_t)way + 1;
}

static inline void check_make_room(struct check *check)
{
    if (check->count < check->room)
        return;
    check->room = check->room ? 2 * check->room : 4096;
    check->ways = check_grow(check->ways, check->room * sizeof *check->ways);
    check->todo = check_grow(check->todo, check->room * sizeof *check->todo);
    check->index_room = 4 * check->room;
    check->index = check_grow(check->index, check->index_room * sizeof *check->index);
    memset(check->index, 0, check->index_room * sizeof *check->index);
    for (size_t i = 0; i < check->count; i++)
        check_index_put(check, check_way_hash(&check->ways[i]), i);
}

/* Adds a way to those to go on from, unless it was found before. */
static inline void check_add(struct check *check, const struct check_way *way)
{
    check_make_room(check);
    uint64_t hash = check_way_hash(way);
    size_t len = check_way_len(way);
    for (size_t at = hash & (check->index_room - 1); check->index[at];
         at = (at + 1) & (check->index_room - 1)) {
        const struct check_way *it = &check->ways[check->index[at] - 1];
        if (check_way_len(it) == len && !memcmp(it, way, len))
            return;
    }
    memcpy(&check->ways[check->count], way, len);
    check_index_put(check, hash, check->count);
    check->todo[check->todo_count++] = (uint32_t)check->count++;
}

/* ---- candidates ---- */

/* The next call of a hand, or NULL. */
static inline const struct history_event *check_next(const struct check *check,
                                                     const struct check_way *way, size_t hand)
{
    const struct history *history = check->history;
    return way->done[hand] < history->count[hand] ? &history->events[hand][way->done[hand]] : NULL;
}

/* When the first of the candidates had returned: calls made later have to wait for it. */
static inline int64_t check_first_return(const struct check *check, const struct check_way *way)
{
    int64_t first = INT64_MAX;
    for (size_t hand = 0; hand < check->history->hands; hand++) {
        const struct history_event *event = check_next(check, way, hand);
        if (event)
            first = weir__min(first, event->return_ns);
    }
    return first;
}

static inline bool check_is_done(const struct check *check, const struct check_way *way)
{
    return check_first_return(check, way) == INT64_MAX;
}

/* Whether it changed nothing, wherever its place is. A call that was not decided in time
 * (WEIR_EBUSY) did not. */
static inline bool check_is_look(const struct history_event *event)
{
    switch (event->verb) {
    case HISTORY_PEEK:
        return true;
    case HISTORY_TAKE:
        return event->code || !event->decision.allowed || history_cost(event) == 0;
    case HISTORY_RESET:
        return event->code;
    case HISTORY_SETTLE:
        return event->code;
    }
    return false;
}

/* Explains the next call of a hand, if it may come next and is a look or not; false: it may not, or
 * it was answered differently. */
static inline bool check_step(const struct check *check, const struct check_way *way, size_t hand,
                              int64_t first_return, bool look, struct check_way *ret)
{
    struct model_answer answer;
    const struct history_event *event = check_next(check, way, hand);
    if (!event || event->call_ns > first_return || check_is_look(event) != look)
        return false;
    memcpy(ret, way, check_way_len(way));
    ret->done[hand]++;
    if (event->code == WEIR_EBUSY)
        return true;
    model_apply(check->world, &ret->model, event, &answer);
    return model_explains(event, &answer);
}

/* Explains every candidate that changes nothing. */
static inline void check_settle_down(const struct check *check, struct check_way *way)
{
    struct check_way next;
    for (bool again = true; again;) {
        int64_t first = check_first_return(check, way);
        again = false;
        for (size_t hand = 0; hand < check->history->hands; hand++) {
            if (check_step(check, way, hand, first, true, &next)) {
                way->done[hand]++;
                again = true;
            }
        }
    }
}

/* ---- the search ---- */

/* Every way to go on from this one by a call that may change something. The call that returned
 * first is tried first. */
static inline void check_branch(struct check *check, const struct check_way *way)
{
    int64_t first = check_first_return(check, way);
    size_t hands[HISTORY_HANDS], count = 0;
    for (size_t hand = 0; hand < check->history->hands; hand++) {
        const struct history_event *event = check_next(check, way, hand);
        if (!event || event->call_ns > first)
            continue;
        size_t at = count++;
        for (; at > 0 && check_next(check, way, hands[at - 1])->return_ns < event->return_ns; at--)
            hands[at] = hands[at - 1];
        hands[at] = hand;
    }
    for (size_t i = 0; i < count; i++) { /* the last added is the first to go on from */
        struct check_way next;
        if (!check_step(check, way, hands[i], first, false, &next))
            continue;
        check_settle_down(check, &next);
        check_add(check, &next);
    }
}

/* The calls that nobody can explain: the candidates of the way that came furthest. */
static inline void check_print(const struct check *check)
{
    const struct check_way *best = NULL;
    size_t most = 0;
    for (size_t i = 0; i < check->count; i++) {
        size_t done = 0;
        for (size_t hand = 0; hand < check->history->hands; hand++)
            done += check->ways[i].done[hand];
        if (!best || done > most) {
            best = &check->ways[i];
            most = done;
        }
    }
    printf("no order explains this history; %zu calls are explained, then one of these is not:\n",
           most);
    int64_t first = check_first_return(check, best);
    for (size_t hand = 0; hand < check->history->hands; hand++) {
        const struct history_event *event = check_next(check, best, hand);
        struct model_answer answer = {0};
        struct check_way copy;
        if (!event || event->call_ns > first)
            continue;
        printf("    hand %zu, call %u: ", hand, best->done[hand]);
        history_print_event(check->world, event);
        memcpy(&copy, best, check_way_len(best));
        model_apply(check->world, &copy.model, event, &answer);
        if (event->verb == HISTORY_TAKE || event->verb == HISTORY_PEEK) {
            history_print_decision("was answered", &event->decision);
            history_print_decision("the model   ", &answer.decision);
        } else {
            printf("        the model: %s\n", weir_errname(answer.code));
        }
    }
}

enum check_verdict {
    CHECK_EXPLAINED,
    CHECK_UNEXPLAINED, /* there is no such order */
    CHECK_UNDECIDED    /* there were too many ways to look at */
};

/* Whether there is an order that explains the history; `tell`: says why not. */
static inline enum check_verdict check_history(struct check *check,
                                               const struct history_world *world,
                                               const struct history *history, bool tell)
{
    struct check_way way = {0};
    check->world = world;
    check->history = history;
    check->count = check->todo_count = 0;
    memset(check->index, 0, check->index_room * sizeof *check->index);
    check_settle_down(check, &way);
    check_add(check, &way);
    while (check->todo_count > 0 && check->count <= CHECK_WAYS_MAX) {
        const struct check_way *it = &check->ways[check->todo[--check->todo_count]];
        memcpy(&way, it, check_way_len(it)); /* the ways move as they grow */
        if (check_is_done(check, &way))
            break;
        check_branch(check, &way);
    }
    if (check->count > check->most)
        check->most = check->count;
    if (check_is_done(check, &way))
        return CHECK_EXPLAINED;
    if (check->count > CHECK_WAYS_MAX) {
        if (tell)
            printf("more than %d ways to explain a part of this history\n", CHECK_WAYS_MAX);
        return CHECK_UNDECIDED;
    }
    if (tell)
        check_print(check);
    return CHECK_UNEXPLAINED;
}

static inline struct check *check_new(void)
{
    struct check *check = calloc(1, sizeof *check);
    if (!check)
        test_give_up("calloc", "out of memory");
    check_make_room(check);
    return check;
}

static inline void check_free(struct check *check)
{
    free(check->ways);
    free(check->todo);
    free(check->index);
    free(check);
}

#endif
