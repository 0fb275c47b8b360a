/*
 * What the fuzz targets share. A target is one function over bytes; libFuzzer drives it (run.sh),
 * or replay_main.c feeds it files, so that the ordinary tests replay the corpus. Randomness is
 * fixed (fixed_random.c): an input does the same every time.
 */
#ifndef WEIR_FUZZ_H
#define WEIR_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Starts the library's randomness again. */
void fuzz_random_reset(void);

/* What must hold, whatever the input; says what did not, and stops. */
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The input as a program's bytes; past its end all are 0. */
struct fuzz_input {
    const uint8_t *data;
    size_t size;
};

static inline uint8_t fuzz_byte(struct fuzz_input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

/* n bytes, low one first. */
static inline uint64_t fuzz_number(struct fuzz_input *input, unsigned n)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < n; i++)
        number |= (uint64_t)fuzz_byte(input) << (8 * i);
    return number;
}

/* The bytes as a string in memory of its own, so that a read past its end is seen. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    EXPECT(text, "out of memory");
    if (size > 0)
        memcpy(text, data, size);
    text[size] = 0;
    return text;
}

#endif
