/* The embedded scripts by name and kind, and their arguments: see scripts.h. */
#include "remote/lua_scripts.h"

#include <assert.h>
#include <string.h>

const size_t weir__script_count = WEIR__COUNT(weir__scripts);

const struct weir__script *weir__script_named(const char *name)
{
    for (size_t i = 0; i < WEIR__COUNT(weir__scripts); i++) {
        if (!strcmp(weir__scripts[i].name, name))
            return &weir__scripts[i];
    }
    return NULL;
}

const struct weir__script *weir__script_lean(int kind, bool test)
{
    for (size_t i = 0; i < WEIR__COUNT(weir__scripts); i++) {
        const struct weir__script *it = &weir__scripts[i];
        size_t len = strlen(it->name);
        bool is_test = len > 5 && !strcmp(it->name + len - 5, "_test");
        if (it->kind == kind && is_test == test)
            return it;
    }
    assert(!"every kind has a lean script");
    return NULL;
}

void weir__script_put_function(struct weir__buffer *buffer, const struct weir__script *script)
{
    if (script->kind >= 0)
        weir__put_text(buffer, "weir_");
    weir__put_text(buffer, script->name);
}

size_t weir__script_lean_numbers(const struct weir__script *script, const struct weir__rule *rule,
                                 int64_t cost, int64_t wait_us, int64_t ret[WEIR__LEAN_NUMBERS])
{
    const struct {
        const char *name;
        int64_t number;
    } all[] = {
        {"cost", cost},         {"wait", weir__script_wait(wait_us)},
        {"count", rule->count}, {"period", rule->period_us},
        {"burst", rule->burst}, {"extra", rule->extra},
        {"flags", rule->flags}, {"cold", rule->cold_millionths},
    };
    size_t n = 0;
    for (const char *word = script->arguments; *word;) {
        size_t len = strcspn(word, " "), i = 0;
        while (i < WEIR__COUNT(all) && (strncmp(all[i].name, word, len) || all[i].name[len]))
            i++;
        assert(i < WEIR__COUNT(all) && n < WEIR__LEAN_NUMBERS);
        ret[n++] = all[i].number;
        word += len + (word[len] == ' ');
    }
    return n;
}

void weir__script_rule_numbers(const struct weir__rule *rule, int64_t ret[WEIR__RULE_NUMBERS])
{
    const int64_t numbers[] = {rule->kind,  rule->count, rule->period_us,      rule->burst,
                               rule->extra, rule->flags, rule->cold_millionths};
    memcpy(ret, numbers, sizeof numbers);
}
