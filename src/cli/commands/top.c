/* `weir top`: what a server is doing, and to whom, once a second. */
#include "cli/http_client.h"
#include "cli/server_store.h"
#include "cli/top_view.h"

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
    struct cli_top_model readings[2]; /* the last two, by turns */
    int turn;
    char *frame; /* FRAME_BYTES */
};

/* ---- asking ---- */

/* Why a reading failed, as far as the server's answer says; an exit code. */
static int refused(const struct cli_http_reply *reply, const char *path, weir_error *err)
{
    if (reply->status == 401 || reply->status == 403)
        weir__fail(err, WEIR_EINVAL, 0,
                   "it wants its admin token (status %d): say --token TOKEN, or set "
                   "WEIR_ADMIN_TOKEN or WEIR_TOKEN",
                   reply->status);
    else
        weir__fail(err, WEIR_EINVAL, 0,
                   "something answers there, but not as weir does: status %d for %s; say the "
                   "address of `weir serve`",
                   reply->status, path);
    return CLI_FAILED;
}

static int ask(struct watch *watch, const char *path, struct cli_http_reply *ret, weir_error *err)
{
    const int code = cli_http_get(&watch->http, path, ret, err);
    if (code == WEIR_EUNREACHABLE) {
        char why[sizeof err->message];
        memcpy(why, err->message, sizeof why);
        weir__fail(err, code, 0, "%.300s; is `weir serve` running there?", why);
    }
    if (code)
        return CLI_FAILED;
    return ret->status == 200 ? CLI_OK : refused(ret, path, err);
}

static int not_weir(const char *path, weir_error *err)
{
    weir__fail(err, WEIR_EINVAL, 0,
               "something answers there, but not as weir does: what %s gives is not its JSON",
               path);
    return CLI_FAILED;
}

/* One reading into *ret. */
static int read_once(struct watch *watch, struct cli_top_model *ret, weir_error *err)
{
    struct cli_http_reply reply;
    int code = ask(watch, "/v1/stats", &reply, err);
    if (code == CLI_OK && !cli_top_read_stats(reply.body, reply.len, ret))
        code = not_weir("/v1/stats", err);
    if (code == CLI_OK)
        code = ask(watch, KEYS_PATH, &reply, err);
    if (code == CLI_OK && !cli_top_read_keys(reply.body, reply.len, ret))
        code = not_weir("/v1/top", err);
    return code;
}

/* The next reading, compared with the last; the last stays if it fails. */
static int read_next(struct watch *watch, bool first, weir_error *err)
{
    struct cli_top_model *const now = &watch->readings[!watch->turn];
    const int code = read_once(watch, now, err);
    if (code)
        return code;
    if (!first)
        cli_top_compare(&watch->readings[watch->turn], now);
    watch->turn = !watch->turn;
    return CLI_OK;
}

static int fail(const struct watch *watch, int code, const weir_error *err)
{
    return cli_fail(watch->call, code, "%s: %s", cli_show_text(watch->address).text, err->message);
}

/* ---- once ---- */

static void draw(struct watch *watch, int height, const char *trouble)
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

/* Two readings, since a rate is the difference of two. */
static int show_once(struct watch *watch)
{
    weir_error err = {0};
    int code = read_next(watch, true, &err);
    if (code == CLI_OK) {
        poll(NULL, 0, PERIOD_US / 1000);
        code = read_next(watch, false, &err);
    }
    if (code)
        return fail(watch, code, &err);
    draw(watch, 0, NULL);
    return cli_finish(watch->call, CLI_OK);
}

/* A body that is weir's, untouched; the caller frees it. NULL with the exit code in *ret. */
static char *body_of(struct watch *watch, const char *path,
                     bool (*read_it)(char *, size_t, struct cli_top_model *), int *ret,
                     weir_error *err)
{
    struct cli_http_reply reply;
    *ret = ask(watch, path, &reply, err);
    char *const body = *ret == CLI_OK ? strdup(reply.body) : NULL;
    if (*ret == CLI_OK && !body)
        *ret = cli_exit_for(weir__fail(err, WEIR_ENOMEM, 0, "out of memory"));
    if (*ret == CLI_OK && !read_it(reply.body, reply.len, &watch->readings[0]))
        *ret = not_weir(path, err);
    if (*ret == CLI_OK)
        return body;
    free(body);
    return NULL;
}

/* What the server says, as it says it. */
static int show_json(struct watch *watch)
{
    weir_error err = {0};
    int code;
    char *const stats = body_of(watch, "/v1/stats", cli_top_read_stats, &code, &err);
    char *const keys = stats ? body_of(watch, KEYS_PATH, cli_top_read_keys, &code, &err) : NULL;
    if (keys)
        printf("{\"stats\":%s,\"top\":%s}\n", stats, keys);
    free(stats);
    free(keys);
    return code ? fail(watch, code, &err) : cli_finish(watch->call, CLI_OK);
}

/* ---- live ---- */

static int stop_pipe[2] = {-1, -1};

static void on_signal(int number)
{
    const int kept = errno;
    const char byte = (char)number;
    if (write(stop_pipe[1], &byte, 1) < 0)
        errno = kept; /* the pipe is full: it was told */
    errno = kept;
}

static int screen_height(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/* Until the time, a signal or the letter q; whether to go on. */
static bool wait_until(int64_t until_us)
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

static void run_frames(struct watch *watch)
{
    weir_error err = {0};
    for (int64_t next = weir__mono_us();;) {
        const int code = read_next(watch, false, &err);
        draw(watch, screen_height(), code ? err.message : NULL);
        const int64_t now = weir__mono_us();
        next = next + PERIOD_US > now ? next + PERIOD_US : now + PERIOD_US;
        if (!wait_until(next))
            return;
    }
}

/* The screen and the keys are ours while it runs, and given back as they were. */
static int show_live(struct watch *watch)
{
    weir_error err = {0};
    const int code = read_next(watch, true, &err);
    if (code)
        return fail(watch, code, &err);
    if (pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK))
        return cli_fail(watch->call, CLI_FAILED, "no pipe to be had: %s", strerror(errno));
    watch->http.stop_fd = stop_pipe[0];
    const struct sigaction act = {.sa_handler = on_signal};
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
    fputs("\033[?1049h\033[?25l", stdout); /* another page, no cursor */
    draw(watch, screen_height(), NULL);
    if (wait_until(weir__mono_us() + PERIOD_US))
        run_frames(watch);
    fputs("\033[?25h\033[?1049l", stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    return cli_finish(watch->call, CLI_OK);
}

/* ---- the command ---- */

static int run(const struct cli_call *call)
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
        code = json                             ? show_json(watch)
               : once || !isatty(STDOUT_FILENO) ? show_once(watch)
                                                : show_live(watch);
        cli_http_close(&watch->http);
    }
    free(frame);
    free(watch);
    return code;
}

const struct cli_command cli_top = {
    .name = "top",
    .summary = "watch a server: decisions, policies, the busiest keys",
    .help = "Usage: weir top [URL] [--token TOKEN] [--once] [--json]\n"
            "\n"
            "Watches a running `weir serve`, once a second: what it allows and denies, what\n"
            "each policy says, and which keys are asked for and denied most. q ends it.\n"
            "Without a terminal it looks once, as with --once.\n"
            "\n"
            "URL is http://host:port, https://host:port, host:port or unix:/path; without it\n"
            "http://127.0.0.1:7311, where `weir serve` listens.\n"
            "\n"
            "Options:\n"
            "  --token TOKEN  the server's admin token; better in $WEIR_ADMIN_TOKEN or\n"
            "                 $WEIR_TOKEN, which other users cannot see\n"
            "  --once         print one view, measured over a second\n"
            "  --json         print what the server says as one JSON object: stats and top\n"
            "\n"
            "Examples:\n"
            "  weir top\n"
            "  weir top http://10.0.0.7:7311 --once\n"
            "  weir top unix:/run/weir.sock --json\n" CLI_EXIT_CODES,
    .run = run,
};
