/* What was read of logs, and what could not be read. */
#include "cli/logs.h"

#include "desk/fields.h"

#include <inttypes.h>
#include <string.h>

#define FILES_SHOWN 5
#define HINT_COLUMN 10

static void logs_print_file(FILE *to, const struct desk_file_facts *file)
{
    fprintf(to, "%s: ", cli_logs_name(file->path).text);
    if (!file->format) {
        fputs("empty\n", to);
        return;
    }
    fprintf(to, "%s%s%s", file->format, strcmp(file->packing, "plain") ? ", " : "",
            strcmp(file->packing, "plain") ? file->packing : "");
    if (file->detected_by > 0)
        fprintf(to,
                file->detected_by == 1 ? ", as its first line says" : ", as its first %d lines say",
                file->detected_by);
    if (file->zone_assumed)
        fputs("; its times have no zone, read as --timezone says (UTC)", to);
    fputc('\n', to);
}

/* "--where path=/login and method=POST", masked; of a long one the beginning. */
static struct cli_shown logs_where(const struct desk_facts *facts)
{
    struct weir__buffer text = weir__buffer_growing();
    for (size_t i = 0; i < facts->where_count; i++)
        weir__put_format(&text, "%s%s", i ? " and " : "", facts->where[i]);
    struct cli_shown shown = cli_show(text.data, text.len);
    weir__buffer_free(&text);
    return shown;
}

/* Counts that are not 0. */
static void logs_print_counts(FILE *to, const struct desk_facts *facts)
{
    const struct cli_shown where = logs_where(facts);
    const struct {
        int64_t n;
        const char *what, *more;
    } counts[] = {
        {facts->unreadable, "cannot be read", ""},
        {facts->filtered, "do not match --where ", where.text},
        {facts->keyless, "have no value for the key", ""},
        {facts->late, "are too far out of order; they count at the time of the line before", ""},
        {facts->crowded, "were not put in order: too many at once", ""},
        {facts->jumps, "come a day or more after the line before", ""},
    };
    fprintf(to, "  lines          %10" PRId64 "\n", facts->lines);
    for (size_t i = 0; i < WEIR__COUNT(counts); i++) {
        if (counts[i].n > 0)
            fprintf(to, "                 %10" PRId64 "  %s%s\n", counts[i].n, counts[i].what,
                    counts[i].more);
    }
}

/* No line has what --where asks for, or the key: most likely a field has a name that is not
 * known. */
static void logs_print_names(const struct desk_facts *facts)
{
    const char *where = facts->unseen_where, *key = facts->unseen_key;
    bool keyless = facts->arrivals == 0 && facts->keyless > 0;
    size_t len = where ? strcspn(where, "!=") : 0;
    if (!where && !keyless)
        return;
    if (where)
        printf("    no line has %s, so %s line matches --where %s\n", cli_show(where, len).text,
               where[len] == '!' ? "every" : "no", cli_show_text(where).text);
    else if (key)
        printf("    no line has %s\n", cli_show_text(key).text);
    if (facts->names[0]) {
        fputs("    the first line has the fields ", stdout);
        cli_print_masked(facts->names, strlen(facts->names));
        fputs(";\n", stdout);
    }
    if (where && desk_slot_of_word((struct weir__span){where, len}) != DESK_NO_SLOT)
        printf("    --field %s=NAME says which one it is\n", cli_show(where, len).text);
    else if (where)
        puts("    --where can name one that lines have");
    else if (key)
        printf("    --field %s=NAME says which one it is, --key another key\n",
               cli_show_text(key).text);
    else if (facts->names[0])
        puts("    --field ip=NAME says which one is the address, --key which one is the key");
}

static void logs_print_examples(FILE *to, const struct desk_facts *facts)
{
    for (size_t i = 0; i < facts->example_count; i++) {
        const struct desk_example *it = &facts->examples[i];
        fprintf(to, "    %s:%" PRId64, cli_logs_name(it->path).text, it->line);
        if (it->column > 0)
            fprintf(to, ":%d", it->column);
        fprintf(to, ": %s: %s\n", it->why, it->text);
    }
}

void cli_logs_print(const struct desk_facts *facts)
{
    for (size_t i = 0; i < facts->file_count && i < FILES_SHOWN; i++)
        logs_print_file(stdout, &facts->files[i]);
    if (facts->file_count > FILES_SHOWN)
        printf("and %zu more files\n", facts->file_count - FILES_SHOWN);
    logs_print_counts(stdout, facts);
    if (facts->hint[0])
        cli_print_labelled("  hint", HINT_COLUMN, facts->hint);
    logs_print_names(facts);
    logs_print_examples(stdout, facts);
    putchar('\n');
}

void cli_logs_print_unread(const struct desk_facts *facts)
{
    if (facts->unreadable + facts->late == 0)
        return;
    logs_print_counts(stderr, facts);
    logs_print_examples(stderr, facts);
}
