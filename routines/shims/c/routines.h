/* Runs routines in C for a host: reads frames from one pipe and answers on another. No dependencies but libc and POSIX.
 *
 * A program includes this file before all others, in one of its sources, and ends with `return rt_main(routines)`:
 * a table of functions and searches that an empty row ends. docs/routines.md has an example.
 *
 * - Arguments are slices of JSON (`rt_json`), of which the readers below extract parts. A missing part has the size 0.
 * - Results are written into `cx->result` as JSON, by `rt_write` and its siblings, and checked before they are sent.
 * - Functions return 0, or another number after a failure, which `rt_fail` describes.
 * - States of calls and of searches are bytes without pointers: the same program reads them on another machine.
 */
#ifndef ROUTINES_H
#define ROUTINES_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RT_VERSION 1
#define RT_FRAME_BYTES_MAX ((size_t)64 << 20)
/* Leaves room for the rest of a message around a value. */
#define RT_VALUE_BYTES_MAX (RT_FRAME_BYTES_MAX - 1024)
#define RT_STATE_BYTES_MAX ((size_t)1 << 20)
#define RT_SOLUTION_BYTES_MAX ((size_t)64 << 10)
#define RT_FLUSH_BYTES ((size_t)1 << 20)
#define RT_FLUSH_SECONDS 0.01
#define RT_INTEGER_MAX 9007199254740992LL
#define RT_DEPTH_MAX 100
#define RT_NAMES_MAX 1000
#define RT_FITS(text, size, most) ((size) <= (most) && rt_is_value(text, size, RT_DEPTH_MAX))
#define RT_NAME_BYTES_MAX 64
/* The time that a search runs before it is split again, so that it advances however often parts are requested. */
#define RT_SPLIT_SECONDS 0.001
/* Requests in the first byte of the page. */
enum { RT_BOUND = 1, RT_SPLIT = 2, RT_PAUSE = 3 };

#define RT_API static __attribute__((unused))
#define RT_FORMAT static __attribute__((unused, format(printf, 2, 3)))

typedef struct { char *data; size_t size, room; } rt_bytes;

/* A value in JSON, within a frame. */
typedef struct { const char *at; size_t size; } rt_json;

/* The running call or search. */
typedef struct {
    rt_json argument;
    /* The kind of the failure of the last nested call. */
    char called_kind[32];
    /* The least known cost, for a search. */
    double bound;
    const char *kind, *name;
    char message[4096];
    /* The result in JSON, and the state from which the call continues: it is empty at the beginning. */
    rt_bytes result, restored, answer;
    int has_failed, is_stopped;
    enum { RT_LOAD, RT_FUNCTION, RT_SEARCH } runs;
    unsigned long long id;
    struct { char name[RT_NAME_BYTES_MAX]; long long number; } counts[RT_NAMES_MAX];
    size_t names;
} rt_cx;

/* A function has `call`, a search the others. `split` moves a part of the state, and returns whether there is one. */
typedef struct {
    const char *name;
    int (*call)(rt_cx *);
    int (*start)(rt_cx *, rt_bytes *state);
    int (*search)(rt_cx *, rt_bytes *state);
    int (*split)(rt_bytes *state, rt_bytes *part);
} rt_routine;

static struct {
    FILE *in, *out;
    volatile unsigned char *page;
    /* The last frame and its parts, the message that is being written, and the results that are sent together. */
    rt_bytes frame, message, results;
    rt_json json, bytes;
    double flushed;
    int has_checkpoints;
} rt_host;

RT_API void rt_exit(const char *reason) {
    fprintf(stderr, "routines.h: %s\n", reason);
    exit(1);
}

/* Bytes */

/* Makes room. A NUL follows the content. */
RT_API void rt_reserve(rt_bytes *to, size_t more) {
    if (to->size + more + 1 > to->room) {
        to->room = 2 * (to->size + more + 1);
        if (!(to->data = realloc(to->data, to->room))) rt_exit("there is no memory left");
    }
    to->data[to->size + more] = 0;
}

RT_API void rt_append(rt_bytes *to, const void *data, size_t size) {
    rt_reserve(to, size);
    if (size) memcpy(to->data + to->size, data, size);
    to->size += size;
}

/* Appends a formatted text. */
RT_FORMAT void rt_write(rt_bytes *to, const char *format, ...) {
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    int size = vsnprintf(NULL, 0, format, values);
    if (size < 0) rt_exit("a text cannot be formatted");
    rt_reserve(to, (size_t)size);
    vsnprintf(to->data + to->size, (size_t)size + 1, format, again);
    to->size += (size_t)size;
    va_end(values);
    va_end(again);
}

/* Returns whether bytes are text. */
RT_API int rt_is_utf8(const char *text, size_t size) {
    const unsigned char *at = (const unsigned char *)text, *end = at + size;
    for (; at < end; at++) {
        unsigned char first = *at;
        if (first < 0x80) continue;
        if (first < 0xc2 || first > 0xf4) return 0;
        /* The second byte excludes long forms of short characters, halves of surrogate pairs, and too large numbers. */
        unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
        unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
        int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        if (end - at <= more || at[1] < least || at[1] > most) return 0;
        while (more-- > 0) if ((*++at & 0xc0) != 0x80) return 0;
    }
    return 1;
}

/* Appends a string in JSON. Bytes that are no text are replaced. */
RT_API void rt_write_text(rt_bytes *to, const char *text, size_t size) {
    int is_utf8 = rt_is_utf8(text, size);
    rt_append(to, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == '"' || c == '\\') rt_write(to, "\\u%04x", c);
        else rt_append(to, c >= 0x80 && !is_utf8 ? "?" : &text[i], 1);
    }
    rt_append(to, "\"", 1);
}

/* Appends a double, also NaN and infinities. */
RT_API void rt_write_number(rt_bytes *to, double number) {
    if (isnan(number)) rt_write(to, "{\"$f\":\"nan\"}");
    else if (isinf(number)) rt_write(to, "{\"$f\":\"%s\"}", number > 0 ? "inf" : "-inf");
    else rt_write(to, fabs(number) > (double)RT_INTEGER_MAX ? "%.16e" : "%.17g", number);
}

#define RT_DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

/* Appends an array with a type such as "f64", and elements in C order on a little-endian machine. */
RT_API void rt_write_array(rt_bytes *to, const char *dtype, const size_t *shape, size_t dimensions, const void *elements) {
    const unsigned char *data = elements;
    size_t size = (size_t)atoi(dtype + 1) / 8;
    rt_write(to, "{\"$a\":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (size_t i = 0; i < dimensions; size *= shape[i++]) rt_write(to, i ? ",%zu" : "%zu", shape[i]);
    rt_write(to, "],\"data\":\"");
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i;
        unsigned word = (unsigned)data[i] << 16 | (left > 1 ? data[i + 1] : 0u) << 8 | (left > 2 ? data[i + 2] : 0u);
        char four[] = {RT_DIGITS[word >> 18], RT_DIGITS[word >> 12 & 63], left > 1 ? RT_DIGITS[word >> 6 & 63] : '=', left > 2 ? RT_DIGITS[word & 63] : '='};
        rt_append(to, four, 4);
    }
    rt_write(to, "\"}}");
}

/* Readers of JSON, which a NUL follows */

RT_API const char *rt_space(const char *at) { return at + strspn(at, " \t\n\r"); }

/* Returns the end of digits; NULL if there are none. */
RT_API const char *rt_digits(const char *at) {
    size_t size = strspn(at, "0123456789");
    return size ? at + size : NULL;
}

RT_API const char *rt_skip_number(const char *at) {
    const char *from = at += *at == '-';
    if (!(at = rt_digits(at)) || (*from == '0' && at - from > 1)) return NULL;
    if (*at == '.' && !(at = rt_digits(at + 1))) return NULL;
    return *at == 'e' || *at == 'E' ? rt_digits(at + 1 + (at[1] == '+' || at[1] == '-')) : at;
}

RT_API const char *rt_skip_text(const char *at) {
    for (at++; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return NULL;
        if (*at != '\\') continue;
        if (!*++at || !strchr("\"\\/bfnrtu", *at)) return NULL;
        if (*at == 'u' && strspn(at + 1, "0123456789abcdefABCDEF") < 4) return NULL;
    }
    return at + 1;
}

/* Returns the end of the value that starts here; NULL if it is none, or too deep. */
RT_API const char *rt_skip(const char *at, int depth) {
    at = rt_space(at);
    if (*at == '"') return rt_skip_text(at);
    if (*at == '-' || (*at >= '0' && *at <= '9')) return rt_skip_number(at);
    if (!strncmp(at, "null", 4) || !strncmp(at, "true", 4)) return at + 4;
    if (!strncmp(at, "false", 5)) return at + 5;
    char close = *at == '[' ? ']' : *at == '{' ? '}' : 0;
    if (!close || depth == 0) return NULL;
    at = rt_space(at + 1);
    if (*at == close) return at + 1;
    for (;; at++) {
        if (close == '}') {
            at = rt_space(at);
            if (*at != '"' || !(at = rt_skip_text(at)) || *(at = rt_space(at)) != ':') return NULL;
            at++;
        }
        if (!(at = rt_skip(at, depth - 1))) return NULL;
        at = rt_space(at);
        if (*at == close) return at + 1;
        if (*at != ',') return NULL;
    }
}

RT_API int rt_is_value(const char *text, size_t size, int depth) {
    const char *after = size ? rt_skip(text, depth) : NULL;
    return after && rt_space(after) == text + size && rt_is_utf8(text, size);
}

/* Returns the next part of a list or object, and its key; the size is 0 after the last one. `at` starts at NULL. */
RT_API rt_json rt_next(rt_json of, const char **at, rt_json *key) {
    rt_json part = {NULL, 0};
    if (!of.size || (*of.at != '[' && *of.at != '{')) return part;
    const char *from = rt_space(*at ? *at : of.at + 1);
    if (*at && *from == ',') from = rt_space(from + 1);
    if (*from == ']' || *from == '}') return part;
    if (*of.at == '{') {
        const char *after = rt_skip_text(from);
        if (key) *key = (rt_json){from + 1, (size_t)(after - from) - 2};
        from = rt_space(rt_space(after) + 1);
    }
    *at = rt_skip(from, 2 * RT_DEPTH_MAX);
    return (rt_json){from, (size_t)(*at - from)};
}

/* Returns the value of a key of an object. */
RT_API rt_json rt_member(rt_json of, const char *name) {
    const char *at = NULL;
    rt_json key = {NULL, 0}, part;
    while ((part = rt_next(of, &at, &key)).size)
        if (key.size == strlen(name) && !memcmp(key.at, name, key.size)) break;
    return part;
}

RT_API rt_json rt_item(rt_json of, size_t index) {
    const char *at = NULL;
    rt_json part;
    while ((part = rt_next(of, &at, NULL)).size && index > 0) index--;
    return part;
}

/* Returns the number of parts of a list or object. */
RT_API size_t rt_length(rt_json of) {
    const char *at = NULL;
    size_t length = 0;
    while (rt_next(of, &at, NULL).size) length++;
    return length;
}

RT_API int rt_is(rt_json text, const char *expected) {
    return text.size == strlen(expected) + 2 && *text.at == '"' && !memcmp(text.at + 1, expected, text.size - 2);
}

/* Reads a number, also one beyond JSON. Returns 0, or another number if it is none. */
RT_API int rt_to_number(rt_json value, double *number) {
    rt_json inner = rt_member(value, "$i");
    if (!inner.size) inner = rt_member(value, "$f");
    int is_text = rt_length(value) == 1 && inner.size > 2 && *inner.at == '"';
    if (is_text) value = (rt_json){inner.at + 1, inner.size - 2};
    else if (!value.size || (*value.at != '-' && (*value.at < '0' || *value.at > '9'))) return -1;
    char *end;
    double read = strtod(value.at, &end);
    return end == value.at + value.size ? (*number = read, 0) : -1;
}

/* Appends the elements of an array with this type, and returns 0, or another number if it is none. The parts of `shape` are
 * the lengths of its dimensions. */
RT_API int rt_to_array(rt_json value, const char *dtype, rt_bytes *to, rt_json *shape) {
    rt_json array = rt_member(value, "$a"), data = rt_member(array, "data"), part;
    size_t bytes = (size_t)atoi(dtype + 1) / 8, before = to->size;
    unsigned word = 0, bits = 0;
    *shape = rt_member(array, "shape");
    if (!rt_is(rt_member(array, "dtype"), dtype) || !data.size || *data.at != '"' || !shape->size || *shape->at != '[') return -1;
    rt_reserve(to, data.size);
    for (const char *at = data.at + 1, *digit; *at != '"' && *at != '='; at++) {
        /* The slash may be escaped. */
        if (*at == '\\') continue;
        if (!(digit = strchr(RT_DIGITS, *at))) return -1;
        word = word << 6 | (unsigned)(digit - RT_DIGITS);
        if ((bits += 6) < 8) continue;
        char byte = (char)(word >> (bits -= 8));
        rt_append(to, &byte, 1);
    }
    for (const char *at = NULL; (part = rt_next(*shape, &at, NULL)).size;) {
        unsigned long long length = strtoull(part.at, NULL, 10);
        if (rt_digits(part.at) != part.at + part.size || length > RT_FRAME_BYTES_MAX || (length && bytes > SIZE_MAX / length)) return -1;
        bytes *= (size_t)length;
    }
    return to->size - before == bytes ? 0 : -1;
}

RT_API unsigned rt_unit(const char *at) { return (unsigned)strtoul((char[]){at[0], at[1], at[2], at[3], 0}, NULL, 16); }

/* Appends a string, or the path of a resource, in UTF-8 before a NUL. Returns 0, or another number if it is none. */
RT_API int rt_to_text(rt_json value, rt_bytes *to) {
    static const unsigned char LEAD[] = {0, 0xc0, 0xe0, 0xf0};
    const char *escapes = "\"\\/bfnrt", *chars = "\"\\/\b\f\n\r\t";
    rt_json file = rt_member(value, "$file");
    rt_reserve(to, 0);
    if (file.size) value = file;
    if (!value.size || *value.at != '"') return -1;
    for (const char *at = value.at + 1; at < value.at + value.size - 1; at++) {
        if (*at != '\\') rt_append(to, at, 1);
        else if (*++at != 'u') rt_append(to, chars + (strchr(escapes, *at) - escapes), 1);
        else {
            unsigned c = rt_unit(at + 1);
            at += 4;
            if (c >= 0xd800 && c < 0xdc00 && at[1] == '\\') {
                c = 0x10000 + ((c - 0xd800) << 10) + (rt_unit(at + 3) & 0x3ff);
                at += 6;
            }
            int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            char byte = (char)(LEAD[more] | c >> 6 * more);
            for (rt_append(to, &byte, 1); more > 0; rt_append(to, &byte, 1))
                byte = (char)(0x80 | (c >> 6 * --more & 0x3f));
        }
    }
    return 0;
}

/* Frames */

RT_API double rt_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Sends the message that was written, with bytes. */
RT_API void rt_send(const void *bytes, size_t size) {
    rt_bytes *json = &rt_host.message;
    uint32_t lengths[2] = {(uint32_t)(4 + json->size + size), (uint32_t)json->size};
    for (int i = 0; i < 8; i++) putc((int)(lengths[i / 4] >> 8 * (i % 4) & 0xff), rt_host.out);
    fwrite(json->data, 1, json->size, rt_host.out);
    if (size) fwrite(bytes, 1, size, rt_host.out);
    if (fflush(rt_host.out)) rt_exit("the host does not read");
    json->size = 0;
}

RT_API void rt_read(void *to, size_t size) {
    if (size && fread(to, 1, size, rt_host.in) != size) exit(0);
}

/* Reads a frame into a buffer. The message in it is valid JSON. */
RT_API void rt_receive(rt_bytes *into, rt_json *json, rt_json *bytes) {
    unsigned char head[8];
    uint32_t lengths[2] = {0, 0};
    rt_read(head, 8);
    for (int i = 0; i < 8; i++) lengths[i / 4] |= (uint32_t)head[i] << 8 * (i % 4);
    if (lengths[0] < 4 || lengths[0] > RT_FRAME_BYTES_MAX || lengths[1] > lengths[0] - 4)
        rt_exit("the host has sent a wrong frame");
    into->size = 0;
    rt_reserve(into, lengths[0] - 4);
    rt_read(into->data, lengths[0] - 4);
    *json = (rt_json){into->data, lengths[1]};
    *bytes = (rt_json){into->data + lengths[1], lengths[0] - 4 - lengths[1]};
    if (!rt_is_value(json->at, json->size, RT_DEPTH_MAX + 8)) rt_exit("the host has sent a message that is no JSON");
}

RT_API void rt_flush(void) {
    if (rt_host.results.size) {
        rt_write(&rt_host.message, "{\"type\":\"result\",\"values\":[%s]}", rt_host.results.data);
        rt_send(NULL, 0);
    }
    rt_host.results.size = 0;
    rt_host.flushed = rt_seconds();
}

/* Failures */

/* Describes the failure of the call or search. Returns -1, for `return rt_fail(…)`. */
RT_FORMAT int rt_fail(rt_cx *cx, const char *format, ...) {
    va_list values;
    /* The message may be one of the values. */
    char message[sizeof cx->message];
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    strcpy(cx->message, message);
    cx->kind = "user";
    return -1;
}

/* Fails the call because of a value, whatever it returns. */
RT_API int rt_invalid(rt_cx *cx, const char *reason) {
    rt_fail(cx, "%s", reason);
    cx->kind = "invalid";
    cx->has_failed = 1;
    return -1;
}

RT_API void rt_begin(rt_cx *cx, const char *name, int runs) {
    cx->runs = runs;
    cx->result.size = cx->names = 0;
    cx->has_failed = cx->is_stopped = 0;
    cx->bound = INFINITY;
    cx->name = name;
    rt_fail(cx, "it returned an error");
}

/* Reports the failure of a call with an id, or of a search. */
RT_API int rt_report(rt_cx *cx, const unsigned long long *id) {
    rt_bytes *error = &rt_host.message;
    rt_flush();
    rt_write(error, "{\"type\":\"error\",\"kind\":\"%s\",\"trace\":\"in %s", cx->kind, cx->name);
    rt_write(error, "%s\",", cx->runs == RT_SEARCH ? ", a search" : "");
    if (id) rt_write(error, "\"id\":%llu,", *id);
    rt_write(error, "\"message\":");
    rt_write_text(error, cx->message, strlen(cx->message));
    rt_write(error, "}");
    rt_send(NULL, 0);
    return 0;
}

/* Functions */

/* Returns whether arguments have names: an object with the only key `$…` is a number or a resource. */
RT_API int rt_is_named(rt_json value) {
    rt_json key = {NULL, 0};
    const char *at = NULL;
    return *value.at == '{' && !(rt_next(value, &at, &key).size && rt_length(value) == 1 && *key.at == '$');
}

/* Returns the number of arguments, which functions and `start` have. */
RT_API size_t rt_arguments(const rt_cx *cx) {
    return *cx->argument.at == '[' || rt_is_named(cx->argument) ? rt_length(cx->argument) : cx->argument.size > 0;
}

/* Returns an argument by its position or name. */
RT_API rt_json rt_argument(const rt_cx *cx, size_t position, const char *name) {
    if (*cx->argument.at == '[') return rt_item(cx->argument, position);
    if (rt_is_named(cx->argument)) return rt_member(cx->argument, name);
    return position == 0 ? cx->argument : (rt_json){NULL, 0};
}

/* Calls another routine with arguments in JSON, such as `[1,2]`. The result is valid until the next call. */
RT_API int rt_call(rt_cx *cx, const char *routine, const char *arguments, rt_json *result) {
    rt_json json, bytes, error, text;
    rt_bytes *call = &rt_host.message;
    *result = (rt_json){NULL, 0};
    if (cx->runs != RT_FUNCTION || strlen(routine) > 128 || !RT_FITS(arguments, strlen(arguments), RT_VALUE_BYTES_MAX))
        return rt_invalid(cx, "rt_call is not in a function, or its arguments are no value in JSON, or too large");
    rt_flush();
    rt_write(call, "{\"type\":\"call\",\"routine\":");
    rt_write_text(call, routine, strlen(routine));
    rt_write(call, ",\"argument\":%s}", arguments);
    rt_send(NULL, 0);
    rt_receive(&cx->answer, &json, &bytes);
    *result = rt_member(json, "value");
    if (!(error = rt_member(json, "error")).size) return 0;
    text = rt_member(error, "kind");
    snprintf(cx->called_kind, sizeof cx->called_kind, "%.*s", (int)text.size - 2, text.at + 1);
    rt_to_text(rt_member(error, "message"), call);
    rt_fail(cx, "%s", call->data);
    call->size = 0;
    return -1;
}

/* Sends a state from which the call can continue, if it is due. Unless it returns 0, the call must return this. */
RT_API int rt_checkpoint(rt_cx *cx, const void *state, size_t size) {
    if (cx->runs != RT_FUNCTION) return rt_invalid(cx, "rt_checkpoint is not in a function");
    if (rt_host.has_checkpoints && !rt_host.page[0]) return 0;
    rt_host.has_checkpoints = 1;
    if (size > RT_STATE_BYTES_MAX) return rt_invalid(cx, "the state of the call has more than 1 MiB");
    rt_flush();
    cx->is_stopped = rt_host.page[0] == RT_PAUSE;
    /* Before the state is sent. The host repeats a request that is cleared here. */
    if (!cx->is_stopped) rt_host.page[0] = 0;
    rt_write(&rt_host.message, "{\"type\":\"checkpoint\",\"id\":%llu}", cx->id);
    rt_send(state, size);
    return cx->is_stopped;
}

/* Searches */

/* Returns whether the search must return: it is called again, unless another node continues. */
RT_API int rt_asked(void) { return rt_host.page[0]; }

/* Adds to a number that is summed over the whole tree. */
RT_API void rt_count(rt_cx *cx, const char *name, long long number) {
    size_t i = 0;
    while (i < cx->names && strcmp(cx->counts[i].name, name)) i++;
    if (i < cx->names) cx->counts[i].number += number;
    else if (i == RT_NAMES_MAX || strlen(name) >= RT_NAME_BYTES_MAX)
        rt_invalid(cx, "rt_count was called with more than 1000 names, or one of 64 bytes");
    else {
        strcpy(cx->counts[cx->names++].name, name);
        cx->counts[i].number = number;
    }
}

/* Offers the result as a solution if its cost is less than the least known one. Returns -1 if it is no solution. */
RT_API int rt_offer(rt_cx *cx, double cost) {
    size_t size = cx->result.size;
    cx->result.size = 0;
    if (cx->runs != RT_SEARCH || !isfinite(cost) || !RT_FITS(cx->result.data, size, RT_SOLUTION_BYTES_MAX))
        return rt_invalid(cx, "rt_offer is not in a search, or has a wrong cost, or no solution in JSON up to 64 KiB");
    if (cost >= cx->bound) return 0;
    rt_write(&rt_host.message, "{\"type\":\"offer\",\"cost\":%.16e,\"solution\":%s}", cost, cx->result.data);
    rt_send(NULL, 0);
    cx->bound = cost;
    return 0;
}

/* Sends a message of the search with its new numbers. */
RT_API int rt_send_search(rt_cx *cx, const char *type, size_t part, const rt_bytes *states) {
    rt_write(&rt_host.message, "{\"type\":\"%s\",\"part\":%zu,\"counts\":{", type, part);
    for (size_t i = 0; i < cx->names; i++) {
        rt_write_text(&rt_host.message, cx->counts[i].name, strlen(cx->counts[i].name));
        rt_write(&rt_host.message, ":%lld%s", cx->counts[i].number, i + 1 < cx->names ? "," : "");
    }
    cx->names = 0;
    rt_write(&rt_host.message, "}}");
    rt_send(states->data, states->size);
    return 0;
}

/* Reads the bound of the host. While it is written, the words in the page differ. */
RT_API void rt_read_bound(rt_cx *cx) {
    const volatile uint64_t *words = (const volatile uint64_t *)(const volatile void *)(rt_host.page + 8);
    uint64_t word = words[0];
    double bound;
    while (word != words[1]) word = words[0];
    memcpy(&bound, &word, sizeof bound);
    if (bound < cx->bound) cx->bound = bound;
}

/* Searches until nothing is left, or the host has sent another message than `go`: then returns 1. */
RT_API int rt_search(const rt_routine *routine, rt_cx *cx, rt_bytes *state) {
    double since = rt_seconds();
    static rt_bytes states;
    /* Later frames replace it. */
    cx->argument = (rt_json){"", 0};
    for (;;) {
        states.size = 0;
        rt_read_bound(cx);
        int has_failed = routine->search(cx, state) || cx->has_failed, asked = rt_asked();
        if (has_failed) return rt_report(cx, NULL);
        if (!asked) return rt_send_search(cx, "result", 0, &states);
        if (asked == RT_BOUND || (asked == RT_SPLIT && rt_seconds() - since < RT_SPLIT_SECONDS)) {
            /* Before the bound is read. The host repeats a request that is cleared here. */
            rt_host.page[0] = 0;
            continue;
        }
        int has_part = asked == RT_SPLIT && routine->split(state, &states);
        size_t part = states.size;
        if (state->size > RT_STATE_BYTES_MAX || part > RT_STATE_BYTES_MAX) {
            rt_invalid(cx, "the state of the search has more than 1 MiB");
            return rt_report(cx, NULL);
        }
        rt_append(&states, state->data, state->size);
        rt_send_search(cx, has_part ? "child" : "paused", part, &states);
        rt_receive(&rt_host.frame, &rt_host.json, &rt_host.bytes);
        if (!rt_is(rt_member(rt_host.json, "type"), "go")) return 1;
        since = rt_seconds();
    }
}

/* The loop */

/* Makes a call and answers it. Returns whether it has stopped instead. */
RT_API int rt_run(const rt_routine *routine, rt_cx *cx, rt_json id, rt_json argument) {
    rt_begin(cx, routine->name, RT_FUNCTION);
    cx->id = strtoull(id.at, NULL, 10);
    cx->argument = argument;
    int failed = routine->call(cx) || cx->has_failed;
    fflush(stdout);
    if (cx->is_stopped) return 1;
    rt_bytes *result = &cx->result, *results = &rt_host.results;
    if (!failed && !RT_FITS(result->data, result->size, RT_VALUE_BYTES_MAX))
        failed = rt_invalid(cx, "the result is no value in JSON, or too large");
    if (failed) return rt_report(cx, &cx->id);
    if (results->size + result->size > RT_FLUSH_BYTES) rt_flush();
    rt_write(results, "%s[%llu,%s]", results->size ? "," : "", cx->id, result->data);
    if (rt_seconds() - rt_host.flushed > RT_FLUSH_SECONDS) rt_flush();
    return 0;
}

RT_API void rt_say(const char *json) {
    rt_write(&rt_host.message, "%s", json);
    rt_send(NULL, 0);
}

/* Finds the routine with the name behind the colon of the entry; NULL after a report that there is none. */
RT_API const rt_routine *rt_load(const rt_routine *all, rt_cx *cx) {
    int is_search = rt_is(rt_member(rt_host.json, "kind"), "search");
    rt_begin(cx, "load", RT_LOAD);
    rt_to_text(rt_member(rt_host.json, "entry"), &cx->result);
    const char *name = cx->result.size ? strchr(cx->result.data, ':') : NULL;
    for (; name && all->name; all++)
        if (!strcmp(all->name, name + 1) && (is_search ? all->start && all->search && all->split : all->call != NULL)) {
            rt_say("{\"type\":\"ready\"}");
            return all;
        }
    rt_fail(cx, "%s is no %s of this program", name ? name + 1 : "the entry", is_search ? "whole search" : "function");
    rt_report(cx, NULL);
    return NULL;
}

RT_API FILE *rt_open(const char *name, const char *mode) {
    const char *path = getenv(name);
    FILE *file = path ? fopen(path, mode) : NULL;
    if (!file || fcntl(fileno(file), F_SETFD, FD_CLOEXEC)) rt_exit("only a host starts this program");
    unsetenv(name);
    return file;
}

/* Runs the routines of a table until the host exits. */
RT_API int rt_main(const rt_routine *all) {
    static rt_cx cx;
    const rt_routine *routine = NULL;
    rt_bytes state = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    rt_host.in = rt_open("ROUTINES_IN", "r");
    rt_host.out = rt_open("ROUTINES_OUT", "w");
    rt_host.page = mmap(NULL, 24, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(rt_open("ROUTINES_PAGE", "r+")), 0);
    if (rt_host.page == MAP_FAILED) rt_exit("the page cannot be mapped");
    for (int is_received = 0;;) {
        if (!is_received) rt_receive(&rt_host.frame, &rt_host.json, &rt_host.bytes);
        is_received = 0;
        rt_json message = rt_host.json, type = rt_member(message, "type");
        if (rt_is(type, "hello")) {
            double version = 0;
            for (size_t i = 0; version != RT_VERSION; i++)
                if (rt_to_number(rt_item(rt_member(message, "versions"), i), &version)) rt_exit("no version 1");
            rt_say("{\"type\":\"ready\",\"version\":1,\"language\":\"c\"}");
        } else if (rt_is(type, "load")) {
            routine = rt_load(all, &cx);
        } else if (routine && (rt_is(type, "call") || rt_is(type, "many"))) {
            rt_json calls = rt_member(message, "calls"), call;
            const char *at = NULL;
            int has_stopped = 0;
            cx.restored.size = 0;
            rt_append(&cx.restored, rt_host.bytes.at, rt_host.bytes.size);
            if (rt_is(type, "call"))
                has_stopped = rt_run(routine, &cx, rt_member(message, "id"), rt_member(message, "argument"));
            while (!has_stopped && (call = rt_next(calls, &at, NULL)).size)
                has_stopped = rt_run(routine, &cx, rt_item(call, 0), rt_item(call, 1));
            rt_flush();
            if (has_stopped) rt_say("{\"type\":\"stopped\"}");
        } else if (routine && rt_is(type, "search")) {
            rt_begin(&cx, routine->name, RT_SEARCH);
            cx.argument = rt_member(message, "argument");
            state.size = 0;
            rt_append(&state, rt_host.bytes.at, rt_host.bytes.size);
            /* A state may be empty: only a search from its beginning has an argument. */
            if (cx.argument.size && routine->start(&cx, &state)) rt_report(&cx, NULL);
            else is_received = rt_search(routine, &cx, &state);
        } else {
            rt_exit("the host has sent an unknown message");
        }
    }
    return 0;
}

#endif
