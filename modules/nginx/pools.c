/*
 * The pools of slices (remote/pool.h) that all workers of this nginx share: memory of their own, a
 * lock, the slot among the peers, counts. slices.c is a worker's part.
 *
 * Stores whose addresses name the same states in the same servers share their pools, whatever else
 * differs. So a host has one slot for them. The memory is kept over reloads, as that of zones.
 *
 * What holds:
 *   1. The lock is nginx's own of that memory. A worker tries it for some microseconds and never
 *      waits: while a worker that does not run holds it, the others ask Redis.
 *   2. If a worker dies, the master opens the locks that it held. What it was changing is noted
 *      before it is changed. Whoever gets the lock next empties that: its units are lost, and none
 *      is spent twice. No pool begins in its place while units may be on their way back.
 *   3. Everything in the memory changes under the lock, except what is atomic.
 */
#include "ngx_http_weir.h"

#include "base/random.h"

#include <signal.h>

#define SETS 1024 /* of WEIR__POOLS_WAYS pools each */
#define SLOT_CHANGES (SETS + 1)
#define WORKERS_CHANGE (SETS + 2)
#define YIELDS_MOST 4
#define SPIN_MOST 512 /* pauses between two tries, at most */
#define TABLE_AT ngx_align(sizeof(ngx_http_weir_pools_memory_t), 64)
#define MEMORY_SIZE (TABLE_AT + weir__pools_size(SETS))
#define NAME_MAX_LEN 8192 /* an address without its password */

/* ---- declaring ---- */

/* Memory of another version of this module may be kept over a reload, too. */
static void pools_stamp(ngx_http_weir_pools_memory_t *memory)
{
    memory->pool_size = sizeof(struct weir__pool);
    memory->own_size = sizeof *memory;
}

static bool pools_is_ours(const ngx_http_weir_pools_t *pools)
{
    return pools->memory->pool_size == sizeof(struct weir__pool) &&
           pools->memory->own_size == sizeof *pools->memory && pools->table->sets == SETS;
}

static ngx_int_t pools_init(ngx_shm_zone_t *shm, void *old)
{
    ngx_http_weir_pools_t *pools = shm->data;
    ngx_slab_pool_t *slab = (ngx_slab_pool_t *)shm->shm.addr;
    bool fresh = !old && !shm->shm.exists;
    if (fresh)
        slab->data = ngx_slab_calloc(slab, MEMORY_SIZE);
    if (!slab->data)
        return NGX_ERROR;
    pools->slab = slab;
    pools->memory = slab->data;
    pools->table = (struct weir__pools *)((u_char *)slab->data + TABLE_AT);
    if (fresh && weir__pools_init(pools->table, SETS))
        return NGX_ERROR;
    if (fresh)
        pools_stamp(pools->memory);
    if (pools_is_ours(pools))
        return NGX_OK;
    ngx_log_error(NGX_LOG_EMERG, shm->shm.log, 0, "weir: \"%V\" is not of this version; restart",
                  &pools->name);
    return NGX_ERROR;
}

static void pools_free_limit(void *data)
{
    weir_limit_free(data);
}

static weir_limit *pools_make_slot_limit(ngx_conf_t *cf, int32_t peers)
{
    weir_limit *limit;
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (!cleanup || weir__slot_limit(peers, &limit, NULL))
        return NULL;
    cleanup->handler = pools_free_limit;
    cleanup->data = limit;
    return limit;
}

/* What states and slices depend on, as a text. */
static ngx_int_t pools_make_name(ngx_conf_t *cf, const struct weir__redis_url *url, ngx_str_t *ret)
{
    struct weir__redis_url same = *url, plain;
    char room[NAME_MAX_LEN];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    if (weir__redis_url_parse("redis://host", &plain, NULL))
        return NGX_ERROR;
    same.deadline_us = plain.deadline_us;
    same.fail = plain.fail;
    same.size = plain.size;
    same.engine = plain.engine;
    weir__put_text(&buffer, "weir slices of ");
    weir__put_redis_url(&buffer, &same);
    *ret = (ngx_str_t){buffer.len, (u_char *)room};
    ret->data = ngx_pstrdup(cf->pool, ret);
    return ret->data && !buffer.cut ? NGX_OK : NGX_ERROR;
}

static ngx_http_weir_pools_t *pools_named(ngx_conf_t *cf, const ngx_str_t *name)
{
    ngx_http_weir_main_conf_t *conf = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_http_weir_store_t **stores = conf->stores.elts;
    for (ngx_uint_t i = 0; i < conf->stores.nelts; i++) {
        if (stores[i]->pools && ngx_http_weir_same(&stores[i]->pools->name, name))
            return stores[i]->pools;
    }
    return NULL;
}

static size_t pools_zone_size(void)
{
    size_t size = MEMORY_SIZE;
    return ngx_align(size + size / 64, ngx_pagesize) + 8 * ngx_pagesize; /* and nginx's own part */
}

ngx_int_t ngx_http_weir_pools_declare(ngx_conf_t *cf, ngx_http_weir_store_t *store)
{
    static char tag;
    ngx_str_t name;
    if (!store->url.slices)
        return NGX_OK;
    if (pools_make_name(cf, &store->url, &name) != NGX_OK)
        return NGX_ERROR;
    store->pools = pools_named(cf, &name);
    if (store->pools)
        return NGX_OK;
    ngx_http_weir_pools_t *pools = ngx_pcalloc(cf->pool, sizeof *pools);
    ngx_shm_zone_t *shm = ngx_shared_memory_add(cf, &name, pools_zone_size(), &tag);
    if (!pools || !shm)
        return NGX_ERROR;
    pools->name = name;
    pools->slicing = weir__slicing_of(&store->url);
    pools->slot_limit = pools_make_slot_limit(cf, pools->slicing.peers);
    shm->init = pools_init;
    shm->data = pools;
    store->pools = pools;
    return pools->slot_limit ? NGX_OK : NGX_ERROR;
}

/* ---- the lock ---- */

/* Empties a pool that a death left half changed. Its serial fits no call that is in flight. Units
 * of it may be on their way back, and count as held until they have arrived: its place stays taken,
 * by nobody. */
static void pools_empty(ngx_http_weir_pools_memory_t *memory, struct weir__pool *pool)
{
    int64_t most = weir__max(0, pool->most), lost = 0;
    uint32_t serial;
    for (size_t i = 0; i < WEIR__POOL_GRANTS; i++)
        lost += weir__max(0, weir__min(most, pool->grants[i].left));
    memory->counts[NGX_HTTP_WEIR_UNITS_LOST] += (uint64_t)weir__min(most, lost);
    if (weir__random_bytes(&serial, sizeof serial))
        serial = pool->serial + INT32_MAX;
    ngx_memzero(pool, sizeof *pool);
    pool->serial = serial;
    pool->returning = 1;
    pool->returning_until_us = weir__boot_us() + WEIR__POOL_DOUBT_US;
}

static void pools_repair(ngx_http_weir_pools_t *pools)
{
    ngx_http_weir_pools_memory_t *memory = pools->memory;
    uint32_t what = memory->changing;
    if (what >= 1 && what <= SETS) {
        for (size_t i = 0; i < WEIR__POOLS_WAYS; i++)
            pools_empty(memory, &pools->table->pools[(what - 1) * WEIR__POOLS_WAYS + i]);
    } else if (what == SLOT_CHANGES) {
        ngx_memzero(&memory->slot, sizeof memory->slot); /* a lease of it expires by itself */
    } else {
        ngx_memzero(memory->workers, sizeof memory->workers);
    }
    memory->changing = 0;
    ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                  "weir: a worker died while it changed \"%V\": what it held of it is lost",
                  &pools->name);
}

bool ngx_http_weir_pools_lock(ngx_http_weir_pools_t *pools)
{
    ngx_shmtx_t *mutex = &pools->slab->mutex;
    bool got = ngx_shmtx_trylock(mutex);
    for (ngx_uint_t n = 1; !got && n <= SPIN_MOST; n <<= 1) {
        for (ngx_uint_t i = 0; i < n && ngx_ncpu > 1; i++) {
            ngx_cpu_pause();
        }
        got = ngx_shmtx_trylock(mutex);
    }
    for (ngx_uint_t n = 0; !got && n < YIELDS_MOST; n++) {
        ngx_sched_yield(); /* its holder may be waiting for this very core */
        got = ngx_shmtx_trylock(mutex);
    }
    if (got && pools->memory->changing)
        pools_repair(pools);
    return got;
}

void ngx_http_weir_pools_unlock(ngx_http_weir_pools_t *pools)
{
    atomic_store_explicit(&pools->memory->changing, 0, memory_order_release);
    ngx_shmtx_unlock(&pools->slab->mutex);
}

/* From here to the next note, or to the end of the lock, this is being changed. */
static void pools_note(ngx_http_weir_pools_t *pools, uint32_t what)
{
    atomic_store(&pools->memory->changing, what);
}

struct weir__pool *ngx_http_weir_pools_set(ngx_http_weir_pools_t *pools, const uint64_t tag[2])
{
    struct weir__pool *set = weir__pools_set(pools->table, tag);
    pools_note(pools, (uint32_t)(set - pools->table->pools) / WEIR__POOLS_WAYS + 1);
    return set;
}

struct weir__pool *ngx_http_weir_pools_find(ngx_http_weir_pools_t *pools, const uint64_t tag[2])
{
    return weir__pools_find(ngx_http_weir_pools_set(pools, tag), tag);
}

struct weir__pool *ngx_http_weir_pools_of_request(ngx_http_weir_pools_t *pools,
                                                  const weir_request *request, size_t i)
{
    uint64_t tag[2];
    weir__pools_tag(pools->table, request->key, &request->limit->rules[i], tag);
    return ngx_http_weir_pools_find(pools, tag);
}

struct weir__pool *ngx_http_weir_pools_of_set(ngx_http_weir_pools_t *pools, uint32_t set)
{
    assert(set < SETS);
    pools_note(pools, set + 1);
    return &pools->table->pools[set * WEIR__POOLS_WAYS];
}

uint32_t ngx_http_weir_pools_sets(void)
{
    return SETS;
}

ngx_http_weir_peer_slot_t *ngx_http_weir_pools_slot(ngx_http_weir_pools_t *pools)
{
    pools_note(pools, SLOT_CHANGES);
    return &pools->memory->slot;
}

struct weir__pool_now ngx_http_weir_pools_now(const ngx_http_weir_pools_t *pools, int64_t now_us)
{
    return (struct weir__pool_now){.now_us = now_us,
                                   .slot_us = pools->memory->slot.until_us,
                                   .life_us = pools->slicing.life_us};
}

/* ---- who uses them ---- */

/* A worker that finds no place is not counted: then what is held may be given back too early. */
void ngx_http_weir_pools_enter(ngx_http_weir_pools_t *pools)
{
    ngx_http_weir_pools_memory_t *memory = pools->memory;
    for (size_t i = 0; i < WEIR__COUNT(memory->workers); i++) {
        if (memory->workers[i] == ngx_pid)
            return;
    }
    pools_note(pools, WORKERS_CHANGE);
    for (size_t i = 0; i < WEIR__COUNT(memory->workers); i++) {
        ngx_pid_t other = memory->workers[i];
        if (other && (kill(other, 0) == 0 || ngx_errno == NGX_EPERM))
            continue;
        memory->workers[i] = ngx_pid;
        return;
    }
}

bool ngx_http_weir_pools_leave(ngx_http_weir_pools_t *pools)
{
    ngx_http_weir_pools_memory_t *memory = pools->memory;
    bool others = false;
    if (!ngx_http_weir_pools_lock(pools))
        return false;
    pools_note(pools, WORKERS_CHANGE);
    for (size_t i = 0; i < WEIR__COUNT(memory->workers); i++) {
        ngx_pid_t other = memory->workers[i];
        if (other == ngx_pid)
            memory->workers[i] = 0;
        else if (other && (kill(other, 0) == 0 || ngx_errno == NGX_EPERM))
            others = true;
    }
    ngx_http_weir_pools_unlock(pools);
    return !others;
}

/* ---- what weir_info shows ---- */

/* Why no slices are taken. While a worker that does not run holds the lock, nobody can tell. */
static void pools_info_trouble(ngx_http_weir_pools_t *pools, ngx_http_weir_pools_info_t *ret)
{
    struct weir__slot_try tried;
    if (!ngx_http_weir_pools_lock(pools))
        return;
    tried = pools->memory->slot.tried;
    ngx_http_weir_pools_unlock(pools);
    enum weir__trouble trouble = tried.trouble;
    if (pools->memory->told == WEIR__TROUBLE_LEAST) /* until a slice has come */
        trouble = WEIR__TROUBLE_LEAST;
    ret->troubles[trouble] = 1;
    weir__trouble_text(trouble, tried.said, ret->trouble);
}

/* Numbers that are read while others change them: each is right, though not all at one instant. */
void ngx_http_weir_pools_info(const ngx_http_weir_store_t *store, ngx_http_weir_pools_info_t *ret)
{
    const ngx_http_weir_pools_memory_t *memory = store->pools->memory;
    int64_t now_us = weir__boot_us();
    ngx_memzero(ret, sizeof *ret);
    pools_info_trouble(store->pools, ret);
    for (size_t i = 0; i < WEIR__COUNT(ret->counts); i++)
        ret->counts[i] = memory->counts[i];
    ret->slot = now_us < memory->slot.until_us;
    for (size_t i = 0; i < SETS * WEIR__POOLS_WAYS; i++) {
        int64_t held = weir__pool_held(&store->pools->table->pools[i], now_us);
        ret->slices += held > 0;
        ret->units += (uint64_t)weir__max(0, held);
    }
}
