/* See progress.h. */
#include "cli/progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_US 200000 /* nothing is drawn before */
#define PAUSE_US 50000     /* nor more often */
#define BAR_WIDTH 40

struct cli_progress cli_progress_start(void)
{
    const char *term = getenv("TERM");
    bool wanted = isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
    return (struct cli_progress){.wanted = wanted, .started_us = weir__clock_us()};
}

void cli_progress_show(struct cli_progress *progress, size_t done, size_t all)
{
    if (!progress->wanted || all == 0)
        return;
    int64_t now = weir__clock_us();
    if (now - progress->started_us < PATIENCE_US || now - progress->drawn_us < PAUSE_US)
        return;
    progress->drawn_us = now;
    progress->shown = true;
    size_t filled = done * BAR_WIDTH / all;
    fputs("\r▕", stderr);
    for (size_t i = 0; i < BAR_WIDTH; i++)
        fputs(i < filled ? "█" : " ", stderr);
    fprintf(stderr, "▏ %3zu%%", done * 100 / all);
    fflush(stderr);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
