/*
 * Records histories: hands (threads, or processes that share a page) do random calls on the keys of
 * a world, as fast as they can, and write down what they asked, when, and what they were answered.
 */
#ifndef WEIR_HISTORY_RECORD_H
#define WEIR_HISTORY_RECORD_H

#include "base/clock.h"
#include "base/random.h"
#include "history.h"
#include "limit/receipt.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

#define RECORD_RECEIPTS 16 /* that any hand may settle */
#define RECORD_BATCH 8
#define RECORD_PATIENCE_S 120

/* SYSTEM is the store's own way. OWN is the same time, but we see every reading. VIRTUAL is moved
 * by all hands, and some read it late. */
enum record_clock { RECORD_SYSTEM, RECORD_OWN, RECORD_VIRTUAL, RECORD_CLOCKS };

/* What all hands share, processes too. */
struct record_page {
    _Atomic size_t waiting; /* hands that have not begun */
    _Atomic int64_t now;
    _Atomic uint32_t receipts[RECORD_RECEIPTS]; /* hand << 16 | event, of takes; + 1 */
    struct history history;
};

struct record {
    struct record_page *page;
    const struct history_world *world;
    weir_store *store;
    enum record_clock clock;
    int64_t pace_us; /* VIRTUAL: what a reading moves it on by, at most */
    uint64_t resets; /* in a hundred calls */
    uint64_t seed;
};

struct record_hand {
    struct record *record;
    weir_store *store;
    size_t number;
    uint64_t chance;
    int settles;
    uint32_t readings; /* of the store's clock in this call */
    int64_t reading[HISTORY_READINGS];
};

static _Thread_local struct record_hand *record_self;

static inline uint64_t record_random(struct record_hand *hand, uint64_t below)
{
    return weir__random_next(&hand->chance) % below;
}

/* ---- the clocks ---- */

static inline int64_t record_virtual_now(struct record_hand *hand)
{
    struct record *record = hand->record;
    int64_t step = 0, late = 0;
    if (record->pace_us > 0 && record_random(hand, 2))
        step = (int64_t)record_random(hand, (uint64_t)record->pace_us + 1);
    if (record_random(hand, 300) == 0)
        step += (int64_t)record_random(hand, 3 * HISTORY_PERIOD_US);
    if (record_random(hand, 8) == 0)
        late = (int64_t)record_random(hand, 20);
    if (record_random(hand, 200) == 0)
        late = (int64_t)record_random(hand, 2 * HISTORY_PERIOD_US);
    if (record_random(hand, 2000) == 0)
        late = MINUTE + (int64_t)record_random(hand, HISTORY_PERIOD_US);
    return atomic_fetch_add(&record->page->now, step) + step - late;
}

static inline int64_t record_now(void *context)
{
    struct record_hand *hand = record_self;
    (void)context;
    if (!hand)
        return START;
    int64_t now = hand->record->clock == RECORD_OWN ? weir__clock_us() : record_virtual_now(hand);
    hand->reading[hand->readings++ % HISTORY_READINGS] = now;
    if (record_random(hand, 8) == 0) /* in the middle of a call: now others call */
        sched_yield();
    return now;
}

static inline void record_use_clock(weir_store *store, enum record_clock clock)
{
    const weir_clock own = {.now = record_now};
    weir_store_set_clock(store, clock == RECORD_SYSTEM ? NULL : &own);
}

/* ---- calls ---- */

static inline struct history_event *record_begin(struct record_hand *hand, enum history_verb verb,
                                                 uint32_t count)
{
    struct history *history = &hand->record->page->history;
    struct history_event *event = &history->events[hand->number][history->count[hand->number]];
    *event = (struct history_event){.verb = verb, .count = count};
    hand->readings = 0;
    return event;
}

static inline void record_readings(const struct record_hand *hand, struct history_event *event)
{
    assert(hand->readings > 0 && hand->readings <= HISTORY_READINGS);
    event->now_us = hand->reading[(hand->readings - 1) % HISTORY_READINGS];
    event->readings = hand->readings;
    memcpy(event->reading, hand->reading, sizeof event->reading);
}

static inline void record_end(struct record_hand *hand, struct history_event *events, size_t n)
{
    int64_t now = weir__mono_ns();
    for (size_t i = 0; i < n; i++) {
        events[i].return_ns = now;
        if (hand->record->clock != RECORD_SYSTEM)
            record_readings(hand, &events[i]);
    }
    hand->record->page->history.count[hand->number] += (uint32_t)n;
}

/* Mostly 1, sometimes more, nothing, or more than there ever is. */
static inline int64_t record_cost(struct record_hand *hand)
{
    switch (record_random(hand, 40)) {
    case 0:
        return 0;
    case 1:
        return 1000;
    case 2:
    case 3:
    case 4:
        return 2 + (int64_t)record_random(hand, 5);
    default:
        return 1;
    }
}

static inline void record_part(struct record_hand *hand, size_t key, struct history_part *ret)
{
    ret->key = (uint8_t)key;
    ret->variant = record_random(hand, 16) == 0;
    ret->cost = record_cost(hand);
    ret->wait_us = WEIR_WAIT_DEFAULT;
    if (record_random(hand, 2))
        ret->wait_us = record_random(hand, 2) ? 0 : (int64_t)record_random(hand, 30);
}

static inline weir_request record_request(struct record_hand *hand, const struct history_part *part)
{
    const struct history_key *key = &hand->record->world->key[part->key];
    weir_request request = weir_request_make(weir_key_text(key->name), key->limits[part->variant]);
    request.cost = part->cost > 0 ? part->cost : WEIR_COST_NONE;
    request.wait_us = part->wait_us;
    return request;
}

/* The short verbs: one key, the default wait. */
static inline void record_short(struct record_hand *hand)
{
    const struct history_world *world = hand->record->world;
    bool peeks = record_random(hand, 10) == 0, hashed = record_random(hand, 2);
    struct history_event *event = record_begin(hand, peeks ? HISTORY_PEEK : HISTORY_TAKE, 1);
    struct history_part *part = &event->parts[0];
    weir_hashed_key known;
    record_part(hand, record_random(hand, world->keys), part);
    part->wait_us = WEIR_WAIT_DEFAULT;
    const struct history_key *key = &world->key[part->key];
    weir_key text = weir_key_text(key->name);
    const weir_limit *limit = key->limits[part->variant];
    if (weir_key_hash(hand->store, text, &known))
        test_give_up("weir_key_hash", "refused");
    event->call_ns = weir__mono_ns();
    if (peeks)
        event->code = weir_peek(hand->store, text, limit, part->cost, &event->decision);
    else if (hashed)
        event->code = weir_take_hashed(hand->store, &known, limit, part->cost, &event->decision);
    else
        event->code = weir_take(hand->store, text, limit, part->cost, &event->decision);
    record_end(hand, event, 1);
}

/* All or nothing over some of the keys, with all details. */
static inline void record_group(struct record_hand *hand)
{
    const struct history_world *world = hand->record->world;
    bool peeks = record_random(hand, 10) == 0;
    size_t count = 1 + record_random(hand, world->keys), first = record_random(hand, world->keys);
    struct history_event *event =
        record_begin(hand, peeks ? HISTORY_PEEK : HISTORY_TAKE, (uint32_t)count);
    weir_request requests[HISTORY_KEYS];
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        record_part(hand, (first + i) % world->keys, &event->parts[i]);
        requests[i] = record_request(hand, &event->parts[i]);
        requests[i].detail = &event->rows[rows];
        rows += requests[i].limit->count;
    }
    event->has_rows = true;
    event->call_ns = weir__mono_ns();
    event->code = peeks ? weir_peek_all(hand->store, requests, count, &event->decision)
                        : weir_take_all(hand->store, requests, count, &event->decision);
    record_end(hand, event, 1);
}

/* Independent requests in one call: events that were made and returned together, in this order. */
static inline void record_batch(struct record_hand *hand, size_t most)
{
    const struct history_world *world = hand->record->world;
    size_t n = 2 + record_random(hand, RECORD_BATCH - 1);
    weir_request requests[RECORD_BATCH];
    weir_decision decisions[RECORD_BATCH];
    if (n > most)
        return;
    struct history_event *events = record_begin(hand, HISTORY_TAKE, 1);
    for (size_t i = 0; i < n; i++) {
        events[i] = (struct history_event){.verb = HISTORY_TAKE, .count = 1};
        record_part(hand, record_random(hand, world->keys), &events[i].parts[0]);
        requests[i] = record_request(hand, &events[i].parts[0]);
    }
    int64_t call = weir__mono_ns();
    int code = weir_take_many(hand->store, requests, n, decisions);
    for (size_t i = 0; i < n; i++) {
        events[i].call_ns = call;
        events[i].decision = decisions[i];
        events[i].code = decisions[i].code ? decisions[i].code : code == WEIR_EBUSY ? 0 : code;
    }
    record_end(hand, events, n);
}

static inline void record_reset(struct record_hand *hand)
{
    const struct history_world *world = hand->record->world;
    struct history_event *event = record_begin(hand, HISTORY_RESET, 1);
    event->parts[0].key = (uint8_t)record_random(hand, world->keys);
    weir_key key = weir_key_text(world->key[event->parts[0].key].name);
    event->call_ns = weir__mono_ns();
    event->code = weir_reset(hand->store, key);
    record_end(hand, event, 1);
}

/* Offers the receipt of the last take to all hands. */
static inline void record_offer(struct record_hand *hand)
{
    struct record_page *page = hand->record->page;
    uint32_t at = page->history.count[hand->number] - 1;
    struct history_event *event = &page->history.events[hand->number][at];
    if (event->verb != HISTORY_TAKE || event->count != 1 || event->code ||
        event->decision.charged == 0)
        return;
    weir__receipt_id(&event->decision);
    atomic_store(&page->receipts[record_random(hand, RECORD_RECEIPTS)],
                 ((uint32_t)hand->number << 16 | at) + 1);
}

static inline void record_settle(struct record_hand *hand)
{
    struct record_page *page = hand->record->page;
    uint32_t offer = atomic_load(&page->receipts[record_random(hand, RECORD_RECEIPTS)]);
    if (!offer || hand->record->clock == RECORD_SYSTEM ||
        hand->settles == HISTORY_SETTLES / HISTORY_HANDS)
        return;
    hand->settles++;
    weir_decision taken = page->history.events[(offer - 1) >> 16][(offer - 1) & 0xffff].decision;
    struct history_event *event = record_begin(hand, HISTORY_SETTLE, 1);
    char receipt[WEIR_RECEIPT_SIZE];
    event->parts[0] = page->history.events[(offer - 1) >> 16][(offer - 1) & 0xffff].parts[0];
    event->correction = (struct weir__correction){.charged_at_us = taken.time_us,
                                                  .charged = taken.charged,
                                                  .id = weir__receipt_id(&taken),
                                                  .actual = (int64_t)record_random(hand, 8)};
    weir_receipt(&taken, receipt);
    const struct history_key *key = &hand->record->world->key[event->parts[0].key];
    event->call_ns = weir__mono_ns();
    event->code =
        weir_settle(hand->store, weir_key_text(key->name), key->limits[event->parts[0].variant],
                    receipt, event->correction.actual, NULL);
    record_end(hand, event, 1);
}

/* ---- hands ---- */

static inline void record_work(struct record_hand *hand)
{
    const struct history *history = &hand->record->page->history;
    const uint32_t *count = &history->count[hand->number];
    bool grouped = hand->record->world->keys > 1;
    record_self = hand;
    atomic_fetch_sub(&hand->record->page->waiting, 1);
    while (atomic_load(&hand->record->page->waiting) > 0) /* awake, or the first is done first */
        sched_yield();
    while (*count < HISTORY_EVENTS) {
        uint64_t chance = record_random(hand, 100);
        if (chance < (grouped ? 25 : 10))
            record_group(hand);
        else if (chance < 20 + (grouped ? 15 : 0))
            record_batch(hand, HISTORY_EVENTS - *count);
        else if (chance < 97 - hand->record->resets)
            record_short(hand);
        else if (chance < 97)
            record_reset(hand);
        else
            record_settle(hand);
        if (*count > 0 && record_random(hand, 8) == 0)
            record_offer(hand);
        if (record_random(hand, 50) == 0)
            sched_yield();
    }
    record_self = NULL;
}

static inline void *record_thread(void *argument)
{
    record_work(argument);
    return NULL;
}

static inline void record_threads(struct record_hand *hands, size_t n)
{
    pthread_t threads[HISTORY_HANDS];
    for (size_t i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, record_thread, &hands[i]))
            test_give_up("pthread_create", "no thread");
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* Every other one has a mapping of its own; the rest use the one they inherited. */
static inline void record_processes(struct record_hand *hands, size_t n, const char *url)
{
    pid_t pids[HISTORY_HANDS];
    for (size_t i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            test_give_up("fork", "no process");
        if (pids[i])
            continue;
        alarm(RECORD_PATIENCE_S);
        if (i % 2) {
            hands[i].store = test_open(url, NULL);
            record_use_clock(hands[i].store, hands[i].record->clock);
        }
        record_work(&hands[i]);
        if (i % 2)
            weir_store_close(hands[i].store);
        _exit(0);
    }
    for (size_t i = 0; i < n; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        CHECK_INT(status, 0);
    }
}

/* Fills the page's history. With a url the hands are processes. */
static inline void record_run(struct record *record, size_t n, const char *url)
{
    struct record_page *page = record->page;
    struct record_hand hands[HISTORY_HANDS];
    assert(n >= 1 && n <= HISTORY_HANDS);
    page->waiting = n;
    memset(page->history.count, 0, sizeof page->history.count);
    page->history.hands = n;
    page->now = START + HOUR + (int64_t)(record->seed % HISTORY_PERIOD_US);
    for (size_t i = 0; i < RECORD_RECEIPTS; i++)
        page->receipts[i] = 0;
    record_use_clock(record->store, record->clock);
    for (size_t i = 0; i < n; i++)
        hands[i] = (struct record_hand){.record = record,
                                        .store = record->store,
                                        .number = i,
                                        .chance = record->seed * HISTORY_HANDS + i};
    if (url)
        record_processes(hands, n, url);
    else
        record_threads(hands, n);
}

static inline struct record_page *record_page_new(void)
{
    struct record_page *page =
        mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        test_give_up("mmap", "no shared page");
    return page;
}

#endif
