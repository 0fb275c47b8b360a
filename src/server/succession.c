/*
 * SIGUSR2: another process takes over. It is started from where this one was started and has our sockets; when it
 * says that it is ready, this one drains. Whatever goes wrong is told, and this one goes on.
 */
#include "server/listen.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUCCESSOR_US INT64_C(60000000) /* until one that is started must be ready */

static struct {
    pid_t pid; /* 0: none is under way */
    bool ended;
    int ready; /* it says there that it is ready */
    int64_t until_us;
} successor = {.ready = -1};

static void handover_forget_successor(void)
{
    close(successor.ready);
    successor.ready = -1;
    successor.pid = 0;
}

void server_hand_over(char *const *argv)
{
    if (successor.pid > 0 || getpid() == 1) {
        server_tell(successor.pid > 0
                        ? "SIGUSR2: another process is taking over already"
                        : "SIGUSR2: as process 1 it cannot hand over, its container would end");
        return;
    }
    int pid = server_listeners_hand_over(argv, &successor.ready);
    if (pid < 0) {
        server_tell("SIGUSR2: cannot start %s: %s; this process goes on", server_program(),
                    strerror(errno));
        return;
    }
    successor.pid = pid;
    successor.ended = false;
    successor.until_us = weir__mono_us() + SUCCESSOR_US;
    server_tell("SIGUSR2: process %d is started from %s", pid, server_program());
}

bool server_successor_is_ready(void)
{
    int failed = 0;
    ssize_t got = read(successor.ready, &failed, sizeof failed);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got == sizeof failed && failed == SERVER_READY) {
        server_tell("process %d takes over", successor.pid);
        return true;
    }
    if (got == sizeof failed)
        server_tell("SIGUSR2: cannot start %s: %s; this process goes on", server_program(),
                    strerror(failed));
    else
        server_tell("process %d could not take over: it ended before it was ready; this process "
                    "goes on",
                    successor.pid);
    if (!successor.ended)
        kill(successor.pid, SIGKILL); /* one that has let go of us will never say more */
    handover_forget_successor();
    return false;
}

int server_successor_says(void)
{
    return successor.ready;
}

void server_look_after_successor(void)
{
    if (successor.pid == 0 || weir__mono_us() < successor.until_us)
        return;
    server_tell("process %d is not ready after %d s and is killed; this process goes on",
                successor.pid, (int)(SUCCESSOR_US / 1000000));
    if (!successor.ended)
        kill(successor.pid, SIGKILL);
    handover_forget_successor();
}

void server_reap(void)
{
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        successor.ended = successor.ended || pid == successor.pid;
}
