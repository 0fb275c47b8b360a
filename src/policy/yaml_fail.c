/* Messages about a file: the place first, then what is wrong, nothing in it that a terminal obeys.
 * */
#include "policy/yaml.h"

#include "base/buffer.h"
#include "base/span.h"

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

static int yaml_fail_at(const struct weir__yaml *yaml, int line, int column, weir_error *err,
                        const char *format, va_list args)
{
    if (!err || !format)
        return WEIR_EINVAL;
    const char *name = weir__yaml_name(yaml);
    size_t len = strlen(name);
    bool long_name = len > NAME_SHOWN;
    weir__fail(err, WEIR_EINVAL, column, "%s%s:%d:%d: ", long_name ? "..." : "",
               long_name ? name + len - NAME_SHOWN : name, line, column);
    size_t used = strlen(err->message);
    vsnprintf(err->message + used, sizeof err->message - used, format, args);
    yaml_clean(err->message);
    return WEIR_EINVAL;
}

int weir__yaml_fail(const struct weir__yaml *yaml, const struct weir__yaml_node *node,
                    weir_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int code = yaml_fail_at(yaml, node->line, node->column, err, format, args);
    va_end(args);
    return code;
}

int weir__yaml_fail_within(const struct weir__yaml *yaml, const struct weir__yaml_node *node,
                           size_t at, weir_error *err, const char *format, ...)
{
    int column = node->column;
    if (node->type == WEIR__YAML_SCALAR && node->verbatim) {
        column += !node->plain;
        for (size_t i = 0; i < at && i < node->len; i++)
            column += ((unsigned char)node->text[i] & 0xc0) != 0x80;
    }
    va_list args;
    va_start(args, format);
    int code = yaml_fail_at(yaml, node->line, column, err, format, args);
    va_end(args);
    return code;
}

static bool yaml_is_one_of(const char *word, const char *const *names)
{
    while (*names && strcmp(word, *names))
        names++;
    return *names != NULL;
}

int weir__yaml_only(const struct weir__yaml *yaml, const struct weir__yaml_node *map,
                    const char *const *allowed, weir_error *err)
{
    if (map->type != WEIR__YAML_MAP)
        return weir__yaml_fail(yaml, map, err, "expected a map (\"%s: …\")", allowed[0]);
    const struct weir__yaml_node *key = map->child;
    while (key && yaml_is_one_of(key->text, allowed))
        key = key->next;
    if (!key)
        return 0;
    const char *nearest = weir__nearest(key->text, key->len, allowed);
    if (nearest)
        return weir__yaml_fail(yaml, key, err, "unknown key \"%s\"; did you mean %s?",
                               weir__yaml_quote(key->text, key->len).text, nearest);
    char list[256];
    struct weir__buffer buffer = weir__buffer_over(list, sizeof list);
    for (size_t i = 0; allowed[i]; i++)
        weir__put_format(&buffer, "%s%s",
                         i == 0           ? ""
                         : allowed[i + 1] ? ", "
                                          : " and ",
                         allowed[i]);
    return weir__yaml_fail(yaml, key, err, "unknown key \"%s\": expected one of %s",
                           weir__yaml_quote(key->text, key->len).text, list);
}
