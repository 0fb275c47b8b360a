/*
 * Bytes and lines of a file that is followed, step by step: what is written to the old file after
 * its name was given to another, and what is there when nobody follows any more. Nothing here
 * depends on how fast it goes: a step that waits for the next file is repeated until it came.
 */
#include "desk/input.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>
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
    CHECK_INT(desk_input_open(&input, path, (struct weir__span){"", 0}, NULL, true, NULL), 0);
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

static int open_extent(struct desk_extent *extent, weir_error *err)
{
    return desk_input_open(&input, path, (struct weir__span){"", 0}, extent, false, err);
}

/* Whoever reads a file several times reads the same of it: it may grow, but not shrink, and it must
 * be the same file. */
static void test_extent(void)
{
    struct desk_extent extent = {.size = -1};
    weir_error err;
    char line[64];
    unlink(path);
    append(path, "1\n2");
    CHECK_INT(open_extent(&extent, &err), 0);
    CHECK_INT(extent.size, 3);
    append(path, "2\n3\n");
    for (int pass = 0; pass < 2; pass++) {
        expect_line("1");
        expect_line("2");
        CHECK_INT(next(line, sizeof line), DESK_GOT_END);
        desk_input_close(&input);
        CHECK_INT(open_extent(&extent, &err), 0);
    }
    desk_input_close(&input);
    CHECK_INT(truncate(path, 1), 0);
    CHECK_INT(open_extent(&extent, &err), WEIR_ESYSTEM);
    CHECK(strstr(err.message, "access.log: it was shortened while it was read"));
    CHECK_INT(rename(path, old), 0);
    append(path, "1\n2\n3\n");
    CHECK_INT(open_extent(&extent, &err), WEIR_ESYSTEM);
    CHECK(strstr(err.message, "access.log: another file took its name while it was read"));
}

/* It is shortened after it was opened, and so much of it was not read yet. */
static void test_extent_shortened(void)
{
    struct desk_extent extent = {.size = -1};
    struct weir__span line;
    weir_error err;
    unlink(path);
    append(path, "1\n");
    CHECK_INT(truncate(path, 4 * (off_t)DESK_BLOCK), 0);
    CHECK_INT(open_extent(&extent, &err), 0);
    CHECK_INT(truncate(path, 2), 0);
    int got = DESK_GOT_LINE;
    for (int i = 0; i < 10 && got > DESK_GOT_END; i++)
        got = desk_input_line(&input, false, &line, &err);
    CHECK_INT(got, WEIR_ESYSTEM);
    CHECK(strstr(err.message, "it was shortened while it was read"));
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
    test_extent();
    test_extent_shortened();
    unlink(path);
    unlink(old);
    rmdir(folder);
    return test_report();
}
