/*
 * Bytes and lines of a file that is followed, step by step: what is written to the old file after
 * its name was given to another, and what is there when nobody follows any more. Nothing here
 * depends on how fast it goes: a step that waits for the next file is repeated until it came.
 */
#include "desk/input.h"
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char folder[] = "/tmp/weir-desk-input-XXXXXX";
static char path[64], old[64];
static struct desk_input input;

static void append(const char *to, const char *text)
{
    FILE *file = fopen(to, "a");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static int next(char *ret, size_t room)
{
    struct weir__span line;
    int got = desk_input_line(&input, false, &line, NULL);
    ret[0] = 0;
    if (got == DESK_GOT_LINE)
        snprintf(ret, room, "%.*s", (int)line.len, line.data);
    return got;
}

static void expect_line(const char *text)
{
    char line[64];
    CHECK_INT(next(line, sizeof line), DESK_GOT_LINE);
    CHECK_TEXT(line, text);
}

static void expect_nothing(void)
{
    char line[64];
    CHECK_INT(next(line, sizeof line), DESK_GOT_NOTHING);
}

/* However long it takes. */
static void await_line(const char *text)
{
    char line[64];
    int got;
    while ((got = next(line, sizeof line)) == DESK_GOT_NOTHING)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    CHECK_INT(got, DESK_GOT_LINE);
    CHECK_TEXT(line, text);
}

static void begin(const char *text)
{
    unlink(path);
    unlink(old);
    append(path, text);
    CHECK_INT(desk_input_open(&input, path, (struct weir__span){"", 0}, true, NULL), 0);
}

/* A program writes to the old file until it is told to open the new one. */
static void test_rotated(void)
{
    begin("1\n");
    expect_line("1");
    expect_nothing();
    CHECK_INT(rename(path, old), 0);
    append(path, "");
    expect_nothing(); /* the new one is empty: nobody has it open */
    append(old, "2\n");
    expect_line("2");
    append(path, "5\n");
    expect_nothing(); /* it has seen the new one; another may still write to the old one */
    append(old, "3\n");
    expect_line("3");
    expect_nothing();
    append(old, "4");
    expect_nothing();
    append(old, "4\n");
    expect_line("44");
    await_line("5");
    expect_nothing();
    append(path, "6\n");
    expect_line("6");
    desk_input_close(&input);
}

/* Nobody follows any more: both files are read to their ends. */
static void test_finished(void)
{
    begin("1\n");
    expect_line("1");
    expect_nothing();
    CHECK_INT(rename(path, old), 0);
    append(path, "3\n4");
    expect_nothing();
    append(old, "2");
    input.follow = false;
    expect_line("2");
    expect_line("3");
    expect_line("4");
    char line[64];
    CHECK_INT(next(line, sizeof line), DESK_GOT_END);
    desk_input_close(&input);
}

static void test_shortened(void)
{
    begin("1\n2\n");
    expect_line("1");
    expect_line("2");
    expect_nothing();
    CHECK_INT(truncate(path, 0), 0);
    append(path, "3\n");
    expect_line("3");
    desk_input_close(&input);
}

int main(void)
{
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/access.log", folder);
    snprintf(old, sizeof old, "%s/access.log.1", folder);
    test_rotated();
    test_finished();
    test_shortened();
    unlink(path);
    unlink(old);
    rmdir(folder);
    return test_report();
}
