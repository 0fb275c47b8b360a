/* Questions to Redis as memory of their own: keys are copied, limits referenced; and lists of them. */
#include "ngx_http_weir.h"

static size_t align(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

ngx_http_weir_job_t *ngx_http_weir_job_make(ngx_http_weir_store_t *store, enum weir__verb verb,
                                            const weir_request *requests, ngx_uint_t n)
{
    size_t limits = 0, keys = 0;
    for (ngx_uint_t i = 0; i < n; i++) {
        limits += requests[i].limit->count;
        keys += weir__key_bytes(requests[i].key).len;
    }
    size_t at_requests = align(sizeof(ngx_http_weir_job_t));
    size_t at_turns = align(at_requests + n * sizeof *requests);
    size_t at_rows = align(at_turns + n * sizeof(ngx_http_weir_turn_t));
    size_t at_keys = at_rows + (1 + limits) * sizeof(weir_decision);
    char *block = malloc(at_keys + keys), *key_room = block + at_keys;
    if (!block)
        return NULL;
    ngx_http_weir_job_t *job = (ngx_http_weir_job_t *)block;
    weir_decision *rows = (weir_decision *)(block + at_rows) + 1;
    ngx_memzero(job, sizeof *job);
    job->store = store;
    job->turns = (ngx_http_weir_turn_t *)(block + at_turns);
    job->job = (struct weir__job){.verb = verb,
                                  .requests = (weir_request *)(block + at_requests),
                                  .count = n,
                                  .time_us = -1,
                                  .ret = rows - 1,
                                  .rows = rows};
    for (ngx_uint_t i = 0; i < n; i++) {
        weir_request *request = &job->job.requests[i];
        weir_key key = weir__key_bytes(requests[i].key);
        *request = requests[i];
        request->key = weir_key_bytes(memcpy(key_room, key.data, key.len), key.len);
        request->limit = weir__limit_ref(requests[i].limit);
        request->detail = rows;
        job->turns[i] = (ngx_http_weir_turn_t){.job = job};
        key_room += key.len;
        rows += request->limit->count;
    }
    return job;
}

void ngx_http_weir_job_free(ngx_http_weir_job_t *job)
{
    assert(!job->gives && job->blocked == 0);
    for (size_t i = 0; i < job->job.count; i++)
        weir_limit_free((weir_limit *)job->job.requests[i].limit);
    free(job);
}

void ngx_http_weir_jobs_put(ngx_http_weir_jobs_t *jobs, ngx_http_weir_job_t *job)
{
    job->next = NULL;
    if (jobs->last)
        jobs->last->next = job;
    else
        jobs->first = job;
    jobs->last = job;
}

ngx_http_weir_job_t *ngx_http_weir_jobs_take(ngx_http_weir_jobs_t *jobs)
{
    ngx_http_weir_job_t *job = jobs->first;
    if (job)
        jobs->first = job->next;
    if (!jobs->first)
        jobs->last = NULL;
    return job;
}
