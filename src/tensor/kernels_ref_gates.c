/* Units of recurrent layers in plain C: in double precision, whose exponentials round to the same
 * floats on all machines. */
#include "tensor/kernels_ref.h"

#include "tensor/recurrence.h"

#include <math.h>
#include <string.h>

static double sigmoid_of(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The sum at gate g of unit i, without that of the state. */
static double input_sum(const struct gate_row *r, size_t g, size_t i)
{
    size_t at = g * r->H + i;
    return (double)r->sums[at] + (r->extra ? (double)r->extra[at] : 0.0);
}

static double whole_sum(const struct gate_row *r, size_t g, size_t i)
{
    return input_sum(r, g, i) + (double)r->z[g * r->H + i];
}

static float gradient_of(const struct gate_row *r, size_t i)
{
    return r->dy ? r->dh[i] + r->dy[i] : r->dh[i];
}

static void tanh_forward(const struct gate_row *r)
{
    for (size_t i = 0; i < r->H; i++)
        r->h[i] = (float)tanh(whole_sum(r, 0, i));
}

static void tanh_backward(const struct gate_row *r)
{
    for (size_t i = 0; i < r->H; i++) {
        r->gates[i] = r->z[i] = gradient_of(r, i) * (1.0f - r->h[i] * r->h[i]);
        r->dh[i] = 0.0f;
    }
}

static void lstm_forward(const struct gate_row *r)
{
    size_t H = r->H;
    for (size_t i = 0; i < H; i++) {
        double in = sigmoid_of(whole_sum(r, 0, i)), forget = sigmoid_of(whole_sum(r, 1, i));
        double out = sigmoid_of(whole_sum(r, 2, i)), g = tanh(whole_sum(r, 3, i));
        double c = (double)r->cont * forget * (double)r->before[i] + in * g;
        r->gates[i] = (float)in;
        r->gates[H + i] = (float)forget;
        r->gates[2 * H + i] = (float)out;
        r->gates[3 * H + i] = (float)g;
        r->c[i] = (float)c;
        r->h[i] = (float)(out * tanh(c));
    }
}

static void lstm_backward(const struct gate_row *r)
{
    size_t H = r->H;
    for (size_t i = 0; i < H; i++) {
        float in = r->gates[i], forget = r->gates[H + i];
        float out = r->gates[2 * H + i], g = r->gates[3 * H + i];
        float c = (float)tanh((double)r->c[i]), dh = gradient_of(r, i);
        float dc = r->dc[i] + dh * out * (1.0f - c * c);
        r->gates[i] = dc * g * in * (1.0f - in);
        r->gates[H + i] = dc * r->cont * r->before[i] * forget * (1.0f - forget);
        r->gates[2 * H + i] = dh * c * out * (1.0f - out);
        r->gates[3 * H + i] = dc * in * (1.0f - g * g);
        r->dc[i] = r->cont * forget * dc;
        r->dh[i] = 0.0f;
    }
    if (r->z)
        memcpy(r->z, r->gates, 4 * H * sizeof *r->z);
}

static void gru_forward(const struct gate_row *r)
{
    size_t H = r->H;
    for (size_t i = 0; i < H; i++) {
        double reset = sigmoid_of(whole_sum(r, 0, i)), update = sigmoid_of(whole_sum(r, 1, i));
        double inner = (double)r->z[2 * H + i], n = tanh(input_sum(r, 2, i) + reset * inner);
        r->gates[i] = (float)reset;
        r->gates[H + i] = (float)update;
        r->gates[2 * H + i] = (float)n;
        if (r->inner)
            r->inner[i] = (float)inner;
        r->h[i] = (float)(n + update * ((double)r->before[i] - n));
    }
}

static void gru_backward(const struct gate_row *r)
{
    size_t H = r->H;
    for (size_t i = 0; i < H; i++) {
        float reset = r->gates[i], update = r->gates[H + i], n = r->gates[2 * H + i];
        float dh = gradient_of(r, i), dn = dh * (1.0f - update) * (1.0f - n * n);
        float dr = dn * r->inner[i] * reset * (1.0f - reset);
        float dz = dh * (r->before[i] - n) * update * (1.0f - update);
        r->gates[i] = r->z[i] = dr;
        r->gates[H + i] = r->z[H + i] = dz;
        r->gates[2 * H + i] = dn;
        r->z[2 * H + i] = dn * reset;
        r->dh[i] = dh * update;
    }
}

static void reset_gates(const struct gate_row *r)
{
    size_t H = r->H;
    for (size_t i = 0; i < H; i++) {
        double reset = sigmoid_of(whole_sum(r, 0, i));
        r->gates[i] = (float)reset;
        r->gates[H + i] = (float)sigmoid_of(whole_sum(r, 1, i));
        r->reset[i] = (float)(reset * (double)r->before[i]);
    }
}

static void reset_forward(const struct gate_row *r)
{
    size_t H = r->H;
    for (size_t i = 0; i < H; i++) {
        double n = tanh(input_sum(r, 2, i) + (double)r->inner[i]), update = (double)r->gates[H + i];
        r->gates[2 * H + i] = (float)n;
        r->h[i] = (float)(n + update * ((double)r->before[i] - n));
    }
}

static void reset_backward(const struct gate_row *r)
{
    size_t H = r->H;
    for (size_t i = 0; i < H; i++) {
        float update = r->gates[H + i], n = r->gates[2 * H + i], dh = gradient_of(r, i);
        r->gates[2 * H + i] = r->inner[i] = dh * (1.0f - update) * (1.0f - n * n);
        r->gates[H + i] = r->z[H + i] = dh * (r->before[i] - n) * update * (1.0f - update);
        r->dh[i] = dh * update;
    }
}

static void reset_finish(const struct gate_row *r)
{
    for (size_t i = 0; i < r->H; i++) {
        float reset = r->gates[i], d = r->reset[i];
        r->gates[i] = r->z[i] = d * r->before[i] * reset * (1.0f - reset);
        r->dh[i] += d * reset;
    }
}

int ref_plan_recurrence(const struct recurrence_spec *spec, bool training, struct arena *arena,
                        struct recurrence **out, struct err *err)
{
    static const struct gate_loops gates = {
        tanh_forward, tanh_backward, lstm_forward,  lstm_backward,  gru_forward,
        gru_backward, reset_gates,   reset_forward, reset_backward, reset_finish,
    };
    const struct recurrence_loops loops = {&gates, NULL};
    return recurrence_plan(spec, &kernels_ref, &loops, training, arena, out, err);
}
