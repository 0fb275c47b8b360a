/*
 * gzip and zstd: see input.h. Both libraries are optional when weir is built; without one, a file
 * that needs it is an error that says so.
 */
#include "desk/input.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEIR__WITH_ZLIB
#include <zlib.h>
#endif
#ifdef WEIR__WITH_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

enum desk_packing desk_packing_of(struct weir__span beginning)
{
    static const char zstd[] = "\x28\xb5\x2f\xfd", skipped[] = "\x2a\x4d\x18";
    const char *at = beginning.data;
    if (beginning.len >= 2 && !memcmp(at, "\x1f\x8b", 2))
        return DESK_GZIP;
    /* The first frame may be one of sixteen kinds that are to be skipped. */
    if (beginning.len >= 4 &&
        (!memcmp(at, zstd, 4) || ((at[0] & 0xf0) == 0x50 && !memcmp(at + 1, skipped, 3))))
        return DESK_ZSTD;
    return DESK_PLAIN;
}

bool desk_is_packed(struct weir__span beginning)
{
    return desk_packing_of(beginning) != DESK_PLAIN;
}

/* What others pack with, and how to unpack it. */
static const struct {
    const char *magic;
    size_t len;
    const char *name, *command;
} foreign[] = {
    {"BZh", 3, "bzip2", "bzcat"},
    {"\xfd"
     "7zXZ",
     5, "xz", "xzcat"},
    {"PK\x03\x04", 4, "zip", "unzip -p"},
    {"\x04\x22\x4d\x18", 4, "lz4", "lz4cat"},
};

const char *desk_packing_name(enum desk_packing packing)
{
    return packing == DESK_PLAIN ? "plain" : packing == DESK_GZIP ? "gzip" : "zstd";
}

static void unpack_damage(struct desk_input *input, const char *what)
{
    snprintf(input->damage, sizeof input->damage, "%s after %lld bytes of it", what,
             (long long)input->offset);
    input->ended = true;
}

/* ---- gzip ---- */

#ifdef WEIR__WITH_ZLIB

struct unpack_gzip {
    z_stream stream;
    bool within; /* a member was begun and is not at its end */
};

static int gzip_open(struct desk_input *input)
{
    struct unpack_gzip *gzip = calloc(1, sizeof *gzip);
    if (!gzip || inflateInit2(&gzip->stream, 15 + 16) != Z_OK) {
        free(gzip);
        return WEIR_ENOMEM;
    }
    input->unpacker = gzip;
    return 0;
}

static void gzip_close(struct desk_input *input)
{
    struct unpack_gzip *gzip = input->unpacker;
    inflateEnd(&gzip->stream);
    free(gzip);
}

/* Zeros may follow the last member, as tapes have them. Returns whether another member follows. */
static bool gzip_next_member(struct desk_input *input, struct unpack_gzip *gzip)
{
    while (input->packed_at < input->packed_len && input->packed[input->packed_at] == 0)
        input->packed_at++;
    if (input->packed_at == input->packed_len)
        return false;
    if ((unsigned char)input->packed[input->packed_at] != 0x1f) {
        unpack_damage(input, "something that is not gzip follows");
        return false;
    }
    inflateReset(&gzip->stream);
    return true;
}

static size_t gzip_unpack(struct desk_input *input, char *to, size_t room)
{
    struct unpack_gzip *gzip = input->unpacker;
    z_stream *stream = &gzip->stream;
    if (!gzip->within && (input->packed_at == input->packed_len || !gzip_next_member(input, gzip)))
        return 0;
    gzip->within = true;
    stream->next_in = (Bytef *)input->packed + input->packed_at;
    stream->avail_in = (uInt)(input->packed_len - input->packed_at);
    stream->next_out = (Bytef *)to;
    stream->avail_out = (uInt)room;
    int code = inflate(stream, Z_NO_FLUSH);
    input->packed_at = input->packed_len - stream->avail_in;
    if (code == Z_STREAM_END)
        gzip->within = false;
    else if (code != Z_OK && code != Z_BUF_ERROR)
        unpack_damage(input, "damaged gzip");
    return room - stream->avail_out;
}

static bool gzip_is_within(const struct desk_input *input)
{
    return ((const struct unpack_gzip *)input->unpacker)->within;
}

#else

static int gzip_open(struct desk_input *input)
{
    (void)input;
    return WEIR_EUNSUPPORTED;
}

static void gzip_close(struct desk_input *input)
{
    (void)input;
}

static size_t gzip_unpack(struct desk_input *input, char *to, size_t room)
{
    (void)input, (void)to, (void)room;
    return 0;
}

static bool gzip_is_within(const struct desk_input *input)
{
    (void)input;
    return false;
}

#endif

/* ---- zstd ---- */

#ifdef WEIR__WITH_ZSTD

struct unpack_zstd {
    ZSTD_DStream *stream;
    bool within;
};

static int zstd_open(struct desk_input *input)
{
    struct unpack_zstd *zstd = calloc(1, sizeof *zstd);
    if (zstd)
        zstd->stream = ZSTD_createDStream();
    if (!zstd || !zstd->stream) {
        free(zstd);
        return WEIR_ENOMEM;
    }
    input->unpacker = zstd;
    return 0;
}

static void zstd_close(struct desk_input *input)
{
    struct unpack_zstd *zstd = input->unpacker;
    ZSTD_freeDStream(zstd->stream);
    free(zstd);
}

static size_t zstd_unpack(struct desk_input *input, char *to, size_t room)
{
    struct unpack_zstd *zstd = input->unpacker;
    ZSTD_inBuffer in = {input->packed + input->packed_at, input->packed_len - input->packed_at, 0};
    ZSTD_outBuffer out = {to, room, 0};
    if (in.size == 0 && !zstd->within)
        return 0;
    size_t code = ZSTD_decompressStream(zstd->stream, &out, &in);
    input->packed_at += in.pos;
    if (ZSTD_isError(code))
        unpack_damage(input, ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge
                                 ? "a zstd window over 128 MiB (zstdcat --long=31 unpacks it)"
                                 : "damaged zstd");
    else
        zstd->within = code != 0;
    return out.pos;
}

static bool zstd_is_within(const struct desk_input *input)
{
    return ((const struct unpack_zstd *)input->unpacker)->within;
}

#else

static int zstd_open(struct desk_input *input)
{
    (void)input;
    return WEIR_EUNSUPPORTED;
}

static void zstd_close(struct desk_input *input)
{
    (void)input;
}

static size_t zstd_unpack(struct desk_input *input, char *to, size_t room)
{
    (void)input, (void)to, (void)room;
    return 0;
}

static bool zstd_is_within(const struct desk_input *input)
{
    (void)input;
    return false;
}

#endif

/* ---- both ---- */

int desk_unpack_open(struct desk_input *input, struct weir__span beginning, weir_error *err)
{
    for (size_t i = 0; i < WEIR__COUNT(foreign); i++) {
        if (beginning.len >= foreign[i].len &&
            !memcmp(beginning.data, foreign[i].magic, foreign[i].len))
            return weir__fail(err, WEIR_EINVAL, 0,
                              "%s: is packed with %s, which weir does not unpack; use %s FILE | "
                              "weir …",
                              input->name, foreign[i].name, foreign[i].command);
    }
    input->packing = desk_packing_of(beginning);
    if (input->packing == DESK_PLAIN)
        return 0;
    bool gzip = input->packing == DESK_GZIP;
    int code = gzip ? gzip_open(input) : zstd_open(input);
    if (code == WEIR_EUNSUPPORTED)
        return weir__fail(err, code, 0,
                          "%s: is packed with %s, and this weir was built without %s (Debian: "
                          "%s); use %s FILE | weir …",
                          input->name, gzip ? "gzip" : "zstd", gzip ? "zlib" : "libzstd",
                          gzip ? "zlib1g-dev" : "libzstd-dev", gzip ? "zcat" : "zstdcat");
    return code ? weir__fail(err, code, 0, "%s: out of memory", input->name) : 0;
}

void desk_unpack_close(struct desk_input *input)
{
    if (!input->unpacker)
        return;
    if (input->packing == DESK_GZIP)
        gzip_close(input);
    else
        zstd_close(input);
    input->unpacker = NULL;
}

size_t desk_unpack(struct desk_input *input, char *to, size_t room)
{
    assert(input->packing != DESK_PLAIN && input->unpacker && room > 0);
    return input->packing == DESK_GZIP ? gzip_unpack(input, to, room)
                                       : zstd_unpack(input, to, room);
}

void desk_unpack_end(struct desk_input *input)
{
    bool within = input->packing == DESK_GZIP ? gzip_is_within(input) : zstd_is_within(input);
    input->ended = true;
    if (within && !input->damage[0])
        unpack_damage(input, input->packing == DESK_GZIP ? "truncated gzip: it ends"
                                                         : "truncated zstd: it ends");
}
