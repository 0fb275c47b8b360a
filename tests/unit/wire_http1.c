/*
 * The HTTP/1 reader: requests of every form, everything that two readers could understand
 * differently, every limit, and that portions do not matter. Each case is read whole, in two
 * portions cut at every byte, and byte by byte, from memory that moves each time and ends where the
 * bytes end.
 */
#include "test.h"

#include "base/buffer.h"
#include "wire/http1.h"

#include <stdlib.h>

static const struct weir__http1_limits wide = {1024, 4096, 1024};

/* What a stream was read as. */
struct outcome {
    char text[8192];
    struct weir__buffer out;
    enum weir__http1_status status;
    int continues; /* times that 100 Continue was asked for */
};

static void put_span(struct weir__buffer *out, const char *before, struct weir__span span)
{
    weir__put_text(out, before);
    weir__put(out, span.data ? span.data : "-", span.data ? span.len : 1);
}

/* GET /path?query @host name=value, … {body} close; */
static void show(struct weir__buffer *out, const struct weir__http_request *request)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "OPTIONS", ""};
    const char *method = methods[request->method];
    CHECK(!*method || (strlen(method) == request->method_text.len &&
                       !memcmp(method, request->method_text.data, request->method_text.len)));
    put_span(out, *method ? "" : "other ", request->method_text);
    put_span(out, " ", request->path);
    if (request->query.data)
        put_span(out, "?", request->query);
    put_span(out, " @", request->host);
    for (size_t i = 0; i < request->field_count; i++) {
        put_span(out, " ", request->fields[i].name);
        put_span(out, "=", request->fields[i].value);
    }
    put_span(out, " {", request->body);
    weir__put_format(out, "}%s%s;", request->minor ? "" : " 1.0",
                     request->keep_alive ? "" : " close");
}

/* Takes the requests that are in stream[start … end), from a copy that ends there; what the reader
 * did to the copy is kept. */
static size_t take(struct weir__http1_reader *reader, char *stream, size_t start, size_t end,
                   struct outcome *outcome)
{
    static struct weir__http_request request;
    do {
        size_t len = end - start;
        char *copy = malloc(len + !len);
        memcpy(copy, stream + start, len);
        outcome->status = weir__http1_next(reader, copy, len, &request);
        memcpy(stream + start, copy, len);
        if (outcome->status == WEIR__HTTP1_REQUEST) {
            show(&outcome->out, &request);
            CHECK(reader->size >= 1 && reader->size <= len && !reader->expects_continue);
            start += reader->size;
        }
        outcome->continues += outcome->status == WEIR__HTTP1_NEED_MORE && reader->expects_continue;
        free(copy);
    } while (outcome->status == WEIR__HTTP1_REQUEST);
    return start;
}

/* Reads the stream in portions: up to `cut`, then in `step`s. */
static void read_in(const struct weir__http1_limits *limits, const char *bytes, size_t len,
                    size_t cut, size_t step, struct outcome *outcome)
{
    struct weir__http1_reader reader;
    char *stream = malloc(len + !len);
    memcpy(stream, bytes, len);
    outcome->out = weir__buffer_over(outcome->text, sizeof outcome->text);
    outcome->continues = 0;
    outcome->status = WEIR__HTTP1_NEED_MORE;
    weir__http1_begin(&reader, limits);
    size_t start = 0;
    for (size_t end = cut; outcome->status != WEIR__HTTP1_BROKEN;
         end = end + step < len ? end + step : len) {
        start = take(&reader, stream, start, end, outcome);
        CHECK(outcome->status == WEIR__HTTP1_BROKEN ||
              end - start < 2 * (limits->head + limits->body));
        if (end == len)
            break;
    }
    if (outcome->status == WEIR__HTTP1_BROKEN) {
        weir__put_format(&outcome->out, "!%d %s", reader.status, reader.why);
        CHECK(weir__http1_next(&reader, stream, 0, NULL) == WEIR__HTTP1_BROKEN);
    } else {
        weir__put_text(&outcome->out, start < len ? "?" : "");
    }
    CHECK(!outcome->out.cut);
    free(stream);
}

static void check(const struct weir__http1_limits *limits, const char *stream, size_t len,
                  const char *expected)
{
    static struct outcome outcome;
    read_in(limits, stream, len, len, 1, &outcome);
    CHECK_TEXT(outcome.out.data, expected);
    for (size_t cut = 0; cut < len; cut++) {
        read_in(limits, stream, len, cut, len, &outcome);
        CHECK_TEXT(outcome.out.data, expected);
    }
    read_in(limits, stream, len, 0, 1, &outcome);
    CHECK_TEXT(outcome.out.data, expected);
}

#define READ(stream, expected) check(&wide, stream, sizeof stream - 1, expected)
/* Fields of a request that is well but for them. */
#define FIELDS(fields, expected) READ("GET / HTTP/1.1\r\nHost: h\r\n" fields "\r\n", expected)
#define TARGET(target, expected) READ("GET " target " HTTP/1.1\r\nHost: h\r\n\r\n", expected)
#define CHUNKS(chunks, expected)                                                                   \
    READ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" chunks, expected)
#define CHUNKED "POST / @h Host=h Transfer-Encoding=chunked "

static void test_requests(void)
{
    READ("", "");
    READ("GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / @h Host=h {};");
    READ("GET /v1/take?key=a%20b&limit=x HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\n\r\n",
         "GET /v1/take?key=a%20b&limit=x @localhost:8080 Host=localhost:8080 Accept=*/* {};");
    READ("POST /v1/take HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
         "POST /v1/take @h Host=h Content-Length=5 {hello};");
    READ("HEAD /? HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD /? @h Host=h {};");
    READ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS * @h Host=h {};");
    READ("DELETE /x HTTP/1.1\r\nHost: h\r\n\r\n", "other DELETE /x @h Host=h {};");
    READ("get / HTTP/1.1\r\nHost: h\r\n\r\n", "other get / @h Host=h {};");
    /* one behind the other, the last not whole */
    READ(
        "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"
        "abGET /3 HTTP/1.1\r\nHost: h\r\n\r\nGET /4 HTTP/1.1\r\nHost: h\r\n\r",
        "GET /1 @h Host=h {};POST /2 @h Host=h Content-Length=2 {ab};GET /3 @h Host=h {};?");
    READ("GET / HTT", "?");
    READ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhell", "?");
    /* POST without a length has no body */
    READ("POST / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
         "POST / @h Host=h {};GET / @h Host=h {};");
    READ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
         "GET / @h Host=h Content-Length=3 {abc};");
    /* 1.2 is answered as 1.1 */
    READ("GET / HTTP/1.2\r\nHost: h\r\n\r\n", "GET / @h Host=h {};");
}

static void test_request_lines(void)
{
    READ("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / @h Host=h {};");
    READ("\r\n\r\n\r\n\r\n\r\n", "!400 empty lines instead of a request");
    READ("\r\nGET / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\r\nGET",
         "GET / @h Host=h Content-Length=2 {ab};?");
    READ("\nGET / HTTP/1.1\r\n", "!400 a line feed alone; lines end in CR LF");
    READ("GET / HTTP/1.1\nHost: h\n\n", "!400 a line feed alone; lines end in CR LF");
    READ("GET / HTTP/1.1\rHost: h", "!400 a carriage return alone; lines end in CR LF");
    READ("GET / HTTP/1.1\r\r\n", "!400 a carriage return alone; lines end in CR LF");
    READ("GET /\0 HTTP/1.1\r\n", "!400 control character 0x00 in a line");
    READ("GET /\x7f HTTP/1.1\r\n", "!400 control character 0x7f in a line");
    READ("\x16\x03\x01\x02", "!400 this looks like TLS, but this port speaks plain HTTP");
    READ("GET /\r\n", "!400 the request line is not METHOD TARGET HTTP/1.1: \"GET /\"");
    READ("hello\r\n", "!400 the request line is not METHOD TARGET HTTP/1.1: \"hello\"");
    READ("GET / http/1.1\r\n",
         "!400 the request line is not METHOD TARGET HTTP/1.1: \"GET / http/1.1\"");
    READ("GET / HTTP/1.1 \r\n",
         "!400 the request line is not METHOD TARGET HTTP/1.1: \"GET / HTTP/1.1 \"");
    READ("GET / HTTP/1.10\r\n",
         "!400 the request line is not METHOD TARGET HTTP/1.1: \"GET / HTTP/1.10\"");
    READ("GET / HTTP/2.0\r\n", "!505 HTTP/2.0 is not supported; this server speaks HTTP/1.1");
    READ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
         "!505 HTTP/2.0 is not supported; this server speaks HTTP/1.1");
    READ(" HTTP/1.1\r\n", "!400 no method and target in \"\"");
    READ("GET HTTP/1.1\r\n", "!400 no method and target in \"GET\"");
    READ(" GET / HTTP/1.1\r\n", "!400 no method and target in \" GET /\"");
    READ("G(T / HTTP/1.1\r\n", "!400 no method and target in \"G(T /\"");
    READ("GET  / HTTP/1.1\r\n", "!400 byte 0x20 in the target; write it as %20");
    READ("GET /  HTTP/1.1\r\n", "!400 byte 0x20 in the target; write it as %20");
    READ("GET\t/ HTTP/1.1\r\n", "!400 no method and target in \"GET?/\"");
    READ("GET /\t HTTP/1.1\r\n", "!400 byte 0x09 in the target; write it as %09");
}

static void test_targets(void)
{
    TARGET("/a//b/../c", "GET /a//b/../c @h Host=h {};");
    TARGET("/?a?b", "GET /?a?b @h Host=h {};");
    TARGET("/{tag}|^x", "GET /{tag}|^x @h Host=h {};");
    TARGET("/a-long-path-of-more-than-sixteen-bytes?and-a-query-of-as-many",
           "GET /a-long-path-of-more-than-sixteen-bytes?and-a-query-of-as-many @h Host=h {};");
    TARGET("/caf\xc3\xa9", "!400 byte 0xc3 in the target; write it as %C3");
    TARGET("/a-long-path-of-more-than-sixteen-bytes\xff",
           "!400 byte 0xff in the target; write it as %FF");
    TARGET("/#top", "!400 byte 0x23 in the target; write it as %23");
    TARGET("*", "!400 target \"*\": it starts with / or http://");
    TARGET("h:80", "!400 target \"h:80\": it starts with / or http://");
    READ("CONNECT h:80 HTTP/1.1\r\n", "!400 target \"h:80\": it starts with / or http://");
    READ("OPTIONS *x HTTP/1.1\r\n", "!400 target \"*x\": it starts with / or http://");
    READ("GET  HTTP/1.1\r\n", "!400 target \"\": it starts with / or http://");
    TARGET("http://other:81/p?q", "GET /p?q @other:81 Host=h {};");
    TARGET("HTTPS://[::1]:443", "GET / @[::1]:443 Host=h {};");
    TARGET("http://other?q", "GET /?q @other Host=h {};");
    TARGET("http://", "!400 target \"http://\": it starts with / or http://");
    TARGET("http:///p", "!400 target \"http:///p\": no host in it");
    TARGET("http://me@other/", "!400 target \"http://me@other/\": no host in it");
    TARGET("http://a\\b/", "!400 target \"http://a\\b/\": no host in it");
    TARGET("ftp://other/", "!400 target \"ftp://other/\": it starts with / or http://");
    READ("GET http://other/ HTTP/1.1\r\n\r\n", "!400 the Host field is missing; HTTP/1.1 needs it");
}

static void test_fields(void)
{
    FIELDS("A:\r\nB: \t \r\nC:x\r\nD:  x y\t\r\n", "GET / @h Host=h A= B= C=x D=x y {};");
    FIELDS("Caf\xe9: x\r\n", "!400 not NAME: VALUE: \"Caf?: x\"");
    FIELDS("A: caf\xc3\xa9 \x80\xff\r\n", "GET / @h Host=h A=caf\xc3\xa9 \x80\xff {};");
    FIELDS("A: a:b: c\r\n", "GET / @h Host=h A=a:b: c {};");
    FIELDS("A : x\r\n", "!400 a space in or after the name of a field: \"A : x\"");
    FIELDS("A\t: x\r\n", "!400 a space in or after the name of a field: \"A?: x\"");
    FIELDS("A B: x\r\n", "!400 a space in or after the name of a field: \"A B: x\"");
    FIELDS("A: x\r\n folded\r\n", "!400 a folded line: \" folded\"");
    FIELDS("A: x\r\n\tfolded\r\n", "!400 a folded line: \"?folded\"");
    READ("GET / HTTP/1.1\r\n Host: h\r\n\r\n", "!400 a folded line: \" Host: h\"");
    FIELDS(": x\r\n", "!400 not NAME: VALUE: \": x\"");
    FIELDS("A\r\n", "!400 not NAME: VALUE: \"A\"");
    FIELDS("A;B: x\r\n", "!400 not NAME: VALUE: \"A;B: x\"");
    FIELDS("A: x\ny\r\n", "!400 a line feed alone; lines end in CR LF");
    FIELDS("A: x\ry\r\n", "!400 a carriage return alone; lines end in CR LF");
    FIELDS("A: a value of more than sixteen bytes\ry\r\n",
           "!400 a carriage return alone; lines end in CR LF");
    FIELDS("A: \0\r\n", "!400 control character 0x00 in a line");
    FIELDS("A: \x1b[1m\r\n", "!400 control character 0x1b in a line");
    FIELDS("A: a value of more than sixteen bytes\x01\r\n",
           "!400 control character 0x01 in a line");
    READ("GET / HTTP/1.1\r\nHost: h\r\n\n", "!400 a line feed alone; lines end in CR LF");
}

static void test_hosts(void)
{
    READ("GET / HTTP/1.1\r\n\r\n", "!400 the Host field is missing; HTTP/1.1 needs it");
    READ("GET / HTTP/1.0\r\n\r\n", "GET / @- {} 1.0 close;");
    READ("GET / HTTP/1.1\r\nhOST:\r\n\r\n", "GET / @ hOST= {};");
    FIELDS("Host: h\r\n", "!400 a second Host, \"h\"");
    READ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", "!400 a second Host, \"b\"");
    READ("GET http://x/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "!400 a second Host, \"b\"");
    READ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "!400 invalid Host \"a, b\"");
    READ("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", "!400 invalid Host \"a,b\"");
    READ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "!400 invalid Host \"a/b\"");
    READ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "!400 invalid Host \"a@b\"");
    READ("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "GET / @[::1]:80 Host=[::1]:80 {};");
    /* another field of four letters */
    FIELDS("Hosu: x\r\n", "GET / @h Host=h Hosu=x {};");
}

static void test_lengths(void)
{
    FIELDS("Content-Length: 0\r\n", "GET / @h Host=h Content-Length=0 {};");
    FIELDS("Content-Length: 000\r\n", "GET / @h Host=h Content-Length=000 {};");
    FIELDS("Content-Length:\r\n", "!400 Content-Length is empty");
    FIELDS("Content-Length: +5\r\n", "!400 invalid Content-Length \"+5\": expected a number");
    FIELDS("Content-Length: -5\r\n", "!400 invalid Content-Length \"-5\": expected a number");
    FIELDS("Content-Length: 0x5\r\n", "!400 invalid Content-Length \"0x5\": expected a number");
    FIELDS("Content-Length: 1 2\r\n", "!400 invalid Content-Length \"1 2\": expected a number");
    FIELDS("Content-Length: 5,5\r\n", "!400 invalid Content-Length \"5,5\": expected a number");
    FIELDS("Content-Length: 5;x\r\n", "!400 invalid Content-Length \"5;x\": expected a number");
    FIELDS("Content-Length: 5.0\r\n", "!400 invalid Content-Length \"5.0\": expected a number");
    FIELDS("Content-Length: 0\r\ncontent-length: 0\r\n", "!400 a second Content-Length, \"0\"");
    FIELDS("Content-Length: 1025\r\n", "!413 the body is longer than 1024 bytes");
    FIELDS("Content-Length: 18446744073709551615\r\n", "!413 the body is longer than 1024 bytes");
    FIELDS("Content-Length: 18446744073709551617\r\n", "!413 the body is longer than 1024 bytes");
    FIELDS("Content-Length: 99999999999999999999999999999999999\r\n",
           "!413 the body is longer than 1024 bytes");
    READ("POST / HTTP/1.0\r\nHost: h\r\n\r\n", "!411 no Content-Length");
    READ("POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
         "POST / @- Content-Length=1 {x} 1.0 close;");
}

static void test_encodings(void)
{
    CHUNKS("0\r\n\r\n", CHUNKED "{};");
    CHUNKS("5\r\nhello\r\n0\r\n\r\n", CHUNKED "{hello};");
    CHUNKS("5\r\nhello\r\n7\r\n, world\r\n00\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
           CHUNKED "{hello, world};GET / @x Host=x {};");
    CHUNKS("00000000000000000000005;name=\"a value\" ; b\r\na\r\nb\n\r\n0;x\r\n\r\n",
           CHUNKED "{a\r\nb\n};");
    CHUNKS("a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n", CHUNKED "{01234567890123456789a};");
    CHUNKS("1\r\na\r\n0\r\nA: b\r\nContent-Length: 7\r\n\r\n", CHUNKED "{a};");
    CHUNKS("5\r\nhel", "?");
    FIELDS("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
           "!400 Transfer-Encoding beside Content-Length");
    FIELDS("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
           "!400 Transfer-Encoding beside Content-Length");
    FIELDS("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "!400 a second Transfer-Encoding, \"chunked\"");
    FIELDS("Transfer-Encoding: chunked, chunked\r\n",
           "!501 unsupported Transfer-Encoding \"chunked, chunked\": expected chunked");
    FIELDS("Transfer-Encoding: gzip, chunked\r\n",
           "!501 unsupported Transfer-Encoding \"gzip, chunked\": expected chunked");
    FIELDS("Transfer-Encoding: xchunked\r\n",
           "!501 unsupported Transfer-Encoding \"xchunked\": expected chunked");
    FIELDS("Transfer-Encoding: chunked;q=1\r\n",
           "!501 unsupported Transfer-Encoding \"chunked;q=1\": expected chunked");
    FIELDS("Transfer-Encoding: identity\r\n",
           "!501 unsupported Transfer-Encoding \"identity\": expected chunked");
    FIELDS("Transfer-Encoding:\r\n", "!501 unsupported Transfer-Encoding \"\": expected chunked");
    FIELDS("Transfer-Encoding: \x0b"
           "chunked\r\n",
           "!400 control character 0x0b in a line");
    READ("POST / HTTP/1.1\r\nHost: h\r\ntransfer-ENCODING: Chunked\r\n\r\n0\r\n\r\n",
         "POST / @h Host=h transfer-ENCODING=Chunked {};");
    READ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
         "!400 Transfer-Encoding in HTTP/1.0");
}

static void test_broken_chunks(void)
{
    CHUNKS("\r\n", "!400 invalid chunk size \"\"");
    CHUNKS("x\r\n", "!400 invalid chunk size \"x\"");
    CHUNKS("0x5\r\n", "!400 invalid chunk size \"0x5\"");
    CHUNKS("+5\r\n", "!400 invalid chunk size \"+5\"");
    CHUNKS("-1\r\n", "!400 invalid chunk size \"-1\"");
    CHUNKS(" 5\r\n", "!400 invalid chunk size \" 5\"");
    CHUNKS("5 \r\n", "!400 invalid chunk size \"5 \"");
    CHUNKS("5\n", "!400 a line feed alone; lines end in CR LF");
    CHUNKS("5;a\nb\r\n", "!400 a line feed alone; lines end in CR LF");
    CHUNKS("5\r\rhello", "!400 a carriage return alone; lines end in CR LF");
    CHUNKS("5\r\nhellox", "!400 no CR LF after a chunk");
    CHUNKS("5\r\nhello\n", "!400 no CR LF after a chunk");
    CHUNKS("5\r\nhello\rx", "!400 no CR LF after a chunk");
    CHUNKS("401\r\n", "!413 the body is longer than 1024 bytes");
    CHUNKS("fffffffffffffffe\r\n", "!413 the body is longer than 1024 bytes");
    CHUNKS("10000000000000001\r\n", "!413 the body is longer than 1024 bytes");
    CHUNKS("1\r\na\r\n400\r\n", "!413 the body is longer than 1024 bytes");
    CHUNKS("0\r\nA : b\r\n\r\n", "!400 a space in or after the name of a field: \"A : b\"");
    CHUNKS("0\r\nA: b\r\n c\r\n\r\n", "!400 a folded line: \" c\"");
    CHUNKS("0\r\nA: b\n\r\n", "!400 a line feed alone; lines end in CR LF");
    CHUNKS("0\r\nA\r\n", "!400 not NAME: VALUE: \"A\"");
}

static void test_connections(void)
{
    FIELDS("Connection: close\r\n", "GET / @h Host=h Connection=close {} close;");
    FIELDS("Connection: Keep-Alive, CLOSE\r\n",
           "GET / @h Host=h Connection=Keep-Alive, CLOSE {} close;");
    FIELDS("Connection: ,,\tclose\r\n", "GET / @h Host=h Connection=,,\tclose {} close;");
    FIELDS("Connection: closed\r\n", "GET / @h Host=h Connection=closed {};");
    FIELDS("Connection: upgrade\r\nConnection: close\r\n",
           "GET / @h Host=h Connection=upgrade Connection=close {} close;");
    FIELDS("User-Agent: close\r\n", "GET / @h Host=h User-Agent=close {};");
    READ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
         "GET / @- Connection=keep-alive {} 1.0;");
    READ("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
         "GET / @- Connection=keep-alive, close {} 1.0 close;");
}

/* ---- limits ---- */

/* As many times as it says. */
static char *repeat(char *to, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        to = stpcpy(to, text);
    return to;
}

static void test_line_and_head_limits(void)
{
    static const struct weir__http1_limits narrow = {20, 60, 10};
    char text[4096];
    /* a line of 20 bytes, and of 21 */
    check(&narrow, "GET /012345 HTTP/1.1\r\nHost: h\r\n\r\n", 33, "GET /012345 @h Host=h {};");
    check(&narrow, "GET /0123456 HTTP/1.1\r\nHost: h\r\n\r\n", 34,
          "!414 the request line is too long");
    check(&narrow, "GET /01234567890123456789", 25, "!414 the request line is too long");
    /* a head of 60 bytes, and of 61 */
    check(&narrow, "GET / HTTP/1.1\r\nHost: h\r\nA: 0123456789012345678901234567\r\n\r\n", 60,
          "GET / @h Host=h A=0123456789012345678901234567 {};");
    check(&narrow, "GET / HTTP/1.1\r\nHost: h\r\nA: 01234567890123456789012345678\r\n\r\n", 61,
          "!431 the head is too long");
    /* what is behind the limit does not matter, nor does an error there */
    check(&narrow, "GET / HTTP/1.1\r\nHost: h\r\nA: 01234567890123456789012345678901234\n", 64,
          "!431 the head is too long");
    /* a line's limit beyond the head's */
    static const struct weir__http1_limits odd = {100, 20, 0};
    check(&odd, "GET /01234567890123456789", 25, "!414 the request line is too long");
    char *end = stpcpy(text, "GET / HTTP/1.1\r\nHost: h\r\n");
    end = repeat(end, "a:\r\n", WEIR__HTTP_FIELDS_MAX - 1);
    strcpy(end, "\r\n");
    struct outcome outcome;
    read_in(&wide, text, strlen(text), strlen(text), 1, &outcome);
    CHECK_INT(outcome.status, WEIR__HTTP1_NEED_MORE);
    CHECK(!strncmp(outcome.text, "GET / @h Host=h a= a= ", 22));
    strcpy(end, "a:\r\n\r\n");
    check(&wide, text, strlen(text), "!431 more than 100 fields");
}

static void test_body_limits(void)
{
    static const struct weir__http1_limits narrow = {60, 70, 10};
    static const char head[] = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    char text[1024];
    check(&narrow, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0123456789", 57,
          "other PUT / @h Host=h Content-Length=10 {0123456789};");
    check(&narrow, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n0123456789", 57,
          "!413 the body is longer than 10 bytes");
    /* ten chunks of a byte take 50 bytes and the last five: within the 80 that may be added */
    strcpy(repeat(stpcpy(text, head), "1\r\nx\r\n", 10), "0\r\n\r\n");
    check(&narrow, text, strlen(text), CHUNKED "{xxxxxxxxxx};");
    strcpy(repeat(stpcpy(text, head), "1\r\nx\r\n", 10), "1\r\nx\r\n");
    check(&narrow, text, strlen(text), "!413 the body is longer than 10 bytes");
    /* extensions, and trailers, until 80 bytes are full */
    strcpy(stpcpy(text, head), "0;01234567890123456789012345678901234\r\n"
                               "A: 3456789012345678901234567890123456\r\n\r\n");
    check(&narrow, text, strlen(text), CHUNKED "{};");
    strcpy(stpcpy(text, head), "0;01234567890123456789012345678901234\r\n"
                               "A: 34567890123456789012345678901234567\r\n\r\n");
    check(&narrow, text, strlen(text),
          "!413 chunk sizes, extensions and trailers are too long together");
    strcpy(repeat(stpcpy(text, head), "1;01234567\r\nx\r\n", 6), "0\r\n\r\n");
    check(&narrow, text, strlen(text),
          "!413 chunk sizes, extensions and trailers are too long together");
    strcpy(repeat(stpcpy(text, head), "1;0123456\r\nx\r\n", 6), "1;0\r\nx\r\n");
    check(&narrow, text, strlen(text),
          "!413 chunk sizes, extensions and trailers are too long together");
    char *end = repeat(stpcpy(stpcpy(text, head), "1;"), "0", 75);
    strcpy(end, "\r\nx\r\n");
    check(&narrow, text, strlen(text),
          "!413 chunk sizes, extensions and trailers are too long together");
    /* one line of a chunk is at most 256 bytes */
    end = repeat(stpcpy(stpcpy(text, head), "0;"), "x", 252);
    strcpy(end, "\r\n\r\n");
    check(&wide, text, strlen(text), CHUNKED "{};");
    strcpy(end, "x\r\n\r\n");
    check(&wide, text, strlen(text), "!400 a chunk's size and extensions are too long");
}

/* What was scanned is not scanned again: fed byte by byte, the bytes before the last are unfit to
 * be read until the line is whole, and those of the lines before it until the request is. */
static void test_scans_once(void)
{
    static struct weir__http_request request;
    char text[2048], unfit[2048];
    char *end = stpcpy(text, "POST /");
    end =
        stpcpy(repeat(end, "p", 300), " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nA: ");
    end = stpcpy(repeat(end, "v", 300), "\r\n\r\n4;");
    end = stpcpy(repeat(end, "e", 200), "\r\nbody\r\n0\r\nT: ");
    stpcpy(repeat(end, "t", 300), "\r\n\r\n");
    size_t len = strlen(text), line = 0;
    struct weir__http1_reader reader;
    weir__http1_begin(&reader, &wide);
    enum weir__http1_status status = WEIR__HTTP1_NEED_MORE;
    for (size_t i = 0; i < len - 1 && status == WEIR__HTTP1_NEED_MORE; i++) {
        memset(unfit, 1, sizeof unfit);
        size_t from = text[i] == '\n' ? line : i - (i > 0);
        memcpy(unfit + from, text + from, i + 1 - from);
        status = weir__http1_next(&reader, unfit, i + 1, &request);
        line = text[i] == '\n' ? i + 1 : line;
    }
    CHECK_INT(status, WEIR__HTTP1_NEED_MORE);
    CHECK_INT(weir__http1_next(&reader, text, len, &request), WEIR__HTTP1_REQUEST);
    CHECK_INT(request.path.len, 301);
    CHECK_INT(request.body.len, 4);
}

/* ---- 100 Continue ---- */

static int continues(const char *text, size_t cut, size_t step)
{
    static struct outcome outcome;
    read_in(&wide, text, strlen(text), cut, step, &outcome);
    return outcome.continues;
}

static void test_continue(void)
{
    static const char head[] = "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n";
    char text[256], old[256];
    snprintf(text, sizeof text, "%sContent-Length: 5\r\n\r\nhello", head);
    size_t len = strlen(text);
    CHECK_INT(continues(text, len, 1), 0);
    CHECK_INT(continues(text, len - 5, 5), 1);
    CHECK_INT(continues(text, len - 5, 1), 1); /* said once */
    CHECK_INT(continues(text, len - 4, 1), 0); /* the client did not wait */
    CHECK_INT(continues(text, 0, 1), 1);
    snprintf(old, sizeof old,
             "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx");
    CHECK_INT(continues(old, 0, 1), 0);
    snprintf(text, sizeof text, "%sContent-Length: 0\r\n\r\n", head);
    CHECK_INT(continues(text, 0, 1), 0);
    snprintf(text, sizeof text, "%sTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", head);
    CHECK_INT(continues(text, 0, 1), 1);
    snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    CHECK_INT(continues(text, 0, 1), 0);
}

/* ---- looking things up ---- */

static void test_field_by_name(void)
{
    static struct weir__http_request request;
    struct weir__http1_reader reader;
    struct weir__span value = {"before", 6};
    char text[] = "GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: one\r\nx-api-key: two\r\n\r\n";
    weir__http1_begin(&reader, &wide);
    CHECK_INT(weir__http1_next(&reader, text, sizeof text - 1, &request), WEIR__HTTP1_REQUEST);
    CHECK(!weir__http_field(&request, "x-api-ke", &value));
    CHECK(!weir__http_field(&request, "x-api-keys", &value));
    CHECK(value.len == 6 && !memcmp(value.data, "before", 6));
    CHECK(weir__http_field(&request, "x-api-key", &value));
    CHECK(value.len == 3 && !memcmp(value.data, "one", 3));
    CHECK(weir__http_field(&request, "host", &value) && value.len == 1);
}

/* name=value; each, and ! where it is broken. */
static void check_query(const char *text, size_t len, const char *expected)
{
    char shown[256];
    struct weir__buffer out = weir__buffer_over(shown, sizeof shown);
    char *copy = malloc(len + !len), *room = malloc(len + !len), *to = room;
    memcpy(copy, text, len);
    struct weir__query query = {{copy, len}, false};
    struct weir__span name, value;
    while (weir__query_next(&query, to, &name, &value)) {
        CHECK(name.data >= room && value.data + value.len <= room + len);
        to += name.len + value.len;
        put_span(&out, "", name);
        put_span(&out, "=", value);
        weir__put_text(&out, ";");
    }
    weir__put_text(&out, query.bad ? "!" : "");
    CHECK(!weir__query_next(&query, to, &name, &value));
    CHECK_TEXT(shown, expected);
    free(copy);
    free(room);
}
#define QUERY(text, expected) check_query(text, sizeof text - 1, expected)

static void test_queries(void)
{
    QUERY("", "");
    QUERY("a=b", "a=b;");
    QUERY("a=b&c=d", "a=b;c=d;");
    QUERY("&&a=b&&c&=d&", "a=b;c=;=d;");
    QUERY("a=b=c?d;e", "a=b=c?d;e;");
    QUERY("k%65y=a+b%2Bc%2fd%26", "key=a b+c/d&;");
    QUERY("a=b&c=%2&d=e", "a=b;!");
    QUERY("a=%", "!");
    QUERY("a=%4", "!");
    QUERY("a=%4g", "!");
    QUERY("a=%g4", "!");
    QUERY("%=a", "!");
    QUERY("a=%%41", "!");
}

int main(void)
{
    test_requests();
    test_request_lines();
    test_targets();
    test_fields();
    test_hosts();
    test_lengths();
    test_encodings();
    test_broken_chunks();
    test_connections();
    test_line_and_head_limits();
    test_body_limits();
    test_scans_once();
    test_continue();
    test_field_by_name();
    test_queries();
    return test_report();
}
