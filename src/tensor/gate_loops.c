/* Units of recurrent layers, a register of them at a time. */
#include "tensor/gate_loops.h"

#include "tensor/exponential.h"

INLINE floats sigmoid(floats x)
{
    return reciprocal(1.0f + exponential_inside(-clamp(x, 87)));
}

/* A quotient of polynomials (Eigen's ptanh_float), good to 5 units of the last place. Beyond 7.9
 * it is the float next to 1. */
INLINE floats hyperbolic_tangent(floats x)
{
    x = clamp(x, 7.90531110763549805f);
    floats square = x * x;
    floats p = square * -2.76076847742355e-16f + 2.00018790482477e-13f;
    p = p * square - 8.60467152213735e-11f;
    p = p * square + 5.12229709037114e-08f;
    p = p * square + 1.48572235717979e-05f;
    p = p * square + 6.37261928875436e-04f;
    p = p * square + 4.89352455891786e-03f;
    floats q = square * 1.19825839466702e-06f + 1.18534705686654e-04f;
    q = q * square + 2.26843463243900e-03f;
    q = q * square + 4.89352518554385e-03f;
    return p * x * reciprocal(q);
}

/* The sum at gate g of units i to i + len. */
INLINE floats sum_at(const struct gate_row *r, size_t g, size_t i, size_t len)
{
    size_t at = g * r->H + i;
    floats sum = load(r->sums + at, len);
    return r->extra ? sum + load(r->extra + at, len) : sum;
}

INLINE floats load_gradient(const struct gate_row *r, size_t i, size_t len)
{
    floats dh = load(r->dh + i, len);
    return r->dy ? dh + load(r->dy + i, len) : dh;
}

INLINE floats load_gate(const struct gate_row *r, const float *of, size_t g, size_t i, size_t len)
{
    return load(of + g * r->H + i, len);
}

INLINE void store_gate(const struct gate_row *r, float *of, size_t g, size_t i, floats v,
                       size_t len)
{
    store(of + g * r->H + i, v, len);
}

/* Run `part` for registers of units, the last of which may be less. */
#define WALK(part)                             \
    for (size_t i = 0; i < r->H; i += LANES) { \
        if (r->H - i >= LANES)                 \
            part(r, i, LANES);                 \
        else                                   \
            part(r, i, r->H - i);              \
    }

INLINE void tanh_forward_part(const struct gate_row *r, size_t i, size_t len)
{
    store(r->h + i, hyperbolic_tangent(sum_at(r, 0, i, len) + load(r->z + i, len)), len);
}

static void tanh_forward(const struct gate_row *r){WALK(tanh_forward_part)}

INLINE void tanh_backward_part(const struct gate_row *r, size_t i, size_t len)
{
    floats h = load(r->h + i, len), d = load_gradient(r, i, len) * (1.0f - h * h);
    store(r->gates + i, d, len);
    store(r->z + i, d, len);
    store(r->dh + i, (floats){0}, len);
}

static void tanh_backward(const struct gate_row *r)
{
    WALK(tanh_backward_part)
}

enum { LSTM_I, LSTM_F, LSTM_O, LSTM_G };

INLINE floats lstm_sum(const struct gate_row *r, size_t g, size_t i, size_t len)
{
    return sum_at(r, g, i, len) + load_gate(r, r->z, g, i, len);
}

/* The gates and the cells of the next record lie where no processor looks ahead by itself. */
INLINE void lstm_ask_for_next(const struct gate_row *r, size_t i)
{
    size_t next = r->next * r->H;
    for (size_t g = LSTM_I; g <= LSTM_G; g++)
        __builtin_prefetch(r->gates + 4 * next + g * r->H + i, 1);
    __builtin_prefetch(r->c + next + i, 1);
    __builtin_prefetch(r->before + next + i);
}

INLINE void lstm_forward_part(const struct gate_row *r, size_t i, size_t len)
{
    lstm_ask_for_next(r, i);
    floats in = sigmoid(lstm_sum(r, LSTM_I, i, len)), forget = sigmoid(lstm_sum(r, LSTM_F, i, len));
    floats out = sigmoid(lstm_sum(r, LSTM_O, i, len));
    floats g = hyperbolic_tangent(lstm_sum(r, LSTM_G, i, len));
    floats c = r->cont * forget * load(r->before + i, len) + in * g;
    store_gate(r, r->gates, LSTM_I, i, in, len);
    store_gate(r, r->gates, LSTM_F, i, forget, len);
    store_gate(r, r->gates, LSTM_O, i, out, len);
    store_gate(r, r->gates, LSTM_G, i, g, len);
    store(r->c + i, c, len);
    store(r->h + i, out * hyperbolic_tangent(c), len);
}

static void lstm_forward(const struct gate_row *r){WALK(lstm_forward_part)}

INLINE void lstm_put(const struct gate_row *r, size_t g, size_t i, floats d, size_t len)
{
    store_gate(r, r->gates, g, i, d, len);
    if (r->z)
        store_gate(r, r->z, g, i, d, len);
}

INLINE void lstm_backward_part(const struct gate_row *r, size_t i, size_t len)
{
    lstm_ask_for_next(r, i);
    floats in = load_gate(r, r->gates, LSTM_I, i, len), g = load_gate(r, r->gates, LSTM_G, i, len);
    floats forget = load_gate(r, r->gates, LSTM_F, i, len);
    floats out = load_gate(r, r->gates, LSTM_O, i, len);
    floats c = hyperbolic_tangent(load(r->c + i, len)), dh = load_gradient(r, i, len);
    floats dc = load(r->dc + i, len) + dh * out * (1.0f - c * c);
    floats before = r->cont * load(r->before + i, len);
    lstm_put(r, LSTM_I, i, dc * g * in * (1.0f - in), len);
    lstm_put(r, LSTM_F, i, dc * before * forget * (1.0f - forget), len);
    lstm_put(r, LSTM_O, i, dh * c * out * (1.0f - out), len);
    lstm_put(r, LSTM_G, i, dc * in * (1.0f - g * g), len);
    store(r->dc + i, r->cont * forget * dc, len);
    store(r->dh + i, (floats){0}, len);
}

static void lstm_backward(const struct gate_row *r)
{
    WALK(lstm_backward_part)
}

enum { GRU_R, GRU_Z, GRU_N };

INLINE void gru_forward_part(const struct gate_row *r, size_t i, size_t len)
{
    floats reset = sigmoid(sum_at(r, GRU_R, i, len) + load_gate(r, r->z, GRU_R, i, len));
    floats update = sigmoid(sum_at(r, GRU_Z, i, len) + load_gate(r, r->z, GRU_Z, i, len));
    floats inner = load_gate(r, r->z, GRU_N, i, len), before = load(r->before + i, len);
    floats n = hyperbolic_tangent(sum_at(r, GRU_N, i, len) + reset * inner);
    store_gate(r, r->gates, GRU_R, i, reset, len);
    store_gate(r, r->gates, GRU_Z, i, update, len);
    store_gate(r, r->gates, GRU_N, i, n, len);
    if (r->inner)
        store(r->inner + i, inner, len);
    store(r->h + i, n + update * (before - n), len);
}

static void gru_forward(const struct gate_row *r){WALK(gru_forward_part)}

INLINE void gru_backward_part(const struct gate_row *r, size_t i, size_t len)
{
    floats reset = load_gate(r, r->gates, GRU_R, i, len), n = load_gate(r, r->gates, GRU_N, i, len);
    floats update = load_gate(r, r->gates, GRU_Z, i, len), dh = load_gradient(r, i, len);
    floats dn = dh * (1.0f - update) * (1.0f - n * n);
    floats dz = dh * (load(r->before + i, len) - n) * update * (1.0f - update);
    floats dr = dn * load(r->inner + i, len) * reset * (1.0f - reset);
    store_gate(r, r->gates, GRU_R, i, dr, len);
    store_gate(r, r->gates, GRU_Z, i, dz, len);
    store_gate(r, r->gates, GRU_N, i, dn, len);
    store_gate(r, r->z, GRU_R, i, dr, len);
    store_gate(r, r->z, GRU_Z, i, dz, len);
    store_gate(r, r->z, GRU_N, i, dn * reset, len);
    store(r->dh + i, dh * update, len);
}

static void gru_backward(const struct gate_row *r){WALK(gru_backward_part)}

INLINE void reset_gates_part(const struct gate_row *r, size_t i, size_t len)
{
    floats reset = sigmoid(sum_at(r, GRU_R, i, len) + load_gate(r, r->z, GRU_R, i, len));
    floats update = sigmoid(sum_at(r, GRU_Z, i, len) + load_gate(r, r->z, GRU_Z, i, len));
    store_gate(r, r->gates, GRU_R, i, reset, len);
    store_gate(r, r->gates, GRU_Z, i, update, len);
    store(r->reset + i, reset * load(r->before + i, len), len);
}

static void reset_gates(const struct gate_row *r){WALK(reset_gates_part)}

INLINE void reset_forward_part(const struct gate_row *r, size_t i, size_t len)
{
    floats n = hyperbolic_tangent(sum_at(r, GRU_N, i, len) + load(r->inner + i, len));
    floats update = load_gate(r, r->gates, GRU_Z, i, len), before = load(r->before + i, len);
    store_gate(r, r->gates, GRU_N, i, n, len);
    store(r->h + i, n + update * (before - n), len);
}

static void reset_forward(const struct gate_row *r){WALK(reset_forward_part)}

INLINE void reset_backward_part(const struct gate_row *r, size_t i, size_t len)
{
    floats update = load_gate(r, r->gates, GRU_Z, i, len),
           n = load_gate(r, r->gates, GRU_N, i, len);
    floats dh = load_gradient(r, i, len), dn = dh * (1.0f - update) * (1.0f - n * n);
    floats dz = dh * (load(r->before + i, len) - n) * update * (1.0f - update);
    store_gate(r, r->gates, GRU_Z, i, dz, len);
    store_gate(r, r->z, GRU_Z, i, dz, len);
    store_gate(r, r->gates, GRU_N, i, dn, len);
    store(r->inner + i, dn, len);
    store(r->dh + i, dh * update, len);
}

static void reset_backward(const struct gate_row *r){WALK(reset_backward_part)}

INLINE void reset_finish_part(const struct gate_row *r, size_t i, size_t len)
{
    floats reset = load_gate(r, r->gates, GRU_R, i, len), d = load(r->reset + i, len);
    floats dr = d * load(r->before + i, len) * reset * (1.0f - reset);
    store_gate(r, r->gates, GRU_R, i, dr, len);
    store_gate(r, r->z, GRU_R, i, dr, len);
    store(r->dh + i, load(r->dh + i, len) + d * reset, len);
}

static void reset_finish(const struct gate_row *r)
{
    WALK(reset_finish_part)
}

const struct gate_loops ISA_NAME(gate_loops) = {
    tanh_forward, tanh_backward, lstm_forward,  lstm_backward,  gru_forward,
    gru_backward, reset_gates,   reset_forward, reset_backward, reset_finish,
};
