/* `weir top`: what a server decides, and for which keys, once a second. */
#include "cli/top.h"
#include "cli/http_client.h"
#include "cli/server_store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define DEFAULT_ADDRESS "http://127.0.0.1:7311"
#define PERIOD_US INT64_C(1000000)
#define FRAME_BYTES ((size_t)1 << 20)
#define KEYS_PATH "/v1/top?k=20"

struct watch {
    const struct cli_call *call;
    const char *address;
    struct cli_http http;
    struct cli_top_model readings[2]; /* the last two, in turn */
    int turn;
    char *frame; /* FRAME_BYTES */
};

/* ---- readings ---- */

/* Says why a reading failed, by the answer of the server; an exit code. */
static int top_fail_status(const struct cli_http_reply *reply, const char *path, weir_error *err)
{
    if (reply->status == 401 || reply->status == 403)
        weir__fail(err, WEIR_EINVAL, 0,
                   "the server needs its admin token (status %d): use --token TOKEN, or set "
                   "WEIR_ADMIN_TOKEN or WEIR_TOKEN",
                   reply->status);
    else
        weir__fail(err, WEIR_EINVAL, 0,
                   "this is not a weir server: it answered with status %d to %s; use the "
                   "address of `weir serve`",
                   reply->status, path);
    return CLI_FAILED;
}

static int top_get(struct watch *watch, const char *path, struct cli_http_reply *ret,
                   weir_error *err)
{
    const int code = cli_http_get(&watch->http, path, ret, err);
    if (code == WEIR_EUNREACHABLE) {
        char why[sizeof err->message];
        memcpy(why, err->message, sizeof why);
        weir__fail(err, code, 0, "%.300s; is `weir serve` running there?", why);
    }
    if (code)
        return CLI_FAILED;
    return ret->status == 200 ? CLI_OK : top_fail_status(ret, path, err);
}

static int top_fail_json(const char *path, weir_error *err)
{
    weir__fail(err, WEIR_EINVAL, 0,
               "this is not a weir server: its answer to %s is not the expected JSON", path);
    return CLI_FAILED;
}

/* One reading into *ret. */
static int top_read_once(struct watch *watch, struct cli_top_model *ret, weir_error *err)
{
    struct cli_http_reply reply;
    int code = top_get(watch, "/v1/stats", &reply, err);
    if (code == CLI_OK && !cli_top_read_stats(reply.body, reply.len, ret))
        code = top_fail_json("/v1/stats", err);
    if (code == CLI_OK)
        code = top_get(watch, KEYS_PATH, &reply, err);
    if (code == CLI_OK && !cli_top_read_keys(reply.body, reply.len, ret))
        code = top_fail_json("/v1/top", err);
    return code;
}

/* The next reading, compared with the last; the last stays if it fails. */
static int top_read_next(struct watch *watch, bool first, weir_error *err)
{
    struct cli_top_model *const now = &watch->readings[!watch->turn];
    const int code = top_read_once(watch, now, err);
    if (code)
        return code;
    if (!first)
        cli_top_compare(&watch->readings[watch->turn], now);
    assert(watch->turn == 0 || watch->turn == 1);
    watch->turn = !watch->turn;
    return CLI_OK;
}

static int top_fail(const struct watch *watch, int code, const weir_error *err)
{
    return cli_fail(watch->call, code, "%s: %s", cli_show_text(watch->address).text, err->message);
}

/* ---- once ---- */

static void top_draw(struct watch *watch, int height, const char *trouble)
{
    struct weir__buffer out = weir__buffer_over(watch->frame, FRAME_BYTES);
    const struct cli_top_view view = {
        .style = cli_style_of(stdout),
        .width = cli_width(stdout),
        .height = height,
        .address = watch->address,
        .trouble = trouble,
        .live = height > 0,
    };
    cli_top_draw(&view, &watch->readings[watch->turn], &out);
    if (view.live)
        fputs("\033[H", stdout);
    fwrite(out.data, 1, out.len, stdout);
    if (view.live)
        fputs("\033[J", stdout);
    fflush(stdout);
}

/* Two readings, because a rate is the difference of two. */
static int top_show_once(struct watch *watch)
{
    weir_error err = {0};
    int code = top_read_next(watch, true, &err);
    if (code == CLI_OK) {
        poll(NULL, 0, PERIOD_US / 1000);
        code = top_read_next(watch, false, &err);
    }
    if (code)
        return top_fail(watch, code, &err);
    top_draw(watch, 0, NULL);
    return cli_finish(watch->call, CLI_OK);
}

/* A valid body, unchanged; the caller frees it. NULL: *ret is the exit code. */
static char *top_body_of(struct watch *watch, const char *path,
                         bool (*read_it)(char *, size_t, struct cli_top_model *), int *ret,
                         weir_error *err)
{
    struct cli_http_reply reply;
    *ret = top_get(watch, path, &reply, err);
    char *const body = *ret == CLI_OK ? strdup(reply.body) : NULL;
    if (*ret == CLI_OK && !body)
        *ret = cli_exit_for(weir__fail(err, WEIR_ENOMEM, 0, "out of memory"));
    if (*ret == CLI_OK && !read_it(reply.body, reply.len, &watch->readings[0]))
        *ret = top_fail_json(path, err);
    if (*ret == CLI_OK)
        return body;
    free(body);
    return NULL;
}

/* The answers of the server, unchanged. */
static int top_show_json(struct watch *watch)
{
    weir_error err = {0};
    int code;
    char *const stats = top_body_of(watch, "/v1/stats", cli_top_read_stats, &code, &err);
    char *const keys = stats ? top_body_of(watch, KEYS_PATH, cli_top_read_keys, &code, &err) : NULL;
    if (keys)
        printf("{\"stats\":%s,\"top\":%s}\n", stats, keys);
    free(stats);
    free(keys);
    return code ? top_fail(watch, code, &err) : cli_finish(watch->call, CLI_OK);
}

/* ---- live ---- */

static int stop_pipe[2] = {-1, -1};

static void top_on_signal(int number)
{
    const int kept = errno;
    const char byte = (char)number;
    if (write(stop_pipe[1], &byte, 1) < 0)
        errno = kept; /* the pipe is full: it has a byte already */
    errno = kept;
}

static int top_screen_height(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/* Waits until the time. False: a signal or the letter q came first. */
static bool top_wait_until(int64_t until_us)
{
    for (;;) {
        const int64_t left = until_us - weir__mono_us();
        if (left <= 0)
            return true;
        struct pollfd fds[] = {{stop_pipe[0], POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
        static bool deaf; /* standard input ended */
        if (poll(fds, deaf ? 1 : 2, (int)(left / 1000) + 1) < 0 && errno != EINTR)
            return false;
        if (fds[0].revents)
            return false;
        if (!deaf && fds[1].revents) {
            char key = 0;
            deaf = read(STDIN_FILENO, &key, 1) <= 0;
            if (key == 'q' || key == 'Q')
                return false;
        }
    }
}

static void top_run_frames(struct watch *watch)
{
    weir_error err = {0};
    for (int64_t next = weir__mono_us();;) {
        const int code = top_read_next(watch, false, &err);
        top_draw(watch, top_screen_height(), code ? err.message : NULL);
        const int64_t now = weir__mono_us();
        next = next + PERIOD_US > now ? next + PERIOD_US : now + PERIOD_US;
        if (!top_wait_until(next))
            return;
    }
}

/* Takes over the screen and the keyboard, and restores them at the end. */
static int top_show_live(struct watch *watch)
{
    weir_error err = {0};
    const int code = top_read_next(watch, true, &err);
    if (code)
        return top_fail(watch, code, &err);
    if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK))
        return cli_fail(watch->call, CLI_FAILED, "cannot create a pipe: %s", strerror(errno));
    watch->http.stop_fd = stop_pipe[0];
    const struct sigaction act = {.sa_handler = top_on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    sigaction(SIGHUP, &act, NULL);
    struct termios before, silent;
    const bool keys = tcgetattr(STDIN_FILENO, &before) == 0;
    if (keys) {
        silent = before;
        silent.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &silent);
    }
    fputs("\033[?1049h\033[?25l", stdout); /* the second page, no cursor */
    top_draw(watch, top_screen_height(), NULL);
    if (top_wait_until(weir__mono_us() + PERIOD_US))
        top_run_frames(watch);
    fputs("\033[?25h\033[?1049l", stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return cli_finish(watch->call, CLI_OK);
}

/* ---- the command ---- */

static int cmd_top(const struct cli_call *call)
{
    const char *address = DEFAULT_ADDRESS, *token = NULL;
    bool once = false, json = false;
    const struct cli_option options[] = {
        {"token", CLI_TEXT, &token, 0},
        {"once", CLI_FLAG, &once, 0},
        {"json", CLI_FLAG, &json, 0},
    };
    const struct cli_operand operands[] = {{"URL", &address, true}};
    int code = CLI_PARSE(call, options, operands);
    if (code)
        return code;
    weir_error err = {0};
    struct watch *const watch = calloc(1, sizeof *watch);
    char *const frame = malloc(FRAME_BYTES);
    if (!watch || !frame) {
        code = cli_fail(call, CLI_FAILED, "out of memory");
    } else if (cli_http_open(address, cli_token(token), &watch->http, &err)) {
        code = cli_fail(call, CLI_USAGE, "%s", err.message);
    } else {
        watch->call = call;
        watch->address = address;
        watch->frame = frame;
        code = json                             ? top_show_json(watch)
               : once || !isatty(STDOUT_FILENO) ? top_show_once(watch)
                                                : top_show_live(watch);
        cli_http_close(&watch->http);
    }
    free(frame);
    free(watch);
    return code;
}

const struct cli_command cli_top = {
    .name = "top",
    .summary = "watch a server: decisions, policies, the busiest keys",
    .run = cmd_top,
};
