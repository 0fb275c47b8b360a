/* One policy of a file, and what names and headers are. */
#include "policy/read/reader.h"

void weir__reader_warn(struct weir__reader *reader, const struct weir__yaml_node *node,
                       const char *what)
{
    struct weir__policies *set = reader->set;
    weir_error said = {0};
    weir__yaml_say(reader->yaml, node, what, &said);
    struct weir__warning *warning = weir__yaml_new(reader->yaml, 1, sizeof *warning);
    if (!warning)
        return;
    warning->text = weir__yaml_copy(reader->yaml, said.message, strlen(said.message));
    *set->last_warning = warning;
    set->last_warning = &warning->next;
}

enum weir__field_style weir__read_style(struct weir__reader *reader,
                                        const struct weir__yaml_node *map,
                                        enum weir__field_style otherwise)
{
    static const char *const words[] = {"ietf",        "ietf-06", "x-ratelimit", "openai",
                                        "retry-after", "off",     NULL};
    int found = weir__yaml_get_word(reader->yaml, map, "headers", words, -1);
    if (found >= 0)
        weir__field_style_read(words[found], strlen(words[found]), &otherwise);
    return otherwise;
}

static bool policy_is_name(struct weir__span text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i], small = (char)(c | 0x20);
        bool solid = (small >= 'a' && small <= 'z') || (c >= '0' && c <= '9');
        if (!solid && (i == 0 || (c != '.' && c != '_' && c != '-')))
            return false;
    }
    return text.len > 0 && text.len <= WEIR__POLICY_NAME_MAX;
}

const char *weir__read_name(struct weir__reader *reader, const struct weir__yaml_node *node,
                            const char *what)
{
    struct weir__span text = weir__yaml_text(reader->yaml, node, what);
    if (node && !policy_is_name(text))
        weir__yaml_fail(reader->yaml, node,
                        "%s is 1 to %d letters, digits, \".\", \"_\" and \"-\", the first a letter "
                        "or digit, found \"%s\"",
                        what, WEIR__POLICY_NAME_MAX, weir__yaml_quote(text.data, text.len).text);
    const char *copy = weir__yaml_copy(reader->yaml, text.data, text.len);
    return copy ? copy : "";
}

/* ---- a policy ---- */

static void policy_read_name(struct weir__reader *reader, const struct weir__yaml_node *map,
                             struct weir__policy *policy)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, "name");
    if (!node)
        weir__yaml_fail(reader->yaml, map,
                        "a policy needs a name, which is a part of its keys; add name: api");
    policy->name = weir__read_name(reader, node, "a policy's name");
    for (const struct weir__policy *it = reader->set->policies; it < policy; it++) {
        if (!strcmp(it->name, policy->name))
            weir__yaml_refuse(reader->yaml, node, "two policies have this name");
    }
}

static void policy_read_match(struct weir__reader *reader, const struct weir__yaml_node *node,
                              struct weir__policy *policy)
{
    static const char *const words[] = {"any", "by-name", NULL};
    if (node && node->type != WEIR__YAML_SCALAR)
        weir__read_conditions(reader, node, &policy->match);
    else
        policy->by_name =
            weir__yaml_word(reader->yaml, node, "match (unless it is a map of attributes)", words,
                            0) == 1;
}

static void policy_read_words(struct weir__reader *reader, const struct weir__yaml_node *map,
                              struct weir__policy *policy)
{
    static const char *const crosses[] = {"refuse", "give-back", NULL};
    struct weir__yaml *yaml = reader->yaml;
    policy->fail = (enum weir__redis_fail)weir__yaml_get_word(
        yaml, map, "fail", weir__redis_fail_names, WEIR__FAIL_LOCAL);
    policy->fail_said = weir__yaml_get(map, "fail");
    policy->give_back = weir__yaml_get_word(yaml, map, "cross_slot", crosses, 0) == 1;
    policy->style = weir__read_style(reader, map, reader->set->style);
    policy->styled = reader->set->styled || weir__yaml_get(map, "headers");
    policy->deny_status =
        (int)weir__yaml_get_number(yaml, map, "deny_status", 400, 499, WEIR__DENY_STATUS);
}

/* Whether it limits at all; a policy may also just deny. */
static void policy_check_use(struct weir__reader *reader, const struct weir__yaml_node *map,
                             const struct weir__policy *policy, bool limited)
{
    /* What only a policy with limits has a use for. */
    static const char *const keys[] = {"key",       "cost",  "least",      "shadow", "missing",
                                       "overrides", "allow", "cross_slot", "share"};
    const struct weir__yaml_node *limit = weir__yaml_get(map, "limit");
    const struct weir__yaml_node *tier = weir__yaml_get(map, "tier");
    if (weir__yaml_get(map, "limits") && (limit || tier))
        weir__yaml_fail(reader->yaml, limit ? limit : tier,
                        "\"%s\" has limit and limits; put the single one into the list",
                        policy->name);
    if (limited)
        return;
    if (!weir__yaml_get(map, "deny"))
        weir__yaml_fail(reader->yaml, map,
                        "\"%s\" has no limit; add limit: token-bucket 100/s, or limits: for "
                        "several",
                        policy->name);
    for (size_t i = 0; i < WEIR__COUNT(keys); i++) {
        const struct weir__yaml_node *node = weir__yaml_get(map, keys[i]);
        if (node)
            weir__yaml_fail(reader->yaml, node,
                            "%s without a limit in \"%s\"; add limit: token-bucket 100/s", keys[i],
                            policy->name);
    }
}

static void policy_read_lists(struct weir__reader *reader, const struct weir__yaml_node *map,
                              struct weir__policy *policy)
{
    const struct weir__yaml_node *deny = weir__yaml_get(map, "deny");
    weir__read_any_of(reader, map, "deny", &policy->deny);
    weir__read_any_of(reader, map, "allow", &policy->allow);
    if (weir__yaml_get_bool(reader->yaml, map, "shadow", false) && deny)
        weir__yaml_fail(reader->yaml, deny,
                        "deny is enforced, and shadow: true says that nothing is; put one of them "
                        "into another policy");
}

static void policy_put_match_text(struct weir__reader *reader, struct weir__policy *policy)
{
    char room[512];
    struct weir__buffer buffer = weir__buffer_over(room, sizeof room);
    if (policy->by_name)
        weir__put_text(&buffer, "asked for by name");
    else if (policy->match.count == 0)
        weir__put_text(&buffer, "every request");
    weir__put_conditions(&buffer, &policy->match, &reader->set->attributes);
    policy->match_text = weir__yaml_copy(reader->yaml, room, buffer.len);
}

void weir__read_policy(struct weir__reader *reader, const struct weir__yaml_node *map,
                       struct weir__policy *policy)
{
    static const char *const allowed[] = {
        "name",    "match",   "key",        "limit",       "tier",   "limits",    "cost",
        "least",   "share",   "deny",       "allow",       "shadow", "overrides", "fail",
        "missing", "headers", "cross_slot", "deny_status", NULL};
    bool limited = weir__yaml_get(map, "limit") || weir__yaml_get(map, "tier") ||
                   weir__yaml_get(map, "limits");
    if (!weir__yaml_only(reader->yaml, map, allowed))
        return;
    policy_read_name(reader, map, policy);
    policy_check_use(reader, map, policy, limited);
    policy_read_match(reader, weir__yaml_get(map, "match"), policy);
    policy_read_words(reader, map, policy);
    policy_read_lists(reader, map, policy);
    if (limited && !reader->yaml->code)
        weir__read_entries(reader, map, policy);
    if (!reader->yaml->code)
        policy_put_match_text(reader, policy);
}
