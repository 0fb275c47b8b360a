/* A line a decision: see replay_report.h. */
#include "cli/json.h"
#include "cli/replay_report.h"

#include "base/duration.h"

#include <stdlib.h>

#define BUFFER_BYTES (1 << 20)
#define LINE_MAX_BYTES (2 * WEIR_KEY_MAX + 256) /* every byte of a key may be a quote */

static void flush(struct cli_decisions *decisions)
{
    fwrite(decisions->buffer.data, 1, decisions->buffer.len, stdout);
    decisions->buffer.len = 0;
}

int cli_decisions_start(struct cli_decisions *decisions, bool json)
{
    char *memory = malloc(BUFFER_BYTES);
    if (!memory)
        return WEIR_ENOMEM;
    decisions->buffer = weir__buffer_over(memory, BUFFER_BYTES);
    decisions->json = json;
    if (!json)
        weir__put_text(&decisions->buffer,
                       "time,key,cost,allowed,limit,remaining,retry_after,reset_after,delay\n");
    return 0;
}

static void add_json(const struct weir__arrival *arrival, const weir_decision *decision)
{
    struct cli_json json = {stdout, false};
    cli_json_open(&json, NULL, '{');
    cli_json_seconds(&json, "time", arrival->time_us);
    cli_json_key(&json, arrival->key, arrival->key_len);
    cli_json_int(&json, "cost", arrival->cost);
    cli_json_decision(&json, decision);
    cli_json_close(&json, '}');
    cli_json_end(&json);
}

int cli_decisions_add(struct cli_decisions *decisions, const struct weir__arrival *arrival,
                      const weir_decision *decision)
{
    if (decisions->json) {
        add_json(arrival, decision);
        return ferror(stdout) ? WEIR_ESYSTEM : 0;
    }
    struct weir__buffer *buffer = &decisions->buffer;
    if (buffer->size - buffer->len < LINE_MAX_BYTES)
        flush(decisions);
    weir__put_seconds(buffer, arrival->time_us);
    weir__put(buffer, ",", 1);
    weir__put_csv(buffer, arrival->key, arrival->key_len);
    weir__put(buffer, ",", 1);
    weir__put_int(buffer, arrival->cost);
    weir__put(buffer, decision->allowed ? ",1," : ",0,", 3);
    weir__put_int(buffer, decision->limit);
    weir__put(buffer, ",", 1);
    weir__put_int(buffer, decision->remaining);
    weir__put(buffer, ",", 1);
    weir__put_seconds(buffer, decision->retry_after_us);
    weir__put(buffer, ",", 1);
    weir__put_seconds(buffer, decision->reset_after_us);
    weir__put(buffer, ",", 1);
    weir__put_seconds(buffer, decision->delay_us);
    weir__put(buffer, "\n", 1);
    return ferror(stdout) ? WEIR_ESYSTEM : 0;
}

void cli_decisions_end(struct cli_decisions *decisions)
{
    flush(decisions);
    free(decisions->buffer.data);
}
