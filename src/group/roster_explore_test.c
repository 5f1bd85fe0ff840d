/* The view machine, explored: every order in which three workers, a newcomer and two crashes can
 * meet is gone through, whatever is under way between any two steps. One of the crashes may be the
 * driver's, which comes back and knows of the view that it made last, or of none; it may also be
 * too impatient for any that is late. The roster is the real one; the nodes are models of what
 * group.c, listener.c and exchange.c do in one lane of N exchanges.
 *
 * What must hold in every state:
 *   whoever is out never comes in again, and views have one number each
 *   no two who are in have completed different things as exchange n
 *   nobody adopts a result from who does not hold it, or is two behind
 *   where nothing can happen any more, all who are in have completed all N */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "group/roster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Workers 0 to 2 are there from the beginning, 3 comes. */
enum { NODES = 4, NEWCOMER = 3, N = 2, POST_MAX = 8 };

enum letter_kind { VIEW = 1, GO, ASK, RELEASE, GONE };
enum word_kind { SAY_HELLO = 1, SAY_LANE, SAY_SPONSORED, SAY_SETTLED, SAY_DOWN, SAY_RETURN };

/* Between the driver and one node, in order; `a` to `c` as the kind has it. */
struct letter {
    uint8_t kind, view, a, b, c;
};

struct post {
    uint8_t count;
    struct letter at[POST_MAX];
};

struct peer {
    uint8_t alive, hello;
    uint8_t view, members;    /* as it knows them; a set */
    uint8_t completed, fresh; /* of the lane; fresh: it does not hold the result */
    uint8_t reported, synced; /* in which view */
    uint8_t gave;             /* to exchange completed + 1, in view `synced` */
    uint8_t go, holder;       /* what it is to adopt from whom, in view `reported`; go 0: nothing */
    uint8_t ward, waits;      /* + 1: asked to sponsor; has said so */
    uint8_t state, begins;    /* newcomer: 1 under way, 2 here; behind which exchange */
    uint8_t sponsor;          /* whose it is */
    uint8_t returned;         /* to the driver that has come back */
    uint8_t value[N + 1], of[N + 1]; /* what exchange n was: who contributed, in which view */
};

/* Of the roster, what can change here: time stands still. */
struct book {
    uint8_t number, in_view, known, in, waits, settles;
    uint8_t sponsor[NODES]; /* + 1 */
    uint8_t decided, said, fresh;
    uint8_t at[NODES];
    uint8_t second, reforming, back; /* the driver has come back; it collects; who is there again */
    uint8_t last, last_in, highest;  /* the newest view that was */
};

struct state {
    struct book book;
    struct peer peer[NODES];
    struct post to[NODES], from[NODES];
    uint8_t crashes, out; /* who has ever been put out */
};

static struct roster roster;
static struct roster_orders orders;

static const struct roster_options options = {
    .workers = 3, .workers_max = 4, .incarnation = 1, .silence_max = 1000, .stall_max = 1000};

/* What may happen in a world. */
struct world {
    int crashes;    /* of nodes */
    bool newcomer;  /* comes */
    bool driver;    /* dies, once, and comes back */
    bool forgetful; /* and knows of no view */
};

static struct world world;

/* ---- the roster, in a few bytes ---- */

static void unpack(const struct book *b)
{
    roster.options = options;
    roster.options.incarnation = 1u + b->second;
    roster.options.reforms = b->second;
    roster.reforming = (struct reforming){
        .on = b->reforming,
        .until = 1,
        .view = b->last,
        .incarnation = b->last ? 1 : 0,
        .who.word[0] = b->last_in,
        .highest = b->highest,
    };
    roster.view.number = b->number;
    roster.view.count = 0;
    roster.count = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        if (b->in_view >> i & 1)
            roster.view.node[roster.view.count++] = i;
        if (b->known >> i & 1)
            roster.member[roster.count++] = (struct roster_member){
                .node = i,
                .in = b->in >> i & 1,
                .waits = b->waits >> i & 1,
                .settles = b->settles >> i & 1,
                .back = b->back >> i & 1,
                .sponsor = b->sponsor[i] ? b->sponsor[i] - 1u : ROSTER_NOBODY,
            };
    }
    struct roster_lane *lane = &roster.lane[0];
    lane->decided = b->decided;
    lane->in.word[0] = b->said;
    lane->fresh.word[0] = b->fresh;
    for (size_t i = 0; i < NODES; i++)
        lane->at[i] = b->at[i];
}

static void pack(struct book *b)
{
    const struct roster_lane *lane = &roster.lane[0];
    const struct reforming *r = &roster.reforming;
    *b = (struct book){.number = (uint8_t)roster.view.number, .second = roster.options.reforms};
    if (b->second && b->number == 0) { /* afterwards nobody asks */
        b->reforming = r->on;
        b->last = (uint8_t)r->view;
        b->last_in = (uint8_t)r->who.word[0];
        b->highest = (uint8_t)r->highest;
    }
    for (size_t i = 0; i < roster.view.count; i++)
        b->in_view |= (uint8_t)(1u << roster.view.node[i]);
    for (size_t i = 0; i < roster.count; i++) {
        const struct roster_member *m = &roster.member[i];
        b->known |= (uint8_t)(1u << m->node);
        b->in |= (uint8_t)((unsigned)m->in << m->node);
        b->waits |= (uint8_t)((unsigned)m->waits << m->node);
        b->settles |= (uint8_t)((unsigned)m->settles << m->node);
        b->back |= (uint8_t)((unsigned)m->back << m->node);
        b->sponsor[m->node] = m->sponsor == ROSTER_NOBODY ? 0 : (uint8_t)(m->sponsor + 1);
    }
    b->decided = lane->decided;
    b->said = (uint8_t)lane->in.word[0];
    b->fresh = (uint8_t)lane->fresh.word[0];
    for (size_t i = 0; i < NODES; i++)
        b->at[i] = (uint8_t)lane->at[i];
}

/* ---- messages ---- */

static void put(struct post *post, struct letter letter)
{
    assert_true(post->count < POST_MAX);
    post->at[post->count++] = letter;
}

static struct letter take(struct post *post)
{
    struct letter first = post->at[0];
    post->count--;
    memmove(post->at, post->at + 1, post->count * sizeof *post->at);
    post->at[post->count] = (struct letter){0};
    return first;
}

static bool has(unsigned set, uint32_t node)
{
    return set >> node & 1;
}

/* ---- the driver ---- */

static void carry_out(struct state *s)
{
    for (size_t i = 0; i < orders.count; i++) {
        const struct roster_order *o = &orders.at[i];
        uint8_t set = 0;
        switch (o->kind) {
        case ORDER_MEMBER:
            if (strcmp(o->what, "join") == 0 || strcmp(o->what, "back") == 0)
                assert_true(!has(s->out, o->node) ||
                            world.forgetful); /* of a view that none has seen */
            else
                s->out |= (uint8_t)(1u << o->node);
            break;
        case ORDER_VIEW:
            for (size_t k = 0; k < roster.view.count; k++)
                set |= (uint8_t)(1u << roster.view.node[k]);
            for (uint32_t k = 0; k < NODES; k++)
                if (has(set, k))
                    put(&s->to[k], (struct letter){VIEW, (uint8_t)roster.view.number, set, 0, 0});
            break;
        case ORDER_LANE_GO:
            for (uint32_t k = 0; k < NODES; k++)
                if (view_rank(&roster.view, k) >= 0)
                    put(&s->to[k],
                        (struct letter){GO, (uint8_t)o->go.view, (uint8_t)o->go.completed,
                                        (uint8_t)o->go.holder, members_has(&o->go.lacking, k)});
            break;
        case ORDER_DROP: put(&s->to[o->node], (struct letter){.kind = GONE}); break;
        case ORDER_SPONSOR:
            put(&s->to[o->node], (struct letter){ASK, 0, (uint8_t)(o->other + 1), 0, 0});
            break;
        case ORDER_PART: fail(); break; /* nobody says how many there are to be */
        case ORDER_RELEASE:
            put(&s->to[o->node], (struct letter){RELEASE, 0, (uint8_t)(o->other + 1), 0, 0});
            break;
        case ORDER_AFRESH: /* it will be another */
            s->out |= (uint8_t)(1u << o->node);
            put(&s->to[o->node], (struct letter){.kind = GONE});
            break;
        case ORDER_WANT: break;
        }
    }
}

static void driver_hears(struct state *s, uint32_t node)
{
    static const enum roster_event_kind kinds[] = {
        [SAY_HELLO] = ROSTER_JOIN,          [SAY_LANE] = ROSTER_LANE_AT,
        [SAY_SPONSORED] = ROSTER_SPONSORED, [SAY_SETTLED] = ROSTER_SETTLED,
        [SAY_DOWN] = ROSTER_PEER_DOWN,      [SAY_RETURN] = ROSTER_RETURN};
    struct letter word = take(&s->from[node]);
    const struct members who = {{word.a}};
    const struct roster_event event = {
        .kind = kinds[word.kind],
        .node = node,
        .address = "",
        .other = word.a - 1u,
        .view = word.view,
        .completed = word.b,
        .fresh = word.c,
        .incarnation = 1,
        .who = &who,
    };
    uint8_t before = s->book.number;
    unpack(&s->book);
    roster_step(&roster, &event, &orders);
    pack(&s->book);
    assert_true(s->book.number == before || s->book.number > before);
    carry_out(s);
}

/* Its connections break: what was on its way is lost, and so is who is not in, or is in and has not
 * all that its sponsor had for it. Who waited for another to come in does not any more. */
static bool driver_dies(struct state *s, uint32_t node)
{
    struct book *b = &s->book;
    if (node > 0 || b->second || !world.driver || b->number == 0)
        return false;
    *b = (struct book){.second = 1,
                       .reforming = !world.forgetful,
                       .last = world.forgetful ? 0 : b->number,
                       .last_in = world.forgetful ? 0 : b->in_view,
                       .highest = world.forgetful ? 0 : b->number};
    for (uint32_t i = 0; i < NODES; i++) {
        struct peer *p = &s->peer[i];
        s->to[i] = s->from[i] = (struct post){0};
        p->waits = p->ward = 0;
        if (p->view == 0 || (i == NEWCOMER && p->state != 2))
            p->alive = 0;
    }
    return true;
}

static bool come_back(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!s->book.second || !p->alive || p->returned)
        return false;
    p->returned = 1;
    put(&s->from[node], (struct letter){SAY_RETURN, p->view, p->members, 0, 0});
    return true;
}

/* The driver has waited long enough for the others, however near they are. */
static bool driver_goes_on(struct state *s, uint32_t node)
{
    if (node > 0 || !s->book.reforming || s->book.back == 0)
        return false;
    unpack(&s->book);
    roster_step(&roster,
                &(struct roster_event){.kind = ROSTER_TICK, .node = ROSTER_NOBODY, .now = 2},
                &orders);
    pack(&s->book);
    carry_out(s);
    return true;
}

/* ---- a node ---- */

static void node_hears(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    struct letter letter = take(&s->to[node]);
    switch (letter.kind) {
    case VIEW:
        p->view = letter.view;
        p->members = letter.a;
        p->gave = p->go = 0;
        if (p->waits && has(p->members, p->waits - 1u)) {
            struct peer *ward = &s->peer[p->waits - 1];
            ward->state = 1; /* under way as long as this one lives */
            ward->begins = p->completed;
            ward->sponsor = (uint8_t)node;
            p->waits = p->ward = 0;
        }
        break;
    case GO:
        if (letter.view != p->view)
            break;
        p->synced = p->view;
        if (letter.c) {
            p->synced = 0;
            p->go = (uint8_t)(letter.a + 1);
            p->holder = letter.b;
        }
        break;
    case ASK: p->ward = letter.a; break;
    case RELEASE:
        if (p->waits == letter.a)
            p->waits = 0;
        if (p->ward == letter.a)
            p->ward = 0;
        break;
    case GONE:
        p->alive = 0;
        s->to[node] = (struct post){0};
        break;
    }
}

static bool is_ready(const struct peer *p)
{
    return p->alive && p->view > 0 && !p->waits && p->hello;
}

/* What a node can do by itself: each returns whether it can, and does it. */

static bool say_hello(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!p->alive || p->hello)
        return false;
    p->hello = 1;
    put(&s->from[node], (struct letter){.kind = SAY_HELLO});
    return true;
}

static bool report(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!is_ready(p) || p->reported == p->view || p->synced == p->view ||
        (node == NEWCOMER && p->state != 2))
        return false;
    p->reported = p->view;
    put(&s->from[node], (struct letter){SAY_LANE, p->view, 0, p->completed, p->fresh});
    return true;
}

/* From the holder, as long as it lives and stands in the same view. */
static bool adopt(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    const struct peer *h = &s->peer[p->holder];
    if (!is_ready(p) || !p->go || !h->alive || h->view != p->view || h->synced != h->view)
        return false;
    uint8_t n = (uint8_t)(p->go - 1);
    assert_true(h->completed >= n && !(h->fresh && h->completed == n));
    if (n != p->completed) {
        assert_int_equal(n, p->completed + 1);
        p->value[n] = h->value[n];
        p->of[n] = h->of[n];
    }
    p->completed = n;
    p->fresh = p->go = 0;
    p->synced = p->view;
    return true;
}

static bool contribute(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!is_ready(p) || p->synced != p->view || p->gave || p->completed == N)
        return false;
    p->gave = 1;
    return true;
}

/* When all of the view have contributed to it, or gone on. */
static bool complete(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    uint8_t n = (uint8_t)(p->completed + 1), value = 0;
    if (!is_ready(p) || !p->gave)
        return false;
    for (uint32_t i = 0; i < NODES; i++) {
        const struct peer *q = &s->peer[i];
        if (!has(p->members, i))
            continue;
        bool behind = q->completed >= n && q->of[n] == p->view;
        bool gave = q->view == p->view && q->gave && q->completed + 1 == n;
        if (!gave && !behind)
            return false;
        if (behind) /* it knows what was put in */
            value |= q->value[n];
        else if (!q->fresh)
            value |= (uint8_t)(1u << i);
    }
    p->value[n] = value;
    p->of[n] = p->view;
    p->completed = n;
    p->gave = p->fresh = 0;
    return true;
}

static bool sponsor(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!is_ready(p) || !p->ward || p->gave || p->go || p->completed == 0 || p->completed == N ||
        p->synced == 0 || p->fresh)
        return false;
    p->waits = p->ward;
    put(&s->from[node], (struct letter){SAY_SPONSORED, 0, p->ward, 0, 0});
    return true;
}

static bool settle(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!p->alive || p->state != 1 || p->view == 0 || !s->peer[p->sponsor].alive)
        return false;
    p->state = 2;
    p->fresh = 1;
    p->completed = p->begins;
    memcpy(p->value, s->peer[p->sponsor].value, sizeof p->value);
    memcpy(p->of, s->peer[p->sponsor].of, sizeof p->of);
    for (uint8_t n = (uint8_t)(p->begins + 1); n <= N; n++)
        p->value[n] = p->of[n] = 0;
    put(&s->from[node], (struct letter){.kind = SAY_SETTLED});
    return true;
}

/* What it has said is heard, then its end; what was on its way to it is lost. */
static bool crash(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!p->alive || s->crashes == world.crashes || s->book.number == 0)
        return false;
    p->alive = 0;
    s->crashes++;
    s->to[node] = (struct post){0};
    put(&s->from[node], (struct letter){.kind = SAY_DOWN});
    return true;
}

static bool driver_turn(struct state *s, uint32_t node)
{
    if (s->from[node].count == 0)
        return false;
    driver_hears(s, node);
    return true;
}

static bool node_turn(struct state *s, uint32_t node)
{
    if (s->to[node].count == 0)
        return false;
    if (!s->peer[node].alive)
        s->to[node] = (struct post){0};
    else
        node_hears(s, node);
    return true;
}

/* What only gives a node more to choose from is heard at once: it may still act on it when it
 * likes. */
static bool hear_at_once(struct state *s, uint32_t node)
{
    uint8_t kind = s->to[node].at[0].kind;
    bool idle = kind == GO || kind == ASK || kind == RELEASE || !s->peer[node].alive;
    return idle && node_turn(s, node);
}

/* Steps that take nothing from what others can do are not put off, but by crashes; so fewer states
 * that differ in nothing but the order of such are gone through. Crashes are last: whatever else
 * can happen is no end. */
static bool (*const steps[])(struct state *, uint32_t) = {
    hear_at_once, report,   adopt,   settle,    driver_turn,    node_turn, say_hello,
    contribute,   complete, sponsor, come_back, driver_goes_on, crash,     driver_dies};

enum { STEPS = sizeof steps / sizeof *steps, AT_ONCE = 4 };

/* ---- all of it ---- */

enum { TABLE = 1 << 24 };

static uint64_t *seen;
static struct state *stack;
static size_t depth, room, states, ends, joined, returns;

static bool is_new(const struct state *s)
{
    uint64_t hash = hash_bytes(s, sizeof *s) | 1;
    for (size_t i = hash % TABLE;; i = (i + 1) % TABLE) {
        if (seen[i] == hash)
            return false;
        if (seen[i] == 0) {
            seen[i] = hash;
            assert_true(++states < TABLE / 2);
            return true;
        }
    }
}

static void check(const struct state *s)
{
    for (uint32_t i = 0; i < NODES; i++)
        for (uint32_t k = 0; k < i; k++)
            for (uint8_t n = 1; n <= N; n++) {
                const struct peer *a = &s->peer[i], *b = &s->peer[k];
                bool both = has(s->book.in, i) && has(s->book.in, k) && a->alive && b->alive;
                if (both && a->completed >= n && b->completed >= n && a->value[n] && b->value[n])
                    assert_int_equal(a->value[n], b->value[n]);
            }
}

/* Nothing can happen but another crash. */
static void check_end(const struct state *s)
{
    ends++;
    joined += has(s->book.in, NEWCOMER);
    returns += s->book.second && s->book.number > 0;
    for (uint32_t i = 0; i < NODES; i++)
        if (has(s->book.in, i) && s->peer[i].alive)
            assert_int_equal(s->peer[i].completed, N);
    /* Who waits for a sponsor has one that is there. */
    if (has(s->book.waits, NEWCOMER) && s->book.sponsor[NEWCOMER])
        assert_true(has(s->book.in, s->book.sponsor[NEWCOMER] - 1u));
}

static void push(const struct state *s)
{
    if (depth == room) {
        room = room ? 2 * room : 1 << 16;
        stack = realloc(stack, room * sizeof *stack);
        assert_non_null(stack);
    }
    stack[depth++] = *s;
}

static void explore(const struct state *from)
{
    push(from);
    (void)is_new(from);
    while (depth > 0) {
        struct state s = stack[--depth];
        bool moved = false;
        check(&s);
        for (int k = 0; k < STEPS; k = moved && k < AT_ONCE ? STEPS - 2 : k + 1)
            for (uint32_t node = 0; node < NODES; node++) {
                struct state next = s;
                if (!steps[k](&next, node))
                    continue;
                moved |= k < STEPS - 2;
                if (is_new(&next))
                    push(&next);
                if (k < AT_ONCE)
                    break;
            }
        if (!moved)
            check_end(&s);
    }
}

static void go_through_all(const struct world *all)
{
    struct state s;
    memset(&s, 0, sizeof s);
    world = *all;
    depth = room = states = ends = joined = returns = 0;
    stack = NULL;
    seen = calloc(TABLE, sizeof *seen);
    assert_non_null(seen);
    for (uint32_t i = 0; i < NODES; i++)
        s.peer[i].alive = i != NEWCOMER || all->newcomer;
    roster_init(&roster, &options);
    for (uint32_t i = 0; i < NEWCOMER; i++) { /* the group forms */
        assert_true(say_hello(&s, i));
        driver_hears(&s, i);
        s.peer[i].synced = s.peer[i].reported = 1; /* as exchange_init has it */
    }
    explore(&s);
    print_message("    %zu states, %zu ends, the newcomer in at %zu of them, the driver back at "
                  "%zu\n",
                  states, ends, joined, returns);
    assert_true(states > 10000 && (joined > 0) == all->newcomer && (returns > 0) == all->driver);
    free(seen);
    free(stack);
}

static void every_meeting_of_a_newcomer_and_two_crashes_ends_well(void **state)
{
    (void)state;
    go_through_all(&(struct world){.crashes = 2, .newcomer = true});
}

static void a_driver_dies_and_so_does_a_worker(void **state)
{
    (void)state;
    go_through_all(&(struct world){.crashes = 1, .driver = true});
}

static void a_driver_dies_while_one_comes(void **state)
{
    (void)state;
    go_through_all(&(struct world){.newcomer = true, .driver = true});
}

static void and_remembers_nothing(void **state)
{
    (void)state;
    go_through_all(&(struct world){.newcomer = true, .driver = true, .forgetful = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_meeting_of_a_newcomer_and_two_crashes_ends_well),
        cmocka_unit_test(a_driver_dies_and_so_does_a_worker),
        cmocka_unit_test(a_driver_dies_while_one_comes),
        cmocka_unit_test(and_remembers_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
