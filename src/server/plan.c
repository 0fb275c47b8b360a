/* From a request's attributes to what it takes: the same for every protocol that asks the
 * policies. */
#include "server/conn.h"

#include "policy/view.h"
#include "store/store.h"

#include <assert.h>
#include <string.h>

/* The enforced items of a plan as requests, with one row per limit. */
static void plan_put_requests(struct server_planned *planned, int64_t wait_us)
{
    struct server_several *several = &planned->several;
    planned->plan.wait_us = wait_us;
    several->count = planned->plan.enforced_count;
    for (size_t i = 0; i < several->count; i++) {
        const struct weir__item *it = &planned->plan.enforced[i];
        several->requests[i] = (weir_request){.key = it->key,
                                              .limit = it->limit,
                                              .cost = it->cost,
                                              .least = it->least,
                                              .wait_us = wait_us,
                                              .detail = several->rows + several->row_count};
        several->row_count += weir_limit_count(it->limit);
    }
    assert(several->row_count <= WEIR_LIMITS_MAX);
}

int server_planned_keep(struct server_planned *planned, struct weir__span name, weir_error *err)
{
    struct weir__plan *plan = &planned->plan;
    const uint32_t settled = weir__plan_settled(plan);
    size_t kept = 0;
    for (size_t i = 0; i < plan->enforced_count; i++) {
        struct weir__item item = plan->enforced[i];
        if (name.len ? !weir__span_is(name, item.entry->name) : !(settled >> i & 1))
            continue;
        int code = weir__settles(item.limit, err);
        if (code)
            return code;
        item.cost = item.least = 0;
        plan->enforced[kept++] = item;
    }
    if (kept == 0 && name.len)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "no limit that applies is named \"%.*s\": with a policy, limit is the "
                          "name of one of its limits",
                          (int)weir__min((int64_t)name.len, 64), name.data);
    if (kept == 0)
        return weir__fail(err, WEIR_EINVAL, 0,
                          "no limit of a policy applies, so there is nothing to give back; give "
                          "the key, or the attributes that it is made of");
    plan->enforced_count = kept;
    plan->shadow_count = planned->several.row_count = 0;
    plan_put_requests(planned, 0);
    return 0;
}

/* Notes what the request was for the access log, as much of it as there is room for. */
static void plan_see_request(struct server_seen *seen, const struct weir__subject *finder)
{
    static const struct {
        const char *name;
        size_t most;
    } seeable[SERVER_SEEN] = {{"ip", 48}, {"method", 16}, {"path", 200}};
    char room[WEIR__VIEW_SCRATCH], *at = seen->text;
    for (size_t i = 0; i < SERVER_SEEN; at += seen->lens[i++]) {
        struct weir__span name = weir__span_of(seeable[i].name), value;
        if (weir__attribute_text(finder, name, room, sizeof room, &value) != WEIR__FOUND)
            value = (struct weir__span){"", 0};
        seen->lens[i] = (uint8_t)weir__min((int64_t)value.len, (int64_t)seeable[i].most);
        memcpy(at, value.data, seen->lens[i]);
    }
}

/* Whether a least can be granted: not with a wait, nor by limits that shape, nor key by key. */
static int plan_check_least(const struct server_planned *planned, weir_error *err)
{
    const struct server_several *several = &planned->several;
    for (size_t i = 0; i < several->count; i++) {
        if (!several->requests[i].least)
            continue;
        if (planned->plan.together != WEIR__TOGETHER && several->count > 1)
            return weir__fail(
                err, WEIR_EUNSUPPORTED, 0,
                "a request with a least needs all its keys in one slot of the cluster");
        int code = weir__least_check(&several->requests[i], err);
        if (code)
            return code;
    }
    return 0;
}

int server_planned_make(struct server_conn *conn, const struct server_plan_question *question,
                        struct server_planned *planned, weir_error *err)
{
    const struct weir__policies *policies = conn->thread->rules->policies;
    const struct weir__span *name = question->policy.len ? &question->policy : NULL;
    bool looks = question->explains || question->past_lists;
    int code = looks
                   ? weir__policies_look(policies, name, question->subject, question->key,
                                         question->cost, !question->past_lists, &planned->plan, err)
                   : weir__policies_plan(policies, name, question->subject, question->key,
                                         question->cost, &planned->plan, err);
    if (code)
        return code;
    weir__plan_set_least(&planned->plan, question->least);
    plan_put_requests(planned, question->wait_us);
    code = plan_check_least(planned, err);
    if (code)
        return code;
    if (conn->thread->log && conn->thread->server->config.access_log_request)
        plan_see_request(&planned->seen, question->subject);
    return 0;
}
