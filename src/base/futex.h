/*
 * Sleeping on a word (Linux futexes). A thread reads the word, looks whether there is something to
 * do, and sleeps only while the word still holds what it read. Whoever gives it something to do
 * changes the word and then wakes. So no wake-up is lost, and waking needs no lock.
 */
#ifndef WEIR_FUTEX_H
#define WEIR_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sleeps at most so long while the word is `seen`. 0: woken, or the word is another; ETIMEDOUT;
 * EINTR: a signal handler ran. `shared`: others may be in another process. A cancellation point. */
int weir__futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t us, bool shared);
/* Wakes all who sleep on a word. No cancellation point. */
void weir__futex_wake(_Atomic uint32_t *word, bool shared);

#endif
