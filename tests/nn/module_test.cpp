#include "longhand/nn/module.h"

#include <thread>

#include "longhand/nn/init.h"
#include "longhand/nn/linear.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::nn;

namespace {

class Pair : public Module {
 public:
  explicit Pair(const Scope& scope_)
      : Module(scope_), first(scope("first"), 3, 2), second(scope("second"), 2, 1, false) {}
  Linear first, second;
  int steps = 0;

 private:
  void on_step() override { ++steps; }
};

class Tree : public Module {
 public:
  explicit Tree(const Scope& scope_)
      : Module(scope_),
        items(scope("items")),
        gain(scope("gain"), {2}, init::ones()),
        counter(scope("counter"), Tensor::zeros({1}, DType::i64)) {
    items.emplace_back();
    items.emplace_back();
  }
  ModuleList<Pair> items;
  Parameter gain;
  Buffer counter;
};

std::vector<std::string> names(const Module& module) {
  std::vector<std::string> out;
  for (const auto& [name, parameter] : module.named_parameters()) out.push_back(name);
  return out;
}

}  // namespace

TEST_CASE("module: construction registers by full name") {
  Tree tree(root());
  CHECK(names(tree) == std::vector<std::string>{"gain", "items.0.first.weight",
                                                "items.0.first.bias", "items.0.second.weight",
                                                "items.1.first.weight", "items.1.first.bias",
                                                "items.1.second.weight"});
  CHECK(tree.items[1].second.full_name() == "items.1.second");
  CHECK(tree.parameter_count() == 2 + 2 * (6 + 2 + 2));
  CHECK(tree.state_dict().count("counter") == 1);
  CHECK(tree.state_dict().size() == 8);
}

TEST_CASE("module: initial values depend on the seed and the name, not on the order") {
  Tree a(root(DType::f32, 1)), b(root(DType::f32, 1)), c(root(DType::f32, 2));
  CHECK(identical(a.items[0].first.weight.value(), b.items[0].first.weight.value()));
  CHECK_FALSE(identical(a.items[0].first.weight.value(), c.items[0].first.weight.value()));
  CHECK_FALSE(identical(a.items[0].first.weight.value(), a.items[1].first.weight.value()));

  class Other : public Module {
   public:
    explicit Other(const Scope& s)
        : Module(s), unrelated(scope("unrelated"), 1, 1), items(scope("items")) {
      items.emplace_back();
    }
    Linear unrelated;
    ModuleList<Pair> items;
  } other(root(DType::f32, 1));
  CHECK(identical(a.items[0].first.weight.value(), other.items[0].first.weight.value()));
}

TEST_CASE("module: names that cannot be saved are refused") {
  class Dotted : public Module {
   public:
    explicit Dotted(const std::string& name) : Module(root()), linear(scope(name), 1, 1) {}
    Linear linear;
  };
  CHECK_THROWS_AS(Dotted("a.b"), Error);
  CHECK_THROWS_AS(Dotted(""), Error);
  class Twice : public Module {
   public:
    Twice() : Module(root()), a(scope("x"), 1, 1), b(scope("x"), 1, 1) {}
    Linear a, b;
  };
  CHECK_THROWS_WITH(Twice(), Catch::Contains("\"x\" is already the name of a member"));
}

TEST_CASE("module: a state dict goes into another module and converts floats") {
  Tree from(root(DType::f64, 1)), to(root(DType::f32, 2));
  from.counter.mutable_value().fill(7);
  to.load_state_dict(from.state_dict());
  CHECK(to.counter.value().item() == 7);
  CHECK(identical(to.items[1].first.weight.value(),
                  from.items[1].first.weight.value().to(DType::f32)));
}

TEST_CASE("module: an error of loading lists every mismatch and changes nothing") {
  Tree tree(root());
  const Tensor before = tree.items[0].first.weight.value().clone();
  StateDict state;
  for (const auto& [name, tensor] : tree.state_dict())
    state[name] = Tensor::full(tensor.shape(), 9, tensor.dtype());
  state.erase("gain");
  state["items.1.first.bias"] = Tensor::zeros({5});
  state["stranger"] = Tensor::zeros({1});
  state["counter"] = Tensor::zeros({1}, DType::f32);
  try {
    tree.load_state_dict(state);
    FAIL("accepted");
  } catch (const DataError& e) {
    const std::string what = e.what();
    CHECK_THAT(what, Catch::Contains("gain is missing"));
    CHECK_THAT(what, Catch::Contains("items.1.first.bias has shape [5], expected [2]"));
    CHECK_THAT(what, Catch::Contains("stranger is unexpected"));
    CHECK_THAT(what, Catch::Contains("counter is of f32, expected i64"));
  }
  CHECK(identical(tree.items[0].first.weight.value(), before));
}

TEST_CASE("module: after_step reaches every module once") {
  Tree tree(root());
  tree.after_step();
  tree.after_step();
  CHECK(tree.items[0].steps == 2);
  CHECK(tree.items[1].steps == 2);
}

TEST_CASE("init: initialisers have the documented spread") {
  Tensor t = Tensor::empty({300, 200}, DType::f64);
  const auto moments = [&] {
    double sum = 0, squares = 0, most = 0;
    for (double v : t.to_vector<double>()) {
      sum += v;
      squares += v * v;
      most = std::max(most, std::abs(v));
    }
    return std::array{sum / 60000, std::sqrt(squares / 60000), most};
  };
  init::normal(0.02)(t, Generator(1));
  CHECK(std::abs(moments()[0]) <= 4 * 0.02 / std::sqrt(60000));
  CHECK(std::abs(moments()[1] - 0.02) <= 0.0004);
  const double a = std::sqrt(6.0 / 500);
  init::xavier_uniform()(t, Generator(1));
  CHECK(std::abs(moments()[1] - a / std::sqrt(3)) <= 0.01 * a);
  CHECK(moments()[2] <= a);
  CHECK(moments()[2] >= 0.999 * a);
  init::constant(3)(t, Generator(1));
  CHECK(moments()[0] == 3);
}

TEST_CASE("module: the one that runs is known on its thread, and all are listed") {
  Tree tree(root());
  CHECK(Running::innermost() == nullptr);
  {
    const Running outer(tree);
    {
      const Running inner(tree.items[1]);
      CHECK(Running::innermost()->module().full_name() == "items.1");
    }
    CHECK(&Running::innermost()->module() == &tree);
    const Running* elsewhere = &outer;
    std::thread([&] { elsewhere = Running::innermost(); }).join();
    CHECK(elsewhere == nullptr);
  }
  CHECK(Running::innermost() == nullptr);

  const auto modules = tree.named_modules();
  REQUIRE(modules.size() == 8);
  CHECK(modules[0] == std::pair<std::string, const Module*>("", &tree));
  CHECK(modules[7] ==
        std::pair<std::string, const Module*>("items.1.second", &tree.items[1].second));
}
