/*
 * The limit language: text ⇄ rules; and rules from numbers. Parsing reads one limit at a time,
 * checks it against its bounds, and uses nothing of a text that has an error anywhere.
 */
#ifndef WEIR_LIMIT_H
#define WEIR_LIMIT_H

#include "base/buffer.h"
#include "core/core.h"

#include <stdatomic.h>

/* A limit list. Immutable but for the hints. One that weir__limit_of_rules made has only `count`
 * rules, and its text behind them: tenants have limits by the hundred thousand. So nobody copies it
 * whole. */
struct weir_limit {
    size_t count;
    char *text;
    _Atomic uint32_t others; /* references beside the first */
    /* Where a zone keeps each rule: row, its generation and the zone's serial, as many bits of each
     * as fit (store/zone/store.c); 0: unknown. A guess, verified at every use. */
    _Atomic uint64_t hints[WEIR_LIMITS_MAX];
    struct weir__rule rules[WEIR_LIMITS_MAX];
};

/* A limit of 1 to WEIR_LIMITS_MAX rules that were checked. */
int weir__limit_of_rules(const struct weir__rule *rules, size_t n, weir_limit **ret,
                         weir_error *err);

/* Another reference, given back by weir_limit_free like the first. */
const weir_limit *weir__limit_ref(const weir_limit *limit);

/* Reads up to WEIR_LIMITS_MAX rules; *ret_count of them on success. */
int weir__rules_parse(const char *text, struct weir__rule *ret_rules, size_t *ret_count,
                      weir_error *err);

/* What is wrong with a rule that parsed; NULL: nothing, and the rest of it is derived. */
const char *weir__rule_check(struct weir__rule *rule);

/* Whether a rule read from untrusted memory is one that parsing could have made. */
bool weir__rule_sound(const struct weir__rule *rule);

/* Canonical text. */
void weir__put_rule(struct weir__buffer *buffer, const struct weir__rule *rule);
/* Longest canonical text of one rule, with room to spare. */
#define WEIR__RULE_TEXT_MAX 128
/* The same as a value: weir__rule_text(rule).text. */
struct weir__rule_text {
    char text[WEIR__RULE_TEXT_MAX];
};
struct weir__rule_text weir__rule_text(const struct weir__rule *rule);

#endif
