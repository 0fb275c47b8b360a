/*
 * The rate limit service's messages: bytes that Google's protobuf library made are read and written
 * alike; everything cut, overlong or too much is refused; framing, codes and texts of gRPC.
 */
#include "test.h"

#include "wire/grpc.h"

#include <stdlib.h>

static weir_error err;
static struct weir__rls_request request;

#define BYTES(text) ((struct weir__span){text, sizeof(text) - 1})

static int is(struct weir__span span, const char *text)
{
    return span.len == strlen(text) && !memcmp(span.data, text, span.len);
}

/* Read from memory of its own size, so that a read past the end is seen. */
static int read_exactly(const char *data, size_t len)
{
    static char *copy;
    free(copy);
    copy = malloc(len ? len : 1);
    memcpy(copy, data, len);
    memset(&request, 0xa5, sizeof request);
    err = (weir_error){0};
    return weir__rls_read((struct weir__span){copy, len}, &request, &err);
}

#define READ(text) read_exactly(text, sizeof(text) - 1)

/* ---- requests ---- */

/* Domain d, hits_addend 300, three descriptors: everything set; a key without a value and an empty
 * UInt64Value; nothing at all. */
static const char whole[] =
    "\x0a\x01\x64\x12\x29\x0a\x06\x0a\x01\x6b\x12\x01\x76\x0a\x0a\x0a\x04\x70\x61\x74\x68\x12\x02"
    "\x2f\x61\x12\x08\x08\xff\xff\xff\xff\x0f\x10\x03\x1a\x07\x08\x80\x80\x80\x80\x80\x20\x20\x01"
    "\x12\x07\x0a\x03\x0a\x01\x78\x1a\x00\x12\x00\x18\xac\x02";

static void test_request(void)
{
    CHECK_INT(READ(whole), 0);
    CHECK(is(request.domain, "d"));
    CHECK_INT(request.hits_addend, 300);
    CHECK_INT(request.descriptor_count, 3);
    const struct weir__rls_descriptor *d = request.descriptors;
    CHECK_INT(d[0].entry_count, 2);
    CHECK(is(d[0].entries[0].key, "k") && is(d[0].entries[0].value, "v"));
    CHECK(is(d[0].entries[1].key, "path") && is(d[0].entries[1].value, "/a"));
    CHECK(d[0].has_limit && d[0].requests_per_unit == UINT32_MAX && d[0].unit == WEIR__RLS_HOUR);
    CHECK(d[0].has_hits && d[0].hits_addend == UINT64_C(1) << 40 && d[0].is_negative_hits);
    CHECK_INT(d[1].entry_count, 1);
    CHECK(is(d[1].entries[0].key, "x") && d[1].entries[0].value.len == 0);
    CHECK(d[1].has_hits && d[1].hits_addend == 0 && !d[1].has_limit && !d[1].is_negative_hits);
    CHECK(d[2].entry_count == 0 && !d[2].has_hits && !d[2].has_limit);
    CHECK_INT(READ(""), 0);
    CHECK(request.domain.len == 0 && request.descriptor_count == 0 && request.hits_addend == 0);
}

/* Every beginning of a message is whole or refused, and never read beyond. */
static void test_cut(void)
{
    size_t whole_ones = 0;
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        int code = read_exactly(whole, len);
        whole_ones += code == 0;
        CHECK(code == 0 || (code == WEIR_EINVAL && err.code == code && err.message[0] &&
                            err.column >= 1 && (size_t)err.column <= len + 1));
    }
    CHECK_INT(whole_ones, 5); /* nothing, and before each of the other four fields */
}

static void test_as_protobuf_has_it(void)
{
    /* unknown fields of each wire type are passed over */
    CHECK_INT(
        READ("\x20\x01\x29\x01\x02\x03\x04\x05\x06\x07\x08\x32\x02\x61\x62\x3d\x01\x02\x03\x04"
             "\x0a\x01\x64\xfa\xff\xff\xff\x0f\x00"),
        0);
    CHECK(is(request.domain, "d"));
    /* so are known ones of another type: domain as a number, hits_addend as a text */
    CHECK_INT(READ("\x08\x05\x1a\x01\x61"), 0);
    CHECK(request.domain.len == 0 && request.hits_addend == 0);
    /* the last of two counts, and messages merge */
    CHECK_INT(READ("\x0a\x01\x61\x0a\x01\x62\x18\x01\x18\x02"
                   "\x12\x0c\x12\x02\x08\x07\x12\x02\x10\x02\x1a\x02\x08\x09"
                   "\x12\x06\x1a\x02\x08\x09\x1a\x00"),
              0);
    CHECK(is(request.domain, "b") && request.hits_addend == 2);
    CHECK_INT(request.descriptors[0].requests_per_unit, 7);
    CHECK_INT(request.descriptors[0].unit, 2);
    CHECK_INT(request.descriptors[1].hits_addend, 9);
    /* numbers are cut to 32 bits; overlong spellings of small numbers are numbers */
    CHECK_INT(READ("\x18\x81\x80\x80\x80\x80\x80\x80\x80\x80\x01"), 0);
    CHECK_INT(request.hits_addend, 1);
    CHECK_INT(READ("\x18\x87\x80\x00"), 0);
    CHECK_INT(request.hits_addend, 7);
    /* texts are any bytes */
    CHECK_INT(READ("\x0a\x03\x00\xff\xfe"), 0);
    CHECK_INT(request.domain.len, 3);
}

static void refuses(const char *data, size_t len, int column, const char *why)
{
    CHECK_INT(read_exactly(data, len), WEIR_EINVAL);
    CHECK_INT(err.column, column);
    if (!CHECK(strstr(err.message, why)))
        printf("    found \"%s\"\n", err.message);
}
#define REFUSES(text, column, why) refuses(text, sizeof(text) - 1, column, why)

static void test_refusals(void)
{
    REFUSES("\x0a\x05\x61", 2, "beyond the end");
    REFUSES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 2, "beyond the end");
    REFUSES("\x0a", 2, "cut short");
    REFUSES("\x18\x80", 2, "cut short");
    REFUSES("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 2, "64 bits");
    REFUSES("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 2, "64 bits");
    REFUSES("\x00\x01", 1, "field's number");
    REFUSES("\x82\x80\x80\x80\x10\x00", 1, "field's number");
    REFUSES("\x0b\x0c", 1, "group");
    REFUSES("\x0c", 1, "group");
    REFUSES("\x0e\x01", 1, "wire type");
    REFUSES("\x0f\x01", 1, "wire type");
    REFUSES("\x29\x01\x02", 2, "fixed number");
    REFUSES("\x3d\x01", 2, "fixed number");
    REFUSES("\x12\x03\x0a\x05\x61", 4, "beyond the end");         /* within a descriptor */
    REFUSES("\x12\x04\x0a\x02\x0a\x09\x61", 6, "beyond the end"); /* an entry may not leave it */
    CHECK_INT(weir__rls_read(BYTES("\x0b"), &request, NULL), WEIR_EINVAL);
}

/* n times the same field, in a message. */
static size_t repeat(char *room, const char *field, size_t len, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(room + i * len, field, len);
    return n * len;
}

static void test_bounds(void)
{
    char room[2048], entries[512];
    CHECK_INT(read_exactly(room, repeat(room, "\x12\x00", 2, WEIR__RLS_DESCRIPTORS_MAX)), 0);
    CHECK_INT(request.descriptor_count, WEIR__RLS_DESCRIPTORS_MAX);
    refuses(room, repeat(room, "\x12\x00", 2, WEIR__RLS_DESCRIPTORS_MAX + 1), 35,
            "more than 16 descriptors");
    size_t len = repeat(entries, "\x0a\x00", 2, WEIR__RLS_ENTRIES_MAX + 1);
    room[0] = 0x12;
    room[1] = (char)(len - 2);
    memcpy(room + 2, entries, len);
    CHECK_INT(read_exactly(room, len), 0);
    CHECK_INT(request.descriptors[0].entry_count, WEIR__RLS_ENTRIES_MAX);
    room[1] = (char)len;
    refuses(room, len + 2, 69, "more than 32 entries");
}

/* ---- responses ---- */

static const char answer[] =
    "\x08\x02\x12\x02\x08\x01\x12\x1c\x08\x02\x12\x0e\x08\x64\x10\x02\x1a\x08\x70\x65\x72\x2d\x75"
    "\x73\x65\x72\x22\x08\x08\x3b\x10\x98\x8c\xeb\xdc\x03\x12\x08\x08\x01\x18\xff\xff\xff\xff\x0f"
    "\x12\x0c\x08\x01\x12\x04\x08\x0a\x10\x07\x18\x07\x22\x00\x1a\x16\x0a\x0f\x52\x61\x74\x65\x4c"
    "\x69\x6d\x69\x74\x2d\x4c\x69\x6d\x69\x74\x12\x03\x31\x30\x30";

static const struct weir__rls_status statuses[] = {
    {.code = WEIR__RLS_OK},
    {.code = WEIR__RLS_OVER_LIMIT,
     .has_limit = true,
     .requests_per_unit = 100,
     .unit = WEIR__RLS_MINUTE,
     .name = {"per-user", 8},
     .reset_us = 59999999},
    {.code = WEIR__RLS_OK, .remaining = UINT32_MAX},
    {.code = WEIR__RLS_OK,
     .has_limit = true,
     .requests_per_unit = 10,
     .unit = WEIR__RLS_WEEK,
     .remaining = 7},
};
static const struct weir__rls_header headers[] = {{"RateLimit-Limit", "100"}};
static const struct weir__rls_response response = {WEIR__RLS_OVER_LIMIT, statuses, 4, headers, 1};

static void test_response(void)
{
    char room[WEIR__RLS_RESPONSE_ROOM(4)];
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    weir__rls_put(&out, &response);
    CHECK(!out.cut && out.len == sizeof answer - 1 && !memcmp(room, answer, out.len));
    for (size_t size = 1; size < sizeof answer; size++) {
        out = weir__buffer_over(room, size);
        weir__rls_put(&out, &response);
        CHECK(out.cut);
    }
}

/* The longest there can be fits in the room that is promised. */
static void test_room(void)
{
    char name[WEIR__RLS_NAME_MAX], room[WEIR__RLS_RESPONSE_ROOM(WEIR__RLS_DESCRIPTORS_MAX)];
    struct weir__rls_status all[WEIR__RLS_DESCRIPTORS_MAX];
    memset(name, 'n', sizeof name);
    for (size_t i = 0; i < WEIR__RLS_DESCRIPTORS_MAX; i++)
        all[i] = (struct weir__rls_status){WEIR__RLS_OVER_LIMIT, true,       WEIR__RLS_WEEK,
                                           UINT32_MAX,           UINT32_MAX, WEIR_DURATION_MAX - 1,
                                           {name, sizeof name}};
    struct weir__rls_header three[3] = {{"RateLimit-Remaining", "1000000000000"},
                                        {"RateLimit-Remaining", "1000000000000"},
                                        {"RateLimit-Remaining", "1000000000000"}};
    struct weir__rls_response most = {WEIR__RLS_OVER_LIMIT, all, WEIR__RLS_DESCRIPTORS_MAX, three,
                                      3};
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    weir__rls_put(&out, &most);
    CHECK(!out.cut);
}

/* ---- health ---- */

static void test_health(void)
{
    struct weir__span service = {"kept", 4};
    CHECK_INT(weir__health_read(BYTES("\x0a\x05\x61"), &service, &err), WEIR_EINVAL);
    CHECK(is(service, "kept"));
    CHECK_INT(weir__health_read(BYTES("\x0a\x09ratelimit"), &service, &err), 0);
    CHECK(is(service, "ratelimit"));
    CHECK_INT(weir__health_read(BYTES(""), &service, &err), 0);
    CHECK(is(service, ""));
    char room[16];
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    weir__health_put(&out, WEIR__HEALTH_SERVING);
    CHECK(out.len == 2 && !memcmp(room, "\x08\x01", 2));
}

/* ---- framing ---- */

static void test_unframe(void)
{
    struct weir__span message = {"kept", 4};
    CHECK_INT(weir__grpc_unframe("\0\0\0\0\2ab", 7, &message, &err), 0);
    CHECK(is(message, "ab"));
    CHECK_INT(weir__grpc_unframe("\0\0\0\0\0", 5, &message, &err), 0);
    CHECK_INT(message.len, 0);
    CHECK_INT(weir__grpc_unframe("\0\0\0\0", 4, &message, &err), WEIR_EINVAL);
    CHECK_INT(weir__grpc_unframe("", 0, &message, &err), WEIR_EINVAL);
    CHECK_INT(weir__grpc_unframe("\0\0\0\0\3ab", 7, &message, &err), WEIR_EINVAL);
    CHECK_INT(weir__grpc_unframe("\0\0\0\0\1ab", 7, &message, &err), WEIR_EINVAL);
    CHECK_INT(weir__grpc_unframe("\0\xff\xff\xff\xff", 5, &message, &err), WEIR_EINVAL);
    CHECK_INT(weir__grpc_unframe("\2\0\0\0\0", 5, &message, &err), WEIR_EINVAL);
    CHECK_INT(weir__grpc_unframe("\1\0\0\0\0", 5, &message, &err), WEIR_EUNSUPPORTED);
    CHECK_INT(weir__grpc_code_of(WEIR_EUNSUPPORTED), WEIR__GRPC_UNIMPLEMENTED);
}

static void test_frame(void)
{
    char room[400];
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    weir__put_text(&out, "before");
    size_t begun = weir__grpc_frame_begin(&out);
    for (int i = 0; i < 0x123; i++)
        weir__put(&out, "x", 1);
    CHECK(weir__grpc_frame_end(&out, begun));
    CHECK(!memcmp(room, "before\0\0\0\1\x23x", 12));
    out = weir__buffer_over(room, 8);
    begun = weir__grpc_frame_begin(&out);
    weir__put_text(&out, "abc");
    CHECK(!weir__grpc_frame_end(&out, begun));
}

static void test_texts(void)
{
    char room[64];
    struct weir__buffer out = weir__buffer_over(room, sizeof room);
    weir__grpc_put_message_text(&out, "100% \x01 … ok\n");
    CHECK_TEXT(room, "100%25 %01 %E2%80%A6 ok%0A");
    CHECK_INT(weir__grpc_code_of(0), 0);
    CHECK_INT(weir__grpc_code_of(WEIR_EINVAL), 3);
    CHECK_INT(weir__grpc_code_of(WEIR_ESHARED), 3);
    CHECK_INT(weir__grpc_code_of(WEIR_EFULL), 8);
    CHECK_INT(weir__grpc_code_of(WEIR_EUNREACHABLE), 14);
    CHECK_INT(weir__grpc_code_of(WEIR_EDAMAGED), 13);
}

int main(void)
{
    test_request();
    test_cut();
    test_as_protobuf_has_it();
    test_refusals();
    test_bounds();
    test_response();
    test_room();
    test_health();
    test_unframe();
    test_frame();
    test_texts();
    return test_report();
}
