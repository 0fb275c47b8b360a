/*
 * A link under many threads, against a server that echoes numbers in pieces, sometimes late: every
 * call gets its own reply or none, no call outlives its deadline, and the link ends in good order.
 */
#include "base/random.h"
#include "remote/link.h"

#include "../unit/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 8
#define CALLS 3000
#define SLACK_US 60000000 /* a busy machine; who is forgotten waits for longer */

static struct weir__link link_;
static _Atomic int64_t next_number = 1;
static _Atomic long done, late, lost, wrong, overdue;
static _Atomic bool dawdle; /* the server answers late now and then */

/* ---- the server: "ECHO n" to ":n" ---- */

static void send_in_pieces(int fd, const char *data, size_t len, uint64_t *random)
{
    while (len > 0) {
        size_t piece = 1 + weir__random_next(random) % len;
        ssize_t n = send(fd, data, piece, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

static void *serve(void *context)
{
    int fd = *(int *)context;
    char in[65536], out[65536];
    size_t end = 0;
    uint64_t random = 7;
    struct weir__resp_reader reader;
    struct weir__resp_node nodes[8];
    struct weir__resp_limits limits = {2, 64, 64, sizeof in};
    weir__resp_begin(&reader, WEIR__RESP_REQUESTS, &limits, nodes, 8);
    for (ssize_t n; (n = recv(fd, in + end, sizeof in - end, 0)) > 0;) {
        size_t start = 0;
        struct weir__buffer buffer = weir__buffer_over(out, sizeof out);
        end += (size_t)n;
        while (weir__resp_next(&reader, in + start, end - start) == WEIR__RESP_MESSAGE) {
            int64_t number = 0;
            weir__resp_read_integer(in + start + nodes[2].at, nodes[2].len, &number);
            weir__resp_put_integer(&buffer, number);
            start += reader.size;
        }
        memmove(in, in + start, end - start);
        end -= start;
        if (dawdle && weir__random_next(&random) % 16 == 0)
            usleep(4000);
        send_in_pieces(fd, out, buffer.len, &random);
    }
    close(fd);
    return NULL;
}

/* ---- the callers ---- */

struct echo {
    struct weir__call call;
    int64_t number, got;
};

static unsigned write_echo(struct weir__call *call, const struct weir__server *server,
                           struct weir__buffer *buffer)
{
    (void)server;
    weir__resp_put_header(buffer, WEIR__RESP_ARRAY, 2, 2);
    weir__resp_put_bulk(buffer, "ECHO", 4);
    weir__resp_put_bulk_integer(buffer, ((struct echo *)call)->number);
    return 1;
}

static void read_echo(struct weir__call *call, unsigned i, const char *data,
                      const struct weir__resp_node *nodes)
{
    (void)i;
    (void)data;
    ((struct echo *)call)->got = nodes[0].integer;
}

static enum weir__call_status one_call(int64_t patience_us)
{
    int64_t start = weir__mono_us();
    struct echo echo = {
        .call = {.write = write_echo,
                 .read = read_echo,
                 .deadline_us = start + patience_us,
                 .quiet = true},
        .number = next_number++,
    };
    enum weir__call_status status = weir__link_submit(&link_, &echo.call);
    if (status == WEIR__CALL_WAITING) {
        weir__link_flush(&link_, echo.call.deadline_us);
        status = weir__link_await(&echo.call);
    }
    done += status == WEIR__CALL_DONE;
    late += status == WEIR__CALL_LATE;
    lost += status == WEIR__CALL_LOST || status == WEIR__CALL_DOWN;
    wrong += status == WEIR__CALL_DONE && echo.got != echo.number;
    overdue += weir__mono_us() - start > patience_us + SLACK_US;
    return status;
}

static void *call_often(void *context)
{
    int64_t patience = *(int64_t *)context;
    for (int i = 0; i < CALLS; i++)
        one_call(patience);
    return NULL;
}

/* Until the link is down, and once more. */
static void *call_until_lost(void *context)
{
    int64_t patience = *(int64_t *)context;
    enum weir__call_status status;
    do
        status = one_call(patience);
    while (status == WEIR__CALL_DONE);
    one_call(patience);
    return NULL;
}

static void run_threads(void *(*work)(void *), int64_t patience_us)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, &patience_us);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- the tests ---- */

static pthread_t server;
static int sockets[2];

static void connect_link(void)
{
    struct weir__server what = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
        abort();
    struct weir__conn conn = {sockets[0], NULL};
    fcntl(sockets[0], F_SETFL, O_NONBLOCK);
    setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int));
    pthread_create(&server, NULL, serve, &sockets[1]);
    weir__link_start(&link_, &conn, &what);
}

static void test_patient(void)
{
    run_threads(call_often, 60000000);
    CHECK_INT(done, THREADS * CALLS);
    CHECK_INT(wrong, 0);
}

/* Calls that give up leave replies behind that must go to nobody. */
static void test_impatient(void)
{
    done = late = 0;
    dawdle = true;
    run_threads(call_often, 2000);
    CHECK(done > 0);
    CHECK(late > 0);
    CHECK_INT(done + late, THREADS * CALLS);
    CHECK_INT(wrong, 0);
    CHECK_INT(overdue, 0);
    dawdle = false;
}

static void *stop_soon(void *context)
{
    (void)context;
    usleep(20000);
    weir__link_stop(&link_, "stopped by the test");
    return NULL;
}

/* Whoever waits when the link goes down is told at once, and afterwards nothing is sent. */
static void test_stopped(void)
{
    pthread_t stopper;
    char why[WEIR__WHY_SIZE];
    lost = 0;
    pthread_create(&stopper, NULL, stop_soon, NULL);
    run_threads(call_until_lost, 60000000);
    pthread_join(stopper, NULL);
    pthread_join(server, NULL);
    CHECK_INT(lost, 2 * THREADS);
    CHECK_INT(overdue, 0);
    weir__link_why(&link_, why);
    CHECK_TEXT(why, "stopped by the test");
    CHECK(!weir__link_wait(&link_, weir__mono_us() + 1000, false));
}

int main(void)
{
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK_INT(weir__link_init(&link_, wake), 0);
    connect_link();
    test_patient();
    test_impatient();
    test_stopped();
    connect_link(); /* up again on a new connection */
    done = wrong = 0;
    test_patient();
    weir__link_stop(&link_, "the end");
    pthread_join(server, NULL);
    weir__link_destroy(&link_, false);
    close(wake);
    return test_report();
}
