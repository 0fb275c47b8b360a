/* YAML as policy files use it: what is read, where it stands, and every refusal with its place. */
#include "policy/yaml.h"
#include "test.h"

#include <stdlib.h>

static struct weir__yaml *read_text(const char *text)
{
    struct weir__yaml *yaml = NULL;
    weir_error err = {0};
    if (weir__yaml_parse(text, strlen(text), "f.yaml", &yaml, &err))
        printf("%s\n", err.message);
    CHECK(yaml != NULL);
    return yaml;
}

static void says(const weir_error *err, const char *message)
{
    if (!CHECK(!strcmp(err->message, message)))
        printf("  got      %s\n  expected %s\n", err->message, message);
}

static void refused(const char *text, size_t len, int column, const char *message)
{
    struct weir__yaml *yaml = NULL;
    weir_error err = {0};
    CHECK_INT(weir__yaml_parse(text, len, "f.yaml", &yaml, &err), WEIR_EINVAL);
    CHECK(!yaml);
    CHECK_INT(err.code, WEIR_EINVAL);
    CHECK_INT(err.column, column);
    says(&err, message);
    CHECK_INT(weir__yaml_parse(text, len, "f.yaml", &yaml, NULL), WEIR_EINVAL);
}

static void test_tree(void)
{
    struct weir__yaml *yaml = read_text("# a comment\n"
                                        "a: 1\n"
                                        "b: [x, 'y z', \"q\\tr\"]\n"
                                        "c:\n"
                                        "  - d: {e: ''}\n"
                                        "    f:\n"
                                        "  - null\n"
                                        "long: |\n"
                                        "  two\n"
                                        "  lines\n");
    if (!yaml)
        return;
    const struct weir__yaml_node *root = yaml->root, *b = weir__yaml_get(root, "b");
    CHECK_INT(root->type, WEIR__YAML_MAP);
    CHECK_INT(root->line, 2);
    CHECK_INT(root->column, 1);
    CHECK_TEXT(root->child->text, "a");
    CHECK_TEXT(root->child->value->text, "1");
    CHECK(root->child->value->plain && root->child->value->verbatim);
    CHECK_INT(root->child->value->line, 2);
    CHECK_INT(root->child->value->column, 4);
    CHECK_INT(b->type, WEIR__YAML_LIST);
    CHECK_TEXT(b->child->text, "x");
    CHECK_TEXT(b->child->next->text, "y z");
    CHECK(!b->child->next->plain && b->child->next->verbatim);
    CHECK_INT(b->child->next->column, 8);
    CHECK_TEXT(b->child->next->next->text, "q\tr");
    CHECK(!b->child->next->next->verbatim);
    CHECK(!b->child->next->next->next);
    const struct weir__yaml_node *c = weir__yaml_get(root, "c");
    CHECK_INT(c->child->type, WEIR__YAML_MAP);
    CHECK_TEXT(weir__yaml_get(weir__yaml_get(c->child, "d"), "e")->text, "");
    CHECK(!weir__yaml_get(weir__yaml_get(c->child, "d"), "e")->plain);
    CHECK_TEXT(weir__yaml_get(c->child, "f")->text, "");
    CHECK(weir__yaml_get(c->child, "f")->plain);
    CHECK_TEXT(c->child->next->text, "null");
    CHECK_TEXT(weir__yaml_get(root, "long")->text, "two\nlines\n");
    CHECK_INT(weir__yaml_get(root, "long")->len, 10);
    CHECK(!weir__yaml_get(root, "long")->verbatim);
    CHECK(!weir__yaml_get(root, "none"));
    CHECK(!weir__yaml_get(b, "x"));
    weir__yaml_free(yaml);
}

static void test_small_files(void)
{
    static const struct {
        const char *text, *root;
    } cases[] = {{"x", "x"}, {"\xef\xbb\xbfx", "x"},   {"--- x\n...\n", "x"}, {"\n\n  x  \n", "x"},
                 {"''", ""}, {"%YAML 1.1\n--- x", "x"}};
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        struct weir__yaml *yaml = read_text(cases[i].text);
        if (yaml)
            CHECK_TEXT(yaml->root->text, cases[i].root);
        weir__yaml_free(yaml);
    }
    struct weir__yaml *yaml = read_text("\xef\xbb\xbfx: y");
    CHECK_INT(yaml->root->child->value->column, 4);
    weir__yaml_free(yaml);
    weir__yaml_free(NULL);
}

#define ALIAS                                                                                      \
    "aliases (*name) are not supported; write the text where it is meant, in quotes if it begins " \
    "with *"

static void test_refusals(void)
{
    static const struct {
        const char *text;
        int column;
        const char *message;
    } cases[] = {
        {"", 1, "f.yaml:1:1: the file is empty"},
        {"\n# nothing\n", 1, "f.yaml:1:1: the file is empty"},
        {"a: 1\nb: 2\n\"a\": 3\n", 1,
         "f.yaml:3:1: \"a\" is given twice in one map, first on line 1; keep one"},
        {"x:\n  - {p: 1, q: 2, p: 3}\n", 18,
         "f.yaml:2:18: \"p\" is given twice in one map, first on line 2; keep one"},
        {"a: &x 1\n", 4,
         "f.yaml:1:4: anchors (&x) are not supported; write the text where it is meant"},
        {"a: &x [1]\n", 4,
         "f.yaml:1:4: anchors (&x) are not supported; write the text where it is meant"},
        {"host: *.example.com\n", 8,
         "f.yaml:1:8: not YAML: did not find expected alphabetic or "
         "numeric character while scanning an alias (begun on line 1); a text that begins with * "
         "needs quotes"},
        {"a:\n  host: *all\n", 9, "f.yaml:2:9: " ALIAS},
        {"a: !!int 3\n", 4,
         "f.yaml:1:4: tags (tag:yaml.org,2002:int) are not supported; leave it "
         "out, quotes make text"},
        {"a: ! 3\n", 4, "f.yaml:1:4: tags (!) are not supported; leave it out, quotes make text"},
        {"a: 1\n---\nb: 2\n", 1, "f.yaml:2:1: a second document begins; one file holds one"},
        {"[a]: 1\n", 1,
         "f.yaml:1:1: a list or map as a key; keys are plain text (a value that "
         "begins with [ or { needs quotes)"},
        {"a: \"x\\0y\"\n", 4, "f.yaml:1:4: a text with a NUL in it; leave out the \\0"},
        {"a:\n\t- b\n", 1,
         "f.yaml:2:1: not YAML: found character that cannot start any token "
         "while scanning for the next token (begun on line 2); a text that begins with %, @ or ` "
         "needs quotes, and tabs do not indent"},
        {"a: [1, 2\n", 1,
         "f.yaml:2:1: not YAML: did not find expected ',' or ']' while parsing a "
         "flow sequence (begun on line 1)"},
        {"a: b: c\n", 5, "f.yaml:1:5: not YAML: mapping values are not allowed in this context"},
        {"a: \xff\n", 4,
         "f.yaml:1:4: not UTF-8 text: invalid leading UTF-8 octet; save the file as UTF-8"},
        {"h\xc3\xa4: x\nb: \x1b[2J\n", 4, "f.yaml:2:4: a control character (0x1b); leave it out"},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++)
        refused(cases[i].text, strlen(cases[i].text), cases[i].column, cases[i].message);
    refused("a\0b", 3, 2, "f.yaml:1:2: a control character (0x00); leave it out");
    refused("\xff\xfe"
            "a\0",
            4, 1,
            "f.yaml:1:1: not UTF-8 text: invalid leading UTF-8 octet; save the file as UTF-8");
}

/* ---- bounds ---- */

static char *repeat(const char *piece, size_t times)
{
    size_t len = strlen(piece);
    char *text = malloc(len * times + 1);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * len, piece, len);
    text[len * times] = 0;
    return text;
}

static void test_bounds(void)
{
    char *text = repeat("[", WEIR__YAML_DEPTH_MAX);
    char *deep = malloc(2 * WEIR__YAML_DEPTH_MAX + 1);
    snprintf(deep, 2 * WEIR__YAML_DEPTH_MAX + 1, "%s", text);
    memset(deep + WEIR__YAML_DEPTH_MAX, ']', WEIR__YAML_DEPTH_MAX);
    deep[2 * WEIR__YAML_DEPTH_MAX] = 0;
    weir__yaml_free(read_text(deep));
    free(deep);
    free(text);
    text = repeat("[", 4 << 20);
    refused(text, 4 << 20, 33, "f.yaml:1:33: lists and maps nested more than 32 deep");
    free(text);
    text = repeat("- ", 100000);
    refused(text, 200000, 65, "f.yaml:1:65: lists and maps nested more than 32 deep");
    free(text);
    text = repeat("- x\n", WEIR__YAML_NODES_MAX - 1);
    weir__yaml_free(read_text(text));
    free(text);
    text = repeat("- x\n", WEIR__YAML_NODES_MAX);
    refused(text, strlen(text), 3,
            "f.yaml:200000:3: more than 200000 values in one file; make it smaller");
    free(text);
    text = repeat("#", WEIR__YAML_BYTES_MAX + 1);
    refused(text, WEIR__YAML_BYTES_MAX + 1, 1,
            "f.yaml:1:1: 4194305 bytes; a file has at most 4194304");
    free(text);
}

/* What libyaml would take minutes for. */
static void test_many_directives(void)
{
    char *text = repeat("%TAG !a! x\n", 100000);
    refused(text, strlen(text), 1,
            "f.yaml:17:1: more than 16 %TAG directives; leave them out, tags are not supported");
    free(text);
}

/* Many keys in one map: found twice all the same, and not by comparing each with each. */
static void test_many_keys(void)
{
    size_t room = 0, n = 99000;
    char *text = NULL;
    FILE *file = open_memstream(&text, &room);
    for (size_t i = 0; i < n; i++)
        fprintf(file, "k%zu: 1\n", i);
    fflush(file);
    weir__yaml_free(read_text(text));
    fprintf(file, "k7: 1\n");
    fclose(file);
    refused(text, strlen(text), 1,
            "f.yaml:99001:1: \"k7\" is given twice in one map, first on line 8; keep one");
    free(text);
}

/* ---- messages ---- */

static void test_only(void)
{
    static const char *const allowed[] = {"name", "match", "limit", NULL};
    static const struct {
        const char *text, *message; /* NULL: nothing is wrong */
    } cases[] = {
        {"name: x\nlimit: y\n", NULL},
        {"{}", NULL},
        {"name: x\nlimits: y\n", "f.yaml:2:1: unknown key \"limits\"; did you mean limit?"},
        {"mtach: y\n", "f.yaml:1:1: unknown key \"mtach\"; did you mean match?"},
        {"na: y\n", "f.yaml:1:1: unknown key \"na\"; did you mean name?"},
        {"colour: y\n",
         "f.yaml:1:1: unknown key \"colour\": expected one of name, match and limit"},
        {"\"\\e[2J\": y\n",
         "f.yaml:1:1: unknown key \"?[2J\": expected one of name, match and limit"},
        {"[name]\n", "f.yaml:1:1: expected a map (\"name: …\")"},
    };
    for (size_t i = 0; i < WEIR__COUNT(cases); i++) {
        struct weir__yaml *yaml = read_text(cases[i].text);
        weir_error err = {0};
        yaml->err = &err;
        CHECK(weir__yaml_only(yaml, yaml->root, allowed) == !cases[i].message);
        CHECK_INT(yaml->code, cases[i].message ? WEIR_EINVAL : 0);
        says(&err, cases[i].message ? cases[i].message : "");
        weir__yaml_free(yaml);
    }
}

static void check_within(const char *text, size_t at, const char *expected)
{
    struct weir__yaml *yaml = read_text(text);
    weir_error err = {0};
    const struct weir__yaml_node *node = yaml->root->child->value;
    yaml->err = &err;
    CHECK_INT(weir__yaml_fail_within(yaml, node, at, "%s", "here"), WEIR_EINVAL);
    CHECK_INT(weir__yaml_fail(yaml, node, "only the first failure is told"), WEIR_EINVAL);
    says(&err, expected);
    weir__yaml_free(yaml);
}

static void test_places_within(void)
{
    check_within("k: abc", 0, "f.yaml:1:4: here");
    check_within("k: abc", 2, "f.yaml:1:6: here");
    check_within("k: 'abc'", 2, "f.yaml:1:7: here");
    check_within("k: abc", 3, "f.yaml:1:7: here");
    check_within("k: \xc3\xa4\xc3\xa4 x", 5, "f.yaml:1:7: here"); /* characters, not bytes */
    check_within("k: \"a\\tb\"", 2, "f.yaml:1:4: here");
    check_within("k: >\n  a\n  b\n", 2, "f.yaml:1:4: here");
    check_within("k: a\n  b\n", 2, "f.yaml:1:4: here");
}

static void test_long_messages(void)
{
    char *name = repeat("d/", 300), *value = repeat("\xc3\xa4", 2000);
    struct weir__yaml *yaml = NULL;
    weir_error err = {0};
    CHECK_INT(weir__yaml_parse("a", 1, name, &yaml, NULL), 0);
    yaml->err = &err;
    weir__yaml_fail(yaml, yaml->root, "%s", value);
    CHECK(!strncmp(err.message, "...d/d/", 7) && strstr(err.message, "/:1:1: "));
    size_t len = strlen(err.message);
    CHECK(len > 500 && !memcmp(err.message + len - 2, "\xc3\xa4", 2)); /* no half character */
    CHECK(strlen(weir__yaml_quote(value, 4000).text) < sizeof(struct weir__yaml_quote));
    CHECK_TEXT(weir__yaml_quote("a\nb\x7f\xc2\x85"
                                "c\xff",
                                8)
                   .text,
               "a?b???c?");
    weir__yaml_free(yaml);
    free(name);
    free(value);
}

int main(void)
{
    test_tree();
    test_small_files();
    test_refusals();
    test_bounds();
    test_many_directives();
    test_many_keys();
    test_only();
    test_places_within();
    test_long_messages();
    return test_report();
}
