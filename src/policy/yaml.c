/*
 * From libyaml's events to a tree of nodes. Not from its documents: events come one at a time, so
 * that an alias, a tag, a level too deep or a node too many ends the reading where it stands.
 *
 * A node belongs to the innermost open list or map; a stack of at most WEIR__YAML_DEPTH_MAX of them
 * is all the state there is.
 */
#include "policy/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define TAG_DIRECTIVES_MAX 16

/* A list or map whose end has not come. */
struct open_node {
    struct weir__yaml_node *node;
    struct weir__yaml_node **tail; /* where the next element or key goes */
    struct weir__yaml_node *key;   /* map: waits for its value */
    size_t count;                  /* elements or keys */
};

struct reading {
    struct weir__yaml *yaml;
    yaml_parser_t parser;
    struct open_node open[WEIR__YAML_DEPTH_MAX];
    size_t depth;
    size_t nodes; /* there are so far */
};

static struct weir__yaml_node yaml_at_mark(yaml_mark_t mark)
{
    return (struct weir__yaml_node){.line = (int)mark.line + 1, .column = (int)mark.column + 1};
}

/* ---- what libyaml refuses ---- */

/* The place of a byte; columns count characters. */
static struct weir__yaml_node yaml_at_byte(const char *text, size_t at)
{
    struct weir__yaml_node node = {.line = 1, .column = 1};
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            node.line++;
            node.column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            node.column++;
        }
    }
    return node;
}

/* What libyaml's words leave to guess. */
static const char *yaml_hint_for(const yaml_parser_t *parser)
{
    if (parser->context && !strcmp(parser->context, "while scanning an alias"))
        return "; a text that begins with * needs quotes";
    if (!strcmp(parser->problem, "found character that cannot start any token"))
        return "; a text that begins with %, @ or ` needs quotes, and tabs do not indent";
    return "";
}

static int yaml_fail_unreadable(struct reading *reading, const char *text, size_t len)
{
    const yaml_parser_t *parser = &reading->parser;
    if (parser->error == YAML_MEMORY_ERROR)
        return weir__yaml_no_memory(reading->yaml);
    if (parser->error == YAML_READER_ERROR) {
        size_t at = parser->problem_offset < len ? parser->problem_offset : len;
        struct weir__yaml_node node = yaml_at_byte(text, at);
        if (!strncmp(parser->problem, "control", 7))
            return weir__yaml_fail(reading->yaml, &node,
                                   "a control character (0x%02x); leave it out",
                                   (unsigned)parser->problem_value);
        return weir__yaml_fail(reading->yaml, &node, "not UTF-8 text: %s; save the file as UTF-8",
                               parser->problem);
    }
    struct weir__yaml_node node = yaml_at_mark(parser->problem_mark);
    if (!parser->context)
        return weir__yaml_fail(reading->yaml, &node, "not YAML: %s", parser->problem);
    return weir__yaml_fail(reading->yaml, &node, "not YAML: %s %s (begun on line %zu)%s",
                           parser->problem, parser->context, parser->context_mark.line + 1,
                           yaml_hint_for(parser));
}

/* ---- nodes ---- */

static int yaml_compare_keys(const void *a, const void *b)
{
    const struct weir__yaml_node *x = *(struct weir__yaml_node *const *)a;
    const struct weir__yaml_node *y = *(struct weir__yaml_node *const *)b;
    int order = strcmp(x->text, y->text);
    if (order == 0)
        order = x->line != y->line ? (x->line < y->line ? -1 : 1)
                                   : (x->column > y->column) - (x->column < y->column);
    return order;
}

/* No key twice. Sorted, as a map may have a hundred thousand. */
static int yaml_check_keys(struct reading *reading, const struct open_node *map)
{
    struct weir__yaml_node **keys = malloc((map->count + 1) * sizeof(struct weir__yaml_node *));
    if (!keys)
        return weir__yaml_no_memory(reading->yaml);
    size_t n = 0;
    for (struct weir__yaml_node *key = map->node->child; key; key = key->next)
        keys[n++] = key;
    qsort(keys, n, sizeof(struct weir__yaml_node *), yaml_compare_keys);
    int code = 0;
    for (size_t i = 1; i < n && code == 0; i++) {
        if (!strcmp(keys[i - 1]->text, keys[i]->text))
            code = weir__yaml_fail(reading->yaml, keys[i],
                                   "\"%s\" is given twice in one map, first on line %d; keep one",
                                   weir__yaml_quote(keys[i]->text, keys[i]->len).text,
                                   keys[i - 1]->line);
    }
    free(keys);
    return code;
}

/* Puts a node where it belongs: the root, an element, a key, or the value of the key before. */
static int yaml_place(struct reading *reading, struct weir__yaml_node *node)
{
    if (reading->depth == 0) {
        reading->yaml->root = node;
        return 0;
    }
    struct open_node *open = &reading->open[reading->depth - 1];
    if (open->node->type == WEIR__YAML_MAP && open->key) {
        open->key->value = node;
        open->key = NULL;
        return 0;
    }
    if (open->node->type == WEIR__YAML_MAP) {
        if (node->type != WEIR__YAML_SCALAR)
            return weir__yaml_fail(reading->yaml, node,
                                   "a list or map as a key; keys are plain text (a value that "
                                   "begins with [ or { needs quotes)");
        open->key = node;
    }
    *open->tail = node;
    open->tail = &node->next;
    open->count++;
    return 0;
}

static int yaml_add(struct reading *reading, const yaml_event_t *event,
                    const struct weir__yaml_node *like, const yaml_char_t *anchor,
                    const yaml_char_t *tag)
{
    struct weir__yaml *yaml = reading->yaml;
    struct weir__yaml_node here = yaml_at_mark(event->start_mark);
    if (anchor)
        return weir__yaml_fail(
            yaml, &here, "anchors (&%s) are not supported; write the text where it is meant",
            weir__yaml_quote((const char *)anchor, strlen((const char *)anchor)).text);
    if (tag)
        return weir__yaml_fail(yaml, &here,
                               "tags (%s) are not supported; leave it out, quotes make text",
                               weir__yaml_quote((const char *)tag, strlen((const char *)tag)).text);
    if (++reading->nodes > WEIR__YAML_NODES_MAX)
        return weir__yaml_fail(yaml, &here, "more than %d values in one file; make it smaller",
                               WEIR__YAML_NODES_MAX);
    struct weir__yaml_node *node = weir__yaml_new(yaml, 1, sizeof *node);
    if (!node)
        return yaml->code;
    *node = *like;
    node->line = here.line;
    node->column = here.column;
    int code = yaml_place(reading, node);
    if (code || node->type == WEIR__YAML_SCALAR)
        return code;
    if (reading->depth == WEIR__YAML_DEPTH_MAX)
        return weir__yaml_fail(yaml, node, "lists and maps nested more than %d deep",
                               WEIR__YAML_DEPTH_MAX);
    reading->open[reading->depth++] = (struct open_node){node, &node->child, NULL, 0};
    return 0;
}

static size_t yaml_characters(const char *text, size_t len)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static int yaml_add_scalar(struct reading *reading, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    struct weir__yaml_node here = yaml_at_mark(event->start_mark);
    if (memchr(text, 0, len))
        return weir__yaml_fail(reading->yaml, &here, "a text with a NUL in it; leave out the \\0");
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    bool one_line = event->start_mark.line == event->end_mark.line;
    struct weir__yaml_node like = {
        .type = WEIR__YAML_SCALAR,
        .text = weir__yaml_copy(reading->yaml, text, len),
        .len = len,
        .plain = plain,
        .verbatim = one_line && event->end_mark.column - event->start_mark.column ==
                                    yaml_characters(text, len) + (plain ? 0 : 2),
    };
    if (!like.text)
        return reading->yaml->code;
    return yaml_add(reading, event, &like, event->data.scalar.anchor, event->data.scalar.tag);
}

static int yaml_close_node(struct reading *reading)
{
    const struct open_node *open = &reading->open[--reading->depth];
    return open->node->type == WEIR__YAML_MAP ? yaml_check_keys(reading, open) : 0;
}

static int yaml_take_event(struct reading *reading, const yaml_event_t *event)
{
    struct weir__yaml_node list = {.type = WEIR__YAML_LIST}, map = {.type = WEIR__YAML_MAP};
    struct weir__yaml_node here = yaml_at_mark(event->start_mark);
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (reading->yaml->root)
            return weir__yaml_fail(reading->yaml, &here,
                                   "a second document begins; one file holds one");
        return 0;
    case YAML_ALIAS_EVENT:
        return weir__yaml_fail(reading->yaml, &here,
                               "aliases (*name) are not supported; write the text where it is "
                               "meant, in quotes if it begins with *");
    case YAML_SCALAR_EVENT:
        return yaml_add_scalar(reading, event);
    case YAML_SEQUENCE_START_EVENT:
        return yaml_add(reading, event, &list, event->data.sequence_start.anchor,
                        event->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return yaml_add(reading, event, &map, event->data.mapping_start.anchor,
                        event->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return yaml_close_node(reading);
    default:
        return 0;
    }
}

static int yaml_read_events(struct reading *reading, const char *text, size_t len)
{
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&reading->parser, &event))
            return yaml_fail_unreadable(reading, text, len);
        int code = yaml_take_event(reading, &event);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (code)
            return code;
    }
    if (reading->yaml->root)
        return 0;
    struct weir__yaml_node first = {.line = 1, .column = 1};
    return weir__yaml_fail(reading->yaml, &first, "the file is empty");
}

/* libyaml compares each %TAG with all before it: so many that this took minutes are not let in. */
static int yaml_check_directives(struct weir__yaml *yaml, const char *text, size_t len)
{
    const char *at = text, *end = text + len;
    for (int i = 0; (at = memmem(at, (size_t)(end - at), "%TAG", 4)); at++) {
        if (++i <= TAG_DIRECTIVES_MAX)
            continue;
        struct weir__yaml_node here = yaml_at_byte(text, (size_t)(at - text));
        return weir__yaml_fail(yaml, &here,
                               "more than %d %%TAG directives; leave them out, tags are not "
                               "supported",
                               TAG_DIRECTIVES_MAX);
    }
    return 0;
}

static int yaml_read(struct weir__yaml *yaml, const char *text, size_t len)
{
    struct reading reading = {.yaml = yaml};
    struct weir__yaml_node first = {.line = 1, .column = 1};
    if (len > WEIR__YAML_BYTES_MAX)
        return weir__yaml_fail(yaml, &first, "%zu bytes; a file has at most %u", len,
                               WEIR__YAML_BYTES_MAX);
    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* a byte order mark is no column */
        text += 3;
        len -= 3;
    }
    int code = yaml_check_directives(yaml, text, len);
    if (code)
        return code;
    if (!yaml_parser_initialize(&reading.parser))
        return weir__yaml_no_memory(yaml);
    yaml_parser_set_encoding(&reading.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reading.parser, (const unsigned char *)text, len);
    code = yaml_read_events(&reading, text, len);
    yaml_parser_delete(&reading.parser);
    return code;
}

/* ---- the tree ---- */

int weir__yaml_parse(const char *text, size_t len, const char *name, struct weir__yaml **ret,
                     weir_error *err)
{
    struct weir__yaml *yaml = calloc(1, sizeof *yaml);
    if (!yaml)
        return weir__fail(err, WEIR_ENOMEM, 0, "out of memory for the file");
    yaml->err = err;
    yaml->arena = &yaml->nodes;
    yaml->becomes = "the file";
    yaml->name = weir__yaml_copy(yaml, name, strlen(name));
    int code = yaml->name ? yaml_read(yaml, text, len) : yaml->code;
    if (code)
        weir__yaml_free(yaml);
    else
        *ret = yaml;
    return code;
}

void weir__yaml_free(struct weir__yaml *yaml)
{
    if (!yaml)
        return;
    weir__arena_free(&yaml->nodes);
    free(yaml);
}

const struct weir__yaml_node *weir__yaml_get(const struct weir__yaml_node *map, const char *key)
{
    if (map->type != WEIR__YAML_MAP)
        return NULL;
    for (const struct weir__yaml_node *node = map->child; node; node = node->next) {
        if (!strcmp(node->text, key))
            return node->value;
    }
    return NULL;
}

size_t weir__yaml_count(const struct weir__yaml_node *node)
{
    size_t count = 0;
    for (const struct weir__yaml_node *it = node->child; it; it = it->next)
        count++;
    return count;
}
