/*
 * `weir replay --policies`: each arrival is planned by a file of policies and decided against a
 * private store, at the time of the arrival. The log carries the attributes that the file names.
 */
#include "cli/replay.h"

#include "policy/policy.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What denies without a limit. */
enum unlimited { DENY_LISTS, MISSING_DENY, REFUSED, UNLIMITED_COUNT };
static const char *const unlimited_names[UNLIMITED_COUNT] = {
    [DENY_LISTS] = "deny lists", [MISSING_DENY] = "missing: deny", [REFUSED] = "refused with 400"};

/* Limits that are told apart; then all others, and what denies without a limit. */
#define ENTRIES_NAMED (DESK_PARTS_MAX - 1 - UNLIMITED_COUNT)
#define FILE_MAX (INT64_C(64) << 20)

struct replay_policies {
    struct weir__policies *set;
    const char *carried[WEIR__ATTRIBUTES_MAX];
    size_t carried_count;
    char *parts[DESK_PARTS_MAX];
    size_t part_count;                  /* limits, then what denies without one */
    size_t limit_parts;                 /* those of limits */
    int64_t applied[DESK_PARTS_MAX];    /* requests that each limit decided */
    int64_t missing[DESK_PARTS_MAX];    /* that its policy denied: they have no key */
    int64_t shadowed[DESK_PARTS_MAX];   /* that each limit in shadow would have denied */
    const struct desk_arrival *arrival; /* the one that is planned */
    struct weir__plan plan;
};

/* ---- the file ---- */

static int policies_read_file(struct replay *replay, char **ret, size_t *ret_len)
{
    const char *path = replay->policies_path;
    FILE *file = fopen(path, "rbe");
    struct weir__buffer buffer = weir__buffer_growing();
    char block[8192];
    size_t got;
    while (file && (got = fread(block, 1, sizeof block, file)) > 0 && buffer.len < FILE_MAX)
        weir__put(&buffer, block, got);
    bool good = file && !ferror(file) && !buffer.cut && buffer.len < FILE_MAX;
    if (file)
        fclose(file);
    if (!good) {
        weir__buffer_free(&buffer);
        return cli_fail(replay->call, CLI_FAILED, "%s: cannot read the policies",
                        cli_show_text(path).text);
    }
    *ret = buffer.data;
    *ret_len = buffer.len;
    return CLI_OK;
}

static void policies_name_part(struct replay_policies *policies, size_t i, const char *policy,
                               const char *entry)
{
    struct weir__buffer name = weir__buffer_growing();
    bool same = entry && !strcmp(policy, entry);
    weir__put_format(&name, "%s%s%s", policy, entry && !same ? "/" : "",
                     same || !entry ? "" : entry);
    assert(i < DESK_PARTS_MAX && !policies->parts[i]);
    policies->parts[i] = name.data;
    if (i >= policies->part_count)
        policies->part_count = i + 1;
}

static void policies_name_parts(struct replay_policies *policies)
{
    const struct weir__policies *set = policies->set;
    size_t named = set->entry_count < ENTRIES_NAMED ? set->entry_count : ENTRIES_NAMED;
    for (size_t i = 0; i < set->count; i++) {
        const struct weir__policy *policy = &set->policies[i];
        for (size_t j = 0; j < policy->entry_count; j++) {
            if (policy->entries[j].index < named)
                policies_name_part(policies, policy->entries[j].index, policy->name,
                                   policy->entries[j].name);
        }
    }
    if (set->entry_count > named)
        policies_name_part(policies, named++, "other limits", NULL);
    policies->limit_parts = named;
    for (size_t i = 0; i < UNLIMITED_COUNT; i++)
        policies_name_part(policies, named + i, unlimited_names[i], NULL);
}

static bool policies_have_shadow(const struct weir__policies *set)
{
    for (size_t i = 0; i < set->count; i++) {
        for (size_t j = 0; j < set->policies[i].entry_count; j++) {
            if (set->policies[i].entries[j].shadow)
                return true;
        }
    }
    return false;
}

/* The attributes by their names, each once. */
static void policies_carry(struct replay_policies *policies)
{
    const struct weir__attributes *attributes = &policies->set->attributes;
    for (size_t i = 0; i < attributes->count; i++) {
        const char *name = attributes->items[i].name;
        size_t known = 0;
        while (known < policies->carried_count && strcmp(policies->carried[known], name))
            known++;
        if (known == policies->carried_count)
            policies->carried[policies->carried_count++] = name;
    }
}

int replay_policies_open(struct replay *replay)
{
    struct replay_policies *policies = calloc(1, sizeof *policies);
    weir_error err = {0};
    char *text = NULL;
    size_t len = 0;
    if (!policies)
        return cli_fail(replay->call, CLI_FAILED, "out of memory");
    replay->policies = policies;
    int code = policies_read_file(replay, &text, &len);
    if (code)
        return code;
    code = weir__policies_parse(text, len, replay->policies_path, false, &policies->set, &err);
    free(text);
    if (code)
        return cli_fail_with(replay->call, code, &err);
    weir__policies_set_secret(policies->set, (const uint64_t[2]){0, 0});
    policies_carry(policies);
    policies_name_parts(policies);
    replay->logs.options.carried = policies->carried;
    replay->logs.options.carried_count = policies->carried_count;
    replay->count = 1;
    replay->candidates[0] = (struct desk_candidate){.name = "policies"};
    replay->shown[0] = (struct desk_shown){.name = "policies",
                                           .text = replay->policies_path,
                                           .parts = (const char *const *)policies->parts,
                                           .part_count = policies->part_count};
    if (policies_have_shadow(policies->set))
        replay->shown[0].shadowed = policies->shadowed;
    char url[64];
    struct weir__buffer buffer = weir__buffer_over(url, sizeof url);
    weir__put_format(&buffer, "memory:%" PRId64 "?large=40%%", replay->logs.memory / 2);
    code = cli_open_store(replay->call, url, &replay->store);
    if (code == CLI_OK)
        weir__virtual_clock_install(&replay->clock, replay->store);
    return code;
}

void replay_policies_close(struct replay *replay)
{
    struct replay_policies *policies = replay->policies;
    if (!policies)
        return;
    for (size_t i = 0; i < policies->part_count; i++)
        free(policies->parts[i]);
    weir__policies_free(policies->set);
    free(policies);
}

/* ---- one arrival ---- */

static enum weir__found policies_find(const void *context, const char *name, size_t len,
                                      struct weir__span *ret)
{
    const struct replay_policies *policies = context;
    for (size_t i = 0; i < policies->carried_count; i++) {
        if (strlen(policies->carried[i]) == len && !memcmp(policies->carried[i], name, len))
            return desk_arrival_value(policies->arrival, i, ret) ? WEIR__FOUND : WEIR__ABSENT;
    }
    return WEIR__ABSENT;
}

/* Denied by no limit. */
static void policies_deny(const struct replay_policies *policies, enum unlimited by,
                          weir_decision *ret)
{
    ret->allowed = false;
    ret->binding = (uint8_t)(policies->limit_parts + by);
}

/* Which part denied: the first limit that did. */
static uint8_t policies_part(const struct replay_policies *policies)
{
    const struct weir__plan *plan = &policies->plan;
    for (size_t i = 0; i < plan->enforced_count; i++) {
        if (!plan->enforced[i].decision.allowed)
            return (uint8_t)weir__min(plan->enforced[i].entry->index, ENTRIES_NAMED);
    }
    assert(!"a denial of limits has one that denied");
    return 0;
}

/* What was decided. True: a limit in shadow would have denied it. */
static bool policies_count(struct replay_policies *policies)
{
    const struct weir__plan *plan = &policies->plan;
    bool would = false;
    for (size_t i = 0; i < plan->enforced_count; i++)
        policies->applied[weir__min(plan->enforced[i].entry->index, ENTRIES_NAMED)]++;
    for (size_t i = 0; i < plan->shadow_count; i++) {
        size_t part = weir__min(plan->shadow[i].entry->index, ENTRIES_NAMED);
        bool denied = !plan->shadow[i].decision.allowed;
        policies->applied[part]++;
        policies->shadowed[part] += denied;
        would |= denied;
    }
    for (size_t i = 0; i < plan->lacking_count; i++) { /* missing: deny */
        size_t part = weir__min(plan->lacking[i].entry->index, ENTRIES_NAMED);
        policies->applied[part]++;
        policies->shadowed[part]++;
        would = true;
    }
    return would;
}

/* A request without a key: by which of its limits is not told apart. */
static void policies_count_missing(struct replay_policies *policies)
{
    const struct weir__policy *by = policies->plan.by;
    for (size_t i = 0; by && i < by->entry_count; i++) {
        const struct weir__entry *entry = &by->entries[i];
        if (entry->missing == WEIR__MISSING_DENY && !entry->shadow)
            policies->missing[weir__min(entry->index, ENTRIES_NAMED)]++;
    }
}

void replay_policies_tell_idle(const struct replay *replay)
{
    const struct replay_policies *policies = replay->policies;
    for (size_t i = 0; policies && i < policies->limit_parts; i++) {
        if (policies->applied[i] == 0 && policies->missing[i] > 0)
            cli_fail(replay->call, CLI_OK,
                     "%s applied to no request: its policy denied %" PRId64
                     ", because they have no value for the key (missing: deny)",
                     cli_show_text(policies->parts[i]).text, policies->missing[i]);
        else if (policies->applied[i] == 0)
            cli_fail(replay->call, CLI_OK,
                     "%s applied to no request: no line matches its policy, or the log has no "
                     "value for its key",
                     cli_show_text(policies->parts[i]).text);
    }
}

/* What the file perhaps means by a name that no line has; NULL: what it says. */
static const char *policies_meant(const struct replay_policies *policies, const char *name)
{
    const struct weir__attributes *attributes = &policies->set->attributes;
    const char *meant = NULL;
    for (size_t i = 0; i < attributes->count && !meant; i++) {
        if (!strcmp(attributes->items[i].name, name))
            meant = weir__attribute_meant(attributes, i);
    }
    return meant;
}

void replay_policies_tell_unseen(const struct replay *replay)
{
    const struct replay_policies *policies = replay->policies;
    for (size_t i = 0; policies && i < policies->carried_count; i++) {
        const char *name = policies->carried[i], *meant = policies_meant(policies, name);
        if (!(replay->facts.unseen_carried >> i & 1))
            continue;
        cli_fail(replay->call, CLI_OK, "no line has a field %s%s%s%s", cli_show_text(name).text,
                 meant ? " (did you mean " : "", meant ? cli_show_text(meant).text : "",
                 meant ? "?)" : "");
    }
}

void replay_policies_put_idle(struct weir__json *json, const struct replay *replay)
{
    const struct replay_policies *policies = replay->policies;
    if (!policies)
        return;
    weir__json_open(json, "unapplied", '[');
    for (size_t i = 0; i < policies->limit_parts; i++) {
        if (policies->applied[i] == 0)
            weir__json_put_string(json, NULL, policies->parts[i]);
    }
    weir__json_close(json, ']');
    weir__json_open(json, "unseen", '[');
    for (size_t i = 0; i < policies->carried_count; i++) {
        if (replay->facts.unseen_carried >> i & 1)
            weir__json_put_string(json, NULL, policies->carried[i]);
    }
    weir__json_close(json, ']');
}

int replay_policies_take(struct replay *replay, const struct desk_arrival *arrival,
                         weir_decision *ret, weir_error *err)
{
    struct replay_policies *policies = replay->policies;
    struct weir__plan *plan = &policies->plan;
    struct weir__subject subject = {policies_find, policies};
    int64_t cost = replay->logs.options.cost ? arrival->cost : -1;
    policies->arrival = arrival;
    *ret = (weir_decision){.allowed = true, .time_us = arrival->time_us};
    int code = weir__policies_plan(policies->set, NULL, &subject, NULL, cost, plan, err);
    if (code == WEIR_EINVAL) { /* a value that no server would take in */
        policies_deny(policies, REFUSED, ret);
        return 0;
    }
    if (code)
        return code;
    switch (plan->verdict) {
    case WEIR__VERDICT_NONE:
    case WEIR__VERDICT_ALLOW:
        replay->shown[0].shadow_denied += policies_count(policies);
        return 0;
    case WEIR__VERDICT_DENY:
        if (!plan->listed)
            policies_count_missing(policies);
        policies_deny(policies, plan->listed ? DENY_LISTS : MISSING_DENY, ret);
        return 0;
    case WEIR__VERDICT_LIMITS:
        break;
    case WEIR__VERDICT_MISSING:
    case WEIR__VERDICT_UNREADABLE:
        assert(!"a verdict of logs only");
    }
    replay->clock.now_us = arrival->time_us;
    plan->wait_us = replay->wait_us;
    code = weir__plan_decide(replay->store, plan, WEIR__TAKE, NULL, ret);
    if (code)
        return weir__fail(err, code, 0, "line %" PRId64 ": %s", arrival->line, weir_strerror(code));
    bool would = policies_count(policies);
    replay->shown[0].shadow_denied += would && ret->allowed;
    if (!ret->allowed)
        ret->binding = policies_part(policies);
    return 0;
}
