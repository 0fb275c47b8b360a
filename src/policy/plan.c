/*
 * A plan: what one request takes. Policies are gone through in the file's order; each that applies
 * denies, exempts, or adds its entries. A denial goes before everything else that may be wrong with
 * the request.
 */
#include "policy/policy.h"

#include "policy/yaml.h"

#include <assert.h>
#include <string.h>

struct planning {
    const struct weir__policies *set;
    struct weir__view *view;
    int64_t cost; /* the caller's, or -1 */
    struct weir__plan *plan;
    struct weir__buffer keys;
    uint32_t owner; /* the bit of the descriptor that is planned */
    bool refund;    /* it gives back */
    bool grants;    /* who asks is told what is granted */
    bool strict;    /* an attribute that the caller names must hold a cost, if it is a cost */
    bool looks;     /* deny lists are noted, and nothing else */
    bool exempts;   /* allow lists count */
    size_t items;   /* of this descriptor */
    size_t enforced_before, limits_before, shadows_before, separate_before, exempted_before,
        lacking_before;
    struct {
        struct weir__item *item;
        int64_t cost;
    } joined[WEIR__ENTRIES_MAX]; /* to items of the descriptors before it */
    size_t joined_count;
    const struct weir__policy *allowed; /* the first whose allow list has the request */
    const struct weir__policy *over;    /* the first with more limits than a request may have */
    const struct weir__cost *bad;       /* the first cost whose attribute holds something else */
    int conflict; /* a code: it counts in one place with another descriptor, and that cannot be */
    weir_error *err;
};

/* ---- items ---- */

static bool items_have_same_key(const struct weir__item *a, const struct weir__item *b)
{
    return a->key.len == b->key.len && !memcmp(a->key.data, b->key.data, a->key.len);
}

static bool limits_are_same(const weir_limit *a, const weir_limit *b)
{
    bool same = a->count == b->count && !memcmp(a->rules, b->rules, a->count * sizeof a->rules[0]);
    for (size_t i = 0; same && i < a->count; i++)
        same = weir_limit_cost(a, i) == weir_limit_cost(b, i);
    return same;
}

static bool limits_share_state(const weir_limit *a, const weir_limit *b)
{
    for (size_t i = 0; i < a->count; i++) {
        for (size_t j = 0; j < b->count; j++) {
            if (weir__rule_same_state(&a->rules[i], &b->rules[j]))
                return true;
        }
    }
    return false;
}

int weir__plan_enforce(struct weir__plan *plan, const struct weir__item *item,
                       struct weir__item **ret)
{
    for (size_t i = 0; i < plan->enforced_count; i++) {
        struct weir__item *first = *ret = &plan->enforced[i];
        if ((first->owners & item->owners) || !items_have_same_key(first, item))
            continue; /* one descriptor never takes from one key twice */
        if (limits_are_same(first->limit, item->limit)) {
            if (first->cost + item->cost > WEIR_COST_MAX)
                return WEIR_EINVAL;
            first->cost += item->cost;
            first->owners |= item->owners;
            return 0;
        }
        if (limits_share_state(first->limit, item->limit))
            return WEIR_ESHARED;
    }
    *ret = NULL;
    size_t limits = plan->limit_count + item->limit->count;
    if (plan->enforced_count == WEIR__ENTRIES_MAX || limits > WEIR_LIMITS_MAX)
        return WEIR_EINVAL;
    plan->limit_count = limits;
    *ret = &plan->enforced[plan->enforced_count++];
    **ret = *item;
    return 0;
}

void weir__plan_set_least(struct weir__plan *plan, int64_t least)
{
    int64_t most = WEIR_COST_MAX;
    for (size_t i = 0; i < plan->enforced_count; i++) {
        struct weir__item *item = &plan->enforced[i];
        if (least && item->variable)
            item->least = weir__min(least, item->cost);
        most = item->least ? weir__min(most, item->cost) : most;
    }
    for (size_t i = 0; i < plan->enforced_count; i++)
        plan->enforced[i].least = weir__min(plan->enforced[i].least, most);
}

/* ---- costs ---- */

/* Notes that a cost cannot be read: the caller sends it again. What comes in a field of HTTP is a
 * stranger's, who must not be able to make a proxy fail: there it is `otherwise`. */
static int64_t plan_bad_cost(struct planning *planning, const struct weir__cost *cost)
{
    const char *name = planning->set->attributes.items[cost->attribute].name;
    if (planning->strict && !planning->bad && strncmp(name, "header.", 7) != 0)
        planning->bad = cost;
    return cost->otherwise;
}

/* Whole numbers; what is not one is `otherwise`, what is too large is the most. */
static int64_t plan_read_cost(struct planning *planning, const struct weir__cost *cost)
{
    struct weir__span text = planning->view->values[cost->attribute];
    int64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return plan_bad_cost(planning, cost);
        number = weir__min(number * 10 + (text.data[i] - '0'), WEIR_COST_MAX);
    }
    if (text.len == 0)
        return cost->otherwise;
    return weir__max(cost->least, weir__min(number, cost->most));
}

/* What the policy says is enough, never more than the cost. */
static int64_t plan_least_of(struct planning *planning, const struct weir__cost *least,
                             int64_t cost)
{
    int64_t ret = least->otherwise;
    if (!planning->grants)
        return 0;
    if (least->attribute >= 0 && weir__view_has(planning->view, least->attribute))
        ret = plan_read_cost(planning, least);
    return weir__min(ret, cost);
}

static int64_t plan_cost_of(struct planning *planning, const struct weir__cost *cost)
{
    if (planning->cost >= 0)
        return planning->cost;
    if (cost->attribute < 0 || !weir__view_has(planning->view, cost->attribute))
        return cost->otherwise;
    return plan_read_cost(planning, cost);
}

/* ---- entries ---- */

/* The number of the share that a request may use; the last is for everybody. */
static size_t plan_share_of(struct planning *planning, const struct weir__shares *shares)
{
    size_t i = 0;
    while (!weir__conditions_hold(&shares->items[i].when, planning->view))
        i++;
    assert(i < shares->count);
    return i;
}

static const weir_limit *plan_limit_of(struct planning *planning, const struct weir__entry *entry)
{
    const weir_limit *limit = entry->limit, *const *reduced = entry->reduced;
    for (size_t i = 0; i < entry->override_count; i++) {
        if (weir__conditions_hold(&entry->overrides[i].when, planning->view)) {
            limit = entry->overrides[i].limit;
            reduced = entry->overrides[i].reduced;
            break;
        }
    }
    return reduced ? reduced[plan_share_of(planning, entry->shares)] : limit;
}

static int plan_fail_too_many(const struct planning *planning)
{
    return weir__fail(planning->err, WEIR_EINVAL, 0,
                      "the policies that apply, from \"%s\" to \"%s\", have more than %d limits "
                      "together; let fewer of them match one request",
                      planning->plan->by ? planning->plan->by->name : planning->over->name,
                      planning->over->name, WEIR_LIMITS_MAX);
}

/* Adds an item. Whether its key is needed. */
static bool plan_add_item(struct planning *planning, const struct weir__item *item)
{
    struct weir__plan *plan = planning->plan;
    struct weir__item *taken = NULL;
    planning->items++;
    if (planning->refund) {
        bool fits = plan->separate_count < WEIR__ENTRIES_MAX;
        if (fits)
            plan->separate[plan->separate_count++] = *item;
        else if (!planning->over)
            planning->over = item->policy;
        return fits;
    }
    if (item->entry->shadow) {
        plan->shadow[plan->shadow_count++] = *item;
        return true;
    }
    int code = planning->over ? WEIR_EINVAL : weir__plan_enforce(plan, item, &taken);
    if (code == 0 && taken->owners == planning->owner)
        return true;
    if (code == 0) {
        assert(planning->joined_count < WEIR__ENTRIES_MAX);
        planning->joined[planning->joined_count].item = taken;
        planning->joined[planning->joined_count++].cost = item->cost;
    } else if (!planning->over && !taken) {
        planning->over = item->policy;
    } else if (!planning->over && !planning->conflict) {
        planning->conflict = code;
    }
    return false;
}

/* Its key goes behind those before it. */
static void plan_entry(struct planning *planning, const struct weir__policy *policy,
                       const struct weir__entry *entry, bool *ret_denied)
{
    struct weir__item planned = {
        .policy = policy, .entry = entry, .owners = planning->owner, .refund = planning->refund};
    if (entry->shadow && (planning->plan->shadow_count == WEIR__ENTRIES_MAX || planning->refund))
        return; /* what is only watched fails nobody, and is not refunded */
    struct weir__buffer *keys = &planning->keys;
    size_t start = keys->len;
    const uint64_t *secret = planning->set->keyed ? planning->set->secret : NULL;
    if (!weir__put_key(keys, policy->name, entry->name, &entry->key,
                       entry->missing == WEIR__MISSING_EMPTY, secret, planning->view)) {
        keys->len = start;
        struct weir__plan *plan = planning->plan;
        bool denies = entry->missing == WEIR__MISSING_DENY;
        *ret_denied |= denies && !entry->shadow;
        if (denies && entry->shadow && plan->lacking_count < WEIR__ENTRIES_MAX)
            plan->lacking[plan->lacking_count++] = (struct weir__lacking){policy, entry};
        return;
    }
    planned.key = (weir_key){keys->data + start, keys->len - start};
    planned.limit = plan_limit_of(planning, entry);
    const struct weir__cost *bad = planning->bad;
    planned.cost = plan_cost_of(planning, &entry->cost);
    planned.variable = planning->cost >= 0 || entry->cost.attribute >= 0;
    planned.least = plan_least_of(planning, &entry->least, planned.cost);
    if (entry->shadow)
        planning->bad = bad;
    if (!plan_add_item(planning, &planned))
        keys->len = start;
}

/* ---- policies ---- */

static void plan_deny(struct planning *planning, const struct weir__policy *policy,
                      enum weir__denial denial)
{
    struct weir__plan *plan = planning->plan;
    plan->verdict = WEIR__VERDICT_DENY;
    plan->denial = denial;
    plan->by = policy;
    plan->enforced_count = planning->enforced_before;
    plan->limit_count = planning->limits_before;
    plan->shadow_count = planning->shadows_before;
    plan->separate_count = planning->separate_before;
    plan->exempted_count = planning->exempted_before;
    plan->lacking_count = planning->lacking_before;
    planning->keys.len = 0;
    for (size_t i = 0; i < planning->joined_count; i++) {
        planning->joined[i].item->cost -= planning->joined[i].cost;
        planning->joined[i].item->owners &= ~planning->owner;
    }
}

static void plan_policy(struct planning *planning, const struct weir__policy *policy)
{
    struct weir__plan *plan = planning->plan;
    size_t listed = weir__any_of_holds(&policy->deny, planning->view);
    if (listed > 0 && !plan->listed) {
        plan->listed = policy;
        plan->listed_at = listed - 1;
    }
    if (listed > 0 && !planning->looks) {
        plan_deny(planning, policy, WEIR__DENIED_LISTED);
        return;
    }
    const bool exempt = weir__any_of_holds(&policy->allow, planning->view) > 0;
    if (exempt && plan->exempted_count < WEIR__EXEMPTED_MAX)
        plan->exempted[plan->exempted_count++] = policy;
    if (exempt && planning->exempts) {
        if (!planning->allowed)
            planning->allowed = policy;
        return;
    }
    const size_t before = planning->items;
    const struct weir__cost *bad = planning->bad;
    const bool readable = planning->view->wrong < 0;
    bool denied = false;
    for (size_t i = 0; i < policy->entry_count && !denied; i++) {
        plan_entry(planning, policy, &policy->entries[i], &denied);
        denied = denied && !exempt;
    }
    if (exempt) { /* past allow lists: what the request lacks for them keeps it from nothing else */
        planning->bad = bad;
        if (readable)
            weir__view_forgive(planning->view);
    }
    if (denied) {
        plan_deny(planning, policy, WEIR__DENIED_MISSING);
    } else if (plan->verdict == WEIR__VERDICT_NONE && planning->items > before) {
        plan->verdict = WEIR__VERDICT_LIMITS;
        plan->by = policy;
    }
}

/* To the end, unless one denies: a request that is denied is denied, whatever is wrong with the
 * others. */
static void plan_all(struct planning *planning)
{
    const struct weir__policies *set = planning->set;
    for (size_t i = 0; i < set->count; i++) {
        if (!weir__gate_opens(&set->gates[i], planning->view))
            continue;
        const struct weir__policy *policy = &set->policies[i];
        if (policy->by_name || !weir__conditions_hold(&policy->match, planning->view))
            continue;
        plan_policy(planning, policy);
        if (planning->plan->verdict == WEIR__VERDICT_DENY)
            return;
    }
}

/* ---- a key that the caller gives ---- */

/* It is the value of the attribute that the policy makes its keys of. */
struct given {
    const struct weir__subject *subject; /* what the request says besides */
    struct weir__span name, value;
};

static enum weir__found plan_find_given(const void *context, const char *name, size_t len,
                                        struct weir__span *ret)
{
    const struct given *given = context;
    if (given->name.len == len && !memcmp(given->name.data, name, len)) {
        *ret = given->value;
        return WEIR__FOUND;
    }
    const struct weir__subject *subject = given->subject;
    return subject && subject->find ? subject->find(subject->context, name, len, ret)
                                    : WEIR__ABSENT;
}

static void plan_put_attributes(struct weir__buffer *buffer, const struct weir__policy *policy)
{
    const struct weir__entry *entries = policy->entries;
    for (size_t i = 0; i < policy->entry_count; i++) {
        if (i == 0 || strcmp(entries[i].key.text, entries[i - 1].key.text))
            weir__put_format(buffer, "%s%s", i ? "; " : "", entries[i].key.text);
    }
}

/* The one attribute of all keys of a policy: its name, empty where they are constants. */
static int plan_find_attribute(const struct planning *planning, const struct weir__policy *policy,
                               struct weir__span *ret)
{
    char list[256];
    struct weir__buffer buffer = weir__buffer_over(list, sizeof list);
    *ret = (struct weir__span){"", 0};
    for (size_t i = 0; i < policy->entry_count; i++) {
        const struct weir__key_form *form = &policy->entries[i].key;
        for (size_t j = 0; j < form->count; j++) {
            if (form->parts[j].attribute < 0)
                continue;
            const struct weir__attribute *it =
                &planning->set->attributes.items[form->parts[j].attribute];
            if (ret->len == 0)
                *ret = (struct weir__span){it->name, it->name_len};
            if (weir__span_is(*ret, it->name))
                continue;
            plan_put_attributes(&buffer, policy);
            return weir__fail(planning->err, WEIR_EINVAL, 0,
                              "the keys of \"%s\" are made of more than one attribute (%s); give "
                              "these as attributes in place of a key",
                              policy->name, list);
        }
    }
    return 0;
}

static int plan_named(struct planning *planning, const struct weir__span *name, const weir_key *key)
{
    const struct weir__policy *policy = weir__policies_find(planning->set, name->data, name->len);
    struct given given = {planning->view->subject, {"", 0}, {"", 0}};
    struct weir__subject subject = {plan_find_given, &given};
    if (policy && key) {
        int code = plan_find_attribute(planning, policy, &given.name);
        if (code)
            return code;
        given.value = (struct weir__span){key->data, key->len};
        planning->view->subject = &subject;
    }
    if (policy) {
        plan_policy(planning, policy);
        return 0;
    }
    return weir__fail(planning->err, WEIR_EINVAL, 0, "no policy is named \"%s\"",
                      weir__yaml_quote(name->data, name->len).text);
}

/* ---- the whole ---- */

/* What stands in the braces of a key, which a cluster places it by. */
static struct weir__span plan_tag_of(weir_key key)
{
    const char *brace = memchr(key.data, '{', key.len);
    return (struct weir__span){brace, key.len - (size_t)(brace - (const char *)key.data)};
}

static bool plan_needs_give_back(const struct planning *planning)
{
    const struct weir__plan *plan = planning->plan;
    for (size_t i = 1; i < plan->enforced_count && planning->set->cluster; i++) {
        struct weir__span a = plan_tag_of(plan->enforced[0].key),
                          b = plan_tag_of(plan->enforced[i].key);
        if (a.len != b.len || memcmp(a.data, b.data, a.len))
            return true;
    }
    return false;
}

static int plan_fail_unreadable(const struct planning *planning)
{
    const struct weir__view *view = planning->view;
    const char *name = planning->set->attributes.items[view->wrong].text;
    if (view->said.len == 0 || view->said.len > WEIR__ATTRIBUTE_NAME_MAX)
        return weir__fail(planning->err, WEIR_EINVAL, 0, "the value of %s %s", name, view->why);
    return weir__fail(planning->err, WEIR_EINVAL, 0, "the value of %s %s: \"%s\"", name, view->why,
                      weir__yaml_quote(view->said.data, view->said.len).text);
}

static int plan_fail_cost(const struct planning *planning)
{
    const int attribute = planning->bad->attribute;
    struct weir__span said = planning->view->values[attribute];
    return weir__fail(planning->err, WEIR_EINVAL, 0,
                      "invalid %s \"%s\": expected a whole number from 0 to 10^12, since a policy "
                      "charges it",
                      planning->set->attributes.items[attribute].text,
                      weir__yaml_quote(said.data, said.len).text);
}

void weir__put_denial(struct weir__buffer *buffer, const struct weir__policies *policies,
                      const struct weir__plan *plan)
{
    if (!plan->listed) {
        weir__put_format(buffer, "policy \"%s\" has missing: deny, and an attribute is missing",
                         plan->by->name);
        return;
    }
    weir__put_format(buffer,
                     "the deny list of policy \"%s\" matches, entry %zu: ", plan->listed->name,
                     plan->listed_at + 1);
    weir__put_conditions(buffer, &plan->listed->deny.items[plan->listed_at], &policies->attributes);
}

static int plan_finish(struct planning *planning)
{
    struct weir__plan *plan = planning->plan;
    if (plan->verdict == WEIR__VERDICT_DENY)
        return 0;
    if (planning->view->wrong >= 0)
        return plan_fail_unreadable(planning);
    if (planning->bad)
        return plan_fail_cost(planning);
    if (planning->over)
        return plan_fail_too_many(planning);
    if (planning->conflict == WEIR_ESHARED)
        return weir__fail(planning->err, WEIR_ESHARED, 0,
                          "two descriptors count under one key with different limits");
    if (planning->conflict)
        return weir__fail(planning->err, WEIR_EINVAL, 0,
                          "the costs of descriptors that count under one key are more than 10^12");
    if (plan->verdict == WEIR__VERDICT_NONE && planning->allowed) {
        plan->verdict = WEIR__VERDICT_ALLOW;
        plan->by = planning->allowed;
    }
    if (plan_needs_give_back(planning))
        plan->together = WEIR__APART;
    return 0;
}

/* How a subject is planned. */
struct manner {
    unsigned owner;
    bool refund, grants, strict, looks, exempts; /* as in struct planning */
};

static int plan_subject(const struct weir__policies *policies, const struct weir__span *policy,
                        const struct weir__subject *subject, const weir_key *key, int64_t cost,
                        const struct manner *manner, struct weir__plan *plan, weir_error *err)
{
    struct weir__view view; /* large, and not cleared */
    struct planning planning = {
        .set = policies,
        .view = &view,
        .cost = cost,
        .plan = plan,
        .keys = weir__buffer_over(plan->keys + plan->keys_len, sizeof plan->keys - plan->keys_len),
        .owner = UINT32_C(1) << manner->owner,
        .refund = manner->refund,
        .grants = manner->grants,
        .strict = manner->strict,
        .looks = manner->looks,
        .exempts = manner->exempts,
        .enforced_before = plan->enforced_count,
        .limits_before = plan->limit_count,
        .shadows_before = plan->shadow_count,
        .separate_before = plan->separate_count,
        .exempted_before = plan->exempted_count,
        .lacking_before = plan->lacking_count,
        .err = err,
    };
    int code = 0;
    if (cost < -1 || cost > WEIR_COST_MAX)
        return weir__fail(err, WEIR_EINVAL, 0, "a cost is 0 to 10^12");
    weir__view_begin(&view, &policies->attributes, subject);
    plan->verdict = WEIR__VERDICT_NONE;
    plan->by = NULL;
    if (policy)
        code = plan_named(&planning, policy, key);
    else
        plan_all(&planning);
    assert(!planning.keys.cut); /* keys.h sees to it that there is room for all items */
    plan->keys_len += planning.keys.len;
    return code ? code : plan_finish(&planning);
}

static int plan_whole(const struct weir__policies *policies, const struct weir__span *policy,
                      const struct weir__subject *subject, const weir_key *key, int64_t cost,
                      const struct manner *manner, struct weir__plan *ret, weir_error *err)
{
    bool given = key && key->data;
    if (given && !policy)
        return weir__fail(err, WEIR_EINVAL, 0, "a key without the name of a policy");
    if (given && (key->len == 0 || key->len > WEIR_KEY_MAX))
        return weir__fail(err, WEIR_EINVAL, 0, "a key has 1 to %d bytes", WEIR_KEY_MAX);
    weir__plan_begin(ret);
    ret->asked = cost;
    return plan_subject(policies, policy, subject, given ? key : NULL, cost, manner, ret, err);
}

int weir__policies_plan(const struct weir__policies *policies, const struct weir__span *policy,
                        const struct weir__subject *subject, const weir_key *key, int64_t cost,
                        struct weir__plan *ret, weir_error *err)
{
    static const struct manner manner = {.grants = true, .strict = true, .exempts = true};
    return plan_whole(policies, policy, subject, key, cost, &manner, ret, err);
}

int weir__policies_look(const struct weir__policies *policies, const struct weir__span *policy,
                        const struct weir__subject *subject, const weir_key *key, int64_t cost,
                        bool exempts, struct weir__plan *ret, weir_error *err)
{
    const struct manner manner = {
        .grants = true, .strict = true, .looks = true, .exempts = exempts};
    int code = plan_whole(policies, policy, subject, key, cost, &manner, ret, err);
    if (code || !ret->listed || !exempts)
        return code;
    if (ret->verdict != WEIR__VERDICT_LIMITS) { /* nothing to look at */
        ret->verdict = WEIR__VERDICT_DENY;
        ret->denial = WEIR__DENIED_LISTED;
        ret->by = ret->listed;
    }
    ret->denied = true;
    return 0;
}

int weir__policies_plan_more(const struct weir__policies *policies,
                             const struct weir__subject *subject, int64_t cost, unsigned owner,
                             bool refund, struct weir__plan *plan, weir_error *err)
{
    assert(owner < 32);
    const struct manner manner = {.owner = owner, .refund = refund, .exempts = true};
    return plan_subject(policies, NULL, subject, NULL, cost, &manner, plan, err);
}
