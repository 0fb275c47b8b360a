/* Single values of a policy file: texts, words, numbers, names. */
#include "base/span.h"
#include "policy/read/reader.h"

#include <string.h>

int weir__reader_no_memory(const struct weir__reader *reader)
{
    return weir__fail(reader->err, WEIR_ENOMEM, 0, "out of memory for the policies");
}

int weir__reader_fail(const struct weir__reader *reader, const struct weir__yaml_node *node,
                      const char *wrong)
{
    if (!*wrong)
        return weir__reader_no_memory(reader);
    if (node->type != WEIR__YAML_SCALAR)
        return weir__yaml_fail(reader->yaml, node, reader->err, "%s", wrong);
    return weir__yaml_fail(reader->yaml, node, reader->err, "\"%s\": %s",
                           weir__yaml_quote(node->text, node->len).text, wrong);
}

int weir__reader_warn(const struct weir__reader *reader, const struct weir__yaml_node *node,
                      const char *what)
{
    struct weir__policies *set = reader->set;
    weir_error err = {0};
    weir__yaml_fail(reader->yaml, node, &err, "%s", what);
    struct weir__warning *warning = weir__arena_new(&set->arena, 1, sizeof *warning);
    if (warning)
        warning->text = weir__arena_text(&set->arena, err.message, strlen(err.message));
    if (!warning || !warning->text)
        return weir__reader_no_memory(reader);
    *set->last_warning = warning;
    set->last_warning = &warning->next;
    return 0;
}

size_t weir__map_count(const struct weir__yaml_node *map)
{
    size_t count = 0;
    for (const struct weir__yaml_node *key = map->child; key; key = key->next)
        count++;
    return count;
}

size_t weir__node_count(const struct weir__yaml_node *node)
{
    return node->type == WEIR__YAML_LIST ? weir__map_count(node) : 1;
}

const struct weir__yaml_node *weir__node_first(const struct weir__yaml_node *node)
{
    return node->type == WEIR__YAML_LIST ? node->child : node;
}

static bool values_is_null(const struct weir__yaml_node *node)
{
    return node->plain &&
           (node->len == 0 || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}

int weir__read_text(const struct weir__reader *reader, const struct weir__yaml_node *node,
                    const char *what, struct weir__span *ret)
{
    if (!node)
        return 0;
    if (node->type != WEIR__YAML_SCALAR)
        return weir__yaml_fail(reader->yaml, node, reader->err, "%s is a text, not a list or map",
                               what);
    if (values_is_null(node))
        return weir__yaml_fail(reader->yaml, node, reader->err,
                               "%s has no value; write one, or \"\" for the empty text", what);
    *ret = (struct weir__span){node->text, node->len};
    return 0;
}

int weir__read_bool(const struct weir__reader *reader, const struct weir__yaml_node *node,
                    const char *what, bool *ret)
{
    static const char *const words[] = {"false", "true", NULL};
    int found = *ret;
    int code = weir__read_word(reader, node, what, words, &found);
    if (code == 0)
        *ret = found;
    return code;
}

int weir__read_number(const struct weir__reader *reader, const struct weir__yaml_node *node,
                      const char *what, int64_t least, int64_t most, int64_t *ret)
{
    struct weir__span text = {"", 0};
    int64_t number = 0;
    int code = weir__read_text(reader, node, what, &text);
    if (code || !node)
        return code;
    bool good = text.len > 0 && text.len <= 18;
    for (size_t i = 0; i < text.len && good; i++) {
        good = text.data[i] >= '0' && text.data[i] <= '9';
        number = number * 10 + (text.data[i] - '0');
    }
    if (!good || number < least || number > most)
        return weir__yaml_fail(
            reader->yaml, node, reader->err, "%s is a whole number from %lld to %lld, found \"%s\"",
            what, (long long)least, (long long)most, weir__yaml_quote(node->text, node->len).text);
    *ret = number;
    return 0;
}

static void values_put_words(struct weir__buffer *buffer, const char *const *words)
{
    for (size_t i = 0; words[i]; i++)
        weir__put_format(buffer, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
}

int weir__read_word(const struct weir__reader *reader, const struct weir__yaml_node *node,
                    const char *what, const char *const *words, int *ret)
{
    char list[128];
    struct weir__span text = {"", 0};
    struct weir__buffer buffer = weir__buffer_over(list, sizeof list);
    int code = weir__read_text(reader, node, what, &text);
    if (code || !node)
        return code;
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], text.data)) {
            *ret = i;
            return 0;
        }
    }
    values_put_words(&buffer, words);
    const char *nearest = weir__nearest(text.data, text.len, words);
    return weir__yaml_fail(reader->yaml, node, reader->err, "%s is %s, found \"%s\"%s%s%s", what,
                           list, weir__yaml_quote(text.data, text.len).text,
                           nearest ? "; did you mean " : "", nearest ? nearest : "",
                           nearest ? "?" : "");
}

int weir__read_style(const struct weir__reader *reader, const struct weir__yaml_node *node,
                     enum weir__field_style *ret)
{
    static const char *const words[] = {"ietf", "ietf-06", "x-ratelimit", "off", NULL};
    int found = 0;
    int code = weir__read_word(reader, node, "headers", words, &found);
    if (code || !node)
        return code;
    weir__field_style_read(words[found], strlen(words[found]), ret);
    return 0;
}

static bool values_is_name(struct weir__span text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i], small = (char)(c | 0x20);
        bool solid = (small >= 'a' && small <= 'z') || (c >= '0' && c <= '9');
        if (!solid && (i == 0 || (c != '.' && c != '_' && c != '-')))
            return false;
    }
    return text.len > 0 && text.len <= WEIR__POLICY_NAME_MAX;
}

int weir__read_name(const struct weir__reader *reader, const struct weir__yaml_node *node,
                    const char *what, const char **ret)
{
    struct weir__span text = {"", 0};
    int code = weir__read_text(reader, node, what, &text);
    if (code || !node)
        return code;
    if (!values_is_name(text))
        return weir__yaml_fail(reader->yaml, node, reader->err,
                               "%s is 1 to %d letters, digits, \".\", \"_\" and \"-\", the first a "
                               "letter or digit, found \"%s\"",
                               what, WEIR__POLICY_NAME_MAX,
                               weir__yaml_quote(text.data, text.len).text);
    const char *copy = weir__arena_text(&reader->set->arena, text.data, text.len);
    if (!copy)
        return weir__reader_no_memory(reader);
    *ret = copy;
    return 0;
}
