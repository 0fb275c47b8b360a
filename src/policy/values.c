/*
 * Single values of a file, and what is wrong with them: see yaml.h. A message has the place first,
 * then what is wrong, and nothing in it that a terminal obeys.
 */
#include "policy/yaml.h"

#include "base/buffer.h"

#include <stdio.h>
#include <string.h>

#define NAME_SHOWN 120 /* bytes of a file's name, its end */

/* Bytes of the character that begins here; 0: none that may be shown. */
static size_t yaml_shown_length(const char *text, size_t len)
{
    size_t n = weir__utf8_length(text, len);
    bool control = n == 1
                       ? (unsigned char)text[0] < ' ' || text[0] == 0x7f
                       : n == 2 && (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0;
    return control ? 0 : n;
}

struct weir__yaml_quote weir__yaml_quote(const char *text, size_t len)
{
    static const char more[] = "…";
    struct weir__yaml_quote quote;
    struct weir__buffer buffer = weir__buffer_over(quote.text, sizeof quote.text);
    for (size_t at = 0; at < len;) {
        size_t n = yaml_shown_length(text + at, len - at);
        if (buffer.len + (n ? n : 1) > sizeof quote.text - sizeof more) {
            weir__put_text(&buffer, more);
            break;
        }
        weir__put(&buffer, n ? text + at : "?", n ? n : 1);
        at += n ? n : 1;
    }
    return quote;
}

/* Masks what a terminal would obey, and drops half a character at the end of a message that was
 * cut. */
static void yaml_clean(char *text)
{
    size_t len = strlen(text);
    for (size_t at = 0; at < len;) {
        size_t n = yaml_shown_length(text + at, len - at);
        if (n == 0 && len - at < 4 && (text[at] & 0x80) &&
            len >= sizeof((weir_error *)0)->message - 1)
            text[len = at] = 0;
        else if (n == 0)
            text[at] = '?';
        at += n ? n : 1;
    }
}

static int yaml_fail_at(struct weir__yaml *yaml, int line, int column, const char *format,
                        va_list args)
{
    weir_error *err = yaml->err;
    if (yaml->code)
        return yaml->code;
    yaml->code = WEIR_EINVAL;
    if (!err || !format)
        return WEIR_EINVAL;
    size_t len = strlen(yaml->name);
    bool long_name = len > NAME_SHOWN;
    weir__fail(err, WEIR_EINVAL, column, "%s%s:%d:%d: ", long_name ? "..." : "",
               long_name ? yaml->name + len - NAME_SHOWN : yaml->name, line, column);
    size_t used = strlen(err->message);
    vsnprintf(err->message + used, sizeof err->message - used, format, args);
    yaml_clean(err->message);
    return WEIR_EINVAL;
}

int weir__yaml_fail(struct weir__yaml *yaml, const struct weir__yaml_node *node, const char *format,
                    ...)
{
    va_list args;
    va_start(args, format);
    int code = yaml_fail_at(yaml, node->line, node->column, format, args);
    va_end(args);
    return code;
}

int weir__yaml_fail_within(struct weir__yaml *yaml, const struct weir__yaml_node *node, size_t at,
                           const char *format, ...)
{
    int column = node->column;
    if (node->type == WEIR__YAML_SCALAR && node->verbatim) {
        column += !node->plain;
        for (size_t i = 0; i < at && i < node->len; i++)
            column += ((unsigned char)node->text[i] & 0xc0) != 0x80;
    }
    va_list args;
    va_start(args, format);
    int code = yaml_fail_at(yaml, node->line, column, format, args);
    va_end(args);
    return code;
}

int weir__yaml_no_memory(struct weir__yaml *yaml)
{
    if (yaml->code == 0)
        yaml->code = weir__fail(yaml->err, WEIR_ENOMEM, 0, "out of memory for %s", yaml->becomes);
    return yaml->code;
}

int weir__yaml_refuse(struct weir__yaml *yaml, const struct weir__yaml_node *node,
                      const char *wrong)
{
    if (!*wrong)
        return weir__yaml_no_memory(yaml);
    if (node->type != WEIR__YAML_SCALAR)
        return weir__yaml_fail(yaml, node, "%s", wrong);
    return weir__yaml_fail(yaml, node, "\"%s\": %s", weir__yaml_quote(node->text, node->len).text,
                           wrong);
}

void weir__yaml_say(const struct weir__yaml *yaml, const struct weir__yaml_node *node,
                    const char *what, weir_error *ret)
{
    struct weir__yaml said = {.name = yaml->name, .err = ret};
    weir__yaml_fail(&said, node, "%s", what);
}

/* ---- values ---- */

void *weir__yaml_new(struct weir__yaml *yaml, size_t count, size_t size)
{
    void *made = yaml->code ? NULL : weir__arena_new(yaml->arena, count, size);
    if (!made)
        weir__yaml_no_memory(yaml);
    return made;
}

const char *weir__yaml_copy(struct weir__yaml *yaml, const char *text, size_t len)
{
    const char *copy = yaml->code ? NULL : weir__arena_text(yaml->arena, text, len);
    if (!copy)
        weir__yaml_no_memory(yaml);
    return copy;
}

static bool yaml_is_one_of(const char *word, const char *const *names)
{
    while (*names && strcmp(word, *names))
        names++;
    return *names != NULL;
}

static void yaml_put_words(struct weir__buffer *buffer, const char *const *words, const char *last)
{
    for (size_t i = 0; words[i]; i++)
        weir__put_format(buffer, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : last, words[i]);
}

bool weir__yaml_only(struct weir__yaml *yaml, const struct weir__yaml_node *map,
                     const char *const *allowed)
{
    if (map->type != WEIR__YAML_MAP)
        return !weir__yaml_fail(yaml, map, "expected a map (\"%s: …\")", allowed[0]);
    const struct weir__yaml_node *key = map->child;
    while (key && yaml_is_one_of(key->text, allowed))
        key = key->next;
    if (!key)
        return yaml->code == 0;
    struct weir__yaml_quote found = weir__yaml_quote(key->text, key->len);
    const char *nearest = weir__nearest(key->text, key->len, allowed);
    if (nearest)
        return !weir__yaml_fail(yaml, key, "unknown key \"%s\"; did you mean %s?", found.text,
                                nearest);
    char list[256];
    struct weir__buffer buffer = weir__buffer_over(list, sizeof list);
    yaml_put_words(&buffer, allowed, " and ");
    return !weir__yaml_fail(yaml, key, "unknown key \"%s\": expected one of %s", found.text, list);
}

static bool yaml_is_null(const struct weir__yaml_node *node)
{
    return node->plain &&
           (node->len == 0 || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}

struct weir__span weir__yaml_text(struct weir__yaml *yaml, const struct weir__yaml_node *node,
                                  const char *what)
{
    if (node && node->type != WEIR__YAML_SCALAR)
        weir__yaml_fail(yaml, node, "%s is a text, not a list or map", what);
    else if (node && yaml_is_null(node))
        weir__yaml_fail(yaml, node, "%s has no value; write one, or \"\" for the empty text", what);
    if (!node || yaml->code)
        return (struct weir__span){"", 0};
    return (struct weir__span){node->text, node->len};
}

int weir__yaml_word(struct weir__yaml *yaml, const struct weir__yaml_node *node, const char *what,
                    const char *const *words, int otherwise)
{
    struct weir__span text = weir__yaml_text(yaml, node, what);
    if (!node || yaml->code)
        return otherwise;
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], text.data))
            return i;
    }
    char list[128];
    struct weir__buffer buffer = weir__buffer_over(list, sizeof list);
    yaml_put_words(&buffer, words, " or ");
    const char *nearest = weir__nearest(text.data, text.len, words);
    weir__yaml_fail(yaml, node, "%s is %s, found \"%s\"%s%s%s", what, list,
                    weir__yaml_quote(text.data, text.len).text, nearest ? "; did you mean " : "",
                    nearest ? nearest : "", nearest ? "?" : "");
    return otherwise;
}

int weir__yaml_get_word(struct weir__yaml *yaml, const struct weir__yaml_node *map, const char *key,
                        const char *const *words, int otherwise)
{
    return weir__yaml_word(yaml, weir__yaml_get(map, key), key, words, otherwise);
}

bool weir__yaml_get_bool(struct weir__yaml *yaml, const struct weir__yaml_node *map,
                         const char *key, bool otherwise)
{
    static const char *const words[] = {"false", "true", NULL};
    return weir__yaml_get_word(yaml, map, key, words, otherwise);
}

int64_t weir__yaml_get_number(struct weir__yaml *yaml, const struct weir__yaml_node *map,
                              const char *key, int64_t least, int64_t most, int64_t otherwise)
{
    const struct weir__yaml_node *node = weir__yaml_get(map, key);
    struct weir__span text = weir__yaml_text(yaml, node, key);
    int64_t number;
    if (!node || yaml->code)
        return otherwise;
    if (text.len <= 18 && weir__span_whole(text, least, most, &number))
        return number;
    weir__yaml_fail(yaml, node, "%s is a whole number from %lld to %lld, found \"%s\"", key,
                    (long long)least, (long long)most, weir__yaml_quote(text.data, text.len).text);
    return otherwise;
}

/* The library's message without its "column 14: ": the place stands before it already. */
static const char *yaml_behind_column(const char *message)
{
    if (strncmp(message, "column ", 7))
        return message;
    const char *at = message + 7 + strspn(message + 7, "0123456789");
    return strncmp(at, ": ", 2) ? message : at + 2;
}

weir_limit *weir__yaml_limit(struct weir__yaml *yaml, const struct weir__yaml_node *node)
{
    weir_limit *limit = NULL;
    weir_error err = {0};
    int code = yaml->code ? yaml->code : weir_limit_parse(node->text, &limit, &err);
    if (code == WEIR_ENOMEM)
        weir__yaml_no_memory(yaml);
    else if (code)
        weir__yaml_fail_within(yaml, node, (size_t)weir__max(0, err.column - 1), "%s",
                               yaml_behind_column(err.message));
    return limit;
}
