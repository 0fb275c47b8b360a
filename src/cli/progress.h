/* A progress bar on stderr: only on a terminal, only for what takes a while. */
#ifndef WEIR_CLI_PROGRESS_H
#define WEIR_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cli_progress {
    bool shown;         /* a bar stands on the terminal */
    bool wanted;        /* stderr is a terminal */
    int64_t started_us; /* and when it was last drawn */
    int64_t drawn_us;
};

struct cli_progress cli_progress_start(void);
void cli_progress_show(struct cli_progress *progress, size_t done, size_t all);
/* Wipes the bar. */
void cli_progress_end(struct cli_progress *progress);

#endif
