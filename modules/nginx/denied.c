/*
 * Denials remembered by a worker, so that a client that hammers does not reach Redis with every
 * request. The table is the library's (src/remote/denied.h); a worker has one thread, so it needs
 * no lock. What depends on the answer is not remembered: it may be given back at any moment.
 */
#include "ngx_http_weir.h"

#include "remote/slices.h"

#define LONGEST_US 1000000

ngx_http_weir_denied_t *ngx_http_weir_denied_make(const struct weir__redis_url *url)
{
    ngx_http_weir_denied_t *denied = calloc(1, sizeof *denied);
    const struct weir__slicing slicing = weir__slicing_of(url);
    if (denied && weir__denied_init(denied, &slicing)) {
        free(denied);
        return NULL;
    }
    return denied;
}

void ngx_http_weir_denied_free(ngx_http_weir_denied_t *denied)
{
    free(denied);
}

bool ngx_http_weir_denied_call(const ngx_http_weir_denied_t *denied,
                               const ngx_http_weir_plan_t *plan, struct weir__denied_call *ret)
{
    return !plan->depends && plan->verb == WEIR__VERB_TAKE &&
           weir__denied_call(denied, plan->requests, plan->count, ret);
}

bool ngx_http_weir_denied_find(ngx_http_weir_denied_t *denied, ngx_http_weir_plan_t *plan,
                               int64_t now_us)
{
    struct weir__denied_call call;
    return ngx_http_weir_denied_call(denied, plan, &call) &&
           weir__denied_find(denied, &call, now_us, plan->rows, &plan->folded);
}

void ngx_http_weir_denied_note(ngx_http_weir_denied_t *denied, const struct weir__denied_call *call,
                               const ngx_http_weir_plan_t *plan, int64_t asked_us,
                               int64_t longest_us)
{
    if (!plan->failed)
        weir__denied_note(denied, call, plan->rows, &plan->folded, asked_us, weir__mono_us(),
                          ngx_min(longest_us, LONGEST_US));
}

void ngx_http_weir_denied_forget(ngx_http_weir_denied_t *denied, weir_key key)
{
    if (denied)
        weir__denied_forget(denied, key);
}
