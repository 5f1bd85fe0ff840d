/* Explores the roster: every order of the events of three workers, a joiner and two crashes, with
 * any messages under way between any two steps. One of the crashes may be the driver's, which
 * returns and knows its last view, or none; it may also be too impatient for any late worker. The
 * roster is the real one; the nodes are models of what group.c, listener.c and exchange.c do in one
 * lane of N exchanges. In some worlds a node does not reply to a check of the links, becomes a
 * leaf, and participates again.
 *
 * Invariants of every state: a node that has left never returns, and each number belongs to one
 * view
 *   no two who are in have completed different things as exchange n, but for leaves and former ones
 *   that have not adopted the others' result yet
 *   some member of a view participates, and some member is an elder; a node sees no elder that was
 *     none, unless all of those before have gone
 *   no leaf receives a result that is older than its own
 *   nobody adopts a result from who does not hold it, or is two behind
 *   where nothing can happen any more, all who are in have completed all N: participants do so
 *     while leaves are leaves */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "group/roster_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOINER = 3, N = 2, POST_MAX = 8 };

enum letter_kind { VIEW = 1, GO, ASK, RELEASE, ENDED };
enum word_kind {
    MSG_HELLO = 1,
    MSG_LANE,
    MSG_DONOR_READY,
    MSG_JOIN_COMPLETE,
    MSG_DOWN,
    MSG_RETURN
};

/* Between the driver and one node, in order; `a` to `c` as the kind has it. */
struct pending_message {
    uint8_t kind, view;
    uint8_t a, b, c; /* VIEW: members, leaves, elders; RETURN: participants, 0, elders */
};

struct post {
    uint8_t count;
    struct pending_message at[POST_MAX];
};

struct peer {
    uint8_t alive, hello;
    uint8_t view, members;     /* as it knows them; a set */
    uint8_t leaves, elders;    /* of these */
    uint8_t was_leaf;          /* it was one, and has adopted nothing since */
    uint8_t completed, joined; /* of the lane; fresh: it does not hold the result */
    uint8_t reported, synced;  /* in which view */
    uint8_t gave;              /* to exchange completed + 1, in view `synced` */
    uint8_t go, holder;    /* the result to adopt and its holder, in view `reported`; go 0: none */
    uint8_t joiner, waits; /* + 1: asked to admit; has replied */
    uint8_t state, begins; /* joiner: 1 under way, 2 here; its first exchange */
    uint8_t donor;         /* whose it is */
    uint8_t returned;      /* to the driver that has returned */
    uint8_t value[N + 1], of[N + 1]; /* exchange n: its contributors and its view */
};

struct state {
    struct roster_state roster;
    struct peer peer[NODES];
    struct post to[NODES], from[NODES];
    uint8_t crashes, leaves; /* so far */
    uint8_t out;             /* workers that were ever removed */
};

static struct roster roster;
static struct roster_orders orders;

static struct roster_options options = {
    .workers_max = 4, .incarnation = 1, .silence_max = 1000, .stall_max = 1000};

/* The faults that a world allows. */
struct world {
    uint32_t workers; /* to begin with; 0: 3 */
    int crashes;      /* of nodes */
    int leaves;       /* that the driver makes */
    bool joiner;      /* comes */
    bool driver;      /* dies, once, and returns */
    bool forgetful;   /* and knows of no view */
};

static struct world world;

/* ---- messages ---- */

static void put_message(struct post *post, struct pending_message letter)
{
    assert_true(post->count < POST_MAX);
    post->at[post->count++] = letter;
}

static struct pending_message take_message(struct post *post)
{
    struct pending_message first = post->at[0];
    post->count--;
    memmove(post->at, post->at + 1, post->count * sizeof *post->at);
    post->at[post->count] = (struct pending_message){0};
    return first;
}

static bool set_has(unsigned set, uint32_t node)
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
            if (strcmp(o->what, "leaf") == 0 || strcmp(o->what, "participates") == 0)
                break;
            if (strcmp(o->what, "join") == 0 || strcmp(o->what, "back") == 0)
                assert_true(!set_has(s->out, o->node) ||
                            world.forgetful); /* of a view that none has seen */
            else
                s->out |= (uint8_t)(1u << o->node);
            break;
        case ORDER_VIEW:
            for (size_t k = 0; k < roster.view.count; k++)
                set |= (uint8_t)(1u << roster.view.node[k]);
            assert_true(set == 0 || set & ~roster.view.leaves.word[0]);
            for (uint32_t k = 0; k < NODES; k++)
                if (set_has(set, k))
                    put_message(&s->to[k],
                                (struct pending_message){VIEW, (uint8_t)roster.view.number, set,
                                                         (uint8_t)roster.view.leaves.word[0],
                                                         (uint8_t)roster.view.elders.word[0]});
            break;
        case ORDER_LANE_GO:
            for (uint32_t k = 0; k < NODES; k++)
                if (view_rank(&roster.view, k) >= 0 && !members_has(&roster.view.leaves, k))
                    put_message(&s->to[k],
                                (struct pending_message){
                                    GO, (uint8_t)o->go.view, (uint8_t)o->go.completed,
                                    (uint8_t)o->go.holder, members_has(&o->go.lacking, k)});
            break;
        case ORDER_DROP:
            put_message(&s->to[o->node], (struct pending_message){.kind = ENDED});
            break;
        case ORDER_ADMIT_JOINER:
            put_message(&s->to[o->node],
                        (struct pending_message){ASK, 0, (uint8_t)(o->other + 1), 0, 0});
            break;
        case ORDER_RELEASE_MEMBER: fail(); break; /* no requested number */
        case ORDER_CANCEL_JOIN:
            put_message(&s->to[o->node],
                        (struct pending_message){RELEASE, 0, (uint8_t)(o->other + 1), 0, 0});
            break;
        case ORDER_REJOIN: /* it will be another */
            s->out |= (uint8_t)(1u << o->node);
            put_message(&s->to[o->node], (struct pending_message){.kind = ENDED});
            break;
        case ORDER_LINK_CHECK: break; /* make_leaf replies for the nodes */
        case ORDER_WANT: break;
        }
    }
}

/* Gives the roster one event, and carries its orders out. */
static void step_driver(struct state *s, struct roster_event event)
{
    roster.options = options;
    unpack_roster(&roster, &s->roster);
    roster_step(&roster, &event, &orders);
    pack_roster(&roster, &s->roster);
    carry_out(s);
}

static void driver_receives(struct state *s, uint32_t node)
{
    static const enum roster_event_kind kinds[] = {[MSG_HELLO] = ROSTER_JOIN,
                                                   [MSG_LANE] = ROSTER_LANE_AT,
                                                   [MSG_DONOR_READY] = ROSTER_DONOR_READY,
                                                   [MSG_JOIN_COMPLETE] = ROSTER_JOIN_COMPLETE,
                                                   [MSG_DOWN] = ROSTER_PEER_DOWN,
                                                   [MSG_RETURN] = ROSTER_RECONNECT};
    struct pending_message word = take_message(&s->from[node]);
    const struct members members = {{word.a}}, elders = {{word.c}};
    const struct roster_event event = {
        .kind = kinds[word.kind],
        .node = node,
        .address = "",
        .other = word.a - 1u,
        .view = word.view,
        .completed = word.b,
        .joined = word.c >= LANE_JOINED,
        .needs_sync = word.c == LANE_WAS_LEAF,
        .was_leaf = word.c == LANE_WAS_LEAF,
        .incarnation = 1,
        .members = &members,
        .elders = &elders,
    };
    uint8_t before = s->roster.number;
    step_driver(s, event);
    assert_true(s->roster.number == before || s->roster.number > before);
}

/* Its connections break: messages under way are lost, and so are joiners that are not in, or lack a
 * part of their donor's state. Donors no longer wait for their joiners. */
static bool driver_dies(struct state *s, uint32_t node)
{
    struct roster_state *b = &s->roster;
    if (node > 0 || b->second || !world.driver || b->number == 0)
        return false;
    *b = (struct roster_state){.second = 1,
                               .reforming = !world.forgetful,
                               .last = world.forgetful ? 0 : b->number,
                               .last_in = world.forgetful ? 0 : b->in_view & ~b->view_leaves,
                               .highest = world.forgetful ? 0 : b->number};
    for (uint32_t i = 0; i < NODES; i++) {
        struct peer *p = &s->peer[i];
        s->to[i] = s->from[i] = (struct post){0};
        p->waits = p->joiner = 0;
        if (p->view == 0 || (i == JOINER && p->state != 2))
            p->alive = 0;
    }
    return true;
}

static bool reconnect_node(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!s->roster.second || !p->alive || p->returned)
        return false;
    p->returned = 1;
    put_message(&s->from[node],
                (struct pending_message){MSG_RETURN, p->view, (uint8_t)(p->members & ~p->leaves), 0,
                                         p->elders});
    return true;
}

/* The driver has waited long enough for the others, however near they are. */
static bool recover_driver(struct state *s, uint32_t node)
{
    if (node > 0 || !s->roster.reforming || s->roster.reconnected == 0)
        return false;
    step_driver(s, (struct roster_event){.kind = ROSTER_TICK, .node = ROSTER_NO_NODE, .now = 2});
    return true;
}

/* All others reply to a check of the links. */
static bool make_leaf(struct state *s, uint32_t node)
{
    struct roster_state *b = &s->roster;
    unsigned participants = b->in_view & ~b->view_leaves;
    if (s->leaves == world.leaves || !set_has(participants, node) ||
        !set_has(b->in & ~b->join_pending, node) || (participants & (participants - 1)) == 0)
        return false;
    s->leaves++;
    roster.options = options;
    unpack_roster(&roster, b);
    roster_step(&roster,
                &(struct roster_event){
                    .kind = ROSTER_LINK_CHECK, .node = ROSTER_NO_NODE, .view = b->number},
                &orders);
    for (uint32_t i = 0; i < NODES; i++)
        if (i != node)
            roster_step(&roster,
                        &(struct roster_event){
                            .kind = ROSTER_LINK_REPORT, .node = i, .check = roster.check.number},
                        &orders);
    roster_step(&roster, &(struct roster_event){.kind = ROSTER_CHECK_ENDS, .node = ROSTER_NO_NODE},
                &orders);
    pack_roster(&roster, b);
    assert_true(set_has(b->view_leaves, node));
    carry_out(s);
    return true;
}

/* It reports that it keeps pace, which it does only if it knows that it is a leaf. */
static bool end_leaf(struct state *s, uint32_t node)
{
    const struct peer *p = &s->peer[node];
    if (!set_has(s->roster.view_leaves, node) || !p->alive || !set_has(p->leaves, node))
        return false;
    step_driver(s, (struct roster_event){.kind = ROSTER_LEAF_READY, .node = node});
    return true;
}

/* ---- a node ---- */

/* Elders go, and none comes before all have gone. */
static void check_elders(const struct peer *p, const struct pending_message *view)
{
    unsigned stay = p->elders & view->a;
    assert_true(stay ? view->c == stay : view->c && (view->c & ~view->a) == 0);
}

static void node_receives(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    struct pending_message letter = take_message(&s->to[node]);
    switch (letter.kind) {
    case VIEW:
        check_elders(p, &letter);
        p->elders = letter.c;
        p->view = letter.view;
        p->members = letter.a;
        p->leaves = letter.b;
        p->was_leaf |= set_has(p->leaves, node);
        p->gave = p->go = 0;
        if (p->waits && set_has(p->members, p->waits - 1u)) {
            struct peer *joiner = &s->peer[p->waits - 1];
            joiner->state = 1; /* under way as long as this one lives */
            joiner->begins = p->completed;
            joiner->donor = (uint8_t)node;
            p->waits = p->joiner = 0;
        }
        break;
    case GO:
        if (letter.view != p->view)
            break;
        p->synced = p->view;
        if (letter.b == node)
            p->was_leaf = 0;
        if (letter.c) {
            p->synced = 0;
            p->go = (uint8_t)(letter.a + 1);
            p->holder = letter.b;
        }
        break;
    case ASK: p->joiner = letter.a; break;
    case RELEASE:
        if (p->waits == letter.a)
            p->waits = 0;
        if (p->joiner == letter.a)
            p->joiner = 0;
        break;
    case ENDED:
        p->alive = 0;
        s->to[node] = (struct post){0};
        break;
    }
}

static bool is_ready(const struct state *s, uint32_t node)
{
    const struct peer *p = &s->peer[node];
    return p->alive && p->view > 0 && !p->waits && p->hello && !set_has(p->leaves, node);
}

/* The actions of a node: each returns whether it is possible, and performs it. */

static bool send_hello(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!p->alive || p->hello)
        return false;
    p->hello = 1;
    put_message(&s->from[node], (struct pending_message){.kind = MSG_HELLO});
    return true;
}

static bool report_lane(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!is_ready(s, node) || p->reported == p->view || p->synced == p->view ||
        (node == JOINER && p->state != 2))
        return false;
    p->reported = p->view;
    put_message(&s->from[node], (struct pending_message){MSG_LANE, p->view, 0, p->completed,
                                                         p->was_leaf ? LANE_WAS_LEAF
                                                         : p->joined ? LANE_JOINED
                                                                     : LANE_HELD});
    return true;
}

/* A former leaf knows no exchange before. */
static void take_value(struct peer *p, const struct peer *h, uint8_t n)
{
    for (uint8_t k = 1; k < n && p->was_leaf; k++)
        p->value[k] = p->of[k] = 0;
    p->value[n] = h->value[n];
    p->of[n] = h->of[n];
    p->completed = n;
}

/* From the holder, as long as it lives and stands in the same view. */
static bool adopt_result(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    const struct peer *h = &s->peer[p->holder];
    if (!is_ready(s, node) || !p->go || !h->alive || h->view != p->view || h->synced != h->view)
        return false;
    uint8_t n = (uint8_t)(p->go - 1);
    assert_true(h->completed >= n && !(h->joined && h->completed == n) && !h->was_leaf);
    if (n != p->completed && !p->was_leaf)
        assert_int_equal(n, p->completed + 1);
    if (n != p->completed || p->was_leaf)
        take_value(p, h, n);
    p->joined = p->go = p->was_leaf = 0;
    p->synced = p->view;
    return true;
}

/* A leaf, from its proxy, the first participant: what that has completed in their view. */
static bool receive_as_leaf(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    uint32_t proxy = 0;
    if (!p->alive || !set_has(p->leaves, node))
        return false;
    while (!set_has(p->members & ~p->leaves, proxy))
        proxy++;
    const struct peer *h = &s->peer[proxy];
    uint8_t n = h->completed;
    if (!is_ready(s, proxy) || h->view != p->view || h->synced != h->view || n == 0 ||
        h->of[n] != h->view || (n == p->completed && p->value[n] == h->value[n]))
        return false;
    assert_true(n >= p->completed); /* E2 */
    take_value(p, h, n);
    return true;
}

static bool contribute_next(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!is_ready(s, node) || p->synced != p->view || p->gave || p->completed == N)
        return false;
    p->gave = 1;
    return true;
}

/* When all of the view have contributed to it, or continued. */
static bool complete_exchange(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    uint8_t n = (uint8_t)(p->completed + 1), value = 0;
    if (!is_ready(s, node) || !p->gave)
        return false;
    for (uint32_t i = 0; i < NODES; i++) {
        const struct peer *q = &s->peer[i];
        if (!set_has(p->members & ~p->leaves, i))
            continue;
        bool behind = q->completed >= n && q->of[n] == p->view;
        bool gave = q->view == p->view && q->gave && q->completed + 1 == n;
        if (!gave && !behind)
            return false;
        if (behind) /* it knows what was put in */
            value |= q->value[n];
        else if (!q->joined)
            value |= (uint8_t)(1u << i);
    }
    p->value[n] = value;
    p->of[n] = p->view;
    p->completed = n;
    p->gave = p->joined = 0;
    return true;
}

static bool admit_joiner(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!is_ready(s, node) || !p->joiner || p->gave || p->go || p->completed == 0 ||
        p->completed == N || p->synced == 0 || p->joined)
        return false;
    p->waits = p->joiner;
    put_message(&s->from[node], (struct pending_message){MSG_DONOR_READY, 0, p->joiner, 0, 0});
    return true;
}

static bool complete_join(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!p->alive || p->state != 1 || p->view == 0 || !s->peer[p->donor].alive)
        return false;
    p->state = 2;
    p->joined = 1;
    p->completed = p->begins;
    memcpy(p->value, s->peer[p->donor].value, sizeof p->value);
    memcpy(p->of, s->peer[p->donor].of, sizeof p->of);
    for (uint8_t n = (uint8_t)(p->begins + 1); n <= N; n++)
        p->value[n] = p->of[n] = 0;
    put_message(&s->from[node],
                (struct pending_message){.kind = MSG_JOIN_COMPLETE, .view = p->view});
    return true;
}

/* The driver receives what the node has sent, then its disconnect; messages on their way to the
 * node are lost. */
static bool crash_node(struct state *s, uint32_t node)
{
    struct peer *p = &s->peer[node];
    if (!p->alive || s->crashes == world.crashes || s->roster.number == 0)
        return false;
    p->alive = 0;
    s->crashes++;
    s->to[node] = (struct post){0};
    put_message(&s->from[node], (struct pending_message){.kind = MSG_DOWN});
    return true;
}

static bool driver_turn(struct state *s, uint32_t node)
{
    if (s->from[node].count == 0)
        return false;
    driver_receives(s, node);
    return true;
}

static bool node_turn(struct state *s, uint32_t node)
{
    if (s->to[node].count == 0)
        return false;
    if (!s->peer[node].alive)
        s->to[node] = (struct post){0};
    else
        node_receives(s, node);
    return true;
}

/* Messages that only widen a node's choices are delivered at once: the node may still act on them
 * at any later time. */
static bool deliver_at_once(struct state *s, uint32_t node)
{
    uint8_t kind = s->to[node].at[0].kind;
    bool idle = kind == GO || kind == ASK || kind == RELEASE || !s->peer[node].alive;
    return idle && node_turn(s, node);
}

/* Steps that do not affect others are taken at once, except for crashes; this removes states that
 * differ only in the order of such steps. Leaves and crashes are last: as long as another step is
 * possible, the run is not at its end. */
static bool (*const steps[])(struct state *, uint32_t) = {
    deliver_at_once, report_lane,    adopt_result,    complete_join,     driver_turn,
    node_turn,       send_hello,     contribute_next, complete_exchange, admit_joiner,
    reconnect_node,  recover_driver, receive_as_leaf, end_leaf,          make_leaf,
    crash_node,      driver_dies};

enum { STEPS = sizeof steps / sizeof *steps, AT_ONCE = 4, FAULTS = STEPS - 4 };

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

static void check_commit_rule(const struct state *s)
{
    for (uint32_t i = 0; i < NODES; i++)
        for (uint32_t k = 0; k < i; k++)
            for (uint8_t n = 1; n <= N; n++) {
                const struct peer *a = &s->peer[i], *b = &s->peer[k];
                bool both = set_has(s->roster.in, i) && set_has(s->roster.in, k) && a->alive &&
                            b->alive && !a->was_leaf && !b->was_leaf &&
                            (a->view == b->view || world.leaves == 0);
                if (both && a->completed >= n && b->completed >= n && a->value[n] && b->value[n])
                    assert_int_equal(a->value[n], b->value[n]);
            }
}

/* Nothing can happen but another crash. */
static void check_end(const struct state *s)
{
    ends++;
    joined += set_has(s->roster.in, JOINER);
    returns += s->roster.second && s->roster.number > 0;
    for (uint32_t i = 0; i < NODES; i++)
        if (set_has(s->roster.in & ~s->roster.view_leaves, i) && s->peer[i].alive)
            assert_int_equal(s->peer[i].completed, N);
    /* A joiner that waits for a donor has a live one. */
    if (set_has(s->roster.waits, JOINER) && s->roster.donor[JOINER])
        assert_true(set_has(s->roster.in, s->roster.donor[JOINER] - 1u));
}

static void push_state(const struct state *s)
{
    if (depth == room) {
        room = room ? 2 * room : 1 << 16;
        stack = realloc(stack, room * sizeof *stack);
        assert_non_null(stack);
    }
    stack[depth++] = *s;
}

static void explore_states(const struct state *from)
{
    push_state(from);
    (void)is_new(from);
    while (depth > 0) {
        struct state s = stack[--depth];
        bool moved = false;
        check_commit_rule(&s);
        for (int k = 0; k < STEPS; k = moved && k < AT_ONCE ? FAULTS : k + 1)
            for (uint32_t node = 0; node < NODES; node++) {
                struct state next = s;
                if (!steps[k](&next, node))
                    continue;
                moved |= k < FAULTS;
                if (is_new(&next))
                    push_state(&next);
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
    options.workers = all->workers ? all->workers : 3;
    for (uint32_t i = 0; i < NODES; i++)
        s.peer[i].alive = i == JOINER ? all->joiner : i < options.workers;
    roster_init(&roster, &options);
    for (uint32_t i = 0; i < options.workers; i++) { /* the group forms */
        assert_true(send_hello(&s, i));
        driver_receives(&s, i);
        s.peer[i].synced = s.peer[i].reported = 1; /* as exchange_init has it */
    }
    explore_states(&s);
    print_message("    %zu states, %zu ends, the joiner in at %zu of them, the driver back at "
                  "%zu\n",
                  states, ends, joined, returns);
    assert_true(states > 10000 && (joined > 0) == all->joiner && (returns > 0) == all->driver);
    free(seen);
    free(stack);
}

static void test_roster_join_with_two_crashes(void **state)
{
    (void)state;
    go_through_all(&(struct world){.crashes = 2, .joiner = true});
}

static void test_roster_driver_and_worker_die(void **state)
{
    (void)state;
    go_through_all(&(struct world){.crashes = 1, .driver = true});
}

static void test_roster_leaves_and_a_crash(void **state)
{
    (void)state;
    go_through_all(&(struct world){.crashes = 1, .leaves = 1});
    go_through_all(&(struct world){.workers = 2, .crashes = 1, .leaves = 2});
}

static void test_roster_driver_dies_with_leaves(void **state)
{
    (void)state;
    go_through_all(&(struct world){.workers = 2, .leaves = 2, .driver = true});
}

static void test_roster_driver_dies_during_join(void **state)
{
    (void)state;
    go_through_all(&(struct world){.joiner = true, .driver = true});
}

static void test_roster_driver_without_memory(void **state)
{
    (void)state;
    go_through_all(&(struct world){.joiner = true, .driver = true, .forgetful = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roster_join_with_two_crashes),
        cmocka_unit_test(test_roster_driver_and_worker_die),
        cmocka_unit_test(test_roster_leaves_and_a_crash),
        cmocka_unit_test(test_roster_driver_dies_with_leaves),
        cmocka_unit_test(test_roster_driver_dies_during_join),
        cmocka_unit_test(test_roster_driver_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
