/* The routines that `routines conform` calls, as in conform.py. */
#include "routines.h"

static int echo(rt_cx *cx) {
    rt_json value = rt_argument(cx, 0, "value");
    rt_append(&cx->result, value.at, value.size);
    return 0;
}

static int doubled(rt_cx *cx) {
    rt_bytes numbers = {0};
    rt_json shape;
    if (rt_to_array(rt_argument(cx, 0, "values"), "f64", &numbers, &shape)) return rt_fail(cx, "values must be an array");
    size_t count = numbers.size / sizeof(double);
    for (size_t i = 0; i < count; i++) ((double *)(void *)numbers.data)[i] *= 2;
    rt_write_array(&cx->result, "f64", &count, 1, numbers.data);
    free(numbers.data);
    return 0;
}

static int pair(rt_cx *cx) {
    double first, second = 2;
    rt_json other = rt_argument(cx, 1, "second");
    if (rt_arguments(cx) > 2 || rt_to_number(rt_argument(cx, 0, "first"), &first) || (other.size && rt_to_number(other, &second)))
        return rt_fail(cx, "pair has one or two numbers");
    rt_write(&cx->result, "[%g,%g]", first, second);
    return 0;
}

static int fails(rt_cx *cx) {
    double number;
    if (rt_to_number(rt_argument(cx, 0, "number"), &number)) return rt_fail(cx, "number must be a number");
    if (number < 0) return rt_fail(cx, "the number %g", number);
    rt_write_number(&cx->result, number);
    return 0;
}

static int invalid(rt_cx *cx) {
    rt_write(&cx->result, "an object");
    return 0;
}

static int large(rt_cx *cx) {
    double size;
    if (rt_to_number(rt_argument(cx, 0, "size"), &size)) return -1;
    rt_reserve(&cx->result, (size_t)size + 2);
    rt_write(&cx->result, "\"");
    memset(cx->result.data + 1, 'x', (size_t)size);
    cx->result.size += (size_t)size;
    rt_write(&cx->result, "\"");
    return 0;
}

static int prints(rt_cx *cx) {
    double size;
    if (rt_to_number(rt_argument(cx, 0, "size"), &size)) return -1;
    for (size_t i = 0; i < (size_t)size / 19; i++) printf("to standard output ");
    fprintf(stderr, "to standard error\n");
    rt_write(&cx->result, "%zu", (size_t)size);
    return 0;
}

static int process(rt_cx *cx) {
    rt_write(&cx->result, "%ld", (long)getpid());
    return 0;
}

static int calls(rt_cx *cx) {
    rt_json answer;
    rt_bytes routine = {0}, arguments = {0};
    rt_json argument = rt_argument(cx, 1, "argument");
    if (rt_to_text(rt_argument(cx, 0, "routine"), &routine)) return rt_fail(cx, "routine must be a text");
    rt_write(&arguments, "[%.*s]", (int)argument.size, argument.at);
    int failed = rt_call(cx, routine.data, arguments.data, &answer);
    free(routine.data);
    free(arguments.data);
    if (!failed) rt_append(&cx->result, answer.at, answer.size);
    return failed;
}

static int caught(rt_cx *cx) {
    if (calls(cx)) rt_write(&cx->result, "[\"%s\",%s]", cx->called_kind, *cx->message ? "true" : "false");
    return 0;
}

static void pause_for(long nanoseconds) { nanosleep(&(struct timespec){0, nanoseconds}, NULL); }

/* The state of a sum, and of the search below. */
struct sum { long long number, total, restarts; };

static int adds(rt_cx *cx) {
    double last, hold = -1, bytes = 0;
    if (rt_to_number(rt_argument(cx, 0, "last"), &last)) return rt_fail(cx, "last must be a number");
    rt_to_number(rt_argument(cx, 1, "hold"), &hold);
    rt_to_number(rt_argument(cx, 2, "size"), &bytes);
    struct sum sum = {0, 0, -1};
    if (cx->restored.size == sizeof sum + (size_t)bytes) memcpy(&sum, cx->restored.data, sizeof sum);
    rt_bytes state = {0};
    int stopped = 0;
    for (sum.restarts++; (double)sum.number < last;) {
        state.size = 0;
        rt_append(&state, &sum, sizeof sum);
        rt_reserve(&state, (size_t)bytes);
        memset(state.data + state.size, 'x', (size_t)bytes);
        if ((stopped = rt_checkpoint(cx, state.data, state.size + (size_t)bytes))) break;
        if ((double)sum.number == hold && !sum.restarts) pause_for(100000);
        else sum.total += sum.number++;
    }
    free(state.data);
    if (!stopped) rt_write(&cx->result, "[%lld,%lld]", sum.total, sum.restarts);
    return stopped;
}

struct count { double left, hold, cost; };

static int count_start(rt_cx *cx, rt_bytes *state) {
    struct count count = {0, 0, NAN};
    if (rt_to_number(rt_argument(cx, 0, "left"), &count.left)) return rt_fail(cx, "left must be a number");
    rt_to_number(rt_argument(cx, 1, "hold"), &count.hold);
    rt_to_number(rt_argument(cx, 2, "cost"), &count.cost);
    rt_append(state, &count, sizeof count);
    return 0;
}

static int count_search(rt_cx *cx, rt_bytes *state) {
    struct count *count = (struct count *)(void *)state->data;
    if (!state->size) return 0;
    for (; count->left > 0; count->left--) {
        if (count->left == count->hold) {
            count->hold = 0;
            pause_for(10000000);
            while (!rt_asked()) pause_for(100000);
        }
        if (rt_asked()) return 0;
        rt_count(cx, "states", 1);
        if (isfinite(cx->bound)) rt_count(cx, "bound", (long long)cx->bound);
    }
    if (count->hold < 0) {
        while (!rt_asked()) pause_for(100000);
        state->size = 0;
        return 0;
    }
    if (!isnan(count->cost)) {
        rt_write(&cx->result, "{\"cost\":%g}", count->cost);
        if (rt_offer(cx, count->cost)) return -1;
        count->cost = NAN;
    }
    return 0;
}

static int count_split(rt_bytes *state, rt_bytes *part) {
    struct count *count = (struct count *)(void *)state->data, give = *count;
    if (count->left < 2) return 0;
    give.left = (double)((long long)count->left / 2);
    count->left -= give.left;
    rt_append(part, &give, sizeof give);
    return 1;
}

int main(void) {
    static const rt_routine routines[] = {
        {.name = "echo", .call = echo}, {.name = "pair", .call = pair}, {.name = "fails", .call = fails},
        {.name = "invalid", .call = invalid}, {.name = "large", .call = large}, {.name = "prints", .call = prints},
        {.name = "process", .call = process}, {.name = "calls", .call = calls}, {.name = "caught", .call = caught},
        {.name = "adds", .call = adds}, {.name = "doubled", .call = doubled},
        {.name = "Count", .start = count_start, .search = count_search, .split = count_split}, {.name = NULL},
    };
    return rt_main(routines);
}
