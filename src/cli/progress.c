/* How a stream is getting on: see progress.h. */
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

void cli_progress_begin(struct cli_progress *progress, int64_t now_us)
{
    progress->begun_us = now_us;
    progress->next_us = progress->on ? now_us + CLI_PROGRESS_EVERY_US : INT64_MAX;
    progress->samples[0].time_us = now_us;
    progress->samples[0].units = 0;
    progress->drawn = 1;
}

/* 1234567 as "1.23 M"; powers of 1000, as in limits. */
static void progress_put_short(struct weir__buffer *out, double value, const char *unit)
{
    static const char *const suffixes[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;
    while (value >= 999.5 && i + 1 < WEIR__COUNT(suffixes)) {
        value /= 1000;
        i++;
    }
    const int decimals = i == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    weir__put_format(out, "%.*f %s%s", decimals, value, suffixes[i], unit);
}

/* 3725 s as 1:02:05. */
static void progress_put_clock(struct weir__buffer *out, int64_t seconds)
{
    weir__put_format(out, "%" PRId64 ":%02d:%02d", seconds / 3600, (int)(seconds / 60 % 60),
                     (int)(seconds % 60));
}

/* Units per second over the last few drawings. */
static double progress_rate(const struct cli_progress *progress, int64_t now_us)
{
    const unsigned first =
        progress->drawn < CLI_PROGRESS_SAMPLES ? 0 : progress->drawn % CLI_PROGRESS_SAMPLES;
    const int64_t span = now_us - progress->samples[first].time_us;
    const int64_t units = progress->units - progress->samples[first].units;
    return span > 0 ? (double)units * 1e6 / (double)span : 0;
}

/* Seconds until all of it is done, by the average so far; -1: nobody knows. */
static int64_t progress_left(const struct cli_progress *progress, int64_t now_us)
{
    const int64_t left = progress->total - progress->bytes;
    if (progress->total < 0 || progress->bytes == 0 || left < 0)
        return -1;
    const double spent = (double)(now_us - progress->begun_us);
    const double seconds = spent / (double)progress->bytes * (double)left / 1e6;
    return seconds < 3.6e9 ? (int64_t)(seconds + 0.5) : -1;
}

void cli_progress_put(const struct cli_progress *progress, int64_t now_us, struct weir__buffer *out)
{
    const int64_t left = progress_left(progress, now_us);
    if (progress->label)
        weir__put_format(out, "%s  ", progress->label);
    if (progress->lines) {
        progress_put_short(out, (double)progress->units, "lines  ");
    }
    progress_put_short(out, (double)progress->bytes, "B  ");
    progress_put_short(out, progress_rate(progress, now_us),
                       progress->lines ? "lines/s  " : "B/s  ");
    progress_put_clock(out, (now_us - progress->begun_us) / 1000000);
    if (left < 0)
        return;
    weir__put_format(out, "  %.0f%%  ",
                     progress->total ? 100.0 * (double)progress->bytes / (double)progress->total
                                     : 100.0);
    progress_put_clock(out, left);
    weir__put_text(out, " left");
}

static void progress_draw(const struct cli_progress *progress, int64_t now_us, const char *end)
{
    char text[256];
    struct weir__buffer out = weir__buffer_over(text, sizeof text);
    weir__put_text(&out, "\r");
    cli_progress_put(progress, now_us, &out);
    weir__put_text(&out, "\033[K");
    weir__put_text(&out, end);
    fwrite(out.data, 1, out.len, stderr);
    fflush(stderr);
}

void cli_progress_show(struct cli_progress *progress, int64_t now_us)
{
    if (now_us < progress->next_us)
        return;
    progress_draw(progress, now_us, "");
    const unsigned at = progress->drawn++ % CLI_PROGRESS_SAMPLES;
    progress->samples[at].time_us = now_us;
    progress->samples[at].units = progress->units;
    progress->next_us = now_us + CLI_PROGRESS_EVERY_US;
}

void cli_progress_end(struct cli_progress *progress, int64_t now_us)
{
    if (!progress->on)
        return;
    progress->drawn = 1; /* the speed of the whole */
    progress->samples[0].time_us = progress->begun_us;
    progress->samples[0].units = 0;
    progress_draw(progress, now_us, "\n");
}
