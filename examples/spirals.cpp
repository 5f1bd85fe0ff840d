// A program in C++17 or later: it trains a small net in its own process, on points of three spirals
// that it holds in vectors, and tests it on others.
//
//     spirals [STEPS]
#include "paceline/data.h"
#include "paceline/net.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

namespace
{

constexpr std::uint32_t spirals = 3;

struct Freed {
    void operator()(pl_engine *engine) const
    {
        pl_engine_destroy(engine);
    }
    void operator()(pl_net_spec *spec) const
    {
        pl_net_spec_free(spec);
    }
    void operator()(pl_net *net) const
    {
        pl_net_free(net);
    }
};
template <typename T> using Owned = std::unique_ptr<T, Freed>;

struct Points {
    std::vector<float> at;
    std::vector<std::uint32_t> of;
};

// Numbers from 0 to 1, the same ones on each machine.
class Random
{
  public:
    explicit Random(std::uint64_t seed) : state(seed)
    {
    }
    double draw()
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<double>(state >> 11) / 9007199254740992.0;
    }

  private:
    std::uint64_t state;
};

Points draw_points(std::size_t count, std::uint64_t seed)
{
    Random random(seed);
    Points points;
    for (std::size_t i = 0; i < count; i++) {
        const double along = random.draw(), off = random.draw() - 0.5;
        const auto of = static_cast<std::uint32_t>(i % spirals);
        const double angle = 4 * along + 2.0944 * of + 0.3 * off;
        points.at.push_back(static_cast<float>(along * std::cos(angle)));
        points.at.push_back(static_cast<float>(along * std::sin(angle)));
        points.of.push_back(of);
    }
    return points;
}

void check(const Owned<pl_engine> &engine, int status)
{
    if (status != PL_OK)
        throw std::runtime_error(pl_engine_error(engine.get()));
}

// The library reads the vectors where they are.
void bind_points(const Owned<pl_engine> &engine, const char *name, const Points &points)
{
    pl_records records{};
    records.size = sizeof records;
    records.count = points.of.size();
    records.channels = 2;
    records.height = records.width = 1;
    records.classes = spirals;
    records.type = PL_F32;
    records.values = points.at.data();
    records.labels = points.of.data();
    check(engine, pl_data_bind(engine.get(), name, &records));
}

Owned<pl_net> make_net(const Owned<pl_engine> &engine)
{
    pl_net_spec *made = nullptr;
    check(engine, pl_net_spec_create(engine.get(), "spirals", &made));
    const Owned<pl_net_spec> spec(made);
    pl_spec_input(made, "data", "label", 2, 1, 1);
    pl_spec_inner_product(made, "ip1", "data", 64, nullptr);
    pl_spec_relu(made, "relu1", "ip1");
    pl_spec_inner_product(made, "ip2", "relu1", spirals, nullptr);
    pl_spec_softmax_loss(made, "loss", "ip2", "label");
    pl_spec_accuracy(made, "accuracy", "ip2", "label");
    pl_net_options options{};
    options.size = sizeof options;
    options.batch = 32;
    options.threads = 1;
    options.solver = "base_lr: 0.1 momentum: 0.9 lr_policy: 'fixed'";
    pl_net *net = nullptr;
    check(engine, pl_net_create(engine.get(), made, &options, &net));
    return Owned<pl_net>(net);
}

void train_and_test(std::uint64_t steps)
{
    pl_engine *created = nullptr;
    if (pl_engine_create(nullptr, &created) != PL_OK)
        throw std::runtime_error("no memory for an engine");
    const Points train = draw_points(3000, 1), test = draw_points(600, 2);
    const Owned<pl_engine> engine(created);
    bind_points(engine, "train", train);
    bind_points(engine, "test", test);
    const Owned<pl_net> net = make_net(engine);
    pl_test_result result{};
    check(engine, pl_net_set_training_data(net.get(), "memory:train", 0, 1));
    check(engine, pl_net_set_validation_data(net.get(), "memory:test", 0, 1));
    check(engine, pl_net_train(net.get(), steps, nullptr));
    check(engine, pl_net_test(net.get(), 0, &result));
    std::printf("%s: error %.1f %% after %llu steps\n", pl_version(), 100 * result.error,
                static_cast<unsigned long long>(steps));
}

} // namespace

int main(int argc, char **argv)
{
    try {
        train_and_test(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "spirals: %s\n", error.what());
        return 1;
    }
    return 0;
}
