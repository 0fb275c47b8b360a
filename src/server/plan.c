/* From a request's attributes to what it takes: the same for every protocol that asks the
 * policies. */
#include "server/conn.h"

#include "policy/view.h"

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
                                              .wait_us = wait_us,
                                              .detail = several->rows + several->row_count};
        several->row_count += weir_limit_count(it->limit);
    }
    assert(several->row_count <= WEIR_LIMITS_MAX);
}

size_t server_planned_leased(struct server_planned *planned)
{
    size_t found = 0;
    for (size_t i = 0; i < planned->several.count; i++) {
        if (weir__has_leases(planned->several.requests[i].limit)) {
            planned->leased = i;
            found++;
        }
    }
    return found;
}

/* Notes one attribute for the access log, as much of it as there is room for. */
static uint8_t plan_see(struct server_seen *seen, size_t at, size_t most,
                        const struct weir__subject *finder, const char *name)
{
    char room[WEIR__VIEW_SCRATCH];
    struct weir__span value;
    if (weir__attribute_text(finder, weir__span_of(name), room, sizeof room, &value) != WEIR__FOUND)
        return 0;
    size_t len = value.len < most ? value.len : most;
    memcpy(seen->text + at, value.data, len);
    return (uint8_t)len;
}

static void plan_see_request(struct server_seen *seen, const struct weir__subject *finder)
{
    seen->ip_len = plan_see(seen, 0, 48, finder, "ip");
    seen->method_len = plan_see(seen, seen->ip_len, 16, finder, "method");
    seen->path_len = plan_see(seen, (size_t)seen->ip_len + seen->method_len, 200, finder, "path");
}

int server_planned_make(struct server_conn *conn, const struct server_plan_question *question,
                        struct server_planned *planned, weir_error *err)
{
    int code = weir__policies_plan(
        conn->thread->rules->policies, question->policy.len ? &question->policy : NULL,
        question->subject, question->key, question->cost, &planned->plan, err);
    if (code)
        return code;
    plan_put_requests(planned, question->wait_us);
    if (conn->thread->log && conn->thread->server->config.access_log_request)
        plan_see_request(&planned->seen, question->subject);
    return 0;
}
