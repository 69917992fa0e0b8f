#include "longhand/nn/module.h"

#include <algorithm>

#include "longhand/core/options.h"

namespace longhand::nn {

namespace {

thread_local const Running* running = nullptr;

}  // namespace

Running::Running(const Module& module) : module_(module), outer_(running) { running = this; }
Running::~Running() { running = outer_; }
const Running* Running::innermost() { return running; }

void check_state(const StateDict& own, const StateDict& from, const std::string& what) {
  std::string problems;
  std::vector<std::string> missing;
  for (const auto& [name, to] : own) {
    const auto found = from.find(name);
    if (found == from.end()) {
      missing.push_back(name.substr(0, name.find(' ')));  // without a remark about it
      problems += "\n  " + name + " is missing";
    } else if (!(found->second.shape() == to.shape()))
      problems += concat_message("\n  ", name, " has shape ", found->second.shape(), ", expected ",
                                 to.shape());
    else if (found->second.dtype() != to.dtype() &&
             !(is_float(found->second.dtype()) && is_float(to.dtype())))
      problems +=
          concat_message("\n  ", name, " is of ", found->second.dtype(), ", expected ", to.dtype());
  }
  for (const auto& [name, tensor] : from)
    if (!own.count(name)) problems += "\n  " + name + " is unexpected" + suggestion(name, missing);
  check<DataError>(problems.empty(), "the state does not match ", what, ":", problems);
}

Generator PassRandom::fork(std::string_view module) const {
  check(generator_.has_value(), module,
        ": needs random numbers, but this pass has no generator; train with "
        "nn::Pass::train(Generator(seed).fork(step)), a different generator at every step");
  return generator_->fork(module);
}

Module::Module(const Scope& scope) : dtype_(scope.dtype), random_(scope.random) {
  if (!scope.parent) return;
  scope.parent->claim(scope.name);
  scope.parent->children_.emplace_back(scope.name, this);
  full_name_ =
      scope.parent->full_name_.empty() ? scope.name : scope.parent->full_name_ + "." + scope.name;
}

Scope Module::scope(const std::string& name) { return {this, name, dtype_, random_.fork(name)}; }

void Module::claim(const std::string& name) {
  const std::string owner = full_name_.empty() ? "the root module" : full_name_;
  check(!name.empty() && name.find('.') == std::string::npos, owner, ": \"", name,
        "\" is not a valid member name: expected a non-empty name without dots");
  const auto taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& item) { return item.first == name; });
  };
  check(!taken(children_) && !taken(parameters_) && !taken(buffers_), owner, ": \"", name,
        "\" is already the name of a member");
}

void Module::visit(const std::string& prefix,
                   const std::function<void(const std::string&, const Module&)>& f) const {
  f(prefix, *this);
  for (const auto& [name, child] : children_) child->visit(prefix + name + ".", f);
}

std::vector<std::pair<std::string, Variable>> Module::named_parameters() const {
  std::vector<std::pair<std::string, Variable>> out;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, parameter] : m.parameters_) out.emplace_back(prefix + name, *parameter);
  });
  return out;
}

std::vector<std::pair<std::string, const Module*>> Module::named_modules() const {
  std::vector<std::pair<std::string, const Module*>> out;
  visit("", [&](const std::string& prefix, const Module& m) {
    out.emplace_back(prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1), &m);
  });
  return out;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, parameter] : named_parameters()) count += parameter.value().numel();
  return count;
}

StateDict Module::state_dict() const {
  StateDict out;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, parameter] : m.parameters_) out[prefix + name] = parameter->value();
    for (const auto& [name, buffer] : m.buffers_) out[prefix + name] = buffer->value();
  });
  return out;
}

void Module::load_state_dict(const StateDict& state) {
  StateDict own = state_dict();
  // Version 0.1 counted the normalisers of fewer variants: a missing count keeps its value.
  std::erase_if(own, [&](const auto& entry) {
    return entry.first.ends_with("nonpositive_normalizers") && !state.contains(entry.first);
  });
  check_state(own, state, "the model");
  for (auto& [name, to] : own) copy_into(to, state.at(name));
}

std::map<std::string, double> Module::metrics() const {
  std::map<std::string, double> out;
  visit("", [&](const std::string& prefix, const Module& m) {
    for (const auto& [name, value] : m.own_metrics()) out[prefix + name] = value;
  });
  return out;
}

void Module::zero_grad() {
  for (auto& [name, parameter] : named_parameters()) parameter.zero_grad();
}

void Module::after_step() {
  on_step();
  for (const auto& [name, child] : children_) child->after_step();
}

Parameter::Parameter(const Scope& scope, const Shape& shape, const Init& init)
    : Variable(
          [&] {
            Tensor t = Tensor::empty(shape, scope.dtype);
            init(t, scope.random);
            return t;
          }(),
          true) {
  check(scope.parent != nullptr, "parameter: expected a scope of a module, got a root scope");
  scope.parent->claim(scope.name);
  scope.parent->parameters_.emplace_back(scope.name, this);
}

Buffer::Buffer(const Scope& scope, Tensor value) : value_(std::move(value)) {
  check(scope.parent != nullptr, "buffer: expected a scope of a module, got a root scope");
  scope.parent->claim(scope.name);
  scope.parent->buffers_.emplace_back(scope.name, this);
}

}  // namespace longhand::nn
