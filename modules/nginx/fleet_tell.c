/*
 * What a worker tells of a store, in the log: that Redis does not decide, or a part of it, and that
 * it decides again; that answers come too late; what Redis refuses.
 *
 *     fleet.c ─► note: how each query ended ─► counts ─► tell, once a second: what has changed
 *
 * One line each, and those that would come again and again once a minute at most.
 */
#include "ngx_http_weir.h"

#include "base/duration.h"

#define LATE_EVERY_US INT64_C(60000000) /* how often it is logged that some answers are late */
#define REFUSALS_US 1000000             /* and how often refusals */

/* How much of a store does not decide; kept in `told`. */
enum { FLEET_UP, FLEET_PARTLY, FLEET_DOWN };

/* Who decides while Redis does not; and the same when it is over, before a number of requests. */
static const struct {
    const char *meanwhile, *was;
} fleet_words[] = {
    [WEIR__FAIL_LOCAL] = {"the zone decides meanwhile", "requests that the zone decided"},
    [WEIR__FAIL_OPEN] = {"everything passes meanwhile", "requests that passed"},
    [WEIR__FAIL_CLOSED] = {"everything is rejected meanwhile", "requests that were rejected"},
};

const char *ngx_http_weir_fleet_meanwhile(const ngx_http_weir_store_t *store)
{
    return fleet_words[store->url.fail].meanwhile;
}

/* ---- how a query ended ---- */

static void tell_refusal(const ngx_http_weir_store_t *store, ngx_http_weir_fleet_seen_t *seen,
                         const struct weir__job *job)
{
    int64_t now = weir__mono_us();
    if (seen->refusal_us && now - seen->refusal_us < REFUSALS_US)
        return;
    seen->refusal_us = now;
    ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "weir: %V: the server refused: %s", &store->text,
                  job->error[0] ? job->error : weir_strerror(job->code));
}

void ngx_http_weir_fleet_note(const ngx_http_weir_store_t *store, ngx_http_weir_fleet_seen_t *seen,
                              const ngx_http_weir_job_t *job)
{
    if (job->job.code == WEIR_EUNREACHABLE && !job->decides)
        return;
    if (job->job.code == WEIR_EUNREACHABLE) {
        seen->unreachable++;
        seen->decides = false;
        seen->lost += job->lost;
        ngx_memcpy(seen->why, job->job.error, sizeof seen->why);
        return;
    }
    seen->done += job->decides;
    if (job->decides)
        seen->decides = job->job.code == 0;
    if (job->job.code)
        tell_refusal(store, seen, &job->job);
}

/* ---- whether the store decides ---- */

/* Why answers did not come that no server refused. */
static void tell_put_cause(const ngx_http_weir_store_t *store, bool lost, struct weir__buffer *why)
{
    if (lost) {
        weir__put_text(why, ": the connection was lost");
    } else {
        weir__put_text(why, " within ");
        weir__put_duration(why, store->url.deadline_us, false);
    }
}

/* Judged by the store's servers and its last jobs; if not all of it decides, why. An outage is over
 * when something was decided, and not for lack of queries. */
static unsigned tell_judge(const ngx_http_weir_store_t *store, weir_store *remote,
                           const ngx_http_weir_fleet_seen_t *seen, struct weir__buffer *why)
{
    struct weir__remote_look look;
    uint64_t missed = seen->unreachable - seen->last.unreachable;
    uint64_t done = seen->done - seen->last.done;
    weir__remote_look(remote, &look);
    unsigned silent = look.reached ? look.undecided : look.away;
    bool over = seen->decides && look.refusing == 0;
    if (look.reached && missed <= done && (missed == 0 || look.refusing == 0))
        return over ? FLEET_UP : seen->told;
    if (look.partly)
        weir__put_format(why, "%u of %u servers %s: ", ngx_max(1, silent), look.servers,
                         look.reached ? "did not decide" : "cannot be reached");
    if (look.partly || !look.reached) {
        weir__put_text(why, look.why);
    } else if (seen->why[0]) {
        weir__put_text(why, seen->why);
    } else {
        weir__put_format(why, "%llu of %llu answers did not come", (unsigned long long)missed,
                         (unsigned long long)missed + done);
        tell_put_cause(store, seen->lost - seen->last.lost == missed, why);
    }
    return look.partly ? FLEET_PARTLY : FLEET_DOWN;
}

/* Logs that an outage begins, or that it now is all of the store; and that it is over. */
static void tell_change(const ngx_http_weir_store_t *store, ngx_http_weir_fleet_seen_t *seen,
                        unsigned now, const char *why)
{
    if (now > seen->told)
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "weir: %V: %s; %s%s", &store->text, why,
                      now == FLEET_PARTLY ? "for their keys, " : "",
                      fleet_words[store->url.fail].meanwhile);
    if (now == FLEET_UP && seen->told)
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0, "weir: %V: decides again; meanwhile %s: %uL",
                      &store->text, fleet_words[store->url.fail].was,
                      (uint64_t)(seen->requests - seen->down_requests));
    seen->told = now == FLEET_UP ? FLEET_UP : ngx_max(now, seen->told);
}

/* ---- answers that are late ---- */

static void tell_forget_late(ngx_http_weir_fleet_seen_t *seen)
{
    seen->late.first_us = 0;
    seen->late.done = seen->done;
    seen->late.unreachable = seen->unreachable;
    seen->late.lost = seen->lost;
    seen->late.requests = seen->requests;
}

/* Logs how many answers did not come although Redis decides: those that are late, which a longer
 * deadline would help; or if there are none, those whose connection was lost. */
static void tell_missed(const ngx_http_weir_store_t *store, const ngx_http_weir_fleet_seen_t *seen,
                        uint64_t missed, uint64_t lost)
{
    uint64_t late = missed - lost, told = late ? late : lost;
    char room[64];
    struct weir__buffer cause = weir__buffer_over(room, sizeof room);
    tell_put_cause(store, !late, &cause);
    ngx_log_error(
        NGX_LOG_ERR, ngx_cycle->log, 0,
        "weir: %V: %uL of %uL answers did not come%s%s%s; meanwhile %s: %uL", &store->text, told,
        missed + seen->done - seen->late.done, room, late ? "; raise deadline=" : "",
        late && store->url.fail != WEIR__FAIL_CLOSED
            ? ", and use fail=closed for limits that must not be exceeded"
            : "",
        fleet_words[store->url.fail].was, (uint64_t)(seen->requests - seen->late.requests));
}

/* Does so once a minute at most. What is late for less than two looks may be the beginning of an
 * outage, which is told otherwise. */
static void tell_late(const ngx_http_weir_store_t *store, ngx_http_weir_fleet_seen_t *seen)
{
    int64_t now = weir__mono_us();
    uint64_t missed = seen->unreachable - seen->late.unreachable;
    if (missed > 0 && !seen->late.first_us)
        seen->late.first_us = now;
    if (missed > 0 && (now - seen->late.first_us < INT64_C(2000) * NGX_HTTP_WEIR_LOOK_MS ||
                       (seen->late.told_us && now - seen->late.told_us < LATE_EVERY_US)))
        return;
    if (missed > 0) {
        tell_missed(store, seen, missed, seen->lost - seen->late.lost);
        seen->late.told_us = now;
    }
    tell_forget_late(seen);
}

bool ngx_http_weir_fleet_tell(const ngx_http_weir_store_t *store, weir_store *remote,
                              ngx_http_weir_fleet_seen_t *seen)
{
    char room[WEIR__LOOK_WHY_SIZE + 64];
    struct weir__buffer why = weir__buffer_over(room, sizeof room);
    unsigned now = tell_judge(store, remote, seen, &why);
    if (now == FLEET_UP && seen->told == FLEET_UP)
        tell_late(store, seen);
    else
        tell_forget_late(seen);
    bool again = now == FLEET_UP && seen->told != FLEET_UP;
    tell_change(store, seen, now, room);
    if (now == FLEET_UP)
        seen->down_requests = seen->requests;
    seen->last.done = seen->done;
    seen->last.unreachable = seen->unreachable;
    seen->last.lost = seen->lost;
    return again;
}
